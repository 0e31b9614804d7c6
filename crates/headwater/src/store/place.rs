//! Places of symbols and blocks on disk.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use headwater_fec::{Block, FecError, Scheme};
use headwater_proto::delivery::{
    Digest, FileIndex, FileSpec, ObjectSpec, RelativePath, StoreError, StreamPart, repair_slots,
};

use super::base::Base;
use super::folder::Folder;
use super::journal::{Key, Stamp};
use super::target::{Device, Target};
use super::unpack::Unpacking;
use crate::system::files::{self, FileExt, MetadataExt};
use crate::system::{OPEN_FILES_MAX, OpenFiles, read_at};

/// The folder and its open files. Shared by all threads of a store.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) folder: Folder,
    /// Place of a single file's content outside of the folder.
    pub(super) target: Option<Arc<Target>>,
    pub(super) unpacking: Unpacking,
    /// Older versions of files.
    pub(super) base: Option<Base>,
    /// Set once the session is to end.
    stop: Option<Arc<AtomicBool>>,
    /// Whether the store is being closed.
    is_closing: AtomicBool,
    open: OpenFiles<FileKey>,
    /// Length of the working file of a stream, once known.
    stream_bytes: Mutex<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FileKey {
    Content(usize),
    /// Repair symbols of a file.
    Repair(usize),
    /// Content of all parts of a stream.
    Stream,
}

/// A file in progress.
#[derive(Debug)]
pub(super) struct FilePlace {
    pub(super) index: FileIndex,
    pub(super) spec: FileSpec,
    /// Number of the file in the journal, if the file may be resumed.
    pub(super) number: Option<u32>,
    /// Set for a part of a stream, whose content has a place in the working file of the stream.
    pub(super) part: Option<StreamPart>,
    /// Whether the file is a bundle of members to put in place.
    pub(super) is_bundle: bool,
    /// Digest that was announced after the file.
    learnt_digest: OnceLock<Digest>,
    /// Whether the content began as a clone of an older version; set by the first write, too.
    pub(super) is_clone: OnceLock<bool>,
    /// Whether the file was given up, or is in place already: its working files are gone for good.
    is_over: AtomicBool,
}

/// An object in progress.
#[derive(Debug)]
pub(super) struct ObjectPlace {
    pub(super) spec: ObjectSpec,
    pub(super) file: Arc<FilePlace>,
    /// Number of the object in the journal, if the object may be resumed.
    pub(super) number: Option<u32>,
    /// Number of slots in use of each block, if slots hold source symbols, too; else empty. Memory: 4 bytes
    /// for each block. Changed by the writer thread.
    slots: Box<[AtomicU32]>,
}

/// Set in the number of slots of a block that was decoded.
const DECODED: u32 = 1 << 31;
/// Symbols of a block from which slots hold source symbols: a shorter block is a few writes.
const BLOCK_SYMBOLS_MIN: u32 = 64;

/// Returns the key of a file in the working folder.
pub(super) fn key_of(path: &RelativePath) -> Key {
    hash_of(path.as_str())
}

/// Returns the hash of a name.
pub(super) fn hash_of(name: &str) -> Key {
    *blake3::hash(name.as_bytes()).as_bytes().first_chunk().expect("a digest has 32 bytes")
}

/// Returns the name of the working file for a file's content.
pub(super) fn content_name(key: &Key) -> String {
    format!("{:032x}.content", u128::from_be_bytes(*key))
}

/// Returns the name of the working file for a file's repair symbols.
pub(super) fn repair_name(key: &Key) -> String {
    format!("{:032x}.repair", u128::from_be_bytes(*key))
}

/// Name of the working file for all parts of a stream.
pub(super) const STREAM: &str = "stream";
/// End of the name of a stream with holes.
const INCOMPLETE: &str = ".incomplete";

impl FilePlace {
    pub(super) fn new(index: FileIndex, spec: FileSpec, number: Option<u32>) -> Self {
        Self {
            index,
            spec,
            number,
            part: None,
            is_bundle: false,
            learnt_digest: OnceLock::new(),
            is_clone: OnceLock::new(),
            is_over: AtomicBool::new(false),
        }
    }

    pub(super) fn with_part(self, part: Option<StreamPart>) -> Self {
        Self { part, ..self }
    }

