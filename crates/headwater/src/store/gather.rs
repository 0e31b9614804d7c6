//! Symbols on the way to disk, gathered by block, so that one write contains many symbols.
//!
//! In a session of several levels, symbols of a block arrive out of order: at the highest rate those of
//! 0.1 s are a run with gaps, at a low rate they lie far apart. Gathered symbols are sorted. Those far apart
//! would be 700 000 writes of 1 to 2 symbols for 1 GB, each to a page of its own: they go to the slots of the
//! block instead, behind the repair symbols, until the block is decoded.
//!
//! Digests of blocks are computed from the bytes of a write while the bytes are in the processor's cache.
//! Without losses, a block's source symbols are written in order, and the last symbol completes the digest:
//! no thread reads the block back. A worker thread reads any other block back.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_fec::Block;
use headwater_proto::delivery::{BlockHasher, Digest, FileIndex, StoredRepair};

/// Bytes of a block that are gathered before a write: more than 0.1 s of 1 Gbit/s bring to each of 53 blocks.
const BLOCK_BYTES: usize = 256 << 10;
/// Minimum and maximum of gathered bytes in total; a share of the content in between.
///
/// Gathered symbols are lost if the process is killed: those of [`GATHER_TIME`] at 1 Gbit/s. With many blocks
/// in turn, the writes are shorter: the oldest block is written first, so that a write has twice the mean of
/// the gathered symbols of a block.
const BYTES_MIN: u64 = 3 << 19;
const BYTES_MAX: u64 = 14 << 20;
const SHARE: u64 = 128;
/// Symbols of a run, on average, from which source symbols are written to their places. At the highest rate a
/// write begins and ends amid two turns of the sender, of which it has every other symbol.
const RUN_SYMBOLS_MIN: usize = 2;
/// Longest time for which symbols are gathered before a write.
pub(super) const GATHER_TIME: Duration = Duration::from_millis(100);
/// Time after which a few symbols are written: short writes cost little at a low rate, where a receiver that
/// is killed every second would lose a percent of its symbols.
pub(super) const SHORT_TIME: Duration = Duration::from_millis(20);
/// Bytes of a few symbols: 13 Mbit/s in [`SHORT_TIME`].
const SHORT_BYTES: usize = 32 << 10;
/// Maximum number of buffers in use and kept for reuse together: 28 MiB.
const SPARE_MAX: usize = 56;

/// Block: number of the object and number of the block.
pub(super) type Key = (usize, u32);

/// Symbols that are not written yet. Memory: twice the bytes that [`Gather::set_content`] allows, because
/// vectors grow by doubling, or that of [`SPARE_MAX`] buffers, whichever is more.
#[derive(Debug)]
pub(super) struct Gather {
    blocks: BTreeMap<Key, SymbolRun>,
    /// Blocks with symbols by the number of their first symbol: the oldest have the most symbols.
    by_age: BTreeMap<u64, Key>,
    /// Number of symbols so far.
    symbols: u64,
    bytes: usize,
    bytes_max: usize,
    spare: Vec<SymbolRun>,
}

/// Symbols of a block in order of arrival.
#[derive(Debug, Default)]
pub(super) struct SymbolRun {
    /// Number of the first symbol among all that were gathered.
    since: u64,
    source_esis: Vec<u32>,
    /// Bytes without padding.
    source: Vec<u8>,
    /// The receiver's slot of the first repair symbol; further repair symbols follow.
    pub(super) slot: u32,
    /// ESIs of the symbols for slots: repair symbols, and after [`SymbolRun::move_source_to_slots`] all.
    pub(super) slot_esis: Vec<u32>,
    pub(super) slot_symbols: Vec<u8>,
}

impl Gather {
    pub(super) fn new() -> Self {
        let mut gather = Self {
            blocks: BTreeMap::new(),
            by_age: BTreeMap::new(),
            symbols: 0,
            bytes: 0,
            bytes_max: 0,
            spare: Vec::new(),
        };
        gather.set_content(0);
        gather
    }

    /// Sets the limit of gathered bytes for content of this length.
    pub(super) fn set_content(&mut self, bytes: u64) {
        let share = (BYTES_MIN + bytes / SHARE).min(BYTES_MAX);
        self.bytes_max = usize::try_from(share).expect("at most 14 MiB");
    }

    /// Returns the maximum bytes of memory of gathered symbols that wait to be written: at most twice the
    /// bytes of the symbols.
    pub(super) fn queue_bytes_max(&self) -> usize {
        2 * self.bytes_max
    }

    /// Adds a source symbol without padding. Returns a block that is due to be written.
    pub(super) fn put_source(&mut self, key: Key, esi: u32, symbol: &[u8]) -> Option<Key> {
        self.put(key, symbol.len(), |gathered| {
            gathered.source_esis.push(esi);
            gathered.source.extend_from_slice(symbol);
        })
    }

