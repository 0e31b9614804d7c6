//! State of a receiver after the first packet of the base channel: levels, window, and the rules for changing
//! both.

mod bottleneck;
mod chance;
mod follow;
mod joining;
mod overrun;
mod queue;
mod revised;
mod shadow;
mod waits;

use std::collections::VecDeque;

use self::follow::{Follow, Tally};
use self::overrun::Overrun;
use self::queue::Queue;
use self::revised::Revised;
use super::receiver::{Mode, Status};
use super::start::FastStart;
use crate::control::Rules;
use crate::layering::clock::{Clock, Place, delay, shifted};
use crate::layering::held::{Held, Joining};
use crate::layering::{Layering, Slot};
use crate::machine::ChannelId;
use crate::measure::{Found, Holes, JoinLatency, LossIntervals, OneWayDelay, RateMeter, throughput};
use crate::time::{Duration, Instant};

/// Factor applied to the window at a loss event: AIMD(1, 1/2).
const DECREASE: f64 = 0.5;
/// Averaging time of the window and of the queueing delay, in sub-slots.
const AVERAGED: f64 = 0.5;
/// Limits of the window: this factor times the rate of the next level, or the peak-to-mean ratio of a TCP
/// window times the current rate, whichever is larger.
const WINDOW_ROOM: f64 = 1.02;
const WINDOW_PEAK: f64 = 4.0 / 3.0;
/// Minimum round-trip time in seconds, less than a switch and two hosts take.
const RTT_LEAST: f64 = 0.000_3;
/// Initial round-trip time without any measurement, in seconds.
const RTT_INITIAL: f64 = 0.1;

/// State of a session, created by the first packet of the base channel.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) clock: Clock,
    limits: Limits,
    overrun: Overrun,
    /// Highest level that the sender sends.
    top: u16,
    slot: Slot,
    /// Subscribed waves, from the lowest level up; the last waves may be silent still.
    waves: VecDeque<Held>,
    joining: Option<Joining>,
    /// Start of the wait for the queue, since the window allows a join.
    wished: Option<Instant>,
    mode: Mode,
    start: FastStart,
    window: f64,
    /// Recent mean of the window, and the time of the last update.
    mean: f64,
    averaged: Instant,
    threshold: f64,
    /// Arrival of the first packet of the last joined channels.
    first: Instant,
    lost: Instant,
    /// Epoch of the last packet.
    epoch: u64,
    /// End of a pause without joins after a start, so that receivers that start in the next epoch find room.
    hold: Instant,
    /// Whether no loss has occurred since the start ended: other traffic may have ended the start.
    resumes: bool,
    queue: Queue,
    follow: Follow,
    tally: Tally,
    /// End of the time in which packets of channels left may take the room of other packets, and the last
    /// such packet.
    leaving: Instant,
    stray: Instant,
    meter: RateMeter,
    pub(super) delay: OneWayDelay,
    joins: JoinLatency,
    /// Minimum round-trip time measured with the sender's answers.
    pub(super) asked: Option<f64>,
    intervals: LossIntervals,
    /// State of the rules that the published control lacks.
    revised: Option<Revised>,
}

/// Configured limits of the receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum packets per second.
    pub(super) rate_max: f64,
    /// Round-trip time in seconds without queueing.
    pub(super) hint: Option<f64>,
    pub(super) rules: Rules,
}

impl Session {
    pub(super) fn new(clock: Clock, limits: Limits, asked: Option<f64>, now: Instant) -> Self {
        Self {
            top: clock.channels.levels() - 1,
            slot: clock.channels.slot_at(now),
            delay: OneWayDelay::new(AVERAGED * clock.channels.sub_slot_seconds()),
            limits,
            overrun: Overrun::default(),
            waves: VecDeque::new(),
            joining: None,
            wished: None,
            mode: Mode::FastStart,
            start: FastStart::new(now),
            window: 2.0,
            mean: 2.0,
            averaged: now,
            threshold: f64::INFINITY,
            first: now,
            lost: Instant::ZERO,
            // Starts as if the previous packet had been received, which identifies the first packet of an
            // epoch. Departures are rounded up and this time down, so the time is never before that previous
            // packet.
            epoch: clock.channels.epoch_at(now - Duration::from_secs_f64(1.0 / clock.channels.base_rate())),
            hold: Instant::ZERO,
            resumes: false,
            queue: Queue::new(now),
            follow: Follow::default(),
            tally: Tally::default(),
            leaving: Instant::ZERO,
            stray: Instant::ZERO,
            meter: RateMeter::new(now),
            joins: match limits.rules {
                Rules::Published => JoinLatency::default(),
                Rules::Revised => JoinLatency::new(RTT_LEAST),
            },
            asked,
            intervals: LossIntervals::default(),
            revised: (limits.rules == Rules::Revised).then(Revised::default),
            clock,
        }
    }

