//! RaptorQ's encoding plans and the coefficients of short blocks, which depend on K alone: one cache serves all codecs of a process, so that neither a session
//! of many symbol sizes nor many sessions have more of them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use raptorq::SourceBlockEncodingPlan;

use crate::Kernel;
use crate::dense::{self, Coefficients};

/// What blocks of one length are coded by, each made when first needed.
#[derive(Default)]
pub(crate) struct Plan {
    plan: OnceLock<SourceBlockEncodingPlan>,
    coefficients: OnceLock<Coefficients>,
}

/// Memory of a plan, in bytes per symbol of its block: 1012 at K = 5008, 1230 at K = 56 403.
pub(crate) const PLAN_BYTES: usize = 1_264;
/// Bytes of what is kept, all together: plans of two lengths of the longest blocks that are decoded with plans, or any one
/// plan; coefficients of seven lengths at K = 1002.
const BYTES_MAX: u64 = 2 * PLANNED_K_MAX as u64 * PLAN_BYTES as u64;
/// Longest block decoded with a plan: those of our senders above 100 Mbit/s. Plans of longer ones take too much memory.
pub(crate) const PLANNED_K_MAX: u32 = 10_080;
/// Plans kept at most: the lengths of blocks of many small files.
const PLANS_MAX: usize = 16;

/// What making a plan takes, in plans.
const MAKING_PLANS: u64 = 2;

/// Plans by the number of symbols, the one used last at the end.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Vec<(u32, Arc<Plan>)>>);

/// The plans of the process.
pub(crate) static PLANS: Plans = Plans(Mutex::new(Vec::new()));

impl Plans {
    /// The place of the plan for blocks of `k` symbols. It is filled outside the lock, by whoever comes first.
    pub(crate) fn plan(&self, k: u32) -> Arc<Plan> {
        // A panic of another thread cannot leave the list half changed.
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.iter().position(|&(of, _)| of == k) {
            Some(position) => plans.remove(position).1,
            None => Arc::default(),
        };
        while !plans.is_empty() && (plans.len() >= PLANS_MAX || bytes(&plans) + bytes_of(k) > BYTES_MAX) {
            plans.remove(0);
        }
        plans.push((k, Arc::clone(&plan)));
        plan
    }

    /// Memory of the plans kept, in bytes.
    fn bytes(&self) -> u64 {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes(&plans)
    }
}

/// Memory of what is kept for blocks of `k` symbols, once all of it is made.
fn bytes_of(k: u32) -> u64 {
    u64::from(k) * PLAN_BYTES as u64 + dense::bytes(k, Kernel::chosen()) as u64
}

fn bytes(plans: &[(u32, Arc<Plan>)]) -> u64 {
    plans.iter().map(|(k, _)| bytes_of(*k)).sum()
}

/// What codecs keep at the moment to be faster with the next block, in bytes, all of the process together: at most 25 MiB
/// where blocks are only decoded.
pub fn kept_bytes() -> u64 {
    PLANS.bytes()
}

/// Most that RaptorQ's codecs keep for coding blocks of so many lengths, of up to `k` symbols each, in bytes, with what making
/// one more takes: the bound of a sender, of all its threads together.
pub fn kept_bytes_max(k: u32, lengths: usize) -> u64 {
    let one = bytes_of(k);
    let kept = one * lengths.min(PLANS_MAX) as u64;
    kept.min(BYTES_MAX.max(one)) + MAKING_PLANS * one
}

impl Plan {
    /// The plan, made if nobody has made it yet.
    pub(crate) fn ready(&self, k: u32) -> &SourceBlockEncodingPlan {
        let symbols = u16::try_from(k).expect("k <= 56403");
        // The clone sheds the spare capacity that making the plan leaves behind.
        self.plan.get_or_init(|| SourceBlockEncodingPlan::generate(symbols).clone())
    }

    /// The coefficients of a short block, made if nobody has made them yet.
    pub(crate) fn coefficients(&self, k: u32) -> &Coefficients {
        self.coefficients.get_or_init(|| Coefficients::new(k, self.ready(k)))
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, PLANS_MAX, Plans, kept_bytes_max};
    use std::sync::Arc;

    #[test]
    fn plans_are_shared_and_the_ones_unused_longest_are_dropped() {
        let plans = Plans::default();
        let first = plans.plan(1);
        assert!(Arc::ptr_eq(&first, &plans.plan(1)));
        for k in (2..).take(PLANS_MAX - 1) {
            plans.plan(k);
        }
        assert!(Arc::ptr_eq(&first, &plans.plan(1)), "all of them fit");
        plans.plan(100);
        assert_eq!(plans.0.lock().unwrap().len(), PLANS_MAX);
        assert!(Arc::ptr_eq(&first, &plans.plan(1)), "2 was used longest ago");
    }

    #[test]
    fn long_blocks_drop_all_but_one_another() {
        let plans = Plans::default();
        let kept = || plans.0.lock().unwrap().iter().map(|(k, _)| *k).collect::<Vec<_>>();
        (1..=8).for_each(|k| drop(plans.plan(k)));
        let (long, longer) = (plans.plan(10_016), plans.plan(10_017));
        assert_eq!(kept(), [1, 2, 3, 4, 5, 6, 7, 8, 10_016, 10_017]);
        assert!(Arc::ptr_eq(&long, &plans.plan(10_016)) && Arc::ptr_eq(&longer, &plans.plan(10_017)));
        assert!(plans.bytes() <= BYTES_MAX);
        plans.plan(56_403);
        assert_eq!(kept(), [56_403], "a sender may need it");
        plans.plan(5);
        assert_eq!(kept(), [5]);
    }

    /// What a sender counts on is never less than what is kept, whatever lengths it uses.
    #[test]
    fn the_bound_of_a_sender_holds() {
        for (k, lengths) in [(56_403, 1), (10_080, 2), (5_008, 9), (1_100, 40), (1, 3)] {
            let plans = Plans::default();
            let lengths = lengths.min(k);
            (k + 1 - lengths..=k).for_each(|k| drop(plans.plan(k)));
            assert!(plans.bytes() <= kept_bytes_max(k, lengths as usize), "k = {k}");
        }
    }

    /// Coefficients count too: of the longest blocks that have them, fewer are kept than there is room for plans.
    #[test]
    fn short_blocks_keep_within_the_same_bound() {
        let plans = Plans::default();
        for k in 1_050..=1_100 {
            plans.plan(k);
            assert!(plans.bytes() <= BYTES_MAX);
        }
        assert!(plans.0.lock().unwrap().len() >= 6, "blocks of two lengths of three files");
    }
}
