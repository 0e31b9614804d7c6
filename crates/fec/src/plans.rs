//! RaptorQ's encoding plans and the coefficients of short blocks, which depend on K' alone: a block of K
//! symbols is coded as a block of K' symbols whose last symbols are zero (RFC 6330, section 5.3.1). All
//! codecs of a process share a cache, so the number of sessions or symbol sizes does not raise its memory.
//!
//! Decoding of a RaptorQ block that misses few source symbols, by the plan of its encoder.
//!
//! Encoding is linear: a repair symbol is its value with the m missing symbols at zero, plus m coefficients
//! times the missing symbols. Encoders compute both. Encoders follow a plan made once and so are about twice
//! as fast as a decoder that solves the equations of this very block. The remaining system has m equations
//! over GF(2^8), the field of RaptorQ's HDPC symbols (RFC 6330 section 5.7), and has a solution exactly when
//! the decoder has a solution.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use raptorq::{
    ObjectTransmissionInformation, SourceBlockEncoder, SourceBlockEncodingPlan, extended_source_block_symbols,
};

use crate::Kernel;
use crate::codec::{CodeShape, PlacedRepair, strips};
use crate::gf256::{self, Coefficients};

/// Plan and coefficients for blocks of the same K', each made when first needed.
pub(crate) struct Plan {
    /// K'.
    symbols: u32,
    plan: OnceLock<SourceBlockEncodingPlan>,
    coefficients: OnceLock<Coefficients>,
}

/// Memory of a plan, in bytes per symbol of K': 1012 at 5008, 1230 at 56 403.
pub(crate) const PLAN_BYTES: usize = 1_264;
/// Maximum bytes of the cache: the plan of the longest blocks decoded with plans, two plans of half that
/// length, or any single plan; coefficients of seven lengths at K = 1002.
const BYTES_MAX: u64 = PLANNED_K_MAX as u64 * PLAN_BYTES as u64;
/// Longest block decoded with a plan, a K': the longest block of our senders, whatever the rate.
pub(crate) const PLANNED_K_MAX: u32 = 20_240;
/// Plans kept at most: the lengths of blocks of many small files.
const PLANS_MAX: usize = 16;

/// Memory to make a plan, as a multiple of the plan's memory.
const MAKING_PLANS: usize = 2;

/// Memory to make the plan for blocks of `k` symbols, in bytes, in addition to the plan.
pub(crate) fn making_bytes(k: u32) -> usize {
    extended_source_block_symbols(k) as usize * PLAN_BYTES * MAKING_PLANS
}

/// Plans, the one used last at the end.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Vec<Arc<Plan>>>);

/// The plans of the process.
pub(crate) static PLANS: Plans = Plans(Mutex::new(Vec::new()));

impl Plans {
    /// Returns the entry for blocks of `k` symbols. The first caller fills the entry outside the lock.
    pub(crate) fn plan(&self, k: u32) -> Arc<Plan> {
        let symbols = extended_source_block_symbols(k);
        // A panic of another thread cannot leave the list half changed.
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.iter().position(|plan| plan.symbols == symbols) {
            Some(position) => plans.remove(position),
            None => Arc::new(Plan::of(symbols)),
        };
        while !plans.is_empty() && (plans.len() >= PLANS_MAX || bytes(&plans) + plan.bytes() > BYTES_MAX) {
            plans.remove(0);
        }
        plans.push(Arc::clone(&plan));
        plan
    }

    /// Memory of the plans kept, in bytes.
    fn bytes(&self) -> u64 {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes(&plans)
    }
}

fn bytes(plans: &[Arc<Plan>]) -> u64 {
    plans.iter().map(|plan| plan.bytes()).sum()
}

/// Memory that all codecs of the process currently keep to code the next block faster, in bytes: at most 25
/// MiB if blocks are only decoded.
pub fn kept_bytes() -> u64 {
    PLANS.bytes()
}

/// Bound on the memory that a sender's threads together keep for RaptorQ's plans, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanBytes {
    /// For all blocks.
    pub kept: u64,
    /// Beside, while a plan is made.
    pub making: u64,
    /// Whether a single plan serves all blocks: the plan is made before the first block is coded.
    pub is_one: bool,
}

