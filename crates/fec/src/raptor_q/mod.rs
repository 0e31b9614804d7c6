//! RaptorQ, FEC Encoding ID 6 (RFC 6330).
//!
//! A block's symbols determine its L intermediate symbols by linear equations, and every encoding symbol is a
//! sum of intermediate symbols. The equations are solved once for a block, on the numbers of its symbols
//! alone ([`inactivation`], [`dense`]). The resulting [`Schedule`] of sums is followed for strips of the
//! symbols' bytes that stay in a processor's cache. A sender's schedule depends on K' alone and is kept.

mod dense;
mod inactivation;
mod plans;
mod schedule;
mod structure;
mod tables;

use std::fmt;
use std::ops::Range;

use crate::codec::{CodeShape, PlacedRepair, enough};
use crate::{BlockCodec, BlockEncoder, DecodeError, FecError, K_MAX, Kernel, Parameters, Repair, Scheme};

pub use plans::{PlanBytes, kept_bytes};

use plans::PLANS;
use schedule::{STRIP_BYTES_MAX, Schedule};
use structure::{Equations, Numbers, Structure, TERMS_MAX};

/// Most symbols that a block is padded with, K' - K: 570, rounded up.
const PADDING_MAX: u32 = 1_024;
/// Symbols beyond K with which no HDPC equation is needed, beyond their number H.
const PLENTY: usize = 4;

pub(crate) struct RaptorQ {
    symbol_size: u16,
}

impl RaptorQ {
    pub(crate) const K_MAX: u32 = K_MAX;
    /// ESIs have 24 bits, also the internal numbers of a padded block's repair symbols, which count from K'
    /// on: the last K' - K are not coded.
    pub(crate) const ESI_END: u32 = (1 << 24) - PADDING_MAX;

    pub(crate) fn new(parameters: &Parameters) -> Result<Self, FecError> {
        let Parameters { symbol_size, sub_blocks, alignment, .. } = *parameters;
        if sub_blocks != 1 {
            return Err(FecError::SubBlocks(sub_blocks));
        }
        if alignment == 0 || symbol_size % u16::from(alignment) != 0 {
            return Err(FecError::Alignment { symbol_size, alignment });
        }
        Ok(Self { symbol_size })
    }

    fn shape(&self, k: u32) -> Result<CodeShape, FecError> {
        CodeShape::new(self, k, Self::ESI_END)
    }
}

impl BlockCodec for RaptorQ {
    fn scheme(&self) -> Scheme {
        Scheme::RaptorQ
    }

    fn symbol_size(&self) -> usize {
        self.symbol_size.into()
    }

    fn k_max(&self) -> u32 {
        Self::K_MAX
    }

    fn encoding_symbols(&self, _k: u32) -> u32 {
        Self::ESI_END
    }

    fn is_rateless(&self) -> bool {
        true
    }

    fn encoder(&self, k: u32, source: &[u8]) -> Result<Box<dyn BlockEncoder>, FecError> {
        let shape = self.shape(k)?;
        shape.check_block(source)?;
        Ok(Box::new(Encoder::new(shape, source)))
    }

    fn encoder_bytes(&self, k: u32) -> u64 {
        u64::from(structure::intermediate_symbols(k)) * u64::from(self.symbol_size)
    }

    fn encoding_bytes(&self, k: u32) -> u64 {
        self.shape(k).map_or(0, |shape| plans::pool_bytes(k, strip_bytes(&shape)) as u64)
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
        decode(&shape, block, missing, &enough(missing, &[], repairs)?)
    }

