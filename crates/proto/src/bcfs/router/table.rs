//! Breadcrumb table of a router: links that requested each label, in the order of last use.
//!
//! Every operation takes a constant number of steps, except operations over all links of one entry. An entry
//! with up to two links fits in one cache line; a second hash table holds further links. A message touches
//! one cache line of the index, seldom two, and the line of its entry; the data on the order of use is small
//! in comparison. If the table exceeds the caches, [`Table::look_ahead`] prefetches these lines for many
//! messages at a time, but not the entries that a full table evicts, nor links beyond the first two.

use core::net::{IpAddr, SocketAddr};

use headwater_wire::bcfs::{Label, Level};

use super::order::Order;
use super::slab::{NONE, Slab};
use crate::machine::{EXPECTED_MAX, InterfaceId};
use crate::time::{Duration, Instant};

/// Number of links stored in the entry.
const HELD: usize = 2;

/// Breadcrumb: links that requested a label of a source. Outside of creation an entry has at least one link.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    address: [u64; 2],
    label: Label,
    port: u16,
    /// Remaining hops of the request or null forwarded last.
    hops: u8,
    /// Bit mask of the used places in [`Entry::interfaces`] and the arrays beside.
    held: u8,
    /// Lowest level among the forwarded requests that no reply has answered or exceeded; 0 if all are
    /// answered.
    unanswered: Level,
    levels: [Level; HELD],
    interfaces: [InterfaceId; HELD],
    asked: [Stamp; HELD],
    /// Head of the list of further links.
    more: u32,
    /// Time at which a request or null was last forwarded.
    refreshed: Stamp,
    /// Time at which a message last touched the entry.
    used: Stamp,
    /// Position in the order of use.
    position: u32,
}

const _: () = assert!(size_of::<Entry>() == 64, "one line of a cache");

/// Key of a message's breadcrumb, with its hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    of: Of,
    hash: u32,
    /// Entry found by [`Table::look_ahead`], possibly another entry of the same hash. The guess and the hash
    /// together save a quarter of the time of a message pair.
    guess: u32,
}

/// Keys of the next messages; messages before `next` have arrived.
#[derive(Debug)]
struct Ahead {
    wanted: Vec<Wanted>,
    next: usize,
}

/// Source and label, in the form used for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Of {
    address: [u64; 2],
    label: Label,
    port: u16,
}

/// Link beyond those stored in the entry.
#[derive(Debug, Clone, Copy)]
struct Link {
    entry: u32,
    next: u32,
    interface: InterfaceId,
    asked: Stamp,
    level: Level,
    /// In the first link of a list: highest level over the list.
    top: Level,
}

/// Instant to the millisecond, modulo 2^32 ms: a stamp that is 25 to 50 days old counts as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u32);

impl Stamp {
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    const fn new(at: Instant) -> Self {
        Self((at.as_nanos() / 1_000_000) as u32)
    }

    /// Returns the instant, at most `now`.
    const fn instant(self, now: Instant) -> Instant {
        let ago = Self::new(now).0.wrapping_sub(self.0).cast_signed();
        let ago = if ago > 0 { ago as u64 } else { 0 };
        Instant::from_nanos((now.as_nanos() / 1_000_000).saturating_sub(ago) * 1_000_000)
    }
}

impl Of {
    fn new(source: SocketAddr, label: Label) -> Self {
        Self { address: address_words(source.ip()), label, port: source.port() }
    }

    fn hash(&self, key: HashKey) -> u32 {
        let [high, low] = self.address;
        folded(hash(key, [high, low, u64::from(self.port) << 32 | u64::from(self.label.0)]))
    }
}

impl Entry {
    const fn of(&self) -> Of {
        Of { address: self.address, label: self.label, port: self.port }
    }

    /// Whether the entry has no link: it is being created, or removed.
    const fn is_bare(&self) -> bool {
        self.held == 0 && self.more == NONE
    }

    /// Returns the places of the links stored in the entry.
    fn held(&self) -> impl Iterator<Item = usize> + use<> {
        let held = self.held;
        (0..HELD).filter(move |place| held >> place & 1 == 1)
    }

    fn held_at(&self, interface: InterfaceId) -> Option<usize> {
        self.held().find(|place| self.interfaces[*place] == interface)
    }

    /// Returns the highest level of the links stored in the entry.
    fn held_top(&self) -> Level {
        self.held().map(|place| self.levels[place]).max().unwrap_or(Level::ZERO)
    }
}

/// State of a breadcrumb before a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Before {
    /// Highest level requested before; `None` if there was no breadcrumb.
    pub(super) top: Option<Level>,
    /// Time at which a request or null was last forwarded.
    pub(super) refreshed: Instant,
    /// Remaining hops of that message.
    pub(super) hops: u8,
}

