//! SIM's congestion control information and feedback packets (Gorinsky, Ramakrishnan, Vin 2008, table I), and
//! the messages by which receivers report their subscribed groups to relays. The paper defines no format;
//! `docs/reference/wire/sim.md` describes ours.
//!
//! Times are tenths of a millisecond of the sender's clock, modulo 2^32. Rates are hundreds of bit/s of UDP
//! payload, summed over all groups up to a given group.

use crate::Cci;
use crate::bytes::{Writer, be16, be32};

/// The version of all three formats.
pub const VERSION: u8 = 1;
/// Length of the congestion control information in a data packet's LCT header.
pub const DATA_BYTES: usize = 12;
/// Length of a feedback packet.
pub const REPORT_BYTES: usize = 40;
/// Length of a packet that tells of the groups that are held.
pub const HOLDING_BYTES: usize = 8;

/// Flag: the writer has sent all its reports for the request.
const LAST: u8 = 0b1;
/// Bits of a group's number that are the rank.
const RANK_BITS: u32 = 8;

/// Why bytes are no congestion control information or feedback packet of SIM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SimPacketError {
    /// A version that this code does not know.
    #[error("version {0}, but only {VERSION} is known")]
    Version(u8),
    /// The length differs from the format's.
    #[error("{0} bytes are not the length of one")]
    Length(usize),
    /// More receivers are congested than reported, or more reported than exist.
    #[error("{congested} congested of {reports} reports of {population} receivers")]
    Counts {
        /// Receivers that are congested.
        congested: u32,
        /// Receivers that reported.
        reports: u32,
        /// Receivers.
        population: u32,
    },
    /// The smallest rate is above the largest.
    #[error("rates from {min} to {max}")]
    Rates {
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
}

/// SIM's fields in each data packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// Rank of the packet's group, 0 for the bottom group.
    pub rank: u8,
    /// The current request for feedback; counts modulo 2^16.
    pub request: u16,
    /// When the packet was sent.
    pub timestamp: u32,
    /// Number of the packet within its group.
    pub sequence: u32,
}

impl Data {
    /// The bytes of the congestion control information.
    pub fn to_cci(self) -> Cci {
        let mut bytes = [0; DATA_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&[VERSION, self.rank]);
        writer.put(&self.request.to_be_bytes());
        writer.put(&self.timestamp.to_be_bytes());
        writer.put(&self.sequence.to_be_bytes());
        Cci::padded(&bytes)
    }

    /// Reads the start of a packet's congestion control information.
    ///
    /// # Errors
    /// [`SimPacketError::Length`], [`SimPacketError::Version`].
    pub fn parse(bytes: &[u8]) -> Result<Self, SimPacketError> {
        if bytes.len() != DATA_BYTES {
            return Err(SimPacketError::Length(bytes.len()));
        }
        check_version(bytes[0])?;
        Ok(Self {
            rank: bytes[1],
            request: be16(bytes, 2),
            timestamp: be32(bytes, 4),
            sequence: be32(bytes, 8),
        })
    }
}

/// A session's group, as named in feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The session; only 24 bits travel.
    pub session: u32,
    /// Rank within the session.
    pub rank: u8,
}

/// Report of a receiver, or of several receivers of the same top group together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimReport {
    /// Whether the writer has sent all reports for the request; a later report may follow for another group.
    pub is_last: bool,
    /// The request that the report answers.
    pub request: u16,
    /// Identifier of the writer: drawn at random by a receiver, and replaced by each router.
    pub source: u32,
    /// The top group that the receivers hold.
    pub group: Group,
    /// Receivers that reported.
    pub reports: u32,
    /// Receivers that are congested.
    pub congested: u32,
    /// Receivers there are.
    pub population: u32,
    /// Smallest rate received.
    pub min_rate: u32,
    /// Largest rate received.
    pub max_rate: u32,
    /// Timestamp of the data packet that brought the request to the receiver of the longest round-trip time.
    pub echo: u32,
    /// Time that the answer was held on the way, in tenths of a millisecond.
    pub hold: u32,
}

impl SimReport {
    /// Reads a feedback packet. Unknown flags are ignored.
    ///
    /// # Errors
    /// See [`SimPacketError`].
    pub fn parse(datagram: &[u8]) -> Result<Self, SimPacketError> {
        if datagram.len() != REPORT_BYTES {
            return Err(SimPacketError::Length(datagram.len()));
        }
        check_version(datagram[0])?;
        let group = be32(datagram, 8);
        let report = Self {
            is_last: datagram[1] & LAST != 0,
            request: be16(datagram, 2),
            source: be32(datagram, 4),
            group: Group { session: group >> RANK_BITS, rank: group.to_be_bytes()[3] },
            reports: be32(datagram, 12),
            congested: be32(datagram, 16),
            population: be32(datagram, 20),
            min_rate: be32(datagram, 24),
            max_rate: be32(datagram, 28),
            echo: be32(datagram, 32),
            hold: be32(datagram, 36),
        };
        report.check()?;
        Ok(report)
    }

    fn check(&self) -> Result<(), SimPacketError> {
        let &Self { congested, reports, population, min_rate: min, max_rate: max, .. } = self;
        if reports == 0 || congested > reports || reports > population {
            return Err(SimPacketError::Counts { congested, reports, population });
        }
        if min > max { Err(SimPacketError::Rates { min, max }) } else { Ok(()) }
    }

    /// The datagram.
    pub fn emit(&self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&[VERSION, if self.is_last { LAST } else { 0 }]);
        writer.put(&self.request.to_be_bytes());
        let group = self.group.session << RANK_BITS | u32::from(self.group.rank);
        let counts = [self.reports, self.congested, self.population];
        for field in [self.source, group].into_iter().chain(counts) {
            writer.put(&field.to_be_bytes());
        }
        for field in [self.min_rate, self.max_rate, self.echo, self.hold] {
            writer.put(&field.to_be_bytes());
        }
        bytes
    }
}

/// Number of groups of a session that an end subscribes to. Relays use this message where routers use joins
/// and leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The session; only 24 bits travel.
    pub session: u32,
    /// The end subscribes to the groups of ranks below this number; 0 means no group.
    pub groups: u8,
}

impl Holding {
    /// Reads the packet. Bytes that mean nothing yet are ignored.
    ///
    /// # Errors
    /// [`SimPacketError::Length`], [`SimPacketError::Version`].
    pub fn parse(datagram: &[u8]) -> Result<Self, SimPacketError> {
        if datagram.len() != HOLDING_BYTES {
            return Err(SimPacketError::Length(datagram.len()));
        }
        check_version(datagram[0])?;
        Ok(Self { session: be32(datagram, 4) >> RANK_BITS, groups: datagram[1] })
    }

    /// The datagram.
    pub fn emit(&self) -> [u8; HOLDING_BYTES] {
        let mut bytes = [0; HOLDING_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&[VERSION, self.groups, 0, 0]);
        writer.put(&(self.session << RANK_BITS).to_be_bytes());
        bytes
    }
}

fn check_version(version: u8) -> Result<(), SimPacketError> {
    if version == VERSION { Ok(()) } else { Err(SimPacketError::Version(version)) }
}
