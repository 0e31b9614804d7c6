//! Counters of a router.

use serde::Serialize;

/// Counts since the router was created. Each message received is counted in exactly one of `requests`,
/// `answered`, `nulls`, `replies` and `dropped`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Requests accepted, but not answered from the cache.
    pub requests: u64,
    /// Requests answered from the cache.
    pub answered: u64,
    /// Nulls accepted.
    pub nulls: u64,
    /// Replies that matched a breadcrumb.
    pub replies: u64,
    /// Requests and nulls forwarded towards the source.
    pub sent_on: u64,
    /// Requests and nulls suppressed because an equal or higher level was already requested.
    pub suppressed: u64,
    /// Nulls forwarded by the router in place of a suppressed message.
    pub refreshed: u64,
    /// Replies forwarded, counted once per link.
    pub forwarded: u64,
    /// Breadcrumbs removed after the lifetime.
    pub expired: u64,
    /// Links that had expired when a reply passed.
    pub links_expired: u64,
    /// Breadcrumbs evicted for newer breadcrumbs.
    pub evicted: u64,
    /// Messages dropped, by reason.
    pub dropped: Dropped,
}

/// Messages received without effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Not a message of this version.
    pub malformed: u64,
    /// Source is not a host address and port, or has no route.
    pub no_route: u64,
    /// Requests and nulls without hops left; the likely cause is a loop of relays.
    pub hops: u64,
    /// Requests with a body above [`REQUEST_BODY_BYTES_MAX`](crate::bcfs::REQUEST_BODY_BYTES_MAX).
    pub too_long: u64,
    /// Requests and nulls received on the upstream link.
    pub from_upstream: u64,
    /// Replies from a link other than the upstream link: forged, or the route has changed.
    pub not_from_upstream: u64,
    /// Replies without a breadcrumb.
    pub unsolicited: u64,
}

impl Dropped {
    /// Returns the total of all reasons.
    pub const fn total(&self) -> u64 {
        self.malformed
            + self.no_route
            + self.hops
            + self.too_long
            + self.from_upstream
            + self.not_from_upstream
            + self.unsolicited
    }
}
