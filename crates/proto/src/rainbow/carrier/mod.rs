//! File transfer over BCFS: each reply carries an ALC packet, and goes to the receivers that requested it.
//!
//! A [`RainbowCarrierReceiver`] sends requests by Rainbow's window. A [`RainbowCarrierSender`] answers each
//! request with the next symbol of the session, new for all receivers of the reply while the code has new
//! symbols. Both are congestion controls of [`delivery`](crate::delivery). The FDT describes the session as
//! usual. A receiver requests the FDT symbol by symbol, by separate labels, so that a late receiver gets the
//! FDT at once:
//! `docs/reference/wire/bcfs.md`.
//!
//! A reply is some 30 times longer than its request. A sender therefore takes requests only from addresses
//! that return the word of a challenge ([`RainbowCarrierSenderConfig::with_challenges`]). Each reply carries
//! a token that only the sender can make, different for each address (in the CCI of the header), and requests
//! return the last token: the token tells one session of a sender from the next. Without challenges, in
//! simulations, the token is the only proof that an address receives.
//!
//! | attack | defence |
//! |---|---|
//! | requests from spoofed addresses | challenges, shorter than the requests |
//! | the same without challenges | [`UNPROVEN_PER_SECOND`] replies a second to all unproven addresses |
//! | floods from proven addresses | [`RainbowCarrierSenderConfig::with_requests_per_second`] per address |
//! | floods to fill the sender's queue | bounded queue; receivers repeat dropped requests |
//! | forged replies, from the requested address | digests detect false symbols |
//!
//! Replies to unproven addresses take at most a quarter of a maximum rate. The sender remembers 4096 proven
//! addresses at a time; further addresses are unproven. A proven address may take most of a maximum rate. The
//! queue holds the requests of a tenth of a second at [`RainbowCarrierSenderConfig::with_max_rate`], at most
//! 4096. Forged replies with the session's number answer requests and bring false symbols; other forged
//! replies have no effect.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_wire::bcfs::Label;

pub use receiver::{RainbowCarrierReceiver, RainbowCarrierReceiverConfig};
pub use sender::{RainbowCarrierSender, RainbowCarrierSenderConfig, RequestCounters};

use crate::admission::Limit;
use crate::bcfs::{HashKey, address_words, hash};
use crate::control::BlockName;
use crate::time::{Duration, Instant};

/// Name of Rainbow over BCFS in a session's FDT.
pub const NAME: &str = "rainbow";
/// First label for symbols of the FDT; the offset is the symbol's number.
const DESCRIPTIONS: u32 = 1 << 31;
/// First label for symbols of a named block; the offset is a hash of the name, and the window's label.
const BLOCKS: u32 = 1 << 30;
/// Bits of the window's label in such a label: a window has at most 4096.
const WINDOW_BITS: u32 = 13;

/// Bytes of a request's body: a token, a place in a cycle, and a symbol (`docs/reference/wire/bcfs.md`).
const BODY_BYTES_MAX: usize = 20;

/// Content that a label requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Next symbol of content.
    Content,
    /// Symbol of a named block, by hash.
    Block(u32),
    /// Symbol of the FDT, by number.
    Description(u32),
}

impl Wanted {
    fn of(label: Label) -> Self {
        match label.0 {
            DESCRIPTIONS.. => Self::Description(label.0 - DESCRIPTIONS),
            BLOCKS.. => Self::Block((label.0 - BLOCKS) >> WINDOW_BITS),
            _ => Self::Content,
        }
    }

    /// Returns the content of a block. Relays do not merge requests for different blocks.
    fn block(BlockName { toi, sbn, .. }: BlockName) -> Self {
        let mixed = (toi.get() ^ sbn.rotate_left(16)).wrapping_mul(0x9e37_79b1);
        Self::Block(mixed >> (2 + WINDOW_BITS))
    }

    /// Returns the label of a request; `window_label` is the window's label, used for content.
    fn label(self, window_label: u16) -> Label {
        match self {
            Self::Content => Label(window_label.into()),
            Self::Block(hash) => Label(BLOCKS | hash << WINDOW_BITS | u32::from(window_label)),
            Self::Description(number) => Label(DESCRIPTIONS | number),
        }
    }
}

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
    key: HashKey,
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
    pub(super) fn new(key: HashKey, per_second: u32, unproven: u32) -> Self {
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

    /// Whether a request brings the token of another sender, or of another address.
    pub(super) fn brings_another(&self, peer: SocketAddr, token: Option<Word>) -> bool {
        token.is_some_and(|token| token != self.word(peer))
    }

    /// Decides whether to answer a request from an address. `is_verified`: the address has returned the word
    /// of a challenge.
    pub(super) fn admits(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        token: Option<Word>,
        is_verified: bool,
    ) -> Result<(), Refusal> {
        let shows = is_verified || token == Some(self.word(peer));
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
