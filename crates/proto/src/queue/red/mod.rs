//! Random early detection: Floyd and Jacobson, *Random Early Detection Gateways for Congestion Avoidance*
//! (1993), as in ns-2, in the variants of 1999 and after 2001.

mod config;
#[cfg(test)]
mod tests;

use rand::Rng;

use super::{DropReason, Occupancy, Offered, ParameterError, Verdict};
use crate::Ecn;
use crate::rate::Rate;
use crate::rng::unit;
use crate::time::{Duration, Instant};

pub use config::{RedConfig, Thresholds, Weight};

/// RED state: the average, and the arrivals since the last draw.
#[derive(Clone, Debug)]
pub struct Red {
    config: RedConfig,
    rate: Rate,
    /// `w_q`.
    weight: f64,
    /// Thresholds in the unit of the average: packets or bytes.
    th_min: f64,
    th_max: f64,
    /// `avg`, over arrivals.
    average: f64,
    /// Whether the average was above `th_min` at the last arrival: draws have begun.
    above: bool,
    /// Time of the last arrival, for [`Weight::Over`].
    seen: Instant,
    /// Arrivals since the last drop or mark, including the current packet, and the bytes of these arrivals.
    count: u64,
    count_bytes: u64,
}

impl Red {
    /// Creates RED for a link of this rate and one-way delay. The average starts at 0.
    ///
    /// # Errors
    ///
    /// A parameter is invalid: the error names the parameter and the requirement.
    pub fn new(config: RedConfig, rate: Rate, delay: Duration) -> Result<Self, ParameterError> {
        config.check()?;
        let (min, max) = config.thresholds(rate);
        let unit = if config.average_in_bytes { f64::from(config.packet_bytes_mean) } else { 1.0 };
        Ok(Self {
            rate,
            weight: config.weight(rate, delay),
            th_min: min * unit,
            th_max: max * unit,
            config,
            average: 0.0,
            above: false,
            seen: Instant::ZERO,
            count: 0,
            count_bytes: 0,
        })
    }

    /// Returns the average queue: packets, or bytes if [`RedConfig::average_in_bytes`].
    pub fn average(&self) -> f64 {
        self.average
    }

    /// Changes the link's rate. Thresholds and weight stay; idle time counts at the new rate.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Decides on an arriving packet.
    pub fn admit(
        &mut self,
        now: Instant,
        occupancy: Occupancy,
        offered: Offered,
        draw: &mut impl Rng,
    ) -> Verdict {
        self.observe(now, occupancy);
        self.judge(occupancy, offered, draw)
    }

    /// Updates the average at an arrival.
    pub(super) fn observe(&mut self, now: Instant, occupancy: Occupancy) {
        let length = self.length(occupancy);
        self.update_average(now, occupancy.idle_since, length);
    }

    /// Decides on a packet after [`Red::observe`].
    pub(super) fn judge(&mut self, occupancy: Occupancy, offered: Offered, draw: &mut impl Rng) -> Verdict {
        self.count += 1;
        self.count_bytes += u64::from(offered.bytes);
        let mut verdict = self.test(self.length(occupancy), offered, draw);
        if self.config.limit.refuses(occupancy, offered) {
            verdict = Verdict::Drop(DropReason::Full);
        }
        if verdict != Verdict::Enqueue {
            self.count = 0;
            self.count_bytes = 0;
        }
        verdict
    }

    fn length(&self, occupancy: Occupancy) -> f64 {
        if self.config.average_in_bytes { occupancy.bytes as f64 } else { occupancy.packets.into() }
    }

    /// Adds an arrival to the average, after an empty arrival for each packet that the idle link could have
    /// sent.
    fn update_average(&mut self, now: Instant, idle_since: Option<Instant>, length: f64) {
        if let Weight::Over(time) = self.config.weight {
            let gap = now.since(self.seen).as_secs_f64() / time.as_secs_f64();
            self.average -= libm::expm1(-gap) * (length - self.average);
            self.seen = now;
            return;
        }
        let missed = idle_since.map_or(0, |since| self.packets_in(now.since(since)));
        self.average =
            self.average * power(1.0 - self.weight, missed.saturating_add(1)) + self.weight * length;
    }

    /// m: number of whole mean packets that the link sends in `time`.
    fn packets_in(&self, time: Duration) -> u64 {
        self.rate.bytes_in(time) / u64::from(self.config.packet_bytes_mean)
    }

    /// Tests the average, regardless of the limit.
    fn test(&mut self, length: f64, offered: Offered, draw: &mut impl Rng) -> Verdict {
        if self.average < self.th_min || length <= 1.0 {
            self.above = false;
            return Verdict::Enqueue;
        }
        let Some(probability) = self.base_probability() else {
            return self.signal(offered, !self.config.hard_drop, DropReason::Forced);
        };
        if !self.above {
            self.above = true;
            self.count = 1;
            self.count_bytes = offered.bytes.into();
            return Verdict::Enqueue;
        }
        if unit(draw) < self.spread(probability, offered.bytes) {
            return self.signal(offered, probability <= self.config.mark_p, DropReason::Early);
        }
        Verdict::Enqueue
    }

    /// Returns `p_b`, from the average alone; `None` if every packet is dropped.
    fn base_probability(&self) -> Option<f64> {
        let max_p = self.config.max_p;
        if self.average < self.th_max {
            Some(max_p * (self.average - self.th_min) / (self.th_max - self.th_min))
        } else if self.config.gentle && self.average < 2.0 * self.th_max {
            Some(max_p + (1.0 - max_p) * (self.average - self.th_max) / self.th_max)
        } else {
            None
        }
    }

    /// Returns `p_a`, which makes the gaps between draws uniform rather than geometric. In bytes, whole mean
    /// packets are counted.
    fn spread(&self, base: f64, bytes: u32) -> f64 {
        let mean = self.config.packet_bytes_mean;
        let count = if self.config.draw_by_bytes { self.count_bytes / u64::from(mean) } else { self.count };
        let expected = count as f64 * base;
        let spread = match (self.config.wait, expected) {
            (true, ..1.0) => 0.0,
            (true, ..2.0) => base / (2.0 - expected),
            (false, ..1.0) => base / (1.0 - expected),
            _ => 1.0,
        };
        if self.config.draw_by_bytes && spread < 1.0 {
            spread * f64::from(bytes) / f64::from(mean)
        } else {
            spread
        }
    }

    /// Signals congestion: a mark if the packet is ECN-capable and `may_mark`, otherwise a drop.
    fn signal(&self, offered: Offered, may_mark: bool, reason: DropReason) -> Verdict {
        if self.config.ecn && may_mark && offered.ecn != Ecn::NotCapable {
            Verdict::Mark
        } else {
            Verdict::Drop(reason)
        }
    }
}

/// Returns `base^exponent` by squaring: multiplications only, so the result is the same on every machine.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}
