//! TFMCC (RFC 4654): a single rate for a group, given by TCP's equation at the receiver with the worst path.
//!
//! | module | subject |
//! |---|---|
//! | [`Sender`] | rate by the reports of the current limiting receiver (CLR); feedback rounds; echoes |
//! | [`Receiver`] | loss events, round-trip time by echoes, fair rate by the equation, feedback timer |
//!
//! Baseline for comparison with LE-SBCC: packets carry only zeros. Wire format: [`message`]. Departures from
//! the RFC: `docs/errata/baselines.md`.
//!
//! Reports are trusted within bounds. The rate never falls below one packet in [`FLOOR_PERIOD`]; a receiver
//! that claims a low rate is indistinguishable from a receiver behind a bad path. Per round trip of the CLR,
//! the rate rises by at most one packet in each maximum round-trip time; the CLR's round trip counts as at
//! least an eighth of the maximum. A false high report loses its effect once another receiver reports less
//! and becomes the CLR. Round-trip times count as at most [`SenderConfig::with_rtt_cap`]. The sender
//! remembers [`ECHOES_MAX`] receivers and the CLR; a receiver remembers eight loss intervals and 16 holes.

mod config;
mod echoes;
mod losses;
pub mod message;
mod receive_rate;
mod receiver;
mod round_trip;
mod sender;

#[cfg(test)]
mod tests;

pub use config::{FLOOR_PERIOD, SenderConfig};
pub use echoes::ECHOES_MAX;
pub use receiver::{Receiver, ReceiverCounters};
pub use sender::{Clr, Sender, SenderCounters};

/// Length of a feedback round in maximum round-trip times, for receivers that do not hear each other (section
/// 4.4).
const ROUND: f64 = 6.0;
