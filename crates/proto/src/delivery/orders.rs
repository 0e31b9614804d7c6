//! Order in which a block's symbols are sent: the symbol at each position of the carousel.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_fec::{BlockCodec, sending_order};

/// Maps positions to ESIs, block by block. Most codes send symbol p at position p; LDPC symbols are sent in a
/// random order (Lucas et al. 2010, FEC for the transfer).
///
/// Memory: 4 bytes a block, and 4 bytes a symbol for each distinct n of LDPC blocks: 576 kB for a block of 72
/// 000 symbols, at most 0.6 % of content in which no two blocks have the same length.
#[derive(Debug, Default)]
pub(super) struct Orders {
    known: BTreeMap<(u32, u32), u32>,
    orders: Vec<Arc<[u32]>>,
    by_block: Vec<Option<u32>>,
}

impl Orders {
    /// Adds the next block, with n = `encoding_symbols`, in the order that the code prefers; by ESI if not
    /// `is_shuffled`.
    pub(super) fn push(&mut self, codec: &dyn BlockCodec, encoding_symbols: u32, is_shuffled: bool) {
        let seed = codec.sending_seed().filter(|_| is_shuffled);
        self.by_block.push(seed.map(|seed| {
            *self.known.entry((seed, encoding_symbols)).or_insert_with(|| {
                self.orders.push(sending_order(seed, encoding_symbols));
                u32::try_from(self.orders.len() - 1).expect("no more than blocks")
            })
        }));
    }

    /// Returns the ESI at a position below n of a block.
    pub(super) fn esi(&self, block: u32, position: u32) -> u32 {
        match self.by_block[block as usize] {
            None => position,
            Some(order) => self.orders[order as usize][position as usize],
        }
    }
}
