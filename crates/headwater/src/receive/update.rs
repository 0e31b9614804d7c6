//! Updates of a receiving session to its observer, and the summary at the end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_proto::ChannelId;
use headwater_proto::auth::PublicKey;
use headwater_proto::control::{Reception, Status};
use headwater_proto::crypt::Unopened;
use headwater_proto::delivery::{
    BlockMap, ContentCoding, Digest, ReceiverStats, RelativePath, RepairStats, StoreError,
};

use super::long_packets::LongPacketsMissing;
use super::paths::{BytesByPath, ContentPath};
use super::repair::RepairUpdate;
use crate::net::{BufferSize, LinkChange};

/// Update of a receiving session to its observer, in order. Files are numbered from 0 in the order of
/// announcement.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReceiveUpdate {
    /// The session listens.
    Started(ReceiveStarted),
    /// A channel was joined.
    Joined(ChannelId),
    /// A channel was left.
    Left(ChannelId),
    /// The interface went down, disappeared or came back. After the return its channels are joined again.
    LinkChanged(LinkChange),
    /// The sender sends other levels than before. At most ten times a second.
    CeilingChanged {
        /// Highest level that the sender sends.
        ceiling: u8,
        /// Highest level that receivers have reported in this round; 0 for none.
        level: u8,
    },
    /// The sender does not react to the reports of this receiver, and sends little until then. Sent once.
    Unheard {
        /// Address and port of the sender.
        sender: SocketAddr,
    },
    /// The sender has dismissed this receiver, whose path holds the rate of all receivers at its least
    /// (`le-sbcc`): the receiver has left the group. Sent once per dismissal.
    Dismissed {
        /// Time until the receiver joins again.
        returns: Duration,
    },
    /// The first packet of the session arrived.
    SessionFound {
        /// Transport session identifier.
        tsi: u64,
        /// Address and port of the sender.
        source: SocketAddr,
    },
    /// The session is signed, and its first packet was verified. No other packet counts from now on.
    SessionVerified {
        /// Transport session identifier.
        tsi: u64,
        /// Public key of the sender.
        key: PublicKey,
        /// Whether the key is made for this session alone.
        is_ephemeral: bool,
        /// Start of the session, in seconds of the NTP era.
        started: u32,
    },
    /// The verified sender announces the key that will sign its later sessions.
    NextKeyAnnounced {
        /// Public key.
        key: PublicKey,
    },
    /// The session is unsigned: anybody on the network can forge its packets.
    SessionUnsigned {
        /// Transport session identifier.
        tsi: u64,
    },
    /// A session is signed with a key that is not trusted, and is not received. Reported once.
    SessionUntrusted {
        /// Transport session identifier.
        tsi: u64,
        /// Address and port of the sender.
        source: SocketAddr,
    },
    /// The content of the session is not taken: encrypted without a key that decrypts, or in the clear at a
    /// receiver with a group key. Reported once.
    SessionUnopened {
        /// Transport session identifier.
        tsi: u64,
        /// Reason.
        reason: Unopened,
    },
    /// The FDT of an unsigned session contradicts an earlier one. Reported once.
    SessionContradicted {
        /// Entries that contradict earlier ones so far.
        contradictions: u64,
    },
    /// No packet has arrived for a while: of the session or, before a session is found, of any session.
    /// Reported once per silence.
    Silent {
        /// Time without a packet so far.
        lasted: Duration,
        /// Whether a packet of the session had come before.
        is_found: bool,
    },
    /// A packet arrived after a reported silence.
    HeardAgain {
        /// Time without a packet.
        lasted: Duration,
    },
    /// Packets that are too long for the path do not arrive. Reported once.
    LongPacketsMissing(LongPacketsMissing),
    /// Another session on the group, which is not received. Reported once for each of the first few
    /// sessions.
    OtherSession {
        /// Transport session identifier of the other session.
        tsi: u64,
        /// Address and port of the other session's sender.
        source: SocketAddr,
    },
    /// The session was silent for [`SILENCE`](headwater_proto::delivery::SILENCE) while another acceptable
    /// session is being sent, usually by a restarted sender. From now on the receiver takes the new session.
    /// File numbers and all counters start from 0 again. Data of files that both sessions carry is kept.
    SessionReplaced {
        /// Transport session identifier of the new session.
        tsi: u64,
        /// Address and port of the new session's sender.
        source: SocketAddr,
    },
    /// The receiver cannot follow the session's congestion control, so the session is not received.
    ControlRefused {
        /// Reason of the refusal.
        reason: String,
    },
    /// A file was announced and will be received.
    FileAnnounced {
        /// Number of the file.
        file: usize,
        /// Name below the folder.
        path: RelativePath,
        /// Length in bytes.
        bytes: u64,
        /// If the content travels encoded: the coding, and the length of the encoded content in bytes.
        encoding: Option<(ContentCoding, u64)>,
    },
    /// An announced file was refused.
    FileRefused {
        /// Name as the sender gave it: not to be trusted.
        location: String,
        /// Reason of the refusal.
        reason: String,
    },
    /// A file is complete, verified, and carries its final name. Members of a bundle come with the number of
    /// the bundle; the bundle is not reported.
    FileCompleted {
        /// Number of the file.
        file: usize,
        /// Name below the folder.
        path: RelativePath,
        /// Length in bytes.
        bytes: u64,
        /// Digest that the file was verified against, if the sender announced a digest: BLAKE3 over the
        /// digests of the blocks.
        digest: Option<Digest>,
        /// Whether the content was verified: against a digest of the file, or of the member of a bundle.
        is_verified: bool,
        /// Whether the file was already present and nothing had to be received.
        is_present: bool,
    },
    /// A symbolic link of the sender was made.
    LinkMade {
        /// Name below the folder.
        path: RelativePath,
        /// Whether the link was there before.
        is_present: bool,
    },
    /// An announced file is not selected, and is not received.
    FileUnwanted {
        /// Number of the file.
        file: usize,
        /// Name below the folder.
        path: RelativePath,
    },
    /// The file announced next is a part of a stream.
    PartAnnounced {
        /// Number of the file.
        file: usize,
        /// Name of the stream.
        stream: RelativePath,
    },
    /// Packets of another path have symbols of another size: symbols that are held are of no use there.
    SymbolSizeDiffers {
        /// Size on the path before, in bytes.
        before: u16,
        /// Size on this path, in bytes.
        now: u16,
    },
    /// Every file is whole, and is served to other receivers for some time.
    Serving {
        /// Port of the server.
        port: u16,
        /// Time for which the files are served.
        time: Duration,
    },
    /// A part of a stream was never received and is not sent any more: the stream stays incomplete.
    PartMissed {
        /// Name of the stream.
        stream: RelativePath,
        /// Start of the missing part, in bytes.
        offset: u64,
        /// Length of the missing part in bytes.
        bytes: u64,
    },
    /// A stream has its name: its own if nothing is missing, else its own with `.incomplete`.
    StreamCompleted {
        /// Name of the stream.
        stream: RelativePath,
        /// Length of the stream in bytes.
        bytes: u64,
        /// Bytes that are missing.
        missed: u64,
    },
    /// A file is complete but differs from the sender's digest and was discarded.
    FileMismatch {
        /// Number of the file.
        file: usize,
        /// Name below the folder.
        path: RelativePath,
    },
    /// Every file of the session is completed, mismatched or refused.
    SessionCompleted {
        /// Files refused.
        refused: usize,
    },
    /// The sender closed the session before every file was complete.
    SessionClosed,
    /// Missing symbols are fetched from a server, or cannot be.
    Repair(RepairUpdate),
    /// Most of the needed content of the last second came by another path than before. Sent for a session
    /// with several paths.
    PathChanged(ContentPath),
    /// The FDT came by HTTP, and is used until the FDT of the session's packets arrives.
    DescribedByHttp {
        /// Key that signed the FDT; `None` for an unsigned FDT.
        key: Option<PublicKey>,
    },
    /// The folder cannot store any more data.
    StoreFailed(StoreError),
    /// Progress of the session, about ten times a second.
    Progress(Box<ReceiveProgress>),
}