    pub(super) fn with_bundle(self, is_bundle: bool) -> Self {
        Self { is_bundle, ..self }
    }

    /// Keeps a digest that was announced after the file.
    pub(super) fn learn_digest(&self, digest: Digest) {
        self.learnt_digest.get_or_init(|| digest);
    }

    /// Returns the digest of the file, if known.
    pub(super) fn digest(&self) -> Option<Digest> {
        self.spec.digest.or_else(|| self.learnt_digest.get().copied())
    }

    /// Notes that the content has bytes that no clone may replace.
    pub(super) fn note_written(&self) {
        self.is_clone.get_or_init(|| false);
    }

    /// Returns the place of the file's first byte in its content.
    fn start(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.offset)
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.is_over() {
            return Err(StoreError(format!("'{}' was given up", self.spec.path)));
        }
        Ok(())
    }

    /// Whether the file has lost its working files. Threads may still be at work on the working files.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns the key of the file in the working folder.
    pub(super) fn key(&self) -> Key {
        key_of(&self.spec.path)
    }

    /// Returns the name of the content in the working folder.
    pub(super) fn content_name(&self) -> String {
        content_name(&self.key())
    }

    /// Returns the name of the repair symbols in the working folder.
    pub(super) fn repair_name(&self) -> String {
        repair_name(&self.key())
    }
}

impl ObjectPlace {
    pub(super) fn new(spec: ObjectSpec, file: Arc<FilePlace>, number: Option<u32>) -> Self {
        Self { spec, file, number, slots: Box::default() }
    }

    /// Keeps source symbols in slots, where their places are scattered, until the block is decoded in memory.
    /// A block without a code or decoded in strips, and a short block, keep source symbols in their places.
    pub(super) fn with_source_in_slots(self) -> Self {
        let partition = &self.spec.partition;
        let codec = &self.spec.codec;
        // Without a code no decoder needs the block in memory. Where files have no holes, freed slots
        // would keep their room.
        let is_apt = cfg!(target_os = "linux")
            && codec.scheme() != Scheme::NoCode
            && !codec.decodes_in_strips()
            && partition.max_block_symbols() > BLOCK_SYMBOLS_MIN;
        let blocks = if is_apt { partition.blocks() } else { 0 };
        Self { slots: (0..blocks).map(|_| AtomicU32::new(0)).collect(), ..self }
    }

    /// Returns the number of slots in use of a block whose slots hold source symbols, too.
    pub(super) fn slots(&self, sbn: u32) -> Option<u32> {
        Some(self.slots.get(sbn as usize)?.load(Ordering::Acquire) & !DECODED)
    }

    /// Sets the number of slots in use.
    pub(super) fn set_slots(&self, sbn: u32, count: u32) {
        if let Some(slots) = self.slots.get(sbn as usize) {
            slots.store(slots.load(Ordering::Acquire) & DECODED | count, Ordering::Release);
        }
    }

    /// Whether a block was decoded from slots and waits for the verdict.
    pub(super) fn is_decoded(&self, sbn: u32) -> bool {
        self.slots.get(sbn as usize).is_some_and(|slots| slots.load(Ordering::Acquire) & DECODED != 0)
    }

    /// Sets whether a block was decoded, with no slot in use.
    pub(super) fn set_decoded(&self, sbn: u32, is_decoded: bool) {
        if let Some(slots) = self.slots.get(sbn as usize) {
            slots.store(if is_decoded { DECODED } else { 0 }, Ordering::Release);
        }
    }

    /// Returns the symbols in slots with these numbers: the slot and the ESI of each symbol, in the order of
    /// the slots. Numbers from an earlier session are not trusted: invalid numbers are left out, and every
    /// ESI comes once.
    pub(super) fn stored_symbols(&self, block: &Block, numbers: &[u32]) -> Vec<(u32, u32)> {
        let source_end = if self.slots.is_empty() { 0 } else { block.symbols };
        let repairs = block.symbols..self.spec.codec.esi_end(block.symbols);
        let esi = |number: u32| match number.checked_sub(SOURCE_NUMBER) {
            Some(esi) => Some(esi).filter(|esi| *esi < source_end),
            None => Some(number).filter(|esi| repairs.contains(esi)),
        };
        let mut seen = BTreeSet::new();
        let symbols = (0..).zip(numbers).filter_map(|(slot, number)| Some((slot, esi(*number)?)));
        symbols.filter(|(_, esi)| seen.insert(*esi)).collect()
    }

