//! FLID-SL and FLID-DL: fair layered increase and decrease, over static or dynamic layers (Byers et al.
//! 2002).
//!
//! Time runs in slots. In each the sender lets some levels rise, by a trigger in their packets; a receiver
//! that lost a packet in a slot gives up a level, one that was let takes one more. With static layers (SL)
//! giving up is a leave, which routers take seconds to follow, so that for some slots nothing more is
//! decided. With dynamic layers (DL) every channel goes down by a level in each slot: a receiver keeps its
//! rate by joining one channel, rises by joining two, and falls by joining none.
//!
//! Nobody measures a round-trip time: triggers come so often that all rise as a TCP does over 0.41 s, and
//! faster than it over longer ways. As control information [`FlidSlCci`](headwater_wire::cci::FlidSlCci)
//! serves both: its group is the number of the channel, 0 the base, and the slot counts modulo 128, which
//! also tells the level of a dynamic channel.
//!
//! Choices where the texts are open, and departures from them: `docs/errata/baselines.md`.

mod config;
mod layers;
mod receiver;
mod sender;
mod slots;
#[cfg(test)]
mod tests;

pub use self::config::{Config, ConfigError, Kind, ReceiverConfig};
pub use self::layers::Layers;
pub use self::receiver::{Receiver, Status};
pub use self::sender::Sender;

/// Slot indices in packets are modulo this: 7 bits.
const INDICES: u64 = 1 << 7;
