//! Maps files to objects: block sizes, segments of large files, TOIs, and the FDT that describes the objects.

#[cfg(test)]
mod tests;

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_fec::{
    BlockCodec, FecError, Order, Partition, PartitionError, Scheme, ldpc_block_symbols, sending_order,
};
use headwater_wire::fdt::{File, FileTime, Headwater, Instance, OtiAttributes, Segment};
use headwater_wire::fti::Ldpc;
use headwater_wire::{Fti, fdt};

use super::carousel::symbols_in_first_pass;
use super::encoding::Encoding;
use super::metadata::SessionMetadata;
use super::name::RelativePath;
use super::object::{Codecs, Digest, file_digest, short};
use super::receiver::CODED_BLOCK_BYTES_MAX;
use super::repair::RepairServers;

/// Maximum number of objects in a session, as many as one FDT describes. The TOIs fit in 16 bits, for which
/// the header is shortest.
pub const OBJECTS_MAX: usize = fdt::FILES_MAX;

/// Longest symbol that fits in a datagram beside the headers, in bytes.
pub const SYMBOL_SIZE_MAX: u16 = 8_880;

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileToSend {
    /// Name at the receivers.
    pub path: RelativePath,
    /// Length in bytes.
    pub bytes: u64,
    /// Permission bits, if they matter.
    pub mode: Option<u32>,
    /// Time of the last modification, if it matters.
    pub modified: Option<FileTime>,
}

/// Part of a stream: content of a length that is not known before its end. Each part is a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPart {
    /// Name of the stream at the receivers.
    pub stream: RelativePath,
    /// Start of the part in the stream, in bytes.
    pub offset: u64,
    /// Set for the part that ends the stream, which has no bytes: [`file_digest`] of the parts before.
    pub end: Option<Digest>,
}

/// Media type of a bundle.
const BUNDLE_TYPE: &str = "application/zip";

/// Rules for mapping files to objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanConfig {
    /// The erasure code.
    pub scheme: Scheme,
    /// Symbol size T in bytes.
    pub symbol_size: u16,
    /// Order of sending, which determines the block size.
    pub order: Order,
}

/// An object: a file, or a segment of a file that has more blocks than the code's block number can count.
#[derive(Clone, Debug)]
pub struct PlannedObject {
    /// Transport object identifier, from 1.
    pub toi: u128,
    /// Index of the file.
    pub file: usize,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Index of the segment and number of segments.
    pub segment: (u32, u32),
    /// Blocks and symbols.
    pub partition: Partition,
    /// The erasure code.
    pub codec: Arc<dyn BlockCodec>,
    /// FEC object transmission information.
    pub fti: Fti,
}

impl PlannedObject {
    fn window_pass_symbols(&self) -> u64 {
        let blocks = (0..self.partition.blocks()).filter_map(|sbn| self.partition.block(sbn));
        let symbols = blocks.map(|block| block.symbols);
        symbols.map(|k| symbols_in_first_pass(k, self.codec.encoding_symbols(k))).sum()
    }
}

/// Reason why one session cannot carry the files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// More folders without files than an FDT may name.
    #[error(
        "more folders without files than a session can carry ({}); send an archive (tar) instead",
        fdt::FOLDERS_MAX
    )]
    TooManyFolders,
    /// More objects than [`OBJECTS_MAX`].
    #[error(
        "more files and segments than a session can carry ({OBJECTS_MAX}); send an archive (tar) instead"
    )]
    TooManyObjects,
    /// Two files have one name.
    #[error("two files have the name '{0}'; rename one of them")]
    SameName(RelativePath),
    /// Symbols of no bytes, or longer than a datagram has room for.
    #[error("symbols of {0} bytes cannot be sent; choose 1 to {SYMBOL_SIZE_MAX}")]
    SymbolSize(u16),
    /// LDPC in window order.
    #[error(
        "{0} cannot be sent in window order: a few percent of its repair symbols repair next to nothing; choose spread order"
    )]
    Order(Scheme),
    /// The erasure code cannot work with these numbers.
    #[error(transparent)]
    Fec(#[from] FecError),
    /// A file is too long for the code's numbers.
    #[error("'{path}' cannot be cut into blocks: {error}")]
    Partition {
        /// The file.
        path: RelativePath,
        /// Reason.
        error: PartitionError,
    },
}