impl PlanBytes {
    /// For coding blocks of these lengths, in symbols.
    pub fn of(lengths: impl IntoIterator<Item = u32>) -> Self {
        let plans: BTreeSet<u32> = lengths.into_iter().map(extended_source_block_symbols).collect();
        let bytes = |symbols: &u32| Plan::of(*symbols).bytes();
        let longest = plans.last().map_or(0, bytes);
        let all: u64 = plans.iter().map(bytes).sum();
        Self {
            kept: all.min(BYTES_MAX.max(longest)),
            making: MAKING_PLANS as u64 * longest,
            is_one: plans.len() <= 1,
        }
    }
}

impl Plan {
    fn of(symbols: u32) -> Self {
        Self { symbols, plan: OnceLock::new(), coefficients: OnceLock::new() }
    }

    /// Memory of the entry with plan and coefficients made.
    fn bytes(&self) -> u64 {
        u64::from(self.symbols) * PLAN_BYTES as u64
            + gf256::encoder_bytes(self.symbols, Kernel::chosen()) as u64
    }

    /// Returns the plan, and makes the plan at the first call. The plan serves blocks of K' symbols.
    pub(crate) fn ready(&self) -> &SourceBlockEncodingPlan {
        let symbols = u16::try_from(self.symbols).expect("K' <= 56403");
        // The clone sheds the spare capacity that making the plan leaves behind.
        self.plan.get_or_init(|| SourceBlockEncodingPlan::generate(symbols).clone())
    }

    /// Returns the coefficients of a short block, and makes the coefficients at the first call.
    pub(crate) fn coefficients(&self) -> &Coefficients {
        self.coefficients.get_or_init(|| Coefficients::new(self.symbols, self.ready()))
    }
}

/// Lengths that suit the encoder's vector loops: odd bytes at the end of a symbol take longer.
const COEFFICIENTS_MULTIPLE: usize = 64;

/// Fills the missing places of `block`, or returns false where the equations are dependent, all of them.
///
/// `missing` is not empty and the symbols given are distinct. The coefficients come first, so that a block
/// which cannot be decoded yet costs little. Blocks longer than `strip_bytes_max` are decoded in strips of
/// their symbols, and the plan serves all strips. Memory: [`decoding_bytes`], and the plan.
pub(crate) fn decode(
    shape: &CodeShape,
    plan: &SourceBlockEncodingPlan,
    block: &mut [u8],
    missing: &[u32],
    given: &[PlacedRepair<'_>],
    strip_bytes_max: usize,
) -> bool {
    let units = unit_encoder(shape, plan, missing);
    let row = |given: &PlacedRepair<'_>| {
        units.repair_packets(given.esi - shape.k(), 1)[0].data()[..missing.len()].to_vec()
    };
    let Some((inverse, chosen)) = solve(missing.len(), given, row) else { return false };
    drop(units);
    for columns in strips(shape, strip_bytes_max) {
        let repairs: Vec<u8> =
            chosen.iter().flat_map(|given| given.data(shape, block, columns.clone())).copied().collect();
        for &esi in missing {
            block[shape.range(esi)][columns.clone()].fill(0);
        }
        let without = encoder_of_strip(shape, plan, block, &columns);
        let differences = differences(shape, &without, &chosen, repairs);
        fill(shape, block, missing, &inverse, &differences, &columns);
    }
    true
}

/// Writes these bytes of the missing symbols: their rows of `inverse` times the `differences`, which have the
/// same length.
pub(crate) fn fill(
    shape: &CodeShape,
    block: &mut [u8],
    missing: &[u32],
    inverse: &[u8],
    differences: &[u8],
    columns: &Range<usize>,
) {
    let kernel = Kernel::chosen();
    for (coefficients, &esi) in inverse.chunks_exact(missing.len()).zip(missing) {
        let target = &mut block[shape.range(esi)][columns.clone()];
        target.fill(0);
        for (&factor, difference) in coefficients.iter().zip(differences.chunks_exact(columns.len())) {
            kernel.mul_add(target, difference, factor);
        }
    }
}

/// Memory that decoding takes in addition to the block, in bytes, with strips of `strip_bytes` bytes: at
/// first the encoder of the coefficients and its unit vectors; then the encoder of a strip, a copy of the
/// strip, and the missing symbols' equations. The plan is not included.
pub(crate) fn decoding_bytes(shape: &CodeShape, missing: usize, strip_bytes: usize) -> usize {
    let units = extended(shape) * missing.next_multiple_of(COEFFICIENTS_MULTIPLE);
    let equations = 4 * missing * missing;
    let strip = 32 * strip_bytes / 10 + missing * shape.symbol_size();
    equations + strip.max(32 * units / 10) + (80 << 10)
}

