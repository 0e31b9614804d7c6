//! Breadcrumb router: forwarding of requests, nulls and replies (section 2.3).
//!
//! | message | action |
//! |---|---|
//! | request or null without a breadcrumb | record the link, forward the message |
//! | request or null above the highest level of the links | record the link, forward the message |
//! | request or null at or below that level | record the link, suppress the message or forward a null |
//! | reply without a breadcrumb | drop |
//! | request that a cached reply answers | send the cached reply to the link; no other effect |
//! | reply | forward on all links that requested within `T_expire` |
//!
//! In place of a suppressed message, the router forwards a null of the highest level if the last forwarded
//! message is older than `T_refresh`, or had few hops left and fewer than the suppressed message. A cached
//! reply ([`RouterConfig::with_recent`]) answers a request that any reply answers, if the link has not
//! received the reply. The request must be of level 1, or have no breadcrumb of its link. A reply removes the
//! links at or below the reply's level, and the expired links.
//!
//! A breadcrumb unused for `T_expire` is removed; if the table is full, the least recently used breadcrumb is
//! evicted. A request or null takes constant time, plus one step for each link of an evicted breadcrumb; a
//! reply takes one step for each link. Neither cost depends on the number of breadcrumbs. The router
//! allocates only the list of egress links of a reply, as long as the longest so far, and the cached replies.
//! Bounds: [`RouterConfig::with_entries`] breadcrumbs, and four times as many links. [`Counters::dropped`]
//! lists the hostile messages that the router drops. A flood of labels evicts the breadcrumbs of other
//! receivers, whose next requests restore them; the driver of a router therefore limits the request rate of
//! each link.

mod order;
mod recent;
mod slab;
pub(crate) mod table;

use core::convert::Infallible;
use core::net::SocketAddr;

use headwater_wire::bcfs::{HEADER_BYTES_MAX, HOPS, Header, Kind, Level, WORDED_BODY_BYTES_MIN};
use serde::Serialize;

use recent::{Number, Recent};
use table::{Before, Place, Table, Wanted};

use super::{EXPIRY, REFRESH, REQUEST_BODY_BYTES_MAX};
use crate::machine::{
    Datagram, Destination, Ecn, Input, InterfaceId, Machine, Output, RouterOutput, Transmit,
};
use crate::time::{Duration, Instant};

/// Maximum number of breadcrumbs removed by a timeout; the next calls remove the rest.
const EXPIRE_AT_ONCE: usize = 256;

/// Unicast routes of a router.
pub trait Routes {
    /// Returns the interface towards `source`, if there is a route.
    fn upstream(&self, source: SocketAddr) -> Option<InterfaceId>;
}

/// A single interface towards all sources.
impl Routes for InterfaceId {
    fn upstream(&self, _source: SocketAddr) -> Option<InterfaceId> {
        Some(*self)
    }
}

/// Breadcrumb router; see the module documentation.
///
/// The router addresses messages towards a source to that source. A cached reply goes to the channel on which
/// the reply arrived, or else to the requesting peer. Other replies are forwarded unchanged. A driver whose
/// interfaces are peers of a socket sends every message to the peer of the interface.
#[derive(Debug)]
pub struct BreadcrumbRouter<R> {
    routes: R,
    config: RouterConfig,
    table: Table,
    counters: RouterCounters,
    recent: Recent,
    upward: Upward,
    /// Cached reply to the current request, if any.
    answer: Option<Answer>,
    /// Time of the last input.
    now: Instant,
    /// Links on which the current reply is forwarded, last first.
    egresses: Vec<InterfaceId>,
    reply_ecn: Ecn,
}

/// Cached reply to send to a requesting link.
#[derive(Debug, Clone, Copy)]
struct Answer {
    number: Number,
    asked: Header,
    egress: InterfaceId,
    /// Peer that delivered the request.
    peer: SocketAddr,
}

/// Request or null that waits to be forwarded.
#[derive(Debug)]
struct Upward {
    /// Egress interface; `None` if no message waits.
    egress: Option<InterfaceId>,
    transmit: Transmit,
    message: [u8; HEADER_BYTES_MAX + REQUEST_BODY_BYTES_MAX],
}

impl<R: Routes> BreadcrumbRouter<R> {
    /// Creates a router without breadcrumbs.
    pub fn new(config: RouterConfig, routes: R) -> Self {
        let table = Table::new(config.hash_key, config.entries, config.links());
        Self {
            routes,
            recent: Recent::new(config.recent),
            config,
            table,
            counters: RouterCounters::default(),
            answer: None,
            upward: Upward::new(),
            now: Instant::ZERO,
            egresses: Vec::new(),
            reply_ecn: Ecn::NotCapable,
        }
    }

