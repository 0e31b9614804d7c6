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
//! Choices for open points of the papers, and departures: `docs/errata/baselines.md`.

mod config;
mod layers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use self::config::{Config, ConfigError, Kind, ReceiverConfig};
pub use self::layers::Layers;
pub use self::receiver::{Receiver, Status};
pub use self::sender::Sender;

/// Slot indices in packets are modulo this: 7 bits.
const INDICES: u64 = 1 << 7;
