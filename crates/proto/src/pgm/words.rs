//! Words of a source's receivers: proof that the source address of a NAK receives.
//!
//! A receiver asks by an SPMR with the option OPT_WORD, and the source answers by a packet of that length.

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_wire::pgm::PgmWord;

use crate::admission::{AdmissionKey, PrefixLimiter, Word, Words};
use crate::time::Instant;

/// Maximum number of answers that wait to be sent; further receivers ask again.
const WAITING_MAX: usize = 256;
/// Burst of answers to one network.
const NETWORK_BURST: u32 = 256;

/// Makes and checks words. Memory: 32 kB of limits by network, and 12 kB of waiting answers.
#[derive(Clone, Debug)]
pub(super) struct NakWords {
    words: Words,
    networks: PrefixLimiter,
    waiting: VecDeque<(SocketAddr, PgmWord)>,
}

impl NakWords {
    pub(super) fn new(key: AdmissionKey) -> Self {
        let networks = PrefixLimiter::new(key, NETWORK_BURST);
        Self { words: Words::new(key), networks, waiting: VecDeque::new() }
    }

    /// Whether an address brings its word.
    pub(super) fn check(&self, now: Instant, address: SocketAddr, word: &Word) -> bool {
        self.words.check(now, address, word).is_some()
    }

    /// Queues the word of an address.
    pub(super) fn answer(&mut self, now: Instant, address: SocketAddr) {
        self.queue(now, address, false);
    }

    /// Queues the message to a receiver that its NAKs set no rate any more.
    pub(super) fn tell_dismissed(&mut self, now: Instant, address: SocketAddr) {
        self.queue(now, address, true);
    }

    fn queue(&mut self, now: Instant, address: SocketAddr, is_dismissed: bool) {
        if self.waiting.len() < WAITING_MAX && self.networks.admits(now, address.ip()) {
            let word = self.words.word(now, address);
            self.waiting.push_back((address, PgmWord { word, is_dismissed }));
        }
    }

    pub(super) fn pop(&mut self) -> Option<(SocketAddr, PgmWord)> {
        self.waiting.pop_front()
    }
}
