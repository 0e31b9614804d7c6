//! RaptorQ's encoding plans and the coefficients of short blocks, which depend on K' alone: a block of K
//! symbols is coded as one of K' whose last symbols are zero (RFC 6330, section 5.3.1). One cache serves all
//! codecs of a process, so that neither a session of many symbol sizes nor many sessions have more of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use raptorq::{SourceBlockEncodingPlan, extended_source_block_symbols};

use crate::Kernel;
use crate::dense::{self, Coefficients};

/// What blocks of one K' are coded by, each made when first needed.
pub(crate) struct Plan {
    /// K'.
    symbols: u32,
    plan: OnceLock<SourceBlockEncodingPlan>,
    coefficients: OnceLock<Coefficients>,
}

/// Memory of a plan, in bytes per symbol of K': 1012 at 5008, 1230 at 56 403.
pub(crate) const PLAN_BYTES: usize = 1_264;
/// Bytes of what is kept, all together: the plan of the longest blocks that are decoded with plans, two of
/// those of half their length, or any one plan; coefficients of seven lengths at K = 1002.
const BYTES_MAX: u64 = PLANNED_K_MAX as u64 * PLAN_BYTES as u64;
/// Longest block decoded with a plan, a K': those of our senders, whatever the rate.
pub(crate) const PLANNED_K_MAX: u32 = 20_240;
/// Plans kept at most: the lengths of blocks of many small files.
const PLANS_MAX: usize = 16;

/// What making a plan takes, in plans.
const MAKING_PLANS: usize = 2;

/// What making the plan for blocks of `k` symbols takes, in bytes, beside the plan.
pub(crate) fn making_bytes(k: u32) -> usize {
    extended_source_block_symbols(k) as usize * PLAN_BYTES * MAKING_PLANS
}

/// Plans, the one used last at the end.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Vec<Arc<Plan>>>);

/// The plans of the process.
pub(crate) static PLANS: Plans = Plans(Mutex::new(Vec::new()));

impl Plans {
    /// The place of the plan for blocks of `k` symbols. It is filled outside the lock, by whoever comes
    /// first.
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

/// What codecs keep at the moment to be faster with the next block, in bytes, all of the process together: at
/// most 25 MiB where blocks are only decoded.
pub fn kept_bytes() -> u64 {
    PLANS.bytes()
}

/// What a sender's threads together keep of RaptorQ's plans, a bound in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanBytes {
    /// For all blocks.
    pub kept: u64,
    /// Beside, while a plan is made.
    pub making: u64,
    /// Whether one serves all blocks: it is made before the first of them is coded.
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

    /// Memory, once all of it is made.
    fn bytes(&self) -> u64 {
        u64::from(self.symbols) * PLAN_BYTES as u64 + dense::bytes(self.symbols, Kernel::chosen()) as u64
    }

    /// The plan, made if nobody has made it yet. It serves blocks of K' symbols.
    pub(crate) fn ready(&self) -> &SourceBlockEncodingPlan {
        let symbols = u16::try_from(self.symbols).expect("K' <= 56403");
        // The clone sheds the spare capacity that making the plan leaves behind.
        self.plan.get_or_init(|| SourceBlockEncodingPlan::generate(symbols).clone())
    }

    /// The coefficients of a short block, made if nobody has made them yet.
    pub(crate) fn coefficients(&self) -> &Coefficients {
        self.coefficients.get_or_init(|| Coefficients::new(self.symbols, self.ready()))
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
