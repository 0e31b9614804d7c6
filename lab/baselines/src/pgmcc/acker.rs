//! Acker: the receiver with the lowest TCP throughput.

use core::net::IpAddr;

/// Another receiver becomes the acker if its throughput is below this fraction of the acker's. A higher
/// fraction would cause random switches between ackers.
const CLEARLY_LESS: f64 = 0.75;
/// Minimum nonzero loss rate of a report: the field has 16 bits.
const LOSS_MIN: f64 = 1.0 / 65_536.0;

/// Returns T, the throughput at a round-trip time in seconds and a loss rate, up to a constant factor.
pub fn throughput(rtt: f64, loss: f64) -> f64 {
    let loss = loss.max(LOSS_MIN);
    1.0 / (rtt * libm::sqrt(loss) * (1.0 + 9.0 * loss * (1.0 + 32.0 * loss * loss)))
}

/// Last report of a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acker {
    /// Source address of the reports.
    pub address: IpAddr,
    /// Time from a packet to its report, in seconds.
    pub rtt: f64,
    /// Reported loss rate.
    pub loss: f64,
}

impl Acker {
    /// Whether this receiver should replace `acker`.
    pub fn is_worse_than(&self, acker: &Self) -> bool {
        throughput(self.rtt, self.loss) < CLEARLY_LESS * throughput(acker.rtt, acker.loss)
    }
}