/// Parameters of a receiving session at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveStarted {
    /// Group and port of the base channel; for a session on request, the source.
    pub group: SocketAddr,
    /// Address that requests are sent to, for a session on request.
    pub via: Option<SocketAddr>,
    /// AMT relay that groups are received through.
    pub amt: Option<SocketAddr>,
    /// Accepted source, if the options name a source.
    pub source: Option<IpAddr>,
    /// Interface that packets are received on; `None` if the route to the upstream address selects the
    /// interface.
    pub interface: Option<String>,
    /// Receive buffer that the kernel granted.
    pub receive_buffer: BufferSize,
}

/// Progress of a receiving session.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiveProgress {
    /// Time since the session began to listen.
    pub elapsed: Duration,
    /// bit/s of UDP payload and of content from servers over the last second.
    pub rate_bits: u64,
    /// Time without a packet of the session (of any session until a session is found), from
    /// [`SILENCE_SHOWN`] on.
    pub silent: Option<Duration>,
    /// Counters of received packets and, by reason, of dropped packets.
    pub stats: ReceiverStats,
    /// Counters of symbols from repair servers.
    pub repair: RepairStats,
    /// Bytes by path, also of earlier paths: [`ReceiveProgress::stats`] begins anew with each change of the
    /// path of packets.
    pub bytes_by_path: BytesByPath,
    /// Packets of the session received, and packets missing in the sequence numbers.
    pub reception: Reception,
    /// State of the congestion control: fair rate, channels, join latency.
    pub control: Status,
    /// Datagrams that the kernel dropped, mostly because the receive buffer was full.
    pub kernel_drops: u64,
    /// Datagrams of other groups or sources.
    pub foreign: u64,
    /// Datagrams of the groups that a router marked with congestion experienced.
    pub marked: u64,
    /// Bytes of UDP payload by channel, up to the last channel with any.
    pub channel_bytes: Vec<u64>,
    /// Blocks of all files, if the options want a map.
    pub blocks: Option<Arc<BlockMap>>,
    /// Symbols held of all announced files.
    pub symbols_held: u64,
    /// Symbols needed by all announced files.
    pub symbols: u64,
    /// All announced files, by number.
    pub files: Vec<FileStatus>,
}

