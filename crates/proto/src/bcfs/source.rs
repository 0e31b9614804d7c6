//! Source side of the service.

use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind, Label, Level};

use super::canonical;
use super::{Bindings, TooManyBindings};
use super::{ChallengeCounters, Challenger, REFRESH};
use crate::admission::AdmissionKey;
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Transmit};
use crate::time::Instant;

/// Number of labels whose last reply is remembered; labels with the same low bits share an entry. A forgotten
/// reply costs a superfluous reply to a null.
const REMEMBERED: usize = 1_024;

/// Destination of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyTo {
    /// The peer that delivered the request: the nearest router, or a client.
    Peer,
    /// A group; for routers on the path that intercept packets (in the simulator).
    Channel(ChannelId),
}

/// Return path of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReturnPath {
    /// Peer that delivered the request: the nearest router, or a client.
    pub peer: SocketAddr,
    /// Source address in the request.
    pub source: SocketAddr,
}

/// Received request or null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Return path for [`BcfsSource::reply`].
    pub path: ReturnPath,
    /// Requested label.
    pub label: Label,
    /// Number of replies requested, of levels 1 to this level.
    pub level: Level,
    /// Whether the message is a null: a sign of waiting breadcrumbs, not a request.
    pub is_null: bool,
    /// Whether to reply. True for every request. False for a null if the last reply on its label was sent at
    /// most [`REFRESH`] ago, by the null's return path, and had the null's level or more, or level 0.
    pub wants_reply: bool,
    /// Body of the request.
    pub body: &'a [u8],
}

/// Receives requests and sends replies. Replies are longer than requests: a source that strangers reach needs
/// [`BcfsSource::with_challenges`], and its driver must limit the request rate of each peer.
#[derive(Debug)]
pub struct BcfsSource {
    identity: Option<SocketAddr>,
    reply_to: ReplyTo,
    bindings: Bindings,
    /// Last reply, by the low bits of the label.
    replied: Vec<Option<Replied>>,
    challenger: Option<Challenger>,
    ignored: u64,
}

/// Sent reply.
#[derive(Debug, Clone, Copy)]
struct Replied {
    path: ReturnPath,
    label: Label,
    level: Level,
    at: Instant,
}

impl BcfsSource {
    /// Creates a source without bindings. The source answers to `identity`, or, with `None`, to any address
    /// of the host, as the request names it.
    pub fn new(identity: Option<SocketAddr>, reply_to: ReplyTo) -> Self {
        Self {
            identity: identity.map(canonical),
            reply_to,
            bindings: Bindings::default(),
            replied: vec![None; REMEMBERED],
            challenger: None,
            ignored: 0,
        }
    }

    /// Receives requests only from addresses that return the word of a challenge. `key` must be secret.
    /// Default: `None`, any address, as in the paper.
    #[must_use]
    pub fn with_challenges(mut self, key: Option<AdmissionKey>) -> Self {
        self.challenger = key.map(Challenger::new);
        self
    }

    /// Returns the next challenge. To be polled after each [`BcfsSource::receive`], until `None`.
    pub fn poll_challenge(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        self.challenger.as_mut()?.poll(buffer)
    }

    /// Returns the counters of challenges.
    pub fn challenges(&self) -> ChallengeCounters {
        self.challenger.as_ref().map(|challenger| *challenger.counters()).unwrap_or_default()
    }

    /// Listens to all labels that equal `label` in the bits set in `mask`.
    ///
    /// # Errors
    /// [`TooManyBindings`].
    pub fn bind(&mut self, label: Label, mask: u32) -> Result<(), TooManyBindings> {
        self.bindings.bind(label, mask)
    }

    /// Returns the request or null in a datagram, if addressed to this source and for a bound label.
    pub fn receive<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> Option<Asked<'a>> {
        let asked = self.asked(now, datagram);
        self.ignored += u64::from(asked.is_none());
        asked
    }

    /// Returns the part of `buffer` behind the header, for a reply's body, before [`BcfsSource::reply`].
    pub fn body<'a>(path: &ReturnPath, buffer: &'a mut [u8]) -> &'a mut [u8] {
        let header_bytes = Self::header_bytes(path).min(buffer.len());
        &mut buffer[header_bytes..]
    }

    /// Writes the header of a reply. The body of `body_bytes` is already in `buffer` (see
    /// [`BcfsSource::body`]).
    pub fn reply(
        &mut self,
        now: Instant,
        path: &ReturnPath,
        label: Label,
        level: Level,
        body_bytes: usize,
        buffer: &mut [u8],
    ) -> Transmit {
        let header = Header::new(Kind::Reply, path.source, label, level);
        let header_bytes = header.emit(buffer).unwrap_or(0);
        self.replied[place(label)] = Some(Replied { path: *path, label, level, at: now });
        let destination = self.destination(path);
        let bytes = (header_bytes + body_bytes).min(buffer.len());
        Transmit { destination, bytes, ecn: Ecn::NotCapable }
    }

    /// Returns the destination of a reply.
    pub const fn destination(&self, path: &ReturnPath) -> Destination {
        match self.reply_to {
            ReplyTo::Peer => Destination::Unicast(path.peer),
            ReplyTo::Channel(channel) => Destination::Channel(channel),
        }
    }

    /// Returns the length of the header in front of a reply's body, in bytes.
    pub fn header_bytes(path: &ReturnPath) -> usize {
        Header::new(Kind::Reply, path.source, Label(0), Level::ZERO).buffer_len()
    }

    /// Returns the number of datagrams ignored as not for this source.
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    fn asked<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> Option<Asked<'a>> {
        let (header, body) = Header::parse(datagram.payload).ok()?;
        let is_null = match header.kind {
            Kind::Request => false,
            Kind::Null => true,
            Kind::Reply | Kind::Challenge => return None,
        };
        let is_ours = self.identity.is_none_or(|identity| identity == header.source);
        if !is_ours || !self.bindings.matches(header.label) {
            return None;
        }
        let body = match &mut self.challenger {
            Some(challenger) => challenger.admit(now, datagram.source, &header, body)?,
            None => body,
        };
        let path = ReturnPath { peer: datagram.source, source: header.source };
        Some(Asked {
            path,
            label: header.label,
            level: header.level,
            is_null,
            wants_reply: !(is_null && self.replied_lately(now, &path, header.label, header.level)),
            body,
        })
    }

    /// Whether a recent reply reached the breadcrumbs that a null reports, and removed them or, with level 0,
    /// left them on purpose.
    fn replied_lately(&self, now: Instant, path: &ReturnPath, label: Label, level: Level) -> bool {
        self.replied[place(label)].is_some_and(|last| {
            let went_there = match self.reply_to {
                ReplyTo::Peer => last.path == *path,
                ReplyTo::Channel(_) => last.path.source == path.source,
            };
            let took_them = last.level == Level::ZERO || last.level >= level;
            went_there && took_them && last.label == label && now.since(last.at) <= REFRESH
        })
    }
}

fn place(label: Label) -> usize {
    label.0 as usize % REMEMBERED
}
