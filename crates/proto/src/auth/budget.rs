//! Budget of checks of signatures whose pass fits no verified signature.

use rand::RngExt;

use crate::rng::Stream;
use crate::time::{Duration, Instant};

/// Interval of the budget while a channel has no verified signature: 10 000 checks a second, 0.3 of a core.
const OPEN: Duration = Duration::from_micros(100);
/// Interval of the budget otherwise: 200 checks a second.
const NARROW: Duration = Duration::from_millis(5);
/// Most checks at once.
const SAVED_MAX: u32 = 32;

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
    pub(crate) fn take(&mut self, now: Instant, is_open: bool) -> bool {
        let interval = if is_open { OPEN } else { NARROW };
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
        let has = self.saved > 0;
        self.saved -= u32::from(has);
        has
    }
}
