//! Queueing delay from relative one-way delays, and join latency.

use std::collections::VecDeque;

use crate::time::{Duration, Instant};

/// Length of the periods for which the minimum delay is determined, so that clocks may drift.
const REBASE: Duration = Duration::from_secs(300);

/// One-way delays with an unknown offset: only differences are meaningful. Nanoseconds.
#[derive(Clone, Debug)]
pub struct OneWayDelay {
    /// Minimum delay of this period and of the previous period.
    least: [i64; 2],
    period: u64,
    /// Time constant of the mean, in seconds.
    mean_seconds: f64,
    /// Last packet: arrival time, delay, and mean delay at that time.
    last: Option<(Instant, i64, f64)>,
    /// Recent maximum of the queueing delay in seconds; decays with the time constant of the mean.
    peak: f64,
}

impl OneWayDelay {
    /// Creates an estimator without packets; means have a time constant of `mean_seconds`.
    pub fn new(mean_seconds: f64) -> Self {
        Self { least: [i64::MAX; 2], period: 0, mean_seconds, last: None, peak: 0.0 }
    }

    /// Records a packet's delay.
    pub fn record(&mut self, now: Instant, delay: i64) {
        let period = now.as_nanos() / REBASE.as_nanos();
        // A packet that waited for a manifest may be of the period before.
        if period > self.period {
            let before = if period == self.period + 1 { self.least[0] } else { i64::MAX };
            self.least = [i64::MAX, before];
            self.period = period;
        }
        self.least[0] = self.least[0].min(delay);
        let mean = self.last.map_or(seconds(delay), |(before, _, mean)| {
            // Weighted by time, not by packet: many packets at a full queue do not lengthen the time for
            // which the queue is full.
            let new = -libm::expm1(-now.since(before).as_secs_f64() / self.mean_seconds);
            mean + (seconds(delay) - mean) * new
        });
        let age = self.last.map_or(0.0, |(before, ..)| now.since(before).as_secs_f64());
        self.peak = self.queueing(delay).max(self.peak * libm::exp(-age / self.mean_seconds));
        self.last = Some((now, delay, mean));
    }

    /// Returns the queueing delay of a packet with this delay, in seconds: the excess over the minimum delay.
    pub fn queueing(&self, delay: i64) -> f64 {
        seconds(delay.saturating_sub(self.least()).max(0))
    }

    /// Returns the queueing delay of the last packet, in seconds.
    pub fn queueing_last(&self) -> f64 {
        self.last.map_or(0.0, |(_, delay, _)| self.queueing(delay))
    }

    /// Returns the recent maximum of the queueing delay, in seconds.
    pub fn queueing_peak(&self) -> f64 {
        self.peak
    }

    /// Returns the recent mean of the queueing delay, in seconds.
    pub fn queueing_mean(&self) -> f64 {
        self.last.map_or(0.0, |(_, _, mean)| (mean - seconds(self.least())).max(0.0))
    }

    /// Resets the mean to the delay of the last packet.
    pub fn settle(&mut self) {
        if let Some((_, delay, mean)) = &mut self.last {
            *mean = seconds(*delay);
        }
    }

    /// Raises the minimum delay by `seconds`.
    pub fn raise(&mut self, seconds: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "a delay in seconds")]
        let nanos = (seconds * 1e9) as i64;
        self.least = [self.least().saturating_add(nanos), i64::MAX];
    }

    fn least(&self) -> i64 {
        self.least[0].min(self.least[1])
    }
}

/// Minimum growth of the delay from one packet to the next that may be a step: seconds, and mean gaps. A
/// queue grows by less.
const STEP: f64 = 0.01;
const STEP_GAPS: f64 = 8.0;
/// Minimum part of the step in each later delay, and time after which the step lasts. A queue empties
/// meanwhile.
const STEP_KEPT: f64 = 0.75;
const STEP_TIME: Duration = Duration::from_secs(10);

/// Detector of a lasting step of the delay: a clock jumped, a sender stalled, or the route became longer.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayStep {
    /// Queueing delay of the last packet.
    last: f64,
    /// Current step: time, minimum delay for which the step lasts, and minimum delay since.
    step: Option<(Instant, f64, f64)>,
}

impl DelayStep {
    /// Records a packet that seems to have waited `wait` seconds, of packets `gap` seconds apart. Returns the
    /// height of a step that lasted.
    pub fn record(&mut self, now: Instant, wait: f64, gap: f64) -> Option<f64> {
        let growth = wait - core::mem::replace(&mut self.last, wait);
        if self.step.is_none() && growth > STEP.max(STEP_GAPS * gap) {
            self.step = Some((now, STEP_KEPT * growth, wait));
        }
        let (since, kept, least) = self.step.as_mut()?;
        *least = least.min(wait);
        let (is_over, height) = (*least < *kept, *least);
        if !is_over && now.since(*since) < STEP_TIME {
            return None;
        }
        self.step = None;
        (!is_over).then(|| {
            self.last -= height;
            height
        })
    }
}

