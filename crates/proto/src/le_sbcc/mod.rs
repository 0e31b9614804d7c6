//! LE-SBCC: a fair single rate from the sender alone (Thapliyal, Sidhartha, Li, Kalyanaraman, about 2001).
//!
//! Receivers say nothing but which packets they miss ("loss indications": NAKs that any PGM receiver sends).
//! From these the sender makes the rate that a TCP to the worst receiver would have:
//!
//! ```text
//! loss indication -> round-trip time -> LI2LE -> Max-LPRF -> ATF -> AIMD or TFRC -> rate
//! ```
//!
//! | module | stage |
//! |---|---|
//! | [`RoundTrip`] | mean and deviation of the time from a packet to its NAK |
//! | [`Receivers`] | LI2LE: at most one loss event of a receiver each round trip; Max-LPRF: of all receivers' events as many pass as the worst receiver has |
//! | [`Chain`] | ATF: at most one reduction each round trip and a half, and a pause; the rate |
//!
//! Each stage can be switched off, as the paper does: [`Stages`]. Departures from the paper:
//! `docs/errata/le-sbcc.md`.
//!
//! What hostile receivers can do is bounded. The rate never falls below one packet each
//! [`Config::floor_period`]; a receiver counts at most once each round trip and once for each transmission of
//! a packet; state is at most [`Config::receivers_max`] receivers of [`RECEIVER_BYTES_MAX`] bytes. A receiver
//! that claims to lose all it is sent cannot be told from one behind a dead link: it brings the rate to the
//! floor, and no lower; an operator may set a higher one ([`Config::with_min_rate`]). Forged NAKs can make
//! the round trip look as long as [`Config::with_rtt_max`], or short: the rate then grows slower or faster
//! than a TCP's would, up to [`Config::with_max_rate`] where one is set.

mod chain;
mod config;
mod receivers;
mod round_trip;
mod start;
mod tfrc;

#[cfg(test)]
mod tests;

pub use chain::{Chain, Counters, Indication, Stage};
pub use config::{Config, Epoch, Module, Samples, Stages};
pub use receivers::{RECEIVER_BYTES_MAX, Receivers};
pub use round_trip::RoundTrip;
pub use tfrc::Intervals;
