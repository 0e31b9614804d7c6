/// How an object is cut into blocks of nearly equal length (RFC 5052 section 9.1).
///
/// With T symbols in N blocks, the first I = T - floor(T / N) * N blocks have ceil(T / N) symbols, the others
/// floor(T / N). Everything is computed when asked for: a partition of any object takes a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    transfer_length: u64,
    symbol_size: u16,
    symbols: u64,
    blocks: u32,
}

/// One source block of a [`Partition`].
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
    /// fewer where the object ends inside it, none past the last one.
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
    /// An object of one byte or more in blocks of zero symbols.
    #[error("the maximum source block length is 0 symbols")]
    MaxBlockSymbols,
    /// More blocks than 32 bits can number.
    #[error("{blocks} source blocks, more than 32 bits can number")]
    TooManyBlocks {
        /// N.
        blocks: u64,
    },
    /// No blocks for an object of one byte or more, more blocks than symbols, or a block of 2^32 symbols or
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

    /// The partition into a given number of blocks: `Partition[Kt, Z]` of RFC 6330 section 4.4.1.2, which is
    /// that of RFC 5052 with N = Z.
    ///
    /// An object of no bytes has no blocks, whatever `blocks` says.
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

    /// The block of number `sbn`, or `None` from [`blocks`](Self::blocks) on.
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
