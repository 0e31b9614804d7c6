//! Messages of the Breadcrumb Forwarding Service (Yano, McCanne 1999) over UDP: requests towards a source,
//! and replies from the source. The format is ours; `docs/reference/wire/bcfs.md` describes the fields.
//!
//! A header of 20 bytes with an IPv4 source, of 32 with IPv6, then the body. Reading and writing allocate
//! nothing.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bytes::{Writer, be16, be32};
use crate::exchange;
pub use crate::exchange::{ExchangeError, VERSION};

/// Bytes of the header of a message whose source has an IPv4 address.
pub const HEADER_BYTES_IPV4: usize = 20;
/// Bytes of the header of a message whose source has an IPv6 address: the longest.
pub const HEADER_BYTES_MAX: usize = 32;
/// Hop limit of a new message: relays in a row, far more than a tree of relays has.
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

/// Name of requested content. Each source has its own labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u32);

/// BCFS level. In a request: number of replies wanted, sent with the levels 1 to this level. In a reply: the
/// reply removes the breadcrumbs of this level and below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u16);

impl Level {
    /// Level of replies that remove only the breadcrumbs of requests with this level.
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

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Asks the source for replies.
    Request,
    /// A request without a body: leaves or refreshes breadcrumbs, and goes up only as far as it must.
    Null,
    /// From the source, back along the breadcrumbs.
    Reply,
}

/// Header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Kind of the message.
    pub kind: Kind,
    /// Address and UDP port of the source, in all messages; the scope of labels. IPv6 scopes and flow labels
    /// are not carried; an IPv4-mapped IPv6 address is read as the IPv4 address.
    pub source: SocketAddr,
    /// Label requested or answered.
    pub label: Label,
    /// In a request the number of replies, in a reply the breadcrumbs to remove.
    pub level: Level,
    /// Maximum number of relays that the message may still pass.
    pub hops: u8,
    /// In a request: any reply of the source with this mark answers the request, whatever the label, if the
    /// requester has not received that reply. In a reply: the reply may answer such requests.
    pub is_any: bool,
    /// In a reply that a relay sends again: the first copy reached the relay in place of a reply lost on the
    /// way.
    pub follows_loss: bool,
}

impl Header {
    /// A message at its start.
    pub const fn new(kind: Kind, source: SocketAddr, label: Label, level: Level) -> Self {
        Self { kind, source, label, level, hops: HOPS, is_any: false, follows_loss: false }
    }

    /// Returns the header and the body of a datagram. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`ExchangeError`], if the datagram is no message of this version. A null with a body is refused.
    pub fn parse(datagram: &[u8]) -> Result<(Header, &[u8]), ExchangeError> {
        let kind = match exchange::kind(datagram, MAGIC)? {
            KIND_REQUEST => Kind::Request,
            KIND_NULL => Kind::Null,
            KIND_REPLY => Kind::Reply,
            kind => return Err(ExchangeError::Kind(kind)),
        };
        let wrong_length = ExchangeError::Length(datagram.len());
        let family = *datagram.get(11).ok_or(wrong_length)?;
        let header_bytes = match family {
            FAMILY_IPV4 => HEADER_BYTES_IPV4,
            FAMILY_IPV6 => HEADER_BYTES_MAX,
            family => return Err(ExchangeError::Family(family)),
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

    /// Writes the header at the start of `buffer` and returns [`Header::buffer_len`]. The body behind the
    /// header is not touched.
    ///
    /// # Errors
    /// [`ExchangeError::Length`] if the buffer is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, ExchangeError> {
        let (need, have) = (self.buffer_len(), buffer.len());
        let bytes = buffer.get_mut(..need).ok_or(ExchangeError::Length(have))?;
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
