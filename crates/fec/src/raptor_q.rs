//! RaptorQ, FEC Encoding ID 6 (RFC 6330), by the crate `raptorq`.
//!
//! Only the sound parts of the crate are used: single blocks and a given plan. Every argument is checked
//! before each call, because the crate panics on errors. The crate's `Encoder` and `Decoder` truncate the
//! number of blocks to 8 bits, and its `SourceBlockEncoder::new` keeps up to 64 plans for ever; neither is
//! used.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder, SourceBlockEncoder,
    extended_source_block_symbols,
};

use crate::codec::{CodeShape, PlacedRepair, encode_in_full, enough, strips};
use crate::plans::{self, PLANNED_K_MAX, PLANS, making_bytes};
use crate::{
    BlockCodec, BlockEncoder, DecodeError, FecError, K_MAX, Kernel, Parameters, Repair, Scheme, gf256,
};

/// Most bytes of a block that the crate's decoder works on at a time: a longer block is decoded in strips of
/// its symbols, and each strip is solved anew. Our senders' blocks from 20 Mbit/s on stay below this bound.
const STRIP_BYTES_MAX: usize = 16 << 20;
/// Memory of the crate's equations, in bytes per symbol of the block.
const MATRIX_BYTES: usize = 800;
/// Memory that the crate reserves, and memory that it uses, for the operations that solve the equations, in
/// bytes per symbol.
const OPERATIONS_BYTES: (usize, usize) = (2_310, 1_264);
/// Allocations above this size are separate mappings (`M_MMAP_THRESHOLD` of glibc, at most): unused pages
/// take no memory.
const MAPPED_BYTES: usize = 32 << 20;

/// Most symbols that a block is padded with, K' - K: 570, rounded up.
const PADDING_MAX: u32 = 1_024;

/// Memory of each source symbol that an encoder keeps, beyond the symbol's bytes: a vector, and the overhead
/// of an allocation.
const SYMBOL_OVERHEAD: usize = 48;

/// K' from which H, the number of HDPC symbols, is 11, 12, .. 16; below the first entry, H is 10 (RFC 6330
/// section 5.6, table 2).
const HDPC_STEPS: [u32; 6] = [1050, 10_899, 20_778, 30_654, 40_398, 50_511];

/// Any block number will do, as each encoder and decoder here serves one block.
const SBN: u8 = 0;

pub(crate) struct RaptorQ {
    symbol_size: u16,
}

impl RaptorQ {
    pub(crate) const K_MAX: u32 = K_MAX;
    /// ESIs have 24 bits, also the ESIs that the crate gives the repair symbols of a padded block: the crate
    /// counts from K' on, so the last K' - K are not coded.
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

    /// A single block's view of the object, or of a strip of its symbols: with a single sub-block, Al has no
    /// influence on any symbol.
    fn transmission_information(symbol_size: usize) -> ObjectTransmissionInformation {
        let symbol_size = u16::try_from(symbol_size).expect("at most T, which has 16 bits");
        ObjectTransmissionInformation::new(0, symbol_size, 0, 1, 1)
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
        let padded = self.padded_symbols(k) as usize * shape.symbol_size();
        let source = if source.len() == padded {
            Cow::Borrowed(source)
        } else {
            shape.check_block(source)?;
            let mut copy = Vec::with_capacity(padded);
            copy.extend_from_slice(source);
            copy.resize(padded, 0);
            Cow::Owned(copy)
        };
        let plan = PLANS.plan(k);
        let block = plans::encoder(plan.ready(), shape.symbol_size(), &source);
        Ok(Box::new(Encoder { shape, block }))
    }

    fn padded_symbols(&self, k: u32) -> u32 {
        extended_source_block_symbols(k)
    }

    fn encoder_bytes(&self, k: u32) -> u64 {
        let padded = self.padded_symbols(k) as usize;
        let symbols = padded + intermediate_symbols(k);
        (symbols * usize::from(self.symbol_size) + padded * SYMBOL_OVERHEAD) as u64
    }

    fn few_symbols(&self, k: u32) -> u32 {
        gf256::combined_max(k, Kernel::chosen())
    }

    fn repair_symbols(&self, k: u32, source: &[u8], first: u32, out: &mut [u8]) -> Result<(), FecError> {
        let shape = self.shape(k)?;
        shape.check_block(source)?;
        shape.check_repairs(first, out)?;
        let count = out.len() / shape.symbol_size();
        if count > self.few_symbols(k) as usize {
            return encode_in_full(self, k, source, first, out);
        }
        if count > 0 {
            PLANS.plan(k).coefficients().encode(&shape, source, first, out);
        }
        Ok(())
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
        self.decode_given(&shape, block, missing, &enough(missing, &[], repairs)?)
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
        self.decode_given(&shape, block, missing, &enough(missing, placed, more)?)
    }

