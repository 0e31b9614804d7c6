//! What a receiver's window is told.

use crate::time::Duration;

/// When a request is lost, of those after which others were asked for and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overtaking {
    /// When so many later ones were answered, at least 1. 1 is the paper's rule, 3 is TCP's.
    Count(u8),
    /// When one was, and it has waited for as long as any reply took of late. A request that merges with
    /// another receiver's is answered early, and overtakes what was asked for before; nothing is lost by
    /// that.
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
    /// Most labels that can be configured.
    pub const LABELS_MAX: u16 = 4_096;
    /// The longest timeout.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(64);

    /// As the paper has it: at most 256 labels, a request is lost when one later request is answered before
    /// it.
    pub const fn new() -> Self {
        Self {
            labels_max: 256,
            overtaking: Overtaking::Count(1),
            timeout_first: Duration::from_secs(3),
            timeout_least: Duration::from_millis(200),
            timeout_most: Self::TIMEOUT_MAX,
        }
    }

    /// The largest window, 1 to [`WindowConfig::LABELS_MAX`]. Default: 256.
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

    /// The longest that a request waits for its reply, however often nothing was answered. Default:
    /// [`WindowConfig::TIMEOUT_MAX`], and no more than that.
    #[must_use]
    pub const fn with_timeout_most(mut self, most: Duration) -> Self {
        let is_longer = most.as_nanos() > Self::TIMEOUT_MAX.as_nanos();
        self.timeout_most = if is_longer { Self::TIMEOUT_MAX } else { most };
        self
    }

    /// When a request that was overtaken is lost. Default: [`Overtaking::Count`] of 1, the paper's rule.
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
