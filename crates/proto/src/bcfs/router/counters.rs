//! What a router did.

use serde::Serialize;

/// Counts since a router was made. Each message that came in is one of `requests`, `answered`, `nulls`,
/// `replies` and `dropped`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Requests taken, but for those answered by what was kept.
    pub requests: u64,
    /// Requests answered by what was kept.
    pub answered: u64,
    /// Nulls taken.
    pub nulls: u64,
    /// Replies taken, whose breadcrumb was there.
    pub replies: u64,
    /// Requests and nulls sent on towards the source.
    pub sent_on: u64,
    /// Requests and nulls held back because as much was asked for before.
    pub suppressed: u64,
    /// Nulls of its own, in place of one held back.
    pub refreshed: u64,
    /// Replies sent on, once for each link.
    pub forwarded: u64,
    /// Breadcrumbs that nothing used for too long.
    pub expired: u64,
    /// Links that asked too long ago when a reply came by.
    pub links_expired: u64,
    /// Breadcrumbs that gave way to newer ones.
    pub evicted: u64,
    /// What was not taken, by the reason.
    pub dropped: Dropped,
}

/// Messages that came in and had no effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// No message of this version.
    pub malformed: u64,
    /// A source that is no host's address and port, or that no way leads to.
    pub no_route: u64,
    /// Requests and nulls with no hops left: most likely relays send to each other in a circle.
    pub hops: u64,
    /// Requests with a body above [`REQUEST_BODY_BYTES_MAX`](crate::bcfs::REQUEST_BODY_BYTES_MAX).
    pub too_long: u64,
    /// Requests and nulls that came from where they would be sent.
    pub from_upstream: u64,
    /// Replies from elsewhere than requests are sent to: forged, or the way has changed.
    pub not_from_upstream: u64,
    /// Replies that nobody waits for.
    pub unsolicited: u64,
}

impl Dropped {
    /// All of them.
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
