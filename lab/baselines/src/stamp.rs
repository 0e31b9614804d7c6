//! Timestamps as packets carry them: microseconds modulo 2^32.

use headwater_proto::Instant;

/// Returns the reading of a clock.
#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
pub const fn clock_us(now: Instant) -> u32 {
    (now.as_nanos() / 1_000) as u32
}

/// Returns the reading at `to` of another clock that read `clock` at `from`.
pub const fn later_us(clock: u32, from: Instant, to: Instant) -> u32 {
    clock.wrapping_add(clock_us(to).wrapping_sub(clock_us(from)))
}

/// Returns the microseconds since the clock read `clock`; negative for a reading in the future.
pub const fn since_us(now: Instant, clock: u32) -> i32 {
    clock_us(now).wrapping_sub(clock).cast_signed()
}
