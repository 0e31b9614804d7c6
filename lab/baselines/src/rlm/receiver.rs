//! RLM receiver: a machine of four states, with timers that failed joins lengthen.

use core::net::SocketAddr;

use super::{ANNOUNCEMENT, RlmConfig};
use headwater_proto::control::{Arrival, Membership, ReceiverControl, Reception, Wishes};
use headwater_proto::machine::{ChannelId, Destination, Ecn, Transmit};
use headwater_proto::measure::Holes;
use headwater_proto::rng::{Seed, Stream, unit_above_zero};
use headwater_proto::time::{Duration, Instant};

/// Initial detection time and deviation, in seconds.
const DETECTION: f64 = 5.0;
const DEVIATION: f64 = 2.0;
/// Weight of a sample in both means.
const GAIN: f64 = 0.25;
/// Initial and minimum join timer, and maximum, in seconds.
const JOIN_LEAST: f64 = 5.0;
const JOIN_MOST: f64 = 60.0;
/// Factor of a join timer after a failed join, and after a detection time without loss.
const BACK_OFF: f64 = 2.0;
const RELAX: f64 = 0.75;
/// Loss rate at which a layer is dropped, and the minimum number of packets received before.
const LOSS: f64 = 0.25;
const PACKETS: u64 = 10;

/// State of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// S: no loss.
    Steady,
    /// H: loss occurred, possibly from other receivers' joins.
    Hysteresis,
    /// M: loss is measured.
    Measure,
    /// D: a layer was dropped.
    Drop,
}

/// Counters of a receiver in addition to [`Reception`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RlmReceiverCounters {
    /// Layers joined beyond the first.
    pub joins: u64,
    /// Joins that failed.
    pub failed: u64,
    /// Layers dropped, including failed joins.
    pub drops: u64,
}

/// State of a layer.
#[derive(Clone, Copy, Debug)]
struct Layer {
    holes: Holes,
    /// Join timer, in seconds.
    timer: f64,
    /// Time of this receiver's last join; of any receiver's last join; and of the last join that may still
    /// fail.
    held: Option<Instant>,
    joined: Option<Instant>,
    pending: Option<Instant>,
}

/// Subscribes to layers 1 to a level; to no layer once the base layer exceeds the path's capacity.
#[derive(Clone, Debug)]
pub struct RlmReceiver {
    layers: Vec<Layer>,
    level: usize,
    state: State,
    detection: f64,
    deviation: f64,
    join_at: Option<Instant>,
    detect_at: Option<Instant>,
    /// Whether a packet of the top layer has arrived since the join.
    is_top_heard: bool,
    /// Packets received and lost at the start of the measurement.
    measured: (u64, u64),
    announce: Option<u8>,
    source: Option<SocketAddr>,
    wishes: Wishes,
    draw: Stream,
    reception: Reception,
    counters: RlmReceiverCounters,
}

impl RlmReceiver {
    /// Creates a receiver without layers; timers are drawn from `seed`.
    pub fn new(config: &RlmConfig, seed: Seed) -> Self {
        let (holes, timer) = (Holes::default(), JOIN_LEAST);
        let layer = Layer { holes, timer, held: None, joined: None, pending: None };
        Self {
            layers: vec![layer; config.rates.len()],
            level: 0,
            state: State::Steady,
            detection: DETECTION,
            deviation: DEVIATION,
            join_at: None,
            detect_at: None,
            is_top_heard: false,
            measured: (0, 0),
            announce: None,
            source: None,
            wishes: Wishes::default(),
            draw: seed.stream("rlm/receiver", 0),
            reception: Reception::default(),
            counters: RlmReceiverCounters::default(),
        }
    }

    /// Returns the number of subscribed layers.
    pub const fn level(&self) -> usize {
        self.level
    }

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the receiver's counters.
    pub const fn counters(&self) -> &RlmReceiverCounters {
        &self.counters
    }

    /// Returns the join timer of a layer, counted from 1, in seconds.
    pub fn join_timer(&self, layer: usize) -> f64 {
        self.layers[layer - 1].timer
    }

