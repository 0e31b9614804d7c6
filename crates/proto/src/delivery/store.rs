//! Content as arguments: where a sender's symbols come from, where a receiver's go. Drivers implement these
//! traits with files and threads; tests and simulations with memory.

use std::sync::Arc;

use headwater_fec::{BlockCodec, Partition};
use headwater_wire::fdt::{FileTime, Withdrawal};

use super::digest::{Digest, ShortDigest};
use super::name::RelativePath;

/// Where a sender's encoding symbols come from.
pub trait Source {
    /// Writes encoding symbol `esi` of block `sbn` of object `object` (its index in the session's plan) into
    /// `symbol`, which is as long as the object's symbols. The last source symbol is padded with zeros.
    ///
    /// # Errors
    /// When the content cannot be read any more: the sender withdraws the file, or ends the session.
    fn read_symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError>;

    /// n, the encoding symbols of a block that can be read, its k source symbols among them; `None`, the
    /// default: all that the code gives. A block with an n of its own is sent in cycles of n symbols, also
    /// where the code is rateless.
    ///
    /// Asked once for each block, when a session begins.
    fn encoding_symbols(&self, _object: usize, _sbn: u32) -> Option<u32> {
        None
    }

    /// Whether a symbol can be read by now, which is the default. Where it cannot, the sender takes a source
    /// symbol of the block instead: those are always there. It may wait for the symbol, but not for long, as
    /// sending waits too.
    ///
    /// # Errors
    /// When it never will be there: the sender withdraws the file, or ends the session.
    fn is_ready(&mut self, _object: usize, _sbn: u32, _esi: u32) -> Result<bool, SourceError> {
        Ok(true)
    }
}

/// Content that cannot be sent on. Each message tells what was tried and what happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// One file, which the sender withdraws; the others go on.
    #[error("{message}")]
    File {
        /// Its index in the session's plan.
        file: usize,
        /// The reason that receivers are told.
        why: Withdrawal,
        /// The reason that the sender's user is told.
        message: String,
    },
    /// All content: the session ends.
    #[error("{0}")]
    Session(String),
}

/// A file of a session, as the receiver numbers them: by the order in which they were announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileIndex(pub usize);

/// An object of a session, as the receiver numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectIndex(pub usize);

/// A file about to be received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Where it goes, below the receiver's folder.
    pub path: RelativePath,
    /// Length in bytes.
    pub bytes: u64,
    /// Permission bits, if the sender told.
    pub mode: Option<u32>,
    /// Time of the last modification, if the sender told.
    pub modified: Option<FileTime>,
    /// MD5 of the content, if the sender told.
    pub md5: Option<[u8; 16]>,
    /// Digest of the content, if the sender told by now.
    pub digest: Option<Digest>,
}

impl FileSpec {
    /// Names the content, as far as the sender told.
    pub fn version(&self) -> FileVersion {
        FileVersion { digest: self.digest, modified: self.modified }
    }
}

/// Name of a file's content, by which another session finds it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// Digest, once it is known.
    pub digest: Option<Digest>,
    /// Time of the last modification, if it is known.
    pub modified: Option<FileTime>,
}

impl FileVersion {
    /// Whether the content can be found again at all.
    pub fn is_known(&self) -> bool {
        self.digest.is_some() || self.modified.is_some()
    }

    /// Whether two files of one name and length may be taken for the same content: both digests are known and
    /// equal, or one is unknown and both times of modification are known and equal. Where times decide,
    /// blocks still prove themselves by their own digests.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.digest, other.digest) {
            (Some(one), Some(other)) => one == other,
            _ => self.modified.is_some() && self.modified == other.modified,
        }
    }
}

/// What a store holds of a file already, from a session that was cut short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldFile {
    /// It is whole, verified, and carries its final name: no block of it is needed.
    pub is_whole: bool,
    /// A file of its name and length stands in its place, whoever put it there: once the digest is known it
    /// can be compared.
    pub is_present: bool,
}

/// What a store holds of a block already. It is not trusted: the block is verified like any other, and what
/// is out of range is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldBlock {
    /// The block.
    pub sbn: u32,
    /// Whether it holds all source symbols; `source` and `repairs` say nothing then.
    pub is_whole: bool,
    /// Source symbols in place: bit `esi % 64` of word `esi / 64`.
    pub source: Vec<u64>,
    /// ESIs of the repair symbols kept, slot by slot.
    pub repairs: Vec<u32>,
}

/// What a receiver makes of a block that its store reported done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockVerdict {
    /// It is what the sender promised: its slots are free.
    Right,
    /// It is not, and its repair symbols are given up: their slots are free.
    RepairsDropped,
    /// It is not, and nothing of it is kept: its slots are free.
    AllDropped,
}

/// An object about to be received: a file or a segment of one.
#[derive(Clone, Debug)]
pub struct ObjectSpec {
    /// The file it belongs to.
    pub file: FileIndex,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its blocks and symbols.
    pub partition: Partition,
    /// Its erasure code.
    pub codec: Arc<dyn BlockCodec>,
    /// Names the object in another session of the same content: a digest of its file's name and length, its
    /// place in the file, and its coding. `None` if the sender tells neither digest nor time of modification
    /// of the file: then nothing of it may be resumed.
    pub identity: Option<Digest>,
}

/// A block with enough symbols, for the store to decode (when source symbols are missing) and to hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockJob {
    /// The object.
    pub object: ObjectIndex,
    /// The block.
    pub sbn: u32,
    /// Source symbols that never came, ascending.
    pub missing: Vec<u32>,
    /// Repair symbols received: they are in the slots below this one.
    pub repairs: u32,
}

