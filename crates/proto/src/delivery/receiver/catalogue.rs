//! Files that the FDT has announced, and the objects that carry the files.

use std::collections::{BTreeMap, BTreeSet};

use headwater_fec::{BlockCodec, Partition, Scheme};
use headwater_wire::fdt::{FdtError, File, Headwater, Segment, Withdrawal};
use headwater_wire::{Fti, PayloadId};

use super::DECODING_BYTES;
use super::block::Block;
use super::pending::Room;
use crate::delivery::FDT_BYTES_MAX;
use crate::delivery::encoding::{ContentCoding, Encoding, EncodingError};
use crate::delivery::name::RelativePath;
use crate::delivery::object::{Codecs, partition_of};
use crate::delivery::object::{Digest, ShortDigest};
use crate::delivery::plan::{OBJECTS_MAX, StreamPart};
use crate::delivery::repair::FileLocation;
use crate::delivery::store::{FileIndex, FileSpec, ObjectIndex, ObjectSpec, StoreError};

/// Memory of a block for the duration of the session, in bytes: the state, the digest, and the announced
/// short digest.
const BLOCK_BYTES: usize = size_of::<Block>() + size_of::<Digest>() + size_of::<ShortDigest>();
/// Maximum length of a coded block, in bytes; a receiver refuses objects with longer blocks. The longest
/// blocks of Headwater senders have 14 415 symbols, or fewer long symbols.
pub(in crate::delivery) const CODED_BLOCK_BYTES_MAX: u64 = 32 << 20;
/// Maximum memory to decode a block in strips of [`STRIP_WIDTH_MIN`], in bytes. For LDPC with n = 2k this
/// admits blocks of up to 134 000 symbols, whatever the symbol length.
const STRIPS_BYTES_MAX: u64 = 96 << 20;
/// Minimum width of the strips in which a block is decoded, in bytes: a vector or a cache line.
pub const STRIP_WIDTH_MIN: u16 = 64;

/// Room for the parameters of any code.
const FTI_BYTES_MAX: usize = 32;

/// All announced files and objects.
#[derive(Debug, Default)]
pub struct Catalogue {
    pub files: Vec<FileState>,
    pub objects: Vec<ObjectState>,
    /// Number of blocks of all objects.
    pub blocks: u64,
    by_toi: BTreeMap<u128, Announced>,
    /// Files of several objects, by the values common to all segments.
    segmented: BTreeMap<SegmentKey, FileIndex>,
    codecs: Codecs,
    /// Number of objects that the announced files will have.
    places: usize,
    /// Bytes of all accepted names, at most [`FDT_BYTES_MAX`], the length of one FDT.
    name_bytes: usize,
    awaiting_fti: usize,
}

type SegmentKey = (RelativePath, u64, u32);

/// State of a transport object identifier.
#[derive(Clone, Debug)]
pub enum Announced {
    /// The object is being received.
    Object(ObjectIndex),
    /// The object was refused: its packets are dropped.
    Refused,
    /// The FDT does not state the coding: the first packet with EXT_FTI will.
    AwaitsFti(Box<File>),
}

#[derive(Debug)]
pub struct FileState {
    pub spec: FileSpec,
    /// Objects of the file in segment order; `None` for an object that is not announced yet.
    pub objects: Vec<Option<ObjectIndex>>,
    /// Number of objects not announced and blocks not done; at 0 the file is whole.
    pub left: u64,
    /// Whether the FDT will announce the file's digest: before that, the file is not whole.
    pub digest_follows: bool,
    /// Source symbols of the objects announced, and symbols received.
    pub symbols: u64,
    pub symbols_held: u64,
    /// A file of the same name and length exists at the destination and has not been compared.
    pub is_present: bool,
    /// The existing file is being compared, or queued for comparison: meanwhile no block is wanted and
    /// packets wait.
    pub is_compared: bool,
    pub outcome: Option<FileOutcome>,
    /// Place at repair servers.
    pub location: FileLocation,
    /// Set for a part of a stream.
    pub part: Option<StreamPart>,
    /// Whether the file is a bundle.
    pub is_bundle: bool,
}

impl FileState {
    /// Whether the existing file is being compared, or will be once the digests of the blocks arrive. If the
    /// digest of the file is known (from a preface), the digests of the blocks arrive within seconds.
    #[inline]
    pub fn awaits_comparison(&self) -> bool {
        let will_be = self.is_present && self.spec.digest.is_some() && self.outcome.is_none();
        self.is_compared || will_be
    }

