//! Window order: a push to receivers that start together, so fast that decoding is the bottleneck
//! (`docs/errata/fec.md`).
//!
//! A window is a part of the blocks. The blocks of a window take turns, one symbol a turn, until each block
//! has its share; then the next window begins. A burst of loss takes as large a part of each block as of the
//! window, and all blocks get the same repair: the block with the most loss determines the duration of the
//! session. So a window is long compared with a burst: all windows have the same length, half of short
//! content and up to [`WINDOW_SYMBOLS_MAX`], which is 3 s at 1 Gbit/s. The first pass sends every source
//! symbol and [`INLINE_PERMILLE`] of repair: while loss stays below that, blocks become whole window by
//! window and are decoded from memory while later blocks arrive. Passes of fresh repair symbols follow, by
//! each of [`STEPS`] in turn; the last step repeats for ever. If the repair symbols of a block are exhausted,
//! the symbols repeat from the first.

use super::{CarouselBlock, Visit};

/// Maximum number of source symbols in a window: 256 blocks of 1002 symbols. The last block may exceed the
/// maximum. A receiver gathers 14 MiB of symbols by block before a write: with more blocks runs are short,
/// pages are written twice, and a disk that is slower than the session becomes the bottleneck
/// (lab/notebook/speed.md).
const WINDOW_SYMBOLS_MAX: u64 = 256 * 1_002;
/// Content of at least two windows of this many source symbols (32 blocks of 1002) is cut in half: the blocks
/// of the last window are decoded at the end, when no more symbols are awaited.
const HALF_SYMBOLS_MIN: u64 = 32 * 1_002;
/// Repair symbols of the first pass, in thousandths of the source symbols of a block.
const INLINE_PERMILLE: u64 = 10;
/// Repair symbols of each later pass, in the same unit: few per pass while few symbols are missing.
const STEPS: [u64; 4] = [5, 10, 20, 40];
/// Passes of each step; the last step repeats.
const PASSES_OF_STEP: u64 = 4;
/// Number of distinct passes when repair symbols are stored; together the passes send 47 % of repair. A loss
/// of 10 % in bursts takes 44 % within 1.3 times the minimum time of any order; after that, repeated symbols
/// would help little.
const STORED_PASSES: u64 = 20;

/// All windows of a session, repeated for ever.
///
/// Memory: 4 bytes a block, one more after a file was withdrawn, 8 bytes for each block of the longest
/// window. Time per symbol: O(1), and O(blocks of the window) once a window.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// The next symbol of each block.
    next: Vec<u32>,
    pass: u64,
    /// First block of the next window; the number of blocks at the end of a pass.
    after: usize,
    /// Source symbols of a window.
    window_symbols: u64,
    /// Blocks of the current window that have not had their share, in turn order.
    active: Vec<Active>,
    /// Index in `active` of the next turn.
    turn: usize,
    /// The longest block: a pass without symbols of the longest block has no symbols at all.
    longest: Option<CarouselBlock>,
    /// Whether each block is withdrawn; empty before the first withdrawal.
    withdrawn: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    block: u32,
    /// Symbols left of the block's share.
    left: u32,
}

impl Windows {
    pub(super) fn new(blocks: &[CarouselBlock]) -> Self {
        Self {
            next: vec![0; blocks.len()],
            pass: 0,
            after: 0,
            window_symbols: window_symbols(blocks.iter().map(|block| u64::from(block.symbols)).sum()),
            active: Vec::new(),
            turn: 0,
            longest: longest(blocks.iter()),
            withdrawn: Vec::new(),
        }
    }

    /// Stops sending the blocks that `keeps` rejects; see [`Carousel::retain`](super::Carousel::retain).
    pub(super) fn retain(&mut self, blocks: &[CarouselBlock], keeps: impl Fn(u32) -> bool) -> u64 {
        self.withdrawn.resize(blocks.len(), false);
        let mut sent = 0;
        for (index, block) in blocks.iter().enumerate() {
            let number = u32::try_from(index).expect("a session has below 2^32 blocks");
            if !self.withdrawn[index] && !keeps(number) {
                self.withdrawn[index] = true;
                sent += self.sent_of(index, *block);
            }
        }
        let is_withdrawn = |active: &Active| self.withdrawn[active.block as usize];
        self.turn -= self.active[..self.turn].iter().filter(|active| is_withdrawn(active)).count();
        self.active.retain(|active| !self.withdrawn[active.block as usize]);
        let left = blocks.iter().zip(&self.withdrawn).filter(|(_, withdrawn)| !**withdrawn);
        self.longest = longest(left.map(|(block, _)| block));
        sent
    }

