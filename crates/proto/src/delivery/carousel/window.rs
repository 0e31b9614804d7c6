//! Window order: a push to receivers that start together, so fast that decoding decides (`fec.md`, "Window").
//!
//! A window is a few blocks that take turns, one symbol a turn, until each has had its share; then the next window
//! begins. The first pass sends every source symbol and [`INLINE_PERMILLE`] of repair: while loss stays below that,
//! blocks are whole one window after another, and are decoded from memory while later ones arrive. Then passes of fresh
//! repair symbols follow, each of [`STEPS`] in turn, the last one for ever. Where repair symbols are not without end,
//! the symbols of a block come again from the first on.

use super::{CarouselBlock, Visit};

/// Source symbols of a window: 32 blocks of 1002 symbols. Its last block may reach beyond.
const WINDOW_SYMBOLS: u64 = 32 * 1_002;
/// Repair symbols of the first pass, in thousandths of the source symbols of a block.
const INLINE_PERMILLE: u64 = 10;
/// Repair symbols of the passes after it, in the same measure: small ones while few symbols are missing.
const STEPS: [u64; 4] = [5, 10, 20, 40];
/// Passes of each step; those of the last go on.
const PASSES_OF_STEP: u64 = 4;

/// All windows of a session, again and again.
///
/// Memory: 4 bytes a block, one more once a file was withdrawn, 8 bytes for each block of the longest window. Time per symbol: O(1), once a window as much
/// as it has blocks.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// The next symbol of each block.
    next: Vec<u32>,
    pass: u64,
    /// Where the next window begins; the number of blocks at the end of a pass.
    after: usize,
    /// Blocks of the window under way that are short of their share, in turns.
    active: Vec<Active>,
    /// Whose turn it is in `active`.
    turn: usize,
    /// The longest block: while a pass brings it nothing, it brings nothing at all.
    longest: Option<CarouselBlock>,
    /// By block, once there are any: blocks that are not sent any more.
    withdrawn: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    block: u32,
    /// Symbols until it has its share.
    left: u32,
}

impl Windows {
    pub(super) fn new(blocks: &[CarouselBlock]) -> Self {
        Self {
            next: vec![0; blocks.len()],
            pass: 0,
            after: 0,
            active: Vec::new(),
            turn: 0,
            longest: longest(blocks.iter()),
            withdrawn: Vec::new(),
        }
    }

    /// Stops sending the blocks that `keeps` refuses; see [`Carousel::retain`](super::Carousel::retain).
    pub(super) fn retain(&mut self, blocks: &[CarouselBlock], keeps: impl Fn(u32) -> bool) -> u64 {
        self.withdrawn.resize(blocks.len(), false);
        let mut sent = 0;
        for (block, withdrawn) in (0..).zip(&mut self.withdrawn) {
            if !*withdrawn && !keeps(block) {
                *withdrawn = true;
                sent += u64::from(self.next[block as usize]);
            }
        }
        let is_withdrawn = |active: &Active| self.withdrawn[active.block as usize];
        self.turn -= self.active[..self.turn].iter().filter(|active| is_withdrawn(active)).count();
        self.active.retain(|active| !self.withdrawn[active.block as usize]);
        let left = blocks.iter().zip(&self.withdrawn).filter(|(_, withdrawn)| !**withdrawn);
        self.longest = longest(left.map(|(block, _)| block));
        sent
    }

    /// The next symbol; `None` when there are no blocks at all.
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

    /// Blocks that have their share leave; when all have, the next window that has anything to send begins.
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
        while self.after < blocks.len() && symbols < WINDOW_SYMBOLS {
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

impl CarouselBlock {
    /// Whether there is nothing but source symbols: then every pass sends all of them.
    fn is_finite(&self) -> bool {
        self.encoding_symbols == self.symbols
    }
}

/// The block to which passes bring something for longest.
fn longest<'a>(blocks: impl Iterator<Item = &'a CarouselBlock>) -> Option<CarouselBlock> {
    blocks.copied().max_by_key(|block| (block.is_finite(), block.symbols))
}

/// Source symbols, and repair symbols where there are any, that the first pass sends of a block of k of n symbols.
pub fn symbols_in_first_pass(symbols: u32, encoding_symbols: u32) -> u64 {
    pass_share(CarouselBlock { symbols, encoding_symbols, rateless: false }, 0)
}

/// How many symbols of a block of k source symbols are sent by the end of each pass, up to the last one that differs
/// from those before it: what a store of repair symbols has to hold.
pub fn passes_end(symbols: u32) -> impl Iterator<Item = u32> {
    let passes = STEPS.len() as u64 * PASSES_OF_STEP;
    (0..=passes).map(move |pass| {
        let end = u64::from(symbols) + repair_symbols(symbols, pass);
        u32::try_from(end).expect("below twice k, which is below 2^24")
    })
}

/// Symbols of a block sent in a pass, counted from 0.
pub(super) fn pass_share(block: CarouselBlock, pass: u64) -> u64 {
    let k = block.symbols;
    match pass {
        _ if block.is_finite() => k.into(),
        0 => u64::from(k) + repair_symbols(k, 0),
        _ => repair_symbols(k, pass) - repair_symbols(k, pass - 1),
    }
}

/// Repair symbols of a block of k source symbols by the end of a pass, rounded up: any block has one from the start.
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

    /// `fec.md`: "each block sends K source + 1 % repair, then 4 x 0.5 %, 4 x 1 %, 4 x 2 %, 4 x 4 %".
    #[test]
    fn shares_are_those_of_the_specification() {
        let shares: Vec<u64> = (0..20).map(|pass| pass_share(rateless(1_000), pass)).collect();
        let expected = [1_010, 5, 5, 5, 5, 10, 10, 10, 10, 20, 20, 20, 20, 40, 40, 40, 40, 40, 40, 40];
        assert_eq!(shares, expected);
        let ends: Vec<u32> = passes_end(1_000).collect();
        assert_eq!((ends.len(), ends[0], ends[16]), (17, 1_010, 1_310));
        assert_eq!(symbols_in_first_pass(1_002, 1 << 24), 1_013, "rounded up");
        assert_eq!(symbols_in_first_pass(1_002, 1_002), 1_002, "no repair symbols, no share of them");
    }

    #[test]
    fn a_window_is_32_blocks_that_take_turns_until_each_has_its_share() {
        let visits = visits(vec![rateless(1_002); 40], 40 * 1_013 + 1);
        let (first, second) = visits.split_at(32 * 1_013);
        for (at, visit) in (0..).zip(first) {
            assert_eq!(*visit, Visit { block: at % 32, esi: at / 32 });
        }
        for (at, visit) in (0..).zip(&second[..8 * 1_013]) {
            assert_eq!(*visit, Visit { block: 32 + at % 8, esi: at / 8 });
        }
        assert_eq!(second[8 * 1_013], Visit { block: 0, esi: 1_013 }, "the next pass brings fresh repair");
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
