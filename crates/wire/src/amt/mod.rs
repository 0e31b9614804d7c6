//! Automatic Multicast Tunneling (AMT, RFC 7450): messages between gateways and relays by unicast UDP.
//! Queries and updates carry IGMPv3 or MLDv2 messages ([`membership`]), data messages carry multicast
//! datagrams ([`inner`]), each as a whole IP packet.
//!
//! Reserved bits are ignored in received messages and zero in sent messages, as section 5.1 has it.

pub mod demand;
pub mod inner;
pub mod membership;
pub mod roster;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bytes::{Writer, be16, be32};

/// UDP port of relays.
pub const PORT: u16 = 2_268;
/// Length of a discovery and of a request.
pub const REQUEST_BYTES: usize = 8;
/// Length of the header of a data message.
pub const DATA_HEADER_BYTES: usize = 2;
/// Length of the header of a query or an update.
pub const UPDATE_HEADER_BYTES: usize = 12;
/// Length of the address and port of a gateway at the end of a query or a teardown.
const ENDPOINT_BYTES: usize = 18;
/// Length of the code, the nonce and the sender's address at the end of a relayed report.
const TRAILER_BYTES: usize = 10 + ENDPOINT_BYTES;

const DISCOVERY: u8 = 1;
const ADVERTISEMENT: u8 = 2;
const REQUEST: u8 = 3;
const QUERY: u8 = 4;
const UPDATE: u8 = 5;
const DATA: u8 = 6;
const TEARDOWN: u8 = 7;

/// P flag of a request.
const IS_MLD: u8 = 0b01;
/// L flag of a query.
const IS_LIMITED: u8 = 0b10;
/// G flag of a query.
const HAS_GATEWAY: u8 = 0b01;

/// Message authentication code by which a relay recognizes an address that it has answered.
pub type Mac = [u8; 6];

/// Reasons why bytes are no AMT message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmtError {
    /// Shorter than the message's fixed fields, or an address of no IP version.
    #[error("{0} bytes are not the length of an AMT message of that type")]
    Length(usize),
    /// Not version 0.
    #[error("version {0} of AMT, but only version 0 is known")]
    Version(u8),
    /// No known type.
    #[error("there is no AMT message of type {0}")]
    Type(u8),
}

/// An AMT message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// Gateway to relay: asks for the relay's address.
    Discovery {
        /// Returned in the advertisement.
        nonce: u32,
    },
    /// Relay to gateway: the relay's address.
    Advertisement {
        /// Nonce of the discovery.
        nonce: u32,
        /// Unicast address of the relay.
        relay: IpAddr,
    },
    /// Gateway to relay: asks for a general query.
    Request {
        /// Returned in the query.
        nonce: u32,
        /// Whether an MLDv2 query is requested, instead of an IGMPv3 query.
        is_mld: bool,
    },
    /// Relay to gateway: a general query.
    Query {
        /// Code to be returned in updates.
        mac: Mac,
        /// Nonce of the request.
        nonce: u32,
        /// Whether the relay accepts no new gateways.
        is_limited: bool,
        /// IP packet with the query.
        query: &'a [u8],
        /// Address and port of the gateway as the relay sees them.
        gateway: Option<SocketAddr>,
    },
    /// Gateway to relay: a report of memberships.
    Update {
        /// Code of the query.
        mac: Mac,
        /// Nonce of the request.
        nonce: u32,
        /// IP packet with the report.
        report: &'a [u8],
    },
    /// Relay to gateway: a multicast datagram.
    Data {
        /// IP packet.
        packet: &'a [u8],
    },
    /// Gateway to relay: ends the tunnel to a former address of the gateway.
    Teardown {
        /// Code of a query to the former address.
        mac: Mac,
        /// Nonce of the request from the former address.
        nonce: u32,
        /// The former address and port.
        gateway: SocketAddr,
    },
}

