//! Challenges: a request counts only if its body begins with a word that the receiver of the request has sent
//! to the requester's address. A request without a valid word is answered by a challenge, shorter than the
//! request, and has no other effect.

use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind, WORD_BYTES, WORDED_BODY_BYTES_MIN};
use serde::Serialize;

use crate::admission::{AdmissionKey, Limit, ReplyQueue, Word, WordAge, Words};
use crate::machine::{Datagram, Destination, Ecn, Transmit};
use crate::time::Instant;

/// Challenges a second to all addresses together, with bursts of a tenth: 5 Mbit/s of UDP payload. A network
/// (/24 of IPv4, /56 of IPv6) gets 20 a second, and a burst of 256 for hosts that start at the same time.
pub const CHALLENGES_PER_SECOND: u32 = 20_000;

/// Counters of challenges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ChallengeCounters {
    /// Requests without a valid word, refused with a challenge.
    pub challenged: u64,
    /// Requests accepted with a word that was renewed.
    pub renewed: u64,
    /// Requests without a valid word, refused without a challenge because of a limit.
    pub unanswered: u64,
    /// Requests with a body too short for a word.
    pub wordless: u64,
}

/// Checks the words of requests, and sends challenges. Memory: 48 kB.
#[derive(Debug, Clone)]
pub(crate) struct Challenger {
    words: Words,
    queue: ReplyQueue<(SocketAddr, Header, Word)>,
    counters: ChallengeCounters,
}

impl Challenger {
    const LIMIT: Limit = Limit::new(CHALLENGES_PER_SECOND, CHALLENGES_PER_SECOND / 10);

    pub(crate) fn new(key: AdmissionKey) -> Self {
        Self {
            words: Words::new(key),
            queue: ReplyQueue::new(key, Self::LIMIT),
            counters: ChallengeCounters::default(),
        }
    }

    pub(crate) const fn counters(&self) -> &ChallengeCounters {
        &self.counters
    }

    /// Returns the body behind the word of a request from `from`; `None` if the request must not count.
    pub(crate) fn admit<'a>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        body: &'a [u8],
    ) -> Option<&'a [u8]> {
        if body.len() < WORDED_BODY_BYTES_MIN {
            self.counters.wordless += 1;
            return None;
        }
        let (word, content) = body.split_first_chunk::<WORD_BYTES>()?;
        match self.words.check(now, from, word) {
            Some(WordAge::Current) => Some(content),
            Some(WordAge::Previous) => {
                self.counters.renewed += 1;
                self.challenge(now, from, Header { is_renewal: true, ..*header });
                Some(content)
            }
            None => {
                if self.queue.admits(now, from.ip()) {
                    self.counters.challenged += 1;
                    self.challenge(now, from, Header { is_renewal: false, ..*header });
                } else {
                    self.counters.unanswered += 1;
                }
                None
            }
        }
    }

    fn challenge(&mut self, now: Instant, to: SocketAddr, header: Header) {
        let header = Header { kind: Kind::Challenge, ..header };
        self.queue.push((to, header, self.words.word(now, to)));
    }

    /// Returns the next challenge, written at the start of `buffer`.
    pub(crate) fn poll(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (to, header, word) = self.queue.pop()?;
        let header_bytes = header.emit(buffer).ok()?;
        let bytes = header_bytes + WORD_BYTES;
        buffer.get_mut(header_bytes..bytes)?.copy_from_slice(&word);
        Some(Transmit { destination: Destination::Unicast(to), bytes, ecn: Ecn::NotCapable })
    }
}

/// Word and refused request in a challenge; `None` if the datagram is no challenge.
pub(super) fn parse(datagram: &Datagram<'_>) -> Option<(Header, Word)> {
    let (header, body) = Header::parse(datagram.payload).ok()?;
    let word = body.try_into().ok()?;
    (header.kind == Kind::Challenge && datagram.channel.is_none()).then_some((header, word))
}

/// Writes a request or null whose body begins with a word: the word, the content, and zeros up to
/// [`WORDED_BODY_BYTES_MIN`]. Returns the length.
pub(super) fn write_worded(header: &Header, word: &Word, content: &[u8], buffer: &mut [u8]) -> usize {
    let mut body = [0; super::REQUEST_BODY_BYTES_MAX];
    let content = &content[..content.len().min(body.len() - WORD_BYTES)];
    body[..WORD_BYTES].copy_from_slice(word);
    body[WORD_BYTES..][..content.len()].copy_from_slice(content);
    let bytes = (WORD_BYTES + content.len()).max(WORDED_BODY_BYTES_MIN);
    super::write(header, &body[..bytes], buffer)
}
