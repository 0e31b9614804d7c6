//! Search for the content of an announced file on disk: in an existing file of the same name, in a file that
//! the user names, and as holes.
//!
//! A file of the same name and length is read block by block until the first difference; a whole file that is
//! equal stays. Otherwise each block is looked for at its own offset, and in a file that the user names also
//! at the multiples of its length. A block that is found is verified like a received block, and the verified
//! bytes are written to the working file. On file systems that share blocks between files, the working file
//! starts as a clone of the older file, and equal blocks stay where they are.
//!
//! The files are read a part at a time, so that blocks of other files are finished in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use headwater_fec::Block;
use headwater_proto::delivery::{
    BlockHasher, Digest, ObjectIndex, ShortDigest, StoreError, block_digest, file_digest,
};
use tracing::{debug, warn};

use super::base::BaseFile;
use super::finish::CHUNK_BYTES;
use super::journal::Stamp;
use super::place::{FilePlace, ObjectPlace, Places};
use crate::system::{files, read_at, zero_digest};

/// Bytes to read before other jobs continue, rounded up to a block.
const PART_BYTES: u64 = 64 << 20;
/// Longest block that is taken from another file: the block is in memory between verification and writing.
const BLOCK_BYTES_MAX: u64 = 32 << 20;

/// Object of a file, with the object's index.
pub(super) type IndexedObject = (ObjectIndex, Arc<ObjectPlace>);

/// Block whose content was put in place.
pub(super) type FoundBlock = (ObjectIndex, u32, Digest);

/// Comparison in progress. Memory: 100 bytes for each block of the file, and a block of at most 32 MiB.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) file: Arc<FilePlace>,
    /// Objects of the file, in order.
    objects: Vec<IndexedObject>,
    /// Index of the object and number of the block there, by number in the file.
    blocks: Vec<(usize, u32)>,
    digest: Digest,
    /// Known digests of blocks.
    promised: Vec<ShortDigest>,
    phase: Phase,
    /// Number of the next block in the file.
    next: usize,
    /// Digests of the blocks of the existing file.
    read: Vec<Digest>,
    /// Numbers of the blocks that are in place.
    found: BTreeSet<usize>,
    /// Digests of zeros, by length.
    zeros: BTreeMap<u64, Digest>,
    /// Files to take blocks from, in order of preference.
    bases: Vec<BaseFile>,
    /// Whether the working file began as a clone of the first base.
    is_cloned: bool,
}

/// Step of a comparison.
#[derive(Debug)]
enum Phase {
    Start,
    /// Comparison with the existing file of the same length.
    Whole(File, Stamp),
    /// Search of each block at its own offset.
    InPlace,
    /// Search of the blocks of a length at the multiples of this length: bases and lengths to go, and offset.
    Moved {
        searches: Vec<(usize, u64)>,
        at: u64,
    },
}

/// Result of comparing one part.
#[derive(Debug)]
pub(super) enum ComparisonStep {
    /// Further parts remain.
    More(Vec<FoundBlock>),
    /// The existing file is identical; stamp of the file.
    Whole(Stamp),
    /// All was searched. Blocks that were not found are to be received.
    Done(Vec<FoundBlock>),
}

impl Comparison {
    pub(super) fn new(
        file: Arc<FilePlace>,
        mut objects: Vec<IndexedObject>,
        digest: Digest,
        promised: Vec<ShortDigest>,
    ) -> Self {
        objects.sort_by_key(|(_, object)| object.spec.offset);
        let of_object = |(index, (_, object)): (usize, &IndexedObject)| {
            (0..object.spec.partition.blocks()).map(move |sbn| (index, sbn))
        };
        Self {
            file,
            blocks: objects.iter().enumerate().flat_map(of_object).collect(),
            objects,
            digest,
            promised,
            phase: Phase::Start,
            next: 0,
            read: Vec::new(),
            found: BTreeSet::new(),
            zeros: BTreeMap::new(),
            bases: Vec::new(),
            is_cloned: false,
        }
    }

