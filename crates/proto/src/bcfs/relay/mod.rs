//! A router on any host: its interfaces are the addresses that it hears and speaks to by unicast UDP, so a
//! tree of relays needs nothing of the network between, and forms itself from the requests.
//!
//! Requests go to the relay above that is configured for their source, or to the source itself. Who asks is a
//! neighbour below, until it has been silent for longer than a breadcrumb lives. All that is lost when a
//! relay ends are breadcrumbs, which the next requests leave again; whoever comes back, above or below, is
//! served as before.
//!
//! Replies of which any would do, as symbols of a digital fountain, are kept for a second: who asks and has
//! not had one gets it at once, so that receivers need not ask at the same time for a link above to carry
//! each reply once for all of them.
//!
//! | what strangers may try | what becomes of it |
//! |---|---|
//! | floods of requests from an address | at most [`RelayConfig::with_requests_per_second`]; all else about labels: see [`BreadcrumbRouter`] |
//! | floods from made-up addresses | [`RelayConfig::with_neighbours`] of them for 10 s; those known stay, new ones wait |
//! | requests for sources at random, to take all places | once half of them were taken, 1 a second from an address; only who replies keeps its place |
//! | requests for a source that is none, to trouble whoever has the address | 20 a second to a host, as long as it has not replied from that port; none to loopback and groups; [`RelayConfig::with_sources`] names those that may be asked |
//! | forged replies | taken only from whom the source is asked by; who can forge that address can forge replies |
//! | requests for many sources, for what is kept of others | 16 sources; one that has been silent for a second gives way to another |
//! | relays in a circle | the hops of messages: see [`BreadcrumbRouter`] |

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

/// What a relay did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RelayCounters {
    /// Its router.
    pub router: Counters,
    /// Its links.
    pub egress: EgressCounters,
    /// Messages that it did not take, by the reason; what its router dropped is there.
    pub refused: Refused,
    /// Neighbours that it knows.
    pub neighbours: usize,
    /// Breadcrumbs that it holds.
    pub entries: usize,
}

/// Messages that did not get to the router, or not from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// No message of this version.
    pub malformed: u64,
    /// From an address that is faster than it may be.
    pub too_fast: u64,
    /// For a source that may not be asked.
    pub source: u64,
    /// Sent on by the router to an address that has not replied yet, faster than that may be asked until
    /// then.
    pub unproven: u64,
    /// While all neighbours were busy.
    pub no_neighbour: u64,
    /// Replies from an address that nobody was asked at.
    pub stranger: u64,
}

/// A router of breadcrumbs between addresses; see the top of the module.
#[derive(Debug)]
pub struct Relay {
    router: BreadcrumbRouter<Neighbours>,
    egress: Egress,
    refused: Refused,
    /// Where the router writes.
    room: Box<[u8]>,
}

impl Relay {
    /// A relay that knows nobody.
    ///
    /// # Errors
    /// A queue of which a parameter makes no sense.
    pub fn new(config: RelayConfig) -> Result<Self, ParameterError> {
        let neighbours = Neighbours::new(&config);
        Ok(Self {
            egress: Egress::new(config.shape, config.seed)?,
            router: BreadcrumbRouter::new(config.router, neighbours),
            refused: Refused::default(),
            room: vec![0; DATAGRAM_BYTES_MAX].into(),
        })
    }

    /// What it did.
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

    /// The interface that a message comes by, or the counter of why it is refused.
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
                // What answers goes back where the request came from, and waits as what is forwarded.
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

    /// Requests are small, and wait for nothing: there is room for them however many replies wait.
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

/// A mapped address as IPv4. One of a link keeps its scope, without which it cannot be answered.
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
