//! Layout of repair symbols in a store: symbols are stored in the order of the carousel, so that writes form
//! runs and reads go forward.
//!
//! In spread order, blocks of equal size take turns, and so do their symbols: the first repair symbol of
//! each block, then the second of each block, and so on, as many as source symbols. A session has few sizes;
//! each size has a part of the store.
//!
//! In window order, the store holds the repair symbols of the first pass, block after block, then the repair
//! symbols of the second pass, and so on, for all stored passes (47 % of the content).

use std::collections::BTreeMap;
use std::ops::Range;

use headwater_fec::Order;
use headwater_proto::delivery::passes_end;

/// Symbol counts of a block that determine the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredBlock {
    /// k.
    pub(super) symbols: u32,
    /// n - k: maximum number of repair symbols of the code.
    pub(super) repairs_max: u32,
}

/// Order of all repair symbols of a session.
#[derive(Debug)]
pub(super) enum Layout {
    Spread(SpreadLayout),
    Window(WindowLayout),
}

impl Layout {
    /// Lays out the repair symbols of `blocks`. A job writes at most `gather` blocks at once, so that each
    /// write has symbols of `gather` blocks.
    pub(super) fn new(blocks: &[StoredBlock], symbol_size: u16, gather: usize, order: Order) -> Self {
        match order {
            Order::Spread { .. } => Self::Spread(SpreadLayout::new(blocks, symbol_size, gather)),
            Order::Window => Self::Window(WindowLayout::new(blocks, symbol_size, gather)),
        }
    }

    /// Returns the bytes of all repair symbols.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Spread(spread) => spread.bytes(),
            Self::Window(window) => window.bytes(),
        }
    }

    /// Returns the number of jobs that write the store.
    pub(super) fn jobs(&self) -> usize {
        match self {
            Self::Spread(spread) => spread.jobs(),
            Self::Window(window) => window.jobs(),
        }
    }

    /// Returns the job that writes a block's repair symbols.
    pub(super) fn job_of(&self, block: usize) -> usize {
        match self {
            Self::Spread(spread) => spread.job_of(block),
            Self::Window(window) => window.job_of(block),
        }
    }

    /// Returns the blocks of a job in the order of their symbols in each run.
    pub(super) fn blocks_of(&self, job: usize) -> Vec<usize> {
        match self {
            Self::Spread(spread) => spread.blocks_of(job).iter().map(|block| *block as usize).collect(),
            Self::Window(window) => window.blocks_of(job).collect(),
        }
    }

    /// Returns the stored repair ESIs of a block.
    pub(super) fn esis(&self, block: usize) -> Range<u32> {
        match self {
            Self::Spread(spread) => spread.esis(block),
            Self::Window(window) => window.esis(block),
        }
    }

    /// Returns the start of each run of a job, in bytes.
    pub(super) fn runs_of(&self, job: usize) -> Vec<u64> {
        match self {
            Self::Spread(spread) => spread.runs_of(job),
            Self::Window(window) => window.runs_of(job),
        }
    }

    /// Returns the symbols of a block in a run of the block's job. The symbols of the job's next block
    /// follow.
    pub(super) fn esis_of_run(&self, block: usize, run: usize) -> Range<u32> {
        match self {
            Self::Spread(spread) => spread.esis_of_run(block, run),
            Self::Window(window) => window.esis_of_run(block, run),
        }
    }

    /// Returns the end of the stored run of `esi`: the first later ESI that is not stored directly after its
    /// predecessor.
    pub(super) fn run_end(&self, block: usize, esi: u32) -> u32 {
        match self {
            Self::Spread(_) => esi + 1,
            Self::Window(window) => window.run_end(block, esi),
        }
    }

    /// Returns the offset of repair symbol `esi` of a block, in bytes.
    pub(super) fn offset(&self, block: usize, esi: u32) -> u64 {
        match self {
            Self::Spread(spread) => spread.offset(block, esi),
            Self::Window(window) => window.offset(block, esi),
        }
    }

    /// Returns the bytes of a symbol.
    pub(super) fn symbol_bytes(&self) -> usize {
        match self {
            Self::Spread(spread) => spread.symbol_bytes(),
            Self::Window(window) => window.symbol_bytes(),
        }
    }
}

/// Layout in spread order. Memory: 12 bytes a block.
#[derive(Debug)]
pub(in crate::send) struct SpreadLayout {
    symbol_bytes: usize,
    gather: usize,
    classes: Vec<Class>,
    /// By block: index of the class, and position within the class.
    places: Vec<(u32, u32)>,
    bytes: u64,
}

