//! Rules 2, 4 and 6 of the papers: growth of the window, loss events, and the return to slow start.

use super::Session;
use crate::m2c::receiver::Mode;
use crate::measure::{LossIntervals, throughput};
use crate::time::Instant;

/// Factor applied to the window at a loss event: AIMD(1, 1/2).
const DECREASE: f64 = 0.5;
/// Limits of the window: this factor times the rate of the next level, or the peak-to-mean ratio of a TCP
/// window times the current rate, whichever is larger.
const WINDOW_ROOM: f64 = 1.02;
const WINDOW_PEAK: f64 = 4.0 / 3.0;

/// Congestion window, in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) size: f64,
    /// Recent mean, and the time of its last update.
    pub(super) mean: f64,
    averaged: Instant,
    /// Averaging time in seconds.
    pub(super) period: f64,
    /// End of slow start.
    pub(super) threshold: f64,
}

impl Window {
    pub(super) fn new(period: f64, now: Instant) -> Self {
        Self { size: 2.0, mean: 2.0, averaged: now, period, threshold: f64::INFINITY }
    }

    /// Sets size, mean and threshold to the window of a rate that the path carries.
    pub(super) fn settle(&mut self, size: f64) {
        (self.size, self.mean, self.threshold) = (size, size, size);
    }

    /// Updates the mean.
    fn average(&mut self, now: Instant, is_timed_out: bool) {
        let time = now.since(self.averaged).as_secs_f64();
        let window = if is_timed_out { 0.0 } else { self.size };
        self.mean += (window - self.mean) * (1.0 - libm::exp(-time / self.period));
        self.averaged = now;
    }

    /// Reduces the window at a loss event, down to `least`.
    fn cut(&mut self, least: f64, mode: Mode) {
        self.size = (DECREASE * self.size).max(least);
        if mode != Mode::CongestionAvoidance {
            self.mean = self.size;
        }
        self.threshold = self.size;
    }
}

/// Loss events.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    /// Time of the last event, or of the end of a start.
    pub(super) last: Instant,
    pub(super) intervals: LossIntervals,
}

impl Session {
    /// Rule 2.
    pub(super) fn grow(&mut self, now: Instant) {
        let rtt = self.path.rtt();
        self.window.average(now, self.is_timed_out(now));
        if self.mode != Mode::FastStart && !self.is_recovering(now) {
            // In congestion avoidance the window grows by a packet per round trip, as in TCP, whatever the
            // arrival rate: the receiver's rate follows the window's mean, not the window.
            let round = self.held_rate(now) * rtt;
            self.window.size +=
                if self.window.size < self.window.threshold { self.window.size / round } else { 1.0 / round };
            if self.mode == Mode::SlowStart && self.window.size >= self.window.threshold {
                self.window.mean = self.window.size.min(self.held_rate(now) * rtt);
                self.mode = Mode::CongestionAvoidance;
            }
            if self.own_rate().is_none() {
                self.reactivate(now, rtt);
            }
        }
        let held = self.held_rate(now);
        let most = (WINDOW_ROOM * self.rate_of(self.levels.count() + 1, now)).max(WINDOW_PEAK * held);
        let least = self.own_rate().unwrap_or(0.0).max(self.clock.channels.base_rate());
        self.window.size = self.window.size.min(most * rtt).max(least * rtt);
    }

    /// Rule 6: restarts slow start if the fair rate has risen far above the window.
    fn reactivate(&mut self, now: Instant, rtt: f64) {
        let quiet = now.since(self.losses.last).as_secs_f64() >= 4.0 * rtt;
        let Some(mean) = self.losses.intervals.mean().filter(|_| quiet) else { return };
        if self.losses.intervals.open() <= 2.0 * mean {
            return;
        }
        let fair = throughput(rtt, self.losses.intervals.rate_beside(mean));
        if fair > 2.0 * self.window.size / rtt {
            self.window.threshold = fair * rtt / 2.0;
            if self.mode == Mode::CongestionAvoidance {
                self.start.resume(now, self.held_rate(now));
            }
            self.mode = Mode::SlowStart;
        }
    }

    /// Rule 4: at most one loss event per round-trip time. The last lost packet left at `left`.
    pub(in crate::m2c) fn loss(&mut self, now: Instant, left: Instant) {
        if self.mode == Mode::FastStart {
            self.start.lost(now, left);
            return;
        }
        self.decisions.resumes = false;
        let rtt = self.path.rtt();
        if self.levels.is_leaving(now, rtt)
            || (self.revised.is_none() && now.since(self.losses.last).as_secs_f64() < rtt)
        {
            return;
        }
        let Some(cuts) = self.on_event(now, left, rtt) else { return };
        self.losses.last = now;
        self.losses.intervals.event();
        if !cuts {
            return;
        }
        self.window.cut(self.clock.channels.base_rate() * rtt, self.mode);
        self.mode = Mode::CongestionAvoidance;
    }
}
