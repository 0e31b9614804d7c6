//! Partition of an object into blocks (RFC 5052 section 9.1), and the lengths of symbols and blocks that a
//! sender chooses.

/// Division of an object into blocks of nearly equal length (RFC 5052 section 9.1).
///
/// With T symbols in N blocks, the first I = T - floor(T / N) * N blocks have ceil(T / N) symbols, the rest
/// floor(T / N). Blocks are computed on demand: a partition of any object takes a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    transfer_length: u64,
    symbol_size: u16,
    symbols: u64,
    blocks: u32,
}

/// A source block of a [`Partition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Source block number, from 0.
    pub sbn: u32,
    /// Number of the block's first symbol among all symbols of the object.
    pub first_symbol: u64,
    /// k, the number of source symbols, at least 1.
    pub symbols: u32,
    /// The block's first byte in the object.
    pub offset: u64,
    /// Bytes of the object in this block: symbols * T, less where the object ends inside the last symbol.
    pub bytes: u64,
}

impl Block {
    /// Bytes of the object in source symbol `esi` of this block, whose symbols have `symbol_size` bytes:
    /// fewer if the object ends inside the symbol, 0 past the last symbol.
    #[inline]
    pub fn symbol_bytes(&self, esi: u32, symbol_size: u16) -> u16 {
        let size = u64::from(symbol_size);
        let rest = self.bytes.saturating_sub(u64::from(esi).saturating_mul(size));
        u16::try_from(rest.min(size)).unwrap_or(symbol_size)
    }
}

/// Why an object cannot be partitioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// Symbols of zero bytes.
    #[error("the symbol size is 0 bytes")]
    SymbolSize,
    /// An object of 1 byte or more in blocks of zero symbols.
    #[error("the maximum source block length is 0 symbols")]
    MaxBlockSymbols,
    /// More blocks than 32 bits can number.
    #[error("{blocks} source blocks, more than 32 bits can number")]
    TooManyBlocks {
        /// N.
        blocks: u64,
    },
    /// No blocks for an object of 1 byte or more, more blocks than symbols, or a block of 2^32 symbols or
    /// more.
    #[error("{symbols} symbols cannot be cut into {blocks} source blocks")]
    BlockCount {
        /// T, symbols of the object.
        symbols: u64,
        /// N as given.
        blocks: u32,
    },
}

impl Partition {
    /// The partition of RFC 5052 section 9.1: an object of `transfer_length` (L) bytes, symbols of
    /// `symbol_size` (E) bytes, and as few blocks of at most `max_block_symbols` (B) symbols as will do.
    ///
    /// An object of no bytes has no blocks.
    ///
    /// # Errors
    /// E or B of 0, and more than `u32::MAX` blocks.
    pub fn new(
        transfer_length: u64,
        symbol_size: u16,
        max_block_symbols: u32,
    ) -> Result<Self, PartitionError> {
        let symbols = symbol_count(transfer_length, symbol_size)?;
        if max_block_symbols == 0 {
            return Err(PartitionError::MaxBlockSymbols);
        }
        let blocks = symbols.div_ceil(max_block_symbols.into());
        let blocks = u32::try_from(blocks).map_err(|_| PartitionError::TooManyBlocks { blocks })?;
        Ok(Self { transfer_length, symbol_size, symbols, blocks })
    }

    /// The partition into a given number of blocks: `Partition[Kt, Z]` of RFC 6330 section 4.4.1.2, equal to
    /// the partition of RFC 5052 with N = Z.
    ///
    /// An object of no bytes has no blocks, regardless of `blocks`.
    ///
    /// # Errors
    /// E of 0; no blocks, more blocks than symbols, or blocks of more than `u32::MAX` symbols.
    pub fn with_blocks(transfer_length: u64, symbol_size: u16, blocks: u32) -> Result<Self, PartitionError> {
        let symbols = symbol_count(transfer_length, symbol_size)?;
        let blocks = if symbols == 0 { 0 } else { blocks };
        let fits = |per_block: u64| per_block > 0 && per_block <= u32::MAX.into();
        if symbols > 0
            && !(blocks > 0 && fits(symbols / u64::from(blocks)) && fits(symbols.div_ceil(blocks.into())))
        {
            return Err(PartitionError::BlockCount { symbols, blocks });
        }
        Ok(Self { transfer_length, symbol_size, symbols, blocks })
    }

    /// N, the number of source blocks.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// T of RFC 5052, Kt of RFC 6330: source symbols of the whole object.
    pub fn symbols(&self) -> u64 {
        self.symbols
    }

    /// E of RFC 5052, T of RFC 6330: bytes of a symbol.
    pub fn symbol_size(&self) -> u16 {
        self.symbol_size
    }

