//! Rule 5: losses by chance. A drop-tail queue loses packets where queues are long, and a policer loses the
//! more, the more is subscribed. Other losses (radio links, faulty cables) tell nothing about congestion.

use crate::measure::WeightedLine;
use crate::time::{Duration, Instant};

/// Memory in packets' time, in seconds, and time for which arrivals are counted before they are added.
const MEMORY: f64 = 20.0;
const RENEWAL: Duration = Duration::from_millis(10);
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
    /// Arrivals that are not in the regression yet, and the time of the last addition.
    arrivals: f64,
    renewed: Instant,
    /// Further losses that chance explains.
    credit: f64,
    /// Losses that were put down to chance.
    pub(super) count: u64,
}

impl Chance {
    /// Records a packet that met a short queue and arrived, at a level of `rate` packets per second.
    pub(super) fn arrived(&mut self, now: Instant, rate: f64) {
        self.arrivals += 1.0;
        let age = now.since(self.renewed);
        if age >= RENEWAL {
            self.renewed = now;
            self.line.age(libm::exp(-age.as_secs_f64() / MEMORY));
            self.line.add(core::mem::take(&mut self.arrivals), libm::log(rate), 0.0);
        }
    }

    /// Records packets that met a short queue and were lost.
    pub(super) fn lost(&mut self, rate: f64, packets: f64) {
        self.line.add(packets, libm::log(rate), 1.0);
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