    /// Adds a repair symbol, whose slot follows the previous slot. Returns a block that is due to be written.
    pub(super) fn put_repair(&mut self, key: Key, repair: StoredRepair, symbol: &[u8]) -> Option<Key> {
        self.put(key, symbol.len(), |gathered| {
            if gathered.slot_esis.is_empty() {
                gathered.slot = repair.slot;
            }
            gathered.slot_esis.push(repair.esi);
            gathered.slot_symbols.extend_from_slice(symbol);
        })
    }

    /// Removes the gathered symbols of a block. The caller returns the buffers to [`Gather::recycle`].
    pub(super) fn take(&mut self, key: Key) -> Option<SymbolRun> {
        let gathered = self.blocks.remove(&key)?;
        self.by_age.remove(&gathered.since);
        self.bytes -= gathered.bytes();
        Some(gathered)
    }

    /// Whether all symbols are to be written, after so much time since the last time.
    pub(super) fn is_due(&self, waited: Duration) -> bool {
        let is_short = (1..=SHORT_BYTES).contains(&self.bytes);
        waited >= if is_short { SHORT_TIME } else { GATHER_TIME }
    }

    /// Returns a block with gathered symbols.
    pub(super) fn first(&self) -> Option<Key> {
        self.blocks.keys().next().copied()
    }

    /// Drops the gathered symbols of objects that `keeps` rejects.
    pub(super) fn retain(&mut self, keeps: impl Fn(usize) -> bool) {
        self.blocks.retain(|(object, _), _| keeps(*object));
        self.by_age.retain(|_, (object, _)| keeps(*object));
        self.bytes = self.blocks.values().map(SymbolRun::bytes).sum();
    }

    /// Keeps the buffers of a block for reuse.
    pub(super) fn recycle(&mut self, mut gathered: SymbolRun) {
        let is_long = gathered.capacity() > 2 * BLOCK_BYTES;
        if !is_long && self.blocks.len() + self.spare.len() < SPARE_MAX {
            gathered.clear();
            self.spare.push(gathered);
        }
    }

    /// Appends bytes to a block with a single look-up, because every packet takes this path.
    fn put(&mut self, key: Key, bytes: usize, put: impl FnOnce(&mut SymbolRun)) -> Option<Key> {
        self.symbols += 1;
        let gathered = self.blocks.entry(key).or_insert_with(|| {
            self.by_age.insert(self.symbols, key);
            SymbolRun { since: self.symbols, ..self.spare.pop().unwrap_or_default() }
        });
        put(gathered);
        self.bytes += bytes;
        if gathered.bytes() >= BLOCK_BYTES {
            return Some(key);
        }
        if self.bytes >= self.bytes_max { self.by_age.values().next().copied() } else { None }
    }
}

impl SymbolRun {
    /// Returns runs of consecutive source symbols of a block: first symbol, number of symbols, bytes.
    pub(super) fn source_runs(
        &self,
        block: Block,
        symbol_size: u16,
    ) -> impl Iterator<Item = (u32, u32, &[u8])> {
        let mut rest = self.source.as_slice();
        self.source_esis.chunk_by(|one, next| one + 1 == *next).map(move |run| {
            let length: usize =
                run.iter().map(|esi| usize::from(block.symbol_bytes(*esi, symbol_size))).sum();
            let (bytes, later) = rest.split_at(length);
            rest = later;
            (run[0], u32::try_from(run.len()).expect("ESIs have 24 bits"), bytes)
        })
    }

    /// Sorts the source symbols by ESI. Exchanges the buffer for `spare`, which is empty.
    pub(super) fn sort_source(&mut self, block: Block, symbol_size: u16, spare: &mut Vec<u8>) {
        if self.source_esis.is_sorted() {
            return;
        }
        let mut at = 0;
        let place = |esi: &u32| {
            let length = usize::from(block.symbol_bytes(*esi, symbol_size));
            at += length;
            (*esi, at - length..at)
        };
        let mut symbols: Vec<_> = self.source_esis.iter().map(place).collect();
        symbols.sort_unstable_by_key(|(esi, _)| *esi);
        self.source_esis.clear();
        for (esi, place) in symbols {
            self.source_esis.push(esi);
            spare.extend_from_slice(&self.source[place]);
        }
        std::mem::swap(&mut self.source, spare);
        spare.clear();
    }

    /// Whether the source symbols are short runs: several, or one of a block that has symbols in `slots`.
    pub(super) fn is_scattered(&self, slots: u32) -> bool {
        let runs = self.source_esis.chunk_by(|one, next| one + 1 == *next).count();
        let is_short = self.source_esis.len() < RUN_SYMBOLS_MIN * runs;
        is_short && (runs > 1 || slots > 0 || !self.slot_esis.is_empty())
    }

