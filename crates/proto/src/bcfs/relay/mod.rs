//! Breadcrumb router on any host. The router's interfaces are the addresses of neighbours by unicast UDP, so
//! a tree of relays needs no support from the network between, and the requests build the tree.
//!
//! Requests go to the relay above that is configured for the source, or to the source itself. An address that
//! sends requests is a neighbour below, until silent for longer than a breadcrumb lives. A relay that ends
//! loses only breadcrumbs, which the next requests restore; a restarted relay or receiver, above or below, is
//! served as before.
//!
//! Replies that answer any request, such as symbols of a digital fountain, are cached for a second. A
//! receiver that requests and has not received a cached reply gets the reply at once, so that a link above
//! carries each reply once for all receivers even if the receivers' requests differ in time.
//!
//! | attack | defence |
//! |---|---|
//! | flood of requests from an address | [`RelayConfig::with_requests_per_second`] |
//! | flood of labels | see [`BreadcrumbRouter`] |
//! | flood from spoofed addresses | [`RelayConfig::with_challenges`]; known neighbours stay |
//! | requests that forge a victim's address | the same: challenges are shorter than the requests |
//! | requests for random sources, to fill the table | 1 new source a second from an address |
//! | requests for a false source, to flood a victim | 20 requests a second to a host without a reply |
//! | forged replies | accepted only from addresses that the relay requests from |
//! | requests for many sources, to fill the cache | 16 sources; a source silent for a second is evicted |
//! | loop of relays | hop count of messages: see [`BreadcrumbRouter`] |
//!
//! With challenges, an address without a valid word has no breadcrumb, no place in the neighbour table and no
//! reply. Without challenges, a spoofed address takes a place for 10 s; meanwhile, new addresses wait. The
//! limit of new sources applies once half the table is used, and only a source that replies keeps its entry.
//! The limit of requests to a host applies until a reply from the source's port. Unless configured, the relay
//! sends no requests to groups, and no requests from other hosts to loopback; [`RelayConfig::with_sources`]
//! restricts the sources. An attacker that spoofs the address of a source, or of a relay above, can forge
//! replies.

mod neighbours;

use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};

use headwater_wire::bcfs::{Header, Kind, word_mut};
use serde::Serialize;

pub use crate::egress::{EgressCounters, EgressShape, WAITING_MAX};

use neighbours::Neighbours;

use super::challenge::write_worded;
use super::{BreadcrumbRouter, RouterConfig, RouterCounters};
use super::{ChallengeCounters, Challenger, canonical};
use crate::admission::AdmissionKey;
use crate::egress::Egress;
use crate::machine::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Ecn, Input, InterfaceId, Machine, Output, RouterOutput, Transmit,
};
use crate::queue::ParameterError;
use crate::rng::Seed;
use crate::time::Instant;

/// Counters of a relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RelayCounters {
    /// Counters of the router.
    pub router: RouterCounters,
    /// Counters of the egress links.
    pub egress: EgressCounters,
    /// Messages refused by the relay, by reason; messages dropped by the router are counted in `router`.
    pub refused: Refused,
    /// Challenges of addresses without a valid word.
    pub challenges: ChallengeCounters,
    /// Number of known neighbours.
    pub neighbours: usize,
    /// Number of breadcrumbs.
    pub entries: usize,
}

/// Messages refused before or after the router.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Not a message of this version.
    pub malformed: u64,
    /// From an address above the request rate limit.
    pub too_fast: u64,
    /// For a source that must not be requested from.
    pub source: u64,
    /// Forwarded by the router to an address without a reply yet, above the rate limit for such addresses.
    pub unproven: u64,
    /// Received while the neighbour table was full.
    pub no_neighbour: u64,
    /// Replies from an address that the relay did not send requests to.
    pub stranger: u64,
}

