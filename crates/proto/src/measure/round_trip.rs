//! Round-trip time estimate of TCP (RFC 6298, section 2).

/// Gains of the mean and of the deviation.
const GAINS: [f64; 2] = [0.125, 0.25];

/// Mean round-trip time and mean deviation, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTrip(Option<(f64, f64)>);

impl RoundTrip {
    /// Creates an estimate from a first measurement in seconds, with half the measurement as deviation.
    pub fn of(first: f64) -> Self {
        Self(Some((first, first / 2.0)))
    }

    /// Adds a sample in seconds.
    pub fn sample(&mut self, sample: f64) {
        *self = match self.0 {
            None => Self::of(sample),
            Some((mean, deviation)) => {
                let error = sample - mean;
                Self(Some((mean + GAINS[0] * error, deviation + GAINS[1] * (error.abs() - deviation))))
            }
        };
    }

    /// Returns the mean in seconds; `None` before the first sample.
    pub fn mean(&self) -> Option<f64> {
        self.0.map(|(mean, _)| mean)
    }

    /// Returns the timeout in seconds: the mean plus four deviations, or plus `margin` if larger. `None`
    /// before the first sample.
    pub fn timeout(&self, margin: f64) -> Option<f64> {
        self.0.map(|(mean, deviation)| mean + (4.0 * deviation).max(margin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298 by hand: SRTT = R, RTTVAR = R/2; then 7/8 and 1/8, 3/4 and 1/4.
    #[test]
    fn two_samples_by_hand() {
        let mut round_trip = RoundTrip::default();
        assert_eq!((round_trip.mean(), round_trip.timeout(0.0)), (None, None));
        round_trip.sample(0.1);
        assert!((round_trip.timeout(0.0).unwrap() - 0.3).abs() < 1e-12);
        round_trip.sample(0.18);
        assert!((round_trip.mean().unwrap() - 0.11).abs() < 1e-12);
        assert!((round_trip.timeout(0.0).unwrap() - 0.34).abs() < 1e-12);
        assert!((round_trip.timeout(0.5).unwrap() - 0.61).abs() < 1e-12);
    }
}
