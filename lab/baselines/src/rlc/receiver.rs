//! RLC receiver: adds a layer at a synchronisation point without a loss since the previous point, and drops a
//! layer at a loss.

use headwater_wire::cci::RlcCci;

use super::sender::{Layers, near};
use super::{ConfigError, RlcConfig, RlcReceiverConfig};
use headwater_proto::control::{Arrival, Membership, ReceiverControl, Reception, Wishes};
use headwater_proto::layering::Unchanging;
use headwater_proto::layering::turns::Schedule;
use headwater_proto::machine::ChannelId;
use headwater_proto::measure::Holes;
use headwater_proto::time::{Duration, Instant};

/// Time after which a hole counts as a loss, regardless of later packets.
const PATIENCE: Duration = Duration::from_millis(500);

/// Receiving control of RLC.
///
/// The receiver recognises packets of bursts by packet numbers, counted from the start of the session. The
/// lowest layer's first packet is assumed to be among the first 2^16; later numbers follow from there.
///
/// Memory: 120 bytes for each subscribed layer, at most 24.
#[derive(Clone, Debug)]
pub struct RlcReceiver {
    layers: Layers,
    highest: u16,
    deaf: Duration,
    is_held: bool,
    wishes: Wishes,
    /// Subscribed layers, lowest first.
    held: Vec<Track>,
    /// Number of the lowest layer's last packet.
    base: Option<u64>,
    /// Time until which losses are ignored.
    deaf_until: Instant,
    /// Whether no loss occurred since the last point of the highest layer; `None` before the layer's first
    /// point.
    is_clean: Option<bool>,
    /// Departure time of that point, by the schedule.
    last_point: Instant,
    reception: Reception,
}

/// Subscribed layer.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    holes: Holes,
    /// Number of the next expected packet.
    next: Option<u64>,
    /// Oldest open hole, and the time since when it is the oldest.
    open: Option<(u64, Instant)>,
}

impl Track {
    /// Updates the oldest open hole after packet `number`. A hole that becomes the oldest is judged by its
    /// own number and waits the full time.
    fn watch(&mut self, now: Instant, number: u64) {
        let missing = self.holes.oldest().map(|low| number.wrapping_add_signed(near(low, number)));
        let before = self.open;
        self.open =
            missing.map(|missing| before.filter(|(open, _)| *open == missing).unwrap_or((missing, now)));
    }
}

impl RlcReceiver {
    /// Creates a receiver of a session with these layers.
    ///
    /// # Errors
    /// [`ConfigError`], if the parameters of the layers are inconsistent.
    pub fn new(layers: RlcConfig, config: RlcReceiverConfig) -> Result<Self, ConfigError> {
        let numbers = Layers::new(&layers, Instant::ZERO)?;
        let most =
            config.max_rate.map_or(f64::INFINITY, |rate| rate.packets_per_second(layers.packet_bytes.into()));
        let within = (1..numbers.level_count()).take_while(|level| numbers.rate(*level) <= most).count();
        Ok(Self {
            highest: u16::try_from(within).unwrap_or(u16::MAX),
            layers: numbers,
            deaf: config.deaf,
            is_held: false,
            wishes: Wishes::default(),
            held: Vec::new(),
            base: None,
            deaf_until: Instant::ZERO,
            is_clean: None,
            last_point: Instant::ZERO,
            reception: Reception::default(),
        })
    }

