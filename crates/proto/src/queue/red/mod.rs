//! Random early detection: Floyd and Jacobson, *Random Early Detection Gateways for Congestion Avoidance*
//! (1993), as in ns-2, in the variants of 1999 and after 2001.

#[cfg(test)]
mod tests;

use rand::Rng;

use super::{DropReason, Limit, Occupancy, Offered, ParameterError, Verdict, require};
use crate::Ecn;
use crate::rate::Rate;
use crate::rng::unit;
use crate::time::{Duration, Instant};

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

/// Parameters of RED. There is no "default RED": set every parameter, or start from a preset and name the
/// preset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// Limit of the waiting packets, regardless of the average. With a limit below `th_max`, tail drops
    /// dominate.
    pub limit: Limit,
    /// Range of averages in which packets are drawn.
    pub thresholds: Thresholds,
    /// Weight of an arrival in the average (`w_q`).
    pub weight: Weight,
    /// Probability of a draw as the average reaches `th_max`, before spreading (`max_p`; ns-2: `linterm_` = 1
    /// / `max_p`).
    pub max_p: f64,
    /// Whether the probability rises beyond `th_max` to 1 at twice `th_max`, instead of at once.
    pub gentle: bool,
    /// Whether draws wait 1/p packets, and at most 2/p: fewer consecutive draws.
    pub wait: bool,
    /// Whether the average is in bytes; thresholds stay in packets of `packet_bytes_mean` (ns-2:
    /// `queue_in_bytes_`).
    pub average_in_bytes: bool,
    /// Whether the probability of a draw is proportional to the packet's size (ns-2: `bytes_`).
    pub draw_by_bytes: bool,
    /// Bytes on the wire of a typical packet: the unit of the above, and of the packets that an idle link
    /// could have sent. A wrong value makes the idle correction wrong.
    pub packet_bytes_mean: u32,
    /// Whether a drawn packet is marked instead of dropped, if ECN-capable (RFC 3168; ns-2: `setbit_`).
    pub ecn: bool,
    /// Probability above which drawn packets are dropped all the same (ns-2: `mark_p_`). 1 always marks.
    pub mark_p: f64,
    /// Whether an ECN-capable packet is dropped as well above the range of draws. Otherwise, the packet is
    /// marked (Linux without `harddrop`).
    pub hard_drop: bool,
}

/// Range of averages in which packets are drawn, in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Thresholds {
    /// `th_min` and `th_max`.
    Fixed {
        /// Average below which no packets are drawn (`th_min`).
        min: f64,
        /// Average at which the probability is `max_p` (`th_max`).
        max: f64,
    },
    /// `th_min` is half of the packets that the link sends in this time, at least 5; `th_max` is three times
    /// `th_min`.
    Automatic(Duration),
}

/// Weight of one arrival in the average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weight {
    /// Constant weight, in (0, 1].
    Fixed(f64),
    /// Time constant of ten round-trip times: 1 - exp(-1 / (10 RTT C)). The round-trip time is 100 ms, or
    /// three times the link's delay plus a packet's sending time, if longer.
    Automatic,
    /// Time constant: an arrival after a gap has the weight 1 - exp(-gap / time constant). Idle time then
    /// needs no correction.
    Over(Duration),
}

impl RedConfig {
    /// Returns ns-2's parameters of 1999, with a limit in packets (ns-2's default is 50). No ECN.
    pub const fn ns1999(limit_packets: u32) -> Self {
        Self {
            limit: Limit::Packets(limit_packets),
            thresholds: Thresholds::Fixed { min: 5.0, max: 15.0 },
            weight: Weight::Fixed(0.002),
            max_p: 0.1,
            gentle: false,
            wait: true,
            average_in_bytes: false,
            draw_by_bytes: false,
            packet_bytes_mean: 500,
            ecn: false,
            mark_p: 0.1,
            hard_drop: true,
        }
    }

    /// Returns ns-2's parameters since 2001: gentle, in bytes, thresholds for 5 ms and weight from the link.
    /// No ECN.
    pub const fn after_2001(limit_packets: u32) -> Self {
        Self {
            thresholds: Thresholds::Automatic(Duration::from_millis(5)),
            weight: Weight::Automatic,
            gentle: true,
            average_in_bytes: true,
            draw_by_bytes: true,
            ..Self::ns1999(limit_packets)
        }
    }

    /// Returns the parameters with marking of ECN-capable packets.
    #[must_use]
    pub const fn with_ecn(self) -> Self {
        Self { ecn: true, ..self }
    }

    /// Checks the parameters; the error names an invalid parameter.
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        let unit = 0.0..=1.0;
        require(self.packet_bytes_mean > 0, "packet_bytes_mean", self.packet_bytes_mean.into(), "above 0")?;
        require(self.max_p > 0.0 && unit.contains(&self.max_p), "max_p", self.max_p, "in (0, 1]")?;
        require(unit.contains(&self.mark_p), "mark_p", self.mark_p, "in [0, 1]")?;
        if let Weight::Fixed(weight) = self.weight {
            require(weight > 0.0 && unit.contains(&weight), "weight", weight, "in (0, 1]")?;
        }
        if let Weight::Over(time) = self.weight {
            require(time > Duration::ZERO, "weight", time.as_secs_f64(), "longer than 0s")?;
        }
        if let Thresholds::Fixed { min, max } = self.thresholds {
            require(min >= 0.0 && min.is_finite(), "th_min", min, "0 or more packets")?;
            require(max > min && max.is_finite(), "th_max", max, "above th_min")?;
        }
        Ok(())
    }

    /// Returns `th_min` and `th_max` in packets on a link of this rate.
    pub(super) fn thresholds(&self, rate: Rate) -> (f64, f64) {
        match self.thresholds {
            Thresholds::Fixed { min, max } => (min, max),
            Thresholds::Automatic(target) => {
                let min = (target.as_secs_f64() * self.packets_per_second(rate) / 2.0).max(5.0);
                (min, 3.0 * min)
            }
        }
    }

    /// Returns the weight on a link of this rate and one-way delay; 0 if the weight depends on the gaps
    /// between arrivals.
    pub(super) fn weight(&self, rate: Rate, delay: Duration) -> f64 {
        match self.weight {
            Weight::Fixed(weight) => weight,
            Weight::Over(_) => 0.0,
            Weight::Automatic => {
                let capacity = self.packets_per_second(rate);
                let rtt = (3.0 * (delay.as_secs_f64() + 1.0 / capacity)).max(0.1);
                -libm::expm1(-1.0 / (10.0 * rtt * capacity))
            }
        }
    }

    /// Returns C: mean packets per second.
    fn packets_per_second(&self, rate: Rate) -> f64 {
        rate.packets_per_second(self.packet_bytes_mean.into())
    }
}
