//! Interfaces to the content: a sender reads symbols from a [`Source`], a receiver writes symbols to a
//! [`Store`]. Drivers implement both traits with files and threads; tests and simulations with memory.

use std::sync::Arc;

use headwater_fec::{BlockCodec, Partition};
use headwater_wire::fdt::{FileTime, Withdrawal};

use super::encoding::{ContentCoding, Encoding};
use super::metadata::{MetadataFault, SessionMetadata};
use super::name::RelativePath;
use super::object::{Digest, ShortDigest};
use super::plan::StreamPart;

/// Source of a sender's encoding symbols.
pub trait Source {
    /// Writes encoding symbol `esi` of block `sbn` of object `object` (index in the session's plan) into
    /// `symbol`, which is as long as the object's symbols. The last source symbol is padded with zeros.
    ///
    /// # Errors
    /// When the content can no longer be read: the sender withdraws the file, or ends the session.
    fn read_symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError>;

    /// Returns n, the number of encoding symbols that the source can provide for a block, including the k
    /// source symbols. `None`, the default: all symbols of the code. A block with a limited n is sent in
    /// cycles of n symbols, even if the code is rateless.
    ///
    /// The sender calls this method once for each block, at the start of a session.
    fn encoding_symbols(&self, _object: usize, _sbn: u32) -> Option<u32> {
        None
    }

    /// Whether a block is a hole of a sparse file: zeros that the sender does not send, since receivers know
    /// the block by its digest. Default: no.
    ///
    /// The sender calls this method once for each block, at the start of a session.
    fn is_hole(&self, _object: usize, _sbn: u32) -> bool {
        false
    }

    /// Whether a symbol can be read now. Default: true. If not, the sender sends a source symbol of the block
    /// instead, which is always ready. The method may wait briefly for the symbol; sending waits meanwhile.
    ///
    /// # Errors
    /// When the symbol will never be ready: the sender withdraws the file, or ends the session.
    fn is_ready(&mut self, _object: usize, _sbn: u32, _esi: u32) -> Result<bool, SourceError> {
        Ok(true)
    }
}

/// Content that can no longer be sent. Each message states the attempted operation and the failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A failed file. The sender withdraws the file and continues with the rest.
    #[error("{message}")]
    File {
        /// Index of the file in the session's plan.
        file: usize,
        /// Reason announced to the receivers.
        why: Withdrawal,
        /// Reason for the sender's user.
        message: String,
    },
    /// Failure of all content: the session ends.
    #[error("{0}")]
    Session(String),
}

/// Index of a file in a session, assigned by the receiver in the order of announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileIndex(pub usize);

/// Index of an object in a session, assigned by the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectIndex(pub usize);

/// A file about to be received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Path below the receiver's folder.
    pub path: RelativePath,
    /// Length in bytes.
    pub bytes: u64,
    /// Permission bits, if the sender announced them.
    pub mode: Option<u32>,
    /// Time of the last modification, if the sender announced the time.
    pub modified: Option<FileTime>,
    /// MD5 of the content, if the sender announced the MD5.
    pub md5: Option<[u8; 16]>,
    /// Digest of the content, if the sender has announced the digest.
    pub digest: Option<Digest>,
    /// Whether blocks of zeros may not be sent.
    pub is_sparse: bool,
    /// Encoding of the content: `bytes`, `digest` and the objects are those of the encoded content.
    pub encoding: Option<Encoding>,
}

impl FileSpec {
    /// Creates a file of `bytes` bytes of which the sender announced nothing else, and sends all blocks.
    pub const fn new(path: RelativePath, bytes: u64) -> Self {
        Self {
            path,
            bytes,
            mode: None,
            modified: None,
            md5: None,
            digest: None,
            is_sparse: false,
            encoding: None,
        }
    }

    /// Returns the length of the file under its final name, in bytes.
    pub fn content_bytes(&self) -> u64 {
        self.encoding.map_or(self.bytes, |encoding| encoding.bytes)
    }

    /// Returns the version of the content, as far as the sender announced digest and time.
    pub fn version(&self) -> FileVersion {
        FileVersion { digest: self.digest, modified: self.modified }
    }
}

/// Version of a file's content, by which another session recognizes the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// Digest, if known.
    pub digest: Option<Digest>,
    /// Time of the last modification, if known.
    pub modified: Option<FileTime>,
}

impl FileVersion {
    /// Whether another session can recognize the content.
    pub fn is_known(&self) -> bool {
        self.digest.is_some() || self.modified.is_some()
    }

    /// Whether two files of the same name and length count as the same content: both digests are known and
    /// equal, or a digest is unknown and both modification times are known and equal. If the times decide,
    /// each block is still verified by the block's own digest.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.digest, other.digest) {
            (Some(one), Some(other)) => one == other,
            _ => self.modified.is_some() && self.modified == other.modified,
        }
    }
}

