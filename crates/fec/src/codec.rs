//! The trait of all codes, their names and parameters, and the repair symbols passed to a decoder.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::ldpc::Ldpc;
use crate::no_code::NoCode;
use crate::raptor_q::RaptorQ;
use crate::reed_solomon::ReedSolomon;
use crate::{DecodeError, FecError};

/// An erasure code with its symbol size: makes encoders of blocks, and decodes blocks.
///
/// Notation of RFC 5052: a block has k source symbols, numbered (ESI) 0..k, and n encoding symbols in total;
/// ESIs from k to n are repair symbols. Every symbol has T bytes.
///
/// A codec is made once per set of parameters and shared: all methods take `&self` and may run on several
/// threads at once.
pub trait BlockCodec: fmt::Debug + Send + Sync {
    /// The scheme that this codec speaks.
    fn scheme(&self) -> Scheme;

    /// T, in bytes.
    fn symbol_size(&self) -> usize;

    /// The largest number of source symbols of a block.
    fn k_max(&self) -> u32;

    /// n of a block of `k` source symbols: a sender uses the ESIs below n. 2^24 if the code is rateless.
    fn encoding_symbols(&self, k: u32) -> u32;

    /// End of the ESIs that a receiver accepts for a block of `k` source symbols: n, unless the code also
    /// defines ESIs beyond n.
    fn esi_end(&self, k: u32) -> u32 {
        self.encoding_symbols(k)
    }

    /// True if repair symbols never run out in practice, so that no symbol needs to be sent twice.
    fn is_rateless(&self) -> bool;

    /// Returns an encoder of a block. `source` is the block's k * T bytes, zero padded where the object ends.
    ///
    /// # Errors
    /// [`FecError::BlockSymbols`] and [`FecError::BlockLength`].
    fn encoder(&self, k: u32, source: &[u8]) -> Result<Box<dyn BlockEncoder>, FecError>;

    /// Memory that an encoder of a block of `k` source symbols keeps, in bytes: a bound. The default: as many
    /// bytes as the block has.
    fn encoder_bytes(&self, k: u32) -> u64 {
        u64::from(k) * self.symbol_size() as u64
    }

    /// Memory that making an encoder takes beside the block and the encoder, in bytes: a bound. The default:
    /// 0.
    fn encoding_bytes(&self, _k: u32) -> u64 {
        0
    }

