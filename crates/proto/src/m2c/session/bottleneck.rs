//! Rule 3: whose bottleneck. Estimates the rate of the bottleneck, and the part of other traffic.
//!
//! While the bottleneck is busy, two packets that left g seconds apart arrive a = 1/mu + z g apart: the
//! second packet's transmission time, and that of the packets of others between, which have a part z of the
//! bottleneck's rate mu. Least squares over such pairs give both; the schedule supplies g without a
//! timestamp.

use crate::measure::WeightedLine;
use crate::time::{Duration, Instant};

/// Memory of the sums, in seconds, and time after which the sums age and the estimate is renewed.
const MEMORY: f64 = 3.0;
const RENEWAL: Duration = Duration::from_millis(10);
/// Minimum number of pairs.
const PAIRS: u32 = 40;
/// Minimum variance of g, as a part of the mean square of g.
const SPREAD: f64 = 0.001;
/// Minimum queueing delay of both packets for a busy bottleneck: this time, or two packets.
const BUSY: f64 = 0.002;
const BUSY_GAPS: f64 = 2.0;
/// Maximum time between the departures, in mean gaps.
const PAIR_GAPS: f64 = 8.0;
/// Growth of the bound per second in which no packet waits, maximum growth, and seconds without growth (a
/// slot). A rate just above the estimate makes no queue that shows. If the bottleneck carries more than
/// estimated, such a rate does not reveal that either.
const GROWTH: f64 = 0.004;
const GROWTH_MAX: f64 = 0.1;
const UNSEEN: f64 = 5.0;
/// Upper limits of others' part and of the remaining deviation for a bottleneck of the session's own. Blurred
/// clocks lower the slope, and raise the deviation.
const ALONE: Limits = Limits { others: 0.1, deviation: 0.5 };
/// Upper limits for a bottleneck that other traffic hardly uses: the rate still bounds joins.
const BOUNDED: Limits = Limits { others: 0.3, deviation: 0.7 };
/// Minimum depth of the queue of a session's own bottleneck: packets, and seconds. A shallower queue loses
/// packets before it shows.
const DEPTH_PACKETS: f64 = 6.0;
const DEPTH: f64 = 0.005;
/// Factor by which the depth may fall between two successive loss events.
const DEPTH_KEPT: f64 = 0.8;

struct Limits {
    others: f64,
    deviation: f64,
}

/// Estimate of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::m2c) struct Estimate {
    /// mu: packets per second.
    pub(in crate::m2c) rate: f64,
    /// Slope of arrivals over departures: others' part, and packets lost by chance.
    slope: f64,
    /// rho: standard deviation of arrivals from the line, in packets' times.
    deviation: f64,
}

/// Regression of arrival gaps on departure gaps, and the depth of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bottleneck {
    /// Last packet: departure, arrival, queueing delay.
    last: Option<(Instant, Instant, f64)>,
    /// Time of the last renewal.
    renewed: Instant,
    /// Arrival of the last packet that waited in the queue.
    busy: Instant,
    pairs: u32,
    /// Arrival gaps over departure gaps, in seconds.
    line: WeightedLine,
    estimate: Option<Estimate>,
    /// D: queueing delay at which packets are lost, in seconds, once known.
    depth: Option<f64>,
}

impl Bottleneck {
    /// Records a packet that left at `left`, arrived at `now` and waited `wait` seconds, at a level of `rate`
    /// packets per second.
    pub(super) fn record(&mut self, now: Instant, left: Instant, wait: f64, rate: f64) {
        if let Some(depth) = &mut self.depth {
            *depth = depth.max(wait);
        }
        let Some((earlier, came, waited)) = self.last.replace((left, now, wait)) else { return };
        let g = left.since(earlier).as_secs_f64();
        let is_busy = wait.min(waited) > BUSY.max(BUSY_GAPS / rate);
        if is_busy {
            self.busy = now;
        }
        if is_busy && earlier < left && g * rate < PAIR_GAPS {
            self.pairs = self.pairs.saturating_add(1);
            let age = now.since(self.renewed);
            if age >= RENEWAL {
                self.line.age(libm::exp(-age.as_secs_f64() / MEMORY));
            }
            self.line.add(1.0, g, now.since(came).as_secs_f64());
            if age >= RENEWAL {
                self.renewed = now;
                self.estimate = Estimate::of(&self.line).filter(|_| self.pairs >= PAIRS);
            }
        }
    }

