//! The breadcrumbs of a router: which links asked for what, in the order in which they were last used.
//!
//! Every operation costs the same whatever the table holds, but for those that go over all links of one entry.

use core::net::SocketAddr;

use headwater_wire::bcfs::{Label, Level};

use super::hash::{Key, address_words, hash};
use super::slab::{NONE, Node, Slab};
use crate::machine::InterfaceId;
use crate::time::{Duration, Instant};

/// A breadcrumb: what links asked of a source by one label.
#[derive(Debug)]
struct Entry {
    of: Of,
    /// The highest level of its links.
    top: Level,
    /// When a request or null was last sent on.
    refreshed: Instant,
    /// Hops that it had left.
    hops: u8,
    /// When a message last touched it.
    used: Instant,
    first_link: u32,
    older: u32,
    newer: u32,
    chain: u32,
}

/// Source and label, in the form in which they are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Of {
    address: [u64; 2],
    port: u16,
    label: Label,
}

/// A link that asked.
#[derive(Debug)]
struct Link {
    entry: u32,
    interface: InterfaceId,
    level: Level,
    asked: Instant,
    next: u32,
    chain: u32,
}

impl Node for Entry {
    fn chain(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

impl Node for Link {
    fn chain(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

impl Of {
    fn new(source: SocketAddr, label: Label) -> Self {
        Self { address: address_words(source.ip()), port: source.port(), label }
    }

    fn hash(&self, key: Key) -> u64 {
        let [high, low] = self.address;
        hash(key, [high, low, u64::from(self.port) << 32 | u64::from(self.label.0)])
    }
}

/// What a request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Before {
    /// The highest level asked for before; `None` where there was no breadcrumb.
    pub(super) top: Option<Level>,
    /// When a request or null was last sent on.
    pub(super) refreshed: Instant,
    /// Hops that it had left.
    pub(super) hops: u8,
}

/// A place in the table, until the next call that changes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(u32);

#[derive(Debug)]
pub(super) struct Table {
    key: Key,
    entries: Slab<Entry>,
    links: Slab<Link>,
    newest: u32,
    oldest: u32,
}

impl Table {
    pub(super) fn new(key: Key, entries_max: usize, links_max: usize) -> Self {
        let (entries, links) = (Slab::new(entries_max), Slab::new(links_max));
        Self { key, entries, links, newest: NONE, oldest: NONE }
    }

    pub(super) const fn entries(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn links(&self) -> usize {
        self.links.len()
    }

    pub(super) fn find(&mut self, source: SocketAddr, label: Label) -> Option<Place> {
        let of = Of::new(source, label);
        self.entries.find(of.hash(self.key), |entry| entry.of == of).map(Place)
    }

    pub(super) fn last_used(&self, place: Place) -> Instant {
        self.entries.at(place.0).used
    }

    /// The breadcrumb that was used least recently.
    pub(super) const fn oldest(&self) -> Option<Place> {
        if self.oldest == NONE { None } else { Some(Place(self.oldest)) }
    }

    /// Whether noting that `interface` asks, at a breadcrumb if there is one, needs room that is not there.
    pub(super) fn lacks_room(&mut self, place: Option<Place>, interface: InterfaceId) -> bool {
        match place {
            None => self.entries.is_full() || self.links.is_full(),
            Some(place) => self.links.is_full() && self.find_link(place, interface).is_none(),
        }
    }

    /// Makes a breadcrumb without links; the caller has made room.
    pub(super) fn create(&mut self, now: Instant, source: SocketAddr, label: Label) -> Place {
        let of = Of::new(source, label);
        let entry = Entry {
            of,
            top: Level::ZERO,
            refreshed: now,
            hops: 0,
            used: now,
            first_link: NONE,
            older: NONE,
            newer: NONE,
            chain: NONE,
        };
        let index = self.entries.insert(of.hash(self.key), entry);
        self.put_newest(index);
        Place(index)
    }

    /// Notes that a link asks, its level only ever raised; the caller has touched the breadcrumb and made room.
    pub(super) fn ask(&mut self, now: Instant, place: Place, interface: InterfaceId, level: Level) -> Before {
        let before = match self.find_link(place, interface) {
            Some(index) => {
                let link = self.links.at_mut(index);
                link.level = link.level.max(level);
                link.asked = now;
                Some(self.entries.at(place.0).top)
            }
            None => self.add_link(now, place, interface, level),
        };
        let entry = self.entries.at_mut(place.0);
        entry.top = entry.top.max(level);
        Before { top: before, refreshed: entry.refreshed, hops: entry.hops }
    }

    pub(super) fn top(&self, place: Place) -> Level {
        self.entries.at(place.0).top
    }

    pub(super) fn refresh(&mut self, now: Instant, place: Place, hops: u8) {
        let entry = self.entries.at_mut(place.0);
        (entry.refreshed, entry.hops) = (now, hops);
    }

    /// A reply passes: `egresses` gets the links that asked less than `expiry` ago. The others go, and so do those that its level reaches; so does the
    /// breadcrumb when it has none left. The number of links that asked too long ago.
    pub(super) fn reply(
        &mut self,
        now: Instant,
        place: Place,
        level: Level,
        expiry: Duration,
        egresses: &mut Vec<InterfaceId>,
    ) -> u64 {
        self.touch(now, place);
        let (mut top, mut kept, mut stale) = (Level::ZERO, NONE, 0);
        let mut index = self.entries.at(place.0).first_link;
        self.entries.at_mut(place.0).first_link = NONE;
        while index != NONE {
            let Link { interface, level: asked_level, asked, next, .. } = *self.links.at(index);
            let is_stale = now.since(asked) >= expiry;
            if is_stale {
                stale += 1;
            } else {
                egresses.push(interface);
            }
            if is_stale || asked_level <= level {
                self.links.remove(link_hash(self.key, place, interface), index);
            } else {
                top = top.max(asked_level);
                match kept {
                    NONE => self.entries.at_mut(place.0).first_link = index,
                    kept => self.links.at_mut(kept).next = index,
                }
                self.links.at_mut(index).next = NONE;
                kept = index;
            }
            index = next;
        }
        self.entries.at_mut(place.0).top = top;
        if kept == NONE {
            self.remove(place);
        }
        stale
    }

    /// Forgets a breadcrumb with all its links.
    pub(super) fn remove(&mut self, place: Place) {
        let mut index = self.entries.at(place.0).first_link;
        while index != NONE {
            let Link { interface, next, .. } = *self.links.at(index);
            self.links.remove(link_hash(self.key, place, interface), index);
            index = next;
        }
        self.take_out(place.0);
        let hash = self.entries.at(place.0).of.hash(self.key);
        self.entries.remove(hash, place.0);
    }

    /// A new link at a breadcrumb; the highest level before, if it had any.
    fn add_link(
        &mut self,
        now: Instant,
        place: Place,
        interface: InterfaceId,
        level: Level,
    ) -> Option<Level> {
        let entry = self.entries.at_mut(place.0);
        let before = (entry.first_link != NONE).then_some(entry.top);
        let link = Link { entry: place.0, interface, level, asked: now, next: entry.first_link, chain: NONE };
        let index = self.links.insert(link_hash(self.key, place, interface), link);
        entry.first_link = index;
        before
    }

    fn find_link(&mut self, place: Place, interface: InterfaceId) -> Option<u32> {
        let hash = link_hash(self.key, place, interface);
        self.links.find(hash, |link| link.entry == place.0 && link.interface == interface)
    }

    pub(super) fn touch(&mut self, now: Instant, place: Place) {
        self.entries.at_mut(place.0).used = now;
        if self.newest != place.0 {
            self.take_out(place.0);
            self.put_newest(place.0);
        }
    }

    fn put_newest(&mut self, index: u32) {
        let before = core::mem::replace(&mut self.newest, index);
        let entry = self.entries.at_mut(index);
        (entry.older, entry.newer) = (before, NONE);
        match before {
            NONE => self.oldest = index,
            before => self.entries.at_mut(before).newer = index,
        }
    }

    fn take_out(&mut self, index: u32) {
        let Entry { older, newer, .. } = *self.entries.at(index);
        match older {
            NONE => self.oldest = newer,
            older => self.entries.at_mut(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries.at_mut(newer).older = older,
        }
    }
}

fn link_hash(key: Key, place: Place, interface: InterfaceId) -> u64 {
    hash(key, [u64::from(place.0) << 32 | u64::from(interface.0)])
}