    fn decode_in_place(
        &self,
        k: u32,
        block: &mut [u8],
        missing: &[u32],
        placed: &[u32],
        more: &[Repair<'_>],
    ) -> Result<(), DecodeError> {
        let shape = self.shape(k)?;
        shape.check_placed(block, missing, placed)?;
        shape.check_decode(block, missing, more)?;
        decode(&shape, block, missing, &enough(missing, placed, more)?)
    }

    fn decoding_bytes(&self, k: u32, missing: usize) -> u64 {
        let Ok(shape) = self.shape(k) else { return 0 };
        let block = k as usize * shape.symbol_size();
        (if missing == 0 { block } else { block + plans::solving_bytes(k, strip_bytes(&shape)) }) as u64
    }
}

/// Fills the missing places of `block` from distinct symbols, at least as many as are missing.
fn decode(
    shape: &CodeShape,
    block: &mut [u8],
    missing: &[u32],
    given: &[PlacedRepair<'_>],
) -> Result<(), DecodeError> {
    if missing.is_empty() {
        return Ok(());
    }
    let plan = PLANS.plan(shape.k());
    let structure = plan.structure();
    let most = missing.len() + structure.numbers.hdpc as usize + PLENTY;
    let decoding = match Decoding::new(shape, structure, missing, &given[..given.len().min(most)]) {
        None if given.len() > most => Decoding::new(shape, structure, missing, given),
        decoding => decoding,
    };
    let Some(decoding) = decoding else { return Err(DecodeError::NeedMore { more: 1 }) };
    decoding.fill(shape, structure, block, missing, given);
    Ok(())
}

/// Steps that decode a block.
struct Decoding(Schedule);

impl Decoding {
    fn new(
        shape: &CodeShape,
        structure: &Structure,
        missing: &[u32],
        given: &[PlacedRepair<'_>],
    ) -> Option<Self> {
        let k = shape.k();
        let first = structure.numbers.ldpc as usize;
        let received = structure.numbers.symbols as usize - missing.len();
        let mut equations = Equations::with_capacity(
            first + received + given.len(),
            structure.equations.columns_len() + 8 * given.len(),
        );
        (0..first).for_each(|row| equations.push(structure.equations.row(row)));
        let mut inputs = Vec::with_capacity(received + given.len());
        for esi in shape.received(missing).chain(k..structure.numbers.symbols) {
            equations.push(structure.equations.row(first + esi as usize));
            inputs.push(if esi < k { esi } else { u32::MAX });
        }
        for (number, repair) in (k..).zip(given) {
            let isi = structure.numbers.internal_number(k, repair.esi);
            equations.push(structure.numbers.terms(isi, &mut [0; TERMS_MAX]));
            inputs.push(number);
        }
        let mut wanted = Equations::with_capacity(missing.len(), 8 * missing.len());
        missing.iter().for_each(|esi| wanted.push(structure.equations.row(first + *esi as usize)));
        Schedule::new(structure, &equations, &inputs, Some(wanted)).map(Self)
    }

    fn fill(
        &self,
        shape: &CodeShape,
        structure: &Structure,
        block: &mut [u8],
        missing: &[u32],
        given: &[PlacedRepair<'_>],
    ) {
        let kernel = Kernel::chosen();
        let slots = self.0.slots();
        let mut pool = vec![0; slots * strip_bytes(shape)];
        for columns in strips(shape) {
            let pool = &mut pool[..slots * columns.len()];
            let source: &[u8] = block;
            let input = |number: u32| match number.checked_sub(shape.k()) {
                None => Some(&source[shape.range(number)][columns.clone()]),
                Some(repair) => Some(given[repair as usize].data(shape, source, columns.clone())),
            };
            self.0.follow(structure, pool, columns.len(), input);
            for (number, &esi) in missing.iter().enumerate() {
                let target = &mut block[shape.range(esi)][columns.clone()];
                target.fill(0);
                kernel.add_slots(target, pool, self.0.wanted(number));
            }
        }
    }
}

/// Width of the strips of a symbol: equal parts, multiples of 64 bytes except the last.
fn strip_bytes(shape: &CodeShape) -> usize {
    let size = shape.symbol_size();
    size.div_ceil(size.div_ceil(STRIP_BYTES_MAX)).next_multiple_of(64).min(size)
}

/// Byte ranges of a symbol.
fn strips(shape: &CodeShape) -> impl Iterator<Item = Range<usize>> + use<> {
    let (size, width) = (shape.symbol_size(), strip_bytes(shape));
    (0..size).step_by(width).map(move |start| start..(start + width).min(size))
}

/// The intermediate symbols of a block.
struct Encoder {
    shape: CodeShape,
    numbers: Numbers,
    intermediate: Vec<u8>,
}

impl Encoder {
    fn new(shape: CodeShape, source: &[u8]) -> Self {
        let plan = PLANS.plan(shape.k());
        let (structure, schedule) = (plan.structure(), plan.schedule());
        let size = shape.symbol_size();
        let mut intermediate = vec![0; structure.numbers.intermediate as usize * size];
        let mut pool = vec![0; schedule.slots() * strip_bytes(&shape)];
        for columns in strips(&shape) {
            let pool = &mut pool[..schedule.slots() * columns.len()];
            let input =
                |number: u32| (number < shape.k()).then(|| &source[shape.range(number)][columns.clone()]);
            schedule.follow(structure, pool, columns.len(), input);
            for (symbol, strip) in intermediate.chunks_exact_mut(size).zip(pool.chunks_exact(columns.len())) {
                symbol[columns.clone()].copy_from_slice(strip);
            }
        }
        Self { shape, numbers: structure.numbers, intermediate }
    }
}

impl BlockEncoder for Encoder {
    fn symbol(&self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.shape.check_repair(esi, out)?;
        let mut buffer = [0; TERMS_MAX];
        let terms = self.numbers.terms(self.numbers.internal_number(self.shape.k(), esi), &mut buffer);
        out.fill(0);
        Kernel::chosen().add_slots(out, &self.intermediate, terms);
        Ok(())
    }
}

impl fmt::Debug for RaptorQ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaptorQ").field("symbol_size", &self.symbol_size).finish_non_exhaustive()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("shape", &self.shape).finish_non_exhaustive()
    }
}
