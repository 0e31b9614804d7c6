//! Monotonic clock with the time of protocol machines, and the schedule of progress reports.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_proto::{Duration, Instant};

/// Seconds from the NTP epoch (1900) to the Unix epoch (1970).
const NTP_TO_UNIX_SECS: u64 = 2_208_988_800;

/// Clock that starts at zero when created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    zero: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { zero: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.zero.elapsed().into()
    }

    /// Converts a time of the operating system; earlier times than the clock's zero become zero.
    pub(crate) fn at(self, at: std::time::Instant) -> Instant {
        Instant::ZERO + at.saturating_duration_since(self.zero).into()
    }

    /// Converts to a time of the operating system; `None` if out of range.
    pub(crate) fn to_std(self, instant: Instant) -> Option<std::time::Instant> {
        self.zero.checked_add(std::time::Duration::from_nanos(instant.as_nanos()))
    }
}

/// Returns the time since the clock's zero.
pub(crate) fn elapsed(now: Instant) -> std::time::Duration {
    std::time::Duration::from_nanos(now.as_nanos())
}

/// Returns the current wall-clock time since 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into()
}

/// Returns the current wall-clock time in NTP seconds modulo 2^32.
pub(crate) fn ntp_now() -> u32 {
    let ntp = (since_1970().as_nanos() / 1_000_000_000).wrapping_add(NTP_TO_UNIX_SECS) & u64::from(u32::MAX);
    u32::try_from(ntp).expect("32 bits are left")
}

/// Time between two reports: ten a second.
const INTERVAL: Duration = Duration::from_millis(100);
/// Window of the rate measurement.
const WINDOW: Duration = Duration::from_secs(1);
/// Maximum samples in a window: one per report, and the sample before the window.
const SAMPLES_MAX: usize = 12;

/// Schedule of reports, and rate between reports.
#[derive(Debug)]
pub(crate) struct Progress {
    next: Instant,
    /// Times and bytes up to each time; oldest first, at most [`SAMPLES_MAX`].
    samples: VecDeque<(Instant, u64)>,
}

impl Progress {
    /// Creates a schedule whose first report is due one interval after `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { next: now + INTERVAL, samples: VecDeque::from([(now, 0)]) }
    }

    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Whether a report is due at `now`; the next report is then due an interval later.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next <= now;
        if due {
            self.next = now + INTERVAL;
        }
        due
    }

    /// Returns the rate in bit/s over the last second, given the `bytes` up to `now`.
    pub(crate) fn rate_bits(&mut self, now: Instant, bytes: u64) -> u64 {
        let is_old = |at: Instant| at + WINDOW <= now;
        // The newest sample that is a window old stays: the rate is measured from this sample on.
        while self.samples.len() >= SAMPLES_MAX || self.samples.get(1).is_some_and(|(at, _)| is_old(*at)) {
            self.samples.pop_front();
        }
        let (since, before) = self.samples.front().copied().unwrap_or((Instant::ZERO, 0));
        if self.samples.back().is_none_or(|(at, _)| *at < now) {
            self.samples.push_back((now, bytes));
        }
        let nanos = u128::from(now.since(since).as_nanos());
        let bits = u128::from(bytes.saturating_sub(before)) * 8 * 1_000_000_000;
        bits.checked_div(nanos).map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// Returns the bytes by channel, up to the last channel with any.
pub(crate) fn used_channels(bytes: &[u64]) -> Vec<u64> {
    let end = bytes.iter().rposition(|bytes| *bytes > 0).map_or(0, |last| last + 1);
    bytes[..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn the_rate_is_that_of_the_last_second() {
        let mut progress = Progress::new(ms(0));
        assert_eq!(progress.rate_bits(ms(0), 0), 0);
        for step in 1..=30 {
            assert_eq!(progress.rate_bits(ms(step * 100), step * 1_000), 80_000, "at {step}");
        }
        for step in 31..=40 {
            progress.rate_bits(ms(step * 100), 30_000);
        }
        assert_eq!(progress.rate_bits(ms(4_050), 30_000), 0, "nothing came for a second");
    }

    #[test]
    fn reports_are_due_ten_times_a_second() {
        let mut progress = Progress::new(ms(0));
        assert!(!progress.is_due(ms(99)));
        assert!(progress.is_due(ms(100)));
        assert!(!progress.is_due(ms(101)));
        assert!(progress.is_due(ms(5_000)));
        assert_eq!(progress.next(), ms(5_100));
    }
}