    pub(super) fn status(&self, now: Instant) -> Status {
        let mut meter = self.meter;
        let rtt = self.rtt();
        let fair = if self.mode == Mode::FastStart {
            self.rate_of(self.level(), shifted(now))
        } else {
            self.window / rtt
        };
        Status {
            mode: self.mode,
            levels: self.level(),
            rate: meter.rate(shifted(now)),
            fair_rate: fair,
            rtt,
            join_latency: self.joins.mean(),
            loss_event_rate: self.intervals.rate(),
        }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Dynamic channels subscribed or being joined.
    pub(super) fn channels(&self) -> impl Iterator<Item = ChannelId> {
        self.waves.iter().map(|wave| self.clock.channels.channel_of(wave.number))
    }

    /// Timeout of the current join.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.joining.map(|joining| joining.until)
    }

    /// Advances to a new slot, whose lowest channels are silent. Returns the next channel to leave, if any,
    /// and the number of packets lost at its end.
    pub(super) fn quiescent(&mut self, slot: Slot) -> Option<(ChannelId, u64)> {
        self.slot = self.slot.max(slot);
        let first = self.slot * self.clock.channels.channels_per_slot();
        if self.waves.front().is_none_or(|wave| wave.number >= first) {
            return None;
        }
        let mut wave = self.waves.pop_front()?;
        let silent = self.waves.len();
        self.joining = self
            .joining
            .map(|joining| Joining { levels: joining.levels.min(silent), ..joining })
            .filter(|joining| joining.levels > 0);
        Some((self.clock.channels.channel_of(wave.number), wave.holes.close()))
    }

    /// Returns the loss tracker of a wave, if subscribed.
    pub(super) fn holes(&mut self, now: Instant, place: &Place, wave: u64) -> Option<&mut Holes> {
        self.joined(now, place, wave);
        let index = self.waves.iter().position(|held| held.number == wave);
        if index.is_none() && now < self.leaving {
            self.stray = now;
        }
        index.map(|index| &mut self.waves[index].holes)
    }

    /// Records a packet of a subscribed channel, and the losses that the packet revealed.
    pub(super) fn record(&mut self, now: Instant, place: &Place, found: Found) {
        let lost = found.lost;
        let late = delay(now, place.left);
        self.delay.record(now, late);
        self.meter.record(now, 1);
        self.intervals.advance(1 + lost);
        self.start.record(late);
        // The departure time is unknown for a channel whose sequence restarted.
        let left = found.last_lost.map_or(place.left, |last| self.clock.left_of(place, last));
        let is_chance = found.is_new && self.observe(now, place.left, lost, left);
        self.watch(now, if is_chance { 0 } else { lost });
        self.tally.add(lost);
        self.look(now, place.left, late);
        self.grow(now);
        self.search_missing_queue(now);
        if lost > 0 && !is_chance {
            self.loss(now, left);
        }
    }

    /// n: dynamic levels subscribed, without pending joins.
    fn level(&self) -> u16 {
        let held = self.waves.len() - self.joining.map_or(0, |joining| joining.levels);
        u16::try_from(held).unwrap_or(u16::MAX)
    }

    /// `c_n(t)`, packets per second.
    fn rate_of(&self, level: u16, now: Instant) -> f64 {
        self.clock.channels.cumulative_rate(level.min(self.top()), now)
    }

    /// Highest level that the sender sends.
    fn top(&self) -> u16 {
        self.top
    }

    /// `RTTc`: the floor plus the recent mean queueing delay, as seen by a TCP flow.
    fn rtt(&self) -> f64 {
        let told = [self.limits.hint, self.asked].into_iter().flatten().reduce(f64::min);
        let floor = self.joins.floor(told.unwrap_or(RTT_INITIAL));
        told.map_or(floor, |told| told.min(floor)) + self.delay.queueing_mean()
    }

