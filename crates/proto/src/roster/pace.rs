//! Interval that a sender announces.

use super::{EXPONENT_MAX, interval};
use crate::time::{Duration, Instant};

/// Time constants of the measured rates: of first reports, which rise by e in 0.2 s at a common start, and of
/// all reports.
const SMOOTHING: [f64; 2] = [0.2, 2.0];
/// Time after a change of the interval in which the rate of reports decides nothing: receivers hear of the
/// change with the next packet of the base channel.
const SETTLING: Duration = Duration::from_millis(200);
/// Reports that a first report stands for: the receiver has sent a hello, too.
const REPORTS_OF_FIRST: f64 = 2.0;
/// Most steps by which the rate of reports raises the interval above the need of the receivers known so far.
/// In a common start the known receivers grow by e in 1 / 9.2 of an interval, with a hello and a report each:
/// 100 000 receivers stay below twice the budget with three steps, not with two. Strangers with many cookies
/// delay the reports of others by a factor of eight.
const STEPS_AHEAD: u8 = 3;
/// Longest time until the interval falls by a step.
const STEP_DOWN: Duration = Duration::from_secs(60);

/// Chooses the interval of reports, by their rate and by the estimated number of receivers.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Reports a second.
    budget: f64,
    is_quick: bool,
    exponent: u8,
    changed: Instant,
    /// Exponentially smoothed rates by [`SMOOTHING`], and the time of their last update.
    rates: [f64; 2],
    counted: Instant,
}

impl Pace {
    pub(super) fn new(budget: u32, is_quick: bool) -> Self {
        Self {
            budget: f64::from(budget.max(1)),
            is_quick,
            exponent: 0,
            changed: Instant::ZERO,
            rates: [0.0; 2],
            counted: Instant::ZERO,
        }
    }

    pub(super) fn exponent(&self) -> u8 {
        self.exponent
    }

    pub(super) fn interval(&self) -> Duration {
        interval(self.exponent, self.is_quick)
    }

    /// Counts a report with a cookie, perhaps the first of its receiver. If reports exceed the budget, the
    /// interval rises at once, before most receivers of a common start report, but at most [`STEPS_AHEAD`]
    /// steps above the need of the `known` receivers.
    pub(super) fn count(&mut self, now: Instant, is_first: bool, known: f64) {
        let elapsed = now.since(self.counted).as_secs_f64();
        self.counted = now;
        let weights = [if is_first { REPORTS_OF_FIRST } else { 0.0 }, 1.0];
        for ((rate, smoothing), weight) in self.rates.iter_mut().zip(SMOOTHING).zip(weights) {
            *rate = *rate * libm::exp(-elapsed / smoothing) + weight / smoothing;
        }
        let excess = self.rates[0].max(self.rates[1]) / self.budget;
        if excess > 1.0 && now >= self.changed + SETTLING {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
            let steps = libm::ceil(libm::log2(excess)) as u8;
            let most = self.need(known) + STEPS_AHEAD;
            self.set(now, self.exponent.saturating_add(steps.max(1)).min(most).max(self.exponent));
        }
    }

    /// Adapts the interval to an estimate of receivers that report. The interval rises at once, and falls by
    /// a step after each interval, at the latest each [`STEP_DOWN`]. Receivers keep the times that they have
    /// drawn from a longer interval.
    pub(super) fn estimate(&mut self, now: Instant, receivers: f64) {
        let need = self.need(receivers);
        if need > self.exponent {
            self.set(now, need);
        } else if need < self.exponent && now >= self.changed + self.interval().min(STEP_DOWN) {
            self.set(now, self.exponent - 1);
        }
    }

    /// Returns the exponent of the shortest interval of at least `2 n / budget` (RFC 3550, section 6.3.1,
    /// with half of the budget).
    fn need(&self, receivers: f64) -> u8 {
        let seconds = 2.0 * receivers / self.budget;
        let fits = |exponent: &u8| interval(*exponent, self.is_quick).as_secs_f64() >= seconds;
        (0..EXPONENT_MAX).find(fits).unwrap_or(EXPONENT_MAX)
    }

    fn set(&mut self, now: Instant, exponent: u8) {
        let exponent = exponent.min(EXPONENT_MAX);
        if exponent != self.exponent {
            (self.exponent, self.changed) = (exponent, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_with_many_cookies_cannot_stop_the_reports_of_others() {
        let mut pace = Pace::new(500, false);
        // 17 rows of one address, whatever the number of its cookies, and 5 000 reports a second.
        let at = |report: u64| Instant::ZERO + Duration::from_micros(200 * report);
        for report in 0..=300_000 {
            pace.count(at(report), true, 17.0);
        }
        assert_eq!(pace.exponent(), STEPS_AHEAD, "an interval of 16 s");
        // The attack is over: a step down at once, as the interval rose long ago, then after 8 s and 4 s.
        let end = at(300_000);
        for (seconds, exponent) in [(0, 2), (7, 2), (8, 1), (11, 1), (12, 0)] {
            pace.estimate(end + Duration::from_secs(seconds), 17.0);
            assert_eq!(pace.exponent(), exponent, "after {seconds} s");
        }
    }

    #[test]
    fn the_interval_falls_by_a_step_a_minute() {
        let mut pace = Pace::new(500, false);
        pace.estimate(Instant::ZERO, 1e6);
        let (longest, minute) = (pace.exponent(), Duration::from_secs(60));
        assert_eq!(interval(longest, false), Duration::from_secs(4_096));
        for step in 1..5 {
            pace.estimate(Instant::ZERO + minute.saturating_mul(step), 10.0);
            assert_eq!(u64::from(longest - pace.exponent()), step);
        }
    }
}
