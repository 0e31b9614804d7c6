//! RLM (McCanne, Jacobson, Vetterli 1996): receivers of constant layers learn by failed joins, their own and
//! others'. A baseline.
//!
//! | module | what |
//! |---|---|
//! | [`Sender`] | layers at constant rates; passes on what receivers announce |
//! | [`Receiver`] | steady, hysteresis, measure, drop: when to try the next layer, and when to give one up |
//!
//! Behaviour and constants are those of ns-2's implementation. There receivers announce joins on a group of
//! their own; here, as groups are source-specific, they tell the sender, which tells all:
//! `docs/errata/baselines.md`. So anybody who can write to the sender can hold receivers back for as long as
//! the longest join timer, as in RLM anybody can who writes to the group.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::{Receiver, ReceiverCounters, State};
pub use sender::Sender;

use headwater_proto::rate::Rate;

/// Most layers of a session.
pub const LAYERS_MAX: u16 = 64;

/// What a receiver tells the sender, and this all receivers: that it joins a layer, counted from 1.
const ANNOUNCEMENT: [u8; 3] = *b"RLM";

/// The layers of a session: what each adds, bit/s of UDP payload, at most [`LAYERS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    rates: Vec<Rate>,
    packet_bytes: u16,
}

impl Config {
    /// Layers of these rates, whose packets have so many bytes of UDP payload; `None` without a layer, with
    /// more than [`LAYERS_MAX`], or for empty packets.
    pub fn new(rates: Vec<Rate>, packet_bytes: u16) -> Option<Self> {
        let is_sound = (1..=usize::from(LAYERS_MAX)).contains(&rates.len()) && packet_bytes > 0;
        is_sound.then_some(Self { rates, packet_bytes })
    }

    /// Number of layers.
    pub fn layers(&self) -> u16 {
        u16::try_from(self.rates.len()).unwrap_or(LAYERS_MAX)
    }
}
