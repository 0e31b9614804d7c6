//! The receiver: adds, drops or keeps a level once per slot.

use std::collections::VecDeque;

use headwater_wire::Cci;
use headwater_wire::cci::FlidSlCci;
use headwater_wire::extensions::Levels;

use super::layers::Layers;
use super::layers::{SlotMatch, Slots};
use super::{FlidConfig, FlidConfigError, FlidReceiverConfig};
use crate::control::{self, Arrival, LevelNeed, Membership, ReceiverControl, Reception, Wishes};
use crate::layering::Layering;
use crate::machine::ChannelId;
use crate::measure::{Holes, JoinLatency, RateMeter};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Minimum timeout of a join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Status of a receiver, for display; rates in packets per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlidStatus {
    /// Subscribed levels above the base, including pending joins.
    pub levels: u16,
    /// Received rate over the last half second.
    pub rate: f64,
    /// Total rate of the subscribed levels, which is the fair rate.
    pub fair_rate: f64,
    /// Mean join latency in seconds; `None` before the first join.
    pub join_latency: Option<f64>,
    /// Whether the receiver waits for its last leave to take effect, and makes no decisions.
    pub is_deaf: bool,
}

/// The receiving control of FLID-SL and FLID-DL.
///
/// A slot has a loss if a packet of the slot is missing or carries ECN's mark. A hole between two packets of
/// a channel counts for the slot of the earlier packet, so that a burst of losses has a single reaction. A
/// late packet is in a hole already, or is a copy or replay, which tells nothing of the path.
///
/// If the sender restarts, or slots jump, the receiver continues from the base with dynamic layers, and from
/// the current levels with static layers. If the base channel is lost, the receiver continues with the other
/// channels. After a stall of any length the receiver keeps the channels that are still active. Joins without
/// any packet are given up after about two seconds.
///
/// Memory: 120 bytes per subscribed channel, 128 channels at most.
#[derive(Clone, Debug)]
pub struct FlidReceiver {
    layers: Layers,
    packet_bytes: u16,
    /// Highest level that the receiver may subscribe to.
    highest: u16,
    /// Highest level that the sender sends.
    ceiling: u16,
    deaf_slots: u64,
    is_held: bool,
    wishes: Wishes,
    base: Track,
    session: Option<Session>,
    joins: JoinLatency,
    reception: Reception,
}

/// State of a session, created by the first packet of the base channel.
#[derive(Clone, Debug)]
struct Session {
    slots: Slots,
    /// Subscribed channels above the base, from level 1 up.
    held: VecDeque<Held>,
    meter: RateMeter,
    /// Packets of the newest slot.
    current: Current,
    /// First slot whose losses still need a reaction.
    answered: u64,
    /// First slot that decides again after a dropped level.
    deaf_until: u64,
}

/// Observations in a slot so far.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    is_lossy: bool,
    /// Highest level that a packet came from.
    heard: u16,
    /// Highest level that a trigger came from.
    trigger: Option<u16>,
}

#[derive(Clone, Debug)]
struct Held {
    channel: ChannelId,
    /// Slot of the join.
    since: u64,
    /// With dynamic layers, the last slot in which the channel has a level.
    until: u64,
    joined: Instant,
    /// Time at which the join is given up; `None` once a packet has arrived.
    patience: Option<Instant>,
    track: Track,
}

/// Loss tracking of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    holes: Holes,
    /// The sequence number after the highest number so far, and the slot of the packet with the highest
    /// number.
    next: Option<(u16, u64)>,
}

impl FlidReceiver {
    /// Returns a receiver of a session with these layers.
    ///
    /// # Errors
    /// Returns an error if the parameters of the layers are inconsistent.
    pub fn new(layers: FlidConfig, config: FlidReceiverConfig) -> Result<Self, FlidConfigError> {
        let numbers = Layers::new(&layers, Instant::ZERO)?;
        let most = config.max_rate.map_or(f64::INFINITY, |rate| layers.packets(rate));
        let within = (1..numbers.levels()).take_while(|level| numbers.rate(*level) <= most).count();
        Ok(Self {
            highest: u16::try_from(within).unwrap_or(u16::MAX),
            ceiling: u16::MAX,
            layers: numbers,
            deaf_slots: layers.deaf_slots.into(),
            is_held: false,
            wishes: Wishes::default(),
            base: Track::default(),
            session: None,
            packet_bytes: layers.packet_bytes(),
            joins: JoinLatency::default(),
            reception: Reception::default(),
        })
    }

    /// Returns the status; `None` until a packet of the base channel has arrived.
    pub fn status(&mut self, now: Instant) -> Option<FlidStatus> {
        let session = self.session.as_mut()?;
        let levels = session.level();
        Some(FlidStatus {
            levels,
            rate: session.meter.rate(now),
            fair_rate: self.layers.rate(levels),
            join_latency: self.joins.mean(),
            is_deaf: session.slots.newest() < session.deaf_until,
        })
    }

