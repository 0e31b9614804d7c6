//! Finishing blocks and files: decode, verify, name.
//!
//! Decoding in strips: blocks of codes whose symbols are sums of other symbols may be longer than memory.
//! Such blocks stay on disk, and some bytes of each symbol are decoded at a time.

use std::fs::File;
use std::io;
use std::sync::Arc;

use headwater_fec::{Block, BlockCodec, DecodeError, Repair};
use headwater_proto::delivery::{
    BlockHasher, BlockJob, DECODING_BYTES, FileIndex, STRIP_WIDTH_MIN, StoreError, StoreReport, block_digest,
};
use md5::{Digest as _, Md5};

use super::compare::{Comparison, ComparisonStep, FoundBlock};
use super::decode::{self, ContentComparison};
use super::journal::{self, Journal, Stamp};
use super::kept::BLOCKS_BYTES_MAX;
use super::ledger::JOURNAL_NEW;
use super::place::{FilePlace, ObjectPlace, Places};
use super::unpack;

/// Bytes of a file read and hashed at once: fits in a processor's cache.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Work that takes time.
#[derive(Debug)]
pub(super) enum Job {
    /// Decode and hash a block with the symbols in so many slots.
    Block(Arc<ObjectPlace>, BlockJob, u32),
    /// Give a file its name.
    File(Arc<FilePlace>),
    /// Give a stream its name: its last part, and whether all parts are there.
    Stream(Arc<FilePlace>, bool),
    /// Compare a part of the file already in place.
    Compare(Box<Comparison>),
    /// Compare the files in place with the members of a bundle.
    CompareBundle(Arc<FilePlace>),
    /// Compare a part of the file in place with the digest of decoded content.
    CompareContent(Box<ContentComparison>),
    /// Sync files to disk, and then the journal up to this length.
    Sync(Vec<Arc<FilePlace>>, Arc<File>, u64),
    /// Sync files to disk, and compact the old journal up to this length.
    Compact(Vec<Arc<FilePlace>>, Arc<File>, u64),
}

/// Result of a job.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A report for the receiver.
    Report(StoreReport),
    /// A file has its final name.
    Placed(FileIndex, Stamp),
    /// The file already in place is identical to the announced file.
    Present(FileIndex, Stamp),
    /// Blocks found on disk, and a comparison to continue.
    Comparing(Vec<FoundBlock>, Box<Comparison>),
    /// A comparison of decoded content to continue.
    ComparingContent(Box<ContentComparison>),
    /// Work that ended early because the session ends.
    Stopped,
    /// Blocks found on disk, and the end of the comparison of a file.
    Compared(Vec<FoundBlock>, FileIndex),
    /// Files and journal are synced to disk.
    Synced,
    /// Files are synced to disk, and the journal is compacted up to this length, or the error.
    Compacted(io::Result<Journal>, u64),
}

