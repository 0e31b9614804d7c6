//! LDPC-Staircase and LDPC-Triangle, FEC Encoding IDs 3 and 4 (RFC 5170).
//!
//! Sparse rows of symbols that XOR to zero. Decoding substitutes known symbols: cheap, for blocks of any
//! size, but takes a few percent more symbols than k. If substitution stops early, elimination follows and
//! lowers the excess to about 1 %.

mod dense;
mod matrix;
mod peeling;
mod program;

use std::fmt;
use std::sync::Arc;

use self::matrix::{Generator, Graph, Key, Variant};
use self::program::{Program, inactive_max, xor};
use crate::codec::{CodeShape, Recipe, enough_distinct};
use crate::{BlockCodec, BlockEncoder, DecodeError, FecError, Parameters, Repair, Scheme};

pub use self::peeling::sending_order;

/// n at most: ESIs have 20 bits on the wire.
const N_MAX: u32 = 1 << 20;
/// N1 on the wire is N1 - 3 in 3 bits.
const N1: std::ops::RangeInclusive<u8> = 3..=10;
/// The part of k beyond k with which decoding mostly succeeds: with elimination 0.5 to 0.8 %, by substitution
/// alone 9 to 10.5 %.
const FIRST_TRY: u32 = 128;
const FIRST_TRY_SUBSTITUTING: u32 = 11;
/// After a failure of which nothing else is known, ask for this part of k more.
const MORE: u32 = 200;
/// Divisor of k for the symbols requested beyond the missing count, after a failure with a known count: some
/// further symbols will be redundant.
const MORE_BESIDE: u32 = 1_000;

pub(crate) struct Ldpc {
    scheme: Scheme,
    variant: Variant,
    symbol_size: u16,
    max_block_symbols: u32,
    max_symbols: u32,
    n1: u32,
    seed: u32,
    generator: Generator,
    eliminates: bool,
}

impl Ldpc {
    pub(crate) fn new(parameters: &Parameters) -> Result<Self, FecError> {
        let Parameters { scheme, symbol_size, max_block_symbols, max_symbols, ldpc, .. } = *parameters;
        let invalid = FecError::LdpcLimits { max_block_symbols, max_symbols, n1: ldpc.n1, seed: ldpc.seed };
        let is_sound = N1.contains(&ldpc.n1)
            && max_block_symbols > 0
            && max_block_symbols < max_symbols
            && max_symbols <= N_MAX;
        let generator = Generator::new(ldpc.seed).filter(|_| is_sound).ok_or(invalid)?;
        if ldpc.group_size != 1 {
            return Err(FecError::SymbolGroups(ldpc.group_size));
        }
        let variant = match scheme {
            Scheme::LdpcStaircase => Variant::Staircase,
            _ => Variant::Triangle,
        };
        Ok(Self {
            scheme,
            variant,
            symbol_size,
            max_block_symbols,
            max_symbols,
            n1: ldpc.n1.into(),
            seed: ldpc.seed,
            generator,
            eliminates: ldpc.eliminates,
        })
    }

    /// n = floor(k max_n / B) (RFC 5170, section 4.2.4).
    fn n(&self, k: u32) -> u32 {
        let n = u64::from(k.min(self.max_block_symbols)) * u64::from(self.max_symbols);
        u32::try_from(n / u64::from(self.max_block_symbols)).expect("at most max_n")
    }

    fn shape(&self, k: u32) -> Result<CodeShape, FecError> {
        let n = self.n(k);
        let shape = CodeShape::new(self, k, n)?;
        // Each source column has N1 entries, in as many rows.
        if n - k < self.n1 {
            return Err(FecError::LdpcRows { k, n, n1: self.n1 });
        }
        Ok(shape)
    }

    fn graph(&self, k: u32) -> Arc<Graph> {
        let Self { variant, n1, generator, .. } = *self;
        Graph::of(Key { variant, k, n: self.n(k), n1, generator })
    }

    /// The steps from `repairs`, distinct ESIs in range, at least as many as are `missing`.
    fn program(&self, k: u32, missing: &[u32], repairs: &[u32]) -> Result<Program, DecodeError> {
        Program::new(self.graph(k), missing, repairs, self.eliminates).map_err(|short| {
            let more = short.map_or(k / MORE, |short| short + k / MORE_BESIDE);
            DecodeError::NeedMore { more: more.max(1) }
        })
    }
}

