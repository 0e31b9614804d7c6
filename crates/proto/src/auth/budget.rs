//! Budget of checks of signatures whose pass fits no verified signature.

use rand::RngExt;

use crate::rng::Stream;
use crate::time::{Duration, Instant};

/// Interval of the budget while a channel has no verified signature: 10 000 checks a second, 0.3 of a core.
const OPEN: Duration = Duration::from_micros(100);
/// Interval of the budget otherwise: 200 checks a second.
const NARROW: Duration = Duration::from_millis(5);
/// Interval of failed checks whose pass fits a verified signature, beyond four for each number: 2000 a
/// second, 0.06 of a core.
const FITTING: Duration = Duration::from_micros(500);
/// Most checks at once.
const SAVED_MAX: u32 = 32;

/// Mean interval of a budget's checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    Open,
    Narrow,
    Fitting,
}

#[derive(Debug)]
pub(crate) struct Budget {
    rng: Stream,
    saved: u32,
    next: Instant,
}

impl Budget {
    pub(crate) fn new(rng: Stream) -> Self {
        Self { rng, saved: SAVED_MAX, next: Instant::ZERO }
    }

    /// Returns whether one more signature may be checked.
    pub(crate) fn has(&mut self, now: Instant, interval: Interval) -> bool {
        let interval = match interval {
            Interval::Open => OPEN,
            Interval::Narrow => NARROW,
            Interval::Fitting => FITTING,
        };
        // A change to the shorter interval does not wait for the end of a longer one.
        self.next = self.next.min(now + interval + interval);
        while self.saved < SAVED_MAX && self.next <= now {
            self.saved += 1;
            // Random, so that a flood in step with the budget does not take all of it.
            self.next += Duration::from_nanos(self.rng.random_range(0..=2 * interval.as_nanos()));
        }
        if self.saved == SAVED_MAX {
            self.next = now + interval;
        }
        self.saved > 0
    }

    /// Adds checks to the budget, once.
    pub(crate) fn grant(&mut self, checks: u32) {
        self.saved += checks;
    }

    /// Takes one check. Returns whether the signature may be checked.
    pub(crate) fn take(&mut self, now: Instant, interval: Interval) -> bool {
        let has = self.has(now, interval);
        self.saved -= u32::from(has);
        has
    }
}
