//! Datagrams that are not valid packets for an end, counted by fault.

use headwater_wire::pgm::Error;

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
    pub(super) fn count(&mut self, error: &Error) {
        let counter = match error {
            Error::Truncated { .. } | Error::DataLength { .. } => &mut self.length,
            Error::Checksum => &mut self.checksum,
            Error::Type(_) => &mut self.unknown_type,
            Error::AddressFamily(_) => &mut self.address_family,
            Error::OptionsLength(_)
            | Error::TooManyOptions
            | Error::OptionLength { .. }
            | Error::UnknownOption(_) => &mut self.options,
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
