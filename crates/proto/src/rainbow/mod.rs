//! Rainbow (Yano, McCanne 1999, section 4): reliable multicast over [`bcfs`](crate::bcfs), with a TCP-like
//! window at each receiver.
//!
//! A receiver requests *any* symbol, by the labels from 1 to its window. Receivers with equal windows use
//! equal labels, so that routers merge the requests, and each link carries the rate of its fastest receiver.
//! The source sends a new symbol of a digital fountain for each request that arrives, and keeps no receiver
//! state.
//!
//! | module | subject |
//! |---|---|
//! | [`Window`] | time and level of each label's requests |
//! | [`Receiver`] | the window over BCFS; passes symbols to a [`Basin`] |
//! | [`Source`] | answers requests with the symbols of a [`Fountain`] |
//! | [`carrier`] | file transfer: [`delivery`](crate::delivery) over Rainbow |
//! | [`Numbers`], [`Tally`] | fountain of numbered zeros, and received numbers: the paper's transfer |
//!
//! Attacks: a forged reply that BCFS accepts answers a waiting request or has no effect; forged replies can
//! grow the window at most to the maximum of [`WindowConfig`]. Levels saturate. Under a flood of requests the
//! source queues at most [`SourceConfig`]'s limit and drops further requests, which receivers repeat.
//! Departures from the paper: `docs/errata/bcfs-rainbow.md`.

pub mod carrier;
mod config;
mod packets;
mod receiver;
mod source;
mod window;

#[cfg(test)]
mod tests;

pub use config::{Overtaking, WindowConfig};
pub use packets::{Basin, Fountain};
pub use packets::{Numbers, Tally};
pub use receiver::{Receiver, ReceiverConfig, ReceiverCounters, ReceiverEvent};
pub use source::{Source, SourceConfig, SourceCounters};
pub use window::{Ask, Mode, Window, WindowCounters};

/// Labels of a session: the 2^16 labels with the session's number in the high 16 bits. Sessions of the same
/// source have different high bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionLabels(u16);

impl SessionLabels {
    /// Creates the labels of session `number` of a source.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    const MASK: u32 = 0xFFFF_0000;

    fn of(self, label: u16) -> crate::bcfs::Label {
        crate::bcfs::Label(u32::from(self.0) << 16 | u32::from(label))
    }

    /// Returns the window's label, if `label` belongs to the session.
    fn window_label(self, label: crate::bcfs::Label) -> Option<u16> {
        let [high, low] = [label.0 >> 16, label.0 & 0xFFFF];
        (high == u32::from(self.0)).then(|| u16::try_from(low).unwrap_or_default())
    }
}
