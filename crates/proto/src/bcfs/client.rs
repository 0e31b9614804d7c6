//! The end that asks.

use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind, Label, Level};

use super::bindings::{Bindings, TooManyBindings};
use crate::machine::{Datagram, Destination, Ecn, Transmit};

/// Asks one source, by way of its nearest router, and hears the replies.
#[derive(Debug)]
pub struct Client {
    source: SocketAddr,
    upstream: SocketAddr,
    bindings: Bindings,
    ignored: u64,
}

/// A reply to somebody's request for a label that is bound; not always to one's own, as a router may serve
/// many with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What was asked for.
    pub label: Label,
    /// Which breadcrumbs it took away.
    pub level: Level,
    /// A relay had kept it, and it had come there in place of one that was lost on the way.
    pub follows_loss: bool,
    /// The source's.
    pub body: &'a [u8],
}

impl Client {
    /// An end without bindings. Requests for `source` go to `upstream`: a relay, or the source itself. It
    /// hears replies from there by unicast, and from anyone by multicast, where the last router replies to a
    /// group.
    pub fn new(source: SocketAddr, upstream: SocketAddr) -> Self {
        Self { source: canonical(source), upstream, bindings: Bindings::default(), ignored: 0 }
    }

    /// Listens to all labels that agree with `label` where `mask` has ones.
    ///
    /// # Errors
    /// [`TooManyBindings`].
    pub fn bind(&mut self, label: Label, mask: u32) -> Result<(), TooManyBindings> {
        self.bindings.bind(label, mask)
    }

    /// Writes a request with a body, or a null without one, at the start of `buffer`. A buffer of
    /// [`DATAGRAM_BYTES_MAX`](crate::DATAGRAM_BYTES_MAX) has room for any body that a router sends on, at
    /// most [`REQUEST_BODY_BYTES_MAX`](super::REQUEST_BODY_BYTES_MAX); of longer ones the rest is left out.
    pub fn request(&self, label: Label, level: Level, body: Option<&[u8]>, buffer: &mut [u8]) -> Transmit {
        let kind = if body.is_some() { Kind::Request } else { Kind::Null };
        let bytes = write(&Header::new(kind, self.source, label, level), body.unwrap_or(&[]), buffer);
        Transmit { destination: Destination::Unicast(self.upstream), bytes, ecn: Ecn::NotCapable }
    }

    /// The reply in a datagram, if it is one of the source for a label that is bound.
    pub fn receive<'a>(&mut self, datagram: &Datagram<'a>) -> Option<Reply<'a>> {
        let reply = self.reply(datagram);
        self.ignored += u64::from(reply.is_none());
        reply
    }

    /// Datagrams that were none for it.
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Whom it asks.
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

/// The address as messages carry it.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Writes a message, its body cut where the buffer ends; its length.
pub(super) fn write(header: &Header, body: &[u8], buffer: &mut [u8]) -> usize {
    let Ok(header_bytes) = header.emit(buffer) else { return 0 };
    let body_bytes = body.len().min(super::REQUEST_BODY_BYTES_MAX).min(buffer.len() - header_bytes);
    buffer[header_bytes..][..body_bytes].copy_from_slice(&body[..body_bytes]);
    header_bytes + body_bytes
}
