//! Dynamic channels: the level of each wave, and the departure time of each packet.
//!
//! Waves are numbered by their end: wave w goes quiescent at the end of sub-slot w, counted from the
//! session's start, and is at level `w - K s + 1` in slot s. Therefore x, the number of sub-slots left to a
//! wave, is exact in integers: two levels in two slots with the same x have the same rate to the last bit.
//!
//! A wave's packets follow from closed forms only: packet j, counted from the last packet, leaves when the
//! integral over the rest of the wave is j plus a fraction. A query about any time therefore costs the same.

use super::Layering;
use super::config::{DynamicConfig, DynamicConfigError};
use super::wave::{Curve, Plateau, Shape};
use crate::machine::ChannelId;
use crate::time::{Duration, Instant};

/// Maximum channels of a session, the base included: limit of the short CCI (RFC 3738, section 5).
pub(super) const CHANNELS_MAX: u64 = 256;
/// Maximum packets of the base channel in a slot: the short CCI has 16-bit sequence numbers (RFC 3738,
/// section 2.2).
pub(super) const BASE_PACKETS_MAX: u64 = 1 << 16;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A time slot, counted from the session's start.
pub type Slot = u64;

/// Channels of an M2C or WEBRC session from the session's start on. A value without state, cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct DynamicChannels {
    curve: Curve,
    start: Instant,
    slot: Duration,
    per_slot: u64,
    /// N or Nd: dynamic levels above the base.
    dynamic: u64,
    /// T: dynamic channels, used cyclically.
    cycle: u64,
    quiescent: u64,
    /// Total rate in packets/s, if constant.
    total: Option<f64>,
    is_staggered: bool,
}

/// A wave: one use of a dynamic channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wave {
    /// Number of the wave: the sub-slot at whose end the wave goes quiescent.
    pub number: u64,
    /// Start of the first slot in which the wave's level is within the session's levels.
    pub begins: Instant,
    /// Time at which the wave goes quiescent.
    pub ends: Instant,
    /// Number of packets.
    pub packets: u64,
    /// Remainder after the last packet, in packets: in [0, 1).
    rest: f64,
    fed: Plateau,
    /// Packets after the fed stretch.
    after: f64,
}

/// Length of an epoch: WEBRC's half second (RFC 3738, section 4.1), or a tenth of a sub-slot if shorter.
const EPOCH: Duration = Duration::from_millis(500);
const EPOCHS: u64 = 10;

impl DynamicChannels {
    /// Returns the channels of a session whose first slot begins at `start`.
    ///
    /// # Errors
    /// Returns an error if the parameters are inconsistent.
    pub fn new(config: DynamicConfig, start: Instant) -> Result<Self, DynamicConfigError> {
        if !(0.1..=0.99).contains(&config.ratio) {
            return Err(DynamicConfigError::Ratio(config.ratio));
        }
        if config.packet_bytes == 0 {
            return Err(DynamicConfigError::PacketBytes);
        }
        if config.shape == Shape::Webrc && config.per_slot != 1 {
            return Err(DynamicConfigError::WebrcChannels(config.per_slot));
        }
        let slot_is_sound = (Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&config.slot)
            && config.per_slot > 0
            && config.slot.as_nanos().is_multiple_of(config.per_slot.into());
        if !slot_is_sound {
            return Err(DynamicConfigError::Slot { slot: config.slot, per_slot: config.per_slot });
        }
        let per_slot = u64::from(config.per_slot);
        let log = -libm::log(config.ratio);
        let base = config.base_rate.map_or(1.0, |rate| config.packets(rate));
        let max = config.packets(config.max_rate);
        let dynamic = dynamic_levels(config.shape, max / base, config.ratio);
        // Above the waves of the last slot, there must be a wave that begins.
        if dynamic <= per_slot {
            let levels = f64::from(config.per_slot) + 1.0;
            let least = base * libm::exp(log * (levels + 1.0)) / config.ratio;
            return Err(DynamicConfigError::Rates { base, max, least });
        }
        let cycle = dynamic.div_ceil(per_slot) * per_slot + per_slot * u64::from(config.quiescent_slots);
        if cycle >= CHANNELS_MAX {
            return Err(DynamicConfigError::Channels { channels: cycle + 1, max: CHANNELS_MAX });
        }
        let sub_slot = config.slot.as_secs_f64() / f64::from(config.per_slot);
        let channels = Self {
            curve: Curve::new(config.shape, base, log, sub_slot),
            start,
            slot: config.slot,
            per_slot,
            dynamic,
            cycle,
            quiescent: config.quiescent_slots.into(),
            total: config.is_constant.then_some(max),
            is_staggered: config.is_staggered,
        };
        match channels.base_per_slot() {
            packets if packets > BASE_PACKETS_MAX => Err(DynamicConfigError::BasePackets(packets)),
            _ => Ok(channels),
        }
    }

