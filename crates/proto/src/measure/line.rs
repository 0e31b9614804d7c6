//! Regression of one measurement on another, with weights.

/// Weighted sums of pairs (x, y), for a line by least squares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WeightedLine {
    pub(crate) weight: f64,
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) xx: f64,
    pub(crate) xy: f64,
    pub(crate) yy: f64,
}

/// Line y = `intercept` + `slope` x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) slope: f64,
    pub(crate) intercept: f64,
    /// Standard deviation of y from the line.
    pub(crate) deviation: f64,
}

impl WeightedLine {
    /// Multiplies the weights of all pairs by `kept`.
    pub(crate) fn age(&mut self, kept: f64) {
        for sum in [&mut self.weight, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy, &mut self.yy] {
            *sum *= kept;
        }
    }

    /// Adds a pair.
    pub(crate) fn add(&mut self, weight: f64, x: f64, y: f64) {
        self.weight += weight;
        self.x += weight * x;
        self.y += weight * y;
        self.xx += weight * x * x;
        self.xy += weight * x * y;
        self.yy += weight * y * y;
    }

    /// Returns the line with a slope between 0 and 1; `None` if the variance of x is at most `spread` of the
    /// mean square of x.
    pub(crate) fn rising(&self, spread: f64) -> Option<Line> {
        let mean = |sum: f64| sum / self.weight;
        let (x, y) = (mean(self.x), mean(self.y));
        let variance = mean(self.xx) - x * x;
        if variance <= spread * mean(self.xx) {
            return None;
        }
        let covariance = mean(self.xy) - x * y;
        let slope = (covariance / variance).clamp(0.0, 1.0);
        let rest = mean(self.yy) - y * y - 2.0 * slope * covariance + slope * slope * variance;
        Some(Line { slope, intercept: y - slope * x, deviation: libm::sqrt(rest.max(0.0)) })
    }

    /// Returns the slope and its standard error; `None` if the variance of x is at most `least`.
    pub(crate) fn slope(&self, least: f64) -> Option<(f64, f64)> {
        let n = self.weight;
        let xx = self.xx - self.x * self.x / n;
        if xx <= least * n {
            return None;
        }
        let xy = self.xy - self.x * self.y / n;
        let yy = self.yy - self.y * self.y / n;
        let slope = xy / xx;
        Some((slope, libm::sqrt((yy - slope * xy).max(0.0) / (n - 2.0) / xx)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found() {
        let mut sums = WeightedLine::default();
        for i in 0..100 {
            let x = f64::from(i % 10);
            sums.age(0.99);
            sums.add(1.0, x, 3.0 + 0.5 * x);
        }
        let line = sums.rising(0.001).unwrap();
        assert!((line.slope - 0.5).abs() < 1e-9 && (line.intercept - 3.0).abs() < 1e-9, "{line:?}");
        assert!(line.deviation < 1e-6, "{line:?}");
        let (slope, error) = sums.slope(1e-6).unwrap();
        assert!((slope - 0.5).abs() < 1e-9 && error < 1e-6, "{slope} {error}");
    }

    #[test]
    fn even_x_gives_no_line() {
        let mut sums = WeightedLine::default();
        (0..100).for_each(|i| sums.add(1.0, 2.0, f64::from(i)));
        assert_eq!((sums.rising(0.001), sums.slope(1e-6)), (None, None));
    }
}
