//! Updates of a sending session to its observer, and the summary at the end.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::Rate;
use headwater_proto::control::{Counters, DemandStatus, Overload};
use headwater_proto::delivery::{Digest, RelativePath, SenderStats};
use headwater_proto::roster::RosterUpdate;

use super::roster::{ContestedName, RosterProgress, RosterSummary};
use crate::clock::elapsed;
use crate::congestion_control::CongestionControl;
use crate::net::{BufferSize, LinkChange};

/// Update of a sending session to its observer, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SendUpdate {
    /// Content is being read and hashed before the first packet, for at most half a second. Sent about ten
    /// times a second.
    Hashing {
        /// Bytes read.
        bytes_done: u64,
        /// Bytes of all files.
        bytes_total: u64,
    },
    /// The first packet is about to leave.
    Started(Box<SendStarted>),
    /// A file changed or could not be read. The sender stops sending the file, announces this to receivers,
    /// and continues with the other files.
    FileLeftOut {
        /// Name of the file at the receivers.
        path: RelativePath,
        /// Cause, and advice for the user.
        reason: String,
    },
    /// The first bytes of the input are not sent any more: receivers that begin now miss them.
    PartsReleased {
        /// Bytes from the beginning of the input.
        bytes: u64,
    },
    /// The input has ended, and its end is announced to receivers.
    InputEnded {
        /// Length of the input in bytes.
        bytes: u64,
    },
    /// Number of complete passes over the session.
    PassCompleted(u64),
    /// The interface went down, disappeared or came back. Packets that could not be sent meanwhile count as
    /// unsent.
    LinkChanged(LinkChange),
    /// The share of the requested rate that this machine can send, or the highest level sent, has changed.
    /// At most ten times a second.
    RateLimited(RateLimit),
    /// A receiver has reported.
    ReceiverReported {
        /// The report.
        update: Box<RosterUpdate>,
        /// Digest over names, lengths and digests of the files that are sent, once known.
        content: Option<Digest>,
    },
    /// A second receiver claims the name of an expected receiver. Sent once for each name.
    NameContested(Box<ContestedName>),
    /// No receiver has reported since the start, half a minute ago. Sent once.
    NobodyReports,
    /// The levels that receivers report, or the levels that are sent, have changed. At most ten times a
    /// second.
    DemandChanged(DemandStatus),
    /// No receiver has reported in the time since the start: the sender sends the idle rate. Sent once.
    Unreported {
        /// Time since the first packet.
        lasted: Duration,
    },
    /// Progress of the session, about ten times a second.
    Progress(Box<SendProgress>),
}

/// Rate of a session whose machine may not keep up with the requested rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requested rate in bit/s of UDP payload.
    pub asked: u64,
    /// Sent rate in bit/s of UDP payload.
    pub sent: u64,
    /// Highest level that is sent, while higher levels are not sent.
    pub ceiling: Option<u16>,
}

/// Detects changes of the overload that a sender's control reports for its machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateWatch {
    /// Requested rate in bit/s.
    asked: u64,
    /// Overload at the last call of [`on_overload`](Self::on_overload).
    overload: Option<Overload>,
}

impl RateWatch {
    /// Creates a watch for a sender with the requested rate `asked`.
    pub(crate) fn new(asked: Rate) -> Self {
        Self { asked: asked.as_bits(), overload: None }
    }

    /// Returns the sent rate if the overload has changed since the last call.
    pub(crate) fn on_overload(&mut self, overload: Option<Overload>) -> Option<RateLimit> {
        if core::mem::replace(&mut self.overload, overload) == overload {
            return None;
        }
        Some(self.limit())
    }

    /// Returns the sent rate as of the last overload reported.
    pub(crate) fn limit(&self) -> RateLimit {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let sent = self.overload.map_or(1.0, |overload| overload.share) * self.asked as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let sent = sent as u64;
        let ceiling = self.overload.and_then(|overload| overload.ceiling);
        RateLimit { asked: self.asked, sent, ceiling }
    }
}

/// Time without any report after which a sender that sends what receivers report says so.
const UNREPORTED: Duration = Duration::from_secs(60);

/// Detects changes of the demand, and the lack of reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DemandWatch {
    status: Option<DemandStatus>,
    has_told_unreported: bool,
}

