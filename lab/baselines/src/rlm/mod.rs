//! RLM (McCanne, Jacobson, Vetterli 1996): receivers of constant layers learn from failed joins, including
//! joins of other receivers. Baseline.
//!
//! | module | subject |
//! |---|---|
//! | [`Sender`] | layers at constant rates; forwards the announcements of receivers |
//! | [`Receiver`] | steady, hysteresis, measure, drop: times to try the next layer, and to drop a layer |
//!
//! Behaviour and constants are those of ns-2's implementation. In ns-2, receivers announce joins on a
//! separate group. Here, groups are source-specific, so receivers announce joins to the sender, which
//! forwards the announcements to all receivers: `docs/errata/baselines.md`. Anybody who can write to the
//! sender can therefore hold receivers back for the longest join timer, like anybody who can write to the
//! group in RLM.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::{Receiver, ReceiverCounters, State};
pub use sender::Sender;

use headwater_proto::rate::Rate;

/// Maximum number of layers of a session.
pub const LAYERS_MAX: u16 = 64;

/// Prefix of a receiver's announcement, which the sender forwards to all receivers: the receiver joins a
/// layer, counted from 1.
const ANNOUNCEMENT: [u8; 3] = *b"RLM";

/// Layers of a session: the rate of each layer, bit/s of UDP payload, at most [`LAYERS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    rates: Vec<Rate>,
    packet_bytes: u16,
}

impl Config {
    /// Creates layers of these rates with packets of `packet_bytes` of UDP payload; `None` without a layer,
    /// with more than [`LAYERS_MAX`], or for empty packets.
    pub fn new(rates: Vec<Rate>, packet_bytes: u16) -> Option<Self> {
        let is_sound = (1..=usize::from(LAYERS_MAX)).contains(&rates.len()) && packet_bytes > 0;
        is_sound.then_some(Self { rates, packet_bytes })
    }

    /// Number of layers.
    pub fn layers(&self) -> u16 {
        u16::try_from(self.rates.len()).unwrap_or(LAYERS_MAX)
    }
}
