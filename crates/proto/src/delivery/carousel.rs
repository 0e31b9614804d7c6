//! Carousel: the endless order in which symbols are sent, most useful first.
//!
//! There are three orders. `headwater_fec::Order` selects the first or the second; a control of several
//! levels uses the third:
//!
//! | order | for | file |
//! |---|---|---|
//! | spread | joining at any time, unknown loss: all blocks grow at the same pace | `spread` |
//! | window | a push from a common start: a few blocks at a time, decoded during the next blocks | `window` |
//! | hierarchy | several levels: the same for receivers of any rate | `hierarchy`, on the `ring` |

mod hierarchy;
mod ring;
mod spread;
mod window;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_fec::Order;
use rand::RngExt as _;

pub use hierarchy::{Hierarchy, Place};
pub use window::{passes_end, symbols_in_first_pass};

use spread::Spread;
use window::Windows;

use crate::rng::{Seed, Stream};
use crate::time::Duration;

/// Parameters of a block in the carousel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarouselBlock {
    /// Source symbols, at least 1.
    pub symbols: u32,
    /// Encoding symbols n, at least `symbols`.
    pub encoding_symbols: u32,
    /// Whether n is so large that symbols are never sent twice.
    pub rateless: bool,
}

/// A symbol to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Index of the block in the list given to [`Carousel::new`].
    pub block: u32,
    /// Encoding symbol id within the block. For a code with its own order of sending
    /// (`BlockCodec::sending_seed`), the position in that order, which is also below n.
    pub esi: u32,
}

/// Order of sending over all blocks of a session, for receivers that receive every packet.
#[derive(Clone, Debug)]
pub struct Carousel {
    blocks: Vec<CarouselBlock>,
    order: Sequence,
    pass_symbols: u64,
}

#[derive(Clone, Debug)]
enum Sequence {
    Spread(Spread),
    Window(Windows),
}

/// Place in the order of sending at which a session begins.
///
/// A sender that restarts sends the same content in another session. If both sessions began with the same
/// symbols, a receiver that resumes would receive up to half of the content twice. So each session draws a
/// place. With a rateless code, two sessions then send the same symbols only with a probability of k in 2^24.
/// With a code of a finite number of symbols, a receiver may or may not have received the symbols at the
/// drawn place. Such a code goes round its cycle by the clock: a session begins where a session that never
/// ended would be now, except on request, where each receiver has a cycle. The symbols of an earlier session
/// of the same rate come again only after a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the first source symbol of each block. Suits receivers that receive the whole session without
    /// resuming.
    #[default]
    First,
    /// At a place drawn from the seed.
    Drawn(Seed),
    /// At a place drawn from the seed with a rateless code, and at the place by the clock with other codes.
    ByClock {
        /// Source of the draws.
        seed: Seed,
        /// Time at the start of the session, since any instant that is the same for all sessions.
        clock: Duration,
        /// Length of a symbol in bytes.
        symbol_size: u16,
    },
}

/// Bound of the drawn number of repair symbols that a rateless block skips at the start: half of RaptorQ's
/// repair symbols, so that no session wraps around to its first symbol.
const AHEAD_MAX: u32 = 1 << 23;

impl Start {
    fn draw(self) -> Option<Stream> {
        match self {
            Self::First => None,
            Self::Drawn(seed) | Self::ByClock { seed, .. } => Some(seed.stream("start", 0)),
        }
    }

    /// Returns the time since the first buffer of a session that never ended.
    fn clock(self) -> Option<Duration> {
        match self {
            Self::ByClock { clock, .. } => Some(clock),
            Self::First | Self::Drawn(_) => None,
        }
    }

