//! Loss intervals of the TFRC module (Thapliyal et al.): eight of weight 1, and behind them a tail that
//! fades.

/// Intervals of full weight.
const FULL: usize = 8;
/// Weight of an interval of the tail over that of the one before.
const ALPHA: f64 = 0.95;

/// Intervals between loss events, in packets: the open one, the last eight, and the sum of those before.
/// Constant time for each event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Intervals {
    open: f64,
    /// The newest first.
    closed: [f64; FULL],
    count: usize,
    tail: f64,
    tail_weight: f64,
}

impl Intervals {
    /// A packet was sent.
    pub fn sent(&mut self) {
        self.open += 1.0;
    }

    /// A loss event ends the open interval.
    pub fn event(&mut self) {
        let interval = self.open.max(1.0);
        self.open = 0.0;
        self.close(interval);
    }

    /// An interval that is as good as closed: the synthetic one before the first event.
    pub fn close(&mut self, interval: f64) {
        if self.count == FULL {
            self.tail = ALPHA * (self.tail + self.closed[FULL - 1]);
            self.tail_weight = ALPHA * (self.tail_weight + 1.0);
        }
        self.closed.copy_within(..FULL - 1, 1);
        self.closed[0] = interval;
        self.count = (self.count + 1).min(FULL);
    }

    /// Mean of the closed intervals, `s_hat_1`; `None` before the first.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.closed[..self.count].iter().sum();
        (self.count > 0).then(|| (sum + self.tail) / (self.count as f64 + self.tail_weight))
    }

    /// Mean of the open interval and the closed ones, `s_hat_0`.
    pub fn mean_with_open(&self) -> f64 {
        let full = self.count.min(FULL - 1);
        let sum: f64 = self.open + self.closed[..full].iter().sum::<f64>();
        let (tail, tail_weight) = match self.count {
            FULL => (ALPHA * (self.tail + self.closed[FULL - 1]), ALPHA * (self.tail_weight + 1.0)),
            _ => (0.0, 0.0),
        };
        (sum + tail) / (full as f64 + 1.0 + tail_weight)
    }

    /// p, loss events per packet: the open interval counts when that makes it smaller. `None` before the
    /// first event.
    pub fn rate(&self) -> Option<f64> {
        Some(1.0 / self.mean()?.max(self.mean_with_open()).max(1.0))
    }
}
