//! Rule 5: losses by chance. A drop-tail queue loses packets where queues are long, and a policer loses the
//! more, the more is subscribed. Other losses (radio links, faulty cables) tell nothing about congestion.

use crate::measure::WeightedLine;

/// Memory in packets' time, in seconds.
const MEMORY: f64 = 20.0;
/// Minimum number of packets before a part is known.
const PACKETS: f64 = 50.0;
/// Credit for each packet in expected losses, and maximum of the credit.
const CREDIT: f64 = 1.5;
const CREDIT_MAX: f64 = 12.0;
/// Maximum part lost by chance: above, losses are congestion.
const CHANCE_MAX: f64 = 0.2;
/// Maximum slope of the lost part over the logarithm of the rate, with this many standard errors more.
const SLOPE_MAX: f64 = 0.05;
const ERRORS: f64 = 2.0;

/// Packets that met a short queue: regression of "lost" on the logarithm of the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chance {
    line: WeightedLine,
    /// Further losses that chance explains.
    credit: f64,
    /// Losses that were put down to chance.
    pub(super) count: u64,
}

impl Chance {
    /// Adds packets that met a short queue, `seconds` after the previous packets, at a rate of logarithm `x`.
    pub(super) fn add(&mut self, seconds: f64, x: f64, lost: bool, packets: f64) {
        let kept = libm::exp(-seconds / MEMORY);
        self.line.add(kept, packets, x, f64::from(u8::from(lost)));
    }

    /// p0: part of packets lost by chance.
    pub(super) fn part(&self) -> f64 {
        if self.line.weight < PACKETS { 0.0 } else { self.line.y / self.line.weight }
    }

    /// Adds the credit of a packet.
    pub(super) fn earn(&mut self) {
        self.credit = (self.credit + CREDIT * self.part()).min(CREDIT_MAX);
    }

    /// Whether `lost` packets are lost by chance: the queue was short, or the session is alone and the credit
    /// suffices.
    pub(super) fn explains(&mut self, lost: u64, is_short: bool, is_alone: bool) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 packets")]
        let losses = lost as f64;
        let is_covered = is_alone && self.credit >= losses;
        let is_chance = (is_short || is_covered) && self.part() <= CHANCE_MAX && !self.grows_with_rate();
        if is_chance {
            self.credit = (self.credit - losses).max(0.0);
            self.count += lost;
        }
        is_chance
    }

    /// Whether more is lost at higher rates, as behind a policer.
    fn grows_with_rate(&self) -> bool {
        let slope = self.line.slope(1e-6).filter(|_| self.line.weight >= PACKETS);
        slope.is_some_and(|(slope, error)| slope > SLOPE_MAX + ERRORS * error)
    }
}
