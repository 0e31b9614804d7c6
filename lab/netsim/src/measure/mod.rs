//! Measures of simulated runs, as `docs/reference/plans.md` defines them.
//!
//! | measure | definition |
//! |---|---|
//! | send rate | wire bytes offered to the first link, retransmissions included, per second |
//! | throughput | wire bytes delivered, per second |
//! | goodput | new payload bytes in order, per second |
//! | loss | drops / arrivals at one queue, or on one path, in the same window |
//! | mean queue | packets that wait (excluding the packet in transmission), averaged over time |
//! | [`jain`] | Jain, Chiu and Hawe 1984 |
//! | [`variation`] | coefficient of variation: standard deviation over mean |
//! | [`convergence`] | delta-fair convergence time: Bansal et al. 2001; RFC 5166, section 2.3 |
//!
//! The window of a run begins after its warm-up. Over runs: [`statistics`].

pub mod convergence;
pub mod statistics;

/// Jain's fairness index of `shares`: 1 when all are equal, 1/n when a single flow has everything. `None`
/// when all shares are zero.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Coefficient of variation of a rate in equal bins. `None` where nothing came.
pub fn variation(rates: &[f64]) -> Option<f64> {
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let squares: f64 = rates.iter().map(|rate| (rate - mean) * (rate - mean)).sum();
    (mean > 0.0).then(|| (squares / count).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation_is_the_deviation_over_the_mean() {
        assert_eq!(variation(&[1.0, 3.0]), Some(0.5));
        assert_eq!(variation(&[7.0, 7.0]), Some(0.0));
        assert_eq!((variation(&[]), variation(&[0.0])), (None, None));
    }

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_one_alone() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!((jain(&[]), jain(&[0.0, 0.0])), (None, None));
        // The example of the paper: 1, 0 and 0.. is k/n where k of n share evenly.
        assert_eq!(jain(&[1.0, 1.0, 0.0, 0.0, 0.0]), Some(0.4));
    }
}
