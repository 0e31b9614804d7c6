//! Time that flows take to reach an even share.
//!
//! The delta-fair convergence time of Bansal, Balakrishnan, Floyd and Shenker (*Dynamic behavior of
//! slowly-responsive congestion control algorithms*, 2001) is the time that two flows take from an unfair
//! allocation until their shares are within (1 + delta)/2 and (1 - delta)/2. Equivalently, each flow is
//! within delta of the even share. In this form the definition applies to any number of flows. Rates
//! fluctuate, so the rates are averaged over bins, and the allocation must hold for several consecutive bins.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