    /// Whether an entry agrees with earlier entries on the file's digest, as far as the digest is known.
    fn agrees_on_digest(&self, told: &Headwater) -> bool {
        match (told.digest, self.spec.digest) {
            (Some(told), Some(known)) => told == known,
            (Some(_), None) => self.digest_follows,
            // An instance from before the digest was known.
            (None, Some(_)) => told.digests_follow || told.withdrawn.is_some(),
            (None, None) => true,
        }
    }
}

impl FileOutcome {
    /// Whether nothing is missing of the file.
    pub fn is_done(self) -> bool {
        self.is_in_place() || self == Self::Unwanted
    }

    /// Whether the receiver has the file.
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::Done | Self::Present)
    }
}

/// Final state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOutcome {
    /// Whole, verified, under its final name.
    Done,
    /// Already in place, whole and verified without being received.
    Present,
    /// Not wanted by the receiver's user.
    Unwanted,
    /// Whole, but its digest is wrong.
    Mismatch,
    /// The store cannot hold the file, the FDT does not describe all segments, or the sender withdrew the
    /// file.
    Refused,
}

#[derive(Debug)]
pub struct ObjectState {
    pub toi: u128,
    pub file: FileIndex,
    /// Offset in the file, in bytes.
    pub offset: u64,
    pub fti: Fti,
    pub partition: Partition,
    /// Codec, which also gives n for a block of k symbols.
    pub codec: std::sync::Arc<dyn BlockCodec>,
    pub blocks: Vec<Block>,
    /// Digests announced for all blocks, or for the first blocks if more follow; empty if the sender
    /// announced no digest.
    pub promised: Vec<ShortDigest>,
    /// Whether the FDT will announce more digests: a block counts as whole only once its digest is known.
    pub digests_follow: bool,
    /// Computed digests of the blocks that are done.
    pub digests: Vec<Digest>,
}

impl ObjectState {
    /// Returns the block of a symbol with a payload of `bytes` bytes, if the object can have that symbol.
    pub fn block_of(&self, id: PayloadId, bytes: usize) -> Option<headwater_fec::Block> {
        let size = self.partition.symbol_size();
        let block = self.partition.block(id.sbn)?;
        // Only the object's last source symbol may travel without its padding.
        let unpadded = usize::from(block.symbol_bytes(id.esi, size));
        let length_fits = bytes == usize::from(size) || (unpadded > 0 && bytes == unpadded);
        (length_fits && id.esi < self.codec.esi_end(block.symbols)).then_some(block)
    }
}

/// Reason why an entry of the FDT is not received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Name(#[from] crate::delivery::name::NameError),
    #[error("{0}")]
    Encoding(#[from] EncodingError),
    #[error("its coding is not supported: {0}")]
    Coding(String),
    #[error(
        "the session has more blocks than a receiver has memory for; send fewer files at once, or longer blocks"
    )]
    TooManyBlocks,
    #[error("the session has more objects than a receiver takes ({OBJECTS_MAX})")]
    TooManyObjects,
    #[error("the names of the session are longer than a receiver keeps ({FDT_BYTES_MAX} bytes)")]
    NamesTooLong,
    #[error("the segments of the file contradict one another")]
    Segments,
    #[error("the file it belongs to was refused")]
    FileRefused,
    #[error("{0}")]
    Store(StoreError),
    #[error("its coding cannot be read: {0}")]
    NoCoding(#[from] FdtError),
    #[error("it overlaps with other parts of the stream, or lies beyond its end")]
    Part,
    #[error("{}", withdrawal(*.0))]
    Withdrawn(Withdrawal),
}

const fn withdrawal(why: Withdrawal) -> &'static str {
    match why {
        Withdrawal::Changed => "its sender left it out, because it changed while it was being sent",
        Withdrawal::Unreadable => "its sender left it out, because it could not read it any more",
        Withdrawal::Other => "its sender left it out",
    }
}

/// A new object for the store, and the object's file if the file is new, too.
pub struct Admitted {
    pub object: ObjectIndex,
    pub object_spec: ObjectSpec,
    pub new_file: Option<FileIndex>,
}

impl Catalogue {
    pub fn look_up(&self, toi: u128) -> Option<&Announced> {
        self.by_toi.get(&toi)
    }

