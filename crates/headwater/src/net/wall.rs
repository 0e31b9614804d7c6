//! From the kernel's time of arrival, by the wall clock, to the monotonic clock that machines count by.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What waited longer than this to be read, by the wall clock, did not: the clock was set meanwhile.
const AGE_MAX: Duration = Duration::from_secs(10);
/// The two clocks are read again if that took longer: the thread was held up in between.
const TOGETHER: Duration = Duration::from_micros(20);
const TRIES: usize = 3;

/// Both clocks, read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wall {
    pub(super) monotonic: Instant,
    since_1970: Duration,
}

impl Wall {
    /// Reads them.
    pub(super) fn now() -> Self {
        let read = || {
            let before = Instant::now();
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let monotonic = Instant::now();
            (monotonic - before, Self { monotonic, since_1970 })
        };
        let mut best = read();
        for _ in 1..TRIES {
            if best.0 <= TOGETHER {
                break;
            }
            best = read();
        }
        best.1
    }

    /// When it was so late by the wall clock; never later than now.
    pub(super) fn monotonic(&self, since_1970: Duration) -> Instant {
        let age = self.since_1970.saturating_sub(since_1970);
        if age > AGE_MAX { self.monotonic } else { self.monotonic.checked_sub(age).unwrap_or(self.monotonic) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_the_same_by_both_clocks_unless_one_was_set() {
        let wall = Wall::now();
        let at = |age: Duration| wall.monotonic(wall.since_1970 - age);
        assert_eq!(at(Duration::ZERO), wall.monotonic);
        assert_eq!(wall.monotonic - at(Duration::from_millis(250)), Duration::from_millis(250));
        assert_eq!(at(Duration::from_secs(3_600)), wall.monotonic, "set forwards");
        assert_eq!(wall.monotonic(wall.since_1970 + Duration::from_secs(1)), wall.monotonic, "set backwards");
    }
}