    /// Puts the source symbols before the repair symbols for slots, padded to `symbol_size`.
    pub(super) fn move_source_to_slots(&mut self, block: Block, symbol_size: u16) {
        let size = usize::from(symbol_size);
        // The last symbol of the object alone is shorter.
        let short =
            self.source_esis.iter().position(|esi| block.symbol_bytes(*esi, symbol_size) < symbol_size);
        if let Some(at) = short {
            let bytes = block.symbol_bytes(self.source_esis[at], symbol_size);
            let end = at * size + usize::from(bytes);
            self.source.splice(end..end, std::iter::repeat_n(0, size - usize::from(bytes)));
        }
        self.source_esis.append(&mut self.slot_esis);
        self.source.append(&mut self.slot_symbols);
        std::mem::swap(&mut self.source_esis, &mut self.slot_esis);
        std::mem::swap(&mut self.source, &mut self.slot_symbols);
    }

    /// Returns the memory of the buffers in bytes.
    pub(super) fn capacity(&self) -> usize {
        let numbers = self.source_esis.capacity() + self.slot_esis.capacity();
        self.source.capacity() + self.slot_symbols.capacity() + numbers * size_of::<u32>()
    }

    fn bytes(&self) -> usize {
        self.source.len() + self.slot_symbols.len()
    }

    pub(super) fn clear(&mut self) {
        self.source_esis.clear();
        self.source.clear();
        self.slot_esis.clear();
        self.slot_symbols.clear();
    }
}

/// Maximum number of blocks with a digest in progress: a window of 256 blocks and the window before. A block
/// takes 2 KiB.
const BLOCKS_MAX: usize = 512;

/// Digests in progress.
#[derive(Debug, Default)]
pub(super) struct BlockDigests(BTreeMap<Key, Partial>);

#[derive(Debug)]
struct Partial {
    file: FileIndex,
    /// Number of hashed source symbols, from the first on.
    symbols: u32,
    hasher: BlockHasher,
}

impl BlockDigests {
    /// Hashes source symbols of a file's block from `esi` on, which are about to be written: `bytes`, without
    /// padding.
    pub(super) fn write(&mut self, file: FileIndex, key: Key, esi: u32, count: u32, bytes: &[u8]) {
        if esi == 0 && (self.0.len() < BLOCKS_MAX || self.0.contains_key(&key)) {
            self.0.insert(key, Partial { file, symbols: 0, hasher: BlockHasher::default() });
        }
        let Some(partial) = self.0.get_mut(&key) else { return };
        if partial.symbols == esi {
            partial.hasher.update(bytes);
            partial.symbols += count;
        } else {
            self.0.remove(&key);
        }
    }

    /// Removes and returns the digest of a block of this many source symbols, if all were written in order.
    pub(super) fn take(&mut self, key: Key, symbols: u32) -> Option<Digest> {
        let partial = self.0.remove(&key)?;
        (partial.symbols == symbols).then(|| partial.hasher.finish())
    }

    /// Drops the digests of a file.
    pub(super) fn forget(&mut self, file: FileIndex) {
        self.0.retain(|_, partial| partial.file != file);
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::delivery::block_digest;

    use super::*;

    const FILE: FileIndex = FileIndex(3);
    const KEY: Key = (0, 7);

    #[test]
    fn what_is_written_in_order_has_its_digest() {
        let mut hashing = BlockDigests::default();
        hashing.write(FILE, KEY, 0, 2, b"ab");
        hashing.write(FILE, (0, 8), 0, 1, b"x");
        hashing.write(FILE, KEY, 2, 1, b"c");
        assert_eq!(hashing.take(KEY, 3), Some(block_digest(b"abc")));
        assert_eq!(hashing.take(KEY, 3), None);
        assert_eq!(hashing.take((0, 8), 2), None, "a symbol is missing");
    }

    #[test]
    fn what_has_a_hole_or_begins_in_the_middle_has_none() {
        let mut hashing = BlockDigests::default();
        hashing.write(FILE, KEY, 0, 1, b"a");
        hashing.write(FILE, KEY, 2, 1, b"c");
        hashing.write(FILE, KEY, 1, 1, b"b");
        assert_eq!(hashing.take(KEY, 3), None);
        hashing.write(FILE, KEY, 1, 2, b"bc");
        assert_eq!(hashing.take(KEY, 3), None);
    }

    #[test]
    fn a_block_that_comes_anew_is_hashed_anew() {
        let mut hashing = BlockDigests::default();
        hashing.write(FILE, KEY, 0, 1, b"?");
        hashing.write(FILE, KEY, 0, 3, b"abc");
        assert_eq!(hashing.take(KEY, 3), Some(block_digest(b"abc")));
    }

    #[test]
    fn blocks_under_way_have_a_bound() {
        let mut hashing = BlockDigests::default();
        (0..1_000).for_each(|sbn| hashing.write(FILE, (0, sbn), 0, 1, b"a"));
        assert_eq!(hashing.0.len(), BLOCKS_MAX);
        hashing.forget(FileIndex(2));
        assert_eq!(hashing.0.len(), BLOCKS_MAX, "those of another file stay");
        hashing.forget(FILE);
        assert!(hashing.0.is_empty());
    }
}
