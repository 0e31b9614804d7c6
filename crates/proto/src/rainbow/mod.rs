//! Rainbow (Yano, McCanne 1999, section 4): reliable multicast in which every receiver has a TCP-like window
//! of its own, over [`bcfs`](crate::bcfs).
//!
//! A receiver asks for *any* symbol, by the labels 1 to its window; receivers of equal windows ask by equal
//! labels, so that routers merge what they ask and each link carries what its fastest receiver takes. The
//! source sends a fresh symbol of a digital fountain for each request that reaches it, and knows nobody.
//!
//! | module | what |
//! |---|---|
//! | [`Window`] | which label is asked for when, and at which level |
//! | [`Receiver`] | the window over BCFS; hands symbols to a [`Basin`] |
//! | [`Source`] | answers requests with what a [`Fountain`] gives |
//! | [`carrier`] | the same for files: [`delivery`](crate::delivery) over it |
//! | [`Numbers`], [`Tally`] | a fountain of numbered zeros and what counts them: a transfer as the paper measures it |
//!
//! What peers can do: a forged reply that BCFS lets through answers a request that waits, or nothing; it
//! makes the window at most [`WindowConfig`]'s largest. Levels saturate. A flood of requests at the source
//! makes it answer [`SourceConfig`]'s limit at once, and forget others, which receivers ask for again.
//! Departures from the text: `docs/errata/bcfs-rainbow.md`.

pub mod carrier;
mod config;
mod fountain;
mod labels;
mod packets;
mod receiver;
mod source;
mod window;

#[cfg(test)]
mod tests;

pub use config::{Overtaking, WindowConfig};
pub use fountain::{Basin, Fountain};
pub use packets::{Numbers, Tally};
pub use receiver::{Receiver, ReceiverConfig, ReceiverCounters, ReceiverEvent};
pub use source::{Source, SourceConfig, SourceCounters};
pub use window::{Ask, Mode, Window, WindowCounters};

/// Labels of a session: its first one, and those that 16 bits tell from it. Sessions of one source have
/// different high bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionLabels(u16);

impl SessionLabels {
    /// The labels of session `number` of a source.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    const MASK: u32 = 0xFFFF_0000;

    fn of(self, label: u16) -> crate::bcfs::Label {
        crate::bcfs::Label(u32::from(self.0) << 16 | u32::from(label))
    }

    /// The label of a window, if it is one of the session's.
    fn window_label(self, label: crate::bcfs::Label) -> Option<u16> {
        let [high, low] = [label.0 >> 16, label.0 & 0xFFFF];
        (high == u32::from(self.0)).then(|| u16::try_from(low).unwrap_or_default())
    }
}
