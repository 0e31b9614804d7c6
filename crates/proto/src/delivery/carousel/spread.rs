//! Spread order: all blocks of a session take turns, one symbol a turn. Every block of every file grows at
//! the same pace, and a receiver may join at any instant. A block of k symbols gets k turns in each pass over
//! the session: without that weight a one-symbol file would be sent as often as a whole large block.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rand::RngExt as _;
use rand::seq::SliceRandom;

use super::{CarouselBlock, Visit};
use crate::rng::Stream;

/// Maximum number of turns shuffled together, all within one pass.
const MIXED: usize = 256;
/// Upper bound of the number of passes skipped: receivers keep the ESIs of received repair symbols in runs.
const SKIPPED_MAX: u64 = 256;

/// An order goes on that is ahead of the place by at most the repair symbols divided by this number.
const NEAR_DIVISOR: i64 = 32;

/// All blocks, in turns.
///
/// Memory: 8 bytes a block, 32 bytes for each distinct block size. Time per symbol: O(log sizes), O(1) for
/// one file.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    /// Next symbol of each block.
    next: Vec<u32>,
    /// Block indices grouped by class, by ascending size and index.
    order: Vec<u32>,
    /// Classes, with the earliest due turn first.
    turns: BinaryHeap<Reverse<Turn>>,
    mix: Option<Mix>,
}

/// Upcoming turns, in a random order. A receiver of every second or third symbol then receives as many
/// symbols of each block; in a regular order the receiver might only receive symbols of some blocks. Passes
/// are not shuffled together: small blocks would wait for their first symbol while large blocks have many
/// symbols.
#[derive(Clone, Debug)]
struct Mix {
    draw: Stream,
    blocks: Vec<u32>,
    /// Whether a block is rateless. Otherwise at most one turn of each block is shuffled, so that all blocks
    /// stay at the same place of the cycle.
    is_rateless: bool,
    /// Turns in a pass.
    pass: u64,
    /// Turns of this pass that are not drawn yet.
    left: u64,
}

/// All blocks of one size, which take turns in sequence.
#[derive(Clone, Debug)]
struct Class {
    /// Start of the class in `order`.
    first: usize,
    count: u64,
    /// Turns in a pass: number of blocks times number of source symbols.
    weight: u64,
}

#[derive(Clone, Debug)]
struct Turn {
    class: Class,
    /// Turns taken since the start of the session.
    taken: u64,
}

impl Turn {
    /// Compares the due times of two turns. A turn falls due at (taken + 1/2) / weight passes: classes
    /// advance side by side in proportion to the weights.
    fn cmp_due(&self, other: &Self) -> Ordering {
        let due = |one: &Self, other: &Self| (2 * u128::from(one.taken) + 1) * u128::from(other.class.weight);
        due(self, other).cmp(&due(other, self)).then(self.class.first.cmp(&other.class.first))
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_due(other)
    }
}
impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Turn {}

impl Spread {
    /// Creates an order over `blocks` that begins with these symbols.
    pub(super) fn new(blocks: &[CarouselBlock], first: Vec<u32>) -> Self {
        let mut order: Vec<u32> =
            (0..u32::try_from(blocks.len()).expect("a session has below 2^32 blocks")).collect();
        order.sort_by_key(|block| blocks[*block as usize].symbols);
        let turns = classes(blocks, &order);
        let turns = turns.into_iter().map(|class| Reverse(Turn { class, taken: 0 })).collect();
        Self { next: first, order, turns, mix: None }
    }

    /// Randomizes the order for receivers that receive parts of the packets: shuffles each [`MIXED`] turns of
    /// a pass, or the turns left in the pass; of finite codes at most as many turns as blocks.
    pub(super) fn mixed(self, blocks: &[CarouselBlock], draw: Stream) -> Self {
        let pass = self.turns.iter().map(|Reverse(turn)| turn.class.weight).sum();
        let is_rateless = blocks.iter().any(|block| block.rateless);
        let mix = Mix { draw, blocks: Vec::with_capacity(MIXED), is_rateless, pass, left: pass };
        Self { mix: Some(mix), ..self }
    }

