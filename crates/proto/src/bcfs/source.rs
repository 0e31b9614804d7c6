//! The end that is asked.

use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind, Label, Level};

use super::REFRESH;
use super::bindings::{Bindings, TooManyBindings};
use super::client::canonical;
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Transmit};
use crate::time::Instant;

/// Labels whose last reply is remembered: those with the same low bits share a place. One that was forgotten
/// costs a superfluous reply to a null.
const REMEMBERED: usize = 1_024;

/// Where replies are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyTo {
    /// To whom the request came from: the nearest router, or a client.
    Peer,
    /// To a group, where routers are on the path and take what passes (in the simulator).
    Channel(ChannelId),
}

/// How a reply finds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReturnPath {
    /// Who handed the request over: the nearest router, or a client.
    pub peer: SocketAddr,
    /// The source as the request calls it.
    pub source: SocketAddr,
}

/// A request or null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// For [`Source::reply`].
    pub path: ReturnPath,
    /// What is asked for.
    pub label: Label,
    /// How many replies, of levels 1 to this one.
    pub level: Level,
    /// No request, but a sign that breadcrumbs wait.
    pub is_null: bool,
    /// Whether to reply: to any request, and to a null unless the last reply on its label, sent less than
    /// [`REFRESH`] ago, went where the null came from, and had its level or more, or 0.
    pub wants_reply: bool,
    /// The request's.
    pub body: &'a [u8],
}

/// Hears requests and replies. Nothing proves who asked, and replies are longer than requests: whoever drives
/// it limits what one peer may ask.
#[derive(Debug)]
pub struct Source {
    identity: Option<SocketAddr>,
    reply_to: ReplyTo,
    bindings: Bindings,
    /// By the label's low bits: the last reply.
    replied: Vec<Option<Replied>>,
    ignored: u64,
}

/// A reply that was sent.
#[derive(Debug, Clone, Copy)]
struct Replied {
    path: ReturnPath,
    label: Label,
    level: Level,
    at: Instant,
}

impl Source {
    /// An end without bindings. It answers to `identity`, or, with `None`, to whatever address it is asked
    /// by; the host may have several.
    pub fn new(identity: Option<SocketAddr>, reply_to: ReplyTo) -> Self {
        Self {
            identity: identity.map(canonical),
            reply_to,
            bindings: Bindings::default(),
            replied: vec![None; REMEMBERED],
            ignored: 0,
        }
    }

    /// Listens to all labels that agree with `label` where `mask` has ones.
    ///
    /// # Errors
    /// [`TooManyBindings`].
    pub fn bind(&mut self, label: Label, mask: u32) -> Result<(), TooManyBindings> {
        self.bindings.bind(label, mask)
    }

    /// The request or null in a datagram, if it is one to this source for a label that is bound.
    pub fn receive<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> Option<Asked<'a>> {
        let asked = self.asked(now, datagram);
        self.ignored += u64::from(asked.is_none());
        asked
    }

    /// Where a reply's body is written before [`Source::reply`]: `buffer` behind the header.
    pub fn body<'a>(path: &ReturnPath, buffer: &'a mut [u8]) -> &'a mut [u8] {
        let header_bytes = Self::header_bytes(path).min(buffer.len());
        &mut buffer[header_bytes..]
    }

    /// Writes the header of a reply whose body of `body_bytes` is in `buffer` already (see [`Source::body`]).
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

    /// Where a reply goes.
    pub const fn destination(&self, path: &ReturnPath) -> Destination {
        match self.reply_to {
            ReplyTo::Peer => Destination::Unicast(path.peer),
            ReplyTo::Channel(channel) => Destination::Channel(channel),
        }
    }

    /// Bytes of the header in front of a reply's body.
    pub fn header_bytes(path: &ReturnPath) -> usize {
        Header::new(Kind::Reply, path.source, Label(0), Level::ZERO).buffer_len()
    }

    /// Datagrams that were none for it.
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    fn asked<'a>(&self, now: Instant, datagram: &Datagram<'a>) -> Option<Asked<'a>> {
        let (header, body) = Header::parse(datagram.payload).ok()?;
        let is_null = match header.kind {
            Kind::Request => false,
            Kind::Null => true,
            Kind::Reply => return None,
        };
        let is_ours = self.identity.is_none_or(|identity| identity == header.source);
        if !is_ours || !self.bindings.matches(header.label) {
            return None;
        }
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

    /// Whether a reply lately went to the breadcrumbs that a null speaks of, and took them away or, with
    /// level 0, left them on purpose.
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