    /// Returns the number of passes that the clock's time has at `rate` bit/s, in units of 2^-32: no fewer
    /// than packets with headers have.
    fn passes(self, blocks: &[CarouselBlock], rate: u64) -> Option<u128> {
        let Self::ByClock { clock, symbol_size, .. } = self else { return None };
        let symbols: u64 = blocks.iter().map(|block| u64::from(block.symbols)).sum();
        let bits_of_pass = u128::from(symbols.max(1)) * 8 * u128::from(symbol_size.max(1)) * 1_000_000_000;
        let bits = u128::from(clock.as_nanos()) * u128::from(rate);
        Some(((bits / bits_of_pass) << u32::BITS) | (((bits % bits_of_pass) << u32::BITS) / bits_of_pass))
    }

    /// Returns the first symbol of each block for this start, after so many passes if the place is by the
    /// clock.
    ///
    /// If the start is drawn, a rateless block begins with a repair symbol, since any source symbol may have
    /// been sent before. A block of one symbol, which cannot be received in part, begins with that symbol.
    /// Other blocks begin with a source symbol at the same fraction of each block, since the repair symbols
    /// may not be ready yet.
    fn first_symbols(self, blocks: &[CarouselBlock], passes: Option<u128>) -> Vec<u32> {
        let Some(mut draw) = self.draw() else { return vec![0; blocks.len()] };
        let ahead = draw.random_range(0..AHEAD_MAX);
        let part = u128::from(draw.random::<u32>());
        let first = |block: &CarouselBlock| match (block.symbols, block.rateless) {
            (1, _) => 0,
            (k, true) => (k + ahead) % block.encoding_symbols,
            (k, false) => {
                let sent = (u128::from(k) * passes.unwrap_or(part)) >> u32::BITS;
                u32::try_from(sent % u128::from(block.encoding_symbols)).expect("below n, a u32")
            }
        };
        blocks.iter().map(first).collect()
    }
}

impl Carousel {
    /// Creates a carousel over `blocks`.
    ///
    /// # Panics
    /// When a block has no symbols, or fewer encoding symbols than source symbols.
    pub fn new(blocks: Vec<CarouselBlock>, order: Order) -> Self {
        Self::starting(blocks, order, Start::First)
    }

    /// Creates a carousel over `blocks` that begins at `start`. Window order always begins with the first
    /// source symbols: receivers at the rates of window order depend on having almost nothing to decode.
    ///
    /// # Panics
    /// As [`Carousel::new`].
    pub fn starting(blocks: Vec<CarouselBlock>, order: Order, start: Start) -> Self {
        check(&blocks);
        let order = match order {
            Order::Spread { rate } => {
                let passes = start.passes(&blocks, rate);
                Sequence::Spread(Spread::new(&blocks, start.first_symbols(&blocks, passes)))
            }
            Order::Window => Sequence::Window(Windows::new(&blocks)),
        };
        Self::of(blocks, order)
    }

    fn of(blocks: Vec<CarouselBlock>, order: Sequence) -> Self {
        let pass_symbols = blocks.iter().map(|block| order.pass_share(*block)).sum();
        Self { blocks, order, pass_symbols }
    }

    /// Creates a carousel in spread order with random turns, for receivers that receive arbitrary parts of
    /// the packets.
    ///
    /// # Panics
    /// As [`Carousel::new`].
    pub fn mixed(blocks: Vec<CarouselBlock>, draw: Stream, start: Start) -> Self {
        check(&blocks);
        let first = start.first_symbols(&blocks, None);
        let order = Sequence::Spread(Spread::new(&blocks, first).mixed(&blocks, draw));
        Self::of(blocks, order)
    }

    /// If the turns are random, continues each block at this part of 2^32 of the cycle. Blocks with repair
    /// symbols that are near that place go on, and rateless blocks, which have no cycle.
    pub fn go_to(&mut self, place: u32) {
        if let Sequence::Spread(spread) = &mut self.order {
            spread.go_to(&self.blocks, place);
        }
    }