/// All files of a session and the objects that carry them.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    files: Vec<FileToSend>,
    folders: Vec<RelativePath>,
    objects: Vec<PlannedObject>,
    order: Order,
    repair: Option<RepairServers>,
    /// Parts of a stream, by file.
    parts: BTreeMap<usize, StreamPart>,
    /// Files that are bundles.
    bundles: BTreeSet<usize>,
    /// Files with holes that are not sent.
    sparse: BTreeSet<usize>,
    /// Files whose bytes are encoded content.
    encodings: BTreeMap<usize, Encoding>,
    metadata: SessionMetadata,
}

/// Largest source block of Reed-Solomon over GF(2^8), a code that does not scale: half of the 255 symbols
/// remain for repair.
const REED_SOLOMON_BLOCK_SYMBOLS: u32 = 127;

/// Default memory of a sender for coding, in bytes.
const CODING_BYTES: u64 = 256 << 20;

/// Encoding symbols of all LDPC-Staircase blocks together, up to which n is more than 2k. A receiver that
/// changes its rate or restarts has received parts of the cycle of n symbols and needs the rest: with k =
/// 5682 and n = 4k there are almost no duplicates under any control. Decoding takes longer: at 10 % loss the
/// processor time of a receiver is 0.14 s instead of 0.05 s for k = 5682, and would be 3 s instead of 0.7 s
/// for k = 35 512. LDPC-Triangle keeps n = 2k: with n = 4k, decoding took 0.8, 4.6 and 13 % more symbols than
/// k (blocks of 5682, 6000 and 35 512 symbols) instead of 0.8 %.
const LDPC_SYMBOLS: u64 = 40_000;
/// Maximum of n / k.
const LDPC_EXPANSION_MAX: u32 = 4;
/// Blocks of fewer symbols have n = 2k.
const LDPC_LONG_BLOCK: u32 = 1_000;

/// N1 of LDPC: most senders have 3 (RFC 5170, section 4.2.3).
const LDPC_N1: u32 = 3;
/// Seed of LDPC's matrices. Any value serves; blocks of the same length share a matrix.
const LDPC_SEED: u32 = 1;

impl SessionPlan {
    /// Plans a session. The same files and configuration give the same plan.
    ///
    /// # Errors
    /// [`PlanError`] when one session cannot carry the files.
    pub fn new(files: Vec<FileToSend>, config: PlanConfig) -> Result<Self, PlanError> {
        Self::within(files, config, CODING_BYTES)
    }

    /// Plans a session with `memory` bytes for coding at the sender, 256 MiB by default. LDPC blocks are as
    /// long as the memory allows.
    ///
    /// # Errors
    /// [`PlanError`] when one session cannot carry the files.
    pub fn within(files: Vec<FileToSend>, config: PlanConfig, memory: u64) -> Result<Self, PlanError> {
        if config.symbol_size == 0 || config.symbol_size > SYMBOL_SIZE_MAX {
            return Err(PlanError::SymbolSize(config.symbol_size));
        }
        if config.order == Order::Window && is_ldpc(config.scheme) {
            return Err(PlanError::Order(config.scheme));
        }
        refuse_same_names(&files)?;
        let mut plan = Self {
            objects: Vec::with_capacity(files.len()),
            files: Vec::new(),
            folders: Vec::new(),
            order: config.order,
            repair: None,
            parts: BTreeMap::new(),
            bundles: BTreeSet::new(),
            sparse: BTreeSet::new(),
            encodings: BTreeMap::new(),
            metadata: SessionMetadata::default(),
        };
        let mut codecs = Codecs::default();
        let size = u64::from(config.symbol_size);
        let symbols = files.iter().map(|file| file.bytes.div_ceil(size)).sum();
        let coding = Coding { scheme: config.scheme, symbols, ldpc_symbols: ldpc_symbols(config, memory) };
        files.into_iter().try_for_each(|file| plan.push(file, config, memory, coding, &mut codecs))?;
        Ok(plan)
    }

