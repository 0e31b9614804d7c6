//! The carousel: which symbol comes next, most useful first, for ever.
//!
//! Three orders (`headwater_fec::Order` says which of the first two; a control of several levels has the
//! third):
//!
//! | order | for | file |
//! |---|---|---|
//! | spread | joining at any time, unknown loss: all blocks grow at the same pace | `spread` |
//! | window | a push from a common start: a few blocks at a time, decoded while the next ones are sent | `window` |
//! | hierarchy | several levels: the same for receivers of any rate | `hierarchy`, on the `ring` |

mod hierarchy;
mod ring;
mod spread;
mod window;

use headwater_fec::Order;
use rand::RngExt as _;

pub use self::hierarchy::{Hierarchy, Place};
use self::spread::Spread;
use self::window::Windows;
pub use self::window::{passes_end, symbols_in_first_pass};
use crate::rng::{Seed, Stream};

/// A block as the carousel sees it.
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
    /// Encoding symbol id within the block; of a code whose symbols are sent in an order of their own
    /// (`BlockCodec::sending_seed`) its position in that order, which is below n all the same.
    pub esi: u32,
}

/// The order of sending over all blocks of a session, to receivers that have every packet.
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
/// A sender that is started again sends the same content in another session. If both sessions began with the
/// same symbols, a receiver that goes on with what it has would receive those again, up to half of the
/// content. So each session draws a place of its own. Symbols of a rateless code are never the same in two
/// sessions then, but by a chance of k in 2^24. Of a code with a finite number of symbols, a session goes on
/// at a place that a receiver may or may not have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the first source symbol of each block: right where all of a session is received by itself.
    #[default]
    First,
    /// At a place drawn from this seed.
    Drawn(Seed),
}

/// Repair symbols of a rateless block that the first one is ahead of, at most: half of RaptorQ's, so that no
/// session gets round to its first symbol.
const AHEAD_MAX: u32 = 1 << 23;

impl Start {
    fn draw(self) -> Option<Stream> {
        match self {
            Self::First => None,
            Self::Drawn(seed) => Some(seed.stream("start", 0)),
        }
    }

    /// First symbol of each block where blocks are sent from a place of their own on. A rateless block begins
    /// with a repair symbol, since any source symbol may have come before; a block of one symbol, which
    /// cannot be had in part, with that symbol. Other blocks begin with a source symbol, all with the same
    /// part of theirs: their repair symbols may not be made yet.
    fn first_symbols(self, blocks: &[CarouselBlock]) -> Vec<u32> {
        let Some(mut draw) = self.draw() else { return vec![0; blocks.len()] };
        let ahead = draw.random_range(0..AHEAD_MAX);
        let part = u64::from(draw.random::<u32>());
        let first = |block: &CarouselBlock| match (block.symbols, block.rateless) {
            (1, _) => 0,
            (k, true) => (k + ahead) % block.encoding_symbols,
            (k, false) => u32::try_from((u64::from(k) * part) >> u32::BITS).expect("below k"),
        };
        blocks.iter().map(first).collect()
    }
}

impl Carousel {
    /// A carousel over `blocks` in an order.
    ///
    /// # Panics
    /// When a block has no symbols, or fewer encoding symbols than source symbols.
    pub fn new(blocks: Vec<CarouselBlock>, order: Order) -> Self {
        Self::starting(blocks, order, Start::First)
    }

    /// The same from another start on. Window order begins with the first source symbols from any start:
    /// receivers of such a rate live by having next to nothing to decode.
    ///
    /// # Panics
    /// As [`Carousel::new`].
    pub fn starting(blocks: Vec<CarouselBlock>, order: Order, start: Start) -> Self {
        check(&blocks);
        let order = match order {
            Order::Spread { .. } => Sequence::Spread(Spread::new(&blocks, start)),
            Order::Window => Sequence::Window(Windows::new(&blocks)),
        };
        Self::of(blocks, order)
    }

    fn of(blocks: Vec<CarouselBlock>, order: Sequence) -> Self {
        let pass_symbols = blocks.iter().map(|block| order.pass_share(*block)).sum();
        Self { blocks, order, pass_symbols }
    }

    /// Spread order for receivers that get parts of it, whichever.
    ///
    /// # Panics
    /// As [`Carousel::new`].
    pub fn mixed(blocks: Vec<CarouselBlock>, draw: Stream, start: Start) -> Self {
        check(&blocks);
        let order = Sequence::Spread(Spread::new(&blocks, start).mixed(draw));
        Self::of(blocks, order)
    }

    /// Goes on with repair symbols that lie a random number of passes ahead, where the order is mixed; who
    /// has had symbols of the same content from another carousel then gets few of them again. Blocks of few
    /// repair symbols begin with the first of those.
    pub fn skip(&mut self) {
        if let Sequence::Spread(spread) = &mut self.order {
            spread.skip(&self.blocks);
        }
    }

    /// Visits that make a pass, which sends every source symbol once: in window order with its share of
    /// repair symbols.
    pub fn pass_symbols(&self) -> u64 {
        self.pass_symbols
    }

    /// A block as it was given.
    ///
    /// # Panics
    /// When there is no such block.
    pub fn block(&self, block: u32) -> CarouselBlock {
        self.blocks[block as usize]
    }

    /// Stops sending the blocks that `keeps` refuses; the others go on where they are. Returns the number of
    /// symbols that the refused blocks have had.
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

    /// The next symbol; `None` when there are no blocks at all.
    pub fn next_visit(&mut self) -> Option<Visit> {
        match &mut self.order {
            Sequence::Spread(spread) => spread.next(&self.blocks),
            Sequence::Window(windows) => windows.next(&self.blocks),
        }
    }
}

impl Sequence {
    /// Symbols of a block in the first pass.
    fn pass_share(&self, block: CarouselBlock) -> u64 {
        match self {
            Self::Spread(_) => block.symbols.into(),
            Self::Window(_) => window::pass_share(block, 0),
        }
    }
}

fn check(blocks: &[CarouselBlock]) {
    assert!(
        blocks.iter().all(|block| block.symbols > 0 && block.encoding_symbols >= block.symbols),
        "a block has source symbols, and no fewer encoding symbols"
    );
}
