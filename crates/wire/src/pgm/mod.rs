//! PGM packets (RFC 3208) as UDP encapsulation carries them: the PGM packet is the UDP payload.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |         Source port           |       Destination port        |
//! |     Type      |    Options    |           Checksum            |
//! |                    Global source identifier (48 bits)         |
//! |           ... identifier      |          TSDU length          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! Bits of the options byte and lengths of options follow existing implementations where the RFC contradicts
//! itself. POLL, POLR and other types are refused: no end in Headwater acts on these. Reading and writing
//! allocate nothing.

mod body;
mod options;

use crate::bytes::{Writer, be16};

pub use body::{Body, Kind, PgmReport};
pub use options::{
    CongestionData, CongestionFeedback, Fragment, NAK_LIST_MAX, NakList, OPTIONS_MAX, Options, Parity,
    PgmWord,
};

/// Bytes of the header that all packets have.
pub const HEADER_LEN: usize = 16;

/// Flags of the options byte.
const EXTENSIONS: u8 = 0x01;
const NETWORK: u8 = 0x02;
const VARIABLE: u8 = 0x40;
const PARITY: u8 = 0x80;

/// Why a datagram holds no PGM packet, or a packet cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PgmPacketError {
    /// Fewer bytes than a field needs.
    #[error("PGM packet of {have} bytes is cut short: it needs {need}")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// A type that no end of ours takes.
    #[error("PGM packet of type {0:#04x}, which is not taken")]
    Type(u8),
    /// The checksum is wrong, or missing from data, which must have a checksum.
    #[error("PGM packet with a wrong checksum")]
    Checksum,
    /// An address family other than IPv4 (1) and IPv6 (2).
    #[error("PGM network address of unknown family {0}")]
    AddressFamily(u16),
    /// The TSDU length differs from the number of bytes behind header and options.
    #[error("PGM packet says {said} bytes of data and has {have}")]
    DataLength {
        /// In its header.
        said: usize,
        /// Behind its header and options.
        have: usize,
    },
    /// Options without OPT_LENGTH in front, or with an end other than OPT_LENGTH gives.
    #[error("PGM options of {0} bytes do not end where they say")]
    OptionsLength(usize),
    /// More than [`OPTIONS_MAX`] options.
    #[error("PGM packet with more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// An option whose length is wrong for its type.
    #[error("PGM option {kind:#04x} of {len} bytes")]
    OptionLength {
        /// The type.
        kind: u8,
        /// The length.
        len: usize,
    },
    /// An unknown option that makes the packet void if not understood (OPX, RFC 3208 section 9.1).
    #[error("PGM option {0:#04x} is unknown, and the packet void without it")]
    UnknownOption(u8),
}

/// Global source identifier: with the source's port the name of a session's sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gsi(pub [u8; 6]);

/// A PGM packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Port of the end that sends the packet: from a receiver, the data's destination port.
    pub source_port: u16,
    /// Port of the end that the packet is for: from a receiver, the data's source port.
    pub destination_port: u16,
    /// Identifier of the data's source, in both directions.
    pub gsi: Gsi,
    /// Body of the packet.
    pub body: Body<'a>,
    /// Options of the packet.
    pub options: Options,
    /// The packet concerns parity packets rather than data packets (section 11).
    pub parity: bool,
    /// Parity over packets of unequal lengths (section 11).
    pub variable_length: bool,
}

impl<'a> Packet<'a> {
    /// A packet without options.
    pub fn new(source_port: u16, destination_port: u16, gsi: Gsi, body: Body<'a>) -> Self {
        let options = Options::default();
        Packet { source_port, destination_port, gsi, body, options, parity: false, variable_length: false }
    }

