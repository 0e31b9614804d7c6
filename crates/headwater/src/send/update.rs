//! What a sending session tells its observer, and what it sums up at the end.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::Rate;
use headwater_proto::control::{Counters, Overload};
use headwater_proto::delivery::RelativePath;

use crate::congestion_control::CongestionControl;
use crate::net::{BufferSize, LinkChange};

/// What a sending session tells its observer, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SendUpdate {
    /// Content is being read and hashed before anything is sent, for at most half a second; about ten times a
    /// second.
    Hashing {
        /// Bytes read.
        bytes_done: u64,
        /// Bytes of all files.
        bytes_total: u64,
    },
    /// The first packet is about to leave.
    Started(Box<SendStarted>),
    /// A file changed or could not be read: it is sent no more, and receivers are told so. The others are
    /// sent on.
    FileLeftOut {
        /// Its name at the receivers.
        path: RelativePath,
        /// What happened, and what to do.
        reason: String,
    },
    /// So many passes over the session are complete.
    PassCompleted(u64),
    /// The interface went down or away, or came back: what it could not send meanwhile is counted as unsent.
    LinkChanged(LinkChange),
    /// This machine cannot send what was asked for, or sends another part of it than before, or all again. At
    /// most ten times a second.
    RateLimited(RateLimit),
    /// How far it is; about ten times a second.
    Progress(Box<SendProgress>),
}

/// Rate of a session whose machine may not keep up with what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// bit/s of UDP payload that were asked for.
    pub asked: u64,
    /// bit/s of UDP payload that are sent.
    pub sent: u64,
    /// Highest level that is sent, while there are higher ones that are not.
    pub ceiling: Option<u16>,
}

/// Watches what a sender's control says of its machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateWatch {
    /// bit/s that were asked for.
    asked: u64,
    /// Overload at the last look.
    overload: Option<Overload>,
}

impl RateWatch {
    /// Watches a sender that was asked for `asked`.
    pub(crate) fn new(asked: Rate) -> Self {
        Self { asked: asked.as_bits(), overload: None }
    }

    /// Returns the rate that is sent, if that is another one than at the last look.
    pub(crate) fn on_overload(&mut self, overload: Option<Overload>) -> Option<RateLimit> {
        if core::mem::replace(&mut self.overload, overload) == overload {
            return None;
        }
        Some(self.limit())
    }

    /// Returns the rate that was sent at the last look.
    pub(crate) fn limit(&self) -> RateLimit {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let sent = self.overload.map_or(1.0, |overload| overload.share) * self.asked as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let sent = sent as u64;
        let ceiling = self.overload.and_then(|overload| overload.ceiling);
        RateLimit { asked: self.asked, sent, ceiling }
    }
}

/// A sending session as it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendStarted {
    /// Transport session identifier.
    pub tsi: u32,
    /// Group and port of the base channel; where packets are sent on request, the first of `listen`.
    pub group: SocketAddr,
    /// Addresses at which packets are asked for, where they are.
    pub listen: Vec<SocketAddr>,
    /// Channels, counting up from the group.
    pub channels: u16,
    /// How fast they are sent.
    pub congestion_control: CongestionControl,
    /// Address and port it sends from.
    pub source: SocketAddr,
    /// The interface it sends on; nothing where that is whichever leads to who asks.
    pub interface: Option<String>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Source symbols of all files: packets of one pass.
    pub symbols: u64,
    /// Bytes of a symbol.
    pub symbol_size: u16,
    /// The send buffer that the kernel granted.
    pub send_buffer: BufferSize,
    /// Whether the kernel segments runs of datagrams (GSO).
    pub segmentation: bool,
}

/// How far a sending session is.
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
    /// Passes over the session, with the part of the one under way.
    pub passes: f64,
    /// Packets that the kernel had no room for, or no interface: lost to all receivers.
    pub unsent: u64,
    /// Counters of the congestion control by their names: for LE-SBCC the reasons for the rate, for Rainbow
    /// what receivers asked for.
    pub counters: Counters,
}

/// How a sending session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The passes or the time that were asked for are over.
    Completed,
    /// It was stopped.
    Interrupted,
}

/// A sending session in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct SendSummary {
    /// How it ended.
    pub outcome: SendOutcome,
    /// The last state.
    pub progress: SendProgress,
    /// Files that changed or could not be read, and were sent no more.
    pub files_left_out: usize,
    /// Packets of the FDT.
    pub fdt_packets: u64,
    /// Calls to the kernel that sent the packets.
    pub calls: u64,
}

impl SendSummary {
    /// Stopped before the first packet.
    pub(super) fn nothing_sent() -> Self {
        let progress = SendProgress::default();
        Self { outcome: SendOutcome::Interrupted, progress, files_left_out: 0, fdt_packets: 0, calls: 0 }
    }
}
