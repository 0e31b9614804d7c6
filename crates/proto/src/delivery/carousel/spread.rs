//! Spread order: all blocks of a session take turns, one symbol a turn, so that every block of every file grows at the
//! same pace and a receiver may join at any instant. Blocks of k symbols get k turns in each pass over the session:
//! without that weight a one-symbol file would be sent as often as all of a large block.
//!
//! A place is one position in the buffers of the hierarchy (one level of the congestion control). Place i starts
//! [`bisecting_offsets`] ahead on the ring of blocks, so that a receiver that holds several places meets different
//! blocks.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::{CarouselBlock, Visit};
use crate::delivery::offsets::bisecting_offsets;

/// All blocks, in turns.
///
/// Memory: 8 bytes a block, 40 bytes for each distinct block size and place. Time per symbol: O(log sizes), O(1) for
/// one file.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    /// Next fresh symbol of each rateless block, over all places: never the same symbol twice.
    fresh: Vec<u32>,
    /// Block indices, those of one class together, in their given order.
    order: Vec<u32>,
    places: Vec<Place>,
}

/// All blocks of one size: they take turns, one after the other.
#[derive(Clone, Debug)]
struct Class {
    /// Its part of `order`.
    first: usize,
    count: u64,
    /// Turns in a pass: blocks times source symbols.
    weight: u64,
}

#[derive(Clone, Debug)]
struct Place {
    /// Classes by who is due first.
    turns: BinaryHeap<Reverse<Turn>>,
    /// Where on the ring of blocks this place is ahead of the first one, as a fraction of 2^32.
    esi_phase: u32,
}

#[derive(Clone, Debug)]
struct Turn {
    class: Class,
    /// Where the place begins in the class.
    start: u64,
    /// Turns taken since the start of the session.
    taken: u64,
}

impl Turn {
    /// The turn falls due at (taken + 1/2) / weight passes: classes advance side by side, each at its weight.
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
    /// An order of `blocks` for `places` places, at least 1.
    pub(super) fn new(blocks: &[CarouselBlock], places: usize) -> Self {
        let mut order: Vec<u32> =
            (0..u32::try_from(blocks.len()).expect("a session has below 2^32 blocks")).collect();
        order.sort_by_key(|block| blocks[*block as usize].symbols);
        let classes = classes(blocks, &order);
        let offsets = bisecting_offsets(order.len().max(1) as u64, places);
        let place = |(place, offset): (usize, &u64)| Place {
            turns: classes
                .iter()
                .map(|class| {
                    let start = *offset * class.count / order.len() as u64;
                    Reverse(Turn { class: class.clone(), start, taken: 0 })
                })
                .collect(),
            esi_phase: u32::try_from(place).unwrap_or(u32::MAX).reverse_bits(),
        };
        Self { places: offsets.iter().enumerate().map(place).collect(), fresh: vec![0; blocks.len()], order }
    }

