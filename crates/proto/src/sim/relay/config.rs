//! What a relay is told.

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
    /// For so many blocks of groups, 1 to [`SESSIONS_MAX`], each of a session of at most so many groups, 1 to
    /// [`GROUPS_MAX`]. `links` are those below, at most [`LINKS_MAX`], with what they are given; where that
    /// is nothing, what comes is sent on at once.
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

    /// Relays below: what they report speaks for many. Default: none, each report counts as one receiver.
    #[must_use]
    pub fn with_relays(mut self, relays: Vec<IpAddr>) -> Self {
        self.trust = Trust::Hosts(relays);
        self
    }
}
