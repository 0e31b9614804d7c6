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
//! `docs/errata/baselines.md`.

mod config;
mod layers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use self::config::{Config, ConfigError, ReceiverConfig};
pub use self::layers::Layers;
pub use self::receiver::Receiver;
pub use self::sender::Sender;
