//! A limit of messages per second, in one instant: the generic cell rate algorithm.

use crate::time::{Duration, Instant};

/// A rate, and how much may come at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    spacing: Duration,
    burst: Duration,
}

impl Limit {
    /// So many messages a second, and `burst` of them at once.
    pub(crate) const fn new(per_second: u32, burst: u32) -> Self {
        let per_second = if per_second == 0 { 1 } else { per_second };
        let spacing = Duration::from_nanos(1_000_000_000 / per_second as u64);
        Self { spacing, burst: spacing.saturating_mul(burst as u64) }
    }

    /// Whether a message may pass, and notes that it does. `due` is when the next would come if they came at
    /// the rate.
    pub(crate) fn admits(self, now: Instant, due: &mut Instant) -> bool {
        if *due > now + self.burst {
            return false;
        }
        *due = (*due).max(now) + self.spacing;
        true
    }
}
