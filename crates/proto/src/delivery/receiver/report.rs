//! What a receiver tells its application.

use crate::delivery::digest::Digest;
use crate::delivery::front::SessionEvent;
use crate::delivery::name::RelativePath;
use crate::delivery::store::{FileIndex, StoreError};
use crate::time::Instant;

/// What a receiver tells its application, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// Who was heard on the group.
    Session(SessionEvent),
    /// The FDT describes a congestion control that cannot be followed. Nothing more is received.
    ControlRefused {
        /// Why: what it names may be a peer's word.
        reason: String,
    },
    /// The FDT described a file.
    FileAnnounced {
        /// Its number; files are numbered from 0 in this order.
        file: FileIndex,
        /// Its name.
        path: RelativePath,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The FDT described something that is not received.
    FileRefused {
        /// Its name as the sender gave it: not to be trusted.
        location: String,
        /// Why.
        reason: String,
    },
    /// A file is whole, verified, and carries its final name.
    FileCompleted {
        /// The file.
        file: FileIndex,
        /// Its digest, if the sender told.
        digest: Option<Digest>,
        /// Whether it was there already, and nothing of it had to be received.
        is_present: bool,
    },
    /// A file is whole but not what the sender promised; it was discarded.
    FileMismatch {
        /// The file.
        file: FileIndex,
    },
    /// Every file of the session has met its fate.
    SessionCompleted {
        /// Entries of the FDT that were refused; all beyond [`OBJECTS_MAX`](crate::delivery::OBJECTS_MAX) are
        /// one.
        refused: usize,
    },
    /// The sender closed the session before every file was whole.
    SessionClosed,
    /// The store failed; nothing more is received.
    StoreFailed(StoreError),
}

impl From<SessionEvent> for ReceiverEvent {
    fn from(event: SessionEvent) -> Self {
        Self::Session(event)
    }
}

/// How far a file is.
#[derive(Clone, Copy, Debug)]
pub struct FileProgress<'a> {
    /// Its name.
    pub path: &'a RelativePath,
    /// Its length in bytes.
    pub bytes: u64,
    /// Source symbols of what is announced of it.
    pub symbols: u64,
    /// Symbols held, source and repair.
    pub symbols_held: u64,
    /// Whether it is whole and verified.
    pub is_done: bool,
}

/// Counters of a receiver.
///
/// Each datagram handed to a receiver that has not ended is in exactly one of `useful`, `duplicates`,
/// `surplus`, `fdt_packets`, `signalling`, `pending` and the [`Drops`]: their sum
/// ([`ReceiverStats::accounted`]) is `packets` at any instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Datagrams handed to the receiver. Those that the socket layer kept out are counted there.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// UDP payload of the longest packet of the session, in bytes.
    pub longest: u64,
    /// Symbols that were needed.
    pub useful: u64,
    /// Symbols that an earlier session had left, of those files that are not in place yet.
    pub resumed: u64,
    /// Symbols held already.
    pub duplicates: u64,
    /// Symbols of blocks that had enough.
    pub surplus: u64,
    /// Packets of the FDT, needed or not; those that cannot be read are among the drops.
    pub fdt_packets: u64,
    /// Packets without a symbol: those that close the session, and those for the congestion control alone.
    pub signalling: u64,
    /// Packets held until the FDT describes their object: each then moves to another counter.
    pub pending: u64,
    /// Entries of the FDT that contradict an earlier one.
    pub contradictions: u64,
    /// Entries of the FDT beyond [`OBJECTS_MAX`](crate::delivery::OBJECTS_MAX).
    pub entries_beyond: u64,
    /// Blocks that did not match their digest and were received again.
    pub blocks_discarded: u64,
    /// Datagrams dropped, by reason.
    pub dropped: Drops,
    /// When something needed came last.
    pub last_progress: Instant,
}

impl ReceiverStats {
    /// Sum of the counters that a datagram can end in: `packets`.
    pub fn accounted(&self) -> u64 {
        let Self { useful, duplicates, surplus, fdt_packets, signalling, pending, dropped, .. } = self;
        useful + duplicates + surplus + fdt_packets + signalling + pending + dropped.total()
    }
}

/// Datagrams dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// No ALC packet.
    pub malformed: u64,
    /// Of another session or another source.
    pub foreign: u64,
    /// A packet of the FDT without its extensions, or an instance that cannot be read.
    pub bad_fdt: u64,
    /// A symbol that its object cannot have: block or number out of range, wrong length, wrong code.
    pub bad_symbol: u64,
    /// Of an object that was refused.
    pub refused: u64,
    /// Of an object not described yet, when there was no room to keep it; or of one that the whole FDT does
    /// not describe.
    pub unknown_object: u64,
    /// Symbols that were needed, of blocks that there was no memory for.
    pub no_room: u64,
}

impl Drops {
    /// All of them, with the names that logs use.
    pub fn by_reason(&self) -> [(&'static str, u64); 7] {
        [
            ("malformed", self.malformed),
            ("foreign", self.foreign),
            ("bad_fdt", self.bad_fdt),
            ("bad_symbol", self.bad_symbol),
            ("refused", self.refused),
            ("unknown_object", self.unknown_object),
            ("no_room", self.no_room),
        ]
    }

    /// Sum over all reasons.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }
}
