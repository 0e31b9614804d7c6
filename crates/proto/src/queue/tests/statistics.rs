//! Pearson's chi-square test, for the draws of queues and loss models.

/// Asserts that `observed` counts fit `expected` counts (each at least 5) at a significance of 3 in a
/// million: a correct implementation passes for every seed tried in practice.
pub(super) fn assert_fits(what: &str, observed: &[u64], expected: &[f64]) {
    let (statistic, critical) = chi_square(observed, expected);
    assert!(
        statistic < critical,
        "{what}: chi-square {statistic:.1} above {critical:.1}; {observed:?} for {expected:?}"
    );
}

/// Returns Pearson's statistic, and the critical value exceeded in 3 of a million samples (Wilson and
/// Hilferty, z = 4.5).
pub(super) fn chi_square(observed: &[u64], expected: &[f64]) -> (f64, f64) {
    assert_eq!(observed.len(), expected.len());
    assert!(expected.iter().all(|&count| count >= 5.0), "too few for the test: {expected:?}");
    let statistic = observed.iter().zip(expected).map(|(&o, &e)| (o as f64 - e).powi(2) / e).sum();
    let shrink = 2.0 / (9.0 * (observed.len() - 1) as f64);
    let critical = (observed.len() - 1) as f64 * (1.0 - shrink + 4.5 * shrink.sqrt()).powi(3);
    (statistic, critical)
}

/// For an even number 2n of degrees of freedom, the tail is that of a Poisson sum: e^-h (1 + h + .. + h^(n-1)
/// / (n-1)!), h = x / 2.
#[test]
fn the_critical_value_is_exceeded_as_rarely_as_said() {
    for half in [1, 5, 15, 50] {
        let bins = 2 * half + 1;
        let (_, critical) = chi_square(&vec![10; bins], &vec![10.0; bins]);
        let terms = (1..half).scan(1.0, |term, k| {
            *term *= critical / 2.0 / k as f64;
            Some(*term)
        });
        let tail = (-critical / 2.0).exp() * (1.0 + terms.sum::<f64>());
        assert!((1e-6..4e-6).contains(&tail), "{bins} bins: {tail}");
    }
}
