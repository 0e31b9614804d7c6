//! Configuration of a relay.

use core::net::IpAddr;

use super::{LINKS_MAX, SESSIONS_MAX};
use crate::egress::Shape;
use crate::rng::Seed;
use crate::sim::{GROUPS_MAX, Trust};

/// Configuration of a [`Relay`](super::Relay).
#[derive(Clone, Debug)]
pub struct RelayConfig {
    pub(super) sessions: usize,
    pub(super) groups: u16,
    pub(super) links: Vec<Option<Shape>>,
    pub(super) trust: Trust,
    pub(super) seed: Seed,
}

impl RelayConfig {
    /// Creates a configuration for `sessions` blocks of groups, 1 to [`SESSIONS_MAX`], each for a session of
    /// at most `groups` groups, 1 to [`GROUPS_MAX`]. `links` are the downstream links with their shapes, at
    /// most [`LINKS_MAX`]. A link without a shape forwards packets at once.
    pub fn new(sessions: usize, groups: u16, mut links: Vec<Option<Shape>>, seed: Seed) -> Self {
        links.truncate(LINKS_MAX);
        Self {
            sessions: sessions.clamp(1, SESSIONS_MAX),
            groups: groups.clamp(1, GROUPS_MAX),
            links,
            trust: Trust::Nobody,
            seed,
        }
    }

    /// Sets the downstream relays. Reports of a relay speak for many receivers. Default: no relay; each
    /// report counts as a single receiver.
    #[must_use]
    pub fn with_relays(mut self, relays: Vec<IpAddr>) -> Self {
        self.trust = Trust::Hosts(relays);
        self
    }
}