/// State of a file in the store, left by an earlier session that was interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldFile {
    /// Whether the file is whole, verified, and under its final name: no block is needed.
    pub is_whole: bool,
    /// Whether blocks may be on disk: in a file of the same name, from any origin, in another file that the
    /// user named, or as holes. Once the digest is known, the store can compare. For a bundle: whether the
    /// members of the bundle with this digest are known, and can be compared.
    pub is_present: bool,
    /// Whether the file is not wanted: nothing of the file is received.
    pub is_unwanted: bool,
}

/// State of a block in the store. The receiver does not trust the state: the block is verified like any other
/// block, and values out of range are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldBlock {
    /// The block.
    pub sbn: u32,
    /// Whether the store holds all source symbols; `source` and `repairs` carry no information then.
    pub is_whole: bool,
    /// Source symbols in place: bit `esi % 64` of word `esi / 64`.
    pub source: Vec<u64>,
    /// ESIs of the stored repair symbols, in slot order.
    pub repairs: Vec<u32>,
}

/// Verdict of the receiver on a block that the store reported done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockVerdict {
    /// The block matches the announced digest: the repair slots are free.
    Right,
    /// The block does not match, and the receiver drops the repair symbols: the repair slots are free.
    RepairsDropped,
    /// The block does not match, and the receiver drops all symbols: the repair slots are free.
    AllDropped,
}

/// An object about to be received: a file or a segment of a file.
#[derive(Clone, Debug)]
pub struct ObjectSpec {
    /// File of the object.
    pub file: FileIndex,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Blocks and symbols.
    pub partition: Partition,
    /// Erasure code.
    pub codec: Arc<dyn BlockCodec>,
    /// Identity of the object in another session of the same content: a digest of the file's name and length,
    /// the offset in the file, and the coding. `None` if the sender announces neither digest nor modification
    /// time of the file: then no part of the object may be resumed.
    pub identity: Option<Digest>,
}

/// A block with enough symbols, for the store to decode (when source symbols are missing) and to hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockJob {
    /// The object.
    pub object: ObjectIndex,
    /// The block.
    pub sbn: u32,
    /// Source symbols not received, in ascending order.
    pub missing: Vec<u32>,
    /// Number of repair symbols received, which are in the slots below this number.
    pub repairs: u32,
}

/// A repair symbol in the store. The store keeps the ESI with the symbol: a receiver of a terabyte has no
/// memory for the ESIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRepair {
    /// Encoding symbol id.
    pub esi: u32,
    /// Slot of the symbol.
    pub slot: u32,
}

/// Returns the number of slots for repair symbols of a block of `k` source symbols, at most 3k. Except for a
/// few blocks in a thousand, k symbols suffice; LDPC may need a few percent more if all source symbols are
/// lost.
pub fn repair_slots(k: u32) -> u32 {
    k.saturating_add(k / 8).saturating_add(2)
}

/// Result of a long-running operation of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReport {
    /// A block is whole on disk.
    BlockDone {
        /// The object.
        object: ObjectIndex,
        /// The block.
        sbn: u32,
        /// BLAKE3 of the block's bytes.
        digest: Digest,
    },
    /// The available symbols do not determine the block.
    BlockNeedsMore {
        /// The object.
        object: ObjectIndex,
        /// The block.
        sbn: u32,
        /// Number of additional symbols needed before the next attempt, at least 1.
        more: u32,
    },
    /// A file is under its final name.
    FileDone(FileIndex),
    /// A file's MD5 differs from the announced MD5. The file was discarded.
    FileMismatch(FileIndex),
    /// A whole file was refused for this reason, like a file refused when it was announced: a bundle whose
    /// members cannot be placed.
    FileRefused(FileIndex, StoreError),
    /// The content of a block was found on disk, and is in its place. Comes before the end of a comparison,
    /// and ends no operation.
    BlockFound {
        /// The object.
        object: ObjectIndex,
        /// The block.
        sbn: u32,
        /// BLAKE3 of the block's bytes.
        digest: Digest,
    },
    /// The file that existed at the destination was compared with the announced file.
    FileCompared {
        /// The file.
        file: FileIndex,
        /// Whether the existing file matches the announced digests. If so, the file has the sender's
        /// permission bits and modification time now, and no other state of the file is kept.
        is_same: bool,
    },
    /// The store failed; nothing more can be received.
    Failed(StoreError),
}

/// Failure after which a store cannot continue: the attempted operation, the failure, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// FDT instance of a session, kept for a receiver that restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Address of the sender.
    pub source: core::net::IpAddr,
    /// Transport session identifier.
    pub tsi: u64,
    /// Identifier of the FDT instance.
    pub instance_id: u32,
    /// The instance as XML, at most [`FDT_BYTES_MAX`](super::FDT_BYTES_MAX).
    pub xml: Vec<u8>,
}