    fn decoding_bytes(&self, k: u32, missing: usize) -> u64 {
        let Ok(shape) = self.shape(k) else { return 0 };
        let (symbols, size) = (k as usize, shape.symbol_size());
        let block = symbols * size;
        let strip = symbols * strips(&shape, STRIP_BYTES_MAX).map(|strip| strip.len()).max().unwrap_or(size);
        let with_plan = block + plans::decoding_bytes(&shape, missing, strip).max(making_bytes(k));
        let is_planned = |have| planned_is_faster(k, missing, have, Kernel::chosen());
        if (1..=self.few_symbols(k) as usize).contains(&missing) {
            return (block + gf256::decoding_bytes(&shape, missing)) as u64;
        }
        let bytes = match (missing, is_planned(missing), is_planned(plenty(k, missing))) {
            (0, ..) => block,
            (_, true, true) => with_plan,
            // With more symbols at hand than needed the crate may be taken.
            (_, true, false) => with_plan.max(block + crate_bytes(symbols, strip)),
            (_, false, _) => block + crate_bytes(symbols, strip),
        };
        bytes as u64
    }
}

impl RaptorQ {
    fn decode_given(
        &self,
        shape: &CodeShape,
        block: &mut [u8],
        missing: &[u32],
        given: &[PlacedRepair<'_>],
    ) -> Result<(), DecodeError> {
        if missing.is_empty() {
            return Ok(());
        }
        let k = shape.k();
        let solved = if missing.len() <= self.few_symbols(k) as usize {
            PLANS.plan(k).coefficients().decode(shape, block, missing, given)
        } else if planned_is_faster(k, missing.len(), given.len(), Kernel::chosen()) {
            plans::decode(shape, PLANS.plan(k).ready(), block, missing, given, STRIP_BYTES_MAX)
        } else {
            self.decode_in_full(shape, block, missing, given, STRIP_BYTES_MAX)
        };
        if solved { Ok(()) } else { Err(DecodeError::NeedMore { more: 1 }) }
    }

    /// Fills the missing places of `block` by the crate's decoder, or returns false while the equations are
    /// dependent. The symbols given are distinct and enough in number.
    pub(crate) fn decode_in_full(
        &self,
        shape: &CodeShape,
        block: &mut [u8],
        missing: &[u32],
        given: &[PlacedRepair<'_>],
        strip_bytes_max: usize,
    ) -> bool {
        for columns in strips(shape, strip_bytes_max) {
            // The equations of all strips are the same: only the first strip can fail.
            let Some(solved) = Self::solve(shape, block, missing, given, &columns) else { return false };
            for &esi in missing {
                let symbol = &solved[esi as usize * columns.len()..][..columns.len()];
                block[shape.range(esi)][columns.clone()].copy_from_slice(symbol);
            }
        }
        true
    }

    /// Returns the bytes `columns` of each symbol of the whole block. The crate solves anew on every addition
    /// of symbols, so symbols are added at most three times.
    fn solve(
        shape: &CodeShape,
        block: &[u8],
        missing: &[u32],
        given: &[PlacedRepair<'_>],
        columns: &Range<usize>,
    ) -> Option<Vec<u8>> {
        let information = Self::transmission_information(columns.len());
        let bytes = u64::from(shape.k()) * columns.len() as u64;
        let mut decoder = SourceBlockDecoder::new(SBN, &information, bytes);
        let [first, second] = attempts(shape.k(), missing.len(), given.len());
        let source =
            shape.received(missing).map(|esi| packet(esi, &block[shape.range(esi)][columns.clone()]));
        let repair = |given: &PlacedRepair<'_>| packet(given.esi, given.data(shape, block, columns.clone()));
        let mut solved = decoder.decode(source.chain(given[..first].iter().map(repair)));
        for next in [&given[first..second], &given[second..]] {
            if solved.is_none() && !next.is_empty() {
                solved = decoder.decode(next.iter().map(repair));
            }
        }
        solved
    }
}

/// Memory of the crate's decoder for a strip of a block, in bytes: the symbols twice, and the equations. The
/// results are allocated after the equations are freed, and take less.
fn crate_bytes(symbols: usize, strip: usize) -> usize {
    let (reserved, used) = OPERATIONS_BYTES;
    let operations = if symbols * reserved > MAPPED_BYTES { used } else { reserved };
    let solving = symbols * (MATRIX_BYTES + operations);
    strip * 21 / 10 + solving.max(strip * 11 / 5) + (96 << 10)
}

/// Whether planned decoding beats the crate's decoder, in time on a single core at T = 1408, K = 16 to 20152.
///
/// The part of planned decoding that grows with m, the number of missing symbols, is m^2 products of symbols,
/// so the bound is on m^2 / K. With a vector kernel planned decoding is 1.2 times as fast at 12 (2 at a loss
/// of 1 %) and slower from 20 to 30 on; with plenty of symbols, already slower from 12 on. The scalar kernel
/// is level at 2. Shorter symbols move the bounds up, longer symbols barely down.
fn planned_is_faster(k: u32, missing: usize, have: usize, kernel: Kernel) -> bool {
    let bound = match (kernel.is_scalar(), have >= plenty(k, missing)) {
        (true, _) => 1,
        (false, true) => 8,
        (false, false) => 12,
    };
    k <= PLANNED_K_MAX && missing * missing <= bound * k as usize
}

/// Number of the `have` repair symbols to pass to the crate at the first and at the second attempt; all at
/// the third.
///
/// K + H + 4 or more symbols can be solved over GF(2) alone, which is the fastest. From K + H to K + H + 3
/// the crate tries GF(2) and often fails, so these counts are avoided: the attempts use K + 1 symbols, which
/// suffice except for 3 blocks in 10^5, and K + 2.
fn attempts(k: u32, missing: usize, have: usize) -> [usize; 2] {
    let plenty = plenty(k, missing);
    if have >= plenty { [plenty, have] } else { [have.min(missing + 1), have.min(missing + 2)] }
}

/// The repair symbols with which K + H + 4 symbols are there.
fn plenty(k: u32, missing: usize) -> usize {
    missing + hdpc_symbols(extended_source_block_symbols(k)) + 4
}

/// H of a block of K' symbols.
fn hdpc_symbols(extended: u32) -> usize {
    10 + HDPC_STEPS.iter().filter(|&&step| extended >= step).count()
}

/// L = K' + S + H: S is the least prime from 0.01 K' + X on, X the least whose X (X - 1) is 2 K' or more.
fn intermediate_symbols(k: u32) -> usize {
    let extended = extended_source_block_symbols(k);
    let x = ((2 * extended).isqrt()..).find(|x| x * (x - 1) >= 2 * extended).unwrap_or(0);
    let is_prime = |number: &u32| (2..=number.isqrt()).all(|divisor| !number.is_multiple_of(divisor));
    let ldpc = (extended.div_ceil(100) + x..).find(is_prime).unwrap_or(0);
    (extended + ldpc) as usize + hdpc_symbols(extended)
}

fn packet(esi: u32, data: &[u8]) -> EncodingPacket {
    EncodingPacket::new(PayloadId::new(SBN, esi), data.to_vec())
}

impl fmt::Debug for RaptorQ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaptorQ").field("symbol_size", &self.symbol_size).finish_non_exhaustive()
    }
}

/// The crate's encoder of K' symbols, the last symbols zero. The encoder keeps a copy of the source symbols
/// beside the intermediate symbols, and offers no way to drop the copy.
struct Encoder {
    shape: CodeShape,
    block: SourceBlockEncoder,
}

impl BlockEncoder for Encoder {
    fn symbol(&self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.shape.check_repair(esi, out)?;
        let packets = self.block.repair_packets(esi - self.shape.k(), 1);
        out.copy_from_slice(packets[0].data());
        Ok(())
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("shape", &self.shape).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{PADDING_MAX, attempts, intermediate_symbols, planned_is_faster};
    use crate::{K_MAX, Kernel};
    use raptorq::extended_source_block_symbols;

    /// RFC 6330, table 2.
    #[test]
    fn no_block_is_padded_with_more() {
        let padding = |k| extended_source_block_symbols(k) - k;
        assert!((1..=K_MAX).map(padding).max().unwrap() <= PADDING_MAX);
    }

    #[test]
    fn attempts_avoid_the_numbers_of_symbols_that_solve_twice() {
        // H = 10 at K = 1002: plenty is 14 more than are missing.
        assert_eq!(attempts(1002, 5, 5), [5, 5]);
        assert_eq!(attempts(1002, 5, 6), [6, 6]);
        assert_eq!(attempts(1002, 5, 18), [6, 7]);
        assert_eq!(attempts(1002, 5, 19), [19, 19]);
        assert_eq!(attempts(1002, 5, 900), [19, 900]);
        assert_eq!(attempts(5008, 0, 900), [15, 900]);
        assert_eq!(attempts(56_403, 0, 900), [20, 900]);
    }

    #[test]
    fn planned_decoding_is_for_few_losses() {
        let scalar = Kernel::available().next().unwrap();
        assert!(planned_is_faster(1002, 31, 31, scalar) && !planned_is_faster(1002, 32, 32, scalar));
        assert!(!planned_is_faster(56_403, 56_403, 60_000, scalar));
        let Some(vector) = Kernel::available().nth(1) else { return };
        assert!(planned_is_faster(1002, 109, 122, vector) && !planned_is_faster(1002, 110, 110, vector));
        assert!(planned_is_faster(1002, 89, 103, vector) && !planned_is_faster(1002, 90, 104, vector));
        assert!(planned_is_faster(1, 1, 1, scalar));
    }

    /// L by RFC 6330 section 5.6, table 2: K' + S + H.
    #[test]
    fn the_number_of_intermediate_symbols_is_l() {
        for (k, l) in [(1, 10 + 7 + 10), (1002, 1002 + 59 + 10), (56_403, 56_403 + 907 + 16)] {
            assert_eq!(intermediate_symbols(k), l, "{k}");
        }
    }
}