impl Job {
    /// Returns a bound on the memory of the job, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Block(object, job, _) if !job.missing.is_empty() => {
                let (symbols, codec) = (object.block(job.sbn).symbols, &*object.spec.codec);
                let more = u64::from(job.repairs).saturating_sub(job.missing.len() as u64);
                let decoding = if codec.decodes_in_strips() {
                    codec.strip_bytes(symbols, strip_width(codec, symbols))
                } else {
                    codec.decoding_bytes(symbols, job.missing.len()) + 2 * more * object.symbol_bytes() as u64
                };
                decoding + CHUNK_BYTES as u64
            }
            Self::Block(object, job, slots) if *slots > job.repairs => {
                let symbols = u64::from(object.block(job.sbn).symbols);
                symbols * object.symbol_bytes() as u64 + CHUNK_BYTES as u64
            }
            Self::Compact(..) => 2 * BLOCKS_BYTES_MAX as u64,
            Self::Compare(comparison) => comparison.bytes(),
            Self::CompareBundle(_) => unpack::BYTES_MAX,
            Self::File(file) => {
                let unpacking = if file.is_bundle { unpack::BYTES_MAX } else { CHUNK_BYTES as u64 };
                unpacking + file.spec.encoding.map_or(0, |_| decode::BYTES_MAX)
            }
            _ => CHUNK_BYTES as u64,
        }
    }

    /// Runs the job. An error fails the store.
    pub(super) fn run(self, places: &Places) -> Result<Outcome, StoreError> {
        match self {
            Self::Block(object, job, slots) => match finish_block(places, &object, &job, slots) {
                // The result is not needed: the file was given up meanwhile.
                Err(_) if object.file.is_over() => {
                    let report = StoreReport::BlockNeedsMore { object: job.object, sbn: job.sbn, more: 1 };
                    Ok(Outcome::Report(report))
                }
                finished => finished.map(Outcome::Report),
            },
            Self::File(file) => match finish_file(places, &file) {
                Err(_) if file.is_over() => Ok(Outcome::Report(StoreReport::FileMismatch(file.index))),
                finished => finished,
            },
            Self::Stream(last, is_whole) => {
                Ok(Outcome::Placed(last.index, places.publish_stream(&last, is_whole)?))
            }
            Self::Compare(comparison) => {
                let file = Arc::clone(&comparison.file);
                match compare(places, comparison) {
                    // The file was given up meanwhile.
                    Err(_) if file.is_over() => Ok(Outcome::Compared(Vec::new(), file.index)),
                    compared => compared,
                }
            }
            Self::CompareBundle(file) => unpack::compare(places, &file),
            Self::CompareContent(comparison) => {
                let file = Arc::clone(&comparison.file);
                match comparison.go_on(places) {
                    // The file was given up meanwhile.
                    Err(_) if file.is_over() => Ok(Outcome::Compared(Vec::new(), file.index)),
                    compared => compared,
                }
            }
            Self::Sync(files, journal, end) => {
                files.iter().try_for_each(|file| places.sync(file))?;
                let synced = journal::sync(&journal, end).and_then(|()| places.folder.sync_work());
                synced.map_err(|error| places.folder.failed("write the journal", error))?;
                Ok(Outcome::Synced)
            }
            Self::Compact(files, journal, end) => {
                files.iter().try_for_each(|file| places.sync(file))?;
                Ok(Outcome::Compacted(compact(places, &journal, end), end))
            }
        }
    }
}

fn compare(places: &Places, mut comparison: Box<Comparison>) -> Result<Outcome, StoreError> {
    let file = comparison.file.index;
    Ok(match comparison.go_on(places)? {
        ComparisonStep::More(found) => Outcome::Comparing(found, comparison),
        ComparisonStep::Whole(stamp) => Outcome::Present(file, stamp),
        ComparisonStep::Done(found) => Outcome::Compared(found, file),
    })
}

fn compact(places: &Places, old: &File, end: u64) -> io::Result<Journal> {
    let new = places.folder.open_work(JOURNAL_NEW, Some(0)).map_err(io::Error::other)?;
    let (journal, _) = journal::compact(old, end, new, BLOCKS_BYTES_MAX, |_| false)?;
    let (file, end) = journal.written();
    journal::sync(&file, end)?;
    Ok(journal)
}

