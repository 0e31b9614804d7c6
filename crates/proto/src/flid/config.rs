//! The numbers that make a FLID session, and what a receiver may be told.

use crate::rate::Rate;
use crate::time::Duration;

/// Whether layers stay on their channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// FLID-SL: each level is one channel for good.
    Static,
    /// FLID-DL: a channel goes down by a level in each slot.
    Dynamic,
}

/// Configuration of [`super::Layers`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    pub(super) kind: Kind,
    pub(super) packet_bytes: u16,
    pub(super) max_rate: Rate,
    pub(super) base_rate: Option<Rate>,
    pub(super) ratio: f64,
    pub(super) slot: Duration,
    pub(super) leave: Duration,
    pub(super) deaf_slots: u16,
}

/// Why numbers make no FLID session.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Levels too near to each other, or too far apart.
    #[error("rate ratio {0}: it must be from 1.05 to 4")]
    Ratio(f64),
    /// Packets without bytes.
    #[error("packets of 0 bytes")]
    PacketBytes,
    /// Slots too short for joins, or too long to follow anything.
    #[error("slots of {0}: they must be from 50 ms to 1 min")]
    Slot(Duration),
    /// Receivers tell slots by packets of the base channel.
    #[error("a base rate of {base:.3} packets/s: it must be at least {least:.3}, one packet in a slot")]
    BaseRate {
        /// Base rate in packets/s.
        base: f64,
        /// Least base rate in packets/s.
        least: f64,
    },
    /// There is no room for a level above the base.
    #[error("base rate {base:.3} packets/s and maximum rate {max:.3} packets/s: the maximum must be higher")]
    Rates {
        /// Base rate in packets/s.
        base: f64,
        /// Maximum rate in packets/s.
        max: f64,
    },
    /// More dynamic channels than slot indices tell apart.
    #[error(
        "{channels} dynamic channels: at most {most}; raise the base rate or the ratio, or shorten the leave latency"
    )]
    Channels {
        /// Channels needed: one for each level, and one for each slot of the leave latency.
        channels: u64,
        /// Most that there can be.
        most: u64,
    },
}

impl Config {
    /// FLID-SL: packets of `packet_bytes` of UDP payload, `max_rate` in all, in slots of 1 s.
    pub fn static_layers(packet_bytes: u16, max_rate: Rate) -> Self {
        Self {
            kind: Kind::Static,
            slot: Duration::from_secs(1),
            ..Self::dynamic_layers(packet_bytes, max_rate)
        }
    }

    /// FLID-DL: packets of `packet_bytes` of UDP payload, `max_rate` in all, in slots of 0.5 s.
    pub fn dynamic_layers(packet_bytes: u16, max_rate: Rate) -> Self {
        Self {
            kind: Kind::Dynamic,
            packet_bytes,
            max_rate,
            base_rate: None,
            ratio: 1.3,
            slot: Duration::from_millis(500),
            leave: Duration::from_secs(8),
            deaf_slots: 9,
        }
    }

    /// Rate of the base channel. Default: 10 packets a second. The paper's 24 kbit/s were 6 of its packets,
    /// and are 2 of today's: a slot would bring one, and most slots none of the level above.
    #[must_use]
    pub fn with_base_rate(mut self, rate: Rate) -> Self {
        self.base_rate = Some(rate);
        self
    }

    /// What the cumulative rate of a level is to that of the level below. Default: 1.3, as the paper has it.
    #[must_use]
    pub fn with_ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// TSD: length of a slot. Defaults: the paper's 0.5 s with dynamic layers, with static ones 1 s as in the
    /// public implementation.
    #[must_use]
    pub fn with_slot(mut self, slot: Duration) -> Self {
        self.slot = slot;
        self
    }

    /// How long routers may take to follow a leave: so long is a dynamic channel silent before it is used
    /// again. Default: 8 s, more than IGMPv3's 2 s and PIM's 3 s together.
    #[must_use]
    pub fn with_leave_latency(mut self, leave: Duration) -> Self {
        self.leave = leave;
        self
    }

    /// For how many slots a receiver of static layers is deaf to losses after it gave up a level. Default: 9,
    /// as in the public implementation.
    #[must_use]
    pub fn with_deaf_slots(mut self, slots: u16) -> Self {
        self.deaf_slots = slots;
        self
    }

    /// Whether layers stay on their channels.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// UDP payload of a full packet in bytes.
    pub fn packet_bytes(&self) -> u16 {
        self.packet_bytes
    }

    /// Rate of the base channel.
    pub fn base_rate(&self) -> Rate {
        let default = Rate::from_bits(8 * 10 * u64::from(self.packet_bytes.max(1)));
        self.base_rate.or(default).unwrap_or(self.max_rate)
    }

    /// The rate of all channels together.
    pub fn max_rate(&self) -> Rate {
        self.max_rate
    }

    /// What the cumulative rate of a level is to that of the level below.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// TSD.
    pub fn slot(&self) -> Duration {
        self.slot
    }

    /// How long a dynamic channel is silent before it is used again.
    pub fn leave_latency(&self) -> Duration {
        self.leave
    }

    /// Slots for which a receiver of static layers is deaf after it gave up a level.
    pub fn deaf_slots(&self) -> u16 {
        self.deaf_slots
    }

    /// `packets/s` of a rate.
    pub(super) fn packets(&self, rate: Rate) -> f64 {
        rate.packets_per_second(self.packet_bytes.into())
    }
}

/// Configuration of a [`super::Receiver`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverConfig {
    pub(super) max_rate: Option<Rate>,
}

impl ReceiverConfig {
    /// Defaults: no cap.
    pub fn new() -> Self {
        Self::default()
    }

    /// Most that the receiver takes, in bit/s of UDP payload; the base channel is held in any case. Default:
    /// what the path carries.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }
}
