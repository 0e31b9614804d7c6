//! State of a receiver after the first packet of the base channel: levels, window, and the rules for changing
//! both.

mod bottleneck;
mod chance;
mod follow;
mod joining;
mod levels;
mod overrun;
mod path;
mod queue;
mod revised;
mod shadow;
mod time;
mod window;

use self::follow::Follow;
use self::levels::Levels;
use self::overrun::Overrun;
use self::path::Path;
use self::queue::Queue;
use self::revised::Revised;
pub(super) use self::time::SessionTime;
use self::window::{Losses, Window};
use super::receiver::{Mode, Status};
use super::start::FastStart;
use crate::control::Rules;
use crate::layering::Layering;
use crate::layering::clock::{Clock, Place};
use crate::measure::{Found, JoinLatency};
use crate::time::{Duration, Instant};

/// Averaging time of the window and of the queueing delay, in sub-slots.
const AVERAGED: f64 = 0.5;
/// Minimum round-trip time in seconds, less than a switch and two hosts take.
const RTT_LEAST: f64 = 0.000_3;

/// State of a session, created by the first packet of the base channel.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) clock: Clock,
    pub(super) time: SessionTime,
    limits: Limits,
    mode: Mode,
    /// Whether the sender knew of no holder when it was heard first.
    pub(super) is_unused: bool,
    pub(super) levels: Levels,
    window: Window,
    pub(super) path: Path,
    losses: Losses,
    start: FastStart,
    decisions: Decisions,
    /// Last result of `rate_of`, which a packet needs many times: time, level, rate.
    rate: (Instant, u16, f64),
    queue: Queue,
    follow: Follow,
    overrun: Overrun,
    /// State of the rules that the published control lacks.
    revised: Option<Revised>,
}

/// Times of decisions on joins.
#[derive(Clone, Copy, Debug, Default)]
struct Decisions {
    /// Epoch of the last packet.
    epoch: u64,
    /// Start of the wait for the queue, since the window allows a join.
    wished: Option<Instant>,
    /// End of a pause without joins after a start, so that receivers that start in the next epoch find room.
    hold: Instant,
    /// Whether no loss has occurred since the start ended: other traffic may have ended the start.
    resumes: bool,
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
    pub(super) fn new(
        clock: Clock,
        limits: Limits,
        asked: Option<f64>,
        time: SessionTime,
        now: Instant,
    ) -> Self {
        let floor = match limits.rules {
            Rules::Published => JoinLatency::default(),
            Rules::Revised => JoinLatency::new(RTT_LEAST),
        };
        let averaged = AVERAGED * clock.channels.sub_slot_seconds();
        // Starts as if the previous packet had been received, which identifies the first packet of an epoch.
        // Departures are rounded up and this time down, so the time is never before that previous packet.
        let before = now - Duration::from_secs_f64(1.0 / clock.channels.base_rate());
        Self {
            limits,
            mode: Mode::FastStart,
            is_unused: false,
            levels: Levels::new(&clock.channels, now),
            window: Window::new(averaged, now),
            path: Path::new(averaged, floor, (limits.hint, asked), now),
            losses: Losses::default(),
            start: FastStart::new(now, limits.rules),
            decisions: Decisions { epoch: clock.channels.epoch_at(before), ..Decisions::default() },
            rate: (Instant::ZERO, u16::MAX, 0.0),
            queue: Queue::new(now),
            follow: Follow::default(),
            overrun: Overrun::default(),
            revised: (limits.rules == Rules::Revised).then(Revised::default),
            clock,
            time,
        }
    }

    /// Returns the status at `now`, of the session's time.
    pub(super) fn status(&self, now: Instant) -> Status {
        let mut meter = self.path.meter;
        let rtt = self.path.rtt();
        let fair = if self.mode == Mode::FastStart { self.held_rate(now) } else { self.window.size / rtt };
        Status {
            mode: self.mode,
            levels: self.levels.count(),
            rate: meter.rate(now),
            fair_rate: fair,
            rtt,
            join_latency: self.path.joins.mean(),
            loss_event_rate: self.losses.intervals.rate(),
        }
    }

    /// Records a packet of a subscribed channel, and the losses that the packet revealed.
    pub(super) fn record(&mut self, now: Instant, place: &Place, found: Found) {
        let lost = found.lost;
        self.remember_rate(now);
        let late = place.delay;
        self.path.delay.record(now, late);
        self.path.meter.record(now, 1);
        self.losses.intervals.advance(1 + lost);
        self.start.record(now, late);
        // The departure time is unknown for a channel whose sequence restarted.
        let left = found.last_lost.map_or(place.left, |last| self.clock.left_of(place, last));
        let is_chance = found.is_new && self.observe(now, place, lost, left);
        self.watch(now, if is_chance { 0 } else { lost });
        self.follow.tally.add(lost);
        self.look(now, place.left, late);
        self.grow(now);
        self.search_missing_queue(now, place);
        if lost > 0 && !is_chance {
            self.loss(now, left);
        }
    }

    /// Packets per second of the subscribed levels, without pending joins.
    fn held_rate(&self, now: Instant) -> f64 {
        self.rate_of(self.levels.count(), now)
    }

    /// `c_n(t)`, packets per second.
    fn rate_of(&self, level: u16, now: Instant) -> f64 {
        let level = level.min(self.levels.top);
        let (at, last, rate) = self.rate;
        if (at, last) == (now, level) { rate } else { self.clock.channels.cumulative_rate(level, now) }
    }

    /// Computes the rate of the subscribed levels once for all steps of a packet.
    fn remember_rate(&mut self, now: Instant) {
        let level = self.levels.count().min(self.levels.top);
        // Packets of a run arrive at the same time.
        if (self.rate.0, self.rate.1) != (now, level) {
            self.rate = (now, level, self.clock.channels.cumulative_rate(level, now));
        }
    }
}
