//! The order in which a block's symbols are sent: what stands at each position that the carousel counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_fec::{BlockCodec, sending_order};

/// From positions to ESIs, block by block. Most codes send symbol p at position p; LDPC in a random order
/// (Lucas et al. 2010, FEC for the transfer).
///
/// Memory: 4 bytes a block, and 4 bytes a symbol for each n that blocks of LDPC have: 576 kB for one of 72
/// 000 symbols, at most 0.6 % of content in which no two blocks are of one length.
#[derive(Debug, Default)]
pub(super) struct Orders {
    known: BTreeMap<(u32, u32), u32>,
    orders: Vec<Arc<[u32]>>,
    by_block: Vec<Option<u32>>,
}

impl Orders {
    /// The next block, of n = `encoding_symbols`, in the order that its code wants or, where not
    /// `is_shuffled`, by ESI.
    pub(super) fn push(&mut self, codec: &dyn BlockCodec, encoding_symbols: u32, is_shuffled: bool) {
        let seed = codec.sending_seed().filter(|_| is_shuffled);
        self.by_block.push(seed.map(|seed| {
            *self.known.entry((seed, encoding_symbols)).or_insert_with(|| {
                self.orders.push(sending_order(seed, encoding_symbols));
                u32::try_from(self.orders.len() - 1).expect("no more than blocks")
            })
        }));
    }

    /// The symbol at a position, below n, of a block.
    pub(super) fn esi(&self, block: u32, position: u32) -> u32 {
        match self.by_block[block as usize] {
            None => position,
            Some(order) => self.orders[order as usize][position as usize],
        }
    }
}
