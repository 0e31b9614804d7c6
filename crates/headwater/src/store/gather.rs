//! Symbols on their way to disk, gathered by block: one write for many.

use std::collections::BTreeMap;

use headwater_fec::Block;
use headwater_proto::delivery::StoredRepair;

/// Bytes gathered of a block before they are written.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes gathered in all: at least, at most, and a share of the content between.
///
/// What is gathered is lost with a process that is killed, so it is little beside the content: twenty times
/// this is less than 40 MiB and a hundredth of the content. Blocks that take turns in great number are
/// written in shorter runs.
const BYTES_MIN: u64 = 3 << 19;
const BYTES_MAX: u64 = 8 << 20;
const SHARE: u64 = 2_048;
/// Buffers kept for other blocks.
const SPARE_MAX: usize = 64;

/// A block, by the numbers of its object and itself.
pub(super) type Key = (usize, u32);

/// Symbols that are not written yet. Memory: what [`Gather::set_content`] allows, and as much again of spare
/// room, as vectors grow by doubling; and [`SPARE_MAX`] buffers.
#[derive(Debug)]
pub(super) struct Gather {
    blocks: BTreeMap<Key, Gathered>,
    bytes: usize,
    bytes_max: usize,
    spare: Vec<Gathered>,
}

/// Symbols of a block in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    source_esis: Vec<u32>,
    /// Without the padding.
    source: Vec<u8>,
    /// The slot of the first repair symbol; the others follow.
    pub(super) slot: u32,
    pub(super) repair_esis: Vec<u32>,
    pub(super) repairs: Vec<u8>,
}

impl Gather {
    pub(super) fn new() -> Self {
        let mut gather = Self { blocks: BTreeMap::new(), bytes: 0, bytes_max: 0, spare: Vec::new() };
        gather.set_content(0);
        gather
    }

    /// Gathers as much as is right for so many bytes of content.
    pub(super) fn set_content(&mut self, bytes: u64) {
        let share = (BYTES_MIN + bytes / SHARE).min(BYTES_MAX);
        self.bytes_max = usize::try_from(share).expect("at most 8 MiB");
    }

    /// Memory that gathered symbols may take while they wait to be written, in bytes: as much as those being
    /// gathered, which take twice their own bytes at most.
    pub(super) fn queue_bytes_max(&self) -> usize {
        2 * self.bytes_max
    }

    /// Takes a source symbol, without its padding. True when it is time to write its block.
    pub(super) fn put_source(&mut self, key: Key, esi: u32, symbol: &[u8]) -> bool {
        self.put(key, symbol.len(), |gathered| {
            gathered.source_esis.push(esi);
            gathered.source.extend_from_slice(symbol);
        })
    }

    /// Takes a repair symbol, whose slot follows the last one's. True when it is time to write its block.
    pub(super) fn put_repair(&mut self, key: Key, repair: StoredRepair, symbol: &[u8]) -> bool {
        self.put(key, symbol.len(), |gathered| {
            if gathered.repair_esis.is_empty() {
                gathered.slot = repair.slot;
            }
            gathered.repair_esis.push(repair.esi);
            gathered.repairs.extend_from_slice(symbol);
        })
    }

    /// Takes out what was gathered of a block, to be given back to [`Gather::recycle`].
    pub(super) fn take(&mut self, key: Key) -> Option<Gathered> {
        let gathered = self.blocks.remove(&key)?;
        self.bytes -= gathered.bytes();
        Some(gathered)
    }

    /// A block of which something was gathered.
    pub(super) fn first(&self) -> Option<Key> {
        self.blocks.keys().next().copied()
    }

    /// Forgets what was gathered of the objects that `keeps` does not want.
    pub(super) fn retain(&mut self, keeps: impl Fn(usize) -> bool) {
        self.blocks.retain(|(object, _), _| keeps(*object));
        self.bytes = self.blocks.values().map(Gathered::bytes).sum();
    }

    /// Takes the buffers of a block back.
    pub(super) fn recycle(&mut self, mut gathered: Gathered) {
        if self.spare.len() < SPARE_MAX {
            gathered.clear();
            self.spare.push(gathered);
        }
    }

    /// Puts so many bytes to a block, whose place is looked up once, as this is done for each packet.
    fn put(&mut self, key: Key, bytes: usize, put: impl FnOnce(&mut Gathered)) -> bool {
        let gathered = self.blocks.entry(key).or_insert_with(|| self.spare.pop().unwrap_or_default());
        put(gathered);
        self.bytes += bytes;
        self.bytes >= self.bytes_max || gathered.bytes() >= BLOCK_BYTES
    }
}

impl Gathered {
    /// Runs of consecutive source symbols of a block: the first one, how many, and their bytes.
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

    /// Memory of the buffers, in bytes.
    pub(super) fn capacity(&self) -> usize {
        let numbers = self.source_esis.capacity() + self.repair_esis.capacity();
        self.source.capacity() + self.repairs.capacity() + numbers * size_of::<u32>()
    }

    fn bytes(&self) -> usize {
        self.source.len() + self.repairs.len()
    }

    pub(super) fn clear(&mut self) {
        self.source_esis.clear();
        self.source.clear();
        self.repair_esis.clear();
        self.repairs.clear();
    }
}