    /// Ends the join if this is the first packet of the channels being joined; all these channels were
    /// requested together.
    fn joined(&mut self, now: Instant, place: &Place, wave: u64) {
        let Some(joining) = self.joining else { return };
        let pending = self.waves.len() - joining.levels;
        // A stray packet of another wave does not end the join.
        if !self.waves.range(pending..).any(|held| held.number == wave) {
            return;
        }
        let before = self.level();
        self.joining = None;
        self.first = now;
        self.start.joined(now, place.left);
        self.expect_queue(now);
        // A channel that was left a moment ago may never have stopped.
        if now >= self.leaving {
            let latency = now.since(joining.since).as_secs_f64();
            let rate = self.rate_of(self.level(), now) - self.rate_of(before, now);
            let queueing = self.delay.queueing(delay(now, place.left));
            self.joins.record(latency, queueing, 1.0 / rate);
        }
    }

    /// Rule 2.
    fn grow(&mut self, now: Instant) {
        let rtt = self.rtt();
        self.average(now);
        if self.mode != Mode::FastStart && !self.is_timed_out(now) {
            // In congestion avoidance the window grows by a packet per round trip, as in TCP, whatever the
            // arrival rate: the receiver's rate follows the window's mean, not the window.
            let round = self.rate_of(self.level(), now) * rtt;
            self.window += if self.window < self.threshold { self.window / round } else { 1.0 / round };
            if self.mode == Mode::SlowStart && self.window >= self.threshold {
                self.mean = self.window.min(self.rate_of(self.level(), now) * rtt);
                self.mode = Mode::CongestionAvoidance;
            }
            if self.own_rate().is_none() {
                self.reactivate(now, rtt);
            }
        }
        let held = self.rate_of(self.level(), now);
        let most = (WINDOW_ROOM * self.rate_of(self.level() + 1, now)).max(WINDOW_PEAK * held);
        let least = self.own_rate().unwrap_or(0.0).max(self.clock.channels.base_rate());
        self.window = self.window.min(most * rtt).max(least * rtt);
    }

    /// Updates the window's mean, over about half a sub-slot.
    fn average(&mut self, now: Instant) {
        let time = now.since(self.averaged).as_secs_f64();
        let period = AVERAGED * self.clock.channels.sub_slot_seconds();
        let window = if self.is_timed_out(now) { 0.0 } else { self.window };
        self.mean += (window - self.mean) * (1.0 - libm::exp(-time / period));
        self.averaged = now;
    }

    /// Rule 6: restarts slow start if the fair rate has risen far above the window.
    fn reactivate(&mut self, now: Instant, rtt: f64) {
        let quiet = now.since(self.lost).as_secs_f64() >= 4.0 * rtt;
        let Some(mean) = self.intervals.mean().filter(|_| quiet) else { return };
        let fair = throughput(rtt, self.intervals.rate().unwrap_or(0.0));
        if self.intervals.open() > 2.0 * mean && fair > 2.0 * self.window / rtt {
            self.threshold = fair * rtt / 2.0;
            if self.mode == Mode::CongestionAvoidance {
                self.start.begin(now);
            }
            self.mode = Mode::SlowStart;
        }
    }

    /// Rule 4: at most one loss event per round-trip time. The last lost packet left at `left`.
    pub(super) fn loss(&mut self, now: Instant, left: Instant) {
        if self.mode == Mode::FastStart {
            self.start.lost(now, left);
            return;
        }
        self.resumes = false;
        let rtt = self.rtt();
        let is_of_others = now < self.leaving && now.since(self.stray).as_secs_f64() < rtt;
        if is_of_others || (self.revised.is_none() && now.since(self.lost).as_secs_f64() < rtt) {
            return;
        }
        let Some(cuts) = self.on_event(now, left, rtt) else { return };
        self.lost = now;
        self.intervals.event();
        if !cuts {
            return;
        }
        self.window = (DECREASE * self.window).max(self.clock.channels.base_rate() * rtt);
        if self.mode != Mode::CongestionAvoidance {
            self.mean = self.window;
        }
        self.threshold = self.window;
        self.mode = Mode::CongestionAvoidance;
    }
}
