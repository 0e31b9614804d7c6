//! RLC (Vicisano, Crowcroft, Rizzo, *TCP-like congestion control for layered multicast data transfer*, 1998):
//! static layers whose rates double, and points in them at which receivers may take one more.
//!
//! A layer's packets are marked at synchronisation points, twice as far apart on each layer as on the one
//! below. Before each the sender doubles the layer's rate for a short time, and is silent for as long after:
//! a receiver that loses a packet of such a burst has no room for the next layer, and stays. One that loses a
//! packet elsewhere gives up its highest layer, and then hears no loss for a while. So the rate goes as one
//! over the root of the loss, as if all round-trip times were the spacing of the lowest layer's points.
//!
//! A baseline that Rainbow is compared with. Control information is [`RlcCci`](headwater_wire::cci::RlcCci),
//! which does not tell bursts: receivers know them by the numbers of packets. Choices where the text is open,
//! and departures from it: `docs/errata/baselines.md`.

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
