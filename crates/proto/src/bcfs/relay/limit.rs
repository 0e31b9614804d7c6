//! Limit of messages per second with a single instant as state: the generic cell rate algorithm.

use crate::time::{Duration, Instant};

/// Rate with a burst allowance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    spacing: Duration,
    burst: Duration,
}

impl Limit {
    /// Creates a limit of `per_second` messages a second, with bursts of `burst` messages.
    pub(crate) const fn new(per_second: u32, burst: u32) -> Self {
        let per_second = if per_second == 0 { 1 } else { per_second };
        let spacing = Duration::from_nanos(1_000_000_000 / per_second as u64);
        Self { spacing, burst: spacing.saturating_mul(burst as u64) }
    }

    /// Whether a message conforms; a conforming message is counted. `due` is the time of the next message of
    /// a flow at exactly this rate.
    pub(crate) fn admits(self, now: Instant, due: &mut Instant) -> bool {
        if *due > now + self.burst {
            return false;
        }
        *due = (*due).max(now) + self.spacing;
        true
    }
}