    /// L of RFC 5052, F of RFC 6330: bytes of the object.
    pub fn transfer_length(&self) -> u64 {
        self.transfer_length
    }

    /// Symbols of the longest block, A_large; 0 where there is no block.
    pub fn max_block_symbols(&self) -> u32 {
        self.block(0).map_or(0, |block| block.symbols)
    }

    /// The block with a symbol of the object, or `None` from [`symbols`](Self::symbols) on.
    pub fn block_with_symbol(&self, symbol: u64) -> Option<Block> {
        if symbol >= self.symbols {
            return None;
        }
        let small = self.symbols / u64::from(self.blocks);
        let large_blocks = self.symbols % u64::from(self.blocks);
        let in_large = large_blocks * (small + 1);
        let sbn = match symbol.checked_sub(in_large) {
            None => symbol / (small + 1),
            Some(behind) => large_blocks + behind / small,
        };
        self.block(u32::try_from(sbn).ok()?)
    }

    /// The block of number `sbn`, or `None` from [`blocks`](Self::blocks) on.
    #[inline]
    pub fn block(&self, sbn: u32) -> Option<Block> {
        if sbn >= self.blocks {
            return None;
        }
        let small = self.symbols / u64::from(self.blocks);
        let large_blocks = self.symbols % u64::from(self.blocks);
        let index = u64::from(sbn);
        let first_symbol = index * small + index.min(large_blocks);
        let symbols =
            u32::try_from(small + u64::from(index < large_blocks)).expect("the constructors check it");
        let offset = first_symbol * u64::from(self.symbol_size);
        let bytes = (u64::from(symbols) * u64::from(self.symbol_size)).min(self.transfer_length - offset);
        Some(Block { sbn, first_symbol, symbols, offset, bytes })
    }
}

fn symbol_count(transfer_length: u64, symbol_size: u16) -> Result<u64, PartitionError> {
    if symbol_size == 0 {
        return Err(PartitionError::SymbolSize);
    }
    Ok(transfer_length.div_ceil(symbol_size.into()))
}

/// T by default, in bytes: 22 times 64 (the vector width), with room for our header under IPv6 at MTU 1500.
pub const SYMBOL_SIZE_DEFAULT: u16 = 1408;

/// The largest K of any block: RaptorQ's K'_max (RFC 6330 section 5.1.2).
pub const K_MAX: u32 = 56403;

/// The longest LDPC block that a sender makes, in symbols: with n = 2k, decoding a block of this length in
/// strips takes 93 MiB.
const LDPC_K_MAX: u32 = 1 << 17;
/// Bytes per symbol of an LDPC block's matrix, which encoding takes in addition to the source and repair
/// symbols.
const LDPC_SYMBOL_BYTES: u64 = 64;

/// K aimed at in spread order: the optimum of decoding speed against excess reception is flat around it.
const K_SPREAD: u64 = 5008;
/// K aimed at where decoding speed decides.
const K_WINDOW: u64 = 1002;
/// K aimed at for large objects: fewer blocks, longer runs on disk.
const K_LARGE: u64 = 10_017;
/// K aimed at for large objects if the rate leaves ample time for decoding, and for any object if decoding
/// all blocks after the last symbol takes less than a hundredth of the transfer. With longer blocks, blocks
/// with little loss wait less for the rest. A K' whose plan a sender of 100 MB has room for within 256 MiB.
const K_SLOW: u64 = 14_415;
/// 100 GB in symbols of the default size: above it an object is large.
const LARGE_SYMBOLS: u64 = 100_000_000_000 / SYMBOL_SIZE_DEFAULT as u64;
/// From 1 Gb/s the decoder, not the order, limits a receiver.
const FAST_RATE: u64 = 1_000_000_000;
/// Below 100 Mb/s blocks of a large object may be longer.
const SLOW_RATE: u64 = 100_000_000;
/// Below 20 Mb/s blocks of any object are as long: a core decodes 500 Mb/s of such blocks.
pub const SLOWEST_RATE: u64 = 20_000_000;

/// The order in which the symbols of an object's blocks are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Round robin over all blocks: receivers may join at any time, and loss is unknown.
    Spread {
        /// The highest rate at which one receiver takes the object, in bit/s.
        rate: u64,
    },
    /// Windows of a few blocks, for receivers that start together.
    Window,
}

impl Order {
    /// The order for a receiver of `rate` bit/s: windows from 1 Gbit/s on, where decoding decides.
    pub fn for_rate(rate: u64) -> Self {
        if rate >= FAST_RATE { Self::Window } else { Self::Spread { rate } }
    }
}

