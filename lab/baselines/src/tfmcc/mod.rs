//! TFMCC (RFC 4654): a single rate for a group, given by TCP's equation at the receiver with the worst path.
//!
//! | module | subject |
//! |---|---|
//! | [`TfmccSender`] | rate by the reports of the current limiting receiver (CLR); feedback rounds; echoes |
//! | [`TfmccReceiver`] | loss events, round-trip time by echoes, fair rate by the equation, feedback timer |
//!
//! Baseline for comparison with LE-SBCC: packets carry only zeros. Wire format: [`TfmccMessage`]. Departures
//! from the RFC: `lab/baselines/errata.md`.
//!
//! Reports are trusted within bounds. The rate never falls below one packet in [`FLOOR_PERIOD`]; a receiver
//! that claims a low rate is indistinguishable from a receiver behind a bad path. Per round trip of the CLR,
//! the rate rises by at most one packet in each maximum round-trip time; the CLR's round trip counts as at
//! least an eighth of the maximum. A false high report loses its effect once another receiver reports less
//! and becomes the CLR. Round-trip times count as at most 2 s. The sender
//! remembers [`ECHOES_MAX`] receivers and the CLR; a receiver remembers eight loss intervals and 16 holes.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use headwater_proto::rate::Rate;
use headwater_proto::time::Duration;
use headwater_wire::bytes::{Writer, be, be16, be32};
use headwater_wire::exchange;

pub use headwater_wire::exchange::{ExchangeError, VERSION};
pub use receiver::{TfmccReceiver, TfmccReceiverCounters};
pub use sender::ECHOES_MAX;
pub use sender::{Clr, TfmccSender, TfmccSenderCounters};

/// Length of a feedback round in maximum round-trip times, for receivers that do not hear each other (section
/// 4.4).
const ROUND: f64 = 6.0;

/// Interval of packets at the minimum rate (RFC 4654, section 3.3: `t_mbi`).
pub const FLOOR_PERIOD: Duration = Duration::from_secs(8);

/// Configuration of a [`TfmccSender`].
#[derive(Clone, Copy, Debug)]
pub struct TfmccSenderConfig {
    pub(super) packet_bytes: u16,
    pub(super) rtt: Duration,
    pub(super) max_rate: Option<Rate>,
}

impl TfmccSenderConfig {
    /// Creates a configuration with packets of `packet_bytes` bytes of UDP payload, clamped to 64 to 8192.
    pub fn new(packet_bytes: u16) -> Self {
        Self { packet_bytes: packet_bytes.clamp(64, 8_192), rtt: Duration::from_millis(500), max_rate: None }
    }

    /// Sets the initial `R_max`, at least 1 ms; must exceed every receiver's round-trip time. Default: 500
    /// ms, the RFC's minimum.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt.max(Duration::from_millis(1));
        self
    }

    /// Sets the maximum rate. Default: limited by the receivers' reports only.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }
}

/// Length of the header of a data packet, in bytes.
pub const DATA_BYTES: usize = 36;
/// Length of a report, in bytes.
pub const REPORT_BYTES: usize = 28;
/// Suppression rate without suppression.
pub const NO_SUPPRESSION: u64 = u64::MAX;

const MAGIC: [u8; 3] = *b"HWT";
const KIND_DATA: u8 = 0;
const KIND_REPORT: u8 = 1;

const ECHO: u8 = 0b01;
const CLR: u8 = 0b10;

const HAS_RTT: u8 = 0b001;
const HAS_LOSS: u8 = 0b010;
const LEAVES: u8 = 0b100;

/// Header of a data packet (section 2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// `i`, number of the packet.
    pub sequence: u32,
    /// `ts_i`, time of sending.
    pub timestamp_us: u32,
    /// `R_max`, the maximum round-trip time.
    pub rtt_max_us: u32,
    /// `X_supp`: only receivers with a lower rate may report. [`NO_SUPPRESSION`] for all.
    pub suppression: u64,
    /// `fb_nr`, the feedback round.
    pub round: u16,
    /// Answer to a report.
    pub echo: Option<Echo>,
}

/// Answer of the sender to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// `r`, the reporting receiver.
    pub receiver: u32,
    /// `ts_r'`: time of the report, plus the time between the report and the answer.
    pub timestamp_us: u32,
    /// `is_CLR`: the receiver is the current limiting receiver.
    pub is_clr: bool,
}

/// Report of a receiver (section 2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TfmccReport {
    /// `r`, random identifier of the reporting receiver.
    pub receiver: u32,
    /// `ts_r`, time of the report.
    pub timestamp_us: u32,
    /// `ts_i'`: time of the last data packet, plus the time between the packet and the report.
    pub echo_us: u32,
    /// `X_r`, the fair rate at the receiver.
    pub rate: u64,
    /// `fb_nr`, the answered feedback round.
    pub round: u16,
    /// `have_RTT`: the receiver has measured its round-trip time.
    pub has_rtt: bool,
    /// `have_loss`: the receiver has had a loss event.
    pub has_loss: bool,
    /// `receiver_leave`: the receiver leaves.
    pub leaves: bool,
}

/// TFMCC datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TfmccMessage {
    /// From the sender, with content behind [`DATA_BYTES`].
    Data(Data),
    /// From a receiver.
    Report(TfmccReport),
}

impl TfmccMessage {
    /// Parses a datagram. Unknown flags and reserved bits are ignored.
    ///
    /// # Errors
    /// [`ExchangeError`], if the datagram is not a TFMCC datagram of this version.
    pub fn parse(datagram: &[u8]) -> Result<TfmccMessage, ExchangeError> {
        match exchange::kind(datagram, MAGIC)? {
            KIND_DATA if datagram.len() >= DATA_BYTES => Ok(TfmccMessage::Data(Data::read(datagram))),
            KIND_REPORT if datagram.len() == REPORT_BYTES => {
                Ok(TfmccMessage::Report(TfmccReport::read(datagram)))
            }
            KIND_DATA | KIND_REPORT => Err(ExchangeError::Length(datagram.len())),
            kind => Err(ExchangeError::Kind(kind)),
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

    /// Returns the header's bytes.
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

impl TfmccReport {
    fn read(bytes: &[u8]) -> TfmccReport {
        let flags = bytes[26];
        TfmccReport {
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

    /// Returns the datagram.
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
