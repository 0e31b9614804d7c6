/// Reason for which a codec, an encoder or a decoder cannot be made from the given arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FecError {
    /// Symbols of zero bytes.
    #[error("the symbol size is 0 bytes")]
    SymbolSize,
    /// B and max_n of Reed-Solomon must satisfy 1 <= B <= max_n <= 255 (RFC 5510 section 8).
    #[error(
        "Reed-Solomon over GF(2^8) needs 1 <= B <= max_n <= 255, not B = {max_block_symbols} and max_n = {max_symbols}"
    )]
    ReedSolomonLimits {
        /// B, the maximum source block length in symbols.
        max_block_symbols: u32,
        /// max_n, the maximum number of encoding symbols of a block.
        max_symbols: u32,
    },
    /// The limits of RFC 5170.
    #[error(
        "LDPC needs 1 <= B < max_n <= 2^20, N1 from 3 to 10 and a seed from 1 to 2^31 - 2, not B = {max_block_symbols}, \
         max_n = {max_symbols}, N1 = {n1} and seed {seed}"
    )]
    LdpcLimits {
        /// B, the maximum source block length in symbols.
        max_block_symbols: u32,
        /// max_n, the maximum number of encoding symbols of a block.
        max_symbols: u32,
        /// N1, entries in each source column.
        n1: u8,
        /// Seed of the matrix.
        seed: u32,
    },
    /// LDPC with fewer repair symbols than entries in a source column.
    #[error(
        "an LDPC block of k = {k} and n = {n} symbols: at least N1 = {n1} of them must be repair symbols"
    )]
    LdpcRows {
        /// Source symbols.
        k: u32,
        /// Encoding symbols.
        n: u32,
        /// N1, entries in each source column.
        n1: u32,
    },
    /// LDPC's number of symbols in a packet G must be 1.
    #[error("LDPC with G = {0} symbols in a packet is not supported, only G = 1")]
    SymbolGroups(u8),
    /// RaptorQ's number of sub-blocks N must be 1.
    #[error("RaptorQ with N = {0} sub-blocks is not supported, only N = 1")]
    SubBlocks(u16),
    /// RaptorQ's T must be a multiple of the alignment Al >= 1 (RFC 6330 section 4.3).
    #[error("the symbol size of {symbol_size} bytes is not a multiple of the alignment {alignment}")]
    Alignment {
        /// T in bytes.
        symbol_size: u16,
        /// Al in bytes.
        alignment: u8,
    },
    /// A block must have from 1 to `k_max` source symbols.
    #[error("a block of {k} symbols, where 1 to {k_max} are possible")]
    BlockSymbols {
        /// Source symbols of the block.
        k: u32,
        /// The codec's largest block.
        k_max: u32,
    },
    /// A block's buffer is not k * T bytes long.
    #[error("a block of {actual} bytes, where k * T is {expected}")]
    BlockLength {
        /// k * T in bytes.
        expected: u64,
        /// The buffer's length in bytes.
        actual: usize,
    },
    /// A symbol's buffer is not T bytes long.
    #[error("a symbol of {actual} bytes, where T is {expected}")]
    SymbolLength {
        /// T in bytes.
        expected: usize,
        /// The buffer's length in bytes.
        actual: usize,
    },
    /// An ESI that is not that of a repair symbol of this block.
    #[error("encoding symbol {esi} is not a repair symbol: these are {start} to below {end}")]
    SymbolId {
        /// The encoding symbol ID.
        esi: u32,
        /// The first repair symbol, k.
        start: u32,
        /// The last repair symbol's ESI plus 1.
        end: u32,
    },
    /// An ESI twice in a list of distinct ESIs.
    #[error("encoding symbol {0} is listed twice")]
    Repeated(u32),
    /// The code has no recipes: it decodes only whole symbols.
    #[error("{0} does not decode in strips")]
    Strips(crate::Scheme),
    /// The list of missing source symbols is not strictly ascending or contains an ESI of k or more.
    #[error("missing symbol {esi} is out of order or not below k = {k}")]
    Missing {
        /// The offending entry.
        esi: u32,
        /// Source symbols of the block.
        k: u32,
    },
    /// More repair symbols in the missing places of a block than missing places.
    #[error("{placed} repair symbols in the places of {missing} missing ones")]
    Placed {
        /// Repair symbols.
        placed: usize,
        /// Missing places.
        missing: usize,
    },
}

/// Why a block could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The symbols do not determine the block: call again with at least `more` further repair symbols.
    #[error("at least {more} more symbols are needed")]
    NeedMore {
        /// Symbols short of k; 1 where k or more are there but their equations are dependent.
        more: u32,
    },
    /// The arguments contradict each other or the codec; no further symbol will help.
    #[error(transparent)]
    Invalid(#[from] FecError),
}
