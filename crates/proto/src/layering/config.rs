//! Parameters of dynamic channels, checked once.

use super::wave::Shape;
use crate::rate::Rate;
use crate::time::Duration;

/// P, TSD and Q of [`DynamicConfig::fine`].
const FINE_RATIO: f64 = 0.866;
const FINE_SLOT: Duration = Duration::from_secs(5);
const FINE_QUIESCENT_SLOTS: u16 = 60;

/// Configuration of [`super::DynamicChannels`].
///
/// Defaults are the values of RFC 3738 if defined there: P = 0.75, slots of 10 s, 300 s of quiescence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicConfig {
    pub(super) shape: Shape,
    pub(super) packet_bytes: u16,
    pub(super) base_rate: Option<Rate>,
    pub(super) max_rate: Rate,
    pub(super) ratio: f64,
    pub(super) slot: Duration,
    pub(super) per_slot: u16,
    pub(super) quiescent_slots: u16,
    pub(super) is_constant: bool,
    pub(super) is_staggered: bool,
}

/// Reason why a configuration of dynamic channels is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DynamicConfigError {
    /// P is not inside (0, 1), or so near to 1 that there would be thousands of levels.
    #[error("rate ratio {0}: it must be from 0.1 to 0.99")]
    Ratio(f64),
    /// Packets without bytes.
    #[error("packets of 0 bytes")]
    PacketBytes,
    /// A slot must be a whole number of nanoseconds for each of its channels, and at least a second.
    #[error(
        "slots of {slot} with {per_slot} channels each: a slot must be 1 s to 1 h, and a multiple of its channels"
    )]
    Slot {
        /// Length of the slot.
        slot: Duration,
        /// Channels that begin in each slot.
        per_slot: u16,
    },
    /// The base rate leaves no room for a level above it.
    #[error(
        "base rate {base:.3} packets/s and maximum rate {max:.3} packets/s: the maximum must be at least {least:.3}"
    )]
    Rates {
        /// Base rate in packets/s.
        base: f64,
        /// Maximum rate in packets/s.
        max: f64,
        /// Least maximum rate in packets/s.
        least: f64,
    },
    /// The base channel would send more packets in a slot than sequence numbers exist.
    #[error(
        "{0} packets of the base channel in a slot: at most 65536; lower the base rate or shorten the slots"
    )]
    BasePackets(u64),
    /// The WEBRC shape is defined for one channel per slot.
    #[error("{0} channels a slot: the WEBRC shape has one")]
    WebrcChannels(u16),
    /// More channels than a session can have.
    #[error("{channels} channels: at most {max}; shorten the quiescent time or lengthen the slots")]
    Channels {
        /// Channels needed.
        channels: u64,
        /// Maximum number of channels.
        max: u64,
    },
    /// Fewer groups than the coarsest levels need.
    #[error(
        "{groups} groups are too few for these rates with a silence of {silence}: at least {least} are needed; a shorter silence or a lower \
         maximum rate needs fewer"
    )]
    Groups {
        /// Groups that are allowed.
        groups: u16,
        /// Least number of groups; above 256 if there is none.
        least: u64,
        /// Time for which a channel is quiescent.
        silence: Duration,
    },
}

impl DynamicConfig {
    /// Returns the configuration of channels with packets of `packet_bytes` of UDP payload, up to `max_rate`
    /// in total, in the geometric shape.
    pub fn new(packet_bytes: u16, max_rate: Rate) -> Self {
        Self {
            shape: Shape::Geometric,
            packet_bytes,
            base_rate: None,
            max_rate,
            ratio: 0.75,
            slot: Duration::from_secs(10),
            per_slot: 1,
            quiescent_slots: 30,
            is_constant: false,
            is_staggered: true,
        }
    }

    /// Returns a finer configuration for M2C: levels half as far apart, and slots half as long, so that rates
    /// fall as fast and channels rest as long. A join raises the rate by a factor of 1.15, and the path loses
    /// half as much because of a join. A receiver subscribes to twice as many channels. The total rate is
    /// always the maximum rate: whole levels alone would exceed it by up to a seventh as a slot begins.
    pub fn fine(packet_bytes: u16, max_rate: Rate) -> Self {
        Self::new(packet_bytes, max_rate)
            .with_ratio(FINE_RATIO)
            .with_slot(FINE_SLOT)
            .with_quiescent_slots(FINE_QUIESCENT_SLOTS)
            .with_constant_rate(true)
    }

    /// Sets the shape of the rates. Default: geometric.
    #[must_use]
    pub fn with_shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// R0 or `BCR_P`: sets the rate of the base channel. Default: one packet per second, as in RFC 3738.
    #[must_use]
    pub fn with_base_rate(mut self, rate: Rate) -> Self {
        self.base_rate = Some(rate);
        self
    }

    /// P: sets the factor by which a rate falls in a slot, or in each sub-slot. Default: 0.75, as in RFC
    /// 3738.
    #[must_use]
    pub fn with_ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// TSD: sets the length of a slot. Default: 10 s, as in RFC 3738.
    #[must_use]
    pub fn with_slot(mut self, slot: Duration) -> Self {
        self.slot = slot;
        self
    }

    /// K: sets the number of channels that go quiescent, and begin, at each slot. Default: 1, as in WEBRC.
    #[must_use]
    pub fn with_channels_per_slot(mut self, channels: u16) -> Self {
        self.per_slot = channels;
        self
    }

    /// Q: sets the number of slots of silence before a channel is reused, so that slow leaves have taken
    /// effect. Default: 30, which is RFC 3738's 300 s.
    #[must_use]
    pub fn with_quiescent_slots(mut self, slots: u16) -> Self {
        self.quiescent_slots = slots;
        self
    }

    /// Sets whether the newest wave is fed in its first slot so that the total rate is always the maximum
    /// rate (RFC 3738, section 2). Default: no.
    #[must_use]
    pub fn with_constant_rate(mut self, constant: bool) -> Self {
        self.is_constant = constant;
        self
    }

    /// Sets whether each wave begins with a different fraction of a packet, so that waves do not send at the
    /// same time. Default: yes.
    #[must_use]
    pub fn with_stagger(mut self, stagger: bool) -> Self {
        self.is_staggered = stagger;
        self
    }

    /// The shape of the rates.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// UDP payload of a full packet in bytes.
    pub fn packet_bytes(&self) -> u16 {
        self.packet_bytes
    }

    /// R0 or `BCR_P`.
    pub fn base_rate(&self) -> Rate {
        let one_packet = Rate::from_bits(8 * u64::from(self.packet_bytes.max(1)));
        self.base_rate.or(one_packet).expect("a packet has bits")
    }

    /// Total rate of all channels.
    pub fn max_rate(&self) -> Rate {
        self.max_rate
    }

    /// P.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// TSD.
    pub fn slot(&self) -> Duration {
        self.slot
    }

    /// K.
    pub fn channels_per_slot(&self) -> u16 {
        self.per_slot
    }

    /// Q.
    pub fn quiescent_slots(&self) -> u16 {
        self.quiescent_slots
    }

    /// Whether the total rate is constant.
    pub fn is_constant(&self) -> bool {
        self.is_constant
    }

    /// Whether each wave begins with a different fraction of a packet.
    pub fn is_staggered(&self) -> bool {
        self.is_staggered
    }

    /// Converts a rate to packets/s.
    pub(crate) fn packets(&self, rate: Rate) -> f64 {
        rate.packets_per_second(self.packet_bytes.into())
    }
}