/// The number of equal blocks to cut an object of `symbols` symbols into, for [`Partition::with_blocks`].
///
/// 0 for no symbols, else at least 1. Saturates at `u32::MAX`, above 4 * 10^12 symbols.
///
/// [`Partition::with_blocks`]: crate::Partition::with_blocks
pub fn blocks_for(symbols: u64, order: Order) -> u32 {
    let k = match order {
        Order::Window => K_WINDOW,
        Order::Spread { rate } if rate >= FAST_RATE => K_WINDOW,
        Order::Spread { rate } if symbols > LARGE_SYMBOLS => {
            if rate < SLOW_RATE {
                K_SLOW
            } else {
                K_LARGE
            }
        }
        Order::Spread { rate } if rate < SLOWEST_RATE => K_SLOW,
        Order::Spread { .. } if symbols <= 2 * K_SPREAD => 2 * K_SPREAD,
        Order::Spread { .. } => K_SPREAD,
    };
    u32::try_from(symbols.div_ceil(k)).unwrap_or(u32::MAX)
}

/// The longest block of LDPC with n = 2k, in symbols of `symbol_size` bytes, that is encoded within `memory`
/// bytes. Source and repair symbols and the matrix take seven eighths of `memory`; the rest is for data
/// shared by all blocks. At least 1. In 256 MiB, at 1408 bytes a symbol, 79 782 symbols: LDPC gets better
/// with the length of a block, so a file is a single block if possible.
pub fn ldpc_block_symbols(symbol_size: u16, memory: u64) -> u32 {
    let symbols = memory / 16 * 7 / (u64::from(symbol_size) + LDPC_SYMBOL_BYTES);
    u32::try_from(symbols).unwrap_or(u32::MAX).clamp(1, LDPC_K_MAX)
}

#[cfg(test)]
mod tests {
    use super::{K_MAX, LARGE_SYMBOLS, Order, blocks_for, ldpc_block_symbols};

    const SLOWEST: Order = Order::Spread { rate: 4_000_000 };
    const SLOW: Order = Order::Spread { rate: 20_000_000 };
    const MEDIUM: Order = Order::Spread { rate: 100_000_000 };
    const FAST: Order = Order::Spread { rate: 1_000_000_000 };

    #[test]
    fn spread_order_is_one_block_up_to_twice_5008() {
        assert_eq!(blocks_for(0, SLOW), 0);
        assert_eq!(blocks_for(1, SLOW), 1);
        assert_eq!(blocks_for(10_016, SLOW), 1);
        assert_eq!(blocks_for(10_017, SLOW), 3);
        assert_eq!(blocks_for(5_008_000, MEDIUM), 1000);
    }

    #[test]
    fn slow_receivers_get_the_longest_blocks_that_are_decoded_in_no_time() {
        for (symbols, blocks) in [(0, 0), (1, 1), (14_415, 1), (14_416, 2), (34_034, 3), (71_644, 5)] {
            assert_eq!(blocks_for(symbols, SLOWEST), blocks);
        }
    }

    #[test]
    fn ldpc_blocks_are_as_long_as_memory_allows() {
        assert_eq!(ldpc_block_symbols(1_408, 256 << 20), 79_782);
        assert_eq!(ldpc_block_symbols(1_448, 256 << 20), 77_672);
        assert_eq!(ldpc_block_symbols(64, 256 << 20), 1 << 17);
        assert_eq!((ldpc_block_symbols(8_880, 0), ldpc_block_symbols(1, u64::MAX)), (1, 1 << 17));
    }

    #[test]
    fn fast_receivers_and_windows_get_short_blocks() {
        for order in [FAST, Order::Window] {
            assert_eq!(blocks_for(0, order), 0);
            assert_eq!(blocks_for(1002, order), 1);
            assert_eq!(blocks_for(1003, order), 2);
        }
    }

    #[test]
    fn large_objects_get_long_blocks() {
        assert_eq!(LARGE_SYMBOLS, 71_022_727);
        assert_eq!(blocks_for(LARGE_SYMBOLS, SLOW), 14_182);
        assert_eq!(blocks_for(LARGE_SYMBOLS + 1, MEDIUM), 7091);
        assert_eq!(blocks_for(LARGE_SYMBOLS + 1, SLOW), 4928);
    }

    #[test]
    fn no_block_is_longer_than_the_code_allows() {
        for order in [SLOWEST, SLOW, MEDIUM, FAST, Order::Window] {
            for exponent in 0..42 {
                let symbols = 1u64 << exponent;
                assert!(symbols.div_ceil(blocks_for(symbols, order).into()) <= K_MAX.into());
            }
            assert_eq!(blocks_for(u64::MAX, order), u32::MAX);
        }
    }
}
