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
//! | [`converged_at`] | delta-fair convergence time: Bansal et al. 2001; RFC 5166, section 2.3 |
//!
//! The window of a run begins after its warm-up. Over runs: [`estimate`] and [`paired`].
//!
//! [`converged_at`] gives the time that flows take to reach an even share.
//!
//! The delta-fair convergence time of Bansal, Balakrishnan, Floyd and Shenker (*Dynamic behavior of
//! slowly-responsive congestion control algorithms*, 2001) is the time that two flows take from an unfair
//! allocation until their shares are within (1 + delta)/2 and (1 - delta)/2. Equivalently, each flow is
//! within delta of the even share. In this form the definition applies to any number of flows. Rates
//! fluctuate, so the rates are averaged over bins, and the allocation must hold for several consecutive bins.

use serde::Serialize;

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

/// Returns the first bin from which on, for `hold` bins, every flow is within `delta` of the mean of all
/// flows of the bin. `rates` has a series for each flow, all equally long. `None` if there is no such bin.
///
/// A bin in which no flow sends is not fair.
pub fn converged_at(rates: &[&[f64]], delta: f64, hold: usize) -> Option<usize> {
    let bins = rates.iter().map(|series| series.len()).min()?;
    let is_fair = |bin: usize| {
        let mean = rates.iter().map(|series| series[bin]).sum::<f64>() / rates.len() as f64;
        mean > 0.0 && rates.iter().all(|series| (series[bin] - mean).abs() <= delta * mean)
    };
    let mut fair_in_a_row = 0;
    for bin in 0..bins {
        fair_in_a_row = if is_fair(bin) { fair_in_a_row + 1 } else { 0 };
        if fair_in_a_row >= hold.max(1) {
            return Some(bin + 1 - fair_in_a_row);
        }
    }
    None
}

/// Half widths are for this confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// 95 %.
    P95,
    /// 99 %.
    P99,
}

/// A mean over runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Number of runs.
    pub runs: usize,
    /// Mean over the runs.
    pub mean: f64,
    /// Standard deviation of a single run (n - 1 in the denominator); `None` for a single run.
    pub deviation: Option<f64>,
    /// Half of the width of the confidence interval about the mean; `None` for a single run.
    pub half_width: Option<f64>,
}

/// Mean of `values`, a value per run. `None` if `values` is empty.
pub fn estimate(values: &[f64], confidence: Confidence) -> Option<Estimate> {
    let runs = values.len();
    if runs == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / runs as f64;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    let deviation = (runs > 1).then(|| (squares / (runs - 1) as f64).sqrt());
    let half_width =
        deviation.map(|deviation| quantile(runs - 1, confidence) * deviation / (runs as f64).sqrt());
    Some(Estimate { runs, mean, deviation, half_width })
}

/// Mean difference `a - b` of paired runs. Runs of the same number use the same random streams in both
/// variants. `None` if the lengths differ.
pub fn paired(a: &[f64], b: &[f64], confidence: Confidence) -> Option<Estimate> {
    if a.len() != b.len() {
        return None;
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    estimate(&differences, confidence)
}

/// Quantiles of Student's t for 1 to 30 degrees of freedom, two-sided.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
const T99: [f64; 30] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
    2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
];
const NORMAL95: f64 = 1.959_964;
const NORMAL99: f64 = 2.575_829;

/// The two-sided quantile: from the table, and for more degrees of freedom from the Cornish-Fisher expansion
/// (Abramowitz and Stegun, 26.7.5), which is accurate to the third decimal there.
fn quantile(degrees: usize, confidence: Confidence) -> f64 {
    let (table, z) = match confidence {
        Confidence::P95 => (&T95, NORMAL95),
        Confidence::P99 => (&T99, NORMAL99),
    };
    if let Some(t) = table.get(degrees.wrapping_sub(1)) {
        return *t;
    }
    let n = degrees as f64;
    let cube = z * z * z;
    z + (cube + z) / (4.0 * n) + (5.0 * cube * z * z + 16.0 * cube + 3.0 * z) / (96.0 * n * n)
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

    #[test]
    fn the_first_bin_of_a_fair_run_counts() {
        let a = [9.0, 8.0, 5.2, 9.0, 5.0, 5.1, 4.9];
        let b = [1.0, 2.0, 4.8, 1.0, 5.0, 4.9, 5.1];
        assert_eq!(converged_at(&[&a, &b], 0.1, 1), Some(2));
        assert_eq!(converged_at(&[&a, &b], 0.1, 2), Some(4));
        assert_eq!(converged_at(&[&a, &b], 0.1, 4), None);
        assert_eq!(converged_at(&[&a, &b], 0.9, 7), Some(0), "two flows: (1 + 0.8)/2 and (1 - 0.8)/2");
    }

    #[test]
    fn silence_is_not_fair() {
        assert_eq!(converged_at(&[&[0.0, 1.0], &[0.0, 1.0]], 0.1, 1), Some(1));
        assert_eq!(converged_at(&[], 0.1, 1), None);
    }

    #[test]
    fn an_interval_is_the_textbook_one() {
        let estimate = estimate(&[4.0, 5.0, 6.0, 7.0, 8.0], Confidence::P95).unwrap();
        assert_eq!((estimate.runs, estimate.mean), (5, 6.0));
        // s = sqrt(10/4), t(4) = 2.776, n = 5.
        assert!((estimate.half_width.unwrap() - 2.776 * 2.5_f64.sqrt() / 5.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn one_run_has_a_mean_but_no_interval() {
        let one = estimate(&[3.0], Confidence::P95).unwrap();
        assert_eq!((one.mean, one.deviation, one.half_width), (3.0, None, None));
        assert_eq!(estimate(&[], Confidence::P99), None);
    }

    #[test]
    fn pairing_takes_out_what_runs_have_in_common() {
        let a = [10.0, 20.0, 30.0, 40.0];
        let b = [9.0, 19.1, 28.9, 39.0];
        let difference = paired(&a, &b, Confidence::P95).unwrap();
        assert!((difference.mean - 1.0).abs() < 1e-9 && difference.half_width.unwrap() < 0.2);
        assert_eq!(paired(&a, &b[..3], Confidence::P95), None);
    }

    #[test]
    fn the_expansion_goes_on_from_the_table() {
        for (degrees, t95, t99) in [(31, 2.0395, 2.7440), (60, 2.0003, 2.6603), (120, 1.9799, 2.6174)] {
            assert!((quantile(degrees, Confidence::P95) - t95).abs() < 1e-3, "{degrees}");
            assert!((quantile(degrees, Confidence::P99) - t99).abs() < 2e-3, "{degrees}");
        }
    }
}
