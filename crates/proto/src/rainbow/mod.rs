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
//! | [`RainbowWindow`] | time and level of each label's requests |
//! | [`RainbowReceiver`] | the window over BCFS; passes symbols to a [`Basin`] |
//! | [`RainbowSource`] | answers requests with the symbols of a [`Fountain`] |
//! | [`carrier`] | file transfer: [`delivery`](crate::delivery) over Rainbow |
//! | [`Numbers`], [`Tally`] | fountain of numbered zeros, and received numbers: the paper's transfer |
//!
//! Attacks: a forged reply that BCFS accepts answers a waiting request or has no effect; forged replies can
//! grow the window at most to the maximum of [`WindowConfig`]. Levels saturate. Under a flood of requests the
//! source queues at most [`SourceConfig`]'s limit and drops further requests, which receivers repeat.
//! Departures from the paper: `docs/errata/bcfs-rainbow.md`.

pub mod carrier;
mod packets;
mod receiver;
mod source;
#[cfg(test)]
mod tests;
mod window;

pub use packets::{Basin, Fountain, Numbers, Tally};
pub use receiver::{RainbowReceiver, RainbowReceiverConfig, RainbowReceiverCounters, RainbowReceiverEvent};
pub use source::{RainbowSource, SourceConfig, SourceCounters};
pub use window::{Ask, Mode, RainbowWindow, WindowCounters};

use crate::rng::Seed;
use crate::time::Duration;

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

/// Rule by which a request counts as lost once later requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overtaking {
    /// Lost once this many later requests are answered, at least 1. The paper's rule is 1, TCP's is 3.
    Count(u8),
    /// Lost once a later request is answered and the request has waited for the longest recent round-trip
    /// time. A request merged with another receiver's request is answered early, and overtakes earlier
    /// requests without any loss.
    Longest,
}

/// Configuration of a `Window`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowConfig {
    pub(super) labels_max: u16,
    pub(super) overtaking: Overtaking,
    pub(super) timeout_first: Duration,
    pub(super) timeout_least: Duration,
    pub(super) timeout_most: Duration,
    pub(super) spread: Option<Seed>,
}

impl WindowConfig {
    /// Upper limit of the configurable number of labels.
    pub const LABELS_MAX: u16 = 4_096;
    /// Upper limit of the timeout.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(64);

    /// Creates the paper's configuration: at most 256 labels; a request is lost once one later request is
    /// answered.
    pub const fn new() -> Self {
        Self {
            labels_max: 256,
            overtaking: Overtaking::Count(1),
            timeout_first: Duration::from_secs(3),
            timeout_least: Duration::from_millis(200),
            timeout_most: Self::TIMEOUT_MAX,
            spread: None,
        }
    }

    /// Sets the maximum window, clamped to 1 to [`WindowConfig::LABELS_MAX`]. Default: 256.
    #[must_use]
    pub const fn with_labels_max(mut self, labels: u16) -> Self {
        self.labels_max = if labels == 0 {
            1
        } else if labels > Self::LABELS_MAX {
            Self::LABELS_MAX
        } else {
            labels
        };
        self
    }

    /// Sets the maximum timeout of a request, including backoff. Default and maximum:
    /// [`WindowConfig::TIMEOUT_MAX`].
    #[must_use]
    pub const fn with_timeout_most(mut self, most: Duration) -> Self {
        let is_longer = most.as_nanos() > Self::TIMEOUT_MAX.as_nanos();
        self.timeout_most = if is_longer { Self::TIMEOUT_MAX } else { most };
        self
    }

    /// Delays the requests of small windows at random, by half the mean time between two requests at most.
    /// Default: no delay, as in the paper.
    #[must_use]
    pub const fn with_spread(mut self, seed: Option<Seed>) -> Self {
        self.spread = seed;
        self
    }

    /// Sets the rule for the loss of overtaken requests. Default: [`Overtaking::Count`] of 1, the paper's
    /// rule.
    #[must_use]
    pub const fn with_overtaking(mut self, overtaking: Overtaking) -> Self {
        self.overtaking = overtaking;
        self
    }
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self::new()
    }
}
