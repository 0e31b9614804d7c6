//! Where repair symbols are in a store: in the order in which a carousel sends them, so that writing goes in
//! runs and reading goes forward.

mod spread;
mod window;

use std::ops::Range;

use headwater_fec::Order;

use self::spread::SpreadLayout;
use self::window::WindowLayout;
pub(super) use self::window::early_symbols;

/// A block as the store sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredBlock {
    /// k.
    pub(super) symbols: u32,
    /// n - k at most: repair symbols that the code has.
    pub(super) repairs_max: u32,
    /// Repair symbols that the code makes without an encoder.
    pub(super) few: u32,
}

/// The order of all repair symbols of a session.
#[derive(Debug)]
pub(super) enum Layout {
    Spread(SpreadLayout),
    Window(WindowLayout),
}

impl Layout {
    /// The places of the repair symbols of `blocks`, which are written by jobs of at most `gather` blocks at
    /// once, so that each write has symbols of as many.
    pub(super) fn new(blocks: &[StoredBlock], symbol_size: u16, gather: usize, order: Order) -> Self {
        match order {
            Order::Spread { .. } => Self::Spread(SpreadLayout::new(blocks, symbol_size, gather)),
            Order::Window => Self::Window(WindowLayout::new(blocks, symbol_size, gather)),
        }
    }

    /// Bytes of all repair symbols.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Spread(spread) => spread.bytes(),
            Self::Window(window) => window.bytes(),
        }
    }

    /// Number of jobs that write the store.
    pub(super) fn jobs(&self) -> usize {
        match self {
            Self::Spread(spread) => spread.jobs(),
            Self::Window(window) => window.jobs(),
        }
    }

    /// The job that writes a block's repair symbols.
    pub(super) fn job_of(&self, block: usize) -> usize {
        match self {
            Self::Spread(spread) => spread.job_of(block),
            Self::Window(window) => window.job_of(block),
        }
    }

    /// The blocks of a job, in the order in which their symbols stand in each of its runs.
    pub(super) fn blocks_of(&self, job: usize) -> Vec<usize> {
        match self {
            Self::Spread(spread) => spread.blocks_of(job).iter().map(|block| *block as usize).collect(),
            Self::Window(window) => window.blocks_of(job).collect(),
        }
    }

    /// The repair ESIs of a block that are stored.
    pub(super) fn esis(&self, block: usize) -> Range<u32> {
        match self {
            Self::Spread(spread) => spread.esis(block),
            Self::Window(window) => window.esis(block),
        }
    }

    /// The runs of a job: where each begins, in bytes.
    pub(super) fn runs_of(&self, job: usize) -> Vec<u64> {
        match self {
            Self::Spread(spread) => spread.runs_of(job),
            Self::Window(window) => window.runs_of(job),
        }
    }

    /// How many runs of each job have symbols that are made before all others, without encoders.
    pub(super) fn early_runs(&self) -> usize {
        match self {
            Self::Spread(_) => 0,
            Self::Window(window) => window.early_runs(),
        }
    }

    /// The ESI with which those symbols of a block end: k where it has none.
    pub(super) fn early_end(&self, block: usize) -> u32 {
        match self {
            Self::Spread(spread) => spread.esis(block).start,
            Self::Window(window) => window.early_end(block),
        }
    }

    /// The symbols of a block in a run of its job: those of the job's next block follow.
    pub(super) fn esis_of_run(&self, block: usize, run: usize) -> Range<u32> {
        match self {
            Self::Spread(spread) => spread.esis_of_run(block, run),
            Self::Window(window) => window.esis_of_run(block, run),
        }
    }

    /// The first ESI from `esi` on that does not stand behind the one before it: those of its run end there.
    pub(super) fn run_end(&self, block: usize, esi: u32) -> u32 {
        match self {
            Self::Spread(_) => esi + 1,
            Self::Window(window) => window.run_end(block, esi),
        }
    }

    /// Where repair symbol `esi` of a block is, in bytes.
    pub(super) fn offset(&self, block: usize, esi: u32) -> u64 {
        match self {
            Self::Spread(spread) => spread.offset(block, esi),
            Self::Window(window) => window.offset(block, esi),
        }
    }

    /// Bytes of a symbol.
    pub(super) fn symbol_bytes(&self) -> usize {
        match self {
            Self::Spread(spread) => spread.symbol_bytes(),
            Self::Window(window) => window.symbol_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headwater_proto::delivery::{Carousel, CarouselBlock};

    use super::*;

    const ORDERS: [Order; 2] = [Order::Spread { rate: 1 }, Order::Window];

    fn blocks(sizes: &[u32]) -> Vec<StoredBlock> {
        sizes.iter().map(|k| StoredBlock { symbols: *k, repairs_max: 3 * k, few: k / 50 }).collect()
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
            let layout = Layout::new(&[StoredBlock { symbols: 100, repairs_max: 3, few: 0 }; 2], 1, 2, order);
            assert_eq!((layout.esis(1), layout.bytes()), (100..103, 6));
        }
    }
}
