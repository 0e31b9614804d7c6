//! Congestion controls that Headwater's are compared with, and analyses of the papers. No product code
//! imports them.
//!
//! | module | subject |
//! |---|---|
//! | [`tfmcc`] | a single rate by receivers' reports: RFC 4654 |
//! | [`pgmcc`] | a single rate by one receiver's acknowledgements, in PGM's packets |
//! | [`rlc`] | layers whose rates double, synchronisation points at which to join one more |
//! | [`rlm`] | receivers that try a layer more by experiments |
//! | [`le_sbcc`] | the analysis in LE-SBCC's paper: loss events in a Markov chain, and in rounds |

#![forbid(unsafe_code)]

#[cfg(test)]
mod group;
#[cfg(test)]
#[path = "../../../crates/wire/tests/it/hex.rs"]
mod hex;
pub mod le_sbcc;
// The path that proto's own tests use: it names modules of proto by `crate`.
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