/// Blocks of equal size.
#[derive(Debug)]
struct Class {
    /// k.
    symbols: u32,
    /// Number of stored repair symbols, from ESI k on.
    repairs: u32,
    /// Start of the class in the store, in bytes.
    start: u64,
    /// First job of the class.
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

/// Number of stored passes, including the first pass.
const PASSES: usize = 21;
/// Number of blocks between two stored sums, which bounds the additions for locating a symbol.
const CHUNK: usize = 32;

/// Layout in window order. Memory: 9.25 bytes a block, 88 bytes for each length of blocks.
#[derive(Debug)]
pub(in crate::send) struct WindowLayout {
    symbol_bytes: usize,
    gather: usize,
    lengths: Vec<Length>,
    /// By block: index of the length.
    blocks: Vec<u32>,
    /// By pass and chunk: start of the first block's symbols, in symbols.
    starts: Vec<Vec<u64>>,
    symbols: u64,
}

/// Blocks of equal length.
#[derive(Clone, Copy, Debug)]
struct Length {
    /// k.
    symbols: u32,
    /// End ESI of each pass.
    ends: [u32; PASSES],
}

impl WindowLayout {
    pub(super) fn new(blocks: &[StoredBlock], symbol_size: u16, gather: usize) -> Self {
        let mut known = BTreeMap::new();
        let mut lengths = Vec::new();
        let mut length_of = |block: &StoredBlock| {
            *known.entry((block.symbols, block.repairs_max)).or_insert_with(|| {
                lengths.push(Length::new(block));
                u32::try_from(lengths.len() - 1).expect("a session has below 2^32 blocks")
            })
        };
        let blocks: Vec<u32> = blocks.iter().map(&mut length_of).collect();
        let (starts, symbols) = starts(&blocks, &lengths);
        Self { symbol_bytes: symbol_size.into(), gather, lengths, blocks, starts, symbols }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.symbols * self.symbol_bytes as u64
    }

    pub(super) fn jobs(&self) -> usize {
        self.blocks.len().div_ceil(self.gather)
    }

    pub(super) fn job_of(&self, block: usize) -> usize {
        block / self.gather
    }

    pub(super) fn blocks_of(&self, job: usize) -> Range<usize> {
        job * self.gather..self.blocks.len().min((job + 1) * self.gather)
    }

    pub(super) fn esis(&self, block: usize) -> Range<u32> {
        let Length { symbols, ends } = *self.length(block);
        symbols..ends[PASSES - 1]
    }

    pub(super) fn runs_of(&self, job: usize) -> Vec<u64> {
        let first = self.blocks_of(job).start;
        (0..PASSES).map(|pass| self.start(first, pass) * self.symbol_bytes as u64).collect()
    }

    pub(super) fn esis_of_run(&self, block: usize, pass: usize) -> Range<u32> {
        self.length(block).pass(pass)
    }

    pub(super) fn run_end(&self, block: usize, esi: u32) -> u32 {
        let length = self.length(block);
        length.pass(length.pass_of(esi)).end
    }

    pub(super) fn offset(&self, block: usize, esi: u32) -> u64 {
        let length = self.length(block);
        let pass = length.pass_of(esi);
        let within = esi - length.pass(pass).start;
        (self.start(block, pass) + u64::from(within)) * self.symbol_bytes as u64
    }

    pub(super) fn symbol_bytes(&self) -> usize {
        self.symbol_bytes
    }

    fn length(&self, block: usize) -> &Length {
        &self.lengths[self.blocks[block] as usize]
    }

    /// Returns the start of the symbols of a block and pass, in symbols.
    fn start(&self, block: usize, pass: usize) -> u64 {
        let chunk = block / CHUNK;
        let before = (chunk * CHUNK..block).map(|block| self.length(block).pass(pass).len() as u64);
        self.starts[pass][chunk] + before.sum::<u64>()
    }
}

impl Length {
    fn new(block: &StoredBlock) -> Self {
        let mut ends = [0; PASSES];
        for (end, of_pass) in ends.iter_mut().zip(passes_end(block.symbols)) {
            *end = of_pass.min(block.symbols.saturating_add(block.repairs_max));
        }
        Self { symbols: block.symbols, ends }
    }

    /// Returns the pass that sends repair symbol `esi` first.
    fn pass_of(&self, esi: u32) -> usize {
        self.ends.partition_point(|end| *end <= esi)
    }