    /// Returns a bound on the memory of a step, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let blocks = self.objects.iter().map(|(_, object)| {
            let longest = u64::from(object.spec.partition.max_block_symbols());
            longest * object.symbol_bytes() as u64
        });
        blocks.max().unwrap_or(0).min(BLOCK_BYTES_MAX) + CHUNK_BYTES as u64
    }

    /// Compares the next part.
    ///
    /// # Errors
    /// If the working folder cannot be used. An unreadable file counts as different, not as an error.
    pub(super) fn go_on(&mut self, places: &Places) -> Result<ComparisonStep, StoreError> {
        let mut found = Vec::new();
        let mut left = PART_BYTES;
        loop {
            match &mut self.phase {
                Phase::Start => self.start(places),
                Phase::Whole(..) => {
                    if let Some(stamp) = self.compare_whole(places, &mut left)? {
                        return Ok(ComparisonStep::Whole(stamp));
                    }
                }
                Phase::InPlace => self.search_in_place(places, &mut left, &mut found)?,
                Phase::Moved { searches, .. } if searches.is_empty() => {
                    return Ok(ComparisonStep::Done(found));
                }
                Phase::Moved { .. } => self.search_moved(places, &mut left, &mut found)?,
            }
            if left == 0 {
                return Ok(ComparisonStep::More(found));
            }
        }
    }

    fn start(&mut self, places: &Places) {
        let path = &self.file.spec.path;
        let own = places.folder.find(path).filter(|_| places.target.is_none());
        self.phase = Phase::InPlace;
        if let Some((file, stamp)) = own {
            if stamp.bytes == self.file.spec.bytes
                && let Ok(file) = file.try_clone()
            {
                self.phase = Phase::Whole(file, stamp);
            }
            self.bases.push(BaseFile { file, bytes: stamp.bytes, has_moved_blocks: false });
        }
        self.bases.extend(places.base.as_ref().and_then(|base| base.find(path)));
    }

    /// Compares blocks of the existing file. Returns the stamp if the whole file is equal; begins the search
    /// of single blocks at the first difference.
    fn compare_whole(&mut self, places: &Places, left: &mut u64) -> Result<Option<Stamp>, StoreError> {
        let Phase::Whole(file, stamp) = &self.phase else { return Ok(None) };
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut is_same = true;
        while *left > 0
            && let Some((_, object, block)) = self.block(self.read.len())
        {
            let digest = digest_of(file, object.offset(&block), &block, &mut chunk).ok();
            let promised = self.promised.get(self.read.len());
            let digest = digest.filter(|digest| promised.is_none_or(|promised| digest.starts_with(promised)));
            let Some(digest) = digest else {
                is_same = false;
                break;
            };
            self.read.push(digest);
            *left = left.saturating_sub(block.bytes);
        }
        if is_same && self.block(self.read.len()).is_some() {
            return Ok(None);
        }
        // A file that changes during the comparison is another file.
        let is_unchanged = places.folder.find(&self.file.spec.path).is_some_and(|(_, now)| now == *stamp);
        if !is_same || !is_unchanged || file_digest(&self.read) != self.digest {
            self.phase = Phase::InPlace;
            return Ok(None);
        }
        if let Err(error) = places.folder.adopt(file, &self.file.spec) {
            warn!("{error}; its content is as announced");
        }
        places.give_up(&self.file);
        places.discard(&self.file.key())?;
        let stamp = places.folder.stamp(&self.file.spec.path);
        if stamp.is_none() {
            self.phase = Phase::InPlace;
        }
        Ok(stamp)
    }

    /// Returns the object and the block with this number in the file.
    fn block(&self, number: usize) -> Option<(ObjectIndex, &Arc<ObjectPlace>, Block)> {
        let &(index, sbn) = self.blocks.get(number)?;
        let (object, place) = &self.objects[index];
        Some((*object, place, place.spec.partition.block(sbn)?))
    }

    fn search_in_place(
        &mut self,
        places: &Places,
        left: &mut u64,
        found: &mut Vec<FoundBlock>,
    ) -> Result<(), StoreError> {
        if self.next == 0 {
            self.is_cloned =
                self.bases.first().is_some_and(|base| places.clone_into_content(&self.file, base));
        }
        let mut room = Vec::new();
        while *left > 0 {
            let Some((index, object, block)) = self.block(self.next) else {
                self.phase = self.moved_searches();
                return Ok(());
            };
            let (object, offset) = (Arc::clone(object), object.offset(&block));
            let number = self.next;
            self.next += 1;
            let Some(promised) = self.promised.get(number).copied() else { continue };
            let is_zero = self.file.spec.is_sparse && self.zero_digest(block.bytes).starts_with(&promised);
            *left = left.saturating_sub(block.bytes);
            let digest = if is_zero {
                places.clear(&self.file, offset, block.bytes)?;
                Some(self.zero_digest(block.bytes))
            } else {
                self.take(places, &promised, (offset, block.bytes), &mut room)?
            };
            if let Some(digest) = digest {
                self.found.insert(number);
                found.push((index, block.sbn, digest));
            }
            debug_assert_eq!(object.file.index, self.file.index, "an object of this file");
        }
        Ok(())
    }

    /// Takes a block from the first base that has the block at the same offset.
    fn take(
        &self,
        places: &Places,
        promised: &ShortDigest,
        (offset, bytes): (u64, u64),
        room: &mut Vec<u8>,
    ) -> Result<Option<Digest>, StoreError> {
        let Some(length) = usize::try_from(bytes).ok().filter(|_| bytes <= BLOCK_BYTES_MAX) else {
            return Ok(None);
        };
        room.resize(length, 0);
        for (number, base) in self.bases.iter().enumerate() {
            let is_cloned = self.is_cloned && number == 0;
            let is_read = match is_cloned {
                // Nothing else writes to the clone, unlike to the older file.
                true if offset + bytes <= base.bytes => places.read(&self.file, offset, room).is_ok(),
                _ => offset + bytes <= base.bytes && read_at(&base.file, room, offset).is_ok(),
            };
            let digest = is_read.then(|| block_digest(room)).filter(|digest| digest.starts_with(promised));
            if let Some(digest) = digest {
                if !is_cloned {
                    places.write(&self.file, offset, room)?;
                }
                return Ok(Some(digest));
            }
        }
        Ok(None)
    }

    /// Plans the search of the blocks that were not found at their own offset.
    fn moved_searches(&self) -> Phase {
        let mut lengths = BTreeSet::new();
        for number in (0..self.promised.len()).filter(|number| !self.found.contains(number)) {
            lengths.extend(self.block(number).map(|(_, _, block)| block.bytes));
        }
        let lengths = lengths.into_iter().filter(|bytes| (1..=BLOCK_BYTES_MAX).contains(bytes));
        let bases = || self.bases.iter().enumerate().filter(|(_, base)| base.has_moved_blocks);
        let searches = lengths.flat_map(|bytes| bases().map(move |(number, _)| (number, bytes))).collect();
        Phase::Moved { searches, at: 0 }
    }

    fn search_moved(
        &mut self,
        places: &Places,
        left: &mut u64,
        found: &mut Vec<FoundBlock>,
    ) -> Result<(), StoreError> {
        let Phase::Moved { searches, at } = &self.phase else { return Ok(()) };
        let (Some(&(base, bytes)), mut at) = (searches.last(), *at) else { return Ok(()) };
        let mut wanted = self.missing_of(bytes);
        let mut room = vec![0; usize::try_from(bytes).unwrap_or_default()];
        while *left > 0 {
            let base = &self.bases[base];
            let is_over = wanted.is_empty() || at + bytes > base.bytes;
            if is_over || read_at(&base.file, &mut room, at).is_err() {
                if let Phase::Moved { searches, at } = &mut self.phase {
                    searches.pop();
                    *at = 0;
                }
                return Ok(());
            }
            let digest = block_digest(&room);
            let same = wanted.remove(digest.first_chunk().expect("a digest has 32 bytes"));
            for number in same.into_iter().flatten() {
                let Some((index, object, block)) = self.block(number) else { continue };
                places.write(&self.file, object.offset(&block), &room)?;
                found.push((index, block.sbn, digest));
                self.found.insert(number);
            }
            at += bytes;
            *left = left.saturating_sub(bytes);
        }
        if let Phase::Moved { at: place, .. } = &mut self.phase {
            *place = at;
        }
        Ok(())
    }

    /// Returns the numbers of the blocks of a length that were not found, by digest.
    fn missing_of(&self, bytes: u64) -> BTreeMap<ShortDigest, Vec<usize>> {
        let mut missing: BTreeMap<ShortDigest, Vec<usize>> = BTreeMap::new();
        for (number, promised) in self.promised.iter().enumerate() {
            if !self.found.contains(&number)
                && self.block(number).is_some_and(|(_, _, block)| block.bytes == bytes)
            {
                missing.entry(*promised).or_default().push(number);
            }
        }
        missing
    }

    /// Returns the bytes of the blocks that are no holes, as far as the digests tell.
    pub(super) fn content_bytes(&mut self) -> u64 {
        let mut sum = 0_u64;
        for number in 0..self.blocks.len() {
            let bytes = self.block(number).map_or(0, |(_, _, block)| block.bytes);
            let promised = self.promised.get(number).copied().filter(|_| bytes <= BLOCK_BYTES_MAX);
            if !promised.is_some_and(|promised| self.zero_digest(bytes).starts_with(&promised)) {
                sum = sum.saturating_add(bytes);
            }
        }
        sum
    }

    fn zero_digest(&mut self, bytes: u64) -> Digest {
        *self.zeros.entry(bytes).or_insert_with(|| zero_digest(bytes))
    }
}

fn digest_of(file: &File, offset: u64, block: &Block, chunk: &mut [u8]) -> io::Result<Digest> {
    let mut hasher = BlockHasher::default();
    let mut at = 0;
    while at < block.bytes {
        let length = usize::try_from(block.bytes - at).map_or(chunk.len(), |rest| rest.min(chunk.len()));
        read_at(file, &mut chunk[..length], offset + at)?;
        hasher.update(&chunk[..length]);
        at += length as u64;
    }
    Ok(hasher.finish())
}

impl Places {
    /// Makes a working file share the blocks of an older file. Returns false if something was written to the
    /// working file, which may be holes alone, or the file system cannot share.
    fn clone_into_content(&self, file: &FilePlace, base: &BaseFile) -> bool {
        if self.device().is_some() || file.part.is_some() {
            return false;
        }
        // Writes of other threads wait for the clone.
        *file.is_clone.get_or_init(|| {
            let Ok(content) = self.content(file) else { return false };
            if files::share_blocks(&*content, &base.file).is_err() {
                return false;
            }
            debug!("'{}' begins as a clone of its older version", file.spec.path);
            content.set_len(file.spec.bytes).is_ok()
        })
    }
}
