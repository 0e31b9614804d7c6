//! Who acknowledges: the receiver for which TCP's throughput would be least.

use core::net::IpAddr;

/// Another receiver becomes the acker when its throughput is below this part of the acker's: less would make
/// acker follow acker by chance.
const CLEARLY_LESS: f64 = 0.75;
/// The least loss rate that a report tells apart from none: it has 16 bits.
const LOSS_MIN: f64 = 1.0 / 65_536.0;

/// T, up to a factor that is the same for all: throughput at a round-trip time in seconds and a loss rate.
pub fn throughput(rtt: f64, loss: f64) -> f64 {
    let loss = loss.max(LOSS_MIN);
    1.0 / (rtt * libm::sqrt(loss) * (1.0 + 9.0 * loss * (1.0 + 32.0 * loss * loss)))
}

/// What a receiver said last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acker {
    /// Where its reports come from.
    pub address: IpAddr,
    /// From a packet to its report, in seconds.
    pub rtt: f64,
    /// The loss rate that it reports.
    pub loss: f64,
}

impl Acker {
    /// Whether it should take the place of `acker`.
    pub fn is_worse_than(&self, acker: &Self) -> bool {
        throughput(self.rtt, self.loss) < CLEARLY_LESS * throughput(acker.rtt, acker.loss)
    }
}