    pub(super) fn block(&self, sbn: u32) -> Block {
        self.spec.partition.block(sbn).expect("the receiver names blocks of the object only")
    }

    pub(super) fn symbol_bytes(&self) -> usize {
        self.spec.partition.symbol_size().into()
    }

    /// Returns the error for a block whose coding contradicts itself.
    pub(super) fn cannot_decode(&self, sbn: u32, error: FecError) -> StoreError {
        StoreError(format!(
            "block {sbn} of '{}' cannot be decoded: {error}; the sender uses the code in a way that is not supported",
            self.file.spec.path
        ))
    }

    /// Returns the offset of a block in its file.
    pub(super) fn offset(&self, block: &Block) -> u64 {
        self.spec.offset + block.offset
    }
}

impl Places {
    pub(super) fn new(folder: Folder, target: Option<Arc<Target>>, unpacking: Unpacking) -> Self {
        let open = OpenFiles::new(OPEN_FILES_MAX);
        Self {
            folder,
            target,
            unpacking,
            base: None,
            stop: None,
            is_closing: AtomicBool::new(false),
            open,
            stream_bytes: Mutex::new(0),
        }
    }

    /// Sets the older versions of files.
    pub(super) fn with_base(self, base: Option<Base>) -> Self {
        Self { base, ..self }
    }

    /// Sets the flag that ends long work.
    pub(super) fn with_stop(self, stop: Option<Arc<AtomicBool>>) -> Self {
        Self { stop, ..self }
    }

