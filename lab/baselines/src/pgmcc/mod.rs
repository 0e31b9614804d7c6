//! PGMCC (Rizzo, *pgmcc: a TCP-friendly single-rate multicast congestion control scheme*, 2000;
//! Internet-Draft 03, 2004): a TCP-like window, clocked by the acknowledgements of a single receiver, the
//! acker.
//!
//! | module | subject |
//! |---|---|
//! | [`Sender`] | elects the acker by reports in NAKs and acknowledgements; sends as the window permits |
//! | [`Window`] | window W and tokens T, updated by acknowledgements, holes and timeouts |
//! | [`Receiver`] | loss rate; sends acknowledgements while the acker, otherwise NAKs for losses |
//!
//! Baseline for comparison with LE-SBCC. Packets are PGM's (ODATA, NAK, ACK, with PGMCC's options:
//! [`headwater_wire::pgm`]) and carry zeros; there are no repairs. Departures from the draft:
//! `docs/errata/baselines.md`.
//!
//! Reports are trusted within bounds. Acknowledgements count once for each sent packet, from the acker alone.
//! An acker that claims a bad path, or keeps silent, lowers the rate to one packet in
//! [`SenderConfig::TIMEOUT_MAX`], and no further. An acker that acknowledges packets it did not receive
//! raises the rate until the NAKs of another receiver show a worse path. A report counts for its source
//! address. The sender remembers 64 packets and the acker; a receiver remembers 32 packets.

mod acker;
mod config;
mod receiver;
mod sender;
mod window;

#[cfg(test)]
mod tests;

pub use acker::{Acker, throughput};
pub use config::{ReceiverConfig, SenderConfig};
pub use receiver::{Receiver, ReceiverCounters};
pub use sender::{Sender, SenderCounters};
pub use window::Window;
