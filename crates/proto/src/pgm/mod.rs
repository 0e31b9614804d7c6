//! PGM (RFC 3208) without network elements: a source that repairs the packets that receivers NAK, and the
//! receiver. Packets are encapsulated in UDP.
//!
//! Two modes. [`Mode::Lean`] is the profile of LE-SBCC's paper: ODATA, RDATA, NAK and NCF alone.
//! [`Mode::Pgm`] adds SPMs, which receivers of other makes need.
//!
//! | module | purpose |
//! |---|---|
//! | [`PgmSource`] | transmit window, NCFs, repairs at the same rate, SPMs; at a fixed rate or LE-SBCC's |
//! | [`PgmReceiverMachine`] | NAK states, receive window, messages in order |
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
mod receive_window;
mod receiver;
mod roll_call;
mod source;
#[cfg(test)]
mod tests;
mod transmit_window;
mod words;
pub mod zmq;

use headwater_wire::pgm::PgmPacketError;

pub use bytes::{ByteStream, Filler};
pub use config::{Answers, Mode, PgmReceiverConfig, PgmSession, SourceConfig};
pub use receiver::{Deliver, PgmReceiverCounters, PgmReceiverEvent, PgmReceiverMachine};
pub use source::{PgmSource, Refused, SourceControl, SourceCounters, SourceEvent};

/// Distance of sequence number `a` ahead of `b`: negative if `a` is behind. Numbers wrap.
const fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// Number of datagrams by fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Malformed {
    /// Truncated, or longer than the header says.
    pub length: u64,
    /// Checksum wrong, or missing where required.
    pub checksum: u64,
    /// Packet type unknown to both ends.
    pub unknown_type: u64,
    /// Network address that is neither IPv4 nor IPv6.
    pub address_family: u64,
    /// Options with a wrong length, too many options, or unknown options that must be understood.
    pub options: u64,
    /// Valid packet with contradictory sequence numbers, or longer than this end takes.
    pub contradictory: u64,
    /// Valid packet for the other end.
    pub misplaced: u64,
}

impl Malformed {
    /// Counts a datagram that could not be parsed.
    pub(super) fn count(&mut self, error: &PgmPacketError) {
        let counter = match error {
            PgmPacketError::Truncated { .. } | PgmPacketError::DataLength { .. } => &mut self.length,
            PgmPacketError::Checksum => &mut self.checksum,
            PgmPacketError::Type(_) => &mut self.unknown_type,
            PgmPacketError::AddressFamily(_) => &mut self.address_family,
            PgmPacketError::OptionsLength(_)
            | PgmPacketError::TooManyOptions
            | PgmPacketError::OptionLength { .. }
            | PgmPacketError::UnknownOption(_) => &mut self.options,
        };
        *counter += 1;
    }

    /// Total number of datagrams.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }

    /// Returns each count with the name in the event log.
    pub const fn by_reason(&self) -> [(&'static str, u64); 7] {
        [
            ("length", self.length),
            ("checksum", self.checksum),
            ("unknown_type", self.unknown_type),
            ("address_family", self.address_family),
            ("options", self.options),
            ("contradictory", self.contradictory),
            ("misplaced", self.misplaced),
        ]
    }
}