    /// Records a loss event of packets that waited up to `wait` seconds.
    pub(super) fn on_event(&mut self, wait: f64) {
        self.depth = Some(self.depth.map_or(wait, |depth| wait.max(DEPTH_KEPT * depth)));
    }

    /// D: depth of the queue in seconds; infinite until a packet was lost.
    pub(super) fn depth(&self) -> f64 {
        self.depth.unwrap_or(f64::INFINITY)
    }

    /// Returns the estimate, once known.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        self.estimate
    }

    /// Returns the rate of the bottleneck, if the session is alone. `chance` is the part of packets
    /// lost by chance.
    pub(super) fn own_rate(&self, chance: f64) -> Option<f64> {
        let deep = |rate: f64| self.depth() >= (DEPTH_PACKETS / rate).max(DEPTH);
        self.estimate
            .filter(|found| found.is_within(chance, &ALONE) && deep(found.rate))
            .map(|found| found.rate)
    }

    /// Returns the rate of the bottleneck in packets per second that bounds joins at `now`, by the clock of
    /// arrivals, if other traffic has a small part.
    pub(super) fn bound(&self, now: Instant, chance: f64) -> Option<f64> {
        let found = self.estimate.filter(|found| found.is_within(chance, &BOUNDED))?;
        let unseen = now.since(self.busy).as_secs_f64() - UNSEEN;
        Some(found.rate * (1.0 + (GROWTH * unseen).clamp(0.0, GROWTH_MAX)))
    }

    /// Whether others have so small a part that a loss at a long queue may be chance.
    pub(super) fn is_lonely(&self, chance: f64) -> bool {
        self.estimate.is_some_and(|found| found.others(chance) < ALONE.others)
    }

    /// Discards the regression, because the bottleneck changed.
    pub(super) fn forget(&mut self) {
        *self = Self { depth: self.depth, ..Self::default() };
    }
}

impl Estimate {
    /// Returns the estimate; `None` if departures are too even, or arrivals make no sense.
    fn of(pairs: &WeightedLine) -> Option<Self> {
        let line = pairs.rising(SPREAD).filter(|line| line.intercept > 0.0)?;
        let (rate, deviation) = (1.0 / line.intercept, line.deviation / line.intercept);
        Some(Self { rate, slope: line.slope, deviation })
    }

    /// z: others' part. Packets lost by chance behind the bottleneck took its time.
    pub(in crate::m2c) fn others(&self, chance: f64) -> f64 {
        (self.slope - chance / (1.0 - chance)).max(0.0)
    }

    fn is_within(&self, chance: f64, limits: &Limits) -> bool {
        self.others(chance) < limits.others && self.deviation < limits.deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_while_no_packet_waits() {
        let (mut bottleneck, mu) = (Bottleneck::default(), 100.0);
        let at = |seconds: f64| Instant::ZERO + Duration::from_secs_f64(seconds);
        // Packets leave 2 to 14 ms apart, and arrive 10 ms apart from a queue.
        let mut left = 0.0;
        for packet in 0..400_u32 {
            left += 0.002 + 0.003 * f64::from(packet % 5);
            bottleneck.record(at(1.0 + f64::from(packet) / mu), at(left), 0.05, 100.0);
        }
        let bound = |seconds: f64| bottleneck.bound(at(1.0 + 399.0 / mu + seconds), 0.0).unwrap();
        assert!((bound(0.0) - mu).abs() < 1.0, "{}", bound(0.0));
        assert!((bound(UNSEEN) - bound(0.0)).abs() < 1e-6);
        assert!((bound(UNSEEN + 10.0) / bound(0.0) - 1.04).abs() < 1e-6);
        assert!((bound(UNSEEN + 100.0) / bound(0.0) - 1.1).abs() < 1e-6);
    }
}