    /// Returns the expected time between a join and the detection of its losses, in seconds.
    pub const fn detection_time(&self) -> f64 {
        self.detection
    }

    fn is_recent(&self, at: Option<Instant>, now: Instant) -> bool {
        at.is_some_and(|at| at + seconds(self.detection + 2.0 * self.deviation) > now)
    }

    fn set_join_timer(&mut self, now: Instant) {
        let Some(layer) = self.layers.get(self.level) else {
            self.join_at = None;
            return;
        };
        let mean = layer.timer;
        let wait = loop {
            let wait = -mean * libm::log(unit_above_zero(&mut self.draw));
            if wait < 4.0 * mean {
                break wait;
            }
        };
        self.join_at = Some(now + seconds(mean / 2.0 + wait));
    }

    /// Starts the detection timer with a margin for the effects of earlier actions.
    fn detect_conservatively(&mut self, now: Instant) {
        self.detect_at = Some(now + seconds(self.detection + 1.5 * self.deviation));
    }

    fn hold(&mut self, now: Instant, level: usize) {
        for layer in self.level..level {
            self.layers[layer].holes = Holes::default();
            self.layers[layer].held = Some(now);
            self.wishes.push(Membership::Join(channel(layer)));
        }
        for layer in (level..self.level).rev() {
            self.reception.lost += self.layers[layer].holes.close();
            self.wishes.push(Membership::Leave(channel(layer)));
        }
        // After a drop, packets of the new top layer have already arrived. Below the base layer no packets
        // arrive, and the receiver joins no layer again.
        self.is_top_heard = 0 < level && level < self.level;
        self.level = level;
    }

    fn try_join(&mut self, now: Instant) {
        let is_anybody = self.layers[..self.level].iter().any(|layer| self.is_recent(layer.joined, now));
        if self.state == State::Steady && !is_anybody && self.is_top_heard {
            self.hold(now, self.level + 1);
            self.counters.joins += 1;
            let layer = &mut self.layers[self.level - 1];
            (layer.joined, layer.pending) = (Some(now), Some(now));
            self.announce = u8::try_from(self.level).ok();
        }
        self.set_join_timer(now);
    }

    /// Records the announced join of a layer, counted from 1.
    fn announced(&mut self, now: Instant, layer: usize) {
        let is_above = layer > self.level;
        if let Some(layer) = layer.checked_sub(1).and_then(|index| self.layers.get_mut(index)) {
            layer.joined = Some(now);
            if is_above {
                layer.pending = Some(now);
            }
        }
    }

    fn lost(&mut self, now: Instant) {
        match self.state {
            State::Steady => self.lost_while_steady(now),
            State::Measure => self.lost_while_measuring(now),
            State::Hysteresis | State::Drop => {}
        }
    }

    fn lost_while_steady(&mut self, now: Instant) {
        self.detect_at = None;
        let level = self.level;
        let tried =
            (1..=self.layers.len()).rev().find(|layer| self.is_recent(self.layers[layer - 1].pending, now));
        if let Some(tried) = tried {
            self.back_off(tried);
            if tried == level {
                self.learn(now, level);
                self.counters.failed += 1;
                return self.drop_layer(now);
            }
            if tried == level + 1 {
                self.set_join_timer(now);
            }
        }
        if self.is_recent(self.layers[level - 1].held, now) {
            self.measure(now);
        } else {
            self.state = State::Hysteresis;
            self.detect_conservatively(now);
        }
    }

    fn back_off(&mut self, tried: usize) {
        let timer = (BACK_OFF * self.layers[tried - 1].timer).min(JOIN_MOST);
        for layer in &mut self.layers[tried - 1..] {
            layer.timer = layer.timer.max(timer);
        }
    }

    /// Updates the detection time with the time until the failed join of a layer showed.
    fn learn(&mut self, now: Instant, layer: usize) {
        let Some(pending) = self.layers[layer - 1].pending else { return };
        let took = now.since(pending).as_secs_f64();
        self.deviation += GAIN * ((took - self.detection).abs() - self.deviation);
        self.detection += GAIN * (took - self.detection);
    }

