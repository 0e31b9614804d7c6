//! What a relay is told.

use core::net::{IpAddr, SocketAddr};

use super::unmapped;
use crate::bcfs::RouterConfig;
use crate::bcfs::client::canonical;
use crate::egress::Shape;
use crate::machine::ChannelId;
use crate::rng::Seed;

/// Neighbours that a relay knows at a time unless told otherwise: those that ask, and those that are asked.
pub const NEIGHBOURS: usize = 1_024;
/// Requests a second from one address unless told otherwise: what a receiver of 200 Mbit/s sends.
pub const REQUESTS_PER_SECOND: u32 = 20_000;

/// Replies of each of at most 16 sources that a relay keeps unless told otherwise: 0.4 MB of each in packets
/// of 1500 bytes, at most 2.3 MB.
pub const RECENT: usize = 256;

/// Where requests for a source go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upstream {
    /// For this source; for all that have none of their own where it is `None`.
    pub source: Option<SocketAddr>,
    /// The relay that they go to.
    pub via: SocketAddr,
}

/// A link with many receivers: those who ask from this network get replies by multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MulticastLink {
    /// An address of the network.
    pub network: IpAddr,
    /// Bits of it that all its addresses share.
    pub prefix: u8,
    /// The group.
    pub channel: ChannelId,
}

/// Configuration of a [`Relay`](super::Relay).
#[derive(Debug, Clone)]
pub struct RelayConfig {
    pub(super) router: RouterConfig,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) sources: Vec<SocketAddr>,
    pub(super) links: Vec<MulticastLink>,
    pub(super) neighbours: usize,
    pub(super) requests_per_second: u32,
    pub(super) shape: Option<Shape>,
    pub(super) seed: Seed,
}

impl RelayConfig {
    /// A relay that asks each source itself, for anyone, as fast as they like. `seed` is for what RED draws.
    pub const fn new(router: RouterConfig, seed: Seed) -> Self {
        Self {
            router: router.with_recent(RECENT),
            upstreams: Vec::new(),
            sources: Vec::new(),
            links: Vec::new(),
            neighbours: NEIGHBOURS,
            requests_per_second: REQUESTS_PER_SECOND,
            shape: None,
            seed,
        }
    }

    /// Another key of the router's hash (see [`RouterConfig::with_hash_key`]), and another seed.
    #[must_use]
    pub fn with_chance(mut self, hash_key: [u64; 2], seed: Seed) -> Self {
        self.router = self.router.with_hash_key(hash_key);
        self.seed = seed;
        self
    }

    /// Relays above. The first that fits a source counts, those for one source before those for all.
    #[must_use]
    pub fn with_upstreams(mut self, mut upstreams: Vec<Upstream>) -> Self {
        for Upstream { source, via } in &mut upstreams {
            *source = source.map(canonical);
            *via = unmapped(*via);
        }
        self.upstreams = upstreams;
        self
    }

    /// Sources that may be asked; all where there is none. Default: none.
    #[must_use]
    pub fn with_sources(mut self, sources: Vec<SocketAddr>) -> Self {
        self.sources = sources.into_iter().map(canonical).collect();
        self
    }

    /// Links that are served by multicast. Default: none.
    #[must_use]
    pub fn with_links(mut self, links: Vec<MulticastLink>) -> Self {
        self.links = links;
        self
    }

    /// Neighbours known at a time, 1 to 65 536; the nearest otherwise. Default [`NEIGHBOURS`]. Those that are
    /// silent for longer than a breadcrumb lives give way to new ones; while all are busy, new ones are not
    /// served.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: usize) -> Self {
        self.neighbours = neighbours.clamp(1, 1 << 16);
        self
    }

    /// Requests and nulls a second from one address, at least 1, with bursts of a tenth of a second, or 64.
    /// Default [`REQUESTS_PER_SECOND`].
    #[must_use]
    pub fn with_requests_per_second(mut self, requests: u32) -> Self {
        self.requests_per_second = requests.max(1);
        self
    }

    /// Replies of a source that are kept ([`RouterConfig::with_recent`]). Default [`RECENT`].
    #[must_use]
    pub fn with_recent(mut self, replies: usize) -> Self {
        self.router = self.router.with_recent(replies);
        self
    }

    /// What each link below is given. Default: all that comes is sent on at once.
    #[must_use]
    pub const fn with_shape(mut self, shape: Option<Shape>) -> Self {
        self.shape = shape;
        self
    }
}
