//! GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), alpha = 2 (RFC 5510 section 8.1).
//!
//! Addition is xor. [`crate::kernel`] has the operations on whole symbols, with the tables made here.
//!
//! Coding of RaptorQ blocks symbol by symbol: by the coefficients that repair symbols have in source symbols.
//!
//! Decoding or encoding by a plan makes all intermediate symbols of a block before the first repair symbol.
//! If only a few repair symbols are wanted, or a few source symbols are missing, multiplying and adding takes
//! less: n symbols take n passes over the block, and a pass takes a sixtieth of the plan's time (GFNI). The
//! coefficients depend on K' and the number of the repair symbol only; the coefficients are the repair
//! symbols of the block whose symbol i is the unit vector i.

use raptorq::{SourceBlockEncoder, SourceBlockEncodingPlan, extended_source_block_symbols};

use crate::Kernel;
use crate::codec::{CodeShape, PlacedRepair};
use crate::plans::{encoder, fill, solve};

const POLYNOMIAL: u16 = 0x11D;

/// The order of the multiplicative group: alpha^255 = 1.
const GROUP: usize = 255;

/// `EXP[i]` = alpha^i, over two periods so that a sum of two logarithms needs no reduction.
static EXP: [u8; 2 * GROUP] = exp_table();

/// `LOG[EXP[i]]` = i for i < 255. `LOG[0]` means nothing.
static LOG: [u8; 256] = log_table();

/// Products of a factor with the low and the high four bits of a byte: c * x = low[x & 15] ^ high[x >> 4].
pub(crate) struct Split {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

/// The split table of every factor, 8 KiB. A byte shuffle takes half of an entry.
pub(crate) static SPLIT: [Split; 256] = split_tables();

/// alpha^`exponent`.
pub(crate) fn alpha(exponent: u8) -> u8 {
    EXP[usize::from(exponent)]
}

pub(crate) fn mul(a: u8, b: u8) -> u8 {
    let split = &SPLIT[usize::from(a)];
    split.low[usize::from(b & 15)] ^ split.high[usize::from(b >> 4)]
}

/// 1 / `a`.
///
/// # Panics
/// If `a` is 0.
pub(crate) fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "0 has no inverse");
    EXP[GROUP - usize::from(LOG[usize::from(a)])]
}

/// a * alpha.
const fn times_alpha(a: u8) -> u8 {
    let shifted = a << 1;
    if a & 0x80 == 0 { shifted } else { shifted ^ (POLYNOMIAL & 0xFF) as u8 }
}

/// a * b by shift and add, for making the tables.
pub(crate) const fn slow_mul(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = times_alpha(a);
        b >>= 1;
    }
    product
}

