//! Events and counters of a receiver for the application.

use crate::auth::AuthCounters;
use crate::delivery::encoding::ContentCoding;
use crate::delivery::front::SessionEvent;
use crate::delivery::name::RelativePath;
use crate::delivery::object::Digest;
use crate::delivery::store::{FileIndex, StoreError};
use crate::time::Instant;

/// Event of a receiver for the application, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// Event about the sessions on the group.
    Session(SessionEvent),
    /// The FDT describes a congestion control that this receiver does not support. The receiver receives
    /// nothing more.
    ControlRefused {
        /// Reason; may quote untrusted text of the sender.
        reason: String,
    },
    /// The FDT described a file.
    FileAnnounced {
        /// Index of the file; files are numbered from 0 in the order of announcement.
        file: FileIndex,
        /// Name.
        path: RelativePath,
        /// Length in bytes.
        bytes: u64,
        /// If the content travels encoded: the coding, and the length of the encoded content in bytes.
        encoding: Option<(ContentCoding, u64)>,
    },
    /// The FDT described a file or folder that is not received.
    FileRefused {
        /// Name as given by the sender, untrusted.
        location: String,
        /// Reason.
        reason: String,
    },
    /// An announced file is not wanted by the receiver's user: nothing of the file is received.
    FileUnwanted {
        /// Index of the file.
        file: FileIndex,
    },
    /// The file announced next is a part of a stream.
    PartAnnounced {
        /// Index of the file.
        file: FileIndex,
        /// Name of the stream.
        stream: RelativePath,
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
    /// All parts of a stream up to its end are in place or missed.
    StreamCompleted {
        /// Name of the stream.
        stream: RelativePath,
        /// Length of the stream in bytes.
        bytes: u64,
        /// Bytes of the missed parts.
        missed: u64,
    },
    /// A file is whole, verified, and under its final name.
    FileCompleted {
        /// The file.
        file: FileIndex,
        /// Digest, if the sender announced a digest.
        digest: Option<Digest>,
        /// Whether the file already existed and nothing had to be received.
        is_present: bool,
    },
    /// A file is whole but does not match the announced digest. The file was discarded.
    FileMismatch {
        /// The file.
        file: FileIndex,
    },
    /// A block did not match its digest with symbols of repair servers, and drops those symbols.
    RepairMismatch {
        /// The file.
        file: FileIndex,
        /// The only server of those symbols, which were wrong; `None` if they came from several servers, or
        /// if other symbols of the block may be wrong.
        server: Option<u32>,
    },
    /// Every file of the session is completed or given up.
    SessionCompleted {
        /// Number of refused entries of the FDT; all entries beyond
        /// [`OBJECTS_MAX`](crate::delivery::OBJECTS_MAX) count as one.
        refused: usize,
    },
    /// The sender closed the session before every file was whole.
    SessionClosed,
    /// The store failed. The receiver receives nothing more.
    StoreFailed(StoreError),
}

impl From<SessionEvent> for ReceiverEvent {
    fn from(event: SessionEvent) -> Self {
        Self::Session(event)
    }
}

/// Progress of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileProgress<'a> {
    /// Name.
    pub path: &'a RelativePath,
    /// Length in bytes.
    pub bytes: u64,
    /// Source symbols of the announced objects of the file.
    pub symbols: u64,
    /// Symbols held, source and repair.
    pub symbols_held: u64,
    /// Whether the file is whole and verified.
    pub is_done: bool,
}