    /// Adds a part of a stream, coded as if the part were alone. A session has one stream and nothing else;
    /// the part without a successor has an [`end`](StreamPart::end). `config` and `memory` are those of the
    /// plan.
    ///
    /// # Errors
    /// [`PlanError`] when the session cannot carry more parts; the plan is as before.
    pub fn push_part(
        &mut self,
        file: FileToSend,
        part: StreamPart,
        config: PlanConfig,
        memory: u64,
    ) -> Result<(), PlanError> {
        let symbols = file.bytes.div_ceil(config.symbol_size.max(1).into());
        let coding = Coding { scheme: config.scheme, symbols, ldpc_symbols: ldpc_symbols(config, memory) };
        let (files, objects) = (self.files.len(), self.objects.len());
        let pushed = self.push(file, config, memory, coding, &mut Codecs::default());
        if pushed.is_ok() {
            self.parts.insert(files, part);
        } else {
            self.objects.truncate(objects);
        }
        pushed
    }

    /// Whether parts of a stream follow.
    pub fn is_open(&self) -> bool {
        self.parts.values().next_back().is_some_and(|last| last.end.is_none())
    }

    fn push(
        &mut self,
        file: FileToSend,
        config: PlanConfig,
        memory: u64,
        coding: Coding,
        codecs: &mut Codecs,
    ) -> Result<(), PlanError> {
        let runs = partition(file.bytes, config, memory)
            .and_then(|whole| runs(whole, config))
            .map_err(|error| PlanError::Partition { path: file.path.clone(), error })?;
        let count = u32::try_from(runs.len()).unwrap_or(u32::MAX);
        for (segment, (offset, partition)) in (0..).zip(runs) {
            let fti = coding.fti(partition);
            if self.objects.len() == OBJECTS_MAX {
                return Err(PlanError::TooManyObjects);
            }
            self.objects.push(PlannedObject {
                toi: self.objects.len() as u128 + 1,
                file: self.files.len(),
                offset,
                segment: (segment, count),
                partition,
                codec: codecs.of(&fti)?,
                fti,
            });
        }
        self.files.push(file);
        Ok(())
    }

    /// Adds folders that hold no file, for receivers to create. Default: empty.
    ///
    /// # Errors
    /// [`PlanError::TooManyFolders`] when one FDT cannot name all folders.
    pub fn with_folders(self, folders: Vec<RelativePath>) -> Result<Self, PlanError> {
        if folders.len() > fdt::FOLDERS_MAX {
            return Err(PlanError::TooManyFolders);
        }
        Ok(Self { folders, ..self })
    }

    /// Announces files, by index, as bundles: receivers unpack the members. Default: none.
    #[must_use]
    pub fn with_bundles(self, bundles: BTreeSet<usize>) -> Self {
        Self { bundles, ..self }
    }

    /// Announces files, by index, as sparse: holes are not sent, and receivers know blocks of zeros by their
    /// digests. Default: none.
    #[must_use]
    pub fn with_sparse(self, sparse: BTreeSet<usize>) -> Self {
        Self { sparse, ..self }
    }

    /// Announces files, by index, as encoded: the bytes of such a file are the encoded content. Default:
    /// none.
    #[must_use]
    pub fn with_encodings(self, encodings: BTreeMap<usize, Encoding>) -> Self {
        Self { encodings, ..self }
    }

    /// Describes metadata beyond the attributes of files. Default: none.
    #[must_use]
    pub fn with_metadata(self, metadata: SessionMetadata) -> Self {
        Self { metadata, ..self }
    }

    /// Names servers of the files in the FDT. Default: none.
    #[must_use]
    pub fn with_repair(self, repair: Option<RepairServers>) -> Self {
        Self { repair, ..self }
    }

    /// Returns the servers of the files.
    pub fn repair(&self) -> Option<&RepairServers> {
        self.repair.as_ref()
    }

    /// Returns the files.
    pub fn files(&self) -> &[FileToSend] {
        &self.files
    }

    /// Returns the objects, file by file and in segment order.
    pub fn objects(&self) -> &[PlannedObject] {
        &self.objects
    }

