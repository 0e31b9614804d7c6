//! TFMCC (RFC 4654): one rate for a group, that of TCP's equation at the receiver with the worst of paths.
//!
//! | module | what |
//! |---|---|
//! | [`Sender`] | the rate, by the reports of the current limiting receiver (CLR); rounds of feedback; echoes, by which receivers measure round-trip times |
//! | [`Receiver`] | loss events, round-trip time, the rate that the equation gives, and when to say so |
//!
//! A baseline that LE-SBCC is compared with: packets carry nothing but zeros. Bytes: [`message`]. Departures
//! from the RFC: `docs/errata/baselines.md`.
//!
//! What receivers say is believed within bounds. The rate never falls below one packet in [`FLOOR_PERIOD`]; a
//! receiver that claims a low rate cannot be told from one behind a bad path. It rises by at most one packet
//! in each maximum round-trip time per round trip of the CLR, for which no less is taken than an eighth of
//! the maximum: a liar that claims much is not the CLR any more as soon as another receiver reports less.
//! Round-trip times count as at most [`SenderConfig::with_rtt_cap`]. The sender remembers [`ECHOES_MAX`]
//! receivers and the CLR; a receiver remembers eight loss intervals and 16 holes.

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

/// A round of feedback takes so many maximum round-trip times, where receivers do not hear each other
/// (section 4.4).
const ROUND: f64 = 6.0;
