//! Whom a relay hears and speaks to: an address is an interface of its router, and all addresses of a link
//! with many receivers are one.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use super::config::{MulticastLink, RelayConfig, Upstream};
use super::limit::Limit;
use crate::bcfs::{EXPIRY, Routes};
use crate::machine::{Destination, InterfaceId};
use crate::time::{Duration, Instant};

/// Neighbours looked at for one that is silent, where a new one comes and there is no room.
const LOOK_AT: usize = 8;
/// Who has never replied, or not for so long, is asked slowly: the address may be anyone's.
const PROVEN: Duration = Duration::from_secs(30);
const UNPROVEN: Limit = Limit::new(20, 40);
/// Once half of the places were taken: addresses not known yet that one neighbour may have asked, so that who
/// names sources at random does not take the others.
const NAMES: Limit = Limit::new(1, 16);

#[derive(Debug)]
struct Neighbour {
    address: SocketAddr,
    /// When it last sent something, or was asked.
    used: Instant,
    /// When it last replied.
    replied: Option<Instant>,
    /// For the limits of what it sends, and of whom it names.
    sends_due: Instant,
    names_due: Instant,
}

/// The table. Its interfaces: first the links with many receivers, then a place for each neighbour.
#[derive(Debug)]
pub(super) struct Neighbours {
    upstreams: Vec<Upstream>,
    sources: Vec<SocketAddr>,
    links: Vec<MulticastLink>,
    limit: Limit,
    bound: usize,
    places: Vec<Neighbour>,
    by_address: BTreeMap<SocketAddr, usize>,
    /// Hosts that were asked and had not replied, and when each may be asked next; at most as many as
    /// neighbours.
    unproven: BTreeMap<IpAddr, Instant>,
    /// Where to look for a silent one next.
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

    /// Whether requests for a source are taken at all. From elsewhere nobody reaches what listens on this
    /// machine alone, and nobody reaches groups, unless they are named to the relay.
    pub(super) fn allows(&self, from: SocketAddr, source: SocketAddr) -> bool {
        if !self.sources.is_empty() {
            return self.sources.contains(&source);
        }
        let above = self.above(source);
        let ip = above.ip();
        // Linux takes the unspecified address for loopback.
        let is_inside = ip.is_loopback() || ip.is_unspecified();
        self.is_upstream(above) || !ip.is_multicast() && (!is_inside || from.ip().is_loopback())
    }

    /// The place of an address, made if there is none; `None` where all are busy.
    pub(super) fn place(&mut self, now: Instant, address: SocketAddr) -> Option<usize> {
        let place = match self.by_address.get(&address) {
            Some(place) => *place,
            None => self.make(now, address)?,
        };
        self.places[place].used = now;
        Some(place)
    }

    /// Whether a neighbour may send one more request.
    pub(super) fn may_send(&mut self, now: Instant, place: usize) -> bool {
        self.limit.admits(now, &mut self.places[place].sends_due)
    }

    /// Whether there is a place for whom `asker` wants asked, made if need be. To be asked keeps a place for
    /// relays that are configured alone; the others reply.
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

    /// Whether the neighbour of an interface may be asked once more. By host: who names a source chooses its
    /// port, too.
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

    /// The interface that replies come by from an address, if it has one; it has replied.
    pub(super) fn replies(&mut self, now: Instant, address: SocketAddr) -> Option<InterfaceId> {
        let place = *self.by_address.get(&address)?;
        let neighbour = &mut self.places[place];
        (neighbour.used, neighbour.replied) = (now, Some(now));
        Some(self.interface(place))
    }

    /// The interface that a neighbour's requests come by.
    pub(super) fn asks_by(&self, place: usize) -> InterfaceId {
        let address = self.places[place].address;
        let is_above = self.is_upstream(address);
        let link = self.links.iter().position(|link| !is_above && link.has(address.ip()));
        link.map_or_else(|| self.interface(place), interface)
    }

    /// Whom requests for a source go to.
    pub(super) fn above(&self, source: SocketAddr) -> SocketAddr {
        let of = |wanted| self.upstreams.iter().find(|upstream| upstream.source == wanted);
        of(Some(source)).or_else(|| of(None)).map_or(source, |upstream| upstream.via)
    }

    /// Whether it is a relay above that is configured.
    fn is_upstream(&self, address: SocketAddr) -> bool {
        self.upstreams.iter().any(|upstream| upstream.via == address)
    }

    /// Where what leaves by an interface goes.
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
        let neighbour = Neighbour { address, used: now, replied: None, sends_due: now, names_due: now };
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

    /// One whose breadcrumbs have all expired, of the next few: who asks in vain looks on from there.
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
    /// Whether an address is of its network.
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