    /// Reads a UDP payload. Bytes behind a packet without data are refused; unknown options are skipped if
    /// the option allows that.
    ///
    /// # Errors
    /// The first error found.
    pub fn parse(datagram: &'a [u8]) -> Result<Packet<'a>, PgmPacketError> {
        let have = datagram.len();
        if have < HEADER_LEN {
            return Err(PgmPacketError::Truncated { need: HEADER_LEN, have });
        }
        let kind = Kind::from_code(datagram[4])?;
        check(datagram, kind)?;
        let (flags, said) = (datagram[5], usize::from(be16(datagram, 14)));
        let (head, rest) = body::Head::parse(kind, &datagram[HEADER_LEN..])?;
        let (options, data) = match flags & EXTENSIONS {
            0 => (Options::default(), rest),
            _ => Options::parse(rest)?,
        };
        if data.len() != said || (!kind.is_data() && said > 0) {
            return Err(PgmPacketError::DataLength { said, have: data.len() });
        }
        let mut gsi = [0; 6];
        gsi.copy_from_slice(&datagram[8..14]);
        Ok(Packet {
            source_port: be16(datagram, 0),
            destination_port: be16(datagram, 2),
            gsi: Gsi(gsi),
            body: head.with_data(data),
            options,
            parity: flags & PARITY != 0,
            variable_length: flags & VARIABLE != 0,
        })
    }

    /// Bytes of the whole packet.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + self.body.head_len() + self.options.buffer_len() + self.body.data().len()
    }

    /// Writes the packet with its checksum at the start of `buffer` and returns the packet's length.
    ///
    /// # Errors
    /// [`PgmPacketError::Truncated`] if the buffer is too short, [`PgmPacketError::DataLength`] if the data
    /// is longer than 65535 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, PgmPacketError> {
        let (need, have) = (self.buffer_len(), buffer.len());
        let Some(packet) = buffer.get_mut(..need) else {
            return Err(PgmPacketError::Truncated { need, have });
        };
        let data = self.body.data();
        packet[need - data.len()..].copy_from_slice(data);
        self.emit_around(packet)?;
        Ok(need)
    }

    /// Writes header, options and checksum of a packet with data already written: `packet` begins with room
    /// for header and options, [`Packet::buffer_len`] of a packet without data, and the rest is data. Data of
    /// the body is ignored.
    ///
    /// # Errors
    /// As of [`Packet::emit`].
    pub fn emit_around(&self, packet: &mut [u8]) -> Result<(), PgmPacketError> {
        let (need, have) = (self.buffer_len() - self.body.data().len(), packet.len());
        let data_len = have.checked_sub(need).ok_or(PgmPacketError::Truncated { need, have })?;
        let data_len = u16::try_from(data_len)
            .map_err(|_| PgmPacketError::DataLength { said: usize::from(u16::MAX), have: data_len })?;
        let mut writer = Writer::new(packet);
        writer.put(&self.source_port.to_be_bytes());
        writer.put(&self.destination_port.to_be_bytes());
        writer.put(&[self.body.kind() as u8, self.flags(), 0, 0]);
        writer.put(&self.gsi.0);
        writer.put(&data_len.to_be_bytes());
        self.body.emit(&mut writer);
        self.options.emit(&mut writer);
        let sum = checksum(packet);
        packet[6..8].copy_from_slice(&sum.to_be_bytes());
        Ok(())
    }

    fn flags(&self) -> u8 {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        flag(!self.options.is_empty(), EXTENSIONS)
            | flag(self.options.is_network_significant(), NETWORK)
            | flag(self.variable_length, VARIABLE)
            | flag(self.parity, PARITY)
    }
}

/// Section 8: all packets may have a checksum, data must.
fn check(datagram: &[u8], kind: Kind) -> Result<(), PgmPacketError> {
    if be16(datagram, 6) == 0 {
        return if kind.is_data() { Err(PgmPacketError::Checksum) } else { Ok(()) };
    }
    match sum(datagram) {
        0xFFFF => Ok(()),
        _ => Err(PgmPacketError::Checksum),
    }
}

/// The checksum of a packet whose checksum field is 0. Never 0, which means no checksum.
fn checksum(packet: &[u8]) -> u16 {
    match !sum(packet) {
        0 => 0xFFFF,
        checksum => checksum,
    }
}

/// Ones' complement sum of big-endian words; the last word is padded with 0.
fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum += rest.first().map_or(0, |&byte| u64::from(byte) << 8);
    while sum >> 16 != 0 {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}
