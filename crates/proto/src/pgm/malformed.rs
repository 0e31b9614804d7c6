//! Datagrams that are no packet for an end, counted by what is wrong with them.

use headwater_wire::pgm::Error;

/// How many datagrams had which fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Malformed {
    /// Cut short, or longer than their header says.
    pub length: u64,
    /// A checksum that is wrong, or missing where there must be one.
    pub checksum: u64,
    /// A type that no end of ours takes.
    pub unknown_type: u64,
    /// A network address that is neither IPv4 nor IPv6.
    pub address_family: u64,
    /// Options that do not end where they say, are too many, or are not understood but must be.
    pub options: u64,
    /// A sound packet with numbers that contradict each other, or longer than this end takes.
    pub contradictory: u64,
    /// A sound packet that is for the other end.
    pub misplaced: u64,
}

impl Malformed {
    /// Counts a datagram that could not be read.
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

    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }

    /// Each count with its name in the event log.
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
