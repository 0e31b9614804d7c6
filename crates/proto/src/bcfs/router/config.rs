//! What a router of breadcrumbs is told.

use crate::bcfs::{EXPIRY, REFRESH};
use crate::time::Duration;

/// Breadcrumbs that a router holds unless told otherwise.
pub const ENTRIES: usize = 65_536;
/// Breadcrumbs that a router can be told to hold at the most: 102 MB, and 265 MB with as many links as there
/// is room for.
pub const ENTRIES_MAX: usize = 1_000_000;
/// Replies of each of at most 16 sources that a router can be told to keep at the most: 25 MB of each source
/// in packets of 1500 bytes, at most 147 MB.
pub const RECENT_MAX: usize = 16_384;
/// Links per breadcrumb, on average, that a router has room for.
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
    /// Breadcrumbs held, 1 to [`ENTRIES_MAX`]; the nearest of these otherwise. Default [`ENTRIES`]. One takes
    /// 64 bytes with its first two links, and 17 to 33 more for its place in the order of use; each further
    /// link 20, of which there is room for four times as many; either takes 15 to 25 more to be found by.
    #[must_use]
    pub fn with_entries(mut self, entries: usize) -> Self {
        self.entries = entries.clamp(1, ENTRIES_MAX);
        self
    }

    /// How old what was sent on last must be for a null to follow it. Default [`REFRESH`].
    #[must_use]
    pub const fn with_refresh(mut self, refresh: Duration) -> Self {
        self.refresh = refresh;
        self
    }

    /// For how long breadcrumbs and their links stay unused. Default [`EXPIRY`].
    #[must_use]
    pub const fn with_expiry(mut self, expiry: Duration) -> Self {
        self.expiry = expiry;
        self
    }

    /// The key of the table's hash: random where strangers send requests, so that they cannot choose labels
    /// that are slow to find. Default 0, for simulations. It changes no output.
    #[must_use]
    pub const fn with_hash_key(mut self, key: [u64; 2]) -> Self {
        self.hash_key = key;
        self
    }

    /// Replies of a source that are given out for a second, where any would do, for those that have not had
    /// them: at most [`RECENT_MAX`]. They answer requests that would go up else. Default: none, as the paper
    /// has it.
    #[must_use]
    pub const fn with_recent(mut self, replies: usize) -> Self {
        self.recent = if replies > RECENT_MAX { RECENT_MAX } else { replies };
        self
    }

    pub(super) const fn links(&self) -> usize {
        self.entries * LINKS_PER_ENTRY
    }
}