    /// Handles a packet that may be plausible.
    fn arrive(&mut self, now: Instant, cci: FlidSlCci, is_marked: bool) {
        let Some(session) = self.session.as_mut() else { return };
        let slot = match session.slots.tell(now, cci.slot) {
            SlotMatch::Slot(slot) => slot,
            SlotMatch::Nonsense => return,
            SlotMatch::Restart => {
                self.begin_again();
                return self.arrive(now, cci, is_marked);
            }
        };
        session.meter.record(now, 1);
        let channel = ChannelId(cci.group.into());
        let track = match session.held.iter_mut().find(|held| held.channel == channel) {
            _ if channel == ChannelId::BASE => &mut self.base,
            Some(held) => {
                if held.patience.take().is_some() {
                    self.joins.record(now.since(held.joined).as_secs_f64(), 0.0, 0.0);
                }
                &mut held.track
            }
            // A packet of a channel being left is ignored.
            None => return,
        };
        let (lost, loss) = track.record(cci.sequence, slot);
        self.reception.lost += lost;
        session.current.is_lossy |= is_marked || loss.is_some_and(|slot| slot >= session.answered);
        if slot > session.slots.newest() {
            self.turn(now, slot);
        }
        self.hear(channel, slot, cci.increase_trigger);
    }

    /// Records the level and the trigger of a packet of the newest slot.
    fn hear(&mut self, channel: ChannelId, slot: u64, is_trigger: bool) {
        let Some(session) = self.session.as_mut().filter(|session| slot == session.slots.newest()) else {
            return;
        };
        let level = match session.held.iter().position(|held| held.channel == channel) {
            _ if channel == ChannelId::BASE => 0,
            Some(index) => narrow(index + 1),
            None => return,
        };
        let current = &mut session.current;
        current.heard = current.heard.max(level);
        if is_trigger {
            current.trigger = current.trigger.max(Some(level));
        }
    }

    /// Begins a new slot, and decides by the observations of the previous slot.
    fn turn(&mut self, now: Instant, slot: u64) {
        let Some(session) = self.session.as_mut() else { return };
        let ended = session.slots.newest();
        let level = session.level();
        let current = core::mem::take(&mut session.current);
        session.slots.advance(now, slot);
        if current.is_lossy {
            session.answered = slot;
        }
        let target = if self.layers.is_dynamic() {
            // If a join takes longer than a slot, no packet of the highest level has arrived: the highest
            // level with packets decides.
            let may_rise = current.trigger.is_some_and(|trigger| trigger >= current.heard);
            self.shift(slot);
            let held = self.level();
            held + if current.is_lossy { 0 } else { level.min(1) + u16::from(may_rise) }
        } else if ended < session.deaf_until {
            // The receiver's recent leave may still overload the path, so the effect of a rise cannot be
            // judged.
            level
        } else if current.is_lossy && level > 0 {
            session.deaf_until = slot + self.deaf_slots;
            level - 1
        } else {
            level + u16::from(!current.is_lossy && current.trigger.is_some_and(|trigger| trigger >= level))
        };
        self.set(now, target);
    }

    /// With dynamic layers, leaves channels that have fallen below the lowest level.
    fn shift(&mut self, slot: u64) {
        while let Some(session) = self.session.as_mut()
            && session.held.front().is_some_and(|held| held.until < slot)
        {
            if let Some(held) = session.held.pop_front() {
                self.leave(held);
            }
        }
    }

    /// Joins or leaves the highest channels until `target` levels are subscribed, or as many as allowed.
    fn set(&mut self, now: Instant, target: u16) {
        let target = target.min(self.highest).min(self.ceiling);
        while let Some(session) = self.session.as_mut().filter(|session| session.level() > target) {
            if let Some(held) = session.held.pop_back() {
                self.leave(held);
            }
        }
        // Within this time, the next packet of any channel is due.
        let pause = 2.0 / (self.layers.rate(1) - self.layers.rate(0));
        let patience = JOIN_TIMEOUT.max(Duration::from_secs_f64(self.joins.bound().unwrap_or(0.0)))
            + Duration::from_secs_f64(pause);
        while let Some(session) = self.session.as_mut().filter(|session| session.level() < target) {
            let slot = session.slots.newest();
            let level = session.level() + 1;
            let channel = self.layers.channel_in(level, slot);
            session.held.push_back(Held {
                channel,
                since: slot,
                until: slot + u64::from(level) - 1,
                joined: now,
                patience: Some(now + patience),
                track: Track::default(),
            });
            self.wishes.push(Membership::Join(channel));
        }
    }

    fn leave(&mut self, mut held: Held) {
        self.reception.lost += held.track.holes.close();
        self.wishes.push(Membership::Leave(held.channel));
    }

