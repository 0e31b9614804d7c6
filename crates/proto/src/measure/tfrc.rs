//! TCP throughput equation, and loss intervals for the equation (RFC 5348).

/// Number of intervals in the mean (RFC 5348, section 5.4: n = 8).
const INTERVALS: usize = 8;
/// Weights of the intervals, newest first.
const WEIGHTS: [f64; INTERVALS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Returns the packets per second of a TCP at a round-trip time in seconds and a loss event rate: RFC 5348,
/// section 3.1, with b = 1 and `t_RTO` = 4 R. Infinite without loss.
pub fn throughput(rtt: f64, loss: f64) -> f64 {
    throughput_with_timeout(rtt, 4.0 * rtt, loss)
}

/// Returns the same throughput with a separate `t_RTO` in seconds.
pub fn throughput_with_timeout(rtt: f64, timeout: f64, loss: f64) -> f64 {
    if loss <= 0.0 {
        return f64::INFINITY;
    }
    let root = libm::sqrt(2.0 * loss / 3.0);
    let timeouts = 3.0 * (timeout / rtt) * libm::sqrt(3.0 * loss / 8.0) * loss * (1.0 + 32.0 * loss * loss);
    1.0 / (rtt * (root + timeouts))
}

/// Returns the packets between loss events at which [`throughput`] gives `rate`, in packets per second.
pub fn interval_at(rtt: f64, rate: f64) -> f64 {
    // The rate grows with the interval. Bisection between 1 and 2^40 packets, to a precision of a thousandth.
    let (mut low, mut high) = (1.0, 1_099_511_627_776.0_f64);
    while high / low > 1.001 {
        let middle = libm::sqrt(low * high);
        if throughput(rtt, 1.0 / middle) < rate {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Last eight loss intervals, in packets, and the open interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossIntervals {
    /// Closed intervals, newest first.
    closed: [f64; INTERVALS],
    count: usize,
    open: f64,
}

impl LossIntervals {
    /// Counts packets received or lost since the last loss event.
    pub fn advance(&mut self, packets: u64) {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 packets")]
        let packets = packets as f64;
        self.open += packets;
    }

    /// Closes the open interval at a loss event.
    pub fn event(&mut self) {
        self.closed.copy_within(..INTERVALS - 1, 1);
        self.closed[0] = self.open.max(1.0);
        self.count = (self.count + 1).min(INTERVALS);
        self.open = 0.0;
    }

    /// Restarts as if loss events occurred every `packets`.
    pub fn reset(&mut self, packets: f64) {
        *self = Self { count: 1, ..Self::default() };
        self.closed[0] = packets.max(1.0);
    }

    /// Multiplies the oldest interval by `factor`; the result is at least a packet. Up to seven events after
    /// [`LossIntervals::reset`] the oldest interval is the initial interval of the reset.
    pub fn rescale_oldest(&mut self, factor: f64) {
        if let Some(first) = self.closed[..self.count].last_mut() {
            *first = (*first * factor).max(1.0);
        }
    }

    /// Returns the open interval in packets.
    pub fn open(&self) -> f64 {
        self.open
    }

    /// Returns the weighted mean of the closed intervals; `None` before the first.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| weighted(&self.closed[..self.count]))
    }

    /// Returns p, the loss event rate (section 5.4). The open interval counts if p becomes smaller. `None`
    /// before the first event.
    pub fn rate(&self) -> Option<f64> {
        self.mean().map(|closed| self.rate_beside(closed))
    }

    /// Returns the loss event rate beside a mean that [`LossIntervals::mean`] has returned.
    pub fn rate_beside(&self, closed: f64) -> f64 {
        let mut with_open = [0.0; INTERVALS];
        with_open[0] = self.open;
        let rest = self.count.min(INTERVALS - 1);
        with_open[1..=rest].copy_from_slice(&self.closed[..rest]);
        1.0 / closed.max(weighted(&with_open[..=rest])).max(1.0)
    }
}

/// Sums of the first weights, by their number.
const TOTALS: [f64; INTERVALS + 1] = {
    let mut totals = [0.0; INTERVALS + 1];
    let mut count = 0;
    while count < INTERVALS {
        totals[count + 1] = totals[count] + WEIGHTS[count];
        count += 1;
    }
    totals
};

fn weighted(intervals: &[f64]) -> f64 {
    let sum: f64 = intervals.iter().zip(WEIGHTS).map(|(interval, weight)| interval * weight).sum();
    sum / TOTALS[intervals.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WEBRC's equation (RFC 3738), worked by hand: "112.4 at R=.1, p=.01".
    #[test]
    fn the_equation_gives_the_published_number() {
        assert!((throughput(0.1, 0.01) - 112.4).abs() < 0.1);
        assert_eq!(throughput(0.1, 0.0), f64::INFINITY);
    }

    /// TCP equation worked by hand: "s=560, R=.2, p=.01, t_RTO=.3 -> 265 358 bit/s".
    #[test]
    fn a_timeout_of_its_own_gives_the_published_number() {
        let bits = 560.0 * 8.0 * throughput_with_timeout(0.2, 0.3, 0.01);
        assert!((bits - 265_358.0).abs() < 0.5, "{bits}");
    }

    #[test]
    fn an_interval_gives_its_rate_back() {
        for interval in [1.0, 7.0, 100.0, 1e6] {
            let found = interval_at(0.05, throughput(0.05, 1.0 / interval));
            assert!((found / interval - 1.0).abs() < 0.002, "{found} of {interval}");
        }
        assert_eq!(interval_at(0.001, 1e-9), 1.0, "no loss event is nearer to the next than a packet");
    }

    #[test]
    fn steady_intervals_give_their_rate() {
        let mut intervals = LossIntervals::default();
        assert_eq!(intervals.rate(), None);
        for _ in 0..20 {
            intervals.advance(50);
            intervals.event();
        }
        assert!((intervals.rate().unwrap() - 0.02).abs() < 1e-12);
    }

    #[test]
    fn the_open_interval_counts_only_when_it_is_long() {
        let mut intervals = LossIntervals::default();
        for _ in 0..8 {
            intervals.advance(50);
            intervals.event();
        }
        intervals.advance(10);
        assert!((intervals.rate().unwrap() - 0.02).abs() < 1e-12);
        intervals.advance(990);
        // (1000 + 50 (1+1+1+.8+.6+.4+.2)) / 6
        assert!((intervals.rate().unwrap() - 6.0 / 1_250.0).abs() < 1e-12);
    }
}