const fn exp_table() -> [u8; 2 * GROUP] {
    let mut table = [0; 2 * GROUP];
    let mut power = 1;
    let mut i = 0;
    while i < table.len() {
        table[i] = power;
        power = times_alpha(power);
        i += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let exp = exp_table();
    let mut table = [0; 256];
    let mut i = 0u8;
    while i < u8::MAX {
        table[exp[i as usize] as usize] = i;
        i += 1;
    }
    table
}

const fn split_tables() -> [Split; 256] {
    let mut tables = [const { Split { low: [0; 16], high: [0; 16] } }; 256];
    let mut factor = 0u8;
    loop {
        let mut nibble = 0u8;
        while nibble < 16 {
            tables[factor as usize].low[nibble as usize] = slow_mul(factor, nibble);
            tables[factor as usize].high[nibble as usize] = slow_mul(factor, nibble << 4);
            nibble += 1;
        }
        if factor == u8::MAX {
            return tables;
        }
        factor += 1;
    }
}

/// Longest block whose coefficients are made, a K': blocks of the window order, with some room. The
/// coefficients take [`encoder_bytes`].
const K_MAX: u32 = 1_099;

/// Bytes of targets that are summed up at a time, so that the targets stay in a processor's first cache.
const TARGET_BYTES: usize = 16 << 10;

/// The coefficients of all repair symbols of blocks of K' symbols, also of blocks that end with zeros.
pub(crate) struct Coefficients {
    units: SourceBlockEncoder,
}

/// Number of symbols of a block of k up to which coefficients are faster than the plan, to make or to recover
/// symbols.
pub(crate) fn combined_max(k: u32, kernel: Kernel) -> u32 {
    if k <= K_MAX { kernel.dense_max() } else { 0 }
}

/// Memory of the coefficients that are kept for blocks of K' symbols, in bytes: 2.2 MB at 1002; 0 if no
/// coefficients are made. Making the coefficients takes half as much again.
pub(crate) fn encoder_bytes(k: u32, kernel: Kernel) -> usize {
    if combined_max(k, kernel) == 0 {
        return 0;
    }
    let k = k as usize;
    22 * k * k / 10 + 64 * k + (1 << 10)
}

/// Memory that decoding takes in addition to the block, in bytes: the rows of coefficients, the missing
/// symbols, and their equations; or, for the first block of a length, the memory to make the coefficients.
/// The kept coefficients and the plan are not included.
pub(crate) fn decoding_bytes(shape: &CodeShape, missing: usize) -> usize {
    let k = extended_source_block_symbols(shape.k()) as usize;
    let decoding = missing * (k + shape.symbol_size() + 4 * missing);
    decoding.max(12 * k * k / 10) + (80 << 10)
}

impl Coefficients {
    /// Of blocks of K' symbols.
    pub(crate) fn new(symbols: u32, plan: &SourceBlockEncodingPlan) -> Self {
        let size = symbols as usize;
        let mut units = vec![0; size * size];
        units.iter_mut().step_by(size + 1).for_each(|unit| *unit = 1);
        Self { units: encoder(plan, size, &units) }
    }

    /// Returns the coefficients of a block's repair symbol in its source symbols.
    fn of(&self, shape: &CodeShape, esi: u32) -> Vec<u8> {
        self.units.repair_packets(esi - shape.k(), 1)[0].data()[..shape.k() as usize].to_vec()
    }

    /// Writes the repair symbols from `first` on, as many as `out` has room for.
    pub(crate) fn encode(&self, shape: &CodeShape, source: &[u8], first: u32, out: &mut [u8]) {
        out.fill(0);
        let rows: Vec<Vec<u8>> = (first..)
            .zip(out.chunks_exact(shape.symbol_size()))
            .map(|(esi, _)| self.of(shape, esi))
            .collect();
        add_products(shape.symbol_size(), &rows, source, out);
    }

    /// Fills the missing places of `block`, or returns false where the equations are dependent, all of them.
    ///
    /// `missing` is not empty and the symbols given are distinct. Symbols in the missing places are copied
    /// first; a block that cannot be decoded stays unchanged. Memory: [`decoding_bytes`], and the shared
    /// coefficients.
    pub(crate) fn decode(
        &self,
        shape: &CodeShape,
        block: &mut [u8],
        missing: &[u32],
        given: &[PlacedRepair<'_>],
    ) -> bool {
        let row = |repair: &PlacedRepair<'_>| {
            let row = self.of(shape, repair.esi);
            missing.iter().map(|&esi| row[esi as usize]).collect()
        };
        let Some((inverse, chosen)) = solve(missing.len(), given, row) else { return false };
        let rows: Vec<Vec<u8>> = chosen
            .iter()
            .map(|repair| {
                let mut row = self.of(shape, repair.esi);
                missing.iter().for_each(|&esi| row[esi as usize] = 0);
                row
            })
            .collect();
        let whole = 0..shape.symbol_size();
        let mut differences = Vec::with_capacity(missing.len() * whole.len());
        for repair in &chosen {
            differences.extend_from_slice(repair.data(shape, block, whole.clone()));
        }
        add_products(whole.len(), &rows, block, &mut differences);
        fill(shape, block, missing, &inverse, &differences, &whole);
        true
    }
}

/// Adds to each of `targets`, symbols of `size` bytes, the symbols of `block` times the coefficients of its
/// row.
fn add_products(size: usize, rows: &[Vec<u8>], block: &[u8], targets: &mut [u8]) {
    let kernel = Kernel::chosen();
    let at_once = (TARGET_BYTES / size).max(1);
    for (rows, targets) in rows.chunks(at_once).zip(targets.chunks_mut(at_once * size)) {
        for (place, sources) in (0..).step_by(4).zip(block.chunks(4 * size)) {
            for (row, target) in rows.iter().zip(targets.chunks_exact_mut(size)) {
                let row = &row[place..row.len().min(place + 4)];
                kernel.mul_add_some(target, sources, row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EXP, GROUP, alpha, inverse, mul, slow_mul};

    #[test]
    fn alpha_generates_the_group() {
        assert_eq!(EXP[..9], [1, 2, 4, 8, 16, 32, 64, 128, 29]);
        let mut powers = EXP[..GROUP].to_vec();
        powers.sort_unstable();
        assert!(powers.iter().copied().eq(1..=255));
        assert_eq!(alpha(255), 1);
    }

    #[test]
    fn products_agree_with_shift_and_add_and_inverses_with_products() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow_mul(a, b), "{a} * {b}");
            }
            if a != 0 {
                assert_eq!(mul(a, inverse(a)), 1);
            }
        }
    }
}