/// Destination of a receiver's symbols.
///
/// Calls return fast. Decoding, hashing and finishing a file may continue in the background;
/// [`Store::poll_report`] returns the results. The driver wakes the machine with [`crate::Input::Timeout`]
/// when a report is ready.
pub trait Store {
    /// Creates a file, or finds the state left by an earlier session. `file` counts up from 0.
    ///
    /// # Errors
    /// When the file cannot be created (a folder has the name, no space): the file is refused, the session
    /// continues with the rest.
    fn create_file(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError>;

    /// Whether [`Self::finish_file`] decodes files of this coding. Other files are refused. By default no
    /// coding is decoded.
    fn decodes(&self, coding: ContentCoding) -> bool {
        let _refused = coding;
        false
    }

    /// Creates a file that is a part of a stream, like [`Self::create_file`]. The parts come in the order of
    /// the stream, and a part may be missing. By default the part is a file of its own.
    ///
    /// # Errors
    /// When the part cannot be created: the part is refused.
    fn create_part(
        &mut self,
        file: FileIndex,
        spec: &FileSpec,
        part: &StreamPart,
    ) -> Result<HeldFile, StoreError> {
        let _joined_by_nobody = part;
        self.create_file(file, spec)
    }

    /// Creates a bundle, whose members [`Self::finish_file`] puts in place, like [`Self::create_file`]. By
    /// default the bundle is a file of its own.
    ///
    /// # Errors
    /// When the bundle cannot be created: the bundle is refused.
    fn create_bundle(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError> {
        self.create_file(file, spec)
    }

    /// Adds the digest of a file that was created without a digest, and returns the state of the file in
    /// light of the digest. By default does nothing.
    ///
    /// # Errors
    /// When the digest could not be recorded: the session ends.
    fn learn_digest(&mut self, file: FileIndex, digest: Digest) -> Result<HeldFile, StoreError> {
        let _forgotten = (file, digest);
        Ok(HeldFile::default())
    }

    /// Creates a folder that holds no file, unless the folder exists. By default does nothing.
    ///
    /// # Errors
    /// When the folder cannot be created (a file has the name): the folder is refused, the session continues
    /// with the files.
    fn create_folder(&mut self, path: &RelativePath) -> Result<(), StoreError> {
        let _has_none = path;
        Ok(())
    }

    /// Takes the metadata of the session beyond the attributes of files, once. The files may be in place
    /// already. By default does nothing.
    fn describe_metadata(&mut self, metadata: SessionMetadata, faults: Vec<MetadataFault>) {
        let _ignored = (metadata, faults);
    }

    /// Applies metadata that needs all files in place, at the end of a session without files in progress.
    /// Returns names and reasons of failures. By default does nothing.
    fn finish_metadata(&mut self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Adds an object of a created file, and returns the blocks that the store already holds. `object` counts
    /// up from 0.
    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) -> Vec<HeldBlock>;

    /// Writes a source symbol to its place in the file, without padding.
    ///
    /// # Errors
    /// When the symbol could not be written: the session ends.
    fn write_source(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError>;

    /// Writes a repair symbol of a block and the ESI to a slot. The slots of a block, [`repair_slots`] in
    /// number, are filled in order, and from 0 again after the slots are freed. All symbols of a file have
    /// the same size, and the objects of a file begin at multiples of the symbol size.
    ///
    /// # Errors
    /// When the symbol could not be written: the session ends.
    fn write_repair(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        repair: StoredRepair,
        symbol: &[u8],
    ) -> Result<(), StoreError>;

    /// Starts to decode and hash a block. Ends in `BlockDone` or `BlockNeedsMore`; until then the block's
    /// repair slots are not written.
    fn finish_block(&mut self, job: BlockJob);

    /// Reports the verdict on a block that the store reported done. The receiver calls this method before any
    /// slot or symbol of the block is written again.
    ///
    /// # Errors
    /// When the verdict could not be recorded: the session ends.
    fn judge_block(&mut self, object: ObjectIndex, sbn: u32, verdict: BlockVerdict)
    -> Result<(), StoreError>;

    /// Starts to finish a file after all blocks are done and verified. Ends in `FileDone`, `FileMismatch` or
    /// `FileRefused`.
    fn finish_file(&mut self, file: FileIndex);

    /// Starts to compare the file that exists at the destination with the announced file: with the digest
    /// and, as far as known, with the digests of the blocks in order. Blocks that are found on disk are put
    /// in place and reported (`BlockFound`). Ends in `FileCompared`.
    ///
    /// The receiver calls this method only for files that were [present](HeldFile::is_present) and only after
    /// all objects of the file were announced. Meanwhile nothing of the file is written. By default does
    /// nothing, since no file is present.
    fn compare_file(&mut self, file: FileIndex, digest: Digest, promised: Vec<ShortDigest>) {
        let _never_asked = (file, digest, promised);
    }

    /// Discards a file and all its state. Some blocks of the file may still be decoding.
    ///
    /// # Errors
    /// When the file could not be discarded: the session ends.
    fn discard_file(&mut self, file: FileIndex) -> Result<(), StoreError>;

    /// Keeps the last complete FDT instance, if the store can be resumed. By default does nothing.
    fn keep_description(&mut self, description: &Description) {
        let _forgotten = description;
    }

    /// Returns the FDT instance that an earlier session kept last. The receiver does not trust the instance:
    /// the received FDT may differ.
    fn kept_description(&mut self) -> Option<Description> {
        None
    }

    /// Returns the next report, if a report is ready.
    fn poll_report(&mut self) -> Option<StoreReport>;
}