    /// Returns the router's counters.
    pub const fn counters(&self) -> &RouterCounters {
        &self.counters
    }

    /// Returns the number of breadcrumbs.
    pub const fn entries(&self) -> usize {
        self.table.entries()
    }

    /// Returns the number of links over all breadcrumbs.
    pub const fn links(&self) -> usize {
        self.table.links()
    }

    /// Returns the routes.
    pub const fn routes(&self) -> &R {
        &self.routes
    }

    /// Returns the routes for modification. Breadcrumbs stay: the next forwarded message takes the new route,
    /// at most `T_refresh` later if a receiver repeats its request.
    pub const fn routes_mut(&mut self) -> &mut R {
        &mut self.routes
    }

    /// Announces the next messages, as far as the driver knows them; the router uses the first
    /// [`EXPECTED_MAX`](crate::EXPECTED_MAX). The router looks up the breadcrumbs of all messages at once, so
    /// that a table larger than the caches costs little more than a small table. The router's output does not
    /// change.
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
            // A challenge is between two hops.
            Kind::Challenge => self.counters.dropped.malformed += 1,
        }
    }

    fn upstream(&self, source: SocketAddr) -> Option<InterfaceId> {
        let address = source.ip();
        let is_host = source.port() > 0 && !address.is_unspecified() && !address.is_multicast();
        if is_host { self.routes.upstream(source) } else { None }
    }

    /// Handles a request or a null; only the counters differ.
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
            Kind::Request | Kind::Reply | Kind::Challenge => self.counters.requests += 1,
        }
        let place = self.place(now, ways.ingress, &wanted);
        let Before { top, refreshed, hops } = self.table.ask(now, place, ways.ingress, header.level);
        let onward = Header { hops: header.hops - 1, ..*header };
        if top.is_none_or(|top| header.level > top) {
            self.counters.sent_on += 1;
            // A receiver that wants to fake a loss could let its request run out of hops, or send a null,
            // which may get no reply.
            if header.kind == Kind::Request && onward.hops >= HOPS / 2 {
                self.table.await_reply(place, header.level);
            }
            self.send_up(now, place, ways, &onward, body);
            return;
        }
        self.counters.suppressed += 1;
        // A forwarded message with few hops may have run out of hops on the way, perhaps by intent of the
        // sender, and must not suppress a message with more hops.
        let may_have_died = hops < HOPS / 2 && onward.hops > hops;
        if may_have_died || now.since(refreshed) > self.config.refresh {
            self.counters.refreshed += 1;
            let null = Header { kind: Kind::Null, level: self.table.top(place), ..onward };
            // With words, a null has room for one.
            self.send_up(now, place, ways, &null, body.get(..WORDED_BODY_BYTES_MIN).unwrap_or(&[]));
        }
    }

    /// Returns the cached reply for a request, if any.
    fn kept(
        &mut self,
        now: Instant,
        ingress: InterfaceId,
        header: &Header,
        wanted: &Wanted,
    ) -> Option<Number> {
        // A request above level 1 from a link that still has a breadcrumb follows a loss above. Only a reply
        // of the higher level clears the breadcrumbs here and above, so the request is forwarded. Without a
        // breadcrumb the loss was below.
        if header.level > Level::ONE
            && self.live(now, wanted).is_some_and(|place| self.table.has_link(place, ingress))
        {
            return None;
        }
        self.recent.answer(now, ingress, header)
    }

    /// Returns the drop counter for a refused request.
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

    /// Returns the breadcrumb of a request, with room for another link; creates an absent breadcrumb.
    fn place(&mut self, now: Instant, ingress: InterfaceId, wanted: &Wanted) -> Place {
        let mut place = self.live(now, wanted);
        if let Some(place) = place {
            // Touched before the search for eviction candidates, so that the requested breadcrumb is not the
            // oldest.
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

    /// Returns the unexpired breadcrumb of a message, if any.
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
        // A link that requested before the route changed to that link gets no reply.
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

impl<R: Routes> Machine for BreadcrumbRouter<R> {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        self.egresses.clear();
        self.upward.egress = None;
        self.answer = None;
        match input {
            Input::Timeout => self.expire(now),
            Input::Routed(ingress, datagram) => self.message(now, ingress, &datagram),
            Input::Datagram(_) => {}
        }
    }

    fn poll_output(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        if let Some(egress) = self.upward.egress.take() {
            let transmit = self.upward.transmit;
            buffer[..transmit.bytes].copy_from_slice(&self.upward.message[..transmit.bytes]);
            return Some(Output::Router(RouterOutput::Transmit { egress, transmit }));
        }
        if let Some(Answer { number, asked, egress, peer }) = self.answer.take() {
            let (bytes, channel) = self.recent.write(number, &asked, buffer)?;
            let destination = channel.map_or(Destination::Unicast(peer), Destination::Channel);
            return Some(Output::Router(RouterOutput::Transmit {
                egress,
                transmit: Transmit { destination, bytes, ecn: Ecn::NotCapable },
            }));
        }
        let egress = self.egresses.pop()?;
        Some(Output::Router(RouterOutput::Forward { egress, ecn: self.reply_ecn }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let oldest = self.table.oldest()?;
        Some(self.table.last_used(self.now, oldest) + self.config.expiry)
    }
}

/// Link on which a message arrived, and link towards its source.
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
        let bytes = super::write(header, body, &mut self.message);
        self.transmit = Transmit { destination: Destination::Unicast(header.source), bytes, ecn };
        self.egress = Some(egress);
    }
}

/// Default number of breadcrumbs of a router.
pub const ENTRIES: usize = 65_536;
/// Maximum number of breadcrumbs that can be configured: 102 MB, and 265 MB with the maximum number of links.
pub const ENTRIES_MAX: usize = 1_000_000;
/// Maximum number of cached replies for each of at most 16 sources: 25 MB for each source in packets of 1500
/// bytes, at most 147 MB.
pub const RECENT_MAX: usize = 16_384;
/// Capacity for links per breadcrumb, on average.
const LINKS_PER_ENTRY: usize = 4;

/// Configuration of a [`BreadcrumbRouter`](super::BreadcrumbRouter).
#[derive(Debug, Clone)]
pub struct RouterConfig {
    pub(super) entries: usize,
    pub(super) refresh: Duration,
    pub(super) expiry: Duration,
    pub(super) hash_key: [u64; 2],
    pub(super) recent: usize,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self { entries: ENTRIES, refresh: REFRESH, expiry: EXPIRY, hash_key: [0; 2], recent: 0 }
    }
}

