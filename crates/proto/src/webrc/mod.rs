//! WEBRC: wave and equation based rate control (RFC 3738).
//!
//! The sender is [`crate::layering::DynamicSender`] over channels of [`crate::layering::Shape::Webrc`]. A
//! receiver measures the loss event rate, and derives the multicast round-trip time from join times. TCP's
//! throughput equation gives the target rate. The receiver joins the next wave if the target rate permits.

mod receiver;
#[cfg(test)]
mod tests;

pub use receiver::{WebrcReceiver, WebrcReceiverConfig, WebrcStatus};

/// Nu and Delta: smoothing over time and over losses.
const NU: f64 = 0.3;
const DELTA: f64 = 0.3;
/// G = Nu EL/TSD, with EL = TSD/20.
const G: f64 = NU / 20.0;

/// `LOSSP`, the inverse of the mean number of packets between loss events.
#[derive(Clone, Copy, Debug)]
pub struct LossEstimator {
    /// Packets since the loss event began.
    w: f64,
    x: f64,
    y: f64,
    z: f64,
}

impl LossEstimator {
    /// Returns an estimator with the initial estimate `loss`.
    pub fn new(loss: f64) -> Self {
        Self { w: 0.0, x: 0.0, y: 0.0, z: 1.0 / loss }
    }

    /// Adds packets, received or lost.
    pub fn packets(&mut self, packets: u64) {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 packets")]
        let packets = packets as f64;
        self.w += packets;
    }

    /// Begins a loss event.
    pub fn event(&mut self) {
        self.x += self.w;
        self.w = 0.0;
        self.y += 1.0;
    }

    /// Ends an epoch.
    pub fn epoch(&mut self) {
        self.z = smoothed(self.z, self.x, G * self.y, G);
        self.x *= 1.0 - G;
        self.y *= 1.0 - G;
    }

    /// `LOSSP`.
    pub fn rate(&self) -> f64 {
        let until_now = smoothed(self.z, self.x, self.y, 1.0);
        let with_open = smoothed(self.z, self.x + self.w + 1.0, self.y + 1.0, 1.0);
        1.0 / until_now.max(with_open).max(1.0)
    }
}

/// `Z (1-Delta)^n + f X/(n+1) (1-(1-Delta)^(n+1))`, for n loss events with `x` packets in total.
fn smoothed(z: f64, x: f64, n: f64, f: f64) -> f64 {
    let kept = libm::pow(1.0 - DELTA, n);
    z * kept + f * x / (n + 1.0) * (1.0 - kept * (1.0 - DELTA))
}

/// `REQN` in packets per second: RFC 3738, section 4.9.
pub fn equation(rtt: f64, loss: f64) -> f64 {
    let root = libm::sqrt(loss);
    1.0 / (rtt * root * (0.816 + 7.35 * loss * (1.0 + 32.0 * loss * loss)))
}

/// Returns the loss event rate at which the equation gives `rate`: the equation falls as loss rises.
pub(super) fn loss_for(rtt: f64, rate: f64) -> f64 {
    // Bisection over the exponent, from 10^-12 to 1.
    let (mut low, mut high) = (-12.0_f64, 0.0_f64);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if equation(rtt, libm::pow(10.0, middle)) > rate { low = middle } else { high = middle }
    }
    libm::pow(10.0, high)
}

#[cfg(test)]
mod loss_tests {
    use super::*;

    #[test]
    fn the_equation_gives_the_published_number() {
        assert!((equation(0.1, 0.01) - 112.4).abs() < 0.1);
        assert!((equation(0.05, loss_for(0.05, 321.0)) - 321.0).abs() < 1e-6);
    }

    #[test]
    fn steady_losses_give_their_rate() {
        let mut estimator = LossEstimator::new(0.5);
        for _ in 0..2_000 {
            // Two events of 50 packets in each epoch.
            for _ in 0..2 {
                estimator.packets(50);
                estimator.event();
            }
            estimator.epoch();
        }
        let rate = estimator.rate();
        assert!((rate * 50.0 - 1.0).abs() < 0.1, "{rate} for 0.02");
    }

    #[test]
    fn a_reset_is_what_is_said() {
        let estimator = LossEstimator::new(0.01);
        assert!((estimator.rate() - 0.01).abs() < 1e-12);
    }

    #[test]
    fn a_long_time_without_loss_lowers_the_rate() {
        let mut estimator = LossEstimator::new(0.01);
        let before = estimator.rate();
        for _ in 0..200 {
            estimator.packets(500);
            estimator.epoch();
        }
        assert!(estimator.rate() < before / 10.0);
    }
}