/// Counters of a receiver.
///
/// Each datagram handed to a receiver that has not ended is in exactly one of `useful`, `duplicates`,
/// `surplus`, `fdt_packets`, `signalling`, `pending`, `waiting` and the [`Drops`]: their sum
/// ([`ReceiverStats::accounted`]) is `packets` at any instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Datagrams handed to the receiver. Datagrams that the socket layer filtered out are counted by the
    /// socket layer.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// UDP payload of the longest packet of the session, in bytes.
    pub longest: u64,
    /// Symbols that were needed.
    pub useful: u64,
    /// Symbols left by an earlier session, of files that are not in place yet.
    pub resumed: u64,
    /// Symbols of blocks found on disk: in an older version of the file, or as holes.
    pub reused: u64,
    /// Symbols that were already held.
    pub duplicates: u64,
    /// Symbols of blocks that had enough.
    pub surplus: u64,
    /// Packets of the FDT, needed or not, except unreadable packets, which count as drops.
    pub fdt_packets: u64,
    /// Packets without a symbol: packets that close the session, and packets for the congestion control only.
    pub signalling: u64,
    /// Packets kept until the FDT describes the object: each packet then moves to another counter.
    pub pending: u64,
    /// Packets that wait for their authentication: each packet then moves to another counter.
    pub waiting: u64,
    /// Entries of the FDT that contradict an earlier entry.
    pub contradictions: u64,
    /// Entries of the FDT beyond [`OBJECTS_MAX`](crate::delivery::OBJECTS_MAX).
    pub entries_beyond: u64,
    /// Blocks that did not match the digest and were received again.
    pub blocks_discarded: u64,
    /// Datagrams dropped, by reason.
    pub dropped: Drops,
    /// Time of the last packet or report that advanced the reception.
    pub last_progress: Instant,
}

impl ReceiverStats {
    /// Sum of the counters that a datagram can end in, equal to `packets`.
    pub fn accounted(&self) -> u64 {
        let Self { useful, duplicates, surplus, fdt_packets, signalling, pending, waiting, .. } = self;
        let kept = useful + duplicates + surplus + fdt_packets + signalling + pending + waiting;
        kept + self.dropped.total()
    }
}

/// Datagrams dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Not an ALC packet.
    pub malformed: u64,
    /// Packet of another session or another source.
    pub foreign: u64,
    /// A packet of the FDT without its extensions, or an unreadable instance.
    pub bad_fdt: u64,
    /// A symbol that the object cannot have: block or ESI out of range, wrong length, wrong code.
    pub bad_symbol: u64,
    /// Packet of a refused object.
    pub refused: u64,
    /// Packet of an object that the FDT has not described, if no memory was left to keep the packet, or of an
    /// object that the complete FDT does not describe.
    pub unknown_object: u64,
    /// Needed symbols of blocks for which no memory was left.
    pub no_room: u64,
    /// Packet with a wrong signature.
    pub forged: u64,
    /// Packet that no manifest listed in time.
    pub unlisted: u64,
    /// Packet that came before, or of an earlier session.
    pub replayed: u64,
    /// Packet signed with a key that is not trusted.
    pub untrusted: u64,
    /// Packet whose signature was not checked, because too many checks were due.
    pub over_budget: u64,
    /// Packet whose content is encrypted and no group key decrypts, or, at a receiver with a group key, is in
    /// the clear.
    pub unopened: u64,
}

impl Drops {
    /// Returns the drops with those of the authentication.
    pub(crate) fn with_auth(self, counters: &AuthCounters) -> Self {
        let AuthCounters { forged, unlisted, replayed, untrusted, over_budget, .. } = *counters;
        Self { forged, unlisted, replayed, untrusted, over_budget, ..self }
    }

    /// Returns all counters with the names used in logs.
    pub fn by_reason(&self) -> [(&'static str, u64); 13] {
        [
            ("forged", self.forged),
            ("unlisted", self.unlisted),
            ("replayed", self.replayed),
            ("untrusted", self.untrusted),
            ("over_budget", self.over_budget),
            ("unopened", self.unopened),
            ("malformed", self.malformed),
            ("foreign", self.foreign),
            ("bad_fdt", self.bad_fdt),
            ("bad_symbol", self.bad_symbol),
            ("refused", self.refused),
            ("unknown_object", self.unknown_object),
            ("no_room", self.no_room),
        ]
    }

    /// Returns the sum over all reasons.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }
}