    /// Returns the order in which symbols are sent.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Number of symbols in a pass: all source symbols, plus a share of repair symbols in window order.
    pub fn pass_symbols(&self) -> u64 {
        match self.order {
            Order::Spread { .. } => self.symbols(),
            Order::Window => self.objects.iter().map(PlannedObject::window_pass_symbols).sum(),
        }
    }

    /// Number of source symbols of all objects.
    pub fn symbols(&self) -> u64 {
        self.objects.iter().map(|object| object.partition.symbols()).sum()
    }

    /// Returns the objects of each file, as ranges of [`SessionPlan::objects`].
    pub fn file_objects(&self) -> Vec<Range<usize>> {
        let mut first = 0;
        let range = |file: usize| {
            let count = self.objects[first..].iter().take_while(|object| object.file == file).count();
            first += count;
            first - count..first
        };
        (0..self.files.len()).map(range).collect()
    }

    /// Returns the FDT instance that describes all files of the session. `digests` holds, for each object,
    /// the digests of all blocks or of the first blocks: the instance is complete when no digest is missing.
    /// `expires` is in NTP seconds (RFC 6726, section 3.4.2).
    ///
    /// # Panics
    /// When `digests` does not have the shape of the objects.
    pub fn fdt(&self, digests: &[Vec<Digest>], expires: u32) -> Instance {
        assert_eq!(digests.len(), self.objects.len(), "one list of block digests for each object");
        let is_whole =
            |object: usize| digests[object].len() == self.objects[object].partition.blocks() as usize;
        let complete = !self.is_open() && (0..self.objects.len()).all(is_whole);
        let folders = self.folders.iter().map(RelativePath::to_content_location).collect();
        let mut instance = Instance { expires, complete, folders, ..Instance::default() };
        for (file, range) in self.files.iter().zip(self.file_objects()) {
            let digest =
                range.clone().all(is_whole).then(|| file_digest(digests[range.clone()].iter().flatten()));
            let part = self.objects.get(range.start).and_then(|object| self.parts.get(&object.file));
            let objects = self.objects[range.clone()].iter().zip(&digests[range]);
            let entries = objects
                .map(|(object, blocks)| self.mark_kind(object, entry(file, part, object, digest, blocks)));
            instance.files.extend(entries);
        }
        self.metadata.describe(&mut instance);
        if let Some(repair) = &self.repair {
            repair.describe(&mut instance);
        }
        instance
    }
}

impl SessionPlan {
    /// Marks the entry of a bundle, which other receivers keep as a zip, of a sparse file, and of a file with
    /// encoded content.
    fn mark_kind(&self, object: &PlannedObject, mut entry: File) -> File {
        if self.bundles.contains(&object.file) {
            entry.content_type = Some(BUNDLE_TYPE.into());
            entry.headwater.is_bundle = true;
        }
        entry.headwater.is_sparse = self.sparse.contains(&object.file);
        self.encodings.get(&object.file).iter().for_each(|encoding| encoding.describe(&mut entry));
        entry
    }

    /// Returns the entries of the FDT for the objects from `first` on. `digests` holds the digests of all
    /// blocks of these objects.
    pub(super) fn entries_from(&self, first: usize, digests: &[Vec<Digest>]) -> Vec<File> {
        let objects = &self.objects[first..];
        let entry = |(object, blocks): (&PlannedObject, &Vec<Digest>)| {
            let of_file = |(other, _): &(&PlannedObject, &Vec<Digest>)| other.file == object.file;
            let file = objects.iter().zip(digests).filter(of_file).flat_map(|(_, blocks)| blocks);
            entry(
                &self.files[object.file],
                self.parts.get(&object.file),
                object,
                Some(file_digest(file)),
                blocks,
            )
        };
        objects.iter().zip(digests).map(entry).collect()
    }
}

fn refuse_same_names(files: &[FileToSend]) -> Result<(), PlanError> {
    let mut paths: Vec<&RelativePath> = files.iter().map(|file| &file.path).collect();
    paths.sort_unstable();
    match paths.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(PlanError::SameName(pair[0].clone())),
        None => Ok(()),
    }
}