    /// If the turns are random, continues with repair symbols a random number of passes ahead. A receiver
    /// that received symbols of the same content from another carousel then gets few duplicates. The place
    /// wraps around within the repair symbols of each block.
    pub fn skip(&mut self) {
        if let Sequence::Spread(spread) = &mut self.order {
            spread.skip(&self.blocks);
        }
    }

    /// Number of visits in a pass, which sends every source symbol once, plus a share of repair symbols in
    /// window order.
    pub fn pass_symbols(&self) -> u64 {
        self.pass_symbols
    }

    /// Returns a block.
    ///
    /// # Panics
    /// When the index is out of range.
    pub fn block(&self, block: u32) -> CarouselBlock {
        self.blocks[block as usize]
    }

    /// Stops sending the blocks that `keeps` rejects; the rest continue. Returns the number of symbols sent
    /// of the rejected blocks.
    pub fn retain(&mut self, keeps: impl Fn(u32) -> bool) -> u64 {
        self.pass_symbols = (0..)
            .zip(&self.blocks)
            .filter(|(block, _)| keeps(*block))
            .map(|(_, block)| self.order.pass_share(*block))
            .sum();
        match &mut self.order {
            Sequence::Spread(spread) => spread.retain(keeps),
            Sequence::Window(windows) => windows.retain(&self.blocks, keeps),
        }
    }

    /// Adds blocks, which begin with their first source symbol and are sent once [`Self::select`] selects
    /// them.
    ///
    /// # Panics
    /// As [`Carousel::new`].
    pub(super) fn extend(&mut self, blocks: &[CarouselBlock]) {
        check(blocks);
        self.blocks.extend_from_slice(blocks);
        if let Sequence::Spread(spread) = &mut self.order {
            spread.extend(blocks.len());
        }
    }

    /// Sends the blocks that `selects` accepts, each from its next symbol on, and no others. In window order
    /// the selected blocks begin anew.
    pub(super) fn select(&mut self, selects: impl Fn(u32) -> bool) {
        match &mut self.order {
            Sequence::Spread(spread) => spread.select(&self.blocks, &selects),
            Sequence::Window(windows) => {
                *windows = Windows::new(&self.blocks);
                windows.retain(&self.blocks, &selects);
            }
        }
        let selected = (0..).zip(&self.blocks).filter(|(block, _)| selects(*block));
        self.pass_symbols = selected.map(|(_, block)| self.order.pass_share(*block)).sum();
    }

    /// Returns the next symbol; `None` if there are no blocks.
    pub fn next_visit(&mut self) -> Option<Visit> {
        match &mut self.order {
            Sequence::Spread(spread) => spread.next(&self.blocks),
            Sequence::Window(windows) => windows.next(&self.blocks),
        }
    }

    /// Returns a symbol of a block out of turn: `esi` if the block has source symbols only, else the next.
    /// `None` if the block is not sent, or in window order.
    pub(super) fn visit_of(&mut self, block: u32, esi: Option<u32>) -> Option<Visit> {
        let Sequence::Spread(spread) = &mut self.order else { return None };
        let CarouselBlock { symbols, encoding_symbols, .. } = *self.blocks.get(block as usize)?;
        if !spread.has_turns(&self.blocks, block) {
            return None;
        }
        // A receiver that comes back goes on behind named symbols.
        if let Some(esi) = esi.filter(|esi| encoding_symbols == symbols && *esi < symbols) {
            spread.continue_at(block, esi);
        }
        Some(spread.visit(&self.blocks, block))
    }
}

impl Sequence {
    /// Number of symbols of a block in the first pass.
    fn pass_share(&self, block: CarouselBlock) -> u64 {
        match self {
            Self::Spread(_) => block.symbols.into(),
            Self::Window(_) => window::pass_share(block, 0),
        }
    }
}

/// Returns the source symbol, of `symbols`, that is sent while a repair symbol is not ready.
///
/// Places of several levels have sent the symbols of a block from the first to the last, and then send
/// these from the last to the first: what only the last places have sent comes from the first places, which
/// every receiver gets.
pub(super) fn stand_in(esi: u32, symbols: u32) -> u32 {
    symbols - 1 - esi % symbols
}