    /// Decodes a block in place.
    ///
    /// `block` has k * T bytes with the received source symbols in their places; bytes in the missing places
    /// are ignored, and filled on success. `missing` lists the source ESIs not received, ascending. `repairs`
    /// are received repair symbols in any order; of several with the same ESI the first counts. If there are
    /// more than needed, the codec picks the symbols that decode fastest.
    ///
    /// After an error the received places are as they were; the missing places may hold anything.
    ///
    /// # Errors
    /// [`DecodeError::NeedMore`] when further repair symbols would help, else [`DecodeError::Invalid`].
    fn decode(
        &self,
        k: u32,
        block: &mut [u8],
        missing: &[u32],
        repairs: &[Repair<'_>],
    ) -> Result<(), DecodeError>;

    /// Decodes a block whose missing places hold repair symbols, so that these need no separate memory: the
    /// symbol `placed[i]`, a repair ESI, stands in the place of source symbol `missing[i]`. `more` are
    /// further repair symbols, as `repairs` of [`BlockCodec::decode`]; of several with the same ESI the first
    /// counts, symbols in the block before `more`.
    ///
    /// After an error the received places are as they were; the missing places may hold anything.
    ///
    /// # Errors
    /// As [`BlockCodec::decode`]; `placed` must not be longer than `missing`.
    fn decode_in_place(
        &self,
        k: u32,
        block: &mut [u8],
        missing: &[u32],
        placed: &[u32],
        more: &[Repair<'_>],
    ) -> Result<(), DecodeError> {
        let shape = CodeShape::new(self, k, self.esi_end(k))?;
        shape.check_placed(block, missing, placed)?;
        let copies: Vec<Vec<u8>> = missing.iter().map(|&esi| block[shape.range(esi)].to_vec()).collect();
        let copied = placed.iter().zip(&copies).map(|(&esi, data)| Repair { esi, data });
        let repairs: Vec<_> = copied.chain(more.iter().copied()).collect();
        self.decode(k, block, missing, &repairs)
    }

    /// Maximum resident memory, in bytes, to decode in place a block with `missing` missing symbols, the
    /// block included. [`kept_bytes`](crate::kept_bytes) counts the memory that codecs keep in addition.
    fn decoding_bytes(&self, k: u32, missing: usize) -> u64 {
        let symbol = self.symbol_size() as u64;
        // The block, its repair symbols, and the symbols made from these.
        u64::from(k) * symbol + 2 * missing as u64 * symbol
    }

    /// Symbols of a block of `k` source symbols with which decoding mostly succeeds: fewer are not worth an
    /// attempt. The default: k.
    fn symbols_to_try(&self, k: u32) -> u32 {
        k
    }

    /// The seed of the order in which a sender should send the symbols of a block ([`crate::sending_order`]);
    /// `None`, the default, if any order does as well as ascending ESIs.
    fn sending_seed(&self) -> Option<u32> {
        None
    }

    /// Maximum memory to decode a block of `k` symbols in strips of `width` bytes, including the strip and
    /// the strip of its repair symbols. 0 for a code that does not decode in strips.
    fn strip_bytes(&self, _k: u32, _width: usize) -> u64 {
        0
    }

    /// Whether there are recipes: symbols are sums of other symbols, so that a block may be decoded in
    /// strips, some bytes of each of its symbols at a time.
    fn decodes_in_strips(&self) -> bool {
        false
    }

    /// Returns the steps to decode a block in strips, from the numbers of its symbols: `missing` as for
    /// [`BlockCodec::decode`], `repairs` the ESIs of repair symbols, all different. Only for a code that
    /// decodes in strips.
    ///
    /// # Errors
    /// As [`BlockCodec::decode`]; [`FecError::Strips`] if the code does not decode in strips.
    fn recipe(&self, _k: u32, _missing: &[u32], _repairs: &[u32]) -> Result<Box<dyn Recipe>, DecodeError> {
        Err(FecError::Strips(self.scheme()).into())
    }
}

/// Decoding steps of a block, independent of the symbols' bytes: the sums to compute.
pub trait Recipe: fmt::Debug + Send + Sync {
    /// Fills the missing places of `block`, which holds `width` bytes of each of its k source symbols, at the
    /// same offset in every symbol. `repairs` holds the same bytes of each repair symbol, in the order of the
    /// ESIs given.
    ///
    /// # Errors
    /// [`FecError::BlockLength`] and [`FecError::SymbolLength`].
    fn fill(&self, width: usize, block: &mut [u8], repairs: &[&[u8]]) -> Result<(), FecError>;
}

/// Makes the repair symbols of a block, in any order, each as often as wanted.
pub trait BlockEncoder: fmt::Debug + Send + Sync {
    /// Writes repair symbol `esi`, k <= esi < n, to `out` of T bytes. Source symbols are refused: the caller
    /// has their bytes in the file, and not every code keeps source symbols.
    ///
    /// # Errors
    /// [`FecError::SymbolId`] and [`FecError::SymbolLength`].
    fn symbol(&self, esi: u32, out: &mut [u8]) -> Result<(), FecError>;
}

/// A received repair symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repair<'a> {
    /// Encoding symbol ID, at least k.
    pub esi: u32,
    /// T bytes.
    pub data: &'a [u8],
}

/// Parameters that sender and receiver must agree on to code the blocks of an object: the FEC OTI without the
/// length.
///
/// Made by the constructor of the scheme; fields of other schemes are ignored by [`codec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameters {
    /// The scheme.
    pub scheme: Scheme,
    /// T (also called E, encoding symbol length), in bytes, at least 1.
    pub symbol_size: u16,
    /// B, the maximum source block length in symbols. Reed-Solomon: 1..=max_symbols.
    pub max_block_symbols: u32,
    /// max_n, the maximum number of encoding symbols of a block. Reed-Solomon: up to 255.
    pub max_symbols: u32,
    /// N, sub-blocks in a block. RaptorQ: must be 1.
    pub sub_blocks: u16,
    /// Al, symbol alignment in bytes. RaptorQ: divides T; with N = 1 it has no other effect.
    pub alignment: u8,
    /// Parameters of LDPC only.
    pub ldpc: LdpcParameters,
}

/// Parameters of LDPC-Staircase and LDPC-Triangle (RFC 5170, section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LdpcParameters {
    /// Seed of the matrix, 1..=2^31 - 2.
    pub seed: u32,
    /// N1, entries in each source column, 3..=10.
    pub n1: u8,
    /// G, symbols in a packet. Must be 1.
    pub group_size: u8,
    /// Whether a decoder goes on by elimination where substitution ends: fewer symbols, more work. Not on the
    /// wire.
    pub eliminates: bool,
}

impl LdpcParameters {
    /// N1 = 3 and G = 1, as in most implementations, with elimination.
    pub fn new(seed: u32) -> Self {
        Self { seed, n1: 3, group_size: 1, eliminates: true }
    }
}