    /// Continues each block with a repair symbol some block lengths ahead. The number of block lengths is
    /// drawn once for all blocks.
    pub(super) fn skip(&mut self, blocks: &[CarouselBlock]) {
        let Some(mix) = &mut self.mix else { return };
        let passes = mix.draw.random_range(0..SKIPPED_MAX);
        for (next, block) in self.next.iter_mut().zip(blocks) {
            let repair = u64::from(block.encoding_symbols - block.symbols);
            let ahead = (passes * u64::from(block.symbols)).checked_rem(repair).unwrap_or(0);
            *next = u32::try_from(u64::from(block.symbols) + ahead).unwrap_or(0) % block.encoding_symbols;
        }
    }

    /// Continues each block at this part of 2^32 of the cycle. Blocks with repair symbols continue a symbol
    /// later, since some blocks have had the symbol at the place: other symbols replace what was missed. So
    /// blocks also go on if, on average, little ahead of the place.
    pub(super) fn go_to(&mut self, blocks: &[CarouselBlock], place: u32) {
        let is_cycle = |(_, block): &(&mut u32, &CarouselBlock)| !block.rateless;
        let (mut ahead, mut spare) = (0_i64, 0_i64);
        let mut targets = Vec::new();
        for (next, block) in self.next.iter_mut().zip(blocks).filter(is_cycle) {
            let n = i64::from(block.encoding_symbols);
            let target = (i64::from(place) * n) >> u32::BITS;
            let distance = (i64::from(*next) - target).rem_euclid(n);
            ahead += if distance > n / 2 { distance - n } else { distance };
            spare += n - i64::from(block.symbols);
            targets.push((next, target, n));
        }
        let has_repair = blocks.iter().all(|block| block.encoding_symbols > block.symbols);
        if has_repair && (0..=spare / NEAR_DIVISOR).contains(&ahead) {
            return;
        }
        for (next, target, n) in targets {
            let target = (target + i64::from(has_repair)) % n;
            *next = u32::try_from(target).expect("below n, a u32");
        }
    }

    /// Stops sending the blocks that `keeps` rejects; see [`Carousel::retain`](super::Carousel::retain).
    pub(super) fn retain(&mut self, keeps: impl Fn(u32) -> bool) -> u64 {
        let mut sent = 0;
        let mut order = Vec::with_capacity(self.order.len());
        let passes = self.mix.as_ref().map(|mix| (self.taken() + mix.left) / mix.pass.max(1));
        // `order` stays sorted by size.
        let mut turns = core::mem::take(&mut self.turns).into_vec();
        turns.sort_unstable_by_key(|Reverse(turn)| turn.class.first);
        let turns = turns.into_iter().filter_map(|Reverse(turn)| {
            let Turn { class, taken } = turn;
            let (rounds, ahead) = (taken / class.count, taken % class.count);
            let (first, mut kept_ahead) = (order.len(), 0);
            let size = class.weight / class.count;
            let blocks = &self.order[class.first..][..usize::try_from(class.count).unwrap_or(usize::MAX)];
            for (place, block) in (0..).zip(blocks) {
                let has_more = u64::from(place < ahead);
                if keeps(*block) {
                    order.push(*block);
                    kept_ahead += has_more;
                } else {
                    sent += rounds + has_more;
                }
            }
            let count = (order.len() - first) as u64;
            let class = Class { first, count, weight: count * size };
            (count > 0).then_some(Reverse(Turn { class, taken: rounds * count + kept_ahead }))
        });
        self.turns = turns.collect();
        self.order = order;
        let taken = self.taken();
        if let Some((mix, passes)) = self.mix.as_mut().zip(passes) {
            let drawn = mix.blocks.len();
            mix.blocks.retain(|block| keeps(*block));
            // Turns that were drawn but not sent count as taken.
            sent -= (drawn - mix.blocks.len()) as u64;
            mix.pass = self.turns.iter().map(|Reverse(turn)| turn.class.weight).sum();
            mix.left = passes * mix.pass - taken;
        }
        sent
    }

    /// Adds blocks without turns.
    pub(super) fn extend(&mut self, count: usize) {
        self.next.resize(self.next.len() + count, 0);
    }

    /// Gives the blocks that `selects` accepts equal turns from now on, and no turns to others.
    pub(super) fn select(&mut self, blocks: &[CarouselBlock], selects: impl Fn(u32) -> bool) {
        let end = u32::try_from(blocks.len()).expect("a session has below 2^32 blocks");
        self.order = (0..end).filter(|block| selects(*block)).collect();
        self.order.sort_by_key(|block| blocks[*block as usize].symbols);
        let turns = classes(blocks, &self.order).into_iter();
        self.turns = turns.map(|class| Reverse(Turn { class, taken: 0 })).collect();
        if let Some(mix) = &mut self.mix {
            mix.blocks.clear();
            mix.pass = self.turns.iter().map(|Reverse(turn)| turn.class.weight).sum();
            mix.left = mix.pass;
        }
    }

