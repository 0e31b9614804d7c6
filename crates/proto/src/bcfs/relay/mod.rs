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
//! | flood from spoofed addresses | [`RelayConfig::with_neighbours`]; known neighbours stay |
//! | requests for random sources, to fill the table | 1 new source a second from an address |
//! | requests for a false source, to flood a victim | 20 requests a second to a host without a reply |
//! | forged replies | accepted only from addresses that the relay requests from |
//! | requests for many sources, to fill the cache | 16 sources; a source silent for a second is evicted |
//! | loop of relays | hop count of messages: see [`BreadcrumbRouter`] |
//!
//! A spoofed address takes an entry of the neighbour table for 10 s; meanwhile, new addresses wait. The limit
//! of new sources applies once half the table is used, and only a source that replies keeps its entry. The
//! limit of requests to a host applies until a reply from the source's port. Unless configured, the relay
//! sends no requests to groups, and no requests from other hosts to loopback; [`RelayConfig::with_sources`]
//! restricts the sources. An attacker that spoofs the address of a source, or of a relay above, can forge
//! replies.

mod config;
mod limit;
mod neighbours;

use core::convert::Infallible;
use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind};
use serde::Serialize;

pub use crate::egress::{EgressCounters, Shape, WAITING_MAX};
pub use config::{MulticastLink, NEIGHBOURS, RECENT, REQUESTS_PER_SECOND, RelayConfig, Upstream};
pub(crate) use limit::Limit;

use super::{BreadcrumbRouter, Counters};
use crate::egress::Egress;
use crate::machine::{
    DATAGRAM_BYTES_MAX, Datagram, Input, InterfaceId, Machine, Output, Router, RouterOutput, Transmit,
};
use crate::queue::ParameterError;
use crate::time::Instant;
use neighbours::Neighbours;

/// Counters of a relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RelayCounters {
    /// Counters of the router.
    pub router: Counters,
    /// Counters of the egress links.
    pub egress: EgressCounters,
    /// Messages refused by the relay, by reason; messages dropped by the router are counted in `router`.
    pub refused: Refused,
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
            room: vec![0; DATAGRAM_BYTES_MAX].into(),
        })
    }

    /// Returns the relay's counters.
    pub fn counters(&self) -> RelayCounters {
        RelayCounters {
            router: *self.router.counters(),
            egress: *self.egress.counters(),
            refused: self.refused,
            neighbours: self.router.routes().len(),
            entries: self.router.entries(),
        }
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        match self.ingress(now, datagram) {
            Ok(ingress) => self.route(now, ingress, datagram),
            Err(reason) => *reason += 1,
        }
    }

    /// Returns the interface that a message arrives on, or the counter of the refusal.
    fn ingress(&mut self, now: Instant, datagram: &Datagram<'_>) -> Result<InterfaceId, &mut u64> {
        let refused = &mut self.refused;
        let Ok((header, _)) = Header::parse(datagram.payload) else { return Err(&mut refused.malformed) };
        let (from, neighbours) = (unmapped(datagram.source), self.router.routes_mut());
        if header.kind == Kind::Reply {
            return neighbours.replies(now, from).ok_or(&mut refused.stranger);
        }
        if !neighbours.allows(from, header.source) {
            return Err(&mut refused.source);
        }
        let Some(place) = neighbours.place(now, from) else { return Err(&mut refused.no_neighbour) };
        if !neighbours.may_send(now, place) {
            return Err(&mut refused.too_fast);
        }
        let above = neighbours.above(header.source);
        if !neighbours.has_above(now, place, above) {
            return Err(&mut refused.no_neighbour);
        }
        Ok(neighbours.asks_by(place))
    }

    fn route(&mut self, now: Instant, ingress: InterfaceId, datagram: &Datagram<'_>) {
        self.router.handle(now, ingress, Input::Datagram(*datagram));
        let mut held = None;
        while let Some(output) = self.router.poll_output(now, &mut self.room) {
            match output {
                RouterOutput::Forward { egress, ecn } => {
                    held = held.or_else(|| self.egress.hold(datagram.payload, WAITING_MAX));
                    let Some(packet) = held else { continue };
                    self.egress.send(now, packet, egress, ecn);
                }
                // A cached reply goes back on the link of the request, and queues like forwarded replies.
                RouterOutput::Transmit { egress, transmit } if egress == ingress => {
                    let Some(packet) = self.egress.hold(&self.room[..transmit.bytes], WAITING_MAX) else {
                        continue;
                    };
                    self.egress.send(now, packet, egress, transmit.ecn);
                    self.egress.release(packet);
                }
                RouterOutput::Transmit { egress, transmit } => self.send_up(now, egress, transmit),
                RouterOutput::Pass { .. }
                | RouterOutput::Join(..)
                | RouterOutput::Leave(..)
                | RouterOutput::Event(_) => {}
            }
        }
        if let Some(packet) = held {
            self.egress.release(packet);
        }
    }

    /// Sends a request at once. Requests are small and bypass the queue: the buffer limit leaves room for
    /// requests regardless of queued replies.
    fn send_up(&mut self, now: Instant, egress: InterfaceId, transmit: Transmit) {
        if !self.router.routes_mut().may_be_asked(now, egress) {
            self.refused.unproven += 1;
            return;
        }
        let Some(packet) = self.egress.hold(&self.room[..transmit.bytes], 2 * WAITING_MAX) else { return };
        self.egress.send_at_once(packet, egress, transmit.ecn);
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
            Input::Timeout => self.router.handle(now, InterfaceId(0), Input::Timeout),
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
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
