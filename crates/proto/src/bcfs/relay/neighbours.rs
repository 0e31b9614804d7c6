//! Neighbour table of a relay. Each address is an interface of the router; all addresses of a link with many
//! receivers are a single interface.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use super::{MulticastLink, RelayConfig, Upstream};
use crate::admission::{Limit, Word};
use crate::bcfs::{EXPIRY, Routes};
use crate::machine::{Destination, InterfaceId};
use crate::time::{Duration, Instant};

/// Number of neighbours examined in search of a silent neighbour, if the table is full.
const LOOK_AT: usize = 8;
/// Time for which a reply proves an address. An unproven address, possibly spoofed, gets requests at a low
/// rate.
const PROVEN: Duration = Duration::from_secs(30);
const UNPROVEN: Limit = Limit::new(20, 40);
/// Limit of unknown addresses that a neighbour may name once half the table is used, so that random source
/// names do not take the remaining places.
const NAMES: Limit = Limit::new(1, 16);

#[derive(Debug)]
struct Neighbour {
    address: SocketAddr,
    /// Time of the last message from the neighbour, or, for a configured relay above, of the last request to
    /// it.
    used: Instant,
    /// Time of the last reply.
    replied: Option<Instant>,
    /// State of the limits of requests and of named sources.
    sends_due: Instant,
    names_due: Instant,
    /// Word that this relay has to return to the neighbour; zeros before the first challenge.
    word: Word,
}

/// Neighbour table. Interfaces are numbered with the links of many receivers first, then a place for each
/// neighbour.
#[derive(Debug)]
pub(super) struct Neighbours {
    upstreams: Vec<Upstream>,
    sources: Vec<SocketAddr>,
    links: Vec<MulticastLink>,
    limit: Limit,
    bound: usize,
    places: Vec<Neighbour>,
    by_address: BTreeMap<SocketAddr, usize>,
    /// Requested hosts without a reply, with the time of the next permitted request; at most as many as
    /// neighbours.
    unproven: BTreeMap<IpAddr, Instant>,
    /// Place at which the next search for a silent neighbour starts.
    hand: usize,
}

