//! Means over independent runs, and Pearson's test.

/// Runs per mean.
pub const RUNS: u64 = 10;
/// Student's t with 9 degrees of freedom: exceeded in one of 20 samples, and in one of 10 000.
const T_95: f64 = 2.262;
const T_9999: f64 = 6.010;

/// The mean of [`RUNS`] independent runs.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    pub mean: f64,
    /// Standard error of the mean.
    error: f64,
}

impl Mean {
    pub fn over_runs(mut run: impl FnMut(u64) -> f64) -> Self {
        let values: Vec<f64> = (0..RUNS).map(&mut run).collect();
        let n = RUNS as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, error: (variance / n).sqrt() }
    }

    /// Half the width of the 95 % interval.
    pub fn half_width(self) -> f64 {
        T_95 * self.error
    }

    /// Asserts that the mean is `theory`, to a significance of one in 10 000: a right engine passes for
    /// nearly every seed. It must also be known to `precision` of theory, or the test could not fail.
    pub fn assert_is(self, what: &str, theory: f64, precision: f64) {
        let reach = T_9999 * self.error;
        println!("| {what} | {theory:.5} | {:.5} ± {:.5} |", self.mean, self.half_width());
        assert!(reach < precision * theory, "{what}: {self:?} is too vague to compare with {theory}");
        assert!((self.mean - theory).abs() < reach, "{what}: {self:?}, but theory says {theory}");
    }
}

/// Asserts that `observed` counts may come from `expected` ones (each at least 5), at a significance of 3 in
/// a million (Wilson and Hilferty's approximation of chi-square, z = 4.5).
pub fn assert_fits(what: &str, observed: &[u64], expected: &[f64]) {
    assert_eq!(observed.len(), expected.len());
    assert!(expected.iter().all(|&count| count >= 5.0), "too few for the test: {expected:?}");
    let statistic: f64 = observed.iter().zip(expected).map(|(&o, &e)| (o as f64 - e).powi(2) / e).sum();
    let freedom = (observed.len() - 1) as f64;
    let shrink = 2.0 / (9.0 * freedom);
    let critical = freedom * (1.0 - shrink + 4.5 * shrink.sqrt()).powi(3);
    assert!(
        statistic < critical,
        "{what}: chi-square {statistic:.1} above {critical:.1}: {observed:?}, {expected:?}"
    );
}