impl<'a> Message<'a> {
    /// Reads a datagram. The packets within queries, updates and data messages are not read.
    ///
    /// # Errors
    /// [`AmtError`].
    pub fn parse(datagram: &'a [u8]) -> Result<Self, AmtError> {
        let length = AmtError::Length(datagram.len());
        let first = *datagram.first().ok_or(length)?;
        if first >> 4 != 0 {
            return Err(AmtError::Version(first >> 4));
        }
        let least = match first {
            DISCOVERY | REQUEST => REQUEST_BYTES,
            ADVERTISEMENT | QUERY | UPDATE => UPDATE_HEADER_BYTES,
            DATA => DATA_HEADER_BYTES,
            TEARDOWN => UPDATE_HEADER_BYTES + ENDPOINT_BYTES,
            other => return Err(AmtError::Type(other)),
        };
        if datagram.len() < least {
            return Err(length);
        }
        Ok(match first {
            DISCOVERY => Self::Discovery { nonce: be32(datagram, 4) },
            ADVERTISEMENT => {
                Self::Advertisement { nonce: be32(datagram, 4), relay: relay(&datagram[8..]).ok_or(length)? }
            }
            REQUEST => Self::Request { nonce: be32(datagram, 4), is_mld: datagram[1] & IS_MLD != 0 },
            QUERY => {
                let (mac, nonce) = (mac(datagram), be32(datagram, 8));
                let (query, gateway) = match datagram[1] & HAS_GATEWAY {
                    0 => (&datagram[UPDATE_HEADER_BYTES..], None),
                    _ => {
                        let (query, end) =
                            datagram[UPDATE_HEADER_BYTES..].split_last_chunk().ok_or(length)?;
                        (query, Some(endpoint(end)))
                    }
                };
                Self::Query { mac, nonce, is_limited: datagram[1] & IS_LIMITED != 0, query, gateway }
            }
            UPDATE => {
                let (mac, nonce) = (mac(datagram), be32(datagram, 8));
                Self::Update { mac, nonce, report: &datagram[UPDATE_HEADER_BYTES..] }
            }
            DATA => Self::Data { packet: &datagram[DATA_HEADER_BYTES..] },
            _ => {
                let end = datagram[UPDATE_HEADER_BYTES..].first_chunk().ok_or(length)?;
                Self::Teardown { mac: mac(datagram), nonce: be32(datagram, 8), gateway: endpoint(end) }
            }
        })
    }

    /// Writes the message at the start of a buffer. Returns the length; `None` if the buffer is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Option<usize> {
        let mut writer = Writer::new(buffer.get_mut(..self.len())?);
        match *self {
            Self::Discovery { nonce } => {
                writer.put(&[DISCOVERY, 0, 0, 0]);
                writer.put(&nonce.to_be_bytes());
            }
            Self::Advertisement { nonce, relay } => {
                writer.put(&[ADVERTISEMENT, 0, 0, 0]);
                writer.put(&nonce.to_be_bytes());
                put_ip(&mut writer, relay);
            }
            Self::Request { nonce, is_mld } => {
                writer.put(&[REQUEST, u8::from(is_mld) * IS_MLD, 0, 0]);
                writer.put(&nonce.to_be_bytes());
            }
            Self::Query { mac, nonce, is_limited, query, gateway } => {
                let limited = if is_limited { IS_LIMITED } else { 0 };
                let flags = limited | if gateway.is_some() { HAS_GATEWAY } else { 0 };
                put_proven(&mut writer, [QUERY, flags], mac, nonce);
                writer.put(query);
                if let Some(gateway) = gateway {
                    put_endpoint(&mut writer, gateway);
                }
            }
            Self::Update { mac, nonce, report } => {
                put_proven(&mut writer, [UPDATE, 0], mac, nonce);
                writer.put(report);
            }
            Self::Data { packet } => {
                writer.put(&[DATA, 0]);
                writer.put(packet);
            }
            Self::Teardown { mac, nonce, gateway } => {
                put_proven(&mut writer, [TEARDOWN, 0], mac, nonce);
                put_endpoint(&mut writer, gateway);
            }
        }
        Some(writer.written())
    }

    const fn len(&self) -> usize {
        match self {
            Self::Discovery { .. } | Self::Request { .. } => REQUEST_BYTES,
            Self::Advertisement { relay: IpAddr::V4(_), .. } => REQUEST_BYTES + 4,
            Self::Advertisement { relay: IpAddr::V6(_), .. } => REQUEST_BYTES + 16,
            Self::Query { query, gateway, .. } => {
                let end = if gateway.is_some() { ENDPOINT_BYTES } else { 0 };
                UPDATE_HEADER_BYTES + query.len() + end
            }
            Self::Update { report, .. } => UPDATE_HEADER_BYTES + report.len(),
            Self::Data { packet } => DATA_HEADER_BYTES + packet.len(),
            Self::Teardown { .. } => UPDATE_HEADER_BYTES + ENDPOINT_BYTES,
        }
    }
}

