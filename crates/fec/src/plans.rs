//! RaptorQ's encoding plans, which depend on K alone: one cache serves all codecs of a process, so that neither a session
//! of many symbol sizes nor many sessions have more of them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use raptorq::SourceBlockEncodingPlan;

/// A plan, made when first needed.
pub(crate) type Plan = OnceLock<SourceBlockEncodingPlan>;

/// Memory of a plan, in bytes per symbol of its block: 1012 at K = 5008, 1230 at K = 56 403.
pub(crate) const PLAN_BYTES: usize = 1_264;
/// Symbols of the plans kept, all together: two lengths of the longest blocks that are decoded with plans, or any one plan.
const SYMBOLS_MAX: u32 = 2 * PLANNED_K_MAX;
/// Longest block decoded with a plan: those of our senders above 100 Mbit/s. Plans of longer ones take too much memory.
pub(crate) const PLANNED_K_MAX: u32 = 10_080;
/// Plans kept at most: the lengths of blocks of many small files.
const PLANS_MAX: usize = 16;

/// Plans by the number of symbols, the one used last at the end.
#[derive(Debug, Default)]
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
        let symbols = |plans: &[(u32, _)]| plans.iter().map(|(of, _)| *of).sum::<u32>();
        while !plans.is_empty() && (plans.len() >= PLANS_MAX || symbols(&plans) + k > SYMBOLS_MAX) {
            plans.remove(0);
        }
        plans.push((k, Arc::clone(&plan)));
        plan
    }

    /// Memory of the plans kept, in bytes.
    fn bytes(&self) -> u64 {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.iter().map(|(k, _)| u64::from(*k) * PLAN_BYTES as u64).sum()
    }
}

/// What codecs keep at the moment to be faster with the next block, in bytes, all of the process together: at most 25 MiB
/// where blocks are only decoded.
pub fn kept_bytes() -> u64 {
    PLANS.bytes()
}

/// The plan in its place, made if nobody has made it yet.
pub(crate) fn ready(plan: &Plan, k: u32) -> &SourceBlockEncodingPlan {
    let symbols = u16::try_from(k).expect("k <= 56403");
    // The clone sheds the spare capacity that making the plan leaves behind.
    plan.get_or_init(|| SourceBlockEncodingPlan::generate(symbols).clone())
}

#[cfg(test)]
mod tests {
    use super::{PLAN_BYTES, PLANS_MAX, Plans, SYMBOLS_MAX};
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
        assert!(plans.bytes() <= u64::from(SYMBOLS_MAX) * PLAN_BYTES as u64);
        plans.plan(56_403);
        assert_eq!(kept(), [56_403], "a sender may need it");
        plans.plan(5);
        assert_eq!(kept(), [5]);
    }
}