/// Cuts a whole file into blocks whose sizes differ by at most one symbol.
fn partition(bytes: u64, config: PlanConfig, memory: u64) -> Result<Partition, PartitionError> {
    let largest = match config.scheme {
        Scheme::ReedSolomon => Some(REED_SOLOMON_BLOCK_SYMBOLS),
        Scheme::LdpcStaircase | Scheme::LdpcTriangle => Some(ldpc_block_symbols(config.symbol_size, memory)),
        Scheme::NoCode | Scheme::RaptorQ => None,
    };
    if let Some(largest) = largest {
        return Partition::new(bytes, config.symbol_size, largest);
    }
    let size = u64::from(config.symbol_size).max(1);
    let symbols = bytes.div_ceil(size);
    let blocks = headwater_fec::blocks_for(symbols, config.order);
    // Blocks of long symbols have fewer symbols: receivers refuse blocks of more bytes.
    let least = u32::try_from(symbols.div_ceil(CODED_BLOCK_BYTES_MAX / size)).unwrap_or(u32::MAX);
    Partition::with_blocks(bytes, config.symbol_size, blocks.max(least))
}

/// Maximum number of blocks in an object: the scheme must number the blocks, and the FDT must carry the
/// digests.
fn blocks_max(scheme: Scheme) -> u32 {
    let described = u32::try_from(fdt::BLOCK_DIGESTS_MAX).expect("a few thousand");
    match scheme {
        Scheme::RaptorQ => 255,
        Scheme::LdpcStaircase | Scheme::LdpcTriangle => described.min(1 << 12),
        Scheme::NoCode | Scheme::ReedSolomon => described,
    }
}

fn is_ldpc(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::LdpcStaircase | Scheme::LdpcTriangle)
}

/// Maximum number of LDPC encoding symbols that a sender makes within `memory`, at most [`LDPC_SYMBOLS`].
fn ldpc_symbols(config: PlanConfig, memory: u64) -> u64 {
    LDPC_SYMBOLS.min(2 * u64::from(ldpc_block_symbols(config.symbol_size, memory)))
}

/// Cuts a file into runs of blocks, each with an offset. A run begins with the large blocks and ends with the
/// small blocks, like the whole file, so RFC 5052's partitioning of the run's own length yields the same
/// blocks.
fn runs(whole: Partition, config: PlanConfig) -> Result<Vec<(u64, Partition)>, PartitionError> {
    let per_run = blocks_max(config.scheme);
    let offset = |sbn: u32| whole.block(sbn).map_or(whole.transfer_length(), |block| block.offset);
    let run = |run: u32| {
        let first = run * per_run;
        let blocks = (whole.blocks() - first).min(per_run);
        let (start, end) = if blocks == 0 { (0, 0) } else { (offset(first), offset(first + blocks)) };
        Ok((start, Partition::with_blocks(end - start, config.symbol_size, blocks)?))
    };
    (0..whole.blocks().div_ceil(per_run).max(1)).map(run).collect()
}

/// Coding parameters common to the objects of a session.
#[derive(Clone, Copy, Debug)]
struct Coding {
    scheme: Scheme,
    /// Source symbols of the session.
    symbols: u64,
    /// Maximum number of encoding symbols of all LDPC objects together.
    ldpc_symbols: u64,
}

impl Coding {
    fn fti(self, partition: Partition) -> Fti {
        let transfer_length = partition.transfer_length();
        let symbol_size = partition.symbol_size();
        let max_block = partition.block(0).map_or(1, |block| block.symbols);
        let small =
            |value: u32| u8::try_from(value).expect("blocks are cut so that the scheme can number them");
        match self.scheme {
            Scheme::RaptorQ => Fti::RaptorQ {
                transfer_length,
                symbol_size,
                blocks: small(partition.blocks().max(1)),
                sub_blocks: 1,
                alignment: if symbol_size.is_multiple_of(4) { 4 } else { 1 },
            },
            Scheme::ReedSolomon => Fti::ReedSolomon {
                transfer_length,
                symbol_size,
                max_block: small(max_block),
                max_symbols: u8::MAX,
            },
            Scheme::NoCode => Fti::NoCode { transfer_length, symbol_size, max_block },
            Scheme::LdpcStaircase | Scheme::LdpcTriangle => {
                let code = Ldpc {
                    transfer_length,
                    symbol_size,
                    n1_minus3: 0,
                    g: 1,
                    max_block,
                    max_symbols: self.ldpc_symbols_max(max_block),
                    seed: LDPC_SEED,
                };
                match self.scheme {
                    Scheme::LdpcStaircase => Fti::LdpcStaircase(code),
                    _ => Fti::LdpcTriangle(code),
                }
            }
        }
    }