    /// Whether the number of objects, including refused objects, has reached [`OBJECTS_MAX`].
    pub fn is_full(&self) -> bool {
        self.by_toi.len() >= OBJECTS_MAX
    }

    /// Reserves memory for the names of an entry. The memory is never released.
    pub fn take_names(&mut self, entry: &File) -> Result<(), Refusal> {
        let of_file = entry.headwater.segment.as_ref().map_or(0, |segment| segment.file.len());
        let bytes = self.name_bytes + entry.content_location.len() + of_file;
        if bytes > FDT_BYTES_MAX {
            return Err(Refusal::NamesTooLong);
        }
        self.name_bytes = bytes;
        Ok(())
    }

    pub fn refuse(&mut self, toi: u128) {
        self.set(toi, Announced::Refused);
    }

    fn set(&mut self, toi: u128, announced: Announced) {
        if let Some(Announced::AwaitsFti(_)) = self.by_toi.insert(toi, announced) {
            self.awaiting_fti -= 1;
        }
    }

    /// Whether an announced object still lacks its coding.
    pub fn is_awaiting_fti(&self) -> bool {
        self.awaiting_fti > 0
    }

    /// Keeps an entry whose coding EXT_FTI will state. Attributes that only Headwater senders write are left
    /// out: Headwater senders state the coding in the FDT, and an entry must not cost more than its name.
    pub fn await_fti(&mut self, entry: &File, coding: Option<ContentCoding>) -> Result<(), Refusal> {
        RelativePath::from_content_location(&entry.content_location)?;
        let kept = File {
            toi: entry.toi,
            content_location: entry.content_location.clone(),
            content_length: entry.content_length,
            content_md5: entry.content_md5,
            content_encoding: coding.map(|coding| coding.name().to_owned()),
            ..File::default()
        };
        if self.by_toi.insert(entry.toi, Announced::AwaitsFti(Box::new(kept))).is_none() {
            self.awaiting_fti += 1;
        }
        Ok(())
    }

    /// Whether an entry agrees with an earlier entry for the same object, if there is an earlier entry.
    pub fn agrees(&self, entry: &File, fti: Option<Fti>) -> bool {
        let index = match self.by_toi.get(&entry.toi) {
            Some(Announced::Object(index)) => index,
            Some(Announced::AwaitsFti(kept)) => return kept.content_location == entry.content_location,
            Some(Announced::Refused) | None => return true,
        };
        let object = &self.objects[index.0];
        let file = &self.files[object.file.0];
        let name = entry.headwater.segment.as_ref().map_or(&entry.content_location, |segment| &segment.file);
        let mut blocks = entry.headwater.block_digests.iter().zip(&object.promised);
        fti.is_none_or(|fti| fti == object.fti)
            && file.agrees_on_digest(&entry.headwater)
            && entry.headwater.modified.zip(file.spec.modified).is_none_or(|(told, known)| told == known)
            && blocks.all(|(told, known)| told == known)
            && RelativePath::from_content_location(name).as_ref() == Ok(&file.spec.path)
    }

    /// Whether the entries include all known objects.
    pub fn is_described_by(&self, entries: &[File]) -> bool {
        let tois: BTreeSet<u128> = entries.iter().map(|entry| entry.toi).collect();
        self.by_toi.keys().all(|toi| tois.contains(toi))
    }