fn finish_block(
    places: &Places,
    object: &ObjectPlace,
    job: &BlockJob,
    slots: u32,
) -> Result<StoreReport, StoreError> {
    let block = object.block(job.sbn);
    let report = |digest| StoreReport::BlockDone { object: job.object, sbn: job.sbn, digest };
    let in_strips = !job.missing.is_empty() && object.spec.codec.decodes_in_strips();
    if in_strips && let Err(more) = decode_in_strips(places, object, job, &block)? {
        return Ok(StoreReport::BlockNeedsMore { object: job.object, sbn: job.sbn, more });
    }
    // Slots beyond those of the repair symbols hold source symbols.
    if in_strips || (job.missing.is_empty() && slots <= job.repairs) {
        let mut hasher = BlockHasher::default();
        read_through(places, &object.file, object.offset(&block), block.bytes, |chunk| hasher.update(chunk))?;
        return Ok(report(hasher.finish()));
    }
    let length = u64::from(block.symbols).saturating_mul(object.symbol_bytes() as u64);
    let (Ok(bytes), Ok(length)) = (usize::try_from(block.bytes), usize::try_from(length)) else {
        return Err(StoreError(format!("a block of '{}' is longer than memory", object.file.spec.path)));
    };
    let mut content = vec![0; length];
    let mut stored = object.stored_symbols(&block, &places.read_slot_numbers(object, &block, slots)?);
    // Slots of an earlier session may hold symbols that the receiver has forgotten.
    let is_held = |esi: &u32| *esi < block.symbols && job.missing.binary_search(esi).is_err();
    let mut unwritten: Vec<u32> = stored.iter().map(|(_, esi)| *esi).filter(is_held).collect();
    // Slots of an earlier session may hold more; memory is reserved for these.
    let mut repairs_left = job.repairs;
    stored.retain(|(_, esi)| {
        let is_taken = *esi < block.symbols || repairs_left > 0;
        repairs_left -= u32::from(is_taken && *esi >= block.symbols);
        is_taken
    });
    if unwritten.len() + job.missing.len() < block.symbols as usize {
        places.read(&object.file, object.offset(&block), &mut content[..bytes])?;
    }
    if let Err(more) = decode(places, object, job, &block, &stored, &mut content)? {
        return Ok(StoreReport::BlockNeedsMore { object: job.object, sbn: job.sbn, more });
    }
    unwritten.extend(&job.missing);
    unwritten.sort_unstable();
    write_symbols(places, object, job.sbn, &unwritten, &content[..bytes])?;
    Ok(report(block_digest(&content[..bytes])))
}

/// Reads the source symbols in slots, and decodes the missing symbols, or returns the number of further
/// symbols needed. The repair symbols are read into the missing places, to save memory.
fn decode(
    places: &Places,
    object: &ObjectPlace,
    job: &BlockJob,
    block: &Block,
    stored: &[(u32, u32)],
    content: &mut [u8],
) -> Result<Result<(), u32>, StoreError> {
    let (size, codec, k) = (object.symbol_bytes(), &object.spec.codec, block.symbols);
    let mut places_left = job.missing.iter();
    let mut more = Vec::new();
    read_stored(places, object, block, stored, |esi, symbol| {
        // The place of a missing symbol is the place of a repair symbol.
        let own = (esi < k).then(|| Some(&esi).filter(|_| job.missing.binary_search(&esi).is_err()));
        match own.unwrap_or_else(|| places_left.next()) {
            Some(&at) => content[at as usize * size..][..size].copy_from_slice(symbol),
            None if esi < k => {}
            None => more.extend_from_slice(symbol),
        }
    })?;
    if job.missing.is_empty() {
        return Ok(Ok(()));
    }
    let esis: Vec<u32> = stored.iter().map(|(_, esi)| *esi).filter(|esi| *esi >= k).collect();
    let (placed, beside) = esis.split_at(esis.len().min(job.missing.len()));
    let more: Vec<_> =
        beside.iter().zip(more.chunks_exact(size)).map(|(&esi, data)| Repair { esi, data }).collect();
    match codec.decode_in_place(block.symbols, content, &job.missing, placed, &more) {
        Ok(()) => Ok(Ok(())),
        Err(DecodeError::NeedMore { more }) => Ok(Err(more)),
        Err(DecodeError::Invalid(error)) => Err(object.cannot_decode(job.sbn, error)),
    }
}

/// Reads the symbols in these slots (each with its ESI), many at a time.
fn read_stored(
    places: &Places,
    object: &ObjectPlace,
    block: &Block,
    slots: &[(u32, u32)],
    mut take: impl FnMut(u32, &[u8]),
) -> Result<(), StoreError> {
    let size = object.symbol_bytes();
    let at_once = (CHUNK_BYTES / size).clamp(1, slots.len().max(1));
    let mut symbols = vec![0; at_once * size];
    for slots in slots.chunk_by(|one, next| one.0 + 1 == next.0).flat_map(|run| run.chunks(at_once)) {
        let symbols = &mut symbols[..slots.len() * size];
        places.read_slot_symbols(object, block, slots[0].0, symbols)?;
        slots.iter().zip(symbols.chunks_exact(size)).for_each(|((_, esi), symbol)| take(*esi, symbol));
    }
    Ok(())
}