impl DemandWatch {
    /// Returns updates about the demand of receivers at `now`.
    pub(crate) fn on_demand(&mut self, demand: Option<DemandStatus>, now: Instant) -> Vec<SendUpdate> {
        let Some(status) = demand else { return Vec::new() };
        let mut updates = Vec::new();
        if self.status.replace(status) != Some(status) {
            updates.push(SendUpdate::DemandChanged(status));
        }
        let lasted = elapsed(now);
        if !status.has_reports
            && lasted >= UNREPORTED
            && !core::mem::replace(&mut self.has_told_unreported, true)
        {
            updates.push(SendUpdate::Unreported { lasted });
        }
        updates
    }
}

/// Parameters of a sending session at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendStarted {
    /// Transport session identifier.
    pub tsi: u32,
    /// Group and port of the base channel; if packets are sent on request, the first address of `listen`.
    pub group: SocketAddr,
    /// Addresses at which the sender accepts requests; empty for a session to groups.
    pub listen: Vec<SocketAddr>,
    /// Channels, counting up from the group.
    pub channels: u16,
    /// Congestion control that sets the rate of the channels.
    pub congestion_control: CongestionControl,
    /// Address and port that packets are sent from.
    pub source: SocketAddr,
    /// Interface that packets are sent on; `None` if the route to each requesting receiver selects the
    /// interface.
    pub interface: Option<String>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Source symbols of all files: packets of one pass.
    pub symbols: u64,
    /// Bytes of a symbol.
    pub symbol_size: u16,
    /// Send buffer that the kernel granted.
    pub send_buffer: BufferSize,
    /// Whether the kernel segments runs of datagrams (GSO).
    pub segmentation: bool,
}

/// Progress of a sending session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendProgress {
    /// Time since the first packet.
    pub elapsed: Duration,
    /// Packets sent.
    pub packets: u64,
    /// Bytes of UDP payload sent.
    pub bytes: u64,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// Symbols of content sent.
    pub symbols: u64,
    /// Passes over the session, including the fraction of the current pass.
    pub passes: f64,
    /// Packets lost to all receivers because the kernel had no room or the interface was missing.
    pub unsent: u64,
    /// Counters of the congestion control by name: for LE-SBCC the reasons for the rate, for Rainbow the
    /// requests of receivers.
    pub counters: Counters,
    /// Receivers; `None` without a roster.
    pub roster: Option<RosterProgress>,
    /// Bytes of UDP payload sent by channel, up to the last channel with any.
    pub channel_bytes: Vec<u64>,
    /// Highest level that is sent, for a control with levels.
    pub ceiling: Option<SentCeiling>,
}

/// Highest level that a sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentCeiling {
    /// The level.
    pub level: u16,
    /// Rate of this level and all levels below, in bit/s of UDP payload.
    pub rate_bits: u64,
}

/// Outcome of a sending session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The requested passes or the requested time are complete.
    Completed,
    /// The session was stopped.
    Interrupted,
}

/// Summary of a sending session.
#[derive(Clone, Debug, PartialEq)]
pub struct SendSummary {
    /// Outcome of the session.
    pub outcome: SendOutcome,
    /// Progress at the end.
    pub progress: SendProgress,
    /// Files that changed or could not be read and were therefore withdrawn, and files and folders whose
    /// names receivers refuse.
    pub files_left_out: usize,
    /// Packets of the FDT.
    pub fdt_packets: u64,
    /// System calls that sent the packets.
    pub calls: u64,
    /// Receivers; `None` without a roster.
    pub roster: Option<RosterSummary>,
}

impl SendSummary {
    /// Returns the summary of a session that was stopped before the first packet.
    pub(super) fn nothing_sent() -> Self {
        let progress = SendProgress::default();
        Self {
            outcome: SendOutcome::Interrupted,
            progress,
            files_left_out: 0,
            fdt_packets: 0,
            calls: 0,
            roster: None,
        }
    }
}

/// Returns the progress by the counters of a sender, without the counters of the control and the roster.
#[expect(clippy::cast_precision_loss, reason = "passes are for people")]
pub(super) fn progress(
    stats: &SenderStats,
    pass: u64,
    rate_bits: u64,
    unsent: u64,
    now: Instant,
) -> SendProgress {
    SendProgress {
        elapsed: elapsed(now),
        packets: stats.packets,
        bytes: stats.bytes,
        rate_bits,
        symbols: stats.symbols,
        counters: Counters::default(),
        roster: None,
        channel_bytes: Vec::new(),
        ceiling: None,
        passes: if pass == 0 { 0.0 } else { stats.symbols as f64 / pass as f64 },
        unsent,
    }
}
