//! LE-SBCC: a fair single rate, computed by the sender alone (Thapliyal, Sidhartha, Li, Kalyanaraman, about
//! 2001).
//!
//! Receivers report only missing packets ("loss indications": NAKs, which any PGM receiver sends). From loss
//! indications the sender computes the rate of a TCP connection to the worst receiver:
//!
//! ```text
//! loss indication -> round-trip time -> LI2LE -> Max-LPRF -> ATF -> AIMD or TFRC -> rate
//! ```
//!
//! | module | stage |
//! |---|---|
//! | [`RoundTrip`] | mean and deviation of the time from a packet to the NAK for the packet |
//! | [`Receivers`] | LI2LE: at most one loss event per receiver and round trip |
//! | | Max-LPRF: of all receivers' loss events, passes as many as the worst receiver has |
//! | [`Chain`] | ATF: at most one reduction every 1.5 round trips, and a pause; the rate |
//!
//! Each stage can be switched off, as in the paper: [`Stages`]. Departures from the paper:
//! `docs/errata/le-sbcc.md`.
//!
//! The effect of hostile receivers is bounded. The rate never falls below one packet per
//! [`Config::floor_period`]. A receiver counts at most once per round trip, and once per transmission of a
//! packet. State is at most [`Config::receivers_max`] receivers of [`RECEIVER_BYTES_MAX`] bytes.
//!
//! A receiver that claims to lose every packet looks like a receiver behind a dead link. Either receiver
//! brings the rate down to the floor, and no lower. An operator may set a higher floor
//! ([`Config::with_min_rate`]).
//!
//! Forged NAKs can make the round trip look as long as [`Config::with_rtt_max`], or short. The rate then
//! grows slower or faster than a TCP connection's rate, up to [`Config::with_max_rate`] if configured.

mod chain;
mod config;
mod receivers;

#[cfg(test)]
mod tests;

pub use chain::Intervals;
pub use chain::{Chain, Counters, Indication, Stage};
pub use config::{Config, Epoch, Module, Samples, Stages};
pub use receivers::RoundTrip;
pub use receivers::{RECEIVER_BYTES_MAX, Receivers};
