//! Map of the blocks of a session, for people: a cell for one block or for several.

use super::DeliveryReceiver;
use super::block::Block;
use crate::control::ReceiverControl;
use crate::delivery::store::Store;

/// Blocks of the announced files in the order of announcement, in cells of equal numbers of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockMap {
    /// Number of blocks.
    pub blocks: u64,
    /// Number of blocks that are whole or given up.
    pub ended: u64,
    /// Share of each cell that has arrived, from 0 to [`BlockMap::ENDED`]. Only a cell whose blocks have all
    /// ended has the value [`BlockMap::ENDED`].
    pub cells: Vec<u8>,
}

impl BlockMap {
    /// Value of a cell whose blocks have all ended.
    pub const ENDED: u8 = 100;
}

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    /// Returns the map of the blocks in at most `cells_max` cells. Time: O(blocks).
    pub fn block_map(&self, cells_max: usize) -> BlockMap {
        let objects = &self.catalogue.objects;
        let blocks = objects.iter().map(|object| object.blocks.len()).sum();
        let states = objects.iter().flat_map(|object| {
            object.blocks.iter().enumerate().map(move |(sbn, block)| {
                let symbols = u32::try_from(sbn).ok().and_then(|sbn| object.partition.block(sbn));
                (block, symbols.map_or(1, |block| block.symbols))
            })
        });
        map(states, blocks, cells_max)
    }
}

/// Returns the map of blocks with their numbers of symbols.
fn map<'b>(states: impl Iterator<Item = (&'b Block, u32)>, blocks: usize, cells_max: usize) -> BlockMap {
    let per_cell = blocks.div_ceil(cells_max.max(1)).max(1);
    let mut map = BlockMap { blocks: blocks as u64, ..BlockMap::default() };
    let (mut share, mut ended, mut counted) = (0_u64, 0, 0);
    for (index, (block, symbols)) in states.enumerate() {
        share += u64::from(block.share(symbols));
        ended += usize::from(matches!(block, Block::Ended));
        counted += 1;
        if counted == per_cell || index + 1 == blocks {
            let mean = u8::try_from(share / counted as u64).unwrap_or(BlockMap::ENDED);
            let most = if ended == counted { BlockMap::ENDED } else { BlockMap::ENDED - 1 };
            map.cells.push(mean.min(most));
            map.ended += ended as u64;
            (share, ended, counted) = (0, 0, 0);
        }
    }
    map.cells.truncate(cells_max);
    map
}

impl Block {
    /// Returns the share of `symbols` that has arrived, from 0 to [`BlockMap::ENDED`].
    fn share(&self, symbols: u32) -> u8 {
        let whole = u64::from(BlockMap::ENDED);
        match self {
            Self::Unseen => 0,
            Self::Open(state) => {
                let share = whole * u64::from(state.count()) / u64::from(symbols.max(1));
                u8::try_from(share.min(whole)).unwrap_or(BlockMap::ENDED)
            }
            Self::Ended => BlockMap::ENDED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::BlockState;
    use super::*;

    fn open(symbols: u32, held: u32) -> Block {
        let mut state = BlockState::new(symbols);
        (0..held).for_each(|esi| state.add_source(esi));
        Block::Open(Box::new(state))
    }

    fn cells(blocks: &[Block], cells_max: usize) -> BlockMap {
        map(blocks.iter().map(|block| (block, 10)), blocks.len(), cells_max)
    }

    #[test]
    fn each_block_has_a_cell_while_cells_last() {
        let blocks = [Block::Ended, open(10, 5), Block::Unseen, open(10, 10)];
        let map = cells(&blocks, 8);
        assert_eq!(map.cells, [100, 50, 0, 99], "a block that is not verified is not whole");
        assert_eq!((map.blocks, map.ended), (4, 1));
    }

    #[test]
    fn a_cell_stands_for_several_blocks_and_cells_are_bounded() {
        let blocks: Vec<_> =
            (0..1_001).map(|index| if index < 500 { Block::Ended } else { Block::Unseen }).collect();
        let map = cells(&blocks, 100);
        assert!(map.cells.len() <= 100, "{}", map.cells.len());
        assert_eq!((map.cells[0], map.cells[map.cells.len() - 1]), (100, 0));
        assert_eq!((map.blocks, map.ended), (1_001, 500));
        assert!(map.cells.contains(&45), "a cell of 5 whole blocks of 11");
        assert_eq!(cells(&[], 100), BlockMap::default());
        assert!(cells(&blocks, 0).cells.is_empty());
    }
}
