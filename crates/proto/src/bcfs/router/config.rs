//! Configuration of a breadcrumb router.

use crate::bcfs::{EXPIRY, REFRESH};
use crate::time::Duration;

/// Default number of breadcrumbs of a router.
pub const ENTRIES: usize = 65_536;
/// Maximum number of breadcrumbs that can be configured: 102 MB, and 265 MB with the maximum number of links.
pub const ENTRIES_MAX: usize = 1_000_000;
/// Maximum number of cached replies for each of at most 16 sources: 25 MB for each source in packets of 1500
/// bytes, at most 147 MB.
pub const RECENT_MAX: usize = 16_384;
/// Capacity for links per breadcrumb, on average.
const LINKS_PER_ENTRY: usize = 4;

/// Configuration of a [`BreadcrumbRouter`](super::BreadcrumbRouter).
#[derive(Debug, Clone)]
pub struct RouterConfig {
    pub(super) entries: usize,
    pub(super) refresh: Duration,
    pub(super) expiry: Duration,
    pub(super) hash_key: [u64; 2],
    pub(super) recent: usize,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self { entries: ENTRIES, refresh: REFRESH, expiry: EXPIRY, hash_key: [0; 2], recent: 0 }
    }
}

impl RouterConfig {
    /// Sets the maximum number of breadcrumbs, clamped to 1 to [`ENTRIES_MAX`]. Default [`ENTRIES`]. A
    /// breadcrumb takes 64 bytes with its first two links, and 17 to 33 bytes for the place in the order of
    /// use. Each further link takes 20 bytes; there is room for four times as many links as breadcrumbs.
    /// Breadcrumbs and further links each take 15 to 25 bytes more in the hash index.
    #[must_use]
    pub fn with_entries(mut self, entries: usize) -> Self {
        self.entries = entries.clamp(1, ENTRIES_MAX);
        self
    }

    /// Sets the minimum age of the last forwarded message before a null is forwarded. Default [`REFRESH`].
    #[must_use]
    pub const fn with_refresh(mut self, refresh: Duration) -> Self {
        self.refresh = refresh;
        self
    }

    /// Sets the lifetime of unused breadcrumbs and links. Default [`EXPIRY`].
    #[must_use]
    pub const fn with_expiry(mut self, expiry: Duration) -> Self {
        self.expiry = expiry;
        self
    }

    /// Sets the key of the table's hash. If strangers send requests, the key must be random, against a choice
    /// of colliding labels. Default 0, for simulations. The key changes no output.
    #[must_use]
    pub const fn with_hash_key(mut self, key: [u64; 2]) -> Self {
        self.hash_key = key;
        self
    }

    /// Sets the number of cached replies of a source, at most [`RECENT_MAX`]. For one second after arrival, a
    /// cached reply answers requests that any reply answers, from links without the reply; other requests are
    /// forwarded. Default: 0, as in the paper.
    #[must_use]
    pub const fn with_recent(mut self, replies: usize) -> Self {
        self.recent = if replies > RECENT_MAX { RECENT_MAX } else { replies };
        self
    }

    pub(super) const fn links(&self) -> usize {
        self.entries * LINKS_PER_ENTRY
    }
}