impl Parameters {
    /// Compact No-Code with symbols of `symbol_size` bytes.
    pub fn no_code(symbol_size: u16) -> Self {
        Self {
            scheme: Scheme::NoCode,
            symbol_size,
            max_block_symbols: NoCode::K_MAX,
            max_symbols: NoCode::K_MAX,
            sub_blocks: 1,
            alignment: 1,
            ldpc: LdpcParameters::new(1),
        }
    }

    /// LDPC-Staircase or -Triangle, by `scheme`: blocks of at most `max_block_symbols` (B) source and
    /// `max_symbols` (max_n) encoding symbols.
    pub fn ldpc(
        scheme: Scheme,
        symbol_size: u16,
        max_block_symbols: u32,
        max_symbols: u32,
        ldpc: LdpcParameters,
    ) -> Self {
        Self { scheme, max_block_symbols, max_symbols, ldpc, ..Self::no_code(symbol_size) }
    }

    /// Reed-Solomon over GF(2^8): symbols of `symbol_size` bytes, blocks of at most `max_block_symbols` (B)
    /// source and `max_symbols` (max_n) encoding symbols.
    ///
    /// A sender should give B as the largest block of its partition and max_n = 255: a repair symbol costs
    /// nothing until it is made, and with more of these a carousel repeats a symbol later.
    pub fn reed_solomon(symbol_size: u16, max_block_symbols: u32, max_symbols: u32) -> Self {
        Self { scheme: Scheme::ReedSolomon, max_block_symbols, max_symbols, ..Self::no_code(symbol_size) }
    }

    /// RaptorQ with symbols of `symbol_size` bytes, without sub-blocks (N = 1) and with Al = 1.
    pub fn raptorq(symbol_size: u16) -> Self {
        Self {
            scheme: Scheme::RaptorQ,
            max_block_symbols: RaptorQ::K_MAX,
            max_symbols: RaptorQ::ESI_END,
            ..Self::no_code(symbol_size)
        }
    }
}

/// Returns the codec of `parameters`. Callers should keep and share the codec: RaptorQ's holds plans that
/// cost as much as encoding a block.
///
/// # Errors
/// [`FecError`] if the scheme is not coded here or the parameters break its limits.
pub fn codec(parameters: Parameters) -> Result<Arc<dyn BlockCodec>, FecError> {
    if parameters.symbol_size == 0 {
        return Err(FecError::SymbolSize);
    }
    match parameters.scheme {
        Scheme::NoCode => Ok(Arc::new(NoCode::new(parameters.symbol_size))),
        Scheme::ReedSolomon => Ok(Arc::new(ReedSolomon::new(&parameters)?)),
        Scheme::RaptorQ => Ok(Arc::new(RaptorQ::new(&parameters)?)),
        Scheme::LdpcStaircase | Scheme::LdpcTriangle => Ok(Arc::new(Ldpc::new(&parameters)?)),
    }
}

/// The sizes of a block, and the checks of arguments that all codecs share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeShape {
    k: u32,
    symbol_size: usize,
    esi_end: u32,
}

impl CodeShape {
    /// A block of `k` symbols of `codec`; its repair symbols are k..`esi_end`.
    pub(crate) fn new(codec: &(impl BlockCodec + ?Sized), k: u32, esi_end: u32) -> Result<Self, FecError> {
        let k_max = codec.k_max();
        if k == 0 || k > k_max {
            return Err(FecError::BlockSymbols { k, k_max });
        }
        Ok(Self { k, symbol_size: codec.symbol_size(), esi_end })
    }

    pub(crate) fn k(&self) -> u32 {
        self.k
    }

    pub(crate) fn symbol_size(&self) -> usize {
        self.symbol_size
    }

    pub(crate) fn check_block(&self, block: &[u8]) -> Result<(), FecError> {
        let expected = u64::from(self.k) * self.symbol_size as u64;
        if block.len() as u64 == expected {
            Ok(())
        } else {
            Err(FecError::BlockLength { expected, actual: block.len() })
        }
    }

    pub(crate) fn check_esi(&self, esi: u32) -> Result<(), FecError> {
        if esi < self.k || esi >= self.esi_end {
            return Err(FecError::SymbolId { esi, start: self.k, end: self.esi_end });
        }
        Ok(())
    }

    pub(crate) fn check_repair(&self, esi: u32, data: &[u8]) -> Result<(), FecError> {
        self.check_esi(esi)?;
        if data.len() != self.symbol_size {
            return Err(FecError::SymbolLength { expected: self.symbol_size, actual: data.len() });
        }
        Ok(())
    }