    /// Whether the session is to end.
    pub(super) fn is_stopped(&self) -> bool {
        let is_asked = self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Acquire));
        is_asked || self.is_closing.load(Ordering::Acquire)
    }

    /// Ends long work of all threads.
    pub(super) fn close_down(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// Returns the device that takes the content in place of a working file.
    pub(super) fn device(&self) -> Option<&Device> {
        self.target.as_ref().and_then(|target| target.device())
    }

    /// Whether the content of a file of an earlier session has a place.
    pub(super) fn has_content(&self, key: &Key) -> bool {
        self.device().is_some()
            || [&content_name(key), STREAM].iter().any(|name| self.folder.find_work(name).is_some())
    }

    /// Records that a block is whole.
    pub(super) fn whole(&self, object: &ObjectPlace, block: &Block) -> Result<(), StoreError> {
        let Some(target) = &self.target else { return Ok(()) };
        let content = self.content(&object.file)?;
        let place = (object.file.start() + object.offset(block), block.bytes);
        target.whole(&content, place, object.file.part.is_some())
    }

    /// Syncs the content of a file to disk and gives the file its final name; a device has the content
    /// already, and a stream takes the content block by block.
    pub(super) fn publish(&self, file: &FilePlace) -> Result<Stamp, StoreError> {
        let content = self.content(file)?;
        self.close(file);
        if file.part.is_some() {
            return Stamp::of(&content).map_err(|error| self.folder.failed("inspect a stream", error));
        }
        if self.target.is_none() {
            return self.folder.publish(&file.content_name(), &content, &file.spec);
        }
        let failed = |error| self.folder.failed(&format!("write '{}'", file.spec.path), error);
        content.sync_all().map_err(failed)?;
        Stamp::of(&content).map_err(failed)
    }

    /// Gives the stream that ends with `last` its final name; a stream with holes gets a name of its own, and
    /// the bytes that are there stay at their places.
    pub(super) fn publish_stream(&self, last: &FilePlace, is_whole: bool) -> Result<Stamp, StoreError> {
        let Some(part) = &last.part else { return self.publish(last) };
        let content = self.content(last)?;
        let failed = |error| self.folder.failed(&format!("write '{}'", part.stream), error);
        if self.target.is_some() {
            content.sync_all().map_err(failed)?;
            return Stamp::of(&content).map_err(failed);
        }
        content.set_len(part.offset).map_err(failed)?;
        let path = if is_whole { part.stream.to_string() } else { format!("{}{INCOMPLETE}", part.stream) };
        let path = RelativePath::new(&path).map_err(|error| StoreError(error.to_string()))?;
        let FileSpec { mode, modified, .. } = last.spec;
        let spec = FileSpec { mode, modified, ..FileSpec::new(path, part.offset) };
        self.folder.publish(STREAM, &content, &spec)
    }

    /// Opens the place of a file's content. A working file is created on first use, at its full length but
    /// sparse.
    pub(super) fn content(&self, place: &FilePlace) -> Result<Arc<File>, StoreError> {
        if let Some(device) = self.device() {
            place.check()?;
            return Ok(Arc::clone(&device.file));
        }
        if place.part.is_some() {
            place.check()?;
            let content = self.open.get(FileKey::Stream, || self.folder.open_work(STREAM, None))?;
            self.extend_stream(&content, place)?;
            return Ok(content);
        }
        self.open.get(FileKey::Content(place.index.0), || {
            place.check()?;
            let mode = self.folder.rules.mode(&place.spec);
            let file = self.folder.open_work(&place.content_name(), mode)?;
            let attempt = || format!("make room for '{}'", place.spec.path);
            file.set_len(place.spec.bytes).map_err(|error| self.folder.failed(&attempt(), error))?;
            Ok(file)
        })
    }

    /// Gives the working file of a stream the length for a part: a decoder reads whole blocks.
    fn extend_stream(&self, content: &File, place: &FilePlace) -> Result<(), StoreError> {
        let end = place.start() + place.spec.bytes;
        let mut length = self.stream_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if *length >= end {
            return Ok(());
        }
        // An earlier receiver may have left more.
        let extended = content.metadata().and_then(|metadata| match metadata.len() {
            long if long >= end => Ok(long),
            _ => content.set_len(end).map(|()| end),
        });
        *length = extended.map_err(|error| self.folder.failed("make room for a stream", error))?;
        Ok(())
    }

    /// Returns the bytes on disk of a file left by an earlier session, or of a file in place that may be the
    /// same.
    pub(super) fn held_bytes(&self, spec: &FileSpec) -> u64 {
        let key = key_of(&spec.path);
        let blocks = |name: &str| {
            let found = self.folder.find_work(name).and_then(|file| file.metadata().ok());
            found.map_or(0, |metadata| metadata.blocks())
        };
        let names = [content_name(&key), repair_name(&key), STREAM.to_owned()];
        let blocks = names.iter().fold(0_u64, |sum, name| sum.saturating_add(blocks(name)));
        let present = self.folder.stamp(&spec.path).filter(|stamp| stamp.bytes == spec.content_bytes());
        blocks.saturating_mul(512).min(spec.bytes).max(present.map_or(0, |stamp| stamp.bytes))
    }

    /// Closes the working files of a file.
    pub(super) fn close(&self, place: &FilePlace) {
        self.open.forget(FileKey::Content(place.index.0));
        self.open.forget(FileKey::Repair(place.index.0));
    }

    /// Ends the use of a file's working files: closed, and not created again.
    pub(super) fn give_up(&self, place: &FilePlace) {
        place.is_over.store(true, Ordering::Release);
        self.close(place);
    }

    /// Removes the working files of a file.
    pub(super) fn discard(&self, key: &Key) -> Result<(), StoreError> {
        self.folder.discard(&content_name(key))?;
        self.folder.discard(&repair_name(key))
    }

    /// Clears the content of a part of a stream, so that the missing bytes of the stream read as zeros. On a
    /// device and in a pipe, a stream with a missing part has no use.
    pub(super) fn clear_part(&self, place: &FilePlace) -> Result<(), StoreError> {
        let Some(content) = self.folder.find_work(STREAM).filter(|_| self.target.is_none()) else {
            return Ok(());
        };
        if files::punch_hole(&content, place.start(), place.spec.bytes.max(1)).is_ok() {
            return Ok(());
        }
        let zeros = [0; 64 << 10];
        let (mut at, end) = (place.start(), place.start() + place.spec.bytes);
        while at < end {
            let length = usize::try_from(end - at).map_or(zeros.len(), |rest| rest.min(zeros.len()));
            let written = content.write_all_at(&zeros[..length], at);
            written.map_err(|error| self.folder.failed("clear a part of a stream", error))?;
            at += length as u64;
        }
        Ok(())
    }

    /// Syncs the working files of a file to disk, if the file is still in progress.
    pub(super) fn sync(&self, place: &FilePlace) -> Result<(), StoreError> {
        let failed = |error| self.folder.failed(&format!("write '{}'", place.spec.path), error);
        let stream = place.part.is_some().then(|| STREAM.to_owned());
        for name in [place.content_name(), place.repair_name()].into_iter().chain(stream) {
            if let Some(file) = self.folder.find_work(&name) {
                file.sync_data().map_err(failed)?;
            }
        }
        self.device().map_or(Ok(()), |device| device.file.sync_data()).map_err(failed)
    }

    /// Writes the content of a file at an offset.
    pub(super) fn write(&self, place: &FilePlace, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let content = self.content(place)?;
        place.note_written();
        let offset = place.start() + offset;
        let written = match self.device() {
            Some(device) => device.write(bytes, offset, place.start() + place.spec.bytes),
            None if place.part.is_some() => content.write_all_at(bytes, offset),
            None => write_sparse(&content, bytes, offset),
        };
        written.map_err(|error| self.folder.failed(&format!("write '{}'", place.spec.path), error))
    }

    /// Makes bytes of the content of a file zeros, as a hole where the file system can.
    pub(super) fn clear(&self, place: &FilePlace, offset: u64, bytes: u64) -> Result<(), StoreError> {
        let content = self.content(place)?;
        place.note_written();
        if self.device().is_none() && place.part.is_none() && punch(&content, offset, bytes) {
            return Ok(());
        }
        let zeros = vec![0; CLEARED_BYTES];
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let length = usize::try_from(end - at).map_or(zeros.len(), |rest| rest.min(zeros.len()));
            self.write(place, at, &zeros[..length])?;
            at += length as u64;
        }
        Ok(())
    }

    /// Reads the content of a file at an offset.
    pub(super) fn read(&self, place: &FilePlace, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let read = read_at(&*self.content(place)?, bytes, place.start() + offset);
        read.map_err(|error| self.folder.failed(&format!("read '{}' back", place.spec.path), error))
    }

    /// Returns the number of slots of a block.
    pub(super) fn slot_count(object: &ObjectPlace, block: &Block) -> u32 {
        Region::of(object, block).slots
    }

    /// Writes symbols of a block to the slots from `first` on.
    pub(super) fn write_slots(
        &self,
        object: &ObjectPlace,
        block: &Block,
        first: u32,
        esis: &[u32],
        symbols: &[u8],
    ) -> Result<(), StoreError> {
        let region = Region::of(object, block);
        let number = |esi: &u32| if *esi < block.symbols { SOURCE_NUMBER | esi } else { *esi };
        let numbers: Vec<u8> = esis.iter().flat_map(|esi| number(esi).to_le_bytes()).collect();
        let file = self.repairs(&object.file)?;
        file.write_all_at(symbols, region.symbol(first))
            .and_then(|()| file.write_all_at(&numbers, region.number(first)))
            .map_err(|error| self.folder.failed(&format!("write '{}'", object.file.spec.path), error))
    }

    /// Reads the numbers in the slots of a block below `slots`.
    pub(super) fn read_slot_numbers(
        &self,
        object: &ObjectPlace,
        block: &Block,
        slots: u32,
    ) -> Result<Vec<u32>, StoreError> {
        let region = Region::of(object, block);
        let mut numbers = vec![0; slots.min(region.slots) as usize * NUMBER_BYTES];
        self.read_repair_file(object, region.number(0), &mut numbers)?;
        Ok(numbers.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect())
    }

    /// Reads the symbols in the slots of a block from `first` on, as many as fit in `symbols`.
    pub(super) fn read_slot_symbols(
        &self,
        object: &ObjectPlace,
        block: &Block,
        first: u32,
        symbols: &mut [u8],
    ) -> Result<(), StoreError> {
        self.read_repair_file(object, Region::of(object, block).symbol(first), symbols)
    }

    /// Frees the room of a block's slots, where the file system can.
    pub(super) fn free_slots(&self, object: &ObjectPlace, block: &Block) {
        let Some(file) = self.folder.find_work(&object.file.repair_name()) else { return };
        let region = Region::of(object, block);
        // Room not freed here is freed with the file.
        let _unsupported = files::punch_hole(&file, region.start, region.bytes());
    }

    fn read_repair_file(&self, object: &ObjectPlace, at: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let read = read_at(&*self.repairs(&object.file)?, bytes, at);
        read.map_err(|error| self.folder.failed(&format!("read '{}' back", object.file.spec.path), error))
    }

    fn repairs(&self, place: &FilePlace) -> Result<Arc<File>, StoreError> {
        self.open.get(FileKey::Repair(place.index.0), || {
            place.check()?;
            self.folder.open_work(&place.repair_name(), None)
        })
    }
}

