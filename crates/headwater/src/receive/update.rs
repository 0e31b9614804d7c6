//! What a receiving session tells its observer, and what it sums up at the end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headwater_proto::ChannelId;
use headwater_proto::control::{Reception, Status};
use headwater_proto::delivery::{Digest, ReceiverStats, RelativePath, StoreError};

use super::watch::LongPacketsMissing;
use crate::net::{BufferSize, LinkChange};

/// What a receiving session tells its observer, in order. Files are numbered from 0 as they are announced.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReceiveUpdate {
    /// It listens.
    Started(ReceiveStarted),
    /// A channel was joined.
    Joined(ChannelId),
    /// A channel was left.
    Left(ChannelId),
    /// The interface went down or away, or came back: its channels are then joined again.
    LinkChanged(LinkChange),
    /// The first packet of the session came.
    SessionFound {
        /// Transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
    /// Nothing has come for a while: of the session, or of any. Told once of each silence.
    Silent {
        /// Time without a packet so far.
        lasted: Duration,
        /// Whether a packet of the session had come before.
        is_found: bool,
    },
    /// A session that was silent is heard again.
    HeardAgain {
        /// Time without a packet.
        lasted: Duration,
    },
    /// Packets that are too long for the way do not arrive. Told once.
    LongPacketsMissing(LongPacketsMissing),
    /// Somebody else sends on the group; it is not received. Told once of each of the first few.
    OtherSession {
        /// Its transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
    /// The session has been silent for [`SILENCE`](headwater_proto::delivery::SILENCE) while another one that
    /// would have been taken is being sent, mostly by the same sender, started again: it is received from
    /// here on. Files are numbered, and everything is counted, from 0 again; what has come of files that both
    /// carry is kept.
    SessionReplaced {
        /// Transport session identifier of the one that replaces it.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
    /// The session's congestion control cannot be followed, so the session is not received.
    ControlRefused {
        /// Why.
        reason: String,
    },
    /// A file will be received.
    FileAnnounced {
        /// Its number.
        file: usize,
        /// Its name below the folder.
        path: RelativePath,
        /// Its length in bytes.
        bytes: u64,
    },
    /// Something announced will not be received.
    FileRefused {
        /// Its name as the sender gave it: not to be trusted.
        location: String,
        /// Why.
        reason: String,
    },
    /// A file is whole, verified, and carries its final name.
    FileCompleted {
        /// Its number.
        file: usize,
        /// Its name below the folder.
        path: RelativePath,
        /// Its length in bytes.
        bytes: u64,
        /// What it was verified against, if the sender told: BLAKE3 over the digests of its blocks.
        digest: Option<Digest>,
        /// Whether it was there already, and nothing of it had to be received.
        is_present: bool,
    },
    /// A file came whole but is not what the sender promised: it was discarded.
    FileMismatch {
        /// Its number.
        file: usize,
        /// Its name below the folder.
        path: RelativePath,
    },
    /// Every file of the session has met its fate.
    SessionCompleted {
        /// Files refused.
        refused: usize,
    },
    /// The sender closed the session before every file was whole.
    SessionClosed,
    /// The folder cannot take any more.
    StoreFailed(StoreError),
    /// How far it is; about ten times a second.
    Progress(Box<ReceiveProgress>),
}

/// A receiving session as it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveStarted {
    /// Group and port of the base channel; where packets are asked for, the source.
    pub group: SocketAddr,
    /// Whom requests go to, where packets are asked for.
    pub via: Option<SocketAddr>,
    /// The only source, if one was named.
    pub source: Option<IpAddr>,
    /// The interface it receives on; nothing where that is whichever leads to whom it asks.
    pub interface: Option<String>,
    /// The receive buffer that the kernel granted.
    pub receive_buffer: BufferSize,
}

/// How far a receiving session is.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiveProgress {
    /// Time since it began to listen.
    pub elapsed: Duration,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// Time without a packet of the session (of any, as long as none is found), once that is
    /// [`SILENCE_SHOWN`].
    pub silent: Option<Duration>,
    /// What was received, and what was dropped and why.
    pub stats: ReceiverStats,
    /// Packets of the session received, and those missing in its sequence numbers.
    pub reception: Reception,
    /// The congestion control: what it holds to be fair, channels, join latency.
    pub control: Status,
    /// Datagrams that the kernel dropped, mostly because the receive buffer was full.
    pub kernel_drops: u64,
    /// Datagrams of other groups or sources.
    pub foreign: u64,
    /// Symbols held of all files announced.
    pub symbols_held: u64,
    /// Symbols that all files announced need.
    pub symbols: u64,
    /// Every file announced, by its number.
    pub files: Vec<FileStatus>,
}

/// Time without a packet from which on a session's progress tells of it.
pub const SILENCE_SHOWN: Duration = Duration::from_secs(2);
/// Time without a packet that is told of by itself ([`ReceiveUpdate::Silent`]).
pub const SILENCE_TOLD: Duration = Duration::from_secs(10);

/// A session that is sent on the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardSession {
    /// Transport session identifier.
    pub tsi: u64,
    /// Who sends it.
    pub source: SocketAddr,
}

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Its length in bytes.
    pub bytes: u64,
    /// Symbols that it needs, as far as it is announced.
    pub symbols: u64,
    /// Symbols held; a few more than needed are possible.
    pub symbols_held: u64,
    /// Whether it is whole, verified and in place.
    pub is_done: bool,
    /// Whether the folder refused it.
    pub is_refused: bool,
}

/// Why files are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteReason {
    /// Nothing needed came for as long as the timeout.
    TimedOut,
    /// The sender closed the session too early.
    SessionClosed,
    /// Files were refused: their names or codings are not accepted, or the folder cannot take them.
    Refused,
}

/// How a receiving session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// Every file is whole, verified and in place.
    Completed,
    /// No packet of a session came within the timeout.
    NothingReceived,
    /// Some files are missing.
    Incomplete(IncompleteReason),
    /// A file was not what the sender promised, and was discarded.
    VerificationFailed,
    /// The session's congestion control cannot be followed; why.
    ControlRefused(String),
    /// The folder could not take the files.
    StoreFailed(StoreError),
    /// It was stopped.
    Interrupted,
}

/// A receiving session in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiveSummary {
    /// How it ended.
    pub outcome: ReceiveOutcome,
    /// The last state.
    pub progress: ReceiveProgress,
    /// Files announced that are whole, verified and in place.
    pub files_completed: usize,
    /// Bytes of those.
    pub bytes_completed: u64,
    /// Files that were refused.
    pub files_refused: usize,
    /// Other sessions that were heard on the group, the first few.
    pub others: Vec<HeardSession>,
    /// Datagrams to the group, whatever was in them.
    pub datagrams: u64,
    /// The working folder with what came of the files that are missing, if there is one: a session that
    /// receives them into the same folder goes on from there.
    pub kept: Option<PathBuf>,
}