    /// All checks of [`BlockCodec::decode`] that do not depend on the code.
    pub(crate) fn check_decode(
        &self,
        block: &[u8],
        missing: &[u32],
        repairs: &[Repair<'_>],
    ) -> Result<(), FecError> {
        self.check_missing(block, missing)?;
        repairs.iter().try_for_each(|repair| self.check_repair(repair.esi, repair.data))
    }

    /// Checks the arguments for a block that holds repair symbols in its missing places.
    pub(crate) fn check_placed(&self, block: &[u8], missing: &[u32], placed: &[u32]) -> Result<(), FecError> {
        self.check_missing(block, missing)?;
        if placed.len() > missing.len() {
            return Err(FecError::Placed { placed: placed.len(), missing: missing.len() });
        }
        missing.iter().zip(placed).try_for_each(|(&at, &esi)| self.check_repair(esi, &block[self.range(at)]))
    }

    fn check_missing(&self, block: &[u8], missing: &[u32]) -> Result<(), FecError> {
        self.check_block(block)?;
        self.check_ascending(missing)
    }

    /// Strictly ascending, and below k.
    pub(crate) fn check_ascending(&self, missing: &[u32]) -> Result<(), FecError> {
        let mut next = 0;
        for &esi in missing {
            if esi < next || esi >= self.k {
                return Err(FecError::Missing { esi, k: self.k });
            }
            next = esi + 1;
        }
        Ok(())
    }

    /// The bytes of source symbol `esi` in a block.
    pub(crate) fn range(&self, esi: u32) -> Range<usize> {
        let start = esi as usize * self.symbol_size;
        start..start + self.symbol_size
    }

    /// The source ESIs that are not in `missing`, ascending.
    pub(crate) fn received<'a>(&self, missing: &'a [u32]) -> impl Iterator<Item = u32> + use<'a> {
        let mut missing = missing.iter().copied().peekable();
        (0..self.k).filter(move |&esi| missing.next_if_eq(&esi).is_none())
    }
}

/// Returns the repair symbols by ascending ESI, the first of several with the same ESI, if there are as many
/// as `missing`.
pub(crate) fn enough_distinct<'a>(
    repairs: &[Repair<'a>],
    missing: &[u32],
) -> Result<Vec<Repair<'a>>, DecodeError> {
    let mut distinct = repairs.to_vec();
    // A stable sort, so that the first of equals stays.
    distinct.sort_by_key(|repair| repair.esi);
    distinct.dedup_by_key(|repair| repair.esi);
    match missing.len().checked_sub(distinct.len()) {
        None | Some(0) => Ok(distinct),
        Some(more) => Err(DecodeError::NeedMore { more: u32::try_from(more).unwrap_or(u32::MAX) }),
    }
}

/// An FEC scheme that Headwater names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Compact No-Code: source symbols only (RFC 5445 section 3).
    NoCode,
    /// LDPC-Staircase (RFC 5170).
    LdpcStaircase,
    /// LDPC-Triangle (RFC 5170).
    LdpcTriangle,
    /// Reed-Solomon over GF(2^8) (RFC 5510 section 8).
    ReedSolomon,
    /// RaptorQ (RFC 6330).
    RaptorQ,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCode => "No-Code",
            Self::LdpcStaircase => "LDPC-Staircase",
            Self::LdpcTriangle => "LDPC-Triangle",
            Self::ReedSolomon => "Reed-Solomon",
            Self::RaptorQ => "RaptorQ",
        })
    }
}

/// A repair symbol and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedRepair<'a> {
    pub(crate) esi: u32,
    place: Place<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    /// In the place of this source symbol.
    Missing(u32),
    Beside(&'a [u8]),
}

impl<'a> PlacedRepair<'a> {
    /// Returns the symbol's bytes `columns`.
    pub(crate) fn data<'b>(&self, shape: &CodeShape, block: &'b [u8], columns: Range<usize>) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.place {
            Place::Missing(at) => &block[shape.range(at)][columns],
            Place::Beside(data) => &data[columns],
        }
    }
}

/// Returns the symbols by ascending ESI, the first of several with the same ESI, if there are as many as
/// `missing`.
pub(crate) fn enough<'a>(
    missing: &[u32],
    placed: &[u32],
    more: &[Repair<'a>],
) -> Result<Vec<PlacedRepair<'a>>, DecodeError> {
    let inside =
        missing.iter().zip(placed).map(|(&at, &esi)| PlacedRepair { esi, place: Place::Missing(at) });
    let beside =
        more.iter().map(|repair| PlacedRepair { esi: repair.esi, place: Place::Beside(repair.data) });
    let mut given: Vec<_> = inside.chain(beside).collect();
    // A stable sort, so that the first of equals stays.
    given.sort_by_key(|given| given.esi);
    given.dedup_by_key(|given| given.esi);
    match missing.len().checked_sub(given.len()) {
        None | Some(0) => Ok(given),
        Some(more) => Err(DecodeError::NeedMore { more: u32::try_from(more).unwrap_or(u32::MAX) }),
    }
}
