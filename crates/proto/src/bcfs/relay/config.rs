//! Configuration of a relay.

use core::net::{IpAddr, SocketAddr};

use super::unmapped;
use crate::bcfs::RouterConfig;
use crate::bcfs::client::canonical;
use crate::egress::Shape;
use crate::machine::ChannelId;
use crate::rng::Seed;

/// Default number of neighbours of a relay, below and above.
pub const NEIGHBOURS: usize = 1_024;
/// Default limit of requests per second from an address: the rate of a receiver at 200 Mbit/s.
pub const REQUESTS_PER_SECOND: u32 = 20_000;

/// Default number of cached replies for each of at most 16 sources: 0.4 MB for each source in packets of 1500
/// bytes, at most 2.3 MB.
pub const RECENT: usize = 256;

/// Next hop of requests for a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upstream {
    /// Source; `None` for all sources without an upstream of their own.
    pub source: Option<SocketAddr>,
    /// Relay that receives the requests.
    pub via: SocketAddr,
}

/// Link with many receivers: requests from this network are answered by multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MulticastLink {
    /// Address of the network.
    pub network: IpAddr,
    /// Length of the network's prefix, in bits.
    pub prefix: u8,
    /// Multicast group of the replies.
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
    /// Creates the configuration of a relay that requests from each source directly, for all neighbours,
    /// without shaping. `seed` is the seed of RED's random drops.
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

    /// Sets the key of the router's hash (see [`RouterConfig::with_hash_key`]) and the seed.
    #[must_use]
    pub fn with_chance(mut self, hash_key: [u64; 2], seed: Seed) -> Self {
        self.router = self.router.with_hash_key(hash_key);
        self.seed = seed;
        self
    }

    /// Sets the relays above. The first matching upstream counts; an upstream for a single source precedes an
    /// upstream for all sources.
    #[must_use]
    pub fn with_upstreams(mut self, mut upstreams: Vec<Upstream>) -> Self {
        for Upstream { source, via } in &mut upstreams {
            *source = source.map(canonical);
            *via = unmapped(*via);
        }
        self.upstreams = upstreams;
        self
    }

    /// Sets the sources that may be requested from; an empty list permits all sources. Default: empty.
    #[must_use]
    pub fn with_sources(mut self, sources: Vec<SocketAddr>) -> Self {
        self.sources = sources.into_iter().map(canonical).collect();
        self
    }

    /// Sets the links served by multicast. Default: empty.
    #[must_use]
    pub fn with_links(mut self, links: Vec<MulticastLink>) -> Self {
        self.links = links;
        self
    }

    /// Sets the maximum number of neighbours, clamped to 1 to 65 536. Default [`NEIGHBOURS`]. A neighbour
    /// silent for longer than a breadcrumb lives is evicted for a new neighbour. While all neighbours are
    /// active, new addresses are refused.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: usize) -> Self {
        self.neighbours = neighbours.clamp(1, 1 << 16);
        self
    }

    /// Sets the limit of requests and nulls per second from an address, at least 1. The burst is a tenth of a
    /// second, at least 64 messages. Default [`REQUESTS_PER_SECOND`].
    #[must_use]
    pub fn with_requests_per_second(mut self, requests: u32) -> Self {
        self.requests_per_second = requests.max(1);
        self
    }

    /// Sets the number of cached replies of a source ([`RouterConfig::with_recent`]). Default [`RECENT`].
    #[must_use]
    pub fn with_recent(mut self, replies: usize) -> Self {
        self.router = self.router.with_recent(replies);
        self
    }

    /// Sets the shape of each link below. Default: every reply is forwarded at once.
    #[must_use]
    pub const fn with_shape(mut self, shape: Option<Shape>) -> Self {
        self.shape = shape;
        self
    }
}
