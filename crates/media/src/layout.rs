//! Places of source and repair symbols in a buffer.
//!
//! The data of a buffer (index, description, audio, rungs) is cut into symbols, as long as a packet's part.
//! Behind the last symbol of each rung stand repair symbols (Reed-Solomon over GF(2^8), RFC 5510) for the
//! symbols since the rung before, so that a receiver of any rate can use the repair symbols of its rungs.

use std::ops::Range;

/// Bounds of a symbol in bytes: the parts that a packet carries.
pub const SYMBOL_BYTES_MIN: u16 = 64;
/// Largest symbol in bytes.
pub const SYMBOL_BYTES_MAX: u16 = 9_000;
/// Largest share of repair symbols in percent of the source symbols.
pub const PROTECTION_MAX: u8 = 25;
/// Most source symbols of the first block: the symbols that Reed-Solomon codes at once.
pub const FIRST_BLOCK_MAX: u16 = 200;
/// Most source symbols of a block. With [`PROTECTION_MAX`], a block has at most 250 symbols; the code's most
/// is 255.
const BLOCK_MAX: usize = 200;

/// Repair symbols of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Bytes of a symbol: the bytes of a buffer in a packet. 0 without repair symbols.
    pub symbol_bytes: u16,
    /// Repair symbols in percent of the source symbols, rounded up for each block. 0 for none.
    pub percent: u8,
    /// Least number of source symbols of the first block. A constant number in all buffers lets a receiver
    /// repair the index from the index of the buffer before.
    pub first_block: u16,
}

impl Protection {
    /// Whether the values are within bounds.
    pub fn is_valid(self) -> bool {
        let symbols = SYMBOL_BYTES_MIN..=SYMBOL_BYTES_MAX;
        self == Self::default()
            || (symbols.contains(&self.symbol_bytes)
                && (1..=PROTECTION_MAX).contains(&self.percent)
                && (1..=FIRST_BLOCK_MAX).contains(&self.first_block))
    }

    /// Returns the number of repair symbols of a block.
    pub fn repairs(self, k: usize) -> usize {
        (k * usize::from(self.percent)).div_ceil(100)
    }
}

/// Symbols that are coded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First source symbol, counted in the data.
    pub first: usize,
    /// Source symbols.
    pub k: usize,
    /// Place of the first source symbol in the buffer, counted in symbols.
    pub at: usize,
    /// Repair symbols, which follow the source symbols.
    pub m: usize,
}

/// Blocks of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a symbol.
    pub symbol: usize,
    /// Blocks in order; empty if the buffer is the data.
    pub blocks: Vec<Block>,
    /// Bytes of the buffer.
    pub bytes: usize,
}

impl Layout {
    /// Lays out data whose rungs end at these offsets, ascending. The protection is valid.
    pub fn new(protection: Protection, ends: &[usize]) -> Self {
        let data = ends.last().copied().unwrap_or(0);
        if protection.percent == 0 {
            return Self { symbol: 1, blocks: Vec::new(), bytes: data };
        }
        let symbol = usize::from(protection.symbol_bytes);
        let symbols = data.div_ceil(symbol);
        let (mut blocks, mut first, mut at) = (Vec::new(), 0, 0);
        for (rung, end) in ends.iter().enumerate() {
            let least = if rung == 0 { usize::from(protection.first_block) } else { 0 };
            let end = end.div_ceil(symbol).max(least).min(symbols);
            let count = end.saturating_sub(first).div_ceil(BLOCK_MAX);
            for left in (1..=count).rev() {
                let k = (end - first).div_ceil(left);
                let m = protection.repairs(k);
                blocks.push(Block { first, k, at, m });
                (first, at) = (first + k, at + k + m);
            }
        }
        Self { symbol, blocks, bytes: at * symbol }
    }

    /// Returns the blocks that hold a range of the data.
    pub fn blocks_of(&self, data: &Range<usize>) -> Range<usize> {
        let begin = self.blocks.partition_point(|block| (block.first + block.k) * self.symbol <= data.start);
        let end = self.blocks.partition_point(|block| block.first * self.symbol < data.end);
        begin..end.max(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTECTION: Protection = Protection { symbol_bytes: 100, percent: 4, first_block: 9 };

    #[test]
    fn repair_symbols_follow_the_rung_that_ends_before() {
        let layout = Layout::new(PROTECTION, &[750, 4_050, 15_000]);
        let shapes: Vec<_> =
            layout.blocks.iter().map(|block| (block.first, block.k, block.at, block.m)).collect();
        // The first block has 9 symbols, although the rung ends in the eighth.
        assert_eq!(shapes, [(0, 9, 0, 1), (9, 32, 10, 2), (41, 109, 44, 5)]);
        assert_eq!(layout.bytes, 15_800);
        assert_eq!(layout.blocks_of(&(850..4_150)), 0..3);
        assert_eq!(layout.blocks_of(&(900..4_100)), 1..2);
    }

    #[test]
    fn long_rungs_are_several_blocks_and_short_data_is_one() {
        let layout = Layout::new(PROTECTION, &[90_000]);
        let sizes: Vec<_> = layout.blocks.iter().map(|block| block.k).collect();
        assert_eq!(sizes, [180; 5]);
        assert_eq!(Layout::new(PROTECTION, &[250]).blocks, [Block { first: 0, k: 3, at: 0, m: 1 }]);
        assert!(Layout::new(PROTECTION, &[0]).blocks.is_empty());
    }

    #[test]
    fn without_protection_the_buffer_is_the_data() {
        let layout = Layout::new(Protection::default(), &[10, 30]);
        assert_eq!((layout.bytes, layout.blocks.len()), (30, 0));
    }
}