    /// Returns the repair symbols of a pass.
    fn pass(&self, pass: usize) -> Range<u32> {
        let start = pass.checked_sub(1).map_or(self.symbols, |before| self.ends[before]);
        start..self.ends[pass]
    }
}

fn starts(blocks: &[u32], lengths: &[Length]) -> (Vec<Vec<u64>>, u64) {
    let mut symbols = 0;
    let mut of_chunk = |pass: usize, chunk: &[u32]| {
        let start = symbols;
        let count = |block: &u32| lengths[*block as usize].pass(pass).len() as u64;
        symbols += chunk.iter().map(count).sum::<u64>();
        start
    };
    let of_pass = |pass| blocks.chunks(CHUNK).map(|chunk| of_chunk(pass, chunk)).collect();
    let starts = (0..PASSES).map(of_pass).collect();
    (starts, symbols)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headwater_proto::delivery::{Carousel, CarouselBlock};

    use super::*;

    const ORDERS: [Order; 2] = [Order::Spread { rate: 1 }, Order::Window];

    fn blocks(sizes: &[u32]) -> Vec<StoredBlock> {
        sizes.iter().map(|k| StoredBlock { symbols: *k, repairs_max: 3 * k }).collect()
    }

    /// What a store is for: what its jobs write in runs is found again, symbol by symbol, and fills it
    /// exactly.
    #[test]
    fn every_symbol_is_where_its_job_wrote_it() {
        let sizes = [7, 900, 900, 7, 901, 900, 901, 1, 33];
        for (gather, order) in
            [1, 2, 3, 100].into_iter().flat_map(|gather| ORDERS.map(|order| (gather, order)))
        {
            let layout = Layout::new(&blocks(&sizes), 16, gather, order);
            let mut written = BTreeMap::new();
            for job in 0..layout.jobs() {
                let blocks = layout.blocks_of(job);
                assert!(!blocks.is_empty() && blocks.len() <= gather);
                for (run, start) in layout.runs_of(job).into_iter().enumerate() {
                    let mut at = start;
                    for block in &blocks {
                        assert_eq!(layout.job_of(*block), job);
                        for esi in layout.esis_of_run(*block, run) {
                            assert_eq!(written.insert(at, (*block, esi)), None, "{order:?}: written twice");
                            at += 16;
                        }
                    }
                }
            }
            for (block, k) in sizes.iter().enumerate() {
                let esis = layout.esis(block);
                assert!(esis.start == *k && !esis.is_empty());
                for esi in esis {
                    let offset = layout.offset(block, esi);
                    assert_eq!(written.remove(&offset), Some((block, esi)), "{order:?}");
                    let behind = layout.run_end(block, esi) - 1;
                    assert_eq!(
                        layout.offset(block, behind),
                        offset + u64::from(behind - esi) * 16,
                        "{order:?}"
                    );
                }
            }
            assert!(written.is_empty(), "{order:?}");
        }
    }

    /// The carousel meets repair symbols as they stand: in window order those of a window and pass are near.
    #[test]
    fn reading_goes_forward_in_the_order_of_sending() {
        let layout = Layout::new(&blocks(&[1_002; 64]), 1, 8, Order::Window);
        let block = CarouselBlock { symbols: 1_002, encoding_symbols: layout.esis(0).end, rateless: false };
        let mut carousel = Carousel::new(vec![block; 64], Order::Window);
        let symbols = u64::from(block.encoding_symbols) * 64;
        let repairs = (0..symbols).filter_map(|_| carousel.next_visit()).filter(|visit| visit.esi >= 1_002);
        let offsets: Vec<u64> = repairs.map(|visit| layout.offset(visit.block as usize, visit.esi)).collect();
        assert_eq!(offsets.len() as u64, layout.bytes());
        // At most what one window sends in a pass: 32 blocks of 41 symbols.
        assert!((0..).zip(offsets).all(|(at, offset): (u64, u64)| at.abs_diff(offset) < 32 * 41));
    }

    #[test]
    fn a_session_without_blocks_needs_no_store() {
        for order in ORDERS {
            let layout = Layout::new(&[], 1_408, 4, order);
            assert_eq!((layout.bytes(), layout.jobs()), (0, 0));
        }
    }

    #[test]
    fn no_more_is_stored_than_the_code_has() {
        for order in ORDERS {
            let layout = Layout::new(&[StoredBlock { symbols: 100, repairs_max: 3 }; 2], 1, 2, order);
            assert_eq!((layout.esis(1), layout.bytes()), (100..103, 6));
        }
    }
}

#[cfg(test)]
mod spread_tests {
    use headwater_fec::Order;
    use headwater_proto::delivery::{Carousel, CarouselBlock};

    use super::*;

    fn block(symbols: u32) -> StoredBlock {
        StoredBlock { symbols, repairs_max: u32::MAX }
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

#[cfg(test)]
mod window_tests {
    use super::*;

    #[test]
    fn the_passes_that_are_stored_are_kept() {
        assert_eq!(passes_end(1_002).count(), PASSES);
        let layout = WindowLayout::new(&[StoredBlock { symbols: 1_000, repairs_max: 1 << 20 }; 3], 10, 2);
        assert_eq!((layout.esis(2), layout.bytes()), (1_000..1_470, 3 * 470 * 10));
        assert_eq!((layout.esis_of_run(2, 0), layout.esis_of_run(2, 16)), (1_000..1_010, 1_270..1_310));
    }
}
