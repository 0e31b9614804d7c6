//! FLID-SL and FLID-DL: fair layered increase and decrease, over static or dynamic layers (Byers et al.
//! 2002).
//!
//! Time is divided into slots. In each slot the sender allows some levels to rise, by a trigger in their
//! packets. A receiver that lost a packet in a slot drops a level; a receiver with a trigger and without loss
//! adds a level. With static layers (SL) a drop is a leave, which routers take seconds to follow, so the
//! receiver then makes no decision for some slots. With dynamic layers (DL) every channel falls by a level in
//! each slot: a receiver keeps its rate by joining a channel per slot, rises by joining two, and falls by
//! joining none.
//!
//! No receiver measures a round-trip time: the trigger rate makes every receiver rise like a TCP with a
//! round-trip time of 0.41 s, and therefore faster than a TCP on longer paths. Both variants use
//! [`FlidSlCci`](headwater_wire::cci::FlidSlCci) as control information: the group is the number of the
//! channel, 0 for the base, and the slot counts modulo 128, which also determines the level of a dynamic
//! channel.
//!
//! Choices for open points of the papers, and departures: `docs/errata/flid.md`.

mod layers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use layers::Layers;
pub use receiver::{FlidReceiver, FlidStatus};
pub use sender::FlidSender;

use crate::rate::Rate;
use crate::time::Duration;

/// Slot indices in packets are modulo this: 7 bits.
const INDICES: u64 = 1 << 7;

/// Assignment of layers to channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlidKind {
    /// FLID-SL: each level has a constant channel.
    Static,
    /// FLID-DL: a channel falls by a level in each slot.
    Dynamic,
}

/// Configuration of [`Layers`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlidConfig {
    pub(super) kind: FlidKind,
    pub(super) packet_bytes: u16,
    pub(super) max_rate: Rate,
    pub(super) base_rate: Option<Rate>,
    pub(super) ratio: f64,
    pub(super) slot: Duration,
    pub(super) leave: Duration,
    pub(super) deaf_slots: u16,
}

/// Reason why the configuration of a FLID session is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlidConfigError {
    /// The ratio of successive levels is too small or too large.
    #[error("rate ratio {0}: it must be from 1.05 to 4")]
    Ratio(f64),
    /// Packets without bytes.
    #[error("packets of 0 bytes")]
    PacketBytes,
    /// Slots are too short for joins, or too long to adapt.
    #[error("slots of {0}: they must be from 50 ms to 1 min")]
    Slot(Duration),
    /// The base rate is too low: receivers detect slots by packets of the base channel.
    #[error("a base rate of {base:.3} packets/s: it must be at least {least:.3}, one packet in a slot")]
    BaseRate {
        /// Base rate in packets/s.
        base: f64,
        /// Least base rate in packets/s.
        least: f64,
    },
    /// The maximum rate leaves no room for a level above the base.
    #[error("base rate {base:.3} packets/s and maximum rate {max:.3} packets/s: the maximum must be higher")]
    Rates {
        /// Base rate in packets/s.
        base: f64,
        /// Maximum rate in packets/s.
        max: f64,
    },
    /// More dynamic channels than slot indices can distinguish.
    #[error(
        "{channels} dynamic channels: at most {most}; raise the base rate or the ratio, or shorten the leave latency"
    )]
    Channels {
        /// Channels needed: a channel for each level, and a channel for each slot of the leave latency.
        channels: u64,
        /// Maximum number of channels.
        most: u64,
    },
}

impl FlidConfig {
    /// FLID-SL: returns a configuration with packets of `packet_bytes` of UDP payload, `max_rate` in total,
    /// in slots of 1 s.
    pub fn static_layers(packet_bytes: u16, max_rate: Rate) -> Self {
        Self {
            kind: FlidKind::Static,
            slot: Duration::from_secs(1),
            ..Self::dynamic_layers(packet_bytes, max_rate)
        }
    }

    /// FLID-DL: returns a configuration with packets of `packet_bytes` of UDP payload, `max_rate` in total,
    /// in slots of 0.5 s.
    pub fn dynamic_layers(packet_bytes: u16, max_rate: Rate) -> Self {
        Self {
            kind: FlidKind::Dynamic,
            packet_bytes,
            max_rate,
            base_rate: None,
            ratio: 1.3,
            slot: Duration::from_millis(500),
            leave: Duration::from_secs(8),
            deaf_slots: 9,
        }
    }

    /// Sets the rate of the base channel. Default: 10 packets per second. The paper's 24 kbit/s were 6 of the
    /// paper's packets, and are 2 of today's: a slot would bring a single packet, and most slots no packet of
    /// the level above.
    #[must_use]
    pub fn with_base_rate(mut self, rate: Rate) -> Self {
        self.base_rate = Some(rate);
        self
    }

    /// Sets the ratio of a level's cumulative rate to that of the level below. Default: 1.3, as in the paper.
    #[must_use]
    pub fn with_ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// TSD: sets the length of a slot. Defaults: the paper's 0.5 s with dynamic layers; 1 s with static
    /// layers, as in the public implementation.
    #[must_use]
    pub fn with_slot(mut self, slot: Duration) -> Self {
        self.slot = slot;
        self
    }

    /// Sets the maximum time routers take to follow a leave, which is the silence of a dynamic channel before
    /// reuse. Default: 8 s, more than IGMPv3's 2 s and PIM's 3 s together.
    #[must_use]
    pub fn with_leave_latency(mut self, leave: Duration) -> Self {
        self.leave = leave;
        self
    }

    /// Sets the number of slots in which a receiver of static layers ignores losses after dropping a level.
    /// Default: 9, as in the public implementation.
    #[must_use]
    pub fn with_deaf_slots(mut self, slots: u16) -> Self {
        self.deaf_slots = slots;
        self
    }

    /// Assignment of layers to channels.
    pub fn kind(&self) -> FlidKind {
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

    /// Converts a rate to packets/s.
    pub(super) fn packets(&self, rate: Rate) -> f64 {
        rate.packets_per_second(self.packet_bytes.into())
    }
}

/// Configuration of a [`FlidReceiver`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FlidReceiverConfig {
    pub(super) max_rate: Option<Rate>,
}

impl FlidReceiverConfig {
    /// Returns the defaults: no rate cap.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum rate of the receiver, in bit/s of UDP payload; the base channel is always subscribed.
    /// Default: limited by the path only.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }
}