    /// Number of symbols sent of a block, repetitions included.
    fn sent_of(&self, index: usize, block: CarouselBlock) -> u64 {
        let before: u64 = (0..self.pass).map(|pass| pass_share(block, pass)).sum();
        let is_this = |active: &&Active| active.block as usize == index;
        let left = self.active.iter().find(is_this).map_or(0, |active| active.left);
        let now = if index < self.after { pass_share(block, self.pass) - u64::from(left) } else { 0 };
        before + now
    }

    /// Returns the next symbol; `None` if there are no blocks.
    pub(super) fn next(&mut self, blocks: &[CarouselBlock]) -> Option<Visit> {
        if self.turn == self.active.len() {
            self.begin_round(blocks)?;
        }
        let active = &mut self.active[self.turn];
        active.left -= 1;
        self.turn += 1;
        let block = active.block;
        let next = &mut self.next[block as usize];
        let esi = *next;
        *next = (esi + 1) % blocks[block as usize].encoding_symbols;
        Some(Visit { block, esi })
    }

    /// Removes the blocks that have their share. If no block is left, begins the next window that has symbols
    /// to send.
    fn begin_round(&mut self, blocks: &[CarouselBlock]) -> Option<()> {
        self.turn = 0;
        self.active.retain(|active| active.left > 0);
        while self.active.is_empty() {
            if self.after == blocks.len() {
                self.after = 0;
                self.pass += 1;
                let longest = self.longest?;
                while pass_share(longest, self.pass) == 0 {
                    self.pass += 1;
                }
            }
            self.begin_window(blocks);
        }
        Some(())
    }

    fn begin_window(&mut self, blocks: &[CarouselBlock]) {
        let mut symbols = 0;
        while self.after < blocks.len() && symbols < self.window_symbols {
            let block = blocks[self.after];
            symbols += u64::from(block.symbols);
            let left =
                u32::try_from(pass_share(block, self.pass)).expect("below twice k, which is below 2^24");
            if left > 0 && !self.withdrawn.get(self.after).is_some_and(|withdrawn| *withdrawn) {
                let block = u32::try_from(self.after).expect("a session has below 2^32 blocks");
                self.active.push(Active { block, left });
            }
            self.after += 1;
        }
    }
}

/// Returns the number of source symbols in each window for a session of `symbols` source symbols.
fn window_symbols(symbols: u64) -> u64 {
    let windows = symbols.div_ceil(WINDOW_SYMBOLS_MAX).max((symbols / HALF_SYMBOLS_MIN).clamp(1, 2));
    symbols.div_ceil(windows)
}

impl CarouselBlock {
    /// Whether the block has only source symbols: then every pass sends all of them.
    fn is_finite(&self) -> bool {
        self.encoding_symbols == self.symbols
    }
}

/// Returns the block for which a pass is least likely to have no symbols: blocks without repair symbols
/// first, then the longest.
fn longest<'a>(blocks: impl Iterator<Item = &'a CarouselBlock>) -> Option<CarouselBlock> {
    blocks.copied().max_by_key(|block| (block.is_finite(), block.symbols))
}

/// Number of source and repair symbols that the first pass sends of a block with k = `symbols` and n =
/// `encoding_symbols`.
pub fn symbols_in_first_pass(symbols: u32, encoding_symbols: u32) -> u64 {
    pass_share(CarouselBlock { symbols, encoding_symbols, rateless: false }, 0)
}

/// Number of symbols sent of a block of k source symbols by the end of each pass whose repair symbols a store
/// holds.
pub fn passes_end(symbols: u32) -> impl Iterator<Item = u32> {
    (0..=STORED_PASSES).map(move |pass| {
        let end = u64::from(symbols) + repair_symbols(symbols, pass);
        u32::try_from(end).expect("below twice k, which is below 2^24")
    })
}

