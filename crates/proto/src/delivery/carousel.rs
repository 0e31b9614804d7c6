//! The carousel: which symbol comes next, most useful first, for ever.
//!
//! Two orders (`headwater_fec::Order` says when which):
//!
//! | order | for | file |
//! |---|---|---|
//! | spread | layers, joining at any time, unknown loss: all blocks grow at the same pace | `spread` |
//! | window | a push from a common start: a few blocks at a time, decoded while the next ones are sent | `window` |

mod spread;
mod window;

use headwater_fec::Order;

use self::spread::Spread;
use self::window::Windows;
pub use self::window::{passes_end, symbols_in_first_pass};

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
    /// Encoding symbol id within the block.
    pub esi: u32,
}

/// The order of sending over all blocks of a session.
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
    /// A carousel over `blocks` in an order, with `places` places: positions in the buffers of the hierarchy (levels of
    /// the congestion control).
    ///
    /// # Panics
    /// When there is no place, or a block without symbols or with fewer encoding symbols than source symbols.
    pub fn new(blocks: Vec<CarouselBlock>, places: usize, order: Order) -> Self {
        assert!(places > 0, "a carousel has at least one place");
        assert!(
            blocks.iter().all(|block| block.symbols > 0 && block.encoding_symbols >= block.symbols),
            "a block has source symbols, and no fewer encoding symbols"
        );
        let (order, pass_symbols) = match order {
            Order::Spread { .. } => {
                let symbols = blocks.iter().map(|block| u64::from(block.symbols)).sum();
                (Sequence::Spread(Spread::new(&blocks, places)), symbols)
            }
            Order::Window => {
                let symbols = blocks.iter().map(|block| window::pass_share(*block, 0)).sum();
                (Sequence::Window(Windows::new(&blocks)), symbols)
            }
        };
        Self { blocks, order, pass_symbols }
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

    /// The next symbol of a place; `None` when there are no blocks at all.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn next(&mut self, place: usize) -> Option<Visit> {
        match &mut self.order {
            Sequence::Spread(spread) => spread.next(&self.blocks, place),
            // Windows are for receivers that hold every place: all take from one sequence.
            Sequence::Window(windows) => windows.next(&self.blocks),
        }
    }
}
