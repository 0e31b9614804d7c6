//! RLC (Vicisano, Crowcroft, Rizzo, *TCP-like congestion control for layered multicast data transfer*, 1998):
//! static layers with doubling rates, and synchronisation points at which receivers may add a layer.
//!
//! Packets at synchronisation points are marked. The points of each layer are twice as far apart as those of
//! the layer below. Before each point the sender doubles the layer's rate for a short time, and afterwards
//! pauses for the same time. If a receiver loses a packet of such a burst, the path has no capacity for the
//! next layer, and the receiver does not add the layer. If a receiver loses a packet outside a burst, the
//! receiver drops its highest layer, and then ignores losses for a while. The rate is therefore inversely
//! proportional to the square root of the loss rate, as if all round-trip times equalled the spacing of the
//! lowest layer's points.
//!
//! Baseline for comparison with Rainbow. The congestion control information is
//! [`RlcCci`](headwater_wire::cci::RlcCci), which does not signal bursts: receivers recognise bursts by
//! packet numbers. Choices where the paper is open, and departures from the paper:
//! `lab/baselines/errata.md`.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use headwater_proto::rate::Rate;
use headwater_proto::time::Duration;

pub use receiver::RlcReceiver;
pub use sender::Layers;
pub use sender::RlcSender;

/// Maximum number of layers: with doubling rates, 24 layers span from a packet a second to beyond any link.
pub(super) const LAYERS_MAX: usize = 24;

/// Configuration of [`Layers`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RlcConfig {
    pub(super) packet_bytes: u16,
    pub(super) max_rate: Rate,
    pub(super) base_rate: Rate,
    pub(super) spacing: Duration,
}

/// Reason for rejecting the parameters of an RLC session.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Packets without bytes.
    #[error("packets of 0 bytes")]
    PacketBytes,
    /// Synchronisation points too close together, or too far apart, for decisions.
    #[error("synchronisation points each {0}: it must be from 100 ms to 1 min")]
    Spacing(Duration),
    /// Less than two layers.
    #[error(
        "base rate {base:.3} packets/s and maximum rate {max:.3} packets/s: the maximum must be twice as high, or more"
    )]
    Rates {
        /// Base rate in packets/s.
        base: f64,
        /// Maximum rate in packets/s.
        max: f64,
    },
    /// Less than four packets of the lowest layer between two synchronisation points.
    #[error(
        "a base rate of {base:.3} packets/s: there must be four packets, at least, from one synchronisation point to the next"
    )]
    BaseRate {
        /// Base rate in packets/s.
        base: f64,
    },
}

impl RlcConfig {
    /// Creates a configuration with packets of `packet_bytes` of UDP payload. The lowest layer has
    /// `base_rate`; each further layer doubles the total rate, up to `max_rate`. The points of the lowest
    /// layer are a second apart.
    pub fn new(packet_bytes: u16, base_rate: Rate, max_rate: Rate) -> Self {
        Self { packet_bytes, max_rate, base_rate, spacing: Duration::from_secs(1) }
    }

    /// Sets the interval between synchronisation points of the lowest layer. Default: 1 s.
    #[must_use]
    pub fn with_spacing(mut self, spacing: Duration) -> Self {
        self.spacing = spacing;
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.packet_bytes == 0 {
            return Err(ConfigError::PacketBytes);
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&self.spacing) {
            return Err(ConfigError::Spacing(self.spacing));
        }
        let packets = |rate: Rate| rate.packets_per_second(self.packet_bytes.into());
        let (base, max) = (packets(self.base_rate), packets(self.max_rate));
        if base * self.spacing.as_secs_f64() < 4.0 {
            return Err(ConfigError::BaseRate { base });
        }
        if max < 2.0 * base {
            return Err(ConfigError::Rates { base, max });
        }
        Ok(())
    }

    /// Returns the rates of the layers: the first two rates are equal, and each further rate is twice the
    /// previous.
    pub(super) fn rates(&self) -> Vec<Rate> {
        let base = self.base_rate.as_bits();
        let most = self.max_rate.as_bits();
        let cumulative =
            (0..LAYERS_MAX).map(|layer| base.saturating_mul(1 << layer)).take_while(|bits| *bits <= most);
        let above = cumulative.skip(1).filter_map(|bits| Rate::from_bits(bits / 2));
        core::iter::once(self.base_rate).chain(above).collect()
    }
}

/// Configuration of a [`RlcReceiver`].
#[derive(Clone, Copy, Debug)]
pub struct RlcReceiverConfig {
    pub(super) max_rate: Option<Rate>,
    pub(super) deaf: Duration,
}

impl RlcReceiverConfig {
    /// Creates the default configuration: no maximum rate, losses ignored for a second after a drop.
    pub fn new() -> Self {
        Self { max_rate: None, deaf: Duration::from_secs(1) }
    }

    /// Sets the maximum total rate, in bit/s of UDP payload; the lowest layer is always subscribed. Default:
    /// limited by the path only.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }
}

impl Default for RlcReceiverConfig {
    fn default() -> Self {
        Self::new()
    }
}