/// A repair symbol in the store, which keeps its number with it: a receiver of a terabyte has no memory for
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRepair {
    /// Encoding symbol id.
    pub esi: u32,
    /// The slot it was written to.
    pub slot: u32,
}

/// Slots for repair symbols of a block of `k` source symbols, at most 3k: k suffice but for a few blocks in a
/// thousand; of LDPC they may be some percent more where all source symbols are lost.
pub fn repair_slots(k: u32) -> u32 {
    k.saturating_add(k / 8).saturating_add(2)
}

/// What a store reports when work that takes time is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReport {
    /// A block is whole on disk, with this digest of its bytes.
    BlockDone {
        /// The object.
        object: ObjectIndex,
        /// The block.
        sbn: u32,
        /// BLAKE3 of its bytes.
        digest: Digest,
    },
    /// The symbols at hand do not determine the block.
    BlockNeedsMore {
        /// The object.
        object: ObjectIndex,
        /// The block.
        sbn: u32,
        /// So many more are needed before the next attempt, at least 1.
        more: u32,
    },
    /// A file carries its final name.
    FileDone(FileIndex),
    /// A file's MD5 differs from what its sender told: it was discarded.
    FileMismatch(FileIndex),
    /// A file that stood in the place of another was compared with it.
    FileCompared {
        /// The file.
        file: FileIndex,
        /// Whether it is what the sender promised. Its permission bits and its time of modification are the
        /// sender's then, and nothing else is kept of the file.
        is_same: bool,
    },
    /// The store failed; nothing more can be received.
    Failed(StoreError),
}

/// A store that cannot go on: what was tried, what happened, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// What an FDT said of a session, for a receiver that is started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Who sends the session.
    pub source: core::net::IpAddr,
    /// Its transport session identifier.
    pub tsi: u64,
    /// The FDT instance.
    pub instance_id: u32,
    /// The instance as XML, at most [`FDT_BYTES_MAX`](super::FDT_BYTES_MAX).
    pub xml: Vec<u8>,
}

/// Where a receiver's symbols go.
///
/// Calls return fast; decoding, hashing and finishing a file may go on elsewhere and are reported by
/// [`Store::poll_report`]. The driver wakes the machine with [`crate::Input::Timeout`] when a report is
/// there.
pub trait Store {
    /// Makes room for a file, or finds what an earlier session left of it. `file` counts up from 0.
    ///
    /// # Errors
    /// When it cannot be made (the name is taken by a folder, no space): the file is refused, the others go
    /// on.
    fn create_file(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError>;

    /// Tells the digest of a file that was created without one, once the sender has told it, and asks what
    /// that makes of what is held. By default nothing.
    ///
    /// # Errors
    /// When it could not be noted: the session ends.
    fn learn_digest(&mut self, file: FileIndex, digest: Digest) -> Result<HeldFile, StoreError> {
        let _forgotten = (file, digest);
        Ok(HeldFile::default())
    }

    /// Makes a folder that holds none of the files, if it is not there yet. By default there are no folders.
    ///
    /// # Errors
    /// When it cannot be made (a file has the name): the folder is refused, the files go on.
    fn create_folder(&mut self, path: &RelativePath) -> Result<(), StoreError> {
        let _has_none = path;
        Ok(())
    }

    /// Announces an object of a file that was created, and asks for what is held of it already. `object`
    /// counts up from 0.
    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) -> Vec<HeldBlock>;

    /// Writes a source symbol to its place in the file. Its padding is cut off.
    ///
    /// # Errors
    /// When it could not be written: the session ends.
    fn write_source(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError>;

    /// Keeps a repair symbol of a block, and its ESI, in its slot. The slots of a block, [`repair_slots`] of
    /// them, are taken in order, from 0 again when they are free. All symbols of a file have the same size,
    /// and its objects begin at multiples of it.
    ///
    /// # Errors
    /// When it could not be written: the session ends.
    fn write_repair(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        repair: StoredRepair,
        symbol: &[u8],
    ) -> Result<(), StoreError>;

    /// Starts to decode and hash a block; ends in `BlockDone` or `BlockNeedsMore`. The slots of its repair
    /// symbols are not written again before that.
    fn finish_block(&mut self, job: BlockJob);

    /// Tells what became of a block reported done, before any of its slots or symbols is written again.
    ///
    /// # Errors
    /// When it could not be noted: the session ends.
    fn judge_block(&mut self, object: ObjectIndex, sbn: u32, verdict: BlockVerdict)
    -> Result<(), StoreError>;

    /// Starts to finish a file all of whose blocks are done and verified; ends in `FileDone` or
    /// `FileMismatch`.
    fn finish_file(&mut self, file: FileIndex);

    /// Starts to compare the file that stands in a file's place, all of whose objects were announced, with
    /// the digest and, as far as they are known, the digests of its blocks in order; ends in `FileCompared`.
    /// Asked for files that were [present](HeldFile::is_present) only, and nothing of the file is written
    /// meanwhile. By default there are none.
    fn compare_file(&mut self, file: FileIndex, digest: Digest, promised: Vec<ShortDigest>) {
        let _never_asked = (file, digest, promised);
    }

    /// Gives a file up: nothing of it is kept. Blocks of it may be being finished.
    ///
    /// # Errors
    /// When it could not be discarded: the session ends.
    fn discard_file(&mut self, file: FileIndex) -> Result<(), StoreError>;

    /// Keeps what the FDT said last, if the store can be resumed. By default it is forgotten.
    fn keep_description(&mut self, description: &Description) {
        let _forgotten = description;
    }

    /// What an earlier session kept last. It is not trusted: the FDT that comes may say otherwise.
    fn kept_description(&mut self) -> Option<Description> {
        None
    }

    /// The next report, if one is there.
    fn poll_report(&mut self) -> Option<StoreReport>;
}