    /// Number of turns taken by all blocks.
    fn taken(&self) -> u64 {
        self.turns.iter().map(|Reverse(turn)| turn.taken).sum()
    }

    /// Returns the next symbol; `None` if there are no blocks.
    pub(super) fn next(&mut self, blocks: &[CarouselBlock]) -> Option<Visit> {
        let block = match self.mix.take() {
            None => self.next_block()?,
            Some(mut mix) => {
                let block = self.next_mixed(&mut mix);
                self.mix = Some(mix);
                block?
            }
        };
        Some(self.visit(blocks, block))
    }

    /// Whether a block has turns.
    pub(super) fn has_turns(&self, blocks: &[CarouselBlock], block: u32) -> bool {
        let key = |block: u32| (blocks[block as usize].symbols, block);
        self.order.binary_search_by_key(&key(block), |other| key(*other)).is_ok()
    }

    /// Continues a block at a symbol.
    pub(super) fn continue_at(&mut self, block: u32, esi: u32) {
        self.next[block as usize] = esi;
    }

    /// Returns the next symbol of a block.
    pub(super) fn visit(&mut self, blocks: &[CarouselBlock], block: u32) -> Visit {
        let next = &mut self.next[block as usize];
        let esi = *next;
        *next = (esi + 1) % blocks[block as usize].encoding_symbols;
        Visit { block, esi }
    }

    fn next_mixed(&mut self, mix: &mut Mix) -> Option<u32> {
        if mix.blocks.is_empty() {
            if mix.left == 0 {
                mix.left = mix.pass;
            }
            let most = if mix.is_rateless { MIXED } else { self.order.len().clamp(1, MIXED) };
            let count = usize::try_from(mix.left).unwrap_or(most).min(most);
            mix.left -= count as u64;
            mix.blocks.extend(core::iter::from_fn(|| self.next_block()).take(count));
            mix.blocks.shuffle(&mut mix.draw);
        }
        mix.blocks.pop()
    }

    /// Returns the block of the next turn.
    fn next_block(&mut self) -> Option<u32> {
        let mut due = self.turns.peek_mut()?;
        let Turn { class, taken } = &mut due.0;
        let index =
            class.first + usize::try_from(*taken % class.count).expect("a position is below a Vec's length");
        *taken += 1;
        Some(self.order[index])
    }
}