    /// Adds the object of an entry of the FDT, with the encoding of its file.
    pub fn admit(
        &mut self,
        entry: &File,
        fti: Fti,
        encoding: Option<Encoding>,
        room: &mut Room,
    ) -> Result<Admitted, Refusal> {
        let length = fti.transfer_length();
        let codec = self.codecs.of(&fti).map_err(|error| Refusal::Coding(error.to_string()))?;
        let partition = partition_of(&fti).map_err(|error| Refusal::Coding(error.to_string()))?;
        let blocks = u64::from(partition.blocks());
        if partition.max_block_symbols() > codec.k_max() {
            let (symbols, most) = (partition.max_block_symbols(), codec.k_max());
            return Err(Refusal::Coding(format!(
                "its blocks have {symbols} symbols, where {most} are possible"
            )));
        }
        check_block(&*codec, partition)?;
        let promised = promised(entry, partition)?;

        let count = usize::try_from(blocks).map_err(|_| Refusal::TooManyBlocks)?;
        // Memory that the store lacks to decode the longest block.
        let longest = partition.max_block_symbols();
        let decoding = match codec.scheme() {
            Scheme::NoCode => 0,
            _ if codec.decodes_in_strips() => {
                codec.strip_bytes(longest, partition.symbol_size().min(STRIP_WIDTH_MIN).into())
            }
            _ => codec.decoding_bytes(longest, longest as usize),
        };
        let lent = usize::try_from(decoding.saturating_sub(DECODING_BYTES)).unwrap_or(usize::MAX);
        if !room.has_beside(count.saturating_mul(BLOCK_BYTES), lent) {
            return Err(Refusal::TooManyBlocks);
        }
        let (file, new_file, segment) = self.file_of(entry, fti, encoding)?;
        if !self.adjoins(file, &segment, length) {
            return Err(Refusal::Segments);
        }
        self.check_symbol_size(file, fti)?;
        let state = &mut self.files[file.0];
        let object = ObjectIndex(self.objects.len());
        let place = state.objects.get_mut(segment.index as usize).filter(|place| place.is_none());
        let place = place.ok_or(Refusal::Segments)?;
        *place = Some(object);
        room.lend(lent);
        room.take_for_good(count * BLOCK_BYTES);
        // `left` counted the object itself; now `left` counts the object's blocks.
        state.left = state.left - 1 + blocks;
        state.symbols += partition.symbols();
        self.blocks += blocks;
        let identity = identity(&state.spec, segment.offset, fti);
        self.objects.push(ObjectState {
            toi: entry.toi,
            file,
            offset: segment.offset,
            fti,
            partition,
            codec: std::sync::Arc::clone(&codec),
            blocks: vec![Block::Unseen; count],
            digests_follow: entry.headwater.digests_follow && promised.len() < count,
            promised,
            digests: vec![[0; 32]; count],
        });
        self.set(entry.toi, Announced::Object(object));
        let object_spec = ObjectSpec { file, offset: segment.offset, partition, codec, identity };
        Ok(Admitted { object, object_spec, new_file: new_file.then_some(file) })
    }

    /// Returns the file of an entry: a new file, or the file of earlier announced segments.
    fn file_of(
        &mut self,
        entry: &File,
        fti: Fti,
        encoding: Option<Encoding>,
    ) -> Result<(FileIndex, bool, Segment), Refusal> {
        let length = fti.transfer_length();
        let whole = || Segment {
            index: 0,
            count: 1,
            offset: 0,
            file: entry.content_location.clone(),
            file_length: length,
        };
        let segment = entry.headwater.segment.clone().unwrap_or_else(whole);
        let count = segment.count as usize;
        // Stores address a file in symbols.
        let is_aligned = segment.offset.is_multiple_of(fti.symbol_size().into());
        if !is_aligned || !is_within_file(&segment, length) {
            return Err(Refusal::Segments);
        }
        let path = RelativePath::from_content_location(&segment.file)?;
        let key = (path.clone(), segment.file_length, segment.count);
        if count > 1
            && let Some(file) = self.segmented.get(&key)
        {
            let state = &self.files[file.0];
            if !state.agrees_on_digest(&entry.headwater) || state.spec.encoding != encoding {
                return Err(Refusal::Segments);
            }
            let refused = state.outcome == Some(FileOutcome::Refused);
            return if refused { Err(Refusal::FileRefused) } else { Ok((*file, false, segment)) };
        }
        if self.places + count > OBJECTS_MAX {
            return Err(Refusal::TooManyObjects);
        }
        let part = entry.headwater.stream.as_ref().map(|part| {
            let stream = RelativePath::from_content_location(&part.name)?;
            Ok::<_, Refusal>(StreamPart { stream, offset: part.offset, end: part.end })
        });
        let part = part.transpose()?;
        self.places += count;
        let file = FileIndex(self.files.len());
        self.files.push(FileState {
            location: FileLocation::of(entry, &path),
            is_bundle: entry.headwater.is_bundle && part.is_none(),
            part,
            spec: FileSpec {
                mode: entry.headwater.mode,
                modified: entry.headwater.modified,
                md5: entry.content_md5.filter(|_| count == 1),
                digest: entry.headwater.digest,
                is_sparse: entry.headwater.is_sparse && encoding.is_none(),
                encoding,
                ..FileSpec::new(path, segment.file_length)
            },
            objects: vec![None; count],
            left: count as u64,
            digest_follows: entry.headwater.digests_follow && entry.headwater.digest.is_none(),
            symbols: 0,
            symbols_held: 0,
            is_present: false,
            is_compared: false,
            outcome: None,
        });
        if count > 1 {
            self.segmented.insert(key, file);
        }
        Ok((file, true, segment))
    }

