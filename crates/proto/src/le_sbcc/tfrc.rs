//! Loss intervals of the TFRC module (Thapliyal et al.): eight intervals of weight 1, followed by a fading
//! tail.

/// Number of intervals of full weight.
const FULL: usize = 8;
/// Weight of an interval of the tail, relative to the next newer interval.
const ALPHA: f64 = 0.95;

/// Intervals between loss events, in packets: the open interval, the last eight closed intervals, and the
/// weighted sum of all older intervals. Constant time for each event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Intervals {
    open: f64,
    /// Closed intervals, the newest first.
    closed: [f64; FULL],
    count: usize,
    tail: f64,
    tail_weight: f64,
}

impl Intervals {
    /// Records a sent packet.
    pub fn sent(&mut self) {
        self.open += 1.0;
    }

    /// Ends the open interval by a loss event.
    pub fn event(&mut self) {
        let interval = self.open.max(1.0);
        self.open = 0.0;
        self.close(interval);
    }

    /// Adds a closed interval: the synthetic interval before the first event.
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

    /// Mean of the open interval and the closed intervals, `s_hat_0`.
    pub fn mean_with_open(&self) -> f64 {
        let full = self.count.min(FULL - 1);
        let sum: f64 = self.open + self.closed[..full].iter().sum::<f64>();
        let (tail, tail_weight) = match self.count {
            FULL => (ALPHA * (self.tail + self.closed[FULL - 1]), ALPHA * (self.tail_weight + 1.0)),
            _ => (0.0, 0.0),
        };
        (sum + tail) / (full as f64 + 1.0 + tail_weight)
    }

    /// p, in loss events per packet. The open interval counts if p is then smaller. `None` before the first
    /// event.
    pub fn rate(&self) -> Option<f64> {
        Some(1.0 / self.mean()?.max(self.mean_with_open()).max(1.0))
    }
}
