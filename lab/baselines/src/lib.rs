//! Congestion controls for comparison with Headwater's, and analyses from the papers. Product code does not
//! import them.
//!
//! | module | subject |
//! |---|---|
//! | [`tfmcc`] | single rate by receivers' reports: RFC 4654 |
//! | [`pgmcc`] | single rate by a single receiver's acknowledgements, in PGM's packets |
//! | [`rlc`] | layers with doubling rates, and synchronisation points for joins |
//! | [`rlm`] | receivers that try the next layer by experiments |
//! | [`bcfs`] | channels and repair over BCFS, the two services that its paper describes |
//! | [`le_sbcc`] | analysis in LE-SBCC's paper: loss events in a Markov chain, and in rounds |

#![forbid(unsafe_code)]

pub mod bcfs;
#[cfg(test)]
mod group;
#[cfg(test)]
#[path = "../../../crates/wire/tests/it/hex.rs"]
mod hex;
pub mod le_sbcc;
// Path simulation shared with proto's own tests; the file names modules of proto by `crate`.
#[cfg(test)]
#[path = "../../../crates/proto/src/layering/tests/path.rs"]
#[expect(dead_code, reason = "tests of other controls use more of it")]
mod path;
pub mod pgmcc;
pub mod rlc;
pub mod rlm;
pub mod tfmcc;

use headwater_proto::Instant;
#[cfg(test)]
use headwater_proto::{control, layering, machine, rate, time};

/// Returns the reading of a clock, as packets carry it: microseconds modulo 2^32.
#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
pub(crate) const fn clock_us(now: Instant) -> u32 {
    (now.as_nanos() / 1_000) as u32
}

/// Returns the reading at `to` of another clock that read `clock` at `from`.
pub(crate) const fn later_us(clock: u32, from: Instant, to: Instant) -> u32 {
    clock.wrapping_add(clock_us(to).wrapping_sub(clock_us(from)))
}

/// Returns the microseconds since the clock read `clock`; negative for a reading in the future.
pub(crate) const fn since_us(now: Instant, clock: u32) -> i32 {
    clock_us(now).wrapping_sub(clock).cast_signed()
}