/// Join latency: time from a join to the first packet.
#[derive(Clone, Debug)]
pub struct JoinLatency {
    /// Lower and upper bound of each join's latency without queueing.
    samples: VecDeque<(f64, f64)>,
    /// Sample with the smallest upper bound.
    tightest: Option<(f64, f64)>,
    smoothed: Option<(f64, f64)>,
    /// Minimum of a bound, in seconds.
    least: f64,
}

/// Number of samples for the floor.
const SAMPLES: usize = 16;
/// Default minimum of a round-trip time, in seconds (`docs/errata/layering.md`).
const FLOOR: f64 = 0.002;

impl Default for JoinLatency {
    fn default() -> Self {
        Self::new(FLOOR)
    }
}

impl JoinLatency {
    /// Creates an estimator without samples; no bound is below `least`, in seconds.
    pub fn new(least: f64) -> Self {
        Self { samples: VecDeque::with_capacity(SAMPLES), tightest: None, smoothed: None, least }
    }

    /// Records a join answered after `latency` seconds, with a first packet that waited `queueing` seconds in
    /// queues. Packets are `gap` seconds apart, so the join took effect up to `gap` before the packet.
    pub fn record(&mut self, latency: f64, queueing: f64, gap: f64) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let most = (latency - queueing).max(self.least);
        self.samples.push_back(((most - gap).max(self.least), most));
        self.tightest =
            self.samples.iter().copied().reduce(|one, other| if other.1 < one.1 { other } else { one });
        // RFC 6298's gains.
        self.smoothed = Some(match self.smoothed {
            None => (latency, latency / 2.0),
            Some((mean, deviation)) => {
                let error = latency - mean;
                (mean + error / 8.0, deviation + (error.abs() - deviation) / 4.0)
            }
        });
    }

    /// Returns `guess`, limited to the bounds of the sample with the smallest upper bound among the last 16
    /// joins, in seconds.
    pub fn floor(&self, guess: f64) -> f64 {
        self.tightest.map_or(guess, |(least, most)| guess.clamp(least, most))
    }

    /// Returns the mean join latency in seconds.
    pub fn mean(&self) -> Option<f64> {
        self.smoothed.map(|(mean, _)| mean)
    }

    /// Returns JTL, the upper limit of a join's latency, in seconds: mean plus four deviations.
    pub fn bound(&self) -> Option<f64> {
        self.smoothed.map(|(mean, deviation)| mean + 4.0 * deviation)
    }
}

/// Converts a time difference to seconds.
pub(crate) fn seconds(nanos: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
    let nanos = nanos as f64;
    nanos / 1e9
}

/// Gains of the mean and of the deviation.
const GAINS: [f64; 2] = [0.125, 0.25];

/// Mean round-trip time and mean deviation, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTrip(Option<(f64, f64)>);

impl RoundTrip {
    /// Creates an estimate from a first measurement in seconds, with half the measurement as deviation.
    pub fn of(first: f64) -> Self {
        Self(Some((first, first / 2.0)))
    }

    /// Adds a sample in seconds.
    pub fn sample(&mut self, sample: f64) {
        *self = match self.0 {
            None => Self::of(sample),
            Some((mean, deviation)) => {
                let error = sample - mean;
                Self(Some((mean + GAINS[0] * error, deviation + GAINS[1] * (error.abs() - deviation))))
            }
        };
    }

    /// Returns the mean in seconds; `None` before the first sample.
    pub fn mean(&self) -> Option<f64> {
        self.0.map(|(mean, _)| mean)
    }

