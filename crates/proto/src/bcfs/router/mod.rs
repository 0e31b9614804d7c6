//! The router: what it does with requests, nulls and replies (section 2.3).
//!
//! | what comes | what it does |
//! |---|---|
//! | request or null, no breadcrumb | notes the link, sends it on |
//! | request or null above the highest level of the links | notes it, sends it on |
//! | request or null of that level or below | notes it; sends a null of the highest level instead if the last message that went on is older than `T_refresh`, or had few hops left and fewer than this |
//! | reply, no breadcrumb | drops it |
//! | request of level 1 that any reply would answer, and one is kept that the link has not had | sends it there; nothing else ([`RouterConfig::with_recent`]) |
//! | reply | sends it out by all links that asked within `T_expire`; takes away those of its level and below, and those that did not |
//!
//! Breadcrumbs that nothing used for `T_expire` go, and the least recently used one where there is no room. A
//! request or null takes a constant time, and one for each link of a breadcrumb that gives way to it; a reply
//! takes one for each link. Neither depends on how many breadcrumbs there are, and nothing is allocated but a
//! list of the links of one reply, as long as the longest so far, and what is kept. The bounds are
//! [`RouterConfig::with_entries`] breadcrumbs, and four times as many links. What hostile ends can do: see
//! [`Counters::dropped`] for what is dropped; a flood of labels displaces breadcrumbs of others, which their
//! owners' next requests bring back, so whoever drives a router limits the rate of requests of each link.

mod config;
mod counters;
pub(crate) mod hash;
mod order;
mod recent;
mod slab;
mod table;

use core::convert::Infallible;
use core::net::SocketAddr;

use headwater_wire::bcfs::{HEADER_BYTES_MAX, HOPS, Header, Kind, Level};

pub use config::{ENTRIES, ENTRIES_MAX, RECENT_MAX, RouterConfig};
pub use counters::{Counters, Dropped};

use super::REQUEST_BODY_BYTES_MAX;
use crate::machine::{Datagram, Destination, Ecn, Input, InterfaceId, Router, RouterOutput, Transmit};
use crate::time::Instant;
use recent::{Number, Recent};
use table::{Before, Place, Table, Wanted};

/// Breadcrumbs removed at once when their time has come; the rest follows at the next call.
const EXPIRE_AT_ONCE: usize = 256;

/// The unicast routes of a router.
pub trait Routes {
    /// The interface towards `source`, if there is one.
    fn upstream(&self, source: SocketAddr) -> Option<InterfaceId>;
}

/// The one interface towards all sources.
impl Routes for InterfaceId {
    fn upstream(&self, _source: SocketAddr) -> Option<InterfaceId> {
        Some(*self)
    }
}

/// A router of breadcrumbs; see the top of the module.
///
/// What it sends towards a source it addresses to the source, what it had kept to the channel that it came
/// by, or to who asks, and it forwards replies as they came; a driver whose interfaces are peers of a socket
/// sends all to the interface's peer.
#[derive(Debug)]
pub struct BreadcrumbRouter<R> {
    routes: R,
    config: RouterConfig,
    table: Table,
    counters: Counters,
    recent: Recent,
    upward: Upward,
    /// What answers the request just handed in, if it is something that was kept.
    answer: Option<Answer>,
    /// When something was last handed in.
    now: Instant,
    /// Where the reply just handed in goes, last first.
    egresses: Vec<InterfaceId>,
    reply_ecn: Ecn,
}

/// A reply that was kept, for who asks now.
#[derive(Debug, Clone, Copy)]
struct Answer {
    number: Number,
    asked: Header,
    egress: InterfaceId,
    /// Who handed the request over.
    peer: SocketAddr,
}

/// A request or null that waits to be sent on.
#[derive(Debug)]
struct Upward {
    /// By which interface; `None` when there is none.
    egress: Option<InterfaceId>,
    transmit: Transmit,
    message: [u8; HEADER_BYTES_MAX + REQUEST_BODY_BYTES_MAX],
}

impl<R: Routes> BreadcrumbRouter<R> {
    /// A router without breadcrumbs.
    pub fn new(config: RouterConfig, routes: R) -> Self {
        let table = Table::new(config.hash_key, config.entries, config.links());
        Self {
            routes,
            recent: Recent::new(config.recent),
            config,
            table,
            counters: Counters::default(),
            answer: None,
            upward: Upward::new(),
            now: Instant::ZERO,
            egresses: Vec::new(),
            reply_ecn: Ecn::NotCapable,
        }
    }

    /// What it did.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Breadcrumbs that it holds.
    pub const fn entries(&self) -> usize {
        self.table.entries()
    }

    /// Links of all its breadcrumbs.
    pub const fn links(&self) -> usize {
        self.table.links()
    }

