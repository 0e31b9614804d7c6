//! Who asks a sender, and how fast each may.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use crate::bcfs::relay::Limit;
use crate::bcfs::{Key, address_words, hash};
use crate::time::{Duration, Instant};

/// Most replies a second to addresses that have not shown that they hear them, to all of them together.
pub const UNPROVEN_PER_SECOND: u32 = 500;
/// What an address has shown holds for so long.
const PROVEN: Duration = Duration::from_secs(30);
/// Addresses that are remembered.
const PEERS_MAX: usize = 4_096;
/// Time between two looks for those to be forgotten, once there are so many.
const SWEEP: Duration = Duration::from_secs(1);

/// What only the sender can make: requests that bring it show that their address hears.
pub(super) type Word = [u8; 4];

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Unproven,
    TooFast,
}

/// Addresses that have shown that they hear. Memory: some 100 bytes for each of [`PEERS_MAX`].
#[derive(Clone, Debug)]
pub(super) struct Peers {
    key: Key,
    limit: Limit,
    unproven: Limit,
    proven: BTreeMap<SocketAddr, Peer>,
    /// For the limit of all others.
    unproven_due: Instant,
    swept: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    until: Instant,
    due: Instant,
}

impl Peers {
    /// `key` is nobody else's. A proven address may ask so often a second, with bursts of a tenth of a
    /// second; all others together `unproven` times, with bursts of a fifth.
    pub(super) fn new(key: Key, per_second: u32, unproven: u32) -> Self {
        Self {
            key,
            limit: Limit::new(per_second, (per_second / 10).max(64)),
            unproven: Limit::new(unproven, unproven / 5),
            proven: BTreeMap::new(),
            unproven_due: Instant::ZERO,
            swept: Instant::ZERO,
        }
    }

    /// The word of an address.
    pub(super) fn word(&self, peer: SocketAddr) -> Word {
        let [high, low] = address_words(peer.ip());
        let [.., a, b, c, d] = hash(self.key, [high, low, peer.port().into()]).to_be_bytes();
        [a, b, c, d]
    }

    /// Whether a request from an address, which brings `body`, brings the word of another sender, or of
    /// another address.
    pub(super) fn brings_another(&self, peer: SocketAddr, body: &[u8]) -> bool {
        body.len() == size_of::<Word>() && body != self.word(peer)
    }

    /// Whether a request from an address, which brings `body`, is to be answered.
    pub(super) fn admits(&mut self, now: Instant, peer: SocketAddr, body: &[u8]) -> Result<(), Refusal> {
        let shows = body == self.word(peer);
        if shows && !self.proven.contains_key(&peer) && self.has_room(now) {
            self.proven.insert(peer, Peer { until: now, due: now });
        }
        let Some(known) = self.proven.get_mut(&peer) else { return self.unproven(now) };
        if shows {
            known.until = now + PROVEN;
        } else if known.until < now {
            return self.unproven(now);
        }
        if self.limit.admits(now, &mut known.due) { Ok(()) } else { Err(Refusal::TooFast) }
    }

    fn unproven(&mut self, now: Instant) -> Result<(), Refusal> {
        if self.unproven.admits(now, &mut self.unproven_due) { Ok(()) } else { Err(Refusal::Unproven) }
    }

    fn has_room(&mut self, now: Instant) -> bool {
        if self.proven.len() == PEERS_MAX && self.swept + SWEEP <= now {
            self.swept = now;
            self.proven.retain(|_, peer| peer.until >= now);
        }
        self.proven.len() < PEERS_MAX
    }
}
