//! Peers of a sender, and the request rate limit of each.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use crate::bcfs::relay::Limit;
use crate::bcfs::{Key, address_words, hash};
use crate::time::{Duration, Instant};

/// Maximum replies per second to all addresses without proven reception together.
pub const UNPROVEN_PER_SECOND: u32 = 500;
/// Lifetime of a proof of reception.
const PROVEN: Duration = Duration::from_secs(30);
/// Maximum number of remembered addresses.
const PEERS_MAX: usize = 4_096;
/// Minimum interval between scans for expired addresses, once the table is full.
const SWEEP: Duration = Duration::from_secs(1);

/// Token that only the sender can make; a request with the token proves that its address receives replies.
pub(super) type Word = [u8; 4];

/// Reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Unproven,
    TooFast,
}

/// Addresses with proven reception. Memory: some 100 bytes for each of [`PEERS_MAX`].
#[derive(Clone, Debug)]
pub(super) struct Peers {
    key: Key,
    limit: Limit,
    unproven: Limit,
    proven: BTreeMap<SocketAddr, Peer>,
    /// State of the limit of all unproven addresses.
    unproven_due: Instant,
    swept: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    until: Instant,
    due: Instant,
}

impl Peers {
    /// Creates an empty table with a secret `key`. A proven address may send `per_second` requests, with
    /// bursts of a tenth of a second; all unproven addresses together `unproven` requests, with bursts of a
    /// fifth of a second.
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

    /// Returns the token of an address.
    pub(super) fn word(&self, peer: SocketAddr) -> Word {
        let [high, low] = address_words(peer.ip());
        let [.., a, b, c, d] = hash(self.key, [high, low, peer.port().into()]).to_be_bytes();
        [a, b, c, d]
    }

    /// Whether the `body` of a request holds the token of another sender, or of another address.
    pub(super) fn brings_another(&self, peer: SocketAddr, body: &[u8]) -> bool {
        body.len() == size_of::<Word>() && body != self.word(peer)
    }

    /// Decides whether to answer a request with `body` from an address.
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