    /// Whether a segment begins at the end of the previous segment and ends at the beginning of the next
    /// segment, as far as both are known. When all segments are known, the segments cover the file once, in
    /// the order of the file's digest.
    fn adjoins(&self, file: FileIndex, segment: &Segment, length: u64) -> bool {
        let places = &self.files[file.0].objects;
        let known = |index: usize| places.get(index).copied().flatten().map(|at| &self.objects[at.0]);
        let index = segment.index as usize;
        let before = index.checked_sub(1).and_then(known);
        before.is_none_or(|object| object.offset + object.partition.transfer_length() == segment.offset)
            && known(index + 1).is_none_or(|object| segment.offset + length == object.offset)
    }

    /// Adds new information of an entry about a known object: digests of more blocks, and the digest of the
    /// file. Returns the number of blocks with digests before, and the file's digest if new. The entry must
    /// agree with the known information.
    pub fn learn(&mut self, object: ObjectIndex, told: &Headwater) -> (usize, Option<Digest>) {
        let state = &mut self.objects[object.0];
        let file = &mut self.files[state.file.0];
        let before = state.promised.len();
        let blocks = state.partition.blocks() as usize;
        // Blocks announced without a digest from the start are accepted without verification.
        if state.digests_follow && told.block_digests.len() <= blocks {
            state.promised.extend(told.block_digests.iter().skip(before));
            state.digests_follow = state.promised.len() < blocks;
        }
        let news = told.digest.filter(|_| file.digest_follows);
        file.spec.digest = file.spec.digest.or(news);
        file.digest_follows &= news.is_none();
        (before, news)
    }

    /// Adds the entity tag of a file, which is known as late as the digest.
    pub fn learn_location(&mut self, object: ObjectIndex, entry: &File) {
        let file = &mut self.files[self.objects[object.0].file.0];
        if file.location.etag.is_none() && entry.etag.is_some() {
            file.location.etag = FileLocation::of(entry, &file.spec.path).etag;
        }
    }

    /// Releases the memory of an object just admitted because the store cannot hold the file.
    pub fn forget(&mut self, object: ObjectIndex, room: &mut Room) {
        let object = &mut self.objects[object.0];
        room.give_back(object.blocks.len() * BLOCK_BYTES);
        self.blocks -= object.blocks.len() as u64;
        object.blocks = Vec::new();
        object.promised = Vec::new();
        object.digests = Vec::new();
        self.files[object.file.0].outcome = Some(FileOutcome::Refused);
    }

    /// Checks that the segments of a file agree on the symbol size, which is the width of the file's repair
    /// slots.
    fn check_symbol_size(&self, file: FileIndex, fti: Fti) -> Result<(), Refusal> {
        let first = self.files[file.0].objects.iter().flatten().next();
        let agrees = first.is_none_or(|first| self.objects[first.0].fti.symbol_size() == fti.symbol_size());
        if agrees { Ok(()) } else { Err(Refusal::Segments) }
    }

    /// Ends a file and all its objects. Returns the number of blocks that were waiting for symbols.
    pub fn end_file(&mut self, file: FileIndex, outcome: FileOutcome, room: &mut Room) -> u64 {
        self.files[file.0].outcome = Some(outcome);
        let objects = self.files[file.0].objects.clone();
        objects.into_iter().flatten().map(|object| self.end_object(object, room)).sum()
    }

    /// Ends all blocks of an object. Returns the number of blocks that were waiting for symbols.
    pub fn end_object(&mut self, object: ObjectIndex, room: &mut Room) -> u64 {
        let mut open = 0;
        for (sbn, block) in (0..).zip(&mut self.objects[object.0].blocks) {
            open += u64::from(block.is_waiting());
            room.ended((object, sbn), block.end());
        }
        open
    }

    /// Number of blocks of a file that need symbols.
    pub fn waiting_blocks(&self, file: FileIndex) -> u64 {
        let objects = self.files[file.0].objects.iter().flatten();
        let blocks = objects.flat_map(|object| &self.objects[object.0].blocks);
        blocks.filter(|block| block.is_waiting()).count() as u64
    }