impl RouterConfig {
    /// Sets the maximum number of breadcrumbs, clamped to 1 to [`ENTRIES_MAX`]. Default [`ENTRIES`]. A
    /// breadcrumb takes 64 bytes with its first two links, and 17 to 33 bytes for the place in the order of
    /// use. Each further link takes 20 bytes; there is room for four times as many links as breadcrumbs.
    /// Breadcrumbs and further links each take 15 to 25 bytes more in the hash index.
    #[must_use]
    pub fn with_entries(mut self, entries: usize) -> Self {
        self.entries = entries.clamp(1, ENTRIES_MAX);
        self
    }

    /// Sets the minimum age of the last forwarded message before a null is forwarded. Default [`REFRESH`].
    #[must_use]
    pub const fn with_refresh(mut self, refresh: Duration) -> Self {
        self.refresh = refresh;
        self
    }

    /// Sets the lifetime of unused breadcrumbs and links. Default [`EXPIRY`].
    #[must_use]
    pub const fn with_expiry(mut self, expiry: Duration) -> Self {
        self.expiry = expiry;
        self
    }

    /// Sets the key of the table's hash. If strangers send requests, the key must be random, against a choice
    /// of colliding labels. Default 0, for simulations. The key changes no output.
    #[must_use]
    pub const fn with_hash_key(mut self, key: [u64; 2]) -> Self {
        self.hash_key = key;
        self
    }

    /// Sets the number of cached replies of a source, at most [`RECENT_MAX`]. For one second after arrival, a
    /// cached reply answers requests that any reply answers, from links without the reply; other requests are
    /// forwarded. Default: 0, as in the paper.
    #[must_use]
    pub const fn with_recent(mut self, replies: usize) -> Self {
        self.recent = if replies > RECENT_MAX { RECENT_MAX } else { replies };
        self
    }

    pub(super) const fn links(&self) -> usize {
        self.entries * LINKS_PER_ENTRY
    }
}

/// Counts since the router was created. Each message received is counted in exactly one of `requests`,
/// `answered`, `nulls`, `replies` and `dropped`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RouterCounters {
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
