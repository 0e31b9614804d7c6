//! Messages of the Breadcrumb Forwarding Service (Yano, McCanne 1999) over UDP: requests towards a source,
//! and its replies. The form is ours; `docs/wire/bcfs.md` describes it.
//!
//! A header of 20 bytes with an IPv4 source, of 32 with IPv6, then the body. Reading and writing allocate
//! nothing.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bytes::{Writer, be16, be32};
use crate::exchange;
pub use crate::exchange::{Error, VERSION};

/// Bytes of the header of a message whose source has an IPv4 address.
pub const HEADER_BYTES_IPV4: usize = 20;
/// Bytes of the header of a message whose source has an IPv6 address: the longest.
pub const HEADER_BYTES_MAX: usize = 32;
/// Hops that a message is given at its start: relays in a row, far more than a tree of them has.
pub const HOPS: u8 = 32;

const MAGIC: [u8; 3] = *b"HWB";
const KIND_REQUEST: u8 = 0;
const KIND_NULL: u8 = 1;
const KIND_REPLY: u8 = 2;

const FLAGS_AT: usize = 15;
const FLAG_ANY: u8 = 1;
const FLAG_LOSS: u8 = 2;

const FAMILY_IPV4: u8 = 4;
const FAMILY_IPV6: u8 = 6;

/// What is asked for, by name; each source has labels of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u32);

/// Of a request: how many replies it asks for, sent with the levels 1 to this one. Of a reply: which
/// breadcrumbs it takes away, those of this level and below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u16);

impl Level {
    /// The level of replies that take no breadcrumb away, but those that asked with it.
    pub const ZERO: Self = Self(0);
    /// The level of most requests and of their replies.
    pub const ONE: Self = Self(1);

    /// The next higher level; the highest stays.
    #[must_use]
    pub const fn raised(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Asks the source for replies.
    Request,
    /// A request without a body: leaves or refreshes breadcrumbs, and goes up only as far as it must.
    Null,
    /// From the source, back along the breadcrumbs.
    Reply,
}

/// All of a message but its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// The source's address and UDP port, in all messages: what labels are scoped by. IPv6 scopes and flow
    /// labels are not carried; an IPv4 address in IPv6's form is read as itself.
    pub source: SocketAddr,
    /// What is asked for.
    pub label: Label,
    /// How many replies, or which breadcrumbs.
    pub level: Level,
    /// Relays that it may still pass, at the most.
    pub hops: u8,
    /// Of a request: any reply of the source that is so marked answers it, whatever its label, if the asker
    /// has not had it. Of a reply: it is such a one.
    pub is_any: bool,
    /// Of a reply that a relay gives out once more: it had come there in place of one that was lost on the
    /// way.
    pub follows_loss: bool,
}

impl Header {
    /// A message at its start.
    pub const fn new(kind: Kind, source: SocketAddr, label: Label, level: Level) -> Self {
        Self { kind, source, label, level, hops: HOPS, is_any: false, follows_loss: false }
    }

    /// Reads a datagram: its header, and its body behind. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`Error`], for whatever is no message of this version. A null with a body is none.
    pub fn parse(datagram: &[u8]) -> Result<(Header, &[u8]), Error> {
        let kind = match exchange::kind(datagram, MAGIC)? {
            KIND_REQUEST => Kind::Request,
            KIND_NULL => Kind::Null,
            KIND_REPLY => Kind::Reply,
            kind => return Err(Error::Kind(kind)),
        };
        let wrong_length = Error::Length(datagram.len());
        let family = *datagram.get(11).ok_or(wrong_length)?;
        let header_bytes = match family {
            FAMILY_IPV4 => HEADER_BYTES_IPV4,
            FAMILY_IPV6 => HEADER_BYTES_MAX,
            family => return Err(Error::Family(family)),
        };
        let (bytes, body) = datagram.split_at_checked(header_bytes).ok_or(wrong_length)?;
        if kind == Kind::Null && !body.is_empty() {
            return Err(wrong_length);
        }
        let header = Header {
            kind,
            source: SocketAddr::new(address(&bytes[16..]), be16(bytes, 12)),
            label: Label(be32(bytes, 4)),
            level: Level(be16(bytes, 8)),
            hops: bytes[10],
            is_any: bytes[FLAGS_AT] & FLAG_ANY != 0,
            follows_loss: bytes[FLAGS_AT] & FLAG_LOSS != 0,
        };
        Ok((header, body))
    }

    /// Bytes of the header.
    pub fn buffer_len(&self) -> usize {
        match self.source.ip().to_canonical() {
            IpAddr::V4(_) => HEADER_BYTES_IPV4,
            IpAddr::V6(_) => HEADER_BYTES_MAX,
        }
    }

    /// Writes the header at the start of `buffer`; its length, [`Header::buffer_len`]. The body, which is
    /// behind, is not touched.
    ///
    /// # Errors
    /// [`Error::Length`] where the buffer is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let (need, have) = (self.buffer_len(), buffer.len());
        let bytes = buffer.get_mut(..need).ok_or(Error::Length(have))?;
        let mut writer = Writer::new(bytes);
        let kind = match self.kind {
            Kind::Request => KIND_REQUEST,
            Kind::Null => KIND_NULL,
            Kind::Reply => KIND_REPLY,
        };
        exchange::emit_kind(&mut writer, MAGIC, kind);
        writer.put(&self.label.0.to_be_bytes());
        writer.put(&self.level.0.to_be_bytes());
        let address = self.source.ip().to_canonical();
        writer.put(&[self.hops, if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 }]);
        writer.put(&self.source.port().to_be_bytes());
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        writer.put(&[0, flag(self.is_any, FLAG_ANY) | flag(self.follows_loss, FLAG_LOSS)]);
        match address {
            IpAddr::V4(address) => writer.put(&address.octets()),
            IpAddr::V6(address) => writer.put(&address.octets()),
        }
        Ok(need)
    }
}

/// Marks a message that was written as [`Header::is_any`].
pub fn mark_any(message: &mut [u8]) {
    if let Some(flags) = message.get_mut(FLAGS_AT) {
        *flags |= FLAG_ANY;
    }
}

/// The address in 4 or 16 bytes.
fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 16]>::try_from(bytes) {
        Ok(octets) => IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(),
        Err(_) => IpAddr::V4(Ipv4Addr::from_bits(be32(bytes, 0))),
    }
}
