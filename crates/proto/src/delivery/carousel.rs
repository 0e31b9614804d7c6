//! The carousel: which symbol comes next, most useful first, for ever.
//!
//! Three orders (`headwater_fec::Order` says which of the first two; a control of several levels has the third):
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

pub use self::hierarchy::{Hierarchy, Place};
use self::spread::Spread;
use self::window::Windows;
pub use self::window::{passes_end, symbols_in_first_pass};
use crate::rng::Stream;

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

impl Carousel {
    /// A carousel over `blocks` in an order.
    ///
    /// # Panics
    /// When a block has no symbols, or fewer encoding symbols than source symbols.
    pub fn new(blocks: Vec<CarouselBlock>, order: Order) -> Self {
        check(&blocks);
        let order = match order {
            Order::Spread { .. } => Sequence::Spread(Spread::new(&blocks)),
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
    pub fn mixed(blocks: Vec<CarouselBlock>, draw: Stream) -> Self {
        check(&blocks);
        let order = Sequence::Spread(Spread::new(&blocks).mixed(draw));
        Self::of(blocks, order)
    }

    /// Goes on with repair symbols that lie a random number of passes ahead, where the order is mixed; who has had symbols of the same content from another carousel then
    /// gets few of them again. Blocks of few repair symbols begin with the first of those.
    pub fn skip(&mut self) {
        if let Sequence::Spread(spread) = &mut self.order {
            spread.skip(&self.blocks);
        }
    }

    /// Visits that make a pass, which sends every source symbol once: in window order with its share of repair symbols.
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

    /// Stops sending the blocks that `keeps` refuses; the others go on where they are. Returns the number of symbols that
    /// the refused blocks have had, in window order fewer where a block's symbols have come round.
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