    /// T: number of dynamic channels. The CCI numbers dynamic channels from 0, and the base channel has
    /// number T (RFC 3738, section 2.2). Elsewhere the base is [`ChannelId::BASE`], followed by the dynamic
    /// channels.
    pub fn dynamic_channels(&self) -> u16 {
        u16::try_from(self.cycle).expect("checked to be below the channels of a session")
    }

    /// Q: slots of quiescence.
    pub fn quiescent_slots(&self) -> u64 {
        self.quiescent
    }

    /// K: waves that end in each slot.
    pub fn channels_per_slot(&self) -> u64 {
        self.per_slot
    }

    /// Returns the CTSI of a slot: the slot number modulo [`DynamicChannels::slots_per_cycle`].
    pub fn slot_index(&self, slot: Slot) -> u16 {
        u16::try_from(slot % self.slots_per_cycle()).expect("below the number of channels")
    }

    /// Slots per cycle, after which channels are reused. CTSI counts modulo this number.
    pub fn slots_per_cycle(&self) -> u64 {
        self.cycle / self.per_slot
    }

    /// Half of TSD.
    pub fn half_slot(&self) -> Duration {
        Duration::from_nanos(self.slot.as_nanos() / 2)
    }

    /// Returns the slot that contains an instant; the first slot if the instant is before the session's
    /// start.
    pub fn slot_at(&self, at: Instant) -> Slot {
        at.since(self.start).as_nanos() / self.slot.as_nanos()
    }

    /// Returns the epoch that contains an instant, counted from the session's start. All receivers of a
    /// session place epoch boundaries at the same packets.
    pub fn epoch_at(&self, at: Instant) -> u64 {
        at.since(self.start).as_nanos() / self.epoch().as_nanos()
    }

    /// Returns the half epoch that contains an instant, counted from the session's start.
    pub fn half_epoch_at(&self, at: Instant) -> u64 {
        at.since(self.start).as_nanos() / (self.epoch().as_nanos() / 2)
    }

    /// Length of an epoch: half a second, or a tenth of a sub-slot if shorter.
    pub fn epoch(&self) -> Duration {
        Duration::from_nanos((self.slot.as_nanos() / self.per_slot / EPOCHS).max(1)).min(EPOCH)
    }

    /// Returns the start of a slot.
    pub fn slot_start(&self, slot: Slot) -> Instant {
        self.start + self.slot.saturating_mul(slot)
    }

    /// Returns the wave at a level of a slot, from level 1 up.
    pub fn wave_at(&self, level: u16, slot: Slot) -> Wave {
        self.wave(slot * self.per_slot + u64::from(level).saturating_sub(1))
    }