/// Index of a breadcrumb, valid until the next call that changes the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(u32);

#[derive(Debug)]
pub(super) struct Table {
    key: HashKey,
    entries: Slab<Entry>,
    /// Links that do not fit in their entries.
    more: Slab<Link>,
    links: usize,
    links_max: usize,
    order: Order,
    ahead: Ahead,
}

impl Table {
    pub(super) fn new(key: HashKey, entries_max: usize, links_max: usize) -> Self {
        let (entries, more) = (Slab::new(entries_max), Slab::new(links_max));
        let ahead = Ahead { wanted: Vec::with_capacity(EXPECTED_MAX), next: 0 };
        Self { key, entries, more, links: 0, links_max, order: Order::new(entries_max), ahead }
    }

    pub(super) const fn entries(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn links(&self) -> usize {
        self.links
    }

    /// Returns the key of a message with this source and label, from [`Table::look_ahead`] if announced.
    pub(super) fn wanted(&mut self, source: SocketAddr, label: Label) -> Wanted {
        let of = Of::new(source, label);
        let Ahead { wanted, next } = &mut self.ahead;
        if let Some(ahead) = wanted[*next..].iter().position(|wanted| wanted.of == of) {
            *next += ahead + 1;
            return wanted[*next - 1];
        }
        Wanted { of, hash: of.hash(self.key), guess: NONE }
    }

    pub(super) fn find(&self, wanted: &Wanted) -> Option<Place> {
        let Wanted { of, hash, guess } = *wanted;
        let is_it = |entry: &Entry| entry.of() == of;
        if guess != NONE {
            let entry = self.entries.at(guess);
            if is_it(entry) && !entry.is_bare() {
                return Some(Place(guess));
            }
        }
        self.entries.find(hash, is_it).map(Place)
    }

    /// Returns the time at which a message last touched the breadcrumb, rounded down to the millisecond.
    pub(super) fn last_used(&self, now: Instant, place: Place) -> Instant {
        self.entries.at(place.0).used.instant(now)
    }

    /// Returns the least recently used breadcrumb.
    pub(super) fn oldest(&self) -> Option<Place> {
        self.order.oldest().map(Place)
    }

    /// Whether the table is too full to record a request from `interface`, at the breadcrumb `place` if there
    /// is one.
    pub(super) fn lacks_room(&self, place: Option<Place>, interface: InterfaceId) -> bool {
        let has_links = self.links < self.links_max;
        match place {
            None => self.entries.is_full() || !has_links,
            Some(place) => !has_links && !self.has_link(place, interface),
        }
    }

    /// Creates a breadcrumb without links; the caller has made room.
    pub(super) fn create(&mut self, now: Instant, wanted: &Wanted) -> Place {
        let (Wanted { of, hash, .. }, at) = (*wanted, Stamp::new(now));
        let entry = Entry {
            address: of.address,
            label: of.label,
            port: of.port,
            hops: 0,
            held: 0,
            unanswered: Level::ZERO,
            levels: [Level::ZERO; HELD],
            interfaces: [InterfaceId(0); HELD],
            asked: [at; HELD],
            more: NONE,
            refreshed: at,
            used: at,
            position: 0,
        };
        let Self { entries, order, .. } = self;
        let number = entries.insert(hash, entry);
        let position = order.insert(number, |other, position| entries.at_mut(other).position = position);
        entries.at_mut(number).position = position;
        Place(number)
    }

    /// Records a request from a link. The level of a link only rises. The caller has touched the breadcrumb
    /// and made room.
    pub(super) fn ask(&mut self, now: Instant, place: Place, interface: InterfaceId, level: Level) -> Before {
        let entry = self.entries.at(place.0);
        let top = (!entry.is_bare()).then(|| self.top(place));
        let before = Before { top, refreshed: entry.refreshed.instant(now), hops: entry.hops };
        if let Some(held) = entry.held_at(interface) {
            let entry = self.entries.at_mut(place.0);
            entry.levels[held] = entry.levels[held].max(level);
            entry.asked[held] = Stamp::new(now);
        } else if let Some(link) = self.find_more(place, interface) {
            let link = self.more.at_mut(link);
            link.level = link.level.max(level);
            link.asked = Stamp::new(now);
            let first = self.more.at_mut(self.entries.at(place.0).more);
            first.top = first.top.max(level);
        } else {
            self.links += 1;
            self.add_link(now, place, interface, level);
        }
        before
    }

    /// Records a forwarded request that reaches the source unless the network loses it.
    pub(super) fn await_reply(&mut self, place: Place, level: Level) {
        let unanswered = &mut self.entries.at_mut(place.0).unanswered;
        if *unanswered == Level::ZERO {
            *unanswered = level;
        }
    }

    /// Whether a reply about to be forwarded replaces a reply lost above: a request of a lower level came
    /// first, so its reply would have arrived first. A reply above the highest level of this breadcrumb
    /// proves no loss: a higher request of another receiver may have caused a reply that answers all levels
    /// here.
    pub(super) fn follows_loss(&self, place: Place, level: Level) -> bool {
        let unanswered = self.entries.at(place.0).unanswered;
        unanswered > Level::ZERO && unanswered < level && level <= self.top(place)
    }

    /// Returns the highest level over the links of a breadcrumb.
    pub(super) fn top(&self, place: Place) -> Level {
        let entry = self.entries.at(place.0);
        let held = entry.held_top();
        if entry.more == NONE { held } else { held.max(self.more.at(entry.more).top) }
    }

    pub(super) fn refresh(&mut self, now: Instant, place: Place, hops: u8) {
        let entry = self.entries.at_mut(place.0);
        (entry.refreshed, entry.hops) = (Stamp::new(now), hops);
    }

    /// Processes a reply. Puts the links that requested less than `expiry` ago into `egresses`. Removes all
    /// older links, and the links at or below `level`; removes the breadcrumb if no link remains. Returns the
    /// number of expired links.
    pub(super) fn reply(
        &mut self,
        now: Instant,
        place: Place,
        wanted: &Wanted,
        level: Level,
        expiry: Duration,
        egresses: &mut Vec<InterfaceId>,
    ) -> u64 {
        let is_stale = |asked: Stamp| now.since(asked.instant(now)) >= expiry;
        let mut stale = self.reply_to_more(place, level, is_stale, egresses);
        let entry = self.entries.at_mut(place.0);
        // The driver pops from the end: links stored in the entry come first, then further links, oldest
        // request first.
        let held_before = entry.held;
        if level >= entry.unanswered {
            // A reply of this level settles all earlier requests; only later requests are awaited.
            entry.unanswered = Level::ZERO;
        }
        for held in (0..HELD).rev().filter(|held| held_before >> held & 1 == 1) {
            let is_stale = is_stale(entry.asked[held]);
            if is_stale {
                stale += 1;
            } else {
                egresses.push(entry.interfaces[held]);
            }
            if is_stale || entry.levels[held] <= level {
                entry.held &= !(1 << held);
                self.links -= 1;
            }
        }
        if entry.is_bare() {
            self.forget(place, wanted.hash);
        } else {
            self.touch(now, place);
        }
        stale
    }

    /// Part of [`Table::reply`] for the links outside the entry.
    fn reply_to_more(
        &mut self,
        place: Place,
        level: Level,
        is_stale: impl Fn(Stamp) -> bool,
        egresses: &mut Vec<InterfaceId>,
    ) -> u64 {
        let (mut top, mut kept, mut stale) = (Level::ZERO, NONE, 0);
        let mut number = core::mem::replace(&mut self.entries.at_mut(place.0).more, NONE);
        while number != NONE {
            let link = *self.more.at(number);
            let is_stale = is_stale(link.asked);
            if is_stale {
                stale += 1;
            } else {
                egresses.push(link.interface);
            }
            if is_stale || link.level <= level {
                self.links -= 1;
                self.more.remove(link_hash(self.key, place, link.interface), number);
            } else {
                top = top.max(link.level);
                match kept {
                    NONE => self.entries.at_mut(place.0).more = number,
                    kept => self.more.at_mut(kept).next = number,
                }
                self.more.at_mut(number).next = NONE;
                kept = number;
            }
            number = link.next;
        }
        let first = self.entries.at(place.0).more;
        if first != NONE {
            self.more.at_mut(first).top = top;
        }
        stale
    }

    /// Removes a breadcrumb with all its links.
    pub(super) fn remove(&mut self, place: Place) {
        let entry = self.entries.at(place.0);
        self.forget(place, entry.of().hash(self.key));
    }

    fn forget(&mut self, place: Place, hash: u32) {
        let entry = self.entries.at_mut(place.0);
        let mut number = core::mem::replace(&mut entry.more, NONE);
        self.links -= entry.held().count();
        entry.held = 0;
        let position = entry.position;
        while number != NONE {
            let Link { interface, next, .. } = *self.more.at(number);
            self.links -= 1;
            self.more.remove(link_hash(self.key, place, interface), number);
            number = next;
        }
        self.order.remove(position);
        self.entries.remove(hash, place.0);
    }

    fn add_link(&mut self, now: Instant, place: Place, interface: InterfaceId, level: Level) {
        let entry = self.entries.at_mut(place.0);
        if let Some(held) = (0..HELD).find(|held| entry.held >> held & 1 == 0) {
            entry.held |= 1 << held;
            entry.interfaces[held] = interface;
            entry.levels[held] = level;
            entry.asked[held] = Stamp::new(now);
            return;
        }
        let next = entry.more;
        let top = if next == NONE { level } else { self.more.at(next).top.max(level) };
        let link = Link { entry: place.0, next, interface, asked: Stamp::new(now), level, top };
        let number = self.more.insert(link_hash(self.key, place, interface), link);
        self.entries.at_mut(place.0).more = number;
    }

    pub(super) fn has_link(&self, place: Place, interface: InterfaceId) -> bool {
        self.entries.at(place.0).held_at(interface).is_some() || self.find_more(place, interface).is_some()
    }

    fn find_more(&self, place: Place, interface: InterfaceId) -> Option<u32> {
        if self.entries.at(place.0).more == NONE {
            return None;
        }
        let hash = link_hash(self.key, place, interface);
        self.more.find(hash, |link| link.entry == place.0 && link.interface == interface)
    }

    pub(super) fn touch(&mut self, now: Instant, place: Place) {
        let Self { entries, order, .. } = self;
        let entry = entries.at_mut(place.0);
        entry.used = Stamp::new(now);
        let position =
            order.touch(place.0, entry.position, |other, position| entries.at_mut(other).position = position);
        entries.at_mut(place.0).position = position;
    }

    /// Looks up the breadcrumbs of the next messages, at most [`EXPECTED_MAX`], step by step for all
    /// messages. The cache misses of the messages overlap instead of adding up.
    pub(super) fn look_ahead(&mut self, messages: impl Iterator<Item = (SocketAddr, Label)>) {
        let Self { key, entries, ahead: Ahead { wanted, next }, .. } = self;
        wanted.clear();
        *next = 0;
        wanted.extend(messages.take(EXPECTED_MAX).map(|(source, label)| {
            let of = Of::new(source, label);
            Wanted { of, hash: of.hash(*key), guess: NONE }
        }));
        let mut read = wanted.iter().fold(0, |read, wanted| read ^ entries.glance(wanted.hash));
        for wanted in &mut *wanted {
            wanted.guess = entries.guess(wanted.hash).unwrap_or(NONE);
        }
        for guess in wanted.iter().map(|wanted| wanted.guess).filter(|guess| *guess != NONE) {
            read ^= u64::from(entries.at(guess).position);
        }
        // Keeps the compiler from removing the reads; the value is unused.
        core::hint::black_box(read);
    }
}

fn link_hash(key: HashKey, place: Place, interface: InterfaceId) -> u32 {
    folded(hash(key, [u64::from(place.0) << 32 | u64::from(interface.0)]))
}

/// Upper half of a hash, enough to tell entries apart.
const fn folded(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Hash key, drawn at random by the creator of a router or a source, and secret to the network.
pub(crate) type HashKey = [u64; 2];

/// Returns the high and the low 64 bits of an address, with IPv4 mapped to IPv6.
pub(crate) fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let low = u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
    let high = u64::try_from(bits >> 64).unwrap_or_default();
    [high, low]
}

/// Returns the SipHash-1-3 (Aumasson, Bernstein 2012) of `words`: without the key, an attacker cannot choose
/// labels that share a bucket. The words are concatenated in little-endian form.
pub(crate) fn hash<const N: usize>(key: HashKey, words: [u64; N]) -> u64 {
    let mut state = [
        key[0] ^ 0x736F_6D65_7073_6575,
        key[1] ^ 0x646F_7261_6E64_6F6D,
        key[0] ^ 0x6C79_6765_6E65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let bytes_mod_256 = (8 * N as u64) << 56;
    for word in words.into_iter().chain([bytes_mod_256]) {
        state[3] ^= word;
        round(&mut state);
        state[0] ^= word;
    }
    state[2] ^= 0xFF;
    (0..3).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

const fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher as _};

    #[test]
    fn it_is_the_one_of_the_standard_library() {
        let words = [0x0123_4567_89AB_CDEF, 42, u64::MAX];
        let mut hasher = DefaultHasher::new();
        for word in words {
            hasher.write(&word.to_le_bytes());
        }
        assert_eq!(super::hash([0, 0], words), hasher.finish());
        assert_ne!(super::hash([0, 1], words), hasher.finish());
        assert_ne!(super::hash([1, 0], words), hasher.finish());
    }
}