/// Bytes that are cleared at once where no hole can be made.
const CLEARED_BYTES: usize = 256 << 10;
/// Unit in which file systems keep content: a hole has at least this length.
const PAGE_BYTES: usize = 4 << 10;

/// Makes a hole, which reads as zeros. Returns false if the file system cannot.
fn punch(file: &File, offset: u64, bytes: u64) -> bool {
    bytes == 0 || files::punch_hole(file, offset, bytes).is_ok()
}

/// Writes bytes, and makes holes of zeros: of whole pages, and of zeros alone.
pub(super) fn write_sparse(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let (mut rest, mut at) = (bytes, offset);
    while !rest.is_empty() {
        let (is_zero, length) = next_run(rest, at);
        let (run, behind) = rest.split_at(length);
        if !is_zero || !punch(file, at, length as u64) {
            file.write_all_at(run, at)?;
        }
        (rest, at) = (behind, at + length as u64);
    }
    Ok(())
}

/// Writes bytes to a new file, except pages of zeros.
pub(super) fn write_around_holes(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let (mut rest, mut at) = (bytes, offset);
    while !rest.is_empty() {
        let (is_zero, length) = next_run(rest, at);
        let (run, behind) = rest.split_at(length);
        if !is_zero {
            file.write_all_at(run, at)?;
        }
        (rest, at) = (behind, at + length as u64);
    }
    Ok(())
}