fn check(blocks: &[CarouselBlock]) {
    assert!(
        blocks.iter().all(|block| block.symbols > 0 && block.encoding_symbols >= block.symbols),
        "a block has source symbols, and no fewer encoding symbols"
    );
}

/// Offsets on a ring of `blocks` blocks: the first offset is 0, and each next offset is the middle of the
/// longest interval between earlier offsets, `start + floor(length / 2)`; ties take the smallest start. After
/// all places of the ring the offsets repeat in the same order.
///
/// A receiver of the first L offsets gets as many different blocks as possible before the first duplicate.
///
/// Offsets are computed on demand, O(log n) for the nth. Memory: 32 bytes for each offset computed.
#[derive(Clone, Debug)]
pub struct Offsets {
    ring: u64,
    known: Vec<u64>,
    intervals: BinaryHeap<(u64, Reverse<u64>)>,
}

impl Offsets {
    /// Creates the offsets on a ring of `blocks` blocks.
    ///
    /// # Panics
    /// When `blocks` is 0.
    pub fn new(blocks: u64) -> Self {
        assert!(blocks > 0, "a ring has at least one block");
        Self { ring: blocks, known: vec![0], intervals: BinaryHeap::from([(blocks, Reverse(0))]) }
    }

    /// Returns the offset of a place, counted from 0.
    pub fn get(&mut self, place: usize) -> u64 {
        let place = match usize::try_from(self.ring) {
            Ok(ring) => place % ring,
            Err(_) => place,
        };
        while self.known.len() <= place {
            let (length, Reverse(start)) =
                self.intervals.pop().expect("below a ring's length an interval is left");
            let half = length / 2;
            self.known.push(start + half);
            self.intervals.push((half, Reverse(start)));
            self.intervals.push((length - half, Reverse(start + half)));
        }
        self.known[place]
    }
}

/// Returns the offsets of the first `places` places; see [`Offsets`].
///
/// # Panics
/// When `blocks` is 0.
pub fn bisecting_offsets(blocks: u64, places: usize) -> Vec<u64> {
    let mut offsets = Offsets::new(blocks);
    (0..places).map(|place| offsets.get(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_papers_tables() {
        assert_eq!(bisecting_offsets(8, 4), [0, 4, 2, 6]);
        assert_eq!(bisecting_offsets(8, 8), [0, 4, 2, 6, 1, 3, 5, 7]);
        assert_eq!(bisecting_offsets(10, 10), [0, 5, 2, 7, 3, 8, 1, 4, 6, 9]);
    }

    #[test]
    fn more_places_than_blocks_repeat() {
        assert_eq!(bisecting_offsets(1, 3), [0, 0, 0]);
        assert_eq!(bisecting_offsets(2, 5), [0, 1, 0, 1, 0]);
    }

    /// "Blocks sent before the first duplicate, with L levels received": sequencer table, as sixteenths of B.
    #[test]
    fn blocks_before_the_first_duplicate() {
        let blocks = 1_600;
        for (levels, sixteenths) in [
            (1, 16),
            (2, 16),
            (3, 12),
            (4, 16),
            (5, 10),
            (6, 12),
            (7, 14),
            (8, 16),
            (9, 9),
            (10, 10),
            (12, 12),
            (16, 16),
        ] {
            let offsets = bisecting_offsets(blocks, levels);
            let mut seen = BTreeSet::new();
            let first_duplicate =
                (0..blocks).find(|b| offsets.iter().any(|offset| !seen.insert((b + offset) % blocks)));
            // A duplicate ends the count within the buffer that has it.
            let sent = first_duplicate.map_or(blocks, |b| b * levels as u64);
            assert_eq!(sent, blocks * sixteenths / 16, "{levels} levels");
        }
    }
}