#[cfg(test)]
mod dense_tests {
    use super::{Coefficients, K_MAX};
    use crate::codec::CodeShape;
    use crate::codec::enough;
    use crate::plans;
    use crate::raptor_q::RaptorQ;
    use crate::{Parameters, Repair};
    use proptest::prelude::*;
    use raptorq::{SourceBlockEncodingPlan, extended_source_block_symbols};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

        /// Blocks of all lengths that have coefficients: byte for byte the repair symbols of the plan, and
        /// the same blocks from them, also where the processor of the test would take another way.
        #[test]
        fn coefficients_code_as_the_plan_does(
            k in prop_oneof![1..=20u32, 1..=K_MAX, Just(K_MAX)],
            first in prop_oneof![Just(0), 0u32..100, 0u32..(1 << 24) - 2_000],
            lost in 1u32..70,
            places in any::<u64>(),
            size in 1u16..200,
        ) {
            let codec = RaptorQ::new(&Parameters::raptorq(size)).unwrap();
            let shape = CodeShape::new(&codec, k, RaptorQ::ESI_END).unwrap();
            let source: Vec<u8> =
                (0..k * u32::from(size)).map(|i| i.wrapping_mul(0x9E37_79B1).to_le_bytes()[3]).collect();
            let extended = extended_source_block_symbols(k);
            let plan = SourceBlockEncodingPlan::generate(u16::try_from(extended).unwrap());
            let coefficients = Coefficients::new(extended, &plan);
            let lost = lost.min(k);
            let esis: Vec<u32> = (k + first..).take(lost as usize + 3).collect();
            let mut made = vec![0xA5; esis.len() * usize::from(size)];
            coefficients.encode(&shape, &source, esis[0], &mut made);
            let mut padded = source.clone();
            padded.resize(extended as usize * usize::from(size), 0);
            let encoder = plans::encoder(&plan, size.into(), &padded);
            let symbols = || made.chunks_exact(size.into());
            for (&esi, symbol) in esis.iter().zip(symbols()) {
                prop_assert!(encoder.repair_packets(esi - k, 1)[0].data() == symbol, "symbol {}", esi);
            }
            let start = u32::try_from(places % u64::from(k)).unwrap();
            let mut missing: Vec<u32> = (0..lost).map(|i| (start + i) % k).collect();
            missing.sort_unstable();
            let repairs: Vec<Repair<'_>> =
                esis.iter().zip(symbols()).map(|(&esi, data)| Repair { esi, data }).collect();
            let given = enough(&missing, &[], &repairs).unwrap();
            let mut block = source.clone();
            missing.iter().for_each(|&esi| block[shape.range(esi)].fill(0x5A));
            let mut other = block.clone();
            let solved = coefficients.decode(&shape, &mut block, &missing, &given);
            prop_assert_eq!(solved, plans::decode(&shape, &plan, &mut other, &missing, &given, usize::MAX));
            prop_assert!(block == other, "the same block, or the same left as it was");
            prop_assert!(!solved || block == source);
        }
    }
}