    /// Its routes.
    pub const fn routes(&self) -> &R {
        &self.routes
    }

    /// Its routes, to change them. Breadcrumbs stay: what is sent on next goes the new way, after `T_refresh`
    /// at the latest where somebody asks.
    pub const fn routes_mut(&mut self) -> &mut R {
        &mut self.routes
    }

    /// Messages that come next, as far as a driver knows that; the first
    /// [`EXPECTED_MAX`](crate::EXPECTED_MAX) of them count. What they need is looked for at once, instead of
    /// one after the other as they are handed in, so that a table which is in no cache costs not much more
    /// than a small one. It changes nothing that the router does.
    pub fn expect<'a>(&mut self, messages: impl IntoIterator<Item = &'a [u8]>) {
        let headers = messages.into_iter().filter_map(|message| Header::parse(message).ok());
        self.table.look_ahead(headers.map(|(header, _)| (header.source, header.label)));
    }

    fn message(&mut self, now: Instant, ingress: InterfaceId, datagram: &Datagram<'_>) {
        let Ok((header, body)) = Header::parse(datagram.payload) else {
            self.counters.dropped.malformed += 1;
            return;
        };
        let Some(upstream) = self.upstream(header.source) else {
            self.counters.dropped.no_route += 1;
            return;
        };
        let ways = Ways { ingress, upstream, ecn: datagram.ecn };
        match header.kind {
            Kind::Reply => self.reply(now, ways, &header, datagram),
            Kind::Request | Kind::Null => self.request(now, ways, &header, body, datagram.source),
        }
    }

    fn upstream(&self, source: SocketAddr) -> Option<InterfaceId> {
        let address = source.ip();
        let is_host = source.port() > 0 && !address.is_unspecified() && !address.is_multicast();
        if is_host { self.routes.upstream(source) } else { None }
    }

    /// A request or null; they differ in what they are counted as.
    fn request(&mut self, now: Instant, ways: Ways, header: &Header, body: &[u8], peer: SocketAddr) {
        if let Some(reason) = self.refusal(ways, header, body) {
            *reason += 1;
            return;
        }
        let wanted = self.table.wanted(header.source, header.label);
        if let Some(number) = self.kept(now, ways.ingress, header, &wanted) {
            self.counters.answered += 1;
            self.answer = Some(Answer { number, asked: *header, egress: ways.ingress, peer });
            return;
        }
        match header.kind {
            Kind::Null => self.counters.nulls += 1,
            Kind::Request | Kind::Reply => self.counters.requests += 1,
        }
        let place = self.place(now, ways.ingress, &wanted);
        let Before { top, refreshed, hops } = self.table.ask(now, place, ways.ingress, header.level);
        let onward = Header { hops: header.hops - 1, ..*header };
        if top.is_none_or(|top| header.level > top) {
            self.counters.sent_on += 1;
            // Whoever wants a loss to be told of could have what was asked for die on the way, or ask so that
            // nothing answers.
            if header.kind == Kind::Request && onward.hops >= HOPS / 2 {
                self.table.await_reply(place, header.level);
            }
            self.send_up(now, place, ways, &onward, body);
            return;
        }
        self.counters.suppressed += 1;
        // What went on with few hops may have died on the way, as somebody meant it to: who has more is not
        // held back by it.
        let may_have_died = hops < HOPS / 2 && onward.hops > hops;
        if may_have_died || now.since(refreshed) > self.config.refresh {
            self.counters.refreshed += 1;
            let null = Header { kind: Kind::Null, level: self.table.top(place), ..onward };
            self.send_up(now, place, ways, &null, &[]);
        }
    }

    /// What was kept that answers a request.
    fn kept(
        &mut self,
        now: Instant,
        ingress: InterfaceId,
        header: &Header,
        wanted: &Wanted,
    ) -> Option<Number> {
        // What a lost message left here and above is cleared by a higher level alone: that goes up. Where
        // nothing is left, it was lost below.
        if header.level > Level::ONE
            && self.live(now, wanted).is_some_and(|place| self.table.has_link(place, ingress))
        {
            return None;
        }
        self.recent.answer(now, ingress, header)
    }

    /// The counter of why a request is dropped, if it is.
    fn refusal(&mut self, ways: Ways, header: &Header, body: &[u8]) -> Option<&mut u64> {
        let dropped = &mut self.counters.dropped;
        if header.hops == 0 {
            Some(&mut dropped.hops)
        } else if ways.ingress == ways.upstream {
            Some(&mut dropped.from_upstream)
        } else if body.len() > REQUEST_BODY_BYTES_MAX {
            Some(&mut dropped.too_long)
        } else {
            None
        }
    }

    /// The breadcrumb of a request, where there is room for one more link, made if it is not there.
    fn place(&mut self, now: Instant, ingress: InterfaceId, wanted: &Wanted) -> Place {
        let mut place = self.live(now, wanted);
        if let Some(place) = place {
            // Before others are looked for that give way: what is asked for is no longer the oldest.
            self.table.touch(now, place);
        }
        while self.table.lacks_room(place, ingress) {
            let Some(oldest) = self.table.oldest() else { break };
            self.table.remove(oldest);
            self.counters.evicted += 1;
            place = self.table.find(wanted);
        }
        match place {
            Some(place) => place,
            None => self.table.create(now, wanted),
        }
    }

    /// The breadcrumb of a message, if it is there and has not outlived its time.
    fn live(&mut self, now: Instant, wanted: &Wanted) -> Option<Place> {
        let place = self.table.find(wanted)?;
        if now.since(self.table.last_used(now, place)) < self.config.expiry {
            return Some(place);
        }
        self.table.remove(place);
        self.counters.expired += 1;
        None
    }

    fn send_up(&mut self, now: Instant, place: Place, ways: Ways, header: &Header, body: &[u8]) {
        self.table.refresh(now, place, header.hops);
        self.upward.put(ways.upstream, header, body, ways.ecn);
    }

    fn reply(&mut self, now: Instant, ways: Ways, header: &Header, datagram: &Datagram<'_>) {
        if ways.ingress != ways.upstream {
            self.counters.dropped.not_from_upstream += 1;
            return;
        }
        let wanted = self.table.wanted(header.source, header.label);
        let Some(place) = self.live(now, &wanted) else {
            self.counters.dropped.unsolicited += 1;
            return;
        };
        let follows_loss = self.table.follows_loss(place, header.level);
        let stale =
            self.table.reply(now, place, &wanted, header.level, self.config.expiry, &mut self.egresses);
        // Links that asked before the route turned towards them get nothing back.
        self.egresses.retain(|egress| *egress != ways.ingress);
        if !self.egresses.is_empty()
            && let Some(kept) = self.recent.keep(now, header, follows_loss, datagram)
        {
            self.egresses.iter().for_each(|egress| self.recent.sent(kept, *egress));
        }
        self.reply_ecn = ways.ecn;
        self.counters.replies += 1;
        self.counters.forwarded += self.egresses.len() as u64;
        self.counters.links_expired += stale;
    }

    fn expire(&mut self, now: Instant) {
        for _ in 0..EXPIRE_AT_ONCE {
            let due = |place: &Place| now.since(self.table.last_used(now, *place)) >= self.config.expiry;
            let Some(place) = self.table.oldest().filter(due) else { return };
            self.table.remove(place);
            self.counters.expired += 1;
        }
    }
}

