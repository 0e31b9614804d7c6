//! PGMCC (Rizzo, *pgmcc: a TCP-friendly single-rate multicast congestion control scheme*, 2000;
//! Internet-Draft 03, 2004): a window like TCP's, clocked by the acknowledgements of one receiver, the acker.
//!
//! | module | what |
//! |---|---|
//! | [`Sender`] | elects the acker by what NAKs and acknowledgements report; sends when the window lets it |
//! | [`Window`] | window W and tokens T: what acknowledgements, holes and timeouts make of them |
//! | [`Receiver`] | loss rate; acknowledges when it is the acker, else reports its losses in NAKs |
//!
//! A baseline that LE-SBCC is compared with. Packets are PGM's (ODATA, NAK, ACK, with PGMCC's options:
//! [`headwater_wire::pgm`]); they carry zeros, and nothing is repaired. Departures from the draft:
//! `docs/errata/baselines.md`.
//!
//! What receivers say is believed within bounds. Acknowledgements count once for each packet that was sent,
//! from the acker alone. An acker that claims a bad path, or keeps silent, brings the rate to one packet in
//! [`SenderConfig::TIMEOUT_MAX`], and no lower; one that acknowledges what it did not get raises it until
//! another receiver's NAKs show the worse path. A report speaks for the address it comes from. The sender
//! remembers 64 packets and the acker; a receiver 32 packets.

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