/// An encoder of these bytes of each symbol.
fn encoder_of_strip(
    shape: &CodeShape,
    plan: &SourceBlockEncodingPlan,
    block: &[u8],
    columns: &Range<usize>,
) -> SourceBlockEncoder {
    if block.len() == extended(shape) * columns.len() {
        return encoder(plan, columns.len(), block);
    }
    let mut strip = Vec::with_capacity(extended(shape) * columns.len());
    for symbol in block.chunks_exact(shape.symbol_size()) {
        strip.extend_from_slice(&symbol[columns.clone()]);
    }
    strip.resize(extended(shape) * columns.len(), 0);
    encoder(plan, columns.len(), &strip)
}

/// Contribution of the missing symbols to each of the `chosen` repair symbols, whose bytes are `repairs`, in
/// sequence.
fn differences(
    shape: &CodeShape,
    without: &SourceBlockEncoder,
    chosen: &[PlacedRepair<'_>],
    mut repairs: Vec<u8>,
) -> Vec<u8> {
    let size = repairs.len() / chosen.len();
    for (given, repair) in chosen.iter().zip(repairs.chunks_exact_mut(size)) {
        let computed = &without.repair_packets(given.esi - shape.k(), 1)[0];
        repair.iter_mut().zip(computed.data()).for_each(|(repair, computed)| *repair ^= computed);
    }
    repairs
}

/// Selects `missing` independent repair symbols from `given`, by their coefficients (`row`) of the missing
/// symbols, and inverts the matrix of these coefficients, row by row: the factors of the differences in each
/// missing symbol.
pub(crate) fn solve<'a>(
    missing: usize,
    given: &[PlacedRepair<'a>],
    row: impl Fn(&PlacedRepair<'a>) -> Vec<u8>,
) -> Option<(Vec<u8>, Vec<PlacedRepair<'a>>)> {
    let mut elimination = Elimination::new(missing);
    let mut chosen = Vec::with_capacity(missing);
    for repair in given {
        if elimination.add(&row(repair)) {
            chosen.push(*repair);
        }
        if chosen.len() == missing {
            return Some((elimination.inverse(), chosen));
        }
    }
    None
}

/// An encoder whose repair symbols are their coefficients of the missing symbols: byte j of a symbol belongs
/// to the block that is zero except for a 1 in the place of missing symbol j.
fn unit_encoder(shape: &CodeShape, plan: &SourceBlockEncodingPlan, missing: &[u32]) -> SourceBlockEncoder {
    let size = missing.len().next_multiple_of(COEFFICIENTS_MULTIPLE);
    let mut units = vec![0; extended(shape) * size];
    for (j, &esi) in missing.iter().enumerate() {
        units[esi as usize * size + j] = 1;
    }
    encoder(plan, size, &units)
}

/// K'.
fn extended(shape: &CodeShape) -> usize {
    extended_source_block_symbols(shape.k()) as usize
}

/// An encoder of `block`, K' symbols of `symbol_size` bytes.
pub(crate) fn encoder(
    plan: &SourceBlockEncodingPlan,
    symbol_size: usize,
    block: &[u8],
) -> SourceBlockEncoder {
    let symbol_size = u16::try_from(symbol_size).expect("T has 16 bits, and far fewer symbols are missing");
    let information = ObjectTransmissionInformation::new(0, symbol_size, 0, 1, 1);
    SourceBlockEncoder::with_encoding_plan(0, &information, block, plan)
}

/// Gauss-Jordan elimination of a square matrix over GF(2^8) whose rows are added in sequence.
struct Elimination {
    size: usize,
    kernel: Kernel,
    /// Rows of 2 * `size` bytes: the reduced form of an added row, then its combination of the added rows.
    /// Each row has a 1 in its own pivot column, and 0 in the other pivot columns.
    rows: Vec<u8>,
    /// Pivot column of each row.
    pivots: Vec<usize>,
}

impl Elimination {
    fn new(size: usize) -> Self {
        Self { size, kernel: Kernel::chosen(), rows: Vec::with_capacity(2 * size * size), pivots: Vec::new() }
    }

    /// Adds a row. Returns false if the row depends on rows added before, and does not add the row.
    fn add(&mut self, row: &[u8]) -> bool {
        let width = 2 * self.size;
        let mut new = vec![0; width];
        new[..self.size].copy_from_slice(row);
        new[self.size + self.pivots.len()] = 1;
        for (row, &pivot) in self.rows.chunks_exact(width).zip(&self.pivots) {
            let factor = new[pivot];
            self.kernel.mul_add(&mut new, row, factor);
        }
        let Some(pivot) = new[..self.size].iter().position(|&byte| byte != 0) else { return false };
        let scale = gf256::inverse(new[pivot]);
        new.iter_mut().for_each(|byte| *byte = gf256::mul(scale, *byte));
        for row in self.rows.chunks_exact_mut(width) {
            let factor = row[pivot];
            self.kernel.mul_add(row, &new, factor);
        }
        self.rows.append(&mut new);
        self.pivots.push(pivot);
        true
    }

    /// The inverse, row by row. All rows have been added.
    fn inverse(&self) -> Vec<u8> {
        let size = self.size;
        let mut inverse = vec![0; size * size];
        for (row, &pivot) in self.rows.chunks_exact(2 * size).zip(&self.pivots) {
            inverse[pivot * size..][..size].copy_from_slice(&row[size..]);
        }
        inverse
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, PLANS_MAX, PlanBytes, Plans};
    use raptorq::extended_source_block_symbols;
    use std::sync::Arc;

    /// The shortest lengths, none of which shares a plan with another.
    fn lengths() -> impl Iterator<Item = u32> {
        (1..).filter(|k| extended_source_block_symbols(*k) == *k)
    }

    #[test]
    fn plans_are_shared_and_the_ones_unused_longest_are_dropped() {
        let plans = Plans::default();
        let first = plans.plan(1);
        assert!(Arc::ptr_eq(&first, &plans.plan(10)), "K' of both is 10");
        for k in lengths().skip(1).take(PLANS_MAX - 1) {
            plans.plan(k);
        }
        assert!(Arc::ptr_eq(&first, &plans.plan(1)), "all of them fit");
        plans.plan(200);
        assert_eq!(plans.0.lock().unwrap().len(), PLANS_MAX);
        assert!(Arc::ptr_eq(&first, &plans.plan(1)), "that of 12 was used longest ago");
    }

    #[test]
    fn long_blocks_drop_all_but_one_another() {
        let plans = Plans::default();
        let kept = || plans.0.lock().unwrap().iter().map(|plan| plan.symbols).collect::<Vec<_>>();
        lengths().take(4).for_each(|k| drop(plans.plan(k)));
        let (long, longer) = (plans.plan(10_017), plans.plan(10_018));
        assert_eq!(kept(), [10, 12, 18, 20, 10_017, 10_120]);
        assert!(Arc::ptr_eq(&long, &plans.plan(10_017)) && Arc::ptr_eq(&longer, &plans.plan(10_018)));
        assert!(plans.bytes() <= BYTES_MAX);
        plans.plan(56_403);
        assert_eq!(kept(), [56_403], "a sender may need it");
        plans.plan(5);
        assert_eq!(kept(), [10]);
    }

    /// What a sender counts on is never less than what is kept, whatever lengths it uses.
    #[test]
    fn the_bound_of_a_sender_holds() {
        for (k, lengths) in [(56_403, 1), (10_080, 2), (5_008, 9), (1_100, 40), (1, 3)] {
            let plans = Plans::default();
            let lengths = k + 1 - lengths.min(k)..=k;
            lengths.clone().for_each(|k| drop(plans.plan(k)));
            assert!(plans.bytes() <= PlanBytes::of(lengths).kept, "k = {k}");
        }
    }

    /// Coefficients count too: of the longest blocks that have them, fewer are kept than there is room for
    /// plans.
    #[test]
    fn short_blocks_keep_within_the_same_bound() {
        let plans = Plans::default();
        for k in lengths().skip_while(|k| *k < 700).take_while(|k| *k < 1_100) {
            plans.plan(k);
            assert!(plans.bytes() <= BYTES_MAX);
        }
        assert!(plans.0.lock().unwrap().len() >= 6, "blocks of two lengths of three files");
    }
}

#[cfg(test)]
mod planned_tests {
    use super::{Elimination, decode};
    use crate::codec::CodeShape;
    use crate::codec::enough;
    use crate::gf256::Coefficients;
    use crate::gf256::mul;
    use crate::raptor_q::RaptorQ;
    use crate::{BlockCodec, Parameters, Repair};
    use proptest::prelude::*;
    use raptorq::{SourceBlockEncodingPlan, extended_source_block_symbols};

    /// Whether all three decoders fill the block, which is then the same of all and that of the sender.
    fn decoders_agree(k: u32, size: u16, missing: &[u32], esis: &[u32]) -> bool {
        let codec = RaptorQ::new(&Parameters::raptorq(size)).unwrap();
        let shape = CodeShape::new(&codec, k, RaptorQ::ESI_END).unwrap();
        let source: Vec<u8> =
            (0..k * u32::from(size)).map(|i| i.wrapping_mul(0x9E37_79B1).to_le_bytes()[3]).collect();
        let encoder = codec.encoder(k, &source).unwrap();
        let symbols: Vec<Vec<u8>> = esis
            .iter()
            .map(|&esi| {
                let mut out = vec![0; size.into()];
                encoder.symbol(esi, &mut out).unwrap();
                out
            })
            .collect();
        let repairs: Vec<Repair<'_>> =
            esis.iter().zip(&symbols).map(|(&esi, data)| Repair { esi, data }).collect();
        let extended = extended_source_block_symbols(k);
        let plan = SourceBlockEncodingPlan::generate(u16::try_from(extended).unwrap());
        let coefficients = Coefficients::new(extended, &plan);
        let mut results = Vec::new();
        // All beside the block or as many as fit in its missing places; at once or in strips.
        for (in_place, strip) in [(false, usize::MAX), (true, usize::MAX), (true, source.len() / 3)] {
            let mut block = source.clone();
            missing.iter().for_each(|&esi| block[shape.range(esi)].fill(0x5A));
            let placed = if in_place { &esis[..missing.len()] } else { &[] };
            for (&at, symbol) in missing.iter().zip(&symbols[..placed.len()]) {
                block[shape.range(at)].copy_from_slice(symbol);
            }
            let given = enough(missing, placed, &repairs[placed.len()..]).unwrap();
            let (mut other, mut third) = (block.clone(), block.clone());
            let strip = strip.max(1);
            let planned = decode(&shape, &plan, &mut block, missing, &given, strip);
            assert_eq!(planned, codec.decode_in_full(&shape, &mut other, missing, &given, strip));
            assert_eq!(planned, coefficients.decode(&shape, &mut third, missing, &given));
            assert!(!planned || (block == source && other == source && third == source));
            results.push(planned);
        }
        assert!(results.iter().all(|planned| *planned == results[0]));
        results[0]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        /// From one loss to all, with just enough repair symbols or a few more: also where the rule would
        /// take the crate's decoder.
        #[test]
        fn dense_planned_and_full_decoding_agree(
            (k, missing) in (1u32..400).prop_flat_map(|k| {
                (Just(k), proptest::sample::subsequence((0..k).collect::<Vec<_>>(), 1..=k as usize))
            }),
            extra in 0usize..4,
            first in 0u32..(1 << 24) - 2000,
            step in 1u32..4,
            size in 1u16..100,
        ) {
            let esis: Vec<u32> =
                (0..).map(|i| k + first + i * step).take(missing.len() + extra).collect();
            decoders_agree(k, size, &missing, &esis);
        }
    }

    /// About one block in 200 cannot be decoded from K symbols: all decoders must say so of the same blocks.
    #[test]
    fn planned_and_full_decoding_fail_together() {
        let k = 10;
        let missing: Vec<u32> = (0..k).collect();
        let esis = |first: u32| (0..k).map(|i| k + (first * k + i) * 97).collect::<Vec<_>>();
        let failed = (0..2000).filter(|&first| !decoders_agree(k, 2, &missing, &esis(first))).count();
        assert!((1..=20).contains(&failed), "{failed} of 2000 failed");
    }

    #[test]
    fn elimination_skips_dependent_rows_and_inverts_the_others() {
        let rows: [[u8; 3]; 5] = [[0, 2, 7], [0, 4, 14], [1, 0, 9], [1, 2, 14], [200, 3, 0]];
        let mut elimination = Elimination::new(3);
        let added = rows.map(|row| elimination.add(&row));
        assert_eq!(added, [true, false, true, false, true]);
        let inverse = elimination.inverse();
        for (i, row) in inverse.chunks_exact(3).enumerate() {
            let mut product = [0; 3];
            for (&factor, added) in row.iter().zip([rows[0], rows[2], rows[4]]) {
                product.iter_mut().zip(added).for_each(|(sum, byte)| *sum ^= mul(factor, byte));
            }
            let mut unit = [0; 3];
            unit[i] = 1;
            assert_eq!(product, unit);
        }
    }
}
