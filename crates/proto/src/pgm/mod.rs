//! PGM (RFC 3208) without network elements: a source that repairs the packets that receivers NAK, and the
//! receiver. Packets are encapsulated in UDP.
//!
//! Two modes. [`Mode::Lean`] is the profile of LE-SBCC's paper: ODATA, RDATA, NAK and NCF alone.
//! [`Mode::Pgm`] adds SPMs, which receivers of other makes need.
//!
//! | module | purpose |
//! |---|---|
//! | [`Source`] | transmit window, NCFs, repairs out of the same rate, SPMs; at a fixed rate or LE-SBCC's |
//! | [`Receiver`] | NAK states, receive window, messages in order |
//! | [`zmq`] | messages in ZeroMQ's packing |
//! | [`Filler`], [`ByteStream`] | bytes in order, without messages |
//! | [`carrier`] | sessions of files in PGM's packets |
//!
//! Repairs do not amplify traffic. A packet is repaired and confirmed at most once each half round trip,
//! regardless of the number of NAKs. Repairs and confirmations are paid out of the rate of the session.
//! Between repairs new data gets every fourth departure. Departures from the RFC: `docs/errata/pgm.md`.

mod bytes;
pub mod carrier;
mod config;
mod malformed;
mod receive_window;
mod receiver;
mod roll_call;
mod source;
mod transmit_window;
pub mod zmq;

#[cfg(test)]
mod tests;

pub use bytes::{ByteStream, Filler};
pub use config::{Answers, Mode, ReceiverConfig, Session, SourceConfig};
pub use malformed::Malformed;
pub use receiver::{Deliver, Receiver, ReceiverCounters, ReceiverEvent};
pub use source::{Control, Refused, Source, SourceCounters, SourceEvent};

/// Distance of sequence number `a` ahead of `b`: negative if `a` is behind. Numbers wrap.
const fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}