    /// The next symbol of a place; `None` when there are no blocks at all.
    ///
    /// # Panics
    /// When there is no such place.
    pub(super) fn next(&mut self, blocks: &[CarouselBlock], place: usize) -> Option<Visit> {
        let place = &mut self.places[place];
        let mut due = place.turns.peek_mut()?;
        let Turn { class, start, taken } = &mut due.0;
        let position = (*start + *taken) % class.count;
        let round = *taken / class.count;
        *taken += 1;
        let index = class.first + usize::try_from(position).expect("a position is below a Vec's length");
        let block = self.order[index];
        drop(due);

        let CarouselBlock { encoding_symbols, rateless, .. } = blocks[block as usize];
        let esi = if rateless {
            let fresh = &mut self.fresh[block as usize];
            let esi = *fresh;
            *fresh = (esi + 1) % encoding_symbols;
            esi
        } else {
            let n = u64::from(encoding_symbols);
            let phase = (n * u64::from(place.esi_phase)) >> 32;
            u32::try_from((phase + round) % n).expect("a symbol number is below n, a u32")
        };
        Some(Visit { block, esi })
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
    use std::collections::BTreeMap;

    use headwater_fec::Order;
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::Carousel;

    fn spread(blocks: Vec<CarouselBlock>, places: usize) -> Carousel {
        Carousel::new(blocks, places, Order::Spread { rate: 1 })
    }

    fn rateless(symbols: u32) -> CarouselBlock {
        CarouselBlock { symbols, encoding_symbols: 1 << 24, rateless: true }
    }

    fn stored(symbols: u32, encoding_symbols: u32) -> CarouselBlock {
        CarouselBlock { symbols, encoding_symbols, rateless: false }
    }

    fn visits(carousel: &mut Carousel, place: usize, count: u64) -> Vec<(u32, u32)> {
        (0..count).map(|_| carousel.next(place).unwrap()).map(|visit| (visit.block, visit.esi)).collect()
    }

    #[test]
    fn equal_blocks_go_round() {
        let mut carousel = spread(vec![rateless(2); 3], 1);
        assert_eq!(carousel.pass_symbols(), 6);
        let expected = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)];
        assert_eq!(visits(&mut carousel, 0, 7), expected);
    }

    #[test]
    fn places_start_where_the_scheduler_says() {
        let mut carousel = spread(vec![rateless(9); 8], 4);
        let first: Vec<u32> = (0..4).map(|place| carousel.next(place).unwrap().block).collect();
        let second: Vec<u32> = (0..4).map(|place| carousel.next(place).unwrap().block).collect();
        assert_eq!((first, second), (vec![0, 4, 2, 6], vec![1, 5, 3, 7]));
    }

    /// `published/derived_scheduler.csv`: buffers until 4000 symbols without FEC, and until 4000 of 8000 with it, for
    /// receivers of L levels. One block per symbol, as in the paper.
    #[test]
    fn buffers_to_complete_as_published() {
        let csv = [
            (1, 4000, 4000),
            (2, 2000, 2000),
            (3, 2000, 1334),
            (4, 1000, 1000),
            (5, 1000, 800),
            (6, 1000, 667),
            (7, 1000, 572),
            (8, 500, 500),
            (9, 500, 445),
            (10, 500, 400),
            (11, 500, 364),
            (12, 500, 334),
            (13, 500, 308),
            (14, 500, 286),
            (15, 500, 267),
            (16, 250, 250),
            (17, 250, 236),
            (20, 250, 200),
            (24, 250, 167),
            (31, 250, 130),
            (32, 125, 125),
        ];
        for (levels, without_fec, with_fec) in csv {
            assert_eq!(buffers_to_collect(4_000, 4_000, levels), without_fec, "{levels} levels, no FEC");
            assert_eq!(buffers_to_collect(8_000, 4_000, levels), with_fec, "{levels} levels, n = 2k");
        }
    }

    fn buffers_to_collect(blocks: usize, wanted: usize, levels: usize) -> usize {
        let mut carousel = spread(vec![stored(1, 1); blocks], levels);
        let mut seen = vec![false; blocks];
        let mut distinct = 0;
        (1..)
            .find(|_| {
                for place in 0..levels {
                    let visit = carousel.next(place).unwrap();
                    distinct += usize::from(!core::mem::replace(&mut seen[visit.block as usize], true));
                }
                distinct >= wanted
            })
            .unwrap()
    }

    #[test]
    fn rateless_symbols_never_repeat_at_any_number_of_places() {
        for held in [1, 5, 16, 64] {
            let mut carousel = spread(vec![rateless(20), rateless(20), rateless(19)], 64);
            let mut seen = BTreeMap::new();
            for _ in 0..200 {
                for place in 0..64 {
                    let visit = carousel.next(place).unwrap();
                    if place < held {
                        *seen.entry((visit.block, visit.esi)).or_insert(0) += 1;
                    }
                }
            }
            assert!(seen.values().all(|times| *times == 1), "{held} of 64 places");
        }
    }

    #[test]
    fn a_stored_code_repeats_after_n_rounds_and_places_are_apart() {
        let mut carousel = spread(vec![stored(4, 8); 2], 2);
        let one = visits(&mut carousel, 0, 16);
        let two = visits(&mut carousel, 1, 16);
        assert_eq!(visits(&mut carousel, 0, 16), one, "the cycle of n = 8 over two blocks");
        assert_eq!((one[0], two[0]), ((0, 0), (1, 4)), "half a ring and half a cycle apart");
    }

    proptest! {
        #[test]
        fn a_pass_gives_every_block_its_share(sizes in prop::collection::vec(1_u32..60, 1..20), passes in 1_u64..4) {
            let mut carousel = spread(sizes.iter().copied().map(rateless).collect(), 1);
            let total = carousel.pass_symbols();
            let mut sent = vec![0_u32; sizes.len()];
            for turn in 0..total * passes {
                sent[carousel.next(0).unwrap().block as usize] += 1;
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