/// Time without a packet from which [`ReceiveProgress::silent`] shows a silence.
pub const SILENCE_SHOWN: Duration = Duration::from_secs(2);
/// Time without a packet from which [`ReceiveUpdate::Silent`] reports a silence.
pub const SILENCE_TOLD: Duration = Duration::from_secs(10);

/// Session that is sent on the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardSession {
    /// Transport session identifier.
    pub tsi: u64,
    /// Address and port of the sender.
    pub source: SocketAddr,
}

/// Progress of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Length in bytes.
    pub bytes: u64,
    /// Symbols that the announced part of the file needs.
    pub symbols: u64,
    /// Symbols held; may exceed the need by a few.
    pub symbols_held: u64,
    /// Whether the file is complete, verified and in place.
    pub is_done: bool,
    /// Whether the folder refused the file.
    pub is_refused: bool,
}

/// Reason for missing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteReason {
    /// No packet of the session arrived any more, and no needed symbol within the timeout.
    TimedOut,
    /// Packets of the session still arrive, but no needed symbol arrived within the timeout: the cycle of a
    /// code without repair symbols may be longer.
    NothingNeeded,
    /// The sender closed the session too early.
    SessionClosed,
    /// Files were refused: the receiver does not accept the names or codings, or the folder cannot store the
    /// files.
    Refused,
    /// Parts of a stream were not sent any more when the receiver began, or before the receiver had them.
    PartsMissed {
        /// Bytes that are missing.
        bytes: u64,
        /// Whether the receiver began too late for the beginning of the stream.
        is_beginning: bool,
    },
}

/// Outcome of a receiving session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// Every file that the receiver wants is complete, verified and in place.
    Completed,
    /// No packet of a session came within the timeout.
    NothingReceived,
    /// The session has files, and the receiver's selection leaves all of them out.
    NothingWanted,
    /// Packets of sessions came within the timeout, but no packet of a trusted sender.
    NothingTrusted,
    /// Packets of a session came, but no content that the receiver's group keys open.
    NothingOpened(Unopened),
    /// Some files are missing.
    Incomplete(IncompleteReason),
    /// A file differs from the sender's digest and was discarded.
    VerificationFailed,
    /// The receiver cannot follow the session's congestion control, for this reason.
    ControlRefused(String),
    /// The folder could not store the files.
    StoreFailed(StoreError),
    /// The session was stopped.
    Interrupted,
}

impl ReceiveOutcome {
    /// Returns the exit code of `headwater receive` for this outcome, which the receiver reports to a sender
    /// that keeps a roster.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::ControlRefused(_) => 1,
            Self::NothingReceived | Self::NothingWanted => 4,
            Self::Incomplete(_) => 5,
            Self::VerificationFailed => 6,
            Self::StoreFailed(_) => 7,
            Self::NothingTrusted => 8,
            Self::NothingOpened(_) => 10,
            Self::Interrupted => 130,
        }
    }
}

/// Summary of a receiving session.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiveSummary {
    /// Outcome of the session.
    pub outcome: ReceiveOutcome,
    /// Progress at the end.
    pub progress: ReceiveProgress,
    /// Announced files that are complete, verified and in place.
    pub files_completed: usize,
    /// Bytes of the completed files.
    pub bytes_completed: u64,
    /// Refused files.
    pub files_refused: usize,
    /// Files that the selection left out.
    pub files_unwanted: usize,
    /// The first few other sessions on the group.
    pub others: Vec<HeardSession>,
    /// Datagrams to the group, with any content.
    pub datagrams: u64,
    /// Working folder with the data of incomplete files, if the folder exists. A session that receives the
    /// files into the same folder resumes from this data.
    pub kept: Option<PathBuf>,
    /// Whether the sender has described all files of the session.
    pub is_described: bool,
    /// Folders without files that the session has.
    pub folders: Vec<RelativePath>,
    /// Senders of the folder's unfinished files at the start: no other sender was accepted. Empty for any
    /// sender.
    pub pinned: Vec<PublicKey>,
}
