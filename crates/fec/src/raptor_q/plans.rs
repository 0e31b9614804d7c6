//! Parts that all blocks of the same K' share: equations, and a sender's schedule. A block of K symbols is
//! coded as a block of K' symbols whose last symbols are zero (RFC 6330, section 5.3.1). All codecs of a
//! process share a cache, so the number of sessions or symbol sizes does not raise its memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::schedule::{STRIP_BYTES_MAX, Schedule};
use super::structure::{Structure, intermediate_symbols, padded_symbols};

/// Equations and schedule for blocks of the same K', each made when first needed.
pub(crate) struct Plan {
    /// K'.
    symbols: u32,
    structure: OnceLock<Structure>,
    schedule: OnceLock<Schedule>,
}

/// Memory of a plan, in bytes per symbol of K', and for any length.
const PLAN_BYTES: usize = 160;
const PLAN_BYTES_ANY: usize = 8 << 10;
/// Memory to solve the equations of a block, in bytes per intermediate symbol, and for any length.
const SOLVING_BYTES: usize = 330;
const SOLVING_BYTES_ANY: usize = 8 << 10;
/// Maximum bytes of the cache, or any single plan.
const BYTES_MAX: u64 = 8 << 20;
/// Plans kept at most: the lengths of blocks of many small files.
const PLANS_MAX: usize = 16;

/// Memory of the pool's slots of `strip` bytes, for intermediate symbols, right sides and tables, in bytes.
pub(super) fn pool_bytes(k: u32, strip: usize) -> usize {
    (intermediate_symbols(k) as usize * 7 / 6 + 256) * strip
}

/// Memory that it takes to solve a block of `k` symbols and to make its intermediate symbols, in bytes.
pub(super) fn solving_bytes(k: u32, strip: usize) -> usize {
    SOLVING_BYTES * intermediate_symbols(k) as usize + SOLVING_BYTES_ANY + pool_bytes(k, strip)
}

/// Plans, the one used last at the end.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Vec<Arc<Plan>>>);

/// The plans of the process.
pub(crate) static PLANS: Plans = Plans(Mutex::new(Vec::new()));

impl Plans {
    /// Returns the entry for blocks of `k` symbols. The first caller fills the entry outside the lock.
    pub(crate) fn plan(&self, k: u32) -> Arc<Plan> {
        let symbols = padded_symbols(k);
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

/// Memory that all codecs of the process currently keep to code the next block faster, in bytes: at most 8
/// MiB, or a single longer plan.
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
        let plans: BTreeSet<u32> = lengths.into_iter().map(padded_symbols).collect();
        let bytes = |symbols: &u32| Plan::of(*symbols).bytes();
        let longest = plans.last().map_or(0, bytes);
        let all: u64 = plans.iter().map(bytes).sum();
        Self {
            kept: all.min(BYTES_MAX.max(longest)),
            making: plans.last().map_or(0, |symbols| solving_bytes(*symbols, STRIP_BYTES_MAX) as u64),
            is_one: plans.len() <= 1,
        }
    }
}

impl Plan {
    fn of(symbols: u32) -> Self {
        Self { symbols, structure: OnceLock::new(), schedule: OnceLock::new() }
    }

    /// Memory of the entry with both parts made.
    fn bytes(&self) -> u64 {
        (self.symbols as usize * PLAN_BYTES + PLAN_BYTES_ANY) as u64
    }

    /// Returns the equations, made at the first call.
    pub(crate) fn structure(&self) -> &Structure {
        self.structure.get_or_init(|| Structure::new(self.symbols))
    }

    /// Returns a sender's schedule, made at the first call.
    pub(crate) fn schedule(&self) -> &Schedule {
        self.schedule.get_or_init(|| {
            let structure = self.structure();
            let inputs: Vec<u32> = (0..self.symbols).collect();
            let mut schedule = Schedule::new(structure, &structure.equations, &inputs, None)
                .expect("RFC 6330 chose the parameters so that source symbols determine a block");
            schedule.shrink();
            schedule
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, PLANS_MAX, PlanBytes, Plans, padded_symbols};
    use std::sync::Arc;

    /// The shortest lengths, none of which shares a plan with another.
    fn lengths() -> impl Iterator<Item = u32> {
        (1..).filter(|k| padded_symbols(*k) == *k)
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

    /// The bound that a sender counts is at least the bytes kept, for blocks of any lengths.
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
