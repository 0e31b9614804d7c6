//! Breadcrumb Forwarding Service (Yano, McCanne 1999, section 2): requests towards a source leave breadcrumbs
//! in routers, and replies follow the breadcrumbs back.
//!
//! A label names the requested content; each source has a label space of its own. A router forwards the first
//! request for a label and suppresses later requests of the same level or below, so that the requests of many
//! receivers reach the source as a single request. A reply is forwarded on all links that requested the
//! label, and removes the breadcrumbs of its level and below. There is no hop-by-hop acknowledgement: a
//! receiver repeats a lost request with a higher level.
//!
//! | the paper's call | here |
//! |---|---|
//! | `bcf_bind(label, mask)` | [`Client::bind`], [`BcfsSource::bind`] |
//! | `bcf_request(src, label, level, msg)` | [`Client::request`] |
//! | `bcf_reply(label, level, msg)` | [`BcfsSource::reply`] |
//! | `bcf_rcv(src, label, level, msg)` | [`Client::receive`], [`BcfsSource::receive`] |
//!
//! [`Client`] and [`BcfsSource`] are not machines: the application's machine embeds a client or a source,
//! passes datagrams in, and sends the returned datagrams. Both have no queues, and allocate only on
//! construction. [`BreadcrumbRouter`] is the router between source and clients, and [`relay`] runs that
//! router on any host.

mod challenge;
pub mod relay;
mod router;
mod source;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind};

pub(crate) use challenge::Challenger;
pub use challenge::{CHALLENGES_PER_SECOND, ChallengeCounters};
pub use headwater_wire::bcfs::{HEADER_BYTES_MAX, Label, Level};
pub(crate) use router::table::{HashKey, address_words, hash};
pub use router::{
    BreadcrumbRouter, Dropped, ENTRIES, ENTRIES_MAX, RECENT_MAX, RouterConfig, RouterCounters, Routes,
};
pub use source::{Asked, BcfsSource, ReplyTo, ReturnPath};

use crate::admission::Word;
use crate::machine::{Datagram, Destination, Ecn, Transmit};
use crate::time::Duration;

/// `T_refresh`: interval for which a router suppresses requests before a null reports to the source that the
/// requests still wait. A source also ignores a null for this long after a reply that answers the null.
pub const REFRESH: Duration = Duration::from_secs(1);

/// `T_expire`: lifetime of unused breadcrumbs.
pub const EXPIRY: Duration = Duration::from_secs(10);

/// Maximum length of a request's body, in bytes; routers drop requests with longer bodies.
pub const REQUEST_BODY_BYTES_MAX: usize = 512;

/// Maximum number of bindings of a client or a source.
pub const BINDINGS_MAX: usize = 16;

/// Error: more than [`BINDINGS_MAX`] bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {BINDINGS_MAX} bindings")]
pub struct TooManyBindings;

#[derive(Debug, Default)]
pub(super) struct Bindings(Vec<(Label, u32)>);

impl Bindings {
    pub(super) fn bind(&mut self, label: Label, mask: u32) -> Result<(), TooManyBindings> {
        if self.0.len() == BINDINGS_MAX {
            return Err(TooManyBindings);
        }
        self.0.push((label, mask));
        Ok(())
    }

    pub(super) fn matches(&self, label: Label) -> bool {
        self.0.iter().any(|(bound, mask)| label.0 & mask == bound.0 & mask)
    }
}

/// Requests replies from a source, by way of the nearest router, and receives the replies.
#[derive(Debug)]
pub struct Client {
    source: SocketAddr,
    upstream: SocketAddr,
    bindings: Bindings,
    /// Word of the next hop, zeros before the first; `None` if requests carry no word.
    word: Option<Word>,
    /// Refused request, to be repeated with the new word.
    refused: Option<Header>,
    ignored: u64,
}

/// Reply on a bound label. The reply may answer another client's request, because routers merge requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Requested label.
    pub label: Label,
    /// Level of the reply: breadcrumbs up to this level are removed.
    pub level: Level,
    /// Whether a relay sent the reply from its cache, and the reply had replaced a reply lost above that
    /// relay.
    pub follows_loss: bool,
    /// Body of the reply.
    pub body: &'a [u8],
}

impl Client {
    /// Creates a client without bindings. Requests for `source` go to `upstream`: a relay, or the source
    /// itself. The client accepts unicast replies from `upstream` only, and multicast replies from any
    /// sender, since the last router may reply to a group.
    pub fn new(source: SocketAddr, upstream: SocketAddr) -> Self {
        Self {
            source: canonical(source),
            upstream,
            bindings: Bindings::default(),
            word: None,
            refused: None,
            ignored: 0,
        }
    }

