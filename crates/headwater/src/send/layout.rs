//! Where repair symbols are in a store: in the order in which a carousel sends them.
//!
//! Blocks of one size take turns, so their symbols do as well: the first repair symbol of each block, then the second
//! of each, and so on. A session has few sizes; each has its part of the store.

use std::collections::BTreeMap;
use std::ops::Range;

/// A block as the store sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredBlock {
    /// k.
    pub(super) symbols: u32,
    /// Repair symbols stored, those from ESI k on: the same number for all blocks of one k.
    pub(super) repairs: u32,
}

/// The order of all repair symbols of a session.
///
/// Memory: 12 bytes a block.
#[derive(Debug)]
pub(super) struct Layout {
    symbol_bytes: usize,
    gather: usize,
    classes: Vec<Class>,
    /// By block: its class and its place in it.
    places: Vec<(u32, u32)>,
    bytes: u64,
}

/// Blocks of one size.
#[derive(Debug)]
struct Class {
    block: StoredBlock,
    /// Where its part of the store begins, in bytes.
    start: u64,
    /// Its first job.
    job: usize,
    /// In the order of the session.
    blocks: Vec<u32>,
}

impl Layout {
    /// The order of `blocks`, which are written by jobs of at most `gather` neighbours at once, so that each write has
    /// as many symbols.
    pub(super) fn new(blocks: &[StoredBlock], symbol_size: u16, gather: usize) -> Self {
        let mut by_size = BTreeMap::<u32, Class>::new();
        let mut places = Vec::with_capacity(blocks.len());
        for (index, block) in (0..).zip(blocks) {
            let new = || Class { block: *block, start: 0, job: 0, blocks: Vec::new() };
            let class = by_size.entry(block.symbols).or_insert_with(new);
            places.push((block.symbols, u32::try_from(class.blocks.len()).expect("below 2^32 blocks")));
            class.blocks.push(index);
        }
        let mut classes: Vec<Class> = by_size.into_values().collect();
        let (mut bytes, mut job) = (0, 0);
        for class in &mut classes {
            (class.start, class.job) = (bytes, job);
            bytes += u64::from(class.block.repairs) * class.blocks.len() as u64 * u64::from(symbol_size);
            job += class.blocks.len().div_ceil(gather);
        }
        for (size, _) in &mut places {
            let class = classes.binary_search_by_key(size, |class| class.block.symbols);
            *size = u32::try_from(class.expect("every size has a class")).expect("below 2^32 blocks");
        }
        Self { symbol_bytes: symbol_size.into(), gather, classes, places, bytes }
    }

    /// Bytes of all repair symbols.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of jobs that write the store.
    pub(super) fn jobs(&self) -> usize {
        self.classes.last().map_or(0, |class| class.job + class.blocks.len().div_ceil(self.gather))
    }

    /// The job that writes a block's repair symbols.
    pub(super) fn job_of(&self, block: usize) -> usize {
        let (class, index) = self.places[block];
        self.classes[class as usize].job + index as usize / self.gather
    }

    /// The blocks of a job, in the order in which their symbols stand.
    pub(super) fn blocks_of(&self, job: usize) -> &[u32] {
        let class = &self.classes[self.classes.partition_point(|class| class.job <= job) - 1];
        let first = (job - class.job) * self.gather;
        &class.blocks[first..class.blocks.len().min(first + self.gather)]
    }

    /// The repair ESIs of a block that are stored.
    pub(super) fn esis(&self, block: usize) -> Range<u32> {
        let StoredBlock { symbols, repairs } = self.classes[self.places[block].0 as usize].block;
        symbols..symbols + repairs
    }

    /// Where repair symbol `esi` of a block is, in bytes; those of the blocks after it in a job follow.
    pub(super) fn offset(&self, block: usize, esi: u32) -> u64 {
        let (class, index) = self.places[block];
        let Class { block, start, ref blocks, .. } = self.classes[class as usize];
        let round = u64::from(esi - block.symbols);
        start + (round * blocks.len() as u64 + u64::from(index)) * self.symbol_bytes as u64
    }

    /// Bytes of a symbol.
    pub(super) fn symbol_bytes(&self) -> usize {
        self.symbol_bytes
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::delivery::{Carousel, CarouselBlock};

    use super::*;

    fn block(symbols: u32) -> StoredBlock {
        StoredBlock { symbols, repairs: symbols }
    }

    #[test]
    fn symbols_of_one_size_stand_as_they_are_sent() {
        let sizes = [5, 4, 5, 4, 5, 5];
        let layout = Layout::new(&sizes.map(block), 64, 3);
        assert_eq!(layout.bytes(), 28 * 64);
        let carousel_block =
            |symbols| CarouselBlock { symbols, encoding_symbols: 2 * symbols, rateless: false };
        let mut carousel = Carousel::new(sizes.map(carousel_block).to_vec(), 1);
        let mut sent = BTreeMap::<u32, Vec<u64>>::new();
        for _ in 0..56 {
            let visit = carousel.next(0).unwrap();
            let k = sizes[visit.block as usize];
            if visit.esi >= k {
                sent.entry(k).or_default().push(layout.offset(visit.block as usize, visit.esi) / 64);
            }
        }
        assert_eq!(sent[&4], (0..8).collect::<Vec<_>>());
        assert_eq!(sent[&5], (8..28).collect::<Vec<_>>());
    }

    #[test]
    fn every_block_has_one_job_and_its_neighbours_follow_it() {
        for gather in [1, 2, 3, 100] {
            let sizes = [7, 9, 9, 7, 9, 9, 9, 1];
            let layout = Layout::new(&sizes.map(block), 16, gather);
            let mut seen = [0; 8];
            for job in 0..layout.jobs() {
                let blocks = layout.blocks_of(job);
                assert!(!blocks.is_empty() && blocks.len() <= gather);
                for (after, index) in (0..).zip(blocks) {
                    let index = *index as usize;
                    seen[index] += 1;
                    assert_eq!(layout.job_of(index), job);
                    for esi in layout.esis(index) {
                        let first = layout.offset(blocks[0] as usize, esi);
                        assert_eq!(layout.offset(index, esi), first + after * 16);
                    }
                }
            }
            assert_eq!(seen, [1; 8]);
        }
    }

    #[test]
    fn a_session_without_blocks_needs_no_store() {
        let layout = Layout::new(&[], 1_408, 4);
        assert_eq!((layout.bytes(), layout.jobs()), (0, 0));
    }

    /// The largest session: 1 TB in blocks of 10017 symbols. Offsets are below the end, and no two are the same.
    #[test]
    fn offsets_hold_for_a_terabyte() {
        let blocks: Vec<_> = (0..70_900).map(|index| block(10_017 - index / 40_000)).collect();
        let layout = Layout::new(&blocks, 1_408, 3);
        assert_eq!(layout.bytes(), blocks.iter().map(|block| u64::from(block.repairs) * 1_408).sum::<u64>());
        let last = |index: usize| layout.offset(index, layout.esis(index).end - 1) + 1_408;
        assert_eq!(last(39_999), layout.bytes());
        assert_eq!(last(70_899), layout.offset(0, 10_017));
    }
}
