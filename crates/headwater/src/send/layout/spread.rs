//! The store of spread order. Blocks of one size take turns, so their symbols do as well: the first repair
//! symbol of each block, then the second of each, and so on, as many as source symbols. A session has few
//! sizes; each has its part of the store.

use std::collections::BTreeMap;
use std::ops::Range;

use super::StoredBlock;

/// Memory: 12 bytes a block.
#[derive(Debug)]
pub(in crate::send) struct SpreadLayout {
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
    /// k.
    symbols: u32,
    /// Repair symbols stored, those from ESI k on.
    repairs: u32,
    /// Where its part of the store begins, in bytes.
    start: u64,
    /// Its first job.
    job: usize,
    /// In the order of the session.
    blocks: Vec<u32>,
}

impl SpreadLayout {
    pub(super) fn new(blocks: &[StoredBlock], symbol_size: u16, gather: usize) -> Self {
        let mut by_size = BTreeMap::<u32, Class>::new();
        let mut places = Vec::with_capacity(blocks.len());
        for (index, block) in (0..).zip(blocks) {
            let new = || Class {
                symbols: block.symbols,
                repairs: block.repairs_max.min(block.symbols),
                start: 0,
                job: 0,
                blocks: Vec::new(),
            };
            let class = by_size.entry(block.symbols).or_insert_with(new);
            places.push((block.symbols, u32::try_from(class.blocks.len()).expect("below 2^32 blocks")));
            class.blocks.push(index);
        }
        let mut classes: Vec<Class> = by_size.into_values().collect();
        let (mut bytes, mut job) = (0, 0);
        for class in &mut classes {
            (class.start, class.job) = (bytes, job);
            bytes += u64::from(class.repairs) * class.blocks.len() as u64 * u64::from(symbol_size);
            job += class.blocks.len().div_ceil(gather);
        }
        for (size, _) in &mut places {
            let class = classes.binary_search_by_key(size, |class| class.symbols);
            *size = u32::try_from(class.expect("every size has a class")).expect("below 2^32 blocks");
        }
        Self { symbol_bytes: symbol_size.into(), gather, classes, places, bytes }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn jobs(&self) -> usize {
        self.classes.last().map_or(0, |class| class.job + class.blocks.len().div_ceil(self.gather))
    }

    pub(super) fn job_of(&self, block: usize) -> usize {
        let (class, index) = self.places[block];
        self.classes[class as usize].job + index as usize / self.gather
    }

    pub(super) fn blocks_of(&self, job: usize) -> &[u32] {
        let class = &self.classes[self.classes.partition_point(|class| class.job <= job) - 1];
        let first = (job - class.job) * self.gather;
        &class.blocks[first..class.blocks.len().min(first + self.gather)]
    }

    pub(super) fn esis(&self, block: usize) -> Range<u32> {
        let Class { symbols, repairs, .. } = self.classes[self.places[block].0 as usize];
        symbols..symbols + repairs
    }

    pub(super) fn runs_of(&self, job: usize) -> Vec<u64> {
        let first = self.blocks_of(job)[0] as usize;
        self.esis(first).map(|esi| self.offset(first, esi)).collect()
    }

    pub(super) fn esis_of_run(&self, block: usize, run: usize) -> Range<u32> {
        let esi = self.esis(block).start + u32::try_from(run).expect("below the number of repair symbols");
        esi..esi + 1
    }

    pub(super) fn offset(&self, block: usize, esi: u32) -> u64 {
        let (class, index) = self.places[block];
        let Class { symbols, start, ref blocks, .. } = self.classes[class as usize];
        let round = u64::from(esi - symbols);
        start + (round * blocks.len() as u64 + u64::from(index)) * self.symbol_bytes as u64
    }

    pub(super) fn symbol_bytes(&self) -> usize {
        self.symbol_bytes
    }
}

#[cfg(test)]
mod tests {
    use headwater_fec::Order;
    use headwater_proto::delivery::{Carousel, CarouselBlock};

    use super::*;

    fn block(symbols: u32) -> StoredBlock {
        StoredBlock { symbols, repairs_max: u32::MAX, few: 0 }
    }

    #[test]
    fn symbols_of_one_size_stand_as_they_are_sent() {
        let sizes = [5, 4, 5, 4, 5, 5];
        let layout = SpreadLayout::new(&sizes.map(block), 64, 3);
        assert_eq!(layout.bytes(), 28 * 64);
        let carousel_block =
            |symbols| CarouselBlock { symbols, encoding_symbols: 2 * symbols, rateless: false };
        let mut carousel = Carousel::new(sizes.map(carousel_block).to_vec(), Order::Spread { rate: 1 });
        let mut sent = BTreeMap::<u32, Vec<u64>>::new();
        for _ in 0..56 {
            let visit = carousel.next_visit().unwrap();
            let k = sizes[visit.block as usize];
            if visit.esi >= k {
                sent.entry(k).or_default().push(layout.offset(visit.block as usize, visit.esi) / 64);
            }
        }
        assert_eq!(sent[&4], (0..8).collect::<Vec<_>>());
        assert_eq!(sent[&5], (8..28).collect::<Vec<_>>());
    }

    /// The largest session: 1 TB in blocks of 10017 symbols. Offsets are below the end, and no two are the
    /// same.
    #[test]
    fn offsets_hold_for_a_terabyte() {
        let blocks: Vec<_> = (0..70_900).map(|index| block(10_017 - index / 40_000)).collect();
        let layout = SpreadLayout::new(&blocks, 1_408, 3);
        assert_eq!(layout.bytes(), blocks.iter().map(|block| u64::from(block.symbols) * 1_408).sum::<u64>());
        let last = |index: usize| layout.offset(index, layout.esis(index).end - 1) + 1_408;
        assert_eq!(last(39_999), layout.bytes());
        assert_eq!(last(70_899), layout.offset(0, 10_017));
    }
}