/// Breadcrumb router between unicast addresses; see the module documentation.
#[derive(Debug)]
pub struct Relay {
    router: BreadcrumbRouter<Neighbours>,
    egress: Egress,
    refused: Refused,
    challenger: Option<Challenger>,
    /// Output buffer of the router.
    room: Box<[u8]>,
}

impl Relay {
    /// Creates a relay without neighbours.
    ///
    /// # Errors
    /// Returns an error if a parameter of the queue is invalid.
    pub fn new(config: RelayConfig) -> Result<Self, ParameterError> {
        let neighbours = Neighbours::new(&config);
        Ok(Self {
            egress: Egress::new(config.shape, config.seed)?,
            router: BreadcrumbRouter::new(config.router, neighbours),
            refused: Refused::default(),
            challenger: config.challenge_key.map(Challenger::new),
            room: vec![0; DATAGRAM_BYTES_MAX].into(),
        })
    }

    /// Returns the relay's counters.
    pub fn counters(&self) -> RelayCounters {
        RelayCounters {
            router: *self.router.counters(),
            egress: *self.egress.counters(),
            refused: self.refused,
            challenges: self.challenger.as_ref().map(|challenger| *challenger.counters()).unwrap_or_default(),
            neighbours: self.router.routes().len(),
            entries: self.router.entries(),
        }
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Ok((header, body)) = Header::parse(datagram.payload) else {
            self.refused.malformed += 1;
            return;
        };
        let from = unmapped(datagram.source);
        if header.kind == Kind::Challenge {
            self.challenged(now, from, &header, body);
            return;
        }
        match self.ingress(now, from, &header, body) {
            Ok(Some(ingress)) => self.route(now, ingress, datagram),
            Ok(None) => {}
            Err(reason) => *reason += 1,
        }
    }

    /// Returns the interface that a message arrives on, or the counter of the refusal; `None` if the sender
    /// has shown no word.
    fn ingress(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        body: &[u8],
    ) -> Result<Option<InterfaceId>, &mut u64> {
        let refused = &mut self.refused;
        let neighbours = self.router.routes_mut();
        if header.kind == Kind::Reply {
            return neighbours.replies(now, from).map(Some).ok_or(&mut refused.stranger);
        }
        if !neighbours.allows(from, header.source) {
            return Err(&mut refused.source);
        }
        if let Some(challenger) = &mut self.challenger
            && challenger.admit(now, from, header, body).is_none()
        {
            return Ok(None);
        }
        let Some(place) = neighbours.place(now, from) else { return Err(&mut refused.no_neighbour) };
        if !neighbours.may_send(now, place) {
            return Err(&mut refused.too_fast);
        }
        let above = neighbours.above(header.source);
        if !neighbours.has_above(now, place, above) {
            return Err(&mut refused.no_neighbour);
        }
        Ok(Some(neighbours.asks_by(place)))
    }

    /// Takes the word of a relay above or of a source, and repeats the refused request. The request's content
    /// is not known any more.
    fn challenged(&mut self, now: Instant, from: SocketAddr, header: &Header, word: &[u8]) {
        let neighbours = self.router.routes_mut();
        let is_above = neighbours.above(header.source) == from;
        let word = word.try_into().ok().filter(|_| is_above);
        let Some((word, (above, is_new))) = word.and_then(|word| Some((word, neighbours.learn(from, word)?)))
        else {
            self.refused.stranger += 1;
            return;
        };
        if is_new && !header.is_renewal {
            let header = Header { kind: Kind::Request, ..*header };
            let bytes = write_worded(&header, &word, &[], &mut self.room);
            self.send_up(now, above, bytes, Ecn::NotCapable);
        }
    }