    /// Returns a wave by number.
    pub fn wave(&self, number: u64) -> Wave {
        // First slot in which the wave's level is at most the highest level.
        let first = (number + 1).saturating_sub(self.dynamic).div_ceil(self.per_slot);
        let begins = self.slot_start(first);
        let ends = self.start + self.sub_slot().saturating_mul(number + 1);
        let from = self.sub_slots(ends.since(begins));
        let is_fed = self.total.is_some() && number + 1 == first * self.per_slot + self.dynamic;
        #[expect(clippy::cast_precision_loss, reason = "channels per slot are below 2^16")]
        let until = if is_fed { from - self.per_slot as f64 } else { from };
        let total = self.total.unwrap_or(0.0);
        let fed = Plateau { until, from, total, below: self.below(from) * self.curve.growth(until) };
        let after = self.curve.remaining(until);
        let mut wave = Wave { number, begins, ends, packets: 0, rest: 0.0, fed, after };
        let all = self.remaining(&wave, from);
        wave.rest = if self.is_staggered { golden(self.channel_number(number) + 1) } else { all.fract() };
        // A packet that would leave at the very start of the wave does not count: its integral is not
        // complete.
        wave.packets = integer(libm::ceil(all - wave.rest));
        wave
    }

    /// Returns the channel of a wave.
    pub fn channel_of(&self, wave: u64) -> ChannelId {
        ChannelId(self.channel_number(wave) + 1)
    }

    /// CN of a wave: the channel number in the CCI.
    pub fn channel_number(&self, wave: u64) -> u16 {
        u16::try_from(wave % self.cycle).expect("below the number of channels")
    }

    /// Returns the departure time of the packet of a wave that is followed by `left` packets.
    pub fn wave_departure(&self, wave: &Wave, left: u64) -> Instant {
        #[expect(clippy::cast_precision_loss, reason = "a wave has far fewer than 2^53 packets")]
        let x = self.x_of(wave, left as f64 + wave.rest);
        // The last packet must leave before the end of the wave.
        wave.ends - Duration::from_nanos(integer(x * self.sub_slot_nanos()).max(1))
    }

    /// Returns the number of packets of a wave that leave at an instant or later.
    pub fn wave_left(&self, wave: &Wave, at: Instant) -> u64 {
        if at <= wave.begins {
            return wave.packets;
        }
        let mut left = self.wave_left_about(wave, at);
        // The closed form and its inverse differ in the last bit. The inverse decides, because departure
        // times are computed with the inverse.
        while left < wave.packets && self.wave_departure(wave, left) >= at {
            left += 1;
        }
        while left > 0 && self.wave_departure(wave, left - 1) < at {
            left -= 1;
        }
        left
    }

    /// Returns the number of packets of a wave that leave at an instant or later, to within a packet.
    pub(super) fn wave_left_about(&self, wave: &Wave, at: Instant) -> u64 {
        let x = self.sub_slots(wave.ends.since(at.max(wave.begins)));
        integer(self.remaining(wave, x) - wave.rest + 1.0).min(wave.packets)
    }

    /// Fraction of a packet left until a wave's next departure: falls from 1 to 0 at the departure.
    pub fn wave_part(&self, wave: &Wave, at: Instant) -> f64 {
        let x = self.sub_slots(wave.ends.since(at.max(wave.begins)));
        let left = self.remaining(wave, x) - wave.rest;
        left - libm::floor(left)
    }

    /// Returns the number of packets of the base channel that leave before an instant.
    pub fn base_before(&self, at: Instant) -> u64 {
        let slot = self.slot_at(at);
        let origin = self.slot_start(slot);
        let sub_slots = self.sub_slots(at.since(origin));
        let packets = match self.curve.shape {
            Shape::Geometric => sub_slots,
            Shape::Webrc => -libm::expm1(-self.curve.log * sub_slots) / self.curve.log,
        };
        let per_slot = self.base_per_slot();
        let mut count = integer(self.curve.base * self.curve.sub_slot * packets).min(per_slot);
        while count < per_slot && origin + self.base_phase(count) < at {
            count += 1;
        }
        while count > 0 && origin + self.base_phase(count - 1) >= at {
            count -= 1;
        }
        slot * per_slot + count
    }

    /// Returns the departure time of packet `number` of the base channel, counted from the session's start.
    pub fn base_departure(&self, number: u64) -> Instant {
        let per_slot = self.base_per_slot();
        self.slot_start(number / per_slot) + self.base_phase(number % per_slot)
    }