    /// Returns the timeout in seconds: the mean plus four deviations, or plus `margin` if larger. `None`
    /// before the first sample.
    pub fn timeout(&self, margin: f64) -> Option<f64> {
        self.0.map(|(mean, deviation)| mean + (4.0 * deviation).max(margin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn queueing_is_what_exceeds_the_least_delay() {
        let mut delay = OneWayDelay::new(5.0);
        delay.record(at(0), -500 * MS);
        for ms in (10..30_000).step_by(10) {
            // A queue between 40 and 80 ms.
            delay.record(at(ms), if ms % 20 == 0 { -420 * MS } else { -460 * MS });
        }
        assert!((delay.queueing_last() - 0.04).abs() < 1e-9);
        assert!((delay.queueing_mean() - 0.06).abs() < 0.001, "{}", delay.queueing_mean());
        assert!((delay.queueing(-490 * MS) - 0.01).abs() < 1e-9);
        assert_eq!(delay.queueing(-510 * MS), 0.0);
    }

    /// Packets that wait for a manifest are told of late, with the time when they came.
    #[test]
    fn a_late_packet_of_the_period_before_forgets_no_least_delay() {
        let mut delay = OneWayDelay::new(5.0);
        for (ms, queue) in [(299_000, 0), (299_990, 40), (300_010, 40), (299_995, 40), (300_020, 40)] {
            delay.record(at(ms), queue * MS);
        }
        assert!((delay.queueing_last() - 0.04).abs() < 1e-9, "{}", delay.queueing_last());
    }

    #[test]
    fn the_longest_wait_is_forgotten_slowly() {
        let mut delay = OneWayDelay::new(5.0);
        delay.record(at(0), 0);
        delay.record(at(1_000), 100 * MS);
        assert!((delay.queueing_peak() - 0.1).abs() < 1e-9);
        delay.record(at(6_000), 10 * MS);
        assert!((delay.queueing_peak() - 0.1 * libm::exp(-1.0)).abs() < 1e-9, "{}", delay.queueing_peak());
        delay.record(at(40_000), 10 * MS);
        assert!((delay.queueing_peak() - 0.01).abs() < 1e-9);
    }

    #[test]
    fn many_packets_at_once_do_not_outweigh_time() {
        let mut delay = OneWayDelay::new(5.0);
        delay.record(at(0), 0);
        delay.record(at(60_000), 10 * MS);
        for _ in 0..1_000 {
            delay.record(at(60_050), 200 * MS);
        }
        assert!((0.010..0.013).contains(&delay.queueing_mean()), "{}", delay.queueing_mean());
    }

    #[test]
    fn a_drifting_clock_is_followed() {
        let mut delay = OneWayDelay::new(5.0);
        for second in 0..7_200_u64 {
            // 50 ppm: 360 ms in two hours.
            delay.record(at(second * 1_000), i64::try_from(second).unwrap() * MS / 20);
        }
        assert!(delay.queueing_mean() < 0.031, "{}", delay.queueing_mean());
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

    /// RFC 6298 by hand: SRTT = R, RTTVAR = R/2; then 7/8 and 1/8, 3/4 and 1/4.
    #[test]
    fn two_samples_by_hand() {
        let mut round_trip = RoundTrip::default();
        assert_eq!((round_trip.mean(), round_trip.timeout(0.0)), (None, None));
        round_trip.sample(0.1);
        assert!((round_trip.timeout(0.0).unwrap() - 0.3).abs() < 1e-12);
        round_trip.sample(0.18);
        assert!((round_trip.mean().unwrap() - 0.11).abs() < 1e-12);
        assert!((round_trip.timeout(0.0).unwrap() - 0.34).abs() < 1e-12);
        assert!((round_trip.timeout(0.5).unwrap() - 0.61).abs() < 1e-12);
    }

    /// Heights of the steps found in 30 s of packets each 10 ms, with waits in seconds. Each step raises the
    /// minimum delay.
    fn steps(wait: impl Fn(f64) -> f64) -> Vec<f64> {
        let (mut step, mut found) = (DelayStep::default(), Vec::new());
        for i in 0..3_000_u32 {
            let now = Instant::ZERO + Duration::from_millis(10 * u64::from(i));
            let wait = wait(f64::from(i) / 100.0) - found.iter().sum::<f64>();
            found.extend(step.record(now, wait, 0.01));
        }
        found
    }

    #[test]
    fn a_delay_that_steps_and_stays_is_a_step() {
        let found = steps(|second| if second < 5.0 { 0.01 } else { 0.41 });
        assert!(found.len() == 1 && (found[0] - 0.4).abs() < 0.011, "{found:?}");
        // A queue before and after.
        let found = steps(|second| 0.05 * second.fract() + if second < 5.5 { 0.0 } else { 0.4 });
        assert!(found.len() == 1 && (found[0] - 0.4).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_queue_is_no_step() {
        // A queue that grows within a second, and stays.
        assert!(steps(|second| (second - 5.0).clamp(0.0, 0.4)).is_empty());
        // A host that slept, and a burst that drains within 5 s.
        assert!(steps(|second| if (5.0..5.4).contains(&second) { 5.4 - second } else { 0.0 }).is_empty());
        assert!(steps(|second| if second < 5.0 { 0.0 } else { (1.4 - second / 5.0).max(0.0) }).is_empty());
        // A single late packet each second.
        assert!(steps(|second| if second.fract() < 0.005 { 0.3 } else { 0.0 }).is_empty());
    }
}