/// Whether a datagram is a data message. The packet within is not read.
pub fn is_data(datagram: &[u8]) -> bool {
    datagram.len() >= DATA_HEADER_BYTES && datagram[0] == DATA
}

/// Writes the header of a data message at the start of a buffer with room for the header.
pub fn put_data_header(buffer: &mut [u8]) {
    buffer[..DATA_HEADER_BYTES].copy_from_slice(&[DATA, 0]);
}

fn mac(datagram: &[u8]) -> Mac {
    core::array::from_fn(|index| datagram[2 + index])
}

fn relay(bytes: &[u8]) -> Option<IpAddr> {
    let ipv4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    ipv4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// Reads an address and port. An IPv4 address is written as an IPv4-compatible IPv6 address; IPv4-mapped
/// addresses are read as well.
fn endpoint(bytes: &[u8; ENDPOINT_BYTES]) -> SocketAddr {
    let octets: [u8; 16] = core::array::from_fn(|index| bytes[2 + index]);
    let address = Ipv6Addr::from(octets);
    let is_compatible =
        octets[..12] == [0; 12] && address != Ipv6Addr::LOCALHOST && address != Ipv6Addr::UNSPECIFIED;
    let ip = match address.to_canonical() {
        _ if is_compatible => {
            IpAddr::V4(Ipv4Addr::from_octets([octets[12], octets[13], octets[14], octets[15]]))
        }
        // Written as compatible addresses, these would be `::` and `::1`.
        IpAddr::V4(ip) if ip.to_bits() <= 1 => IpAddr::V6(address),
        ip => ip,
    };
    SocketAddr::new(ip, be16(bytes, 0))
}

fn put_endpoint(writer: &mut Writer<'_>, gateway: SocketAddr) {
    writer.put(&gateway.port().to_be_bytes());
    if gateway.is_ipv4() {
        writer.put(&[0; 12]);
    }
    put_ip(writer, gateway.ip());
}

/// Reads the end of a relayed report: code, nonce and sender.
fn trailer(bytes: &[u8; TRAILER_BYTES]) -> (Mac, u32, SocketAddr) {
    let mac = core::array::from_fn(|index| bytes[index]);
    (mac, be32(bytes, 6), endpoint(&core::array::from_fn(|index| bytes[10 + index])))
}

fn put_trailer(writer: &mut Writer<'_>, mac: Mac, nonce: u32, sender: SocketAddr) {
    writer.put(&mac);
    writer.put(&nonce.to_be_bytes());
    put_endpoint(writer, sender);
}

fn put_ip(writer: &mut Writer<'_>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => writer.put(&ip.octets()),
        IpAddr::V6(ip) => writer.put(&ip.octets()),
    }
}

fn put_proven(writer: &mut Writer<'_>, start: [u8; 2], mac: Mac, nonce: u32) {
    writer.put(&start);
    writer.put(&mac);
    writer.put(&nonce.to_be_bytes());
}