    /// L: packets of the base channel in a slot. RFC 3738, section 2.2: `ceil(BCR_P TSD (P-1)/ln P)`.
    pub fn base_per_slot(&self) -> u64 {
        let slot = self.slot.as_secs_f64();
        let packets = match self.curve.shape {
            Shape::Geometric => self.curve.base * slot,
            Shape::Webrc => -libm::expm1(-self.curve.log) * self.curve.base * slot / self.curve.log,
        };
        integer(libm::ceil(packets - 1e-9)).max(1)
    }

    /// Returns the departure of packet k of the base channel as an offset from the slot's start, k below L.
    pub fn base_phase(&self, k: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 packets")]
        let packets = k as f64 / self.curve.base;
        let seconds = match self.curve.shape {
            Shape::Geometric => packets,
            Shape::Webrc => {
                let fallen = packets * self.curve.log / self.curve.sub_slot;
                -libm::log1p(-fallen) * self.curve.sub_slot / self.curve.log
            }
        };
        Duration::from_nanos(integer(libm::ceil(seconds * 1e9)))
    }

    /// P.
    pub fn ratio(&self) -> f64 {
        self.curve.growth(-1.0)
    }

    /// Length of a sub-slot in seconds.
    pub fn sub_slot_seconds(&self) -> f64 {
        self.curve.sub_slot
    }

    /// Mean of a rate that falls from 1 to P: (1 - P)/ln(1/P).
    pub fn mean_of_decay(&self) -> f64 {
        self.curve.steady
    }

    /// r: decay of a cumulative rate per second, ln(1/P)/tau.
    pub fn decay(&self) -> f64 {
        self.curve.log / self.curve.sub_slot
    }

    /// R0: rate of the base channel in packets/s, at the beginning of a slot.
    pub fn base_rate(&self) -> f64 {
        self.curve.base
    }

    fn remaining(&self, wave: &Wave, x: f64) -> f64 {
        if x <= wave.fed.until {
            return self.curve.remaining(x);
        }
        wave.after + self.curve.fed(&wave.fed, x)
    }

    fn x_of(&self, wave: &Wave, packets: f64) -> f64 {
        if packets <= wave.after {
            return self.curve.at(packets).min(wave.fed.until);
        }
        self.curve.fed_at(&wave.fed, packets - wave.after)
    }

    /// Factor that turns `P^-x` of the highest wave, with x = `from` at the start of the slot, into the rate
    /// of all levels below.
    fn below(&self, from: f64) -> f64 {
        match self.curve.shape {
            Shape::Geometric => self.curve.base * self.curve.growth(-1.0),
            // The base and the waves below fall together, by P in a slot.
            Shape::Webrc => self.curve.base * self.powers(from) / self.curve.growth(from),
        }
    }

    /// `1 + 1/P + .. + (1/P)^(terms-1)`.
    fn powers(&self, terms: f64) -> f64 {
        libm::expm1(self.curve.log * terms) / libm::expm1(self.curve.log)
    }

    /// Returns the rate of levels 0..=level at an instant in `slot`, the slot's end included.
    fn cumulative(&self, level: u16, at: Instant, slot: Slot) -> f64 {
        if let Some(total) = self.total
            && u64::from(level) == self.dynamic
        {
            return total;
        }
        let phase = at.since(self.slot_start(slot));
        match self.curve.shape {
            Shape::Geometric => {
                let ahead = self.sub_slot().saturating_mul(level.into());
                let x = Duration::from_nanos(ahead.as_nanos().saturating_sub(phase.as_nanos()));
                self.curve.base * self.curve.growth(self.sub_slots(x))
            }
            Shape::Webrc => {
                let fallen = self.curve.growth(-self.sub_slots(phase));
                self.curve.base * fallen * self.powers(f64::from(level) + 1.0)
            }
        }
    }

    fn sub_slot(&self) -> Duration {
        Duration::from_nanos(self.slot.as_nanos() / self.per_slot)
    }

