//! Subscriptions of the members downstream of a relay.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use crate::sim::GROUPS_MAX;
use crate::sim::telling::EVERY;
use crate::time::{Duration, Instant};

/// Maximum number of downstream receivers and relays that a relay knows at a time. Further members wait until
/// a known member has left or fallen silent.
pub const MEMBERS_MAX: usize = 1 << 14;
/// Maximum number of members at an address, for a session on a link: programs on a host, or hosts behind an
/// address translator.
pub const PORTS_MAX: usize = 16;
/// Time without an announcement after which a member counts as unsubscribed: three announcements were missed.
const SILENCE: Duration = Duration::from_nanos(7 * EVERY.as_nanos() / 2);

/// A link and a session on the link.
type Place = (usize, usize);

#[derive(Clone, Copy, Debug)]
struct Member {
    groups: u8,
    told: Instant,
}

/// The members of all links and sessions. Memory: [`MEMBERS_MAX`] entries of some 60 bytes, and 260 bytes for
/// each session and link with members.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    table: BTreeMap<(Place, SocketAddr), Member>,
    /// Number of members by number of subscribed groups.
    counts: BTreeMap<Place, [u32; GROUPS_MAX as usize + 1]>,
}

impl Members {
    /// Records an announcement of `groups` subscribed groups, at most [`GROUPS_MAX`]. Returns false if there
    /// is no room for a new member.
    pub fn tell(&mut self, now: Instant, place: Place, who: SocketAddr, groups: u8) -> bool {
        if groups == 0 {
            self.remove((place, who));
            return true;
        }
        let is_known = self.table.contains_key(&(place, who));
        if !is_known && (self.table.len() == MEMBERS_MAX || self.at(place, who.ip()) == PORTS_MAX) {
            return false;
        }
        let before = self.table.insert((place, who), Member { groups, told: now });
        let counts = self.counts.entry(place).or_insert([0; _]);
        counts[usize::from(groups)] += 1;
        if let Some(before) = before {
            counts[usize::from(before.groups)] -= 1;
        }
        true
    }

    /// Returns the number of members at an address, at most [`PORTS_MAX`].
    fn at(&self, place: Place, host: IpAddr) -> usize {
        let [first, last] = [0, u16::MAX].map(|port| (place, SocketAddr::new(host, port)));
        self.table.range(first..=last).take(PORTS_MAX).count()
    }

    /// Returns the maximum number of groups that any member at `place` is subscribed to.
    pub fn top(&self, place: Place) -> u16 {
        let Some(counts) = self.counts.get(&place) else { return 0 };
        let top = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        u16::try_from(top).unwrap_or(u16::MAX)
    }

    /// Number of known members.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Forgets members that fell silent.
    pub fn sweep(&mut self, now: Instant) {
        self.forget(|_, member| now.since(member.told) >= SILENCE);
    }

    /// Forgets the members of a session.
    pub fn forget_session(&mut self, session: usize) {
        self.forget(|(_, of), _| of == session);
    }

    fn forget(&mut self, is_gone: impl Fn(Place, &Member) -> bool) {
        let gone = self.table.iter().filter(|((place, _), member)| is_gone(*place, member));
        for key in gone.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: (Place, SocketAddr)) {
        let Some(member) = self.table.remove(&key) else { return };
        let Some(counts) = self.counts.get_mut(&key.0) else { return };
        counts[usize::from(member.groups)] -= 1;
        if counts.iter().all(|count| *count == 0) {
            self.counts.remove(&key.0);
        }
    }
}
