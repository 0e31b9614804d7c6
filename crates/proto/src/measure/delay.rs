//! Queueing from relative one-way delays, and how long a join takes.

use std::collections::VecDeque;

use crate::time::{Duration, Instant};

/// How far back the greatest delay is looked for.
const WINDOW: Duration = Duration::from_secs(30);
/// Grain of that window.
const BUCKET: Duration = Duration::from_millis(250);
/// The least delay is found anew in periods of this length, so that clocks may drift.
const REBASE: Duration = Duration::from_secs(300);

/// One-way delays whose zero is unknown: only differences mean anything. Nanoseconds.
///
/// Memory: an entry for each quarter of a second of the window at most.
#[derive(Clone, Debug)]
pub struct OneWayDelay {
    /// Least of this period and of the one before.
    least: [i64; 2],
    period: u64,
    /// Greatest of each bucket, falling from front to back.
    greatest: VecDeque<(u64, i64)>,
}

impl Default for OneWayDelay {
    fn default() -> Self {
        Self { least: [i64::MAX; 2], period: 0, greatest: VecDeque::new() }
    }
}

impl OneWayDelay {
    /// A packet's delay.
    pub fn record(&mut self, now: Instant, delay: i64) {
        let period = now.as_nanos() / REBASE.as_nanos();
        if period != self.period {
            let before = if period == self.period + 1 { self.least[0] } else { i64::MAX };
            self.least = [i64::MAX, before];
            self.period = period;
        }
        self.least[0] = self.least[0].min(delay);

        let bucket = now.as_nanos() / BUCKET.as_nanos();
        let oldest = bucket.saturating_sub(WINDOW.as_nanos() / BUCKET.as_nanos());
        while self.greatest.front().is_some_and(|(at, _)| *at < oldest) {
            self.greatest.pop_front();
        }
        while self.greatest.back().is_some_and(|(_, greatest)| *greatest <= delay) {
            self.greatest.pop_back();
        }
        if self.greatest.back().is_none_or(|(at, _)| *at != bucket) {
            self.greatest.push_back((bucket, delay));
        }
    }

    /// By how much a delay exceeds the least one: what the packet waited in queues, in seconds.
    pub fn queueing(&self, delay: i64) -> f64 {
        let least = self.least[0].min(self.least[1]);
        seconds(delay.saturating_sub(least).max(0))
    }

    /// The greatest such excess in the last 30 s, in seconds.
    pub fn queueing_max(&self) -> f64 {
        self.greatest.front().map_or(0.0, |(_, delay)| self.queueing(*delay))
    }
}

/// How long joins take.
#[derive(Clone, Debug)]
pub struct JoinLatency {
    /// At least and at most what a join took without queueing.
    samples: VecDeque<(f64, f64)>,
    smoothed: Option<(f64, f64)>,
}

/// Samples whose least is the floor.
const SAMPLES: usize = 16;
/// No round trip is shorter than this, in seconds (m2c-webrc.md 2.4).
const FLOOR: f64 = 0.002;

impl Default for JoinLatency {
    fn default() -> Self {
        Self { samples: VecDeque::with_capacity(SAMPLES), smoothed: None }
    }
}

impl JoinLatency {
    /// A join was answered after so many seconds, `queueing` of which its first packet waited in queues. Packets are `gap`
    /// apart, so the join took effect up to that long before.
    pub fn record(&mut self, latency: f64, queueing: f64, gap: f64) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let most = (latency - queueing).max(FLOOR);
        self.samples.push_back(((most - gap).max(FLOOR), most));
        // RFC 6298's gains.
        self.smoothed = Some(match self.smoothed {
            None => (latency, latency / 2.0),
            Some((mean, deviation)) => {
                let error = latency - mean;
                (mean + error / 8.0, deviation + (error.abs() - deviation) / 4.0)
            }
        });
    }

    /// The least that one of the last 16 joins took at most, in seconds; or `guess`, where it may have taken as little as that.
    pub fn floor(&self, guess: f64) -> f64 {
        let tightest =
            self.samples.iter().copied().reduce(|one, other| if other.1 < one.1 { other } else { one });
        tightest.map_or(guess, |(least, most)| guess.clamp(least, most))
    }

    /// Mean join latency in seconds.
    pub fn mean(&self) -> Option<f64> {
        self.smoothed.map(|(mean, _)| mean)
    }

    /// JTL: what a join may take, in seconds: mean and four deviations.
    pub fn bound(&self) -> Option<f64> {
        self.smoothed.map(|(mean, deviation)| mean + 4.0 * deviation)
    }
}

fn seconds(nanos: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
    let nanos = nanos as f64;
    nanos / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn queueing_is_the_greatest_difference_of_the_window() {
        let mut delay = OneWayDelay::default();
        delay.record(at(0), -500 * MS);
        delay.record(at(1_000), -420 * MS);
        delay.record(at(2_000), -450 * MS);
        assert!((delay.queueing_max() - 0.08).abs() < 1e-9);
        delay.record(at(31_400), -460 * MS);
        assert!((delay.queueing_max() - 0.05).abs() < 1e-9, "80 ms are more than 30 s ago");
        delay.record(at(33_000), -490 * MS);
        assert!((delay.queueing_max() - 0.04).abs() < 1e-9);
    }

    #[test]
    fn a_drifting_clock_is_followed() {
        let mut delay = OneWayDelay::default();
        for second in 0..7_200_u64 {
            // 50 ppm: 360 ms in two hours.
            delay.record(at(second * 1_000), i64::try_from(second).unwrap() * MS / 20);
        }
        assert!(delay.queueing_max() < 0.031, "{}", delay.queueing_max());
    }

    #[test]
    fn packets_far_apart_do_not_make_a_join_short() {
        let mut joins = JoinLatency::default();
        // Three seconds apart, the packet came early or late by chance: that tells next to nothing.
        joins.record(0.3, 0.0, 3.0);
        assert!((joins.floor(0.1) - 0.1).abs() < 1e-12);
        joins.record(1.9, 0.0, 3.0);
        assert!((joins.floor(0.1) - 0.1).abs() < 1e-12);
        joins.record(0.22, 0.0, 0.02);
        assert!((joins.floor(0.1) - 0.2).abs() < 1e-12, "at least this long");
    }

    #[test]
    fn the_floor_is_the_least_of_sixteen() {
        let mut joins = JoinLatency::default();
        assert_eq!(joins.floor(0.1), 0.1);
        joins.record(0.010, 0.004, 0.001);
        for _ in 0..15 {
            joins.record(0.050, 0.0, 0.001);
        }
        assert!((joins.floor(0.1) - 0.006).abs() < 1e-12);
        joins.record(0.050, 0.0, 0.001);
        assert!((joins.floor(0.1) - 0.050).abs() < 1e-12);
        assert!(joins.bound().unwrap() > joins.mean().unwrap());
    }
}