    fn drop_layer(&mut self, now: Instant) {
        self.hold(now, self.level - 1);
        self.counters.drops += 1;
        if self.level == 0 {
            (self.join_at, self.detect_at) = (None, None);
            return;
        }
        // A running join timer continues; a receiver of all layers has no join timer.
        if self.join_at.is_none() {
            self.set_join_timer(now);
        }
        self.state = State::Drop;
        self.detect_conservatively(now);
    }

    fn measure(&mut self, now: Instant) {
        self.state = State::Measure;
        self.measured = (self.reception.packets, self.reception.lost);
        #[expect(clippy::cast_precision_loss, reason = "few layers")]
        let level = self.level as f64;
        self.detect_at = Some(now + seconds(self.detection + (level / 2.0 + 1.5) * self.deviation));
    }

    fn lost_while_measuring(&mut self, now: Instant) {
        let (packets, lost) =
            (self.reception.packets - self.measured.0, self.reception.lost - self.measured.1);
        #[expect(clippy::cast_precision_loss, reason = "counts of some seconds")]
        let is_much = packets >= PACKETS && lost as f64 > LOSS * (packets + lost) as f64;
        if is_much {
            self.drop_layer(now);
        }
    }

    fn detected(&mut self, now: Instant) {
        match self.state {
            State::Hysteresis => self.measure(now),
            State::Drop | State::Measure => {
                self.state = State::Steady;
                self.detect_conservatively(now);
            }
            State::Steady => {
                if let Some(layer) = self.level.checked_sub(1) {
                    self.layers[layer].timer = (RELAX * self.layers[layer].timer).max(JOIN_LEAST);
                }
                self.detect_conservatively(now);
            }
        }
    }
}

impl ReceiverControl for RlmReceiver {
    fn start(&mut self, now: Instant) {
        if self.level == 0 {
            self.hold(now, 1);
            self.state = State::Steady;
            self.set_join_timer(now);
        }
    }

    fn stop(&mut self, now: Instant) {
        self.hold(now, 0);
        (self.join_at, self.detect_at, self.announce) = (None, None, None);
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        let Ok(flid) = arrival.cci.flid_sl() else { return };
        self.source = Some(arrival.source);
        if flid.increase_trigger {
            return self.announced(now, flid.slot.into());
        }
        let layer = usize::from(arrival.channel.0);
        if layer >= self.level {
            return;
        }
        let found = self.layers[layer].holes.record(flid.sequence);
        self.reception.packets += 1;
        self.reception.lost += found.lost;
        if layer + 1 == self.level && !self.is_top_heard {
            self.is_top_heard = true;
            // If the first packet of a layer took longer than the detection time, losses cannot show earlier.
            let waited = self.layers[layer].held.map_or(0.0, |held| now.since(held).as_secs_f64());
            if self.counters.joins > 0 && waited > self.detection && waited < JOIN_MOST {
                self.detection = 1.2 * waited;
            }
        }
        if found.lost > 0 {
            self.lost(now);
        }
    }

    fn poll_transmit(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let to = self.source?;
        let layer = self.announce.take()?;
        buffer[..3].copy_from_slice(&ANNOUNCEMENT);
        buffer[3] = layer;
        Some(Transmit { destination: Destination::Unicast(to), bytes: 4, ecn: Ecn::NotCapable })
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn reception(&self) -> Reception {
        self.reception
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.join_at, self.detect_at].into_iter().flatten().min()
    }

    fn timeout(&mut self, now: Instant) {
        if self.join_at.is_some_and(|at| at <= now) {
            self.try_join(now);
        }
        if self.detect_at.is_some_and(|at| at <= now) {
            self.detected(now);
        }
    }
}

fn channel(layer: usize) -> ChannelId {
    ChannelId(u16::try_from(layer).unwrap_or(u16::MAX))
}

const fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