impl fmt::Debug for Ldpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ldpc").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl BlockCodec for Ldpc {
    fn scheme(&self) -> Scheme {
        self.scheme
    }

    fn symbol_size(&self) -> usize {
        self.symbol_size.into()
    }

    fn k_max(&self) -> u32 {
        self.max_block_symbols
    }

    /// k if a block is so short, or the code's rate so high, that repair symbols cannot be made: RFC 5170
    /// does not define these repair symbols, and the codec refuses them. k + 1 if there are no more rows than
    /// a source column has entries: all rows then hold all source symbols, the first repair symbol is their
    /// sum, and further repair symbols are equal to the first or zero.
    fn encoding_symbols(&self, k: u32) -> u32 {
        let n = self.esi_end(k);
        if n - k == self.n1 { k + 1 } else { n }
    }

    fn esi_end(&self, k: u32) -> u32 {
        let n = self.n(k);
        if n.saturating_sub(k) < self.n1 { k } else { n }
    }

    fn is_rateless(&self) -> bool {
        false
    }

    fn symbols_to_try(&self, k: u32) -> u32 {
        let beyond = k / if self.eliminates { FIRST_TRY } else { FIRST_TRY_SUBSTITUTING };
        // If there are few repair symbols, half of these must suffice.
        k + beyond.min((self.encoding_symbols(k) - k) / 2)
    }

    fn sending_seed(&self) -> Option<u32> {
        Some(self.seed)
    }

    fn encoder_bytes(&self, k: u32) -> u64 {
        u64::from(self.encoding_symbols(k).saturating_sub(k)) * self.symbol_size() as u64
    }

    fn encoder(&self, k: u32, source: &[u8]) -> Result<Box<dyn BlockEncoder>, FecError> {
        let shape = self.shape(k)?;
        shape.check_block(source)?;
        let graph = self.graph(k);
        let size = shape.symbol_size();
        let mut repair = vec![0; graph.matrix.rows() as usize * size];
        for row in 0..graph.matrix.rows() {
            // Each row makes its last symbol from the row's other symbols, all known by then.
            let (before, from_here) = repair.split_at_mut(row as usize * size);
            let symbol = &mut from_here[..size];
            let columns = graph.matrix.row(row);
            for column in &columns[..columns.len() - 1] {
                match column.checked_sub(k) {
                    None => xor(symbol, &source[shape.range(*column)]),
                    Some(made) => xor(symbol, &before[made as usize * size..][..size]),
                }
            }
        }
        Ok(Box::new(Encoder { shape, repair: repair.into() }))
    }

    fn decode(
        &self,
        k: u32,
        block: &mut [u8],
        missing: &[u32],
        repairs: &[Repair<'_>],
    ) -> Result<(), DecodeError> {
        let shape = self.shape(k)?;
        shape.check_decode(block, missing, repairs)?;
        if missing.is_empty() {
            return Ok(());
        }
        let repairs = enough_distinct(repairs, missing)?;
        let esis: Vec<u32> = repairs.iter().map(|repair| repair.esi).collect();
        let symbols: Vec<&[u8]> = repairs.iter().map(|repair| repair.data).collect();
        Ok(self.program(k, missing, &esis)?.fill(shape.symbol_size(), block, &symbols)?)
    }

    fn decodes_in_strips(&self) -> bool {
        true
    }

    fn recipe(&self, k: u32, missing: &[u32], repairs: &[u32]) -> Result<Box<dyn Recipe>, DecodeError> {
        let shape = self.shape(k)?;
        shape.check_ascending(missing)?;
        let mut distinct = repairs.to_vec();
        distinct.sort_unstable();
        if let Some(pair) = distinct.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(FecError::Repeated(pair[0]).into());
        }
        distinct.iter().try_for_each(|esi| shape.check_esi(*esi))?;
        match missing.len().checked_sub(repairs.len()) {
            None | Some(0) => Ok(Box::new(self.program(k, missing, repairs)?)),
            Some(more) => Err(DecodeError::NeedMore { more: u32::try_from(more).unwrap_or(u32::MAX) }),
        }
    }

    fn decoding_bytes(&self, k: u32, _missing: usize) -> u64 {
        self.strip_bytes(k, self.symbol_size())
    }

    fn strip_bytes(&self, k: u32, width: usize) -> u64 {
        let n = u64::from(self.n(k));
        let rows = n.saturating_sub(k.into());
        // Measured: a row of the triangle has 0.55 log2(rows) entries in addition to the staircase's.
        let triangle = match self.variant {
            Variant::Staircase => 0,
            Variant::Triangle => u64::from(rows.max(1).ilog2()) * 3 / 5 + 1,
        };
        let entries = u64::from(k) * u64::from(self.n1) + rows * (3 + triangle);
        let inactive = inactive_max(self.n(k)) as u64;
        // Both forms of the matrix and the rows by their number of unknowns; states, steps and places; memory
        // of the elimination.
        let structure = 12 * entries + 76 * n + inactive * inactive / 2;
        structure + (n + inactive + 256) * width as u64
    }
}

/// Repair symbols are made all at once, as each depends on the previous symbol.
struct Encoder {
    shape: CodeShape,
    repair: Box<[u8]>,
}

impl BlockEncoder for Encoder {
    fn symbol(&self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.shape.check_repair(esi, out)?;
        let place = self.shape.range(esi - self.shape.k());
        out.copy_from_slice(&self.repair[place]);
        Ok(())
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("shape", &self.shape).finish_non_exhaustive()
    }
}