    fn route(&mut self, now: Instant, ingress: InterfaceId, datagram: &Datagram<'_>) {
        self.router.handle(now, Input::Routed(ingress, *datagram));
        let mut held = None;
        while let Some(output) = self.router.poll_output(now, &mut self.room) {
            match output {
                Output::Router(RouterOutput::Forward { egress, ecn }) => {
                    held = held.or_else(|| self.egress.hold(datagram.payload, WAITING_MAX));
                    let Some(packet) = held else { continue };
                    self.egress.send(now, packet, egress, ecn);
                }
                // A cached reply goes back on the link of the request, and queues like forwarded replies.
                Output::Router(RouterOutput::Transmit { egress, transmit }) if egress == ingress => {
                    let Some(packet) = self.egress.hold(&self.room[..transmit.bytes], WAITING_MAX) else {
                        continue;
                    };
                    self.egress.send(now, packet, egress, transmit.ecn);
                    self.egress.release(packet);
                }
                Output::Router(RouterOutput::Transmit { egress, transmit }) => {
                    self.send_up(now, egress, transmit.bytes, transmit.ecn);
                }
                Output::Router(RouterOutput::Pass { .. })
                | Output::Transmit(_)
                | Output::Join(_)
                | Output::Leave(_)
                | Output::Event(_) => {}
            }
        }
        if let Some(packet) = held {
            self.egress.release(packet);
        }
    }

    /// Sends a request at once. Requests are small and bypass the queue: the buffer limit leaves room for
    /// requests regardless of queued replies.
    fn send_up(&mut self, now: Instant, egress: InterfaceId, bytes: usize, ecn: Ecn) {
        if !self.router.routes_mut().may_be_asked(now, egress) {
            self.refused.unproven += 1;
            return;
        }
        let message = &mut self.room[..bytes];
        // The word in front is this relay's own; the next hop demands another.
        if self.challenger.is_some()
            && let Some(word) = word_mut(message)
        {
            *word = self.router.routes().word(egress);
        }
        let Some(packet) = self.egress.hold(message, 2 * WAITING_MAX) else { return };
        self.egress.send_at_once(packet, egress, ecn);
        self.egress.release(packet);
    }
}

/// Converts an IPv4-mapped address to IPv4. A link-local address keeps its scope, which a reply needs.
fn unmapped(mut address: SocketAddr) -> SocketAddr {
    address.set_ip(address.ip().to_canonical());
    address
}

impl Machine for Relay {
    type Event = Infallible;

    fn expect(&mut self, payloads: &mut dyn Iterator<Item = &[u8]>) {
        self.router.expect(payloads);
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram(datagram) => self.datagram(now, &datagram),
            Input::Timeout => self.router.handle(now, Input::Timeout),
            Input::Routed(..) => {}
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        if let Some(transmit) = self.challenger.as_mut().and_then(|challenger| challenger.poll(buffer)) {
            return Some(Output::Transmit(transmit));
        }
        loop {
            let copy = self.egress.next(now)?;
            let bytes = self.egress.write(&copy, buffer);
            let Some(destination) = self.router.routes().destination(copy.egress) else { continue };
            return Some(Output::Transmit(Transmit { destination, bytes, ecn: copy.ecn }));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.router.poll_timeout(), self.egress.due()].into_iter().flatten().min()
    }
}

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

/// Configuration of a `Relay`.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    pub(super) router: RouterConfig,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) sources: Vec<SocketAddr>,
    pub(super) links: Vec<MulticastLink>,
    pub(super) neighbours: usize,
    pub(super) requests_per_second: u32,
    pub(super) shape: Option<EgressShape>,
    pub(super) seed: Seed,
    pub(super) challenge_key: Option<AdmissionKey>,
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
            challenge_key: None,
        }
    }

    /// Accepts requests only from addresses that return the word of a challenge, and sends such words to the
    /// relays and sources above. `key` must be secret. Default: `None`, any address, as in the paper.
    #[must_use]
    pub const fn with_challenges(mut self, key: Option<AdmissionKey>) -> Self {
        self.challenge_key = key;
        self
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
    pub const fn with_shape(mut self, shape: Option<EgressShape>) -> Self {
        self.shape = shape;
        self
    }
}