fn classes(blocks: &[CarouselBlock], order: &[u32]) -> Vec<Class> {
    let symbols = |position: usize| blocks[order[position] as usize].symbols;
    let mut classes = Vec::new();
    let mut first = 0;
    for end in 1..=order.len() {
        if end == order.len() || symbols(end) != symbols(first) {
            let count = (end - first) as u64;
            classes.push(Class { first, count, weight: count * u64::from(symbols(first)) });
            first = end;
        }
    }
    classes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_fec::Order;
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::{Carousel, Start};
    use crate::rng::Seed;

    fn spread(blocks: Vec<CarouselBlock>) -> Carousel {
        Carousel::new(blocks, Order::Spread { rate: 1 })
    }

    fn block(symbols: u32, encoding_symbols: u32) -> CarouselBlock {
        CarouselBlock { symbols, encoding_symbols, rateless: encoding_symbols > 1 << 20 }
    }

    fn rateless(symbols: u32) -> CarouselBlock {
        block(symbols, 1 << 24)
    }

    fn visits(carousel: &mut Carousel, count: u64) -> Vec<(u32, u32)> {
        (0..count).map(|_| carousel.next_visit().unwrap()).map(|visit| (visit.block, visit.esi)).collect()
    }

    /// Turns that were drawn ahead were not sent: a pass is as long as its symbols when blocks are withdrawn
    /// in the middle of it.
    #[test]
    fn a_mixed_pass_sends_all_that_is_left_once_whenever_blocks_are_withdrawn() {
        let symbols = [5_u32, 40, 300, 300, 7];
        for before in [1, 100, 255, 256, 257, 300, 500, 651, 652, 700] {
            let blocks: Vec<_> = symbols.iter().map(|k| rateless(*k)).collect();
            let mut carousel = Carousel::mixed(blocks, Seed(before).stream("mix", 0), Start::First);
            let mut count = [0; 5];
            for (block, _) in visits(&mut carousel, before) {
                count[block as usize] += 1;
            }
            let gone = carousel.retain(|block| block != 1 && block != 3);
            assert_eq!(gone, count[1] + count[3], "withdrawn after {before}");
            let passes = (before - gone).div_ceil(carousel.pass_symbols());
            let left = passes * carousel.pass_symbols() - (before - gone);
            for (block, _) in visits(&mut carousel, left) {
                count[block as usize] += 1;
            }
            for block in [0, 2, 4] {
                assert_eq!(count[block], passes * u64::from(symbols[block]), "block {block}, {before}");
            }
        }
    }

    #[test]
    fn equal_blocks_go_round() {
        let mut carousel = spread(vec![rateless(2); 3]);
        assert_eq!(carousel.pass_symbols(), 6);
        let expected = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)];
        assert_eq!(visits(&mut carousel, 7), expected);
    }

    #[test]
    fn a_drawn_start_keeps_the_turns_and_begins_elsewhere() {
        let blocks = vec![rateless(2), rateless(40), rateless(1), block(40, 80), block(30, 30)];
        let order = Order::Spread { rate: 1 };
        let of = |start, count| visits(&mut Carousel::starting(blocks.clone(), order, start), count);
        let [first, drawn, other] =
            [Start::First, Start::Drawn(Seed(1)), Start::Drawn(Seed(2))].map(|start| of(start, 113));
        assert!(first.iter().map(|visit| visit.0).eq(drawn.iter().map(|visit| visit.0)));
        let rateless_of = |visits: &[(u32, u32)]| -> BTreeSet<(u32, u32)> {
            visits.iter().filter(|(block, _)| *block < 2).copied().collect()
        };
        assert_eq!(rateless_of(&drawn).intersection(&rateless_of(&other)).count(), 0);
        assert!(rateless_of(&drawn).iter().all(|(_, esi)| *esi >= 40));
        assert_eq!(drawn.iter().find(|visit| visit.0 == 2), Some(&(2, 0)));
        // What has an end begins with a source symbol, and a pass sends as many of its symbols as before.
        let of_block = |block| drawn.iter().filter(move |visit| visit.0 == block).map(|visit| visit.1);
        assert!(of_block(3).next().is_some_and(|esi| (1..40).contains(&esi)));
        assert_eq!(of_block(4).collect::<BTreeSet<_>>(), (0..30).collect());
    }

    #[test]
    fn a_stored_code_repeats_after_n_rounds() {
        let mut carousel = spread(vec![block(4, 8); 2]);
        let one = visits(&mut carousel, 16);
        assert_eq!(one.iter().collect::<BTreeSet<_>>().len(), 16);
        assert_eq!(visits(&mut carousel, 16), one, "the cycle of n = 8 over two blocks");
    }

    /// Whatever part of the symbols comes at a regular beat, blocks get nearly as many each, and each block's
    /// come in order.
    #[test]
    fn any_part_of_mixed_turns_helps() {
        for sizes in [&[40_u32; 2][..], &[40; 3], &[40; 12], &[30, 60], &[20, 20, 40, 80]] {
            for beat in 2..=12 {
                let blocks: Vec<_> = sizes.iter().copied().map(rateless).collect();
                let draw = Seed(2).stream("turns", 0);
                let mut carousel = Carousel::mixed(blocks, draw, Start::First);
                let (mut counts, mut next) = (vec![0_f64; sizes.len()], vec![0; sizes.len()]);
                let total = 1_000 * beat * sizes.len();
                for (step, (block, esi)) in visits(&mut carousel, total as u64).into_iter().enumerate() {
                    let block = block as usize;
                    assert_eq!(core::mem::replace(&mut next[block], esi + 1), esi);
                    counts[block] += if step % beat == 0 { 1.0 } else { 0.0 };
                }
                let sum = f64::from(sizes.iter().sum::<u32>());
                for (count, size) in counts.iter().zip(sizes) {
                    let share = 1_000.0 * sizes.len() as f64 * f64::from(*size) / sum;
                    assert!((count - share).abs() < 0.25 * share, "{counts:?} of {sizes:?} by beat {beat}");
                }
            }
        }
    }

    /// Who gets all of it has each block whole after one pass, however small blocks are, and has had nothing
    /// twice.
    #[test]
    fn mixed_turns_of_a_pass_are_all_of_it() {
        for sizes in [&[1_u32; 10][..], &[1; 100], &[1; 300], &[3; 100], &[30; 3], &[1, 1, 300, 7]] {
            let blocks = sizes.iter().copied().map(rateless).collect();
            let mut carousel = Carousel::mixed(blocks, Seed(3).stream("turns", 0), Start::First);
            let pass = carousel.pass_symbols();
            for round in 0..3 {
                let symbols: BTreeSet<_> = visits(&mut carousel, pass).into_iter().collect();
                let each = (0..).zip(sizes);
                let all =
                    each.flat_map(|(block, k)| (round * k..(round + 1) * k).map(move |esi| (block, esi)));
                assert!(symbols.into_iter().eq(all), "{sizes:?}, pass {round}");
            }
        }
    }

    /// Two that begin at the same symbols have nothing in common behind that, but of a code without repair
    /// symbols.
    #[test]
    fn what_skips_brings_other_symbols() {
        let mixed = |blocks: &[CarouselBlock], seed| {
            Carousel::mixed(blocks.to_vec(), Seed(seed).stream("turns", 0), Start::First)
        };
        let had =
            |carousel: &mut Carousel, count| visits(carousel, count).into_iter().collect::<BTreeSet<_>>();
        for blocks in
            [vec![rateless(1); 5], vec![rateless(40), rateless(7)], vec![block(40, 80), block(7, 14)]]
        {
            for seed in 0..20 {
                let mut first = mixed(&blocks, 100);
                let pass = first.pass_symbols();
                let before = had(&mut first, pass);
                let mut second = mixed(&blocks, seed);
                second.skip();
                let after = had(&mut second, pass);
                assert_eq!(after.len() as u64, pass, "nothing twice");
                assert!(before.is_disjoint(&after), "{blocks:?}");
            }
        }
        let mut uncoded = mixed(&[block(9, 9)], 1);
        uncoded.skip();
        assert_eq!(had(&mut uncoded, 9).len(), 9);
    }

    /// Whenever blocks go, the others have by the end of the pass what a pass gives them, each symbol once.
    #[test]
    fn blocks_that_go_leave_the_others_their_pass() {
        for order in [Order::Spread { rate: 1 }, Order::Window] {
            for after in [0, 1, 5, 17, 40, 90] {
                let blocks: Vec<_> = [3_u32, 40, 3, 7, 40, 1, 40].map(|k| block(k, k)).to_vec();
                let mut carousel = Carousel::new(blocks.clone(), order);
                let before = visits(&mut carousel, after);
                let gone = [1, 3, 5];
                let sent = carousel.retain(|block| !gone.contains(&block));
                let of_gone = before.iter().filter(|(block, _)| gone.contains(block)).count() as u64;
                assert_eq!(sent, of_gone, "{order:?}");
                let left = carousel.pass_symbols() - (after - of_gone);
                let mut seen: BTreeSet<_> =
                    before.into_iter().filter(|(block, _)| !gone.contains(block)).collect();
                for visit in visits(&mut carousel, left) {
                    assert!(seen.insert(visit), "{order:?}, {after}: {visit:?} twice");
                }
                let expected: BTreeSet<_> = (0..)
                    .zip(&blocks)
                    .filter(|(block, _)| !gone.contains(block))
                    .flat_map(|(block, it)| (0..it.symbols).map(move |esi| (block, esi)))
                    .collect();
                assert_eq!(seen, expected, "{order:?}, withdrawn after {after}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_pass_gives_every_block_its_share(sizes in prop::collection::vec(1_u32..60, 1..20), passes in 1_u64..4) {
            let mut carousel = spread(sizes.iter().copied().map(rateless).collect());
            let total = carousel.pass_symbols();
            let mut sent = vec![0_u32; sizes.len()];
            for turn in 0..total * passes {
                sent[carousel.next_visit().unwrap().block as usize] += 1;
                // At any instant every block has had its share to within a round of its class.
                for (block, size) in sizes.iter().enumerate() {
                    let share = f64::from(*size) * (turn + 1) as f64 / total as f64;
                    let slack = 2.0 + f64::from(*size) / 20.0;
                    prop_assert!((f64::from(sent[block]) - share).abs() <= slack, "{block}: {} of {share}", sent[block]);
                }
            }
            for (block, size) in sizes.iter().enumerate() {
                prop_assert_eq!(u64::from(sent[block]), u64::from(*size) * passes);
            }
        }
    }
}
