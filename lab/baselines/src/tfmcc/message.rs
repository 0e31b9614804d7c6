//! TFMCC's datagrams: the fields of RFC 4654, section 2.2. The RFC gives them no form; `docs/wire/tfmcc.md`
//! describes ours.
//!
//! Times are microseconds of the clock of whoever wrote them first, modulo 2^32. Rates are bit/s of UDP
//! payload.

use headwater_wire::bytes::{Writer, be, be16, be32};
use headwater_wire::exchange;
pub use headwater_wire::exchange::{Error, VERSION};

/// Bytes in front of a data packet's content.
pub const DATA_BYTES: usize = 36;
/// Length of a report in bytes.
pub const REPORT_BYTES: usize = 28;
/// A suppression rate that suppresses nobody.
pub const NO_SUPPRESSION: u64 = u64::MAX;

const MAGIC: [u8; 3] = *b"HWT";
const KIND_DATA: u8 = 0;
const KIND_REPORT: u8 = 1;

const ECHO: u8 = 0b01;
const CLR: u8 = 0b10;

const HAS_RTT: u8 = 0b001;
const HAS_LOSS: u8 = 0b010;
const LEAVES: u8 = 0b100;

/// What a sender says in each data packet (section 2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// `i`, the packet's number.
    pub sequence: u32,
    /// `ts_i`, when it was sent.
    pub timestamp_us: u32,
    /// `R_max`, the maximum round-trip time.
    pub rtt_max_us: u32,
    /// `X_supp`: only receivers of a lower rate may report. [`NO_SUPPRESSION`] for all.
    pub suppression: u64,
    /// `fb_nr`, the feedback round.
    pub round: u16,
    /// A report that is answered.
    pub echo: Option<Echo>,
}

/// The sender's answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// `r`, who reported.
    pub receiver: u32,
    /// `ts_r'`: the report's time, and what the sender held it.
    pub timestamp_us: u32,
    /// `is_CLR`: it is the current limiting receiver.
    pub is_clr: bool,
}

/// What a receiver reports (section 2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// `r`, who reports: drawn at random.
    pub receiver: u32,
    /// `ts_r`, when.
    pub timestamp_us: u32,
    /// `ts_i'`: the last data packet's time, and what the receiver held it.
    pub echo_us: u32,
    /// `X_r`, the rate that the receiver finds fair.
    pub rate: u64,
    /// `fb_nr`, the round that it answers.
    pub round: u16,
    /// `have_RTT`: it measured its round-trip time.
    pub has_rtt: bool,
    /// `have_loss`: it had a loss event.
    pub has_loss: bool,
    /// `receiver_leave`: it goes.
    pub leaves: bool,
}

/// A datagram of TFMCC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// From the sender, with content behind [`DATA_BYTES`].
    Data(Data),
    /// From a receiver.
    Report(Report),
}

impl Message {
    /// Reads a datagram. Unknown flags and reserved bits are ignored.
    ///
    /// # Errors
    /// [`Error`], for whatever is no datagram of this version.
    pub fn parse(datagram: &[u8]) -> Result<Message, Error> {
        match exchange::kind(datagram, MAGIC)? {
            KIND_DATA if datagram.len() >= DATA_BYTES => Ok(Message::Data(Data::read(datagram))),
            KIND_REPORT if datagram.len() == REPORT_BYTES => Ok(Message::Report(Report::read(datagram))),
            KIND_DATA | KIND_REPORT => Err(Error::Length(datagram.len())),
            kind => Err(Error::Kind(kind)),
        }
    }
}

impl Data {
    fn read(bytes: &[u8]) -> Data {
        let flags = bytes[34];
        let echo =
            Echo { receiver: be32(bytes, 24), timestamp_us: be32(bytes, 28), is_clr: flags & CLR != 0 };
        Data {
            sequence: be32(bytes, 4),
            timestamp_us: be32(bytes, 8),
            rtt_max_us: be32(bytes, 12),
            suppression: be(&bytes[16..24]),
            round: be16(bytes, 32),
            echo: (flags & ECHO != 0).then_some(echo),
        }
    }

    /// The bytes in front of the content.
    pub fn emit(&self) -> [u8; DATA_BYTES] {
        let mut bytes = [0; DATA_BYTES];
        let mut writer = Writer::new(&mut bytes);
        exchange::emit_kind(&mut writer, MAGIC, KIND_DATA);
        for field in [self.sequence, self.timestamp_us, self.rtt_max_us] {
            writer.put(&field.to_be_bytes());
        }
        writer.put(&self.suppression.to_be_bytes());
        let (receiver, timestamp_us, flags) = match self.echo {
            None => (0, 0, 0),
            Some(echo) => (echo.receiver, echo.timestamp_us, if echo.is_clr { ECHO | CLR } else { ECHO }),
        };
        writer.put(&receiver.to_be_bytes());
        writer.put(&timestamp_us.to_be_bytes());
        writer.put(&self.round.to_be_bytes());
        writer.put(&[flags]);
        bytes
    }
}

impl Report {
    fn read(bytes: &[u8]) -> Report {
        let flags = bytes[26];
        Report {
            receiver: be32(bytes, 4),
            timestamp_us: be32(bytes, 8),
            echo_us: be32(bytes, 12),
            rate: be(&bytes[16..24]),
            round: be16(bytes, 24),
            has_rtt: flags & HAS_RTT != 0,
            has_loss: flags & HAS_LOSS != 0,
            leaves: flags & LEAVES != 0,
        }
    }

    /// The datagram.
    pub fn emit(&self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        let mut writer = Writer::new(&mut bytes);
        exchange::emit_kind(&mut writer, MAGIC, KIND_REPORT);
        for field in [self.receiver, self.timestamp_us, self.echo_us] {
            writer.put(&field.to_be_bytes());
        }
        writer.put(&self.rate.to_be_bytes());
        writer.put(&self.round.to_be_bytes());
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        writer
            .put(&[flag(self.has_rtt, HAS_RTT) | flag(self.has_loss, HAS_LOSS) | flag(self.leaves, LEAVES)]);
        bytes
    }
}
