//! Clocks in SIM's packets: tenths of a millisecond modulo 2^32.

use crate::time::{Duration, Instant};

const NANOS: u64 = 100_000;

/// Returns the reading of a clock at `now`.
#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
pub(super) const fn clock(now: Instant) -> u32 {
    (now.as_nanos() / NANOS) as u32
}

/// Returns a duration in tenths of a millisecond.
pub(super) fn tenths(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / NANOS).unwrap_or(u32::MAX)
}

/// Returns the duration of a number of tenths of a millisecond.
pub(super) fn duration(tenths: u32) -> Duration {
    Duration::from_nanos(u64::from(tenths) * NANOS)
}
