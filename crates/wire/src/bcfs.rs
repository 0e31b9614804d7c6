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
/// Bytes of a word: the body of a challenge, and the begin of the body of a request that answers one.
pub const WORD_BYTES: usize = 8;
/// Least bytes of the body of a request or null with a word. A challenge is therefore shorter than the
/// request that causes the challenge.
pub const WORDED_BODY_BYTES_MIN: usize = 16;

const MAGIC: [u8; 3] = *b"HWB";
const KIND_REQUEST: u8 = 0;
const KIND_NULL: u8 = 1;
const KIND_REPLY: u8 = 2;
const KIND_CHALLENGE: u8 = 3;

const FLAGS_AT: usize = 15;
const FLAG_ANY: u8 = 1;
const FLAG_LOSS: u8 = 2;
const FLAG_RENEWAL: u8 = 4;

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
    /// A request without content: leaves or refreshes breadcrumbs, and goes up only as far as it must.
    Null,
    /// From the source, back along the breadcrumbs.
    Reply,
    /// From the next hop of a request, back to its sender: the word that the sender must return. The other
    /// fields are those of the request.
    Challenge,
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
    /// In a challenge: the request was accepted, and the word replaces one that soon expires.
    pub is_renewal: bool,
}

impl Header {
    /// A message at its start.
    pub const fn new(kind: Kind, source: SocketAddr, label: Label, level: Level) -> Self {
        Self { kind, source, label, level, hops: HOPS, is_any: false, follows_loss: false, is_renewal: false }
    }

    /// Returns the header and the body of a datagram. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`ExchangeError`], if the datagram is no message of this version. A null has no body, or one of
    /// [`WORDED_BODY_BYTES_MIN`]; a challenge has one of [`WORD_BYTES`].
    pub fn parse(datagram: &[u8]) -> Result<(Header, &[u8]), ExchangeError> {
        let kind = match exchange::kind(datagram, MAGIC)? {
            KIND_REQUEST => Kind::Request,
            KIND_NULL => Kind::Null,
            KIND_REPLY => Kind::Reply,
            KIND_CHALLENGE => Kind::Challenge,
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
        let is_sound = match kind {
            Kind::Null => body.is_empty() || body.len() == WORDED_BODY_BYTES_MIN,
            Kind::Challenge => body.len() == WORD_BYTES,
            Kind::Request | Kind::Reply => true,
        };
        if !is_sound {
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
            is_renewal: bytes[FLAGS_AT] & FLAG_RENEWAL != 0,
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
            Kind::Challenge => KIND_CHALLENGE,
        };
        exchange::emit_kind(&mut writer, MAGIC, kind);
        writer.put(&self.label.0.to_be_bytes());
        writer.put(&self.level.0.to_be_bytes());
        let address = self.source.ip().to_canonical();
        writer.put(&[self.hops, if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 }]);
        writer.put(&self.source.port().to_be_bytes());
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.is_any, FLAG_ANY)
            | flag(self.follows_loss, FLAG_LOSS)
            | flag(self.is_renewal, FLAG_RENEWAL);
        writer.put(&[0, flags]);
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

/// Returns the word of a request or null that was written with a worded body; `None` if the body is shorter.
pub fn word_mut(message: &mut [u8]) -> Option<&mut [u8; WORD_BYTES]> {
    let body_bytes = Header::parse(message).ok()?.1.len();
    let body = message.len() - body_bytes;
    if body_bytes < WORDED_BODY_BYTES_MIN {
        return None;
    }
    message[body..].first_chunk_mut()
}

/// The address in 4 or 16 bytes.
fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 16]>::try_from(bytes) {
        Ok(octets) => IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(),
        Err(_) => IpAddr::V4(Ipv4Addr::from_bits(be32(bytes, 0))),
    }
}