impl Neighbours {
    pub(super) fn new(config: &RelayConfig) -> Self {
        let per_second = config.requests_per_second;
        Self {
            upstreams: config.upstreams.clone(),
            sources: config.sources.clone(),
            links: config.links.clone(),
            limit: Limit::new(per_second, (per_second / 10).max(64)),
            bound: config.neighbours,
            places: Vec::new(),
            by_address: BTreeMap::new(),
            unproven: BTreeMap::new(),
            hand: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether requests for a source are accepted. Unless configured, groups are refused, and loopback
    /// sources are refused to neighbours on other hosts.
    pub(super) fn allows(&self, from: SocketAddr, source: SocketAddr) -> bool {
        if !self.sources.is_empty() {
            return self.sources.contains(&source);
        }
        let above = self.above(source);
        let ip = above.ip();
        // Linux treats the unspecified address as loopback.
        let is_inside = ip.is_loopback() || ip.is_unspecified();
        self.is_upstream(above) || !ip.is_multicast() && (!is_inside || from.ip().is_loopback())
    }

    /// Returns the place of an address, creating the neighbour if absent; `None` if all neighbours are
    /// active.
    pub(super) fn place(&mut self, now: Instant, address: SocketAddr) -> Option<usize> {
        let place = match self.by_address.get(&address) {
            Some(place) => *place,
            None => self.make(now, address)?,
        };
        self.places[place].used = now;
        Some(place)
    }

    /// Whether a neighbour may send another request.
    pub(super) fn may_send(&mut self, now: Instant, place: usize) -> bool {
        self.limit.admits(now, &mut self.places[place].sends_due)
    }

    /// Whether the address above that `asker`'s request goes to has a place; creates a missing place if
    /// permitted. A request keeps the place only of a configured relay; a source keeps its place by replies.
    pub(super) fn has_above(&mut self, now: Instant, asker: usize, above: SocketAddr) -> bool {
        let is_upstream = self.is_upstream(above);
        if let Some(place) = self.by_address.get(&above) {
            if is_upstream {
                self.places[*place].used = now;
            }
            return true;
        }
        let has_room = is_upstream || self.places.len() <= self.bound / 2;
        let may_be_named = has_room || NAMES.admits(now, &mut self.places[asker].names_due);
        may_be_named && self.make(now, above).is_some()
    }

    /// Whether the neighbour of an interface may be sent another request. The limit counts by host, because
    /// an attacker that names a source also chooses the port.
    pub(super) fn may_be_asked(&mut self, now: Instant, id: InterfaceId) -> bool {
        let place = (id.0 as usize).wrapping_sub(self.links.len());
        let Some(Neighbour { address, replied, .. }) = self.places.get(place) else { return false };
        if replied.is_some_and(|at| now.since(at) < PROVEN) || self.is_upstream(*address) {
            return true;
        }
        let host = address.ip();
        if !self.unproven.contains_key(&host) && self.unproven.len() >= self.bound {
            self.unproven.retain(|_, due| *due > now);
            if self.unproven.len() >= self.bound {
                return false;
            }
        }
        UNPROVEN.admits(now, self.unproven.entry(host).or_insert(now))
    }

    /// Returns the interface of replies from an address, if known, and records the reply.
    pub(super) fn replies(&mut self, now: Instant, address: SocketAddr) -> Option<InterfaceId> {
        let place = *self.by_address.get(&address)?;
        let neighbour = &mut self.places[place];
        (neighbour.used, neighbour.replied) = (now, Some(now));
        Some(self.interface(place))
    }

    /// Records the word that a neighbour above demands. Returns the neighbour's interface, if known, and
    /// whether the word differs from the last.
    pub(super) fn learn(&mut self, address: SocketAddr, word: Word) -> Option<(InterfaceId, bool)> {
        let place = *self.by_address.get(&address)?;
        let known = core::mem::replace(&mut self.places[place].word, word);
        Some((self.interface(place), known != word))
    }

    /// Returns the word that the neighbour of an interface demands.
    pub(super) fn word(&self, id: InterfaceId) -> Word {
        let place = (id.0 as usize).wrapping_sub(self.links.len());
        self.places.get(place).map_or([0; 8], |neighbour| neighbour.word)
    }

    /// Returns the interface of a neighbour's requests.
    pub(super) fn asks_by(&self, place: usize) -> InterfaceId {
        let address = self.places[place].address;
        let is_above = self.is_upstream(address);
        let link = self.links.iter().position(|link| !is_above && link.has(address.ip()));
        link.map_or_else(|| self.interface(place), interface)
    }

    /// Returns the next hop of requests for a source.
    pub(super) fn above(&self, source: SocketAddr) -> SocketAddr {
        let of = |wanted| self.upstreams.iter().find(|upstream| upstream.source == wanted);
        of(Some(source)).or_else(|| of(None)).map_or(source, |upstream| upstream.via)
    }

    /// Whether an address is a configured relay above.
    fn is_upstream(&self, address: SocketAddr) -> bool {
        self.upstreams.iter().any(|upstream| upstream.via == address)
    }

    /// Returns the destination of messages that leave by an interface.
    pub(super) fn destination(&self, id: InterfaceId) -> Option<Destination> {
        let index = id.0 as usize;
        if let Some(link) = self.links.get(index) {
            return Some(Destination::Channel(link.channel));
        }
        let neighbour = self.places.get(index - self.links.len())?;
        Some(Destination::Unicast(neighbour.address))
    }

    fn interface(&self, place: usize) -> InterfaceId {
        interface(self.links.len() + place)
    }

    fn make(&mut self, now: Instant, address: SocketAddr) -> Option<usize> {
        let neighbour =
            Neighbour { address, used: now, replied: None, sends_due: now, names_due: now, word: [0; 8] };
        let place = if self.places.len() < self.bound {
            self.places.push(neighbour);
            self.places.len() - 1
        } else {
            let place = self.silent(now)?;
            self.by_address.remove(&self.places[place].address);
            self.places[place] = neighbour;
            place
        };
        self.by_address.insert(address, place);
        Some(place)
    }

    /// Returns a neighbour whose breadcrumbs have all expired, among the next few. A failed search continues
    /// from there next time.
    fn silent(&mut self, now: Instant) -> Option<usize> {
        for _ in 0..LOOK_AT.min(self.places.len()) {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.places.len();
            if now.since(self.places[place].used) > EXPIRY {
                return Some(place);
            }
        }
        None
    }
}

impl Routes for Neighbours {
    fn upstream(&self, source: SocketAddr) -> Option<InterfaceId> {
        let place = self.by_address.get(&self.above(source))?;
        Some(self.interface(*place))
    }
}

impl MulticastLink {
    /// Whether an address belongs to this link's network.
    fn has(&self, address: IpAddr) -> bool {
        let shared = |bits: u32| bits.saturating_sub(self.prefix.into());
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differ = u64::from(network.to_bits() ^ address.to_bits());
                differ >> shared(32) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differ = network.to_bits() ^ address.to_bits();
                differ.checked_shr(shared(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

fn interface(index: usize) -> InterfaceId {
    // Links and places are at most some 2^17.
    InterfaceId(u32::try_from(index).unwrap_or(u32::MAX))
}