/// Writes symbols of a block to their places, adjacent symbols together. `content` is the block without
/// padding.
fn write_symbols(
    places: &Places,
    object: &ObjectPlace,
    sbn: u32,
    esis: &[u32],
    content: &[u8],
) -> Result<(), StoreError> {
    let size = object.symbol_bytes();
    let start = object.offset(&object.block(sbn));
    for run in esis.chunk_by(|one, next| one + 1 == *next) {
        let from = run[0] as usize * size;
        let to = (from + run.len() * size).min(content.len());
        places.write(&object.file, start + from as u64, &content[from..to])?;
    }
    Ok(())
}

fn finish_file(places: &Places, file: &FilePlace) -> Result<Outcome, StoreError> {
    if let Some(encoding) = file.spec.encoding {
        return decode::finish(places, file, encoding);
    }
    if let Some(expected) = file.spec.md5
        && md5_of(places, file)? != expected
    {
        places.give_up(file);
        places.discard(&file.key())?;
        return Ok(Outcome::Report(StoreReport::FileMismatch(file.index)));
    }
    if file.is_bundle {
        return unpack::unpack(places, file, None);
    }
    let stamp = places.publish(file)?;
    places.folder.discard(&file.repair_name())?;
    Ok(Outcome::Placed(file.index, stamp))
}

/// Returns the MD5 of the bytes that travelled.
pub(super) fn md5_of(places: &Places, file: &FilePlace) -> Result<[u8; 16], StoreError> {
    let mut hasher = Md5::new();
    read_through(places, file, 0, file.spec.bytes, |chunk| hasher.update(chunk))?;
    Ok(hasher.finalize().into())
}

/// Reads `bytes` of a file from `offset` on, piece by piece.
fn read_through(
    places: &Places,
    file: &FilePlace,
    offset: u64,
    bytes: u64,
    mut take: impl FnMut(&[u8]),
) -> Result<(), StoreError> {
    let mut chunk = vec![0; usize::try_from(bytes).map_or(CHUNK_BYTES, |bytes| bytes.min(CHUNK_BYTES))];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).map_or(chunk.len(), |rest| rest.min(chunk.len()));
        places.read(file, offset + at, &mut chunk[..length])?;
        take(&chunk[..length]);
        at += length as u64;
    }
    Ok(())
}

/// Returns the bytes of each symbol of a block of `k` to decode at a time: as many as memory allows, at most
/// the whole symbol.
pub(super) fn strip_width(codec: &dyn BlockCodec, k: u32) -> usize {
    let whole = codec.symbol_size();
    if !codec.decodes_in_strips() || codec.strip_bytes(k, whole) <= DECODING_BYTES {
        return whole;
    }
    let least = usize::from(STRIP_WIDTH_MIN);
    let fixed = codec.strip_bytes(k, 0);
    let per_byte = codec.strip_bytes(k, 1).saturating_sub(fixed).max(1);
    let width = usize::try_from(DECODING_BYTES.saturating_sub(fixed) / per_byte).unwrap_or(whole);
    (width / least * least).clamp(least.min(whole), whole)
}

/// Decodes and writes the missing symbols of a block, or returns the number of further symbols needed.
pub(super) fn decode_in_strips(
    places: &Places,
    object: &ObjectPlace,
    job: &BlockJob,
    block: &Block,
) -> Result<Result<(), u32>, StoreError> {
    let (k, codec) = (block.symbols, &*object.spec.codec);
    let slots = usable_slots(places, object, job, block)?;
    let esis: Vec<u32> = slots.iter().map(|(_, esi)| *esi).collect();
    let recipe = match codec.recipe(k, &job.missing, &esis) {
        Ok(recipe) => recipe,
        Err(DecodeError::NeedMore { more }) => return Ok(Err(more)),
        Err(DecodeError::Invalid(error)) => return Err(object.cannot_decode(job.sbn, error)),
    };
    let (size, width) = (object.symbol_bytes(), strip_width(codec, k));
    for from in (0..size).step_by(width) {
        let strip = Strip { places, object, block, from, width: width.min(size - from) };
        let mut content = strip.read_content()?;
        let symbols = strip.read_repairs(job.repairs)?;
        let width = strip.width;
        let symbols: Vec<&[u8]> =
            slots.iter().map(|(slot, _)| &symbols[*slot * width..(*slot + 1) * width]).collect();
        recipe.fill(width, &mut content, &symbols).map_err(|error| object.cannot_decode(job.sbn, error))?;
        strip.write(&job.missing, &content)?;
    }
    Ok(Ok(()))
}