/// Number of symbols sent of a block in a pass, counted from 0.
pub(super) fn pass_share(block: CarouselBlock, pass: u64) -> u64 {
    let k = block.symbols;
    match pass {
        _ if block.is_finite() => k.into(),
        0 => u64::from(k) + repair_symbols(k, 0),
        _ => repair_symbols(k, pass) - repair_symbols(k, pass - 1),
    }
}

/// Number of repair symbols sent of a block of k source symbols by the end of a pass, rounded up: any block
/// gets a repair symbol in the first pass.
fn repair_symbols(k: u32, pass: u64) -> u64 {
    let steps = STEPS.len() as u64;
    let permille = (0..steps).fold(INLINE_PERMILLE, |sum, step| {
        let before = step * PASSES_OF_STEP;
        let passes = pass.saturating_sub(before);
        let passes = if step + 1 < steps { passes.min(PASSES_OF_STEP) } else { passes };
        sum + passes * STEPS[usize::try_from(step).expect("one of a few")]
    });
    (u64::from(k) * permille).div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_fec::Order;
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::Carousel;

    fn rateless(symbols: u32) -> CarouselBlock {
        CarouselBlock { symbols, encoding_symbols: 1 << 24, rateless: true }
    }

    fn stored(symbols: u32, encoding_symbols: u32) -> CarouselBlock {
        CarouselBlock { symbols, encoding_symbols, rateless: false }
    }

    fn visits(blocks: Vec<CarouselBlock>, count: usize) -> Vec<Visit> {
        let mut carousel = Carousel::new(blocks, Order::Window);
        (0..count).map(|_| carousel.next_visit().unwrap()).collect()
    }

    /// The rule of departure: "each block sends K source + 1 % repair, then 4 x 0.5 %, 4 x 1 %, 4 x 2 %, 4 x
    /// 4 %".
    #[test]
    fn shares_are_those_of_the_specification() {
        let shares: Vec<u64> = (0..20).map(|pass| pass_share(rateless(1_000), pass)).collect();
        let expected = [1_010, 5, 5, 5, 5, 10, 10, 10, 10, 20, 20, 20, 20, 40, 40, 40, 40, 40, 40, 40];
        assert_eq!(shares, expected);
        let ends: Vec<u32> = passes_end(1_000).collect();
        assert_eq!((ends.len(), ends[0], ends[16], ends[20]), (21, 1_010, 1_310, 1_470));
        assert_eq!(symbols_in_first_pass(1_002, 1 << 24), 1_013, "rounded up");
        assert_eq!(symbols_in_first_pass(1_002, 1_002), 1_002, "no repair symbols, no share of them");
    }

    #[test]
    fn the_blocks_of_a_window_take_turns_until_each_has_its_share() {
        let visits = visits(vec![rateless(1_002); 80], 80 * 1_013 + 1);
        let (first, second) = visits.split_at(40 * 1_013);
        for (at, visit) in (0..).zip(first) {
            assert_eq!(*visit, Visit { block: at % 40, esi: at / 40 });
        }
        for (at, visit) in (0..).zip(&second[..40 * 1_013]) {
            assert_eq!(*visit, Visit { block: 40 + at % 40, esi: at / 40 });
        }
        assert_eq!(second[40 * 1_013], Visit { block: 0, esi: 1_013 }, "the next pass brings fresh repair");
    }

    #[test]
    fn windows_are_halves_up_to_their_bound_and_of_one_length() {
        for (blocks, windows) in [(1, 1), (63, 1), (64, 2), (512, 2), (513, 3), (709, 3), (7_585, 30)] {
            let symbols: u64 = blocks * 1_002;
            assert_eq!(window_symbols(symbols), symbols.div_ceil(windows), "{blocks} blocks");
        }
        assert_eq!(window_symbols(0), 0);
    }

    /// Packets of a session at 1 Gbit/s until a receiver is whole that loses 10 % in bursts of `burst`
    /// packets on average, by those that no order can undercut.
    fn time_over_ideal(blocks: u32, encoding_symbols: u32, burst: f64, seed: u64) -> f64 {
        const K: u32 = 1_002;
        let mut carousel = Carousel::new(vec![stored(K, encoding_symbols); blocks as usize], Order::Window);
        let mut draw = crate::Seed(seed).stream("bursts", 0);
        let mut run = |mean: f64| -mean * libm::log(1.0 - RngExt::random::<f64>(&mut draw));
        let mut held = vec![vec![false; encoding_symbols as usize]; blocks as usize];
        let mut count = vec![0; blocks as usize];
        let (mut is_bad, mut until) = (false, run(9.0 * burst));
        let (mut sent, mut left) = (0_u32, blocks);
        while left > 0 {
            let Visit { block, esi } = carousel.next_visit().unwrap();
            while f64::from(sent) >= until {
                is_bad = !is_bad;
                until += run(if is_bad { burst } else { 9.0 * burst });
            }
            sent += 1;
            if !is_bad && !core::mem::replace(&mut held[block as usize][esi as usize], true) {
                count[block as usize] += 1;
                left -= u32::from(count[block as usize] == K);
            }
        }
        f64::from(sent) / (f64::from(blocks) * f64::from(K) / 0.9)
    }

    /// 1 GB with bursts of 30 ms and 100 ms at 1 Gbit/s, from a store of repair symbols. With windows of 32
    /// blocks and 31 % of repair it took 1.1 to 1.9.
    #[test]
    fn bursts_of_loss_cost_little() {
        let end = passes_end(1_002).last().unwrap();
        for burst in [2_610.0, 8_700.0] {
            for seed in 1..=2 {
                let time = time_over_ideal(709, end, burst, seed);
                assert!(time < 1.3, "{time} with bursts of {burst} packets, seed {seed}");
            }
        }
    }

    #[test]
    fn without_repair_symbols_whole_passes_follow_each_other() {
        let visits = visits(vec![stored(3, 3), stored(2, 2)], 10);
        let expected = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)];
        let expected = expected.map(|(block, esi)| Visit { block, esi });
        assert_eq!((&visits[..5], &visits[5..]), (&expected[..], &expected[..]));
    }

    #[test]
    fn symbols_that_run_out_begin_again_with_the_source() {
        let esis: Vec<u32> = visits(vec![stored(100, 131)], 262).iter().map(|visit| visit.esi).collect();
        let cycle: Vec<u32> = (0..131).collect();
        assert_eq!((&esis[..131], &esis[131..]), (&cycle[..], &cycle[..]));
    }

    #[test]
    fn a_session_of_tiny_files_goes_on_for_ever() {
        let visits = visits(vec![rateless(1); 50], 1_000);
        let distinct: BTreeSet<(u32, u32)> = visits.iter().map(|visit| (visit.block, visit.esi)).collect();
        assert_eq!(distinct.len(), 1_000, "rateless symbols are never sent twice");
        assert!((0..50).all(|block| visits.iter().filter(|visit| visit.block == block).count() == 20));
        assert_eq!(Carousel::new(Vec::new(), Order::Window).next_visit(), None);
    }

    proptest! {
        #[test]
        fn a_pass_sends_every_share_and_every_source_symbol_once(
            blocks in prop::collection::vec((1_u32..3_000, any::<bool>()), 1..60),
        ) {
            let blocks: Vec<_> =
                blocks.into_iter().map(|(k, coded)| if coded { rateless(k) } else { stored(k, k) }).collect();
            let mut carousel = Carousel::new(blocks.clone(), Order::Window);
            let mut seen = BTreeSet::new();
            for _ in 0..carousel.pass_symbols() {
                let visit = carousel.next_visit().unwrap();
                prop_assert!(seen.insert((visit.block, visit.esi)), "{visit:?} came twice");
            }
            for (index, block) in (0..).zip(&blocks) {
                prop_assert_eq!(seen.range((index, 0)..(index + 1, 0)).count() as u64, pass_share(*block, 0));
                prop_assert!((0..block.symbols).all(|esi| seen.contains(&(index, esi))));
            }
        }
    }
}