    /// Returns the announced digests of a file's blocks in order, up to the first object whose digests are
    /// not all known.
    pub fn promised(&self, file: FileIndex) -> Vec<ShortDigest> {
        let objects = self.files[file.0].objects.iter().flatten().map(|object| &self.objects[object.0]);
        let is_known = |object: &ObjectState| object.promised.len() == object.blocks.len();
        objects.take_while(|object| is_known(object)).flat_map(|object| object.promised.clone()).collect()
    }

    /// Whether the packets of an object wait for the comparison of its file.
    pub fn awaits_comparison(&self, toi: u128) -> bool {
        let Some(Announced::Object(object)) = self.by_toi.get(&toi) else { return false };
        self.files[self.objects[object.0].file.0].awaits_comparison()
    }

    /// Whether a file is still being received.
    pub fn is_open(&self, file: FileIndex) -> bool {
        self.files[file.0].outcome.is_none()
    }

    /// Returns the files in progress that lack the announcement of a segment.
    pub fn with_holes(&self) -> Vec<FileIndex> {
        let holes = |file: &FileState| file.outcome.is_none() && file.objects.iter().any(Option::is_none);
        (0..self.files.len()).filter(|index| holes(&self.files[*index])).map(FileIndex).collect()
    }

    /// Returns the digests of all blocks of a file in order. The digests are complete when `left` is 0.
    pub fn block_digests(&self, file: FileIndex) -> impl Iterator<Item = &Digest> {
        let objects = self.files[file.0].objects.iter().flatten();
        objects.flat_map(|object| self.objects[object.0].digests.iter())
    }
}

/// Whether a segment lies within the file, with the first segment at the start and the last segment at the
/// end of the file.
fn is_within_file(segment: &Segment, length: u64) -> bool {
    let is_last = segment.count.checked_sub(1) == Some(segment.index);
    let end = segment.offset.checked_add(length);
    segment.index < segment.count
        && (segment.index > 0 || segment.offset == 0)
        && end
            .is_some_and(|end| if is_last { end == segment.file_length } else { end <= segment.file_length })
}

/// Computes [`ObjectSpec::identity`]. Digests are no part of the identity because a digest may be announced
/// later than the object.
fn identity(file: &FileSpec, offset: u64, fti: Fti) -> Option<Digest> {
    if !file.version().is_known() {
        return None;
    }
    let mut coding = [0; FTI_BYTES_MAX];
    let length = fti.emit(&mut coding).ok()?;
    let mut hasher = blake3::Hasher::new_derive_key("headwater 2026 object resumed");
    hasher.update(&file.bytes.to_le_bytes()).update(&offset.to_le_bytes());
    hasher.update(&[fti.encoding_id().codepoint()]).update(&coding[..length]);
    hasher.update(file.path.as_str().as_bytes());
    Some(*hasher.finalize().as_bytes())
}

/// Checks that the longest block can be decoded within the memory limits.
fn check_block(codec: &dyn BlockCodec, partition: Partition) -> Result<(), Refusal> {
    let (k, size) = (partition.max_block_symbols(), partition.symbol_size());
    let block_bytes = u64::from(k) * u64::from(size);
    let refuse = |reason| Err(Refusal::Coding(reason));
    if codec.decodes_in_strips() {
        let needed = codec.strip_bytes(k, size.min(STRIP_WIDTH_MIN).into());
        if needed > STRIPS_BYTES_MAX {
            let n = codec.encoding_symbols(k);
            return refuse(format!(
                "decoding its blocks of {k} of {n} symbols takes {needed} bytes of memory; {STRIPS_BYTES_MAX} are allowed"
            ));
        }
    } else if codec.scheme() != Scheme::NoCode && block_bytes > CODED_BLOCK_BYTES_MAX {
        return refuse(format!(
            "its blocks have {block_bytes} bytes; {CODED_BLOCK_BYTES_MAX} can be decoded"
        ));
    }
    Ok(())
}

fn promised(entry: &File, partition: Partition) -> Result<Vec<ShortDigest>, Refusal> {
    let promised = &entry.headwater.block_digests;
    let blocks = partition.blocks() as usize;
    let is_part = entry.headwater.digests_follow && promised.len() < blocks;
    if promised.is_empty() || promised.len() == blocks || is_part {
        Ok(promised.clone())
    } else {
        Err(Refusal::Coding("as many digests as blocks are needed".to_owned()))
    }
}
