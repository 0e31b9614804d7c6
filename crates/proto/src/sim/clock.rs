//! Clocks as SIM's packets carry them: tenths of a millisecond modulo 2^32.

use crate::time::{Duration, Instant};

const NANOS: u64 = 100_000;

/// What a clock shows.
#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
pub(super) const fn clock(now: Instant) -> u32 {
    (now.as_nanos() / NANOS) as u32
}

/// Tenths of a millisecond in a time.
pub(super) fn tenths(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / NANOS).unwrap_or(u32::MAX)
}

/// A time of so many.
pub(super) fn duration(tenths: u32) -> Duration {
    Duration::from_nanos(u64::from(tenths) * NANOS)
}
