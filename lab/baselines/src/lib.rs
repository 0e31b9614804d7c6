//! Congestion controls for comparison with Headwater's, and analyses from the papers. Product code does not
//! import them.
//!
//! | module | subject |
//! |---|---|
//! | [`tfmcc`] | single rate by receivers' reports: RFC 4654 |
//! | [`pgmcc`] | single rate by a single receiver's acknowledgements, in PGM's packets |
//! | [`rlc`] | layers with doubling rates, and synchronisation points for joins |
//! | [`rlm`] | receivers that try the next layer by experiments |
//! | [`le_sbcc`] | analysis in LE-SBCC's paper: loss events in a Markov chain, and in rounds |

#![forbid(unsafe_code)]

#[cfg(test)]
mod group;
#[cfg(test)]
#[path = "../../../crates/wire/tests/it/hex.rs"]
mod hex;
pub mod le_sbcc;
// Path simulation shared with proto's own tests; the file names modules of proto by `crate`.
#[cfg(test)]
#[path = "../../../crates/proto/src/layering/path.rs"]
#[expect(dead_code, reason = "tests of other controls use more of it")]
mod path;
pub mod pgmcc;
pub mod rlc;
pub mod rlm;
mod stamp;
pub mod tfmcc;

#[cfg(test)]
use headwater_proto::{control, layering, machine, rate, time};