impl<R: Routes> Router for BreadcrumbRouter<R> {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, ingress: InterfaceId, input: Input<'_>) {
        self.now = now;
        self.egresses.clear();
        self.upward.egress = None;
        self.answer = None;
        match input {
            Input::Timeout => self.expire(now),
            Input::Datagram(datagram) => self.message(now, ingress, &datagram),
        }
    }

    fn poll_output(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<RouterOutput<Infallible>> {
        if let Some(egress) = self.upward.egress.take() {
            let transmit = self.upward.transmit;
            buffer[..transmit.bytes].copy_from_slice(&self.upward.message[..transmit.bytes]);
            return Some(RouterOutput::Transmit { egress, transmit });
        }
        if let Some(Answer { number, asked, egress, peer }) = self.answer.take() {
            let (bytes, channel) = self.recent.write(number, &asked, buffer)?;
            let destination = channel.map_or(Destination::Unicast(peer), Destination::Channel);
            return Some(RouterOutput::Transmit {
                egress,
                transmit: Transmit { destination, bytes, ecn: Ecn::NotCapable },
            });
        }
        let egress = self.egresses.pop()?;
        Some(RouterOutput::Forward { egress, ecn: self.reply_ecn })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let oldest = self.table.oldest()?;
        Some(self.table.last_used(self.now, oldest) + self.config.expiry)
    }
}

/// Where a message came from, and where its source is.
#[derive(Debug, Clone, Copy)]
struct Ways {
    ingress: InterfaceId,
    upstream: InterfaceId,
    ecn: Ecn,
}

impl Upward {
    const fn new() -> Self {
        let destination =
            Destination::Unicast(SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0));
        let transmit = Transmit { destination, bytes: 0, ecn: Ecn::NotCapable };
        Self { egress: None, transmit, message: [0; HEADER_BYTES_MAX + REQUEST_BODY_BYTES_MAX] }
    }

    fn put(&mut self, egress: InterfaceId, header: &Header, body: &[u8], ecn: Ecn) {
        let bytes = super::client::write(header, body, &mut self.message);
        self.transmit = Transmit { destination: Destination::Unicast(header.source), bytes, ecn };
        self.egress = Some(egress);
    }
}