    /// Begins the body of each request and null with the word of the next hop, as relays and sources with
    /// challenges demand. Default: no word, as in the paper.
    #[must_use]
    pub const fn with_words(mut self) -> Self {
        self.word = Some([0; 8]);
        self
    }

    /// Whether requests have to wait for a word: words are in use, and no challenge has come.
    pub fn lacks_word(&self) -> bool {
        self.word == Some(Word::default())
    }

    /// Returns a refused request, written again with the word of the challenge. The content of the request is
    /// lost. To be polled after each [`Client::receive`].
    pub fn poll_refused(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let header = Header { kind: Kind::Request, ..self.refused.take()? };
        Some(self.send(&header, &[], buffer))
    }

    /// Listens to all labels that equal `label` in the bits set in `mask`.
    ///
    /// # Errors
    /// [`TooManyBindings`].
    pub fn bind(&mut self, label: Label, mask: u32) -> Result<(), TooManyBindings> {
        self.bindings.bind(label, mask)
    }

    /// Writes a request with a body, or a null without a body, at the start of `buffer`. A buffer of
    /// [`DATAGRAM_BYTES_MAX`](crate::DATAGRAM_BYTES_MAX) holds the longest body that a router forwards,
    /// [`REQUEST_BODY_BYTES_MAX`]; longer bodies are truncated.
    pub fn request(&self, label: Label, level: Level, body: Option<&[u8]>, buffer: &mut [u8]) -> Transmit {
        let kind = if body.is_some() { Kind::Request } else { Kind::Null };
        self.send(&Header::new(kind, self.source, label, level), body.unwrap_or(&[]), buffer)
    }

    fn send(&self, header: &Header, body: &[u8], buffer: &mut [u8]) -> Transmit {
        let bytes = match &self.word {
            Some(word) => challenge::write_worded(header, word, body, buffer),
            None => write(header, body, buffer),
        };
        Transmit { destination: Destination::Unicast(self.upstream), bytes, ecn: Ecn::NotCapable }
    }

    /// Takes the word of a challenge of the next hop; returns whether the datagram is one. A word of another
    /// value than the last means that the next hop has refused the request, unless the challenge is a
    /// renewal. A request for no reply, of level 0, is not repeated.
    pub fn take_challenge(&mut self, datagram: &Datagram<'_>) -> bool {
        let Some((header, word)) = challenge::parse(datagram) else { return false };
        let is_ours = header.source == self.source && datagram.source == self.upstream;
        if is_ours && self.word.is_some_and(|known| known != word) {
            self.word = Some(word);
            self.refused = (!header.is_renewal && header.level > Level::ZERO).then_some(header);
        }
        is_ours
    }

    /// Returns the reply in a datagram, if from this source and for a bound label.
    ///
    /// A challenge of the next hop is taken, and returns `None`.
    pub fn receive<'a>(&mut self, datagram: &Datagram<'a>) -> Option<Reply<'a>> {
        if self.take_challenge(datagram) {
            return None;
        }
        let reply = self.reply(datagram);
        self.ignored += u64::from(reply.is_none());
        reply
    }

    /// Returns the number of datagrams ignored as not for this client.
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Returns the source.
    pub const fn source(&self) -> SocketAddr {
        self.source
    }

    fn reply<'a>(&self, datagram: &Datagram<'a>) -> Option<Reply<'a>> {
        let (header, body) = Header::parse(datagram.payload).ok()?;
        let came_back = datagram.channel.is_some() || datagram.source == self.upstream;
        let is_ours = header.kind == Kind::Reply && header.source == self.source && came_back;
        (is_ours && self.bindings.matches(header.label)).then_some(Reply {
            label: header.label,
            level: header.level,
            follows_loss: header.follows_loss,
            body,
        })
    }
}

/// Returns an address in the form used in messages.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Writes a message, with the body truncated to the buffer, and returns the message's length.
pub(super) fn write(header: &Header, body: &[u8], buffer: &mut [u8]) -> usize {
    let Ok(header_bytes) = header.emit(buffer) else { return 0 };
    let body_bytes = body.len().min(REQUEST_BODY_BYTES_MAX).min(buffer.len() - header_bytes);
    buffer[header_bytes..][..body_bytes].copy_from_slice(&body[..body_bytes]);
    header_bytes + body_bytes
}