    /// Handles a restart of the sender: sequence numbers restart, and dynamic channels have other levels.
    fn begin_again(&mut self) {
        let is_dynamic = self.layers.is_dynamic();
        while let Some(session) = self.session.as_mut().filter(|_| is_dynamic)
            && let Some(held) = session.held.pop_back()
        {
            self.leave(held);
        }
        self.reception.lost += self.base.holes.close();
        self.base = Track::default();
        let Some(session) = self.session.as_mut() else { return };
        for held in &mut session.held {
            self.reception.lost += held.track.holes.close();
            held.track = Track::default();
        }
        session.current = Current::default();
        (session.answered, session.deaf_until) = (0, 0);
    }

    fn level(&self) -> u16 {
        self.session.as_ref().map_or(0, Session::level)
    }

    /// Undoes a join without any packet in time, and all joins above.
    fn give_up_joins(&mut self, now: Instant) {
        let Some(session) = self.session.as_ref() else { return };
        let overdue = |held: &Held| held.patience.is_some_and(|until| until <= now);
        if let Some(index) = session.held.iter().position(overdue) {
            self.set(now, narrow(index));
        }
    }
}

impl Session {
    fn new(now: Instant, slot: Duration, index: u8) -> Self {
        Self {
            slots: Slots::new(now, slot, index),
            held: VecDeque::new(),
            meter: RateMeter::new(now),
            current: Current::default(),
            answered: 0,
            deaf_until: 0,
        }
    }

    fn level(&self) -> u16 {
        narrow(self.held.len())
    }
}

impl Track {
    /// Records a packet of a slot. Returns the number of packets certainly lost, and the slot of a suspected
    /// loss before the packet, if any.
    fn record(&mut self, sequence: u16, slot: u64) -> (u64, Option<u64>) {
        let found = self.holes.record(sequence);
        let lost = found.lost;
        let Some((next, before)) = self.next.filter(|_| !found.is_anew) else {
            self.next = Some((sequence.wrapping_add(1), slot));
            return (lost, None);
        };
        let ahead = sequence.wrapping_sub(next);
        if ahead >= 1 << 15 {
            return (lost, None);
        }
        self.next = Some((sequence.wrapping_add(1), slot));
        (lost, (ahead > 0).then_some(before))
    }
}

impl ReceiverControl for FlidReceiver {
    fn start(&mut self, _now: Instant) {
        if !self.is_held {
            self.is_held = true;
            self.wishes.push(Membership::Join(ChannelId::BASE));
        }
    }

    fn stop(&mut self, now: Instant) {
        if !core::mem::take(&mut self.is_held) {
            return;
        }
        self.set(now, 0);
        self.session = None;
        self.base = Track::default();
        self.wishes.push(Membership::Leave(ChannelId::BASE));
    }

    fn limited(&mut self, now: Instant, levels: Option<Levels>) {
        self.ceiling = levels.map_or(u16::MAX, |levels| levels.ceiling.into());
        if self.level() > self.ceiling {
            self.set(now, self.ceiling);
        }
    }

    fn need(&self, _now: Instant) -> Option<LevelNeed> {
        let level = self.session.as_ref()?.level();
        Some(LevelNeed { level, next: self.highest.min(level + 1), is_starting: false })
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        let is_marked = self.reception.count(arrival.ecn);
        let Ok(cci) = arrival.cci.flid_sl() else { return };
        if !self.is_held {
            return;
        }
        if self.session.is_none() {
            if ChannelId(cci.group.into()) != ChannelId::BASE {
                return;
            }
            self.session = Some(Session::new(now, self.layers.slot(), cci.slot));
        }
        self.arrive(now, cci, is_marked);
    }

    /// Packets of old slots come together here, if a manifest lists packets from before the join: they do not
    /// tell of a sender that has restarted.
    fn arrived_late(&mut self, at: Instant, arrival: &Arrival<'_>) {
        if !self.is_stale(at, arrival.cci) {
            self.arrived(at, arrival);
        }
    }

    /// Packets of the slot before the newest one may still arrive on channels that were joined then.
    fn is_stale(&self, now: Instant, cci: &Cci) -> bool {
        let (Some(session), Ok(cci)) = (&self.session, cci.flid_sl()) else { return false };
        let joined = session.held.iter().find(|held| held.channel == ChannelId(cci.group.into()));
        let since = joined.map_or(0, |held| held.since);
        session.slots.is_current(now) && session.slots.is_before(now, since, cci.slot)
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn reception(&self) -> Reception {
        self.reception
    }

    fn status(&mut self, now: Instant) -> control::Status {
        let fair_rate = Self::status(self, now).map(|status| status.fair_rate);
        let fair_rate = fair_rate.and_then(|rate| Rate::of_packets(rate, self.packet_bytes));
        control::Status { fair_rate, ..control::Status::default() }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.as_ref()?.held.iter().filter_map(|held| held.patience).min()
    }

    fn timeout(&mut self, now: Instant) {
        self.give_up_joins(now);
    }
}

/// Levels are at most 128.
fn narrow(levels: usize) -> u16 {
    u16::try_from(levels).unwrap_or(u16::MAX)
}
