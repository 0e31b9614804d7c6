//! Reed-Solomon over GF(2^8), FEC Encoding ID 5 (RFC 5510 section 8).
//!
//! A block is a polynomial of degree below k for every byte position: encoding symbol j is the polynomial's
//! value at the point x_j, and the source symbols are the values at x_0..x_{k-1}. This equals the generator
//! matrix of the RFC, the product of V_{k,k}^-1 and V_{k,n}, without computing the matrix: each further
//! symbol, and each missing symbol, is a Lagrange interpolation through any k symbols. With Rizzo's points
//! (see `docs/errata/fec.md`), x_0 = 0 and x_j = alpha^(j-1).

use std::fmt;

use crate::codec::{CodeShape, enough_distinct};
use crate::gf256;
use crate::{BlockCodec, BlockEncoder, DecodeError, FecError, Kernel, Parameters, Repair, Scheme};

/// max_n at most: 2^8 - 1.
const N_MAX: u32 = 255;

#[derive(Debug)]
pub(crate) struct ReedSolomon {
    symbol_size: u16,
    /// B.
    max_block_symbols: u32,
    /// max_n.
    max_symbols: u32,
}

impl ReedSolomon {
    pub(crate) fn new(parameters: &Parameters) -> Result<Self, FecError> {
        let Parameters { symbol_size, max_block_symbols, max_symbols, .. } = *parameters;
        if max_block_symbols == 0 || max_block_symbols > max_symbols || max_symbols > N_MAX {
            return Err(FecError::ReedSolomonLimits { max_block_symbols, max_symbols });
        }
        Ok(Self { symbol_size, max_block_symbols, max_symbols })
    }
}

impl BlockCodec for ReedSolomon {
    fn scheme(&self) -> Scheme {
        Scheme::ReedSolomon
    }

    fn symbol_size(&self) -> usize {
        self.symbol_size.into()
    }

    fn k_max(&self) -> u32 {
        self.max_block_symbols
    }

    /// n = floor(k * max_n / B) (RFC 5510 section 6.2).
    fn encoding_symbols(&self, k: u32) -> u32 {
        k.min(self.max_block_symbols) * self.max_symbols / self.max_block_symbols
    }

    /// max_n for every block: some senders give short blocks as many repair symbols as long blocks, and the
    /// meaning of a symbol does not depend on n.
    fn esi_end(&self, _k: u32) -> u32 {
        self.max_symbols
    }

    fn is_rateless(&self) -> bool {
        false
    }

    fn encoder(&self, k: u32, source: &[u8]) -> Result<Box<dyn BlockEncoder>, FecError> {
        let shape = CodeShape::new(self, k, self.encoding_symbols(k))?;
        shape.check_block(source)?;
        let interpolation = Interpolation::new((0..k).map(point));
        Ok(Box::new(Encoder { shape, interpolation, source: source.into() }))
    }

    fn decode(
        &self,
        k: u32,
        block: &mut [u8],
        missing: &[u32],
        repairs: &[Repair<'_>],
    ) -> Result<(), DecodeError> {
        let shape = CodeShape::new(self, k, self.esi_end(k))?;
        shape.check_decode(block, missing, repairs)?;
        let repairs = enough_distinct(repairs, missing)?;
        let chosen = &repairs[..missing.len()];
        let points = shape.received(missing).chain(chosen.iter().map(|repair| repair.esi)).map(point);
        let interpolation = Interpolation::new(points);
        for &esi in missing {
            interpolate_missing(&shape, block, esi, missing, &interpolation, chosen);
        }
        Ok(())
    }
}

/// Makes repair symbols from a copy of the source symbols.
struct Encoder {
    shape: CodeShape,
    interpolation: Interpolation,
    source: Box<[u8]>,
}

impl BlockEncoder for Encoder {
    fn symbol(&self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.shape.check_repair(esi, out)?;
        out.fill(0);
        let kernel = Kernel::chosen();
        let symbols = self.source.chunks_exact(self.shape.symbol_size());
        for (symbol, coefficient) in symbols.zip(self.interpolation.coefficients(point(esi))) {
            kernel.mul_add(out, symbol, coefficient);
        }
        Ok(())
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// Writes the missing symbol `esi` to its place, from the received source symbols and the chosen repair
/// symbols.
fn interpolate_missing(
    shape: &CodeShape,
    block: &mut [u8],
    esi: u32,
    missing: &[u32],
    interpolation: &Interpolation,
    chosen: &[Repair<'_>],
) {
    let size = shape.symbol_size();
    let (before, rest) = block.split_at_mut(shape.range(esi).start);
    let (target, after) = rest.split_at_mut(size);
    let source = |received: u32| {
        if received < esi { &before[shape.range(received)] } else { &after[shape.range(received - esi - 1)] }
    };
    let symbols = shape.received(missing).map(source).chain(chosen.iter().map(|repair| repair.data));
    let kernel = Kernel::chosen();
    target.fill(0);
    for (symbol, coefficient) in symbols.zip(interpolation.coefficients(point(esi))) {
        kernel.mul_add(target, symbol, coefficient);
    }
}

/// x_j of Rizzo's codec: 0, then the powers of alpha from 1 on. `esi` is below 255.
fn point(esi: u32) -> u8 {
    let esi = u8::try_from(esi).expect("ESIs are checked against max_n <= 255");
    esi.checked_sub(1).map_or(0, gf256::alpha)
}

/// Lagrange interpolation through the values at given distinct points.
struct Interpolation {
    points: Vec<u8>,
    /// 1 / product of (x_i - x_l) over all l other than i.
    weights: Vec<u8>,
}

impl Interpolation {
    fn new(points: impl Iterator<Item = u8>) -> Self {
        let points: Vec<u8> = points.collect();
        let weight = |&x: &u8| {
            let others = points.iter().filter(|&&other| other != x);
            gf256::inverse(others.fold(1, |product, &other| gf256::mul(product, x ^ other)))
        };
        let weights = points.iter().map(weight).collect();
        Self { points, weights }
    }

    /// Returns the factor of each point's value in the value at `x`, which is not a point.
    fn coefficients(&self, x: u8) -> impl Iterator<Item = u8> {
        let node = self.points.iter().fold(1, |product, &other| gf256::mul(product, x ^ other));
        self.points
            .iter()
            .zip(&self.weights)
            .map(move |(&other, &weight)| gf256::mul(gf256::mul(node, weight), gf256::inverse(x ^ other)))
    }
}
