//! Configuration of a receiver's window.

use crate::time::Duration;

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

/// Configuration of a [`super::Window`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowConfig {
    pub(super) labels_max: u16,
    pub(super) overtaking: Overtaking,
    pub(super) timeout_first: Duration,
    pub(super) timeout_least: Duration,
    pub(super) timeout_most: Duration,
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