/// Returns the slots with valid ESIs, each symbol once, with their ESIs: numbers from an earlier session are
/// not trusted.
fn usable_slots(
    places: &Places,
    object: &ObjectPlace,
    job: &BlockJob,
    block: &Block,
) -> Result<Vec<(usize, u32)>, StoreError> {
    let numbers = places.read_slot_numbers(object, block, job.repairs)?;
    let end = object.spec.codec.esi_end(block.symbols);
    let mut seen = vec![false; end.saturating_sub(block.symbols) as usize];
    let mut slots: Vec<(usize, u32)> = numbers.into_iter().enumerate().collect();
    slots.retain(|(_, esi)| {
        let place = esi.checked_sub(block.symbols).and_then(|place| seen.get_mut(place as usize));
        place.is_some_and(|seen| !std::mem::replace(seen, true))
    });
    Ok(slots)
}

/// `width` bytes from `from` on of each symbol of a block.
struct Strip<'a> {
    places: &'a Places,
    object: &'a ObjectPlace,
    block: &'a Block,
    from: usize,
    width: usize,
}

impl Strip<'_> {
    /// Reads the strip of the source symbols; zeros past the end of the object, any bytes for missing
    /// symbols.
    fn read_content(&self) -> Result<Vec<u8>, StoreError> {
        let start = self.object.offset(self.block);
        let bytes = usize::try_from(self.block.bytes).unwrap_or(usize::MAX);
        self.read(self.block.symbols, |at, buffer| {
            let length = bytes.saturating_sub(at).min(buffer.len());
            let (content, padding) = buffer.split_at_mut(length);
            padding.fill(0);
            self.places.read(&self.object.file, start + at as u64, content)
        })
    }

    /// Reads the strip of the repair symbols in the slots below `slots`.
    fn read_repairs(&self, slots: u32) -> Result<Vec<u8>, StoreError> {
        let size = self.object.symbol_bytes();
        self.read(slots, |at, buffer| {
            let slot = u32::try_from(at / size).expect("below the number of slots");
            self.places.read_slot_symbols(self.object, self.block, slot, buffer)
        })
    }

    /// Reads the strip of so many symbols; `read` reads whole symbols from a byte offset on.
    fn read(
        &self,
        symbols: u32,
        read: impl Fn(usize, &mut [u8]) -> Result<(), StoreError>,
    ) -> Result<Vec<u8>, StoreError> {
        let (size, symbols) = (self.object.symbol_bytes(), symbols as usize);
        let at_once = (CHUNK_BYTES / size).max(1);
        let mut chunk = vec![0; at_once.min(symbols) * size];
        let mut strip = Vec::with_capacity(symbols * self.width);
        for first in (0..symbols).step_by(at_once) {
            let chunk = &mut chunk[..at_once.min(symbols - first) * size];
            read(first * size, chunk)?;
            let parts = chunk.chunks_exact(size).map(|symbol| &symbol[self.from..self.from + self.width]);
            parts.for_each(|part| strip.extend_from_slice(part));
        }
        Ok(strip)
    }

    /// Writes the missing source symbols of the strip; adjacent whole symbols together.
    fn write(&self, missing: &[u32], content: &[u8]) -> Result<(), StoreError> {
        let size = self.object.symbol_bytes();
        let is_whole = self.width == size;
        for run in missing.chunk_by(|one, next| is_whole && one + 1 == *next) {
            let first = run[0] as usize;
            let from = first * size + self.from;
            // The last symbol of the object may end inside the strip, or before it.
            let rest = self.block.bytes.saturating_sub(from as u64);
            let length =
                usize::try_from(rest).map_or(run.len() * self.width, |rest| rest.min(run.len() * self.width));
            let bytes = &content[first * self.width..][..length];
            self.places.write(&self.object.file, self.object.offset(self.block) + from as u64, bytes)?;
        }
        Ok(())
    }
}