    #[expect(clippy::cast_precision_loss, reason = "an hour of nanoseconds is below 2^53")]
    fn sub_slot_nanos(&self) -> f64 {
        self.sub_slot().as_nanos() as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "a wave's life is below 2^53 ns")]
    fn sub_slots(&self, time: Duration) -> f64 {
        time.as_nanos() as f64 / self.sub_slot_nanos()
    }
}

/// N or Nd for a maximum rate of `factor` times the base rate: RFC 3738, and `docs/errata/layering.md` for N.
pub(super) fn dynamic_levels(shape: Shape, factor: f64, ratio: f64) -> u64 {
    let log = -libm::log(ratio);
    let levels = match shape {
        Shape::Geometric => libm::ceil(libm::log(factor) / log - 1e-9),
        Shape::Webrc => libm::floor(libm::log1p(factor * (1.0 / ratio - 1.0)) / log + 1e-9) - 1.0,
    };
    integer(levels)
}

/// Returns a fraction of a packet for each channel: multiples of the golden ratio are spread evenly for any
/// number of channels.
fn golden(channel: u16) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits are left")]
    let part = (u64::from(channel).wrapping_mul(GOLDEN) >> 11) as f64;
    part / (1_u64 << 53) as f64
}

/// Returns the integer part; 0 for a negative value or NaN.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, which is meant")]
pub(super) fn integer(value: f64) -> u64 {
    value as u64
}

impl Layering for DynamicChannels {
    fn levels(&self) -> u16 {
        u16::try_from(self.dynamic + 1).expect("checked to be below the channels of a session")
    }

    fn epoch(&self, at: Instant) -> Option<u64> {
        Some(self.epoch_at(at))
    }

    fn next_boundary(&self, after: Instant) -> Option<Instant> {
        let sub_slot = self.sub_slot();
        let number = after.since(self.start).as_nanos() / sub_slot.as_nanos();
        let next = if after < self.start { 0 } else { number + 1 };
        Some(self.start + sub_slot.saturating_mul(next))
    }

    fn channel(&self, level: u16, at: Instant) -> ChannelId {
        match level {
            0 => ChannelId::BASE,
            _ => self.channel_of(self.slot_at(at) * self.per_slot + u64::from(level) - 1),
        }
    }

    fn packets(&self, level: u16, from: Instant, to: Instant) -> u64 {
        if level == 0 {
            return self.base_before(to).saturating_sub(self.base_before(from));
        }
        let wave = self.wave_at(level, self.slot_at(from));
        self.wave_left(&wave, from).saturating_sub(self.wave_left(&wave, to))
    }

    fn departure(&self, level: u16, from: Instant, n: u64) -> Instant {
        if level == 0 {
            return self.base_departure(self.base_before(from) + n);
        }
        let wave = self.wave_at(level, self.slot_at(from));
        match self.wave_left(&wave, from).checked_sub(n + 1) {
            Some(left) => self.wave_departure(&wave, left),
            None => self.next_boundary(from).unwrap_or(wave.ends),
        }
    }

    fn visit(&self, level: u16, from: Instant, to: Instant, see: &mut dyn FnMut(Instant, f64)) {
        let slot = self.slot_at(from);
        if level == 0 {
            for number in self.base_before(from)..self.base_before(to) {
                let at = self.base_departure(number);
                see(at, self.cumulative(0, at, slot));
            }
            return;
        }
        let wave = self.wave_at(level, slot);
        for left in (self.wave_left(&wave, to)..self.wave_left(&wave, from)).rev() {
            let at = self.wave_departure(&wave, left);
            see(at, self.cumulative(level, at, slot));
        }
    }

    fn cumulative_rate(&self, level: u16, at: Instant) -> f64 {
        self.cumulative(level, at, self.slot_at(at))
    }

    fn cumulative_rate_before(&self, level: u16, at: Instant) -> f64 {
        self.cumulative(level, at, self.slot_at(at - Duration::from_nanos(1)))
    }
}

#[cfg(test)]
mod tests;