    /// Returns the number of subscribed layers above the lowest.
    pub fn level(&self) -> u16 {
        u16::try_from(self.held.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    fn arrive(&mut self, now: Instant, cci: RlcCci, is_marked: bool) {
        let level = u16::from(cci.layer);
        if usize::from(level) >= self.held.len() {
            return;
        }
        let Some(number) = self.number(level, cci.sequence) else { return };
        let track = &mut self.held[usize::from(level)];
        let found = track.holes.record(cci.sequence);
        let next = track.next.filter(|_| !found.is_anew).unwrap_or(number);
        if number >= next {
            track.next = Some(number + 1);
        }
        let first = track.open.map_or(next, |(first, _)| first);
        track.watch(now, number);
        if found.lost > 0 {
            self.lose(now, level, first, found.lost);
        }
        if is_marked {
            self.lose(now, level, number, 0);
        }
        if cci.synchronization_point && found.is_new && level == self.level() {
            self.last_point = self.layers.nth(level, number);
            self.point();
        }
    }

    /// Returns the full number of a layer's packet; `None` before the first packet of the lowest layer.
    fn number(&mut self, level: u16, sequence: u16) -> Option<u64> {
        if level > 0 {
            return self.base.map(|base| self.layers.number(level, sequence, base));
        }
        let expected = self.base.unwrap_or_default();
        let number = match self.base {
            None => u64::from(sequence),
            Some(_) => expected.wrapping_add_signed(near(sequence, expected)),
        };
        self.base = Some(self.base.unwrap_or_default().max(number));
        Some(number)
    }

    /// Processes losses of a layer, from packet `number` on.
    fn lose(&mut self, now: Instant, level: u16, number: u64, lost: u64) {
        self.reception.lost += lost;
        if now < self.deaf_until {
            return;
        }
        // A hole detected now may date from before the last point, whose decision is already made.
        if self.layers.nth(level, number) >= self.last_point {
            self.is_clean = self.is_clean.map(|_| false);
        }
        let is_burst = self.layers.is_burst(level, number);
        if !is_burst && self.level() > 0 {
            let channel = ChannelId(self.level());
            if let Some(mut track) = self.held.pop() {
                self.reception.lost += track.holes.close();
            }
            self.wishes.push(Membership::Leave(channel));
            self.deaf_until = now + self.deaf;
            self.is_clean = None;
        }
    }

    /// Handles a synchronisation point of the highest layer.
    fn point(&mut self) {
        let is_whole = self.held.iter().all(|track| track.open.is_none());
        let may_rise = is_whole && self.is_clean == Some(true) && self.level() < self.highest;
        self.is_clean = Some(true);
        if may_rise {
            self.held.push(Track::default());
            self.wishes.push(Membership::Join(ChannelId(self.level())));
            self.is_clean = None;
        }
    }

    /// Counts holes as losses after the maximum wait.
    fn give_up_holes(&mut self, now: Instant) {
        for level in 0..self.held.len() {
            let Some(track) = self.held.get_mut(level) else { break };
            if let Some((first, _)) = track.open.filter(|(_, since)| *since + PATIENCE <= now) {
                track.open = None;
                let lost = track.holes.close();
                if lost > 0 {
                    self.lose(now, u16::try_from(level).unwrap_or(u16::MAX), first, lost);
                }
            }
        }
    }
}

impl ReceiverControl for RlcReceiver {
    fn start(&mut self, _now: Instant) {
        if !self.is_held {
            self.is_held = true;
            self.held.push(Track::default());
            self.wishes.push(Membership::Join(ChannelId::BASE));
        }
    }

    fn stop(&mut self, _now: Instant) {
        self.is_held = false;
        while let Some(mut track) = self.held.pop() {
            self.reception.lost += track.holes.close();
            self.wishes
                .push(Membership::Leave(ChannelId(u16::try_from(self.held.len()).unwrap_or(u16::MAX))));
        }
        (self.base, self.is_clean, self.deaf_until) = (None, None, Instant::ZERO);
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        let is_marked = self.reception.count(arrival.ecn);
        if let Ok(cci) = arrival.cci.rlc()
            && ChannelId(cci.layer.into()) == arrival.channel
        {
            self.arrive(now, cci, is_marked);
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn reception(&self) -> Reception {
        self.reception
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.held.iter().filter_map(|track| track.open).map(|(_, since)| since + PATIENCE).min()
    }

    fn timeout(&mut self, now: Instant) {
        self.give_up_holes(now);
    }
}
