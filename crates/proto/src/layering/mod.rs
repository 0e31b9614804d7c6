//! Layers: channels with rates over time, and the assignment of a buffer's parts to channels.
//!
//! * [`DynamicChannels`] is the sending schedule of M2C and WEBRC: the rate of each channel falls, so that a
//!   receiver slows down without any action;
//! * [`DynamicSender`] sends on these channels, packet by packet;
//! * [`Layering`] is the interface a [`sequencer`] needs from these or any other layers: channels only, never
//!   bytes.
//!
//! Intervals of time are half-open: a packet that leaves at `to` is not in `from..to`.

pub mod ceiling;
mod channels;
pub(crate) mod clock;
mod config;
pub mod demand;
mod fit;
pub(crate) mod held;
#[cfg(test)]
#[path = "tests/path.rs"]
pub(crate) mod path;
mod sender;
pub mod sequencer;
pub(crate) mod spacing;
pub mod turns;
mod wave;

pub use self::channels::{DynamicChannels, Slot, Wave};
pub use self::config::{DynamicConfig, DynamicConfigError};
pub use self::sender::DynamicSender;
pub use self::wave::Shape;
pub use crate::control::Layering;

use headwater_wire::extensions::Levels;

use self::turns::Schedule;
use crate::machine::ChannelId;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Levels 0..=`ceiling` of other layers: the levels sent by a sender with a [ceiling](ceiling::Ceiling).
#[derive(Clone, Copy)]
pub(crate) struct SentLevels<'a> {
    layering: &'a dyn Layering,
    ceiling: u16,
}

impl<'a> SentLevels<'a> {
    /// Returns the sent levels of a layering, if there is a layering.
    pub(crate) fn of(layering: Option<&'a dyn Layering>, levels: Option<Levels>) -> Option<Self> {
        let ceiling = levels.map_or(u16::MAX, |levels| levels.ceiling.into());
        layering.map(|layering| Self { layering, ceiling })
    }
}

impl Layering for SentLevels<'_> {
    fn levels(&self) -> u16 {
        self.layering.levels().min(self.ceiling.saturating_add(1))
    }

    fn next_boundary(&self, after: Instant) -> Option<Instant> {
        self.layering.next_boundary(after)
    }

    fn channel(&self, level: u16, at: Instant) -> ChannelId {
        self.layering.channel(level, at)
    }

    fn packets(&self, level: u16, from: Instant, to: Instant) -> u64 {
        self.layering.packets(level, from, to)
    }

    fn departure(&self, level: u16, from: Instant, n: u64) -> Instant {
        self.layering.departure(level, from, n)
    }

    fn cumulative_rate(&self, level: u16, at: Instant) -> f64 {
        self.layering.cumulative_rate(level, at)
    }

    fn most_packets(&self, interval: Duration) -> Option<f64> {
        self.layering.most_packets(interval)
    }

    fn epoch(&self, at: Instant) -> Option<u64> {
        self.layering.epoch(at)
    }

    fn visit(&self, level: u16, from: Instant, to: Instant, see: &mut dyn FnMut(Instant, f64)) {
        self.layering.visit(level, from, to, see);
    }

    fn cumulative_rate_before(&self, level: u16, at: Instant) -> f64 {
        self.layering.cumulative_rate_before(level, at)
    }
}

/// Levels with constant channels and rates: channel n is level n. Every such set of levels is a [`Layering`].
pub trait Unchanging: Schedule {
    /// Returns the rate of levels 0..=`level`, in packets per second.
    fn rate(&self, level: u16) -> f64;
}

/// Layers of constant rate, one channel each: channel n is level n.
#[derive(Clone, Debug)]
pub struct StaticLayers {
    /// Packet interval and rate of each layer.
    periods: Vec<Period>,
    start: Instant,
}

/// The time between two packets of a layer is `bits / rate` seconds.
#[derive(Clone, Copy, Debug)]
struct Period {
    bits: u64,
    rate: Rate,
    /// Rate of all layers up to this layer, in bit/s.
    cumulative: u64,
}

impl StaticLayers {
    /// Returns layers with these rates, of packets of `packet_bytes`, from `start` on. Layer i is shifted by
    /// i/n of its packet interval, for n layers, so that the layers do not send at the same time.
    ///
    /// # Panics
    /// Panics if there is no layer, or if there are more than 65 535 layers, or if packets are empty.
    pub fn new(rates: &[Rate], packet_bytes: u16, start: Instant) -> Self {
        assert!(!rates.is_empty() && rates.len() <= usize::from(u16::MAX), "{} layers", rates.len());
        assert!(packet_bytes > 0, "packets have bytes");
        let bits = u64::from(packet_bytes) * 8;
        let mut cumulative = 0_u64;
        let periods = rates
            .iter()
            .map(|rate| {
                cumulative = cumulative.saturating_add(rate.as_bits());
                Period { bits, rate: *rate, cumulative }
            })
            .collect();
        Self { periods, start }
    }
}

impl Schedule for StaticLayers {
    fn level_count(&self) -> u16 {
        u16::try_from(self.periods.len()).expect("checked by the constructor")
    }

    fn nth(&self, level: u16, number: u64) -> Instant {
        let Period { bits, rate, .. } = self.periods[usize::from(level)];
        let levels = self.periods.len() as u128;
        let position = (u128::from(number) * levels + u128::from(level)) * u128::from(bits) * 1_000_000_000;
        // A packet that `before` does not count yet at t leaves at t or later.
        let nanos = position / (u128::from(rate.as_bits()) * levels);
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Packet k leaves at `(k + level/levels) * bits / rate`.
    fn before(&self, level: u16, at: Instant) -> u64 {
        let Period { bits, rate, .. } = self.periods[usize::from(level)];
        let elapsed = u128::from(at.since(self.start).as_nanos());
        // The number of k with (k + level/levels) * bits * 10^9 / rate < elapsed.
        let levels = self.periods.len() as u128;
        let unit = u128::from(bits) * 1_000_000_000;
        let position = elapsed * u128::from(rate.as_bits()) * levels;
        let phase = u128::from(level) * unit;
        u64::try_from(position.saturating_sub(phase).div_ceil(unit * levels)).unwrap_or(u64::MAX)
    }

    fn rate_most(&self, level: u16) -> f64 {
        self.rate(level)
    }
}

impl Unchanging for StaticLayers {
    fn rate(&self, level: u16) -> f64 {
        let Period { bits, cumulative, .. } = self.periods[usize::from(level)];
        #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
        let rate = cumulative as f64 / bits as f64;
        rate
    }
}

impl<L: Unchanging> Layering for L {
    fn levels(&self) -> u16 {
        self.level_count()
    }

    fn next_boundary(&self, _after: Instant) -> Option<Instant> {
        None
    }

    fn channel(&self, level: u16, _at: Instant) -> ChannelId {
        ChannelId(level)
    }

    fn packets(&self, level: u16, from: Instant, to: Instant) -> u64 {
        self.before(level, to).saturating_sub(self.before(level, from))
    }

    fn departure(&self, level: u16, from: Instant, n: u64) -> Instant {
        self.nth(level, self.before(level, from).saturating_add(n))
    }

    fn cumulative_rate(&self, level: u16, _at: Instant) -> f64 {
        self.rate(level)
    }

    fn cumulative_rate_before(&self, level: u16, _at: Instant) -> f64 {
        self.rate(level)
    }
}