    /// max_n of LDPC: n = 2k, or up to 4k for long blocks of LDPC-Staircase while all blocks of the session
    /// together have at most `ldpc_symbols` encoding symbols. At least as many repair symbols as a source
    /// column has entries, which matters for objects of one or two symbols. Such an object is a single block,
    /// so n is exact; a sender uses k + 1 of the symbols.
    fn ldpc_symbols_max(self, max_block: u32) -> u32 {
        let least = (2 * max_block).max(max_block + LDPC_N1);
        if self.scheme != Scheme::LdpcStaircase || max_block < LDPC_LONG_BLOCK {
            return least;
        }
        let share = u64::from(max_block) * self.ldpc_symbols / self.symbols.max(1);
        u32::try_from(share).unwrap_or(u32::MAX).clamp(least, LDPC_EXPANSION_MAX * max_block)
    }
}

fn entry(
    file: &FileToSend,
    part: Option<&StreamPart>,
    object: &PlannedObject,
    digest: Option<Digest>,
    blocks: &[Digest],
) -> File {
    let (index, count) = object.segment;
    let length = object.partition.transfer_length();
    let location = file.path.to_content_location();
    let segment = (count > 1).then(|| Segment {
        index,
        count,
        offset: object.offset,
        file: location.clone(),
        file_length: file.bytes,
    });
    File {
        toi: object.toi,
        content_location: if count > 1 { format!("{location}.segment-{index:05}") } else { location },
        content_length: Some(length),
        transfer_length: Some(length),
        oti: OtiAttributes::from(&object.fti),
        headwater: Headwater {
            digest,
            block_digests: blocks.iter().map(short).collect(),
            digests_follow: digest.is_none(),
            segment,
            stream: part.map(|part| fdt::StreamPart {
                name: part.stream.to_content_location(),
                offset: part.offset,
                end: part.end,
            }),
            mode: file.mode,
            modified: file.modified,
            ..Headwater::default()
        },
        ..File::default()
    }
}

/// Maps positions to ESIs, block by block. Most codes send symbol p at position p; LDPC symbols are sent in a
/// random order (Lucas et al. 2010, FEC for the transfer).
///
/// Memory: 4 bytes a block, and 4 bytes a symbol for each distinct n of LDPC blocks: 576 kB for a block of 72
/// 000 symbols, at most 0.6 % of content in which no two blocks have the same length.
#[derive(Debug, Default)]
pub(super) struct Orders {
    known: BTreeMap<(u32, u32), u32>,
    orders: Vec<Arc<[u32]>>,
    by_block: Vec<Option<u32>>,
}

impl Orders {
    /// Adds the next block, with n = `encoding_symbols`, in the order that the code prefers; by ESI if not
    /// `is_shuffled`.
    pub(super) fn push(&mut self, codec: &dyn BlockCodec, encoding_symbols: u32, is_shuffled: bool) {
        let seed = codec.sending_seed().filter(|_| is_shuffled);
        self.by_block.push(seed.map(|seed| {
            *self.known.entry((seed, encoding_symbols)).or_insert_with(|| {
                self.orders.push(sending_order(seed, encoding_symbols));
                u32::try_from(self.orders.len() - 1).expect("no more than blocks")
            })
        }));
    }

    /// Returns the ESI at a position below n of a block.
    pub(super) fn esi(&self, block: u32, position: u32) -> u32 {
        match self.by_block[block as usize] {
            None => position,
            Some(order) => self.orders[order as usize][position as usize],
        }
    }
}
