//! LDPC-Staircase and LDPC-Triangle, FEC Encoding IDs 3 and 4 (RFC 5170).
//!
//! Sparse rows of symbols that XOR to zero. Decoding substitutes what is known: cheap, for blocks of any size, at the price
//! of a few percent more symbols than k. Elimination, on request, brings that down to about one percent.

mod matrix;
mod peeling;
mod solve;
mod symbols;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use self::matrix::{Columns, Generator, Matrix, Variant};
use self::peeling::Peeling;
use self::symbols::Symbols;
use crate::codec::{Shape, enough_distinct};
use crate::{BlockCodec, BlockEncoder, DecodeError, FecError, Parameters, Repair, Scheme};

/// n at most: ESIs have 20 bits on the wire.
const N_MAX: u32 = 1 << 20;
/// N1 on the wire is N1 - 3 in 3 bits.
const N1: std::ops::RangeInclusive<u8> = 3..=10;
/// Matrices kept: the two lengths of blocks of an object.
const MATRICES_MAX: usize = 2;
/// Columns set aside at most, and the bits that elimination may take with them: 2 MiB for their equations, 64 MiB for what
/// the other unknown symbols are in terms of them.
const INACTIVE_MAX: usize = 4_096;
const BITS_MAX: usize = 64 << 23;
/// After a failure, ask for this part of k more.
const MORE: u32 = 200;

/// A matrix both ways.
#[derive(Debug)]
struct Graph {
    matrix: Matrix,
    columns: Columns,
}

pub(crate) struct Ldpc {
    scheme: Scheme,
    variant: Variant,
    symbol_size: u16,
    max_block_symbols: u32,
    max_symbols: u32,
    n1: u32,
    generator: Generator,
    eliminates: bool,
    graphs: Mutex<Vec<Arc<Graph>>>,
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
            generator,
            eliminates: ldpc.eliminates,
            graphs: Mutex::default(),
        })
    }

    /// n = floor(k max_n / B) (RFC 5170, section 4.2.4).
    fn n(&self, k: u32) -> u32 {
        let n = u64::from(k.min(self.max_block_symbols)) * u64::from(self.max_symbols);
        u32::try_from(n / u64::from(self.max_block_symbols)).expect("at most max_n")
    }

    fn shape(&self, k: u32) -> Result<Shape, FecError> {
        let n = self.n(k);
        let shape = Shape::new(self, k, n)?;
        // Each source column has N1 entries, in as many rows.
        if n - k < self.n1 {
            return Err(FecError::LdpcRows { k, n, n1: self.n1 });
        }
        Ok(shape)
    }

    fn graph(&self, k: u32) -> Arc<Graph> {
        let lock = || self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(graph) = lock().iter().find(|graph| graph.matrix.k() == k) {
            return Arc::clone(graph);
        }
        // Made outside the lock: two threads may make the same one, and one of them is kept.
        let matrix = Matrix::new(self.variant, k, self.n(k), self.n1, self.generator);
        let graph = Arc::new(Graph { columns: matrix.columns(), matrix });
        let mut graphs = lock();
        if graphs.len() == MATRICES_MAX {
            graphs.remove(0);
        }
        graphs.push(Arc::clone(&graph));
        graph
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

    fn encoding_symbols(&self, k: u32) -> u32 {
        self.n(k)
    }

    fn is_rateless(&self) -> bool {
        false
    }

    fn encoder(&self, k: u32, source: &[u8]) -> Result<Box<dyn BlockEncoder>, FecError> {
        let shape = self.shape(k)?;
        shape.check_block(source)?;
        let graph = self.graph(k);
        let size = shape.symbol_size();
        let mut repair = vec![0; graph.matrix.rows() as usize * size];
        for row in 0..graph.matrix.rows() {
            // Each row makes its last symbol of the others, all of which are there by then.
            let (before, from_here) = repair.split_at_mut(row as usize * size);
            let symbol = &mut from_here[..size];
            let columns = graph.matrix.row(row);
            for column in &columns[..columns.len() - 1] {
                match column.checked_sub(k) {
                    None => symbols::xor(symbol, &source[shape.range(*column)]),
                    Some(made) => symbols::xor(symbol, &before[made as usize * size..][..size]),
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
        let graph = self.graph(k);
        let matrix = &graph.matrix;
        let mut given = repairs.iter().map(|repair| repair.esi).peekable();
        let absent = (k..matrix.n()).filter(|esi| given.next_if_eq(esi).is_none());
        let unknown = missing.iter().copied().chain(absent);
        let mut peeling = Peeling::new(matrix, &graph.columns, unknown);
        let mut symbols = Symbols::new(shape, block, &repairs, matrix.rows());
        let need_more = Err(DecodeError::NeedMore { more: (k / MORE).max(1) });
        if !peeling.run() {
            let unknown = peeling.unknown_symbols();
            let solved = self.eliminates
                && peeling.run_with_inactivation(INACTIVE_MAX.min(BITS_MAX / unknown))
                && solve::solve(matrix, &peeling, &mut symbols);
            if !solved {
                return need_more;
            }
        }
        for step in peeling.needed() {
            symbols.yield_from(matrix.row(step.row), step.column);
        }
        Ok(())
    }
}

/// Repair symbols are made all at once, as each is made of the one before.
struct Encoder {
    shape: Shape,
    repair: Box<[u8]>,
}

impl BlockEncoder for Encoder {
    fn symbol(&self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.shape.check_repair(esi, out)?;
        let place = self.shape.range(esi - self.shape.k());
        out.copy_from_slice(&self.repair[place]);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.repair.len() + size_of::<Self>()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("shape", &self.shape).finish_non_exhaustive()
    }
}