/// Returns whether the bytes begin with pages of zeros, and the length up to the first page of the other
/// kind. Pages begin at multiples of [`PAGE_BYTES`] in the file.
fn next_run(bytes: &[u8], offset: u64) -> (bool, usize) {
    let to_page = usize::try_from(PAGE_BYTES as u64 - offset % PAGE_BYTES as u64).unwrap_or(PAGE_BYTES);
    let mut end = to_page.min(bytes.len());
    let is_zero = is_zeros(&bytes[..end]);
    while end < bytes.len() {
        let next = (end + PAGE_BYTES).min(bytes.len());
        if is_zeros(&bytes[end..next]) != is_zero {
            break;
        }
        end = next;
    }
    (is_zero, end)
}

fn is_zeros(bytes: &[u8]) -> bool {
    // Content mostly differs in the first byte.
    bytes.first().is_none_or(|first| *first == 0) && bytes.iter().all(|byte| *byte == 0)
}

/// Region of a block's slots in the sparse repair file: first the numbers of all slots, then the symbols. The
/// slots suffice for all source symbols beside the repair symbols. The regions of blocks are independent: a
/// block of k symbols begins at 3 times its position among the symbols of its file, and takes no more than
/// 3k.
struct Region {
    start: u64,
    slots: u32,
    symbol_bytes: u64,
}

/// Bytes of a symbol's number in the file of repair symbols.
const NUMBER_BYTES: usize = 4;
/// Added to the number of a source symbol: a hole of the file, which reads as zeros, is then no number.
const SOURCE_NUMBER: u32 = 1 << 31;

impl Region {
    fn of(object: &ObjectPlace, block: &Block) -> Self {
        let symbol_bytes = object.symbol_bytes() as u64;
        let k = block.symbols;
        let slots = k.saturating_add(repair_slots(k)).min(3 * k);
        let first_symbol = object.offset(block) / symbol_bytes;
        Self { start: 3 * first_symbol * (symbol_bytes + NUMBER_BYTES as u64), slots, symbol_bytes }
    }

    fn number(&self, slot: u32) -> u64 {
        self.start + u64::from(slot) * NUMBER_BYTES as u64
    }

    fn symbol(&self, slot: u32) -> u64 {
        self.start + u64::from(self.slots) * NUMBER_BYTES as u64 + u64::from(slot) * self.symbol_bytes
    }

    fn bytes(&self) -> u64 {
        u64::from(self.slots) * (self.symbol_bytes + NUMBER_BYTES as u64)
    }
}
