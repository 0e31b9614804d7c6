//! Whom a relay hears and speaks to: an address is an interface of its router, and all addresses of a link with many receivers are one.

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

#[derive(Debug)]
struct Neighbour {
    address: SocketAddr,
    /// When it last sent something, or was asked.
    used: Instant,
    /// When it last replied.
    replied: Option<Instant>,
    /// For the limits of what it sends, and of what it is sent while it has not replied.
    sends_due: Instant,
    asked_due: Instant,
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
            hand: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether requests for a source are taken at all.
    pub(super) fn allows(&self, source: SocketAddr) -> bool {
        self.sources.is_empty() || self.sources.contains(&source)
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

    /// Whether the neighbour of an interface may be asked once more.
    pub(super) fn may_be_asked(&mut self, now: Instant, id: InterfaceId) -> bool {
        let place = (id.0 as usize).wrapping_sub(self.links.len());
        let Some(neighbour) = self.places.get_mut(place) else { return false };
        let is_proven = neighbour.replied.is_some_and(|at| now.since(at) < PROVEN);
        is_proven || UNPROVEN.admits(now, &mut neighbour.asked_due)
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
        let is_above = self.upstreams.iter().any(|upstream| upstream.via == address);
        let link = self.links.iter().position(|link| !is_above && link.has(address.ip()));
        link.map_or_else(|| self.interface(place), interface)
    }

    /// Whom requests for a source go to.
    pub(super) fn above(&self, source: SocketAddr) -> SocketAddr {
        let of = |wanted| self.upstreams.iter().find(|upstream| upstream.source == wanted);
        of(Some(source)).or_else(|| of(None)).map_or(source, |upstream| upstream.via)
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
        let neighbour = Neighbour { address, used: now, replied: None, sends_due: now, asked_due: now };
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
