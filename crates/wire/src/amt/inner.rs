//! IP packets within AMT messages: UDP datagrams to groups, and the frames of IGMP and MLD messages.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bytes::be16;

/// Length of the headers before the payload of an IPv4 datagram, without options.
pub const IPV4_UDP_BYTES: usize = 28;
/// Length of the headers before the payload of an IPv6 datagram, without extension headers.
pub const IPV6_UDP_BYTES: usize = 48;

pub(super) const IGMP: u8 = 2;
const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// Time to live of rebuilt packets: a relay's socket does not learn the time to live of the packet.
const TTL: u8 = 64;

/// Reasons why bytes are no IP packet of the expected kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InnerError {
    /// The packet is cut off, or a length field is wrong.
    #[error("an IP packet of {0} bytes is cut off, or has a wrong length field")]
    Length(usize),
    /// Neither IPv4 nor IPv6.
    #[error("there is no IP version {0}")]
    Version(u8),
    /// Part of a fragmented packet.
    #[error("the IP packet is a fragment")]
    Fragment,
    /// Another protocol or message type.
    #[error("IP protocol or message type {0} is not expected here")]
    Protocol(u8),
    /// A checksum is wrong.
    #[error("a checksum of the IP packet is wrong")]
    Checksum,
}

/// UDP datagram in an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerDatagram<'a> {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port, of the source's IP version.
    pub destination: SocketAddr,
    /// ECN field: the two low bits of the traffic class.
    pub ecn: u8,
    /// UDP payload.
    pub payload: &'a [u8],
}

impl<'a> InnerDatagram<'a> {
    /// Reads an IP packet. Bytes behind the IP packet are ignored.
    ///
    /// # Errors
    /// [`InnerError`]. A UDP checksum of zero is accepted with IPv4 alone.
    pub fn parse(packet: &'a [u8]) -> Result<Self, InnerError> {
        let ip = IpPacket::parse(packet)?;
        if ip.protocol != UDP {
            return Err(InnerError::Protocol(ip.protocol));
        }
        let length = InnerError::Length(packet.len());
        let bytes = usize::from(be16(ip.content.get(..UDP_BYTES).ok_or(length)?, 4));
        let datagram =
            ip.content.get(..bytes).filter(|datagram| datagram.len() >= UDP_BYTES).ok_or(length)?;
        let is_unchecked = ip.source.is_ipv4() && be16(datagram, 6) == 0;
        if !is_unchecked && ip.sum(datagram) != 0 {
            return Err(InnerError::Checksum);
        }
        Ok(Self {
            source: SocketAddr::new(ip.source, be16(datagram, 0)),
            destination: SocketAddr::new(ip.destination, be16(datagram, 2)),
            ecn: ip.ecn,
            payload: &datagram[UDP_BYTES..],
        })
    }

    /// Writes an IP packet with both checksums at the start of a buffer. Returns the length; `None` if the
    /// buffer is too short, the payload too long, or source and destination are of different IP versions.
    pub fn emit(&self, buffer: &mut [u8]) -> Option<usize> {
        let udp_bytes = u16::try_from(UDP_BYTES + self.payload.len()).ok()?;
        let ip = IpHeader {
            source: self.source.ip(),
            destination: self.destination.ip(),
            protocol: UDP,
            traffic_class: self.ecn & 0b11,
            hops: TTL,
            is_alert: false,
        };
        let start = ip.emit(buffer, udp_bytes.into())?;
        let datagram = buffer.get_mut(start..start + usize::from(udp_bytes))?;
        datagram[..2].copy_from_slice(&self.source.port().to_be_bytes());
        datagram[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        datagram[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        datagram[6..8].fill(0);
        datagram[UDP_BYTES..].copy_from_slice(self.payload);
        // A sum of zero is written as its other form: zero means that there is no checksum (RFC 768).
        let sum = match pseudo_sum(ip.source, ip.destination, UDP, datagram) {
            0 => u16::MAX,
            sum => sum,
        };
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        Some(start + usize::from(udp_bytes))
    }
}

/// Header fields and content of an IP packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct IpPacket<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    ecn: u8,
    pub(super) content: &'a [u8],
}

impl<'a> IpPacket<'a> {
    pub(super) fn parse(packet: &'a [u8]) -> Result<Self, InnerError> {
        match packet.first().map_or(0, |first| first >> 4) {
            4 => Self::parse_ipv4(packet),
            6 => Self::parse_ipv6(packet),
            version => Err(InnerError::Version(version)),
        }
    }

    fn parse_ipv4(packet: &'a [u8]) -> Result<Self, InnerError> {
        let length = InnerError::Length(packet.len());
        let header_bytes = usize::from(packet[0] & 0xF) * 4;
        let header = packet.get(..header_bytes.max(IPV4_BYTES)).ok_or(length)?;
        let content = packet.get(header_bytes..usize::from(be16(header, 2))).ok_or(length)?;
        if header_bytes < IPV4_BYTES {
            return Err(length);
        }
        // More fragments, or an offset.
        if be16(header, 6) & 0x3FFF != 0 {
            return Err(InnerError::Fragment);
        }
        if internet_checksum(0, header) != 0 {
            return Err(InnerError::Checksum);
        }
        let address = |at: usize| Ipv4Addr::from_octets(core::array::from_fn(|index| header[at + index]));
        Ok(Self {
            source: address(12).into(),
            destination: address(16).into(),
            protocol: header[9],
            ecn: header[1] & 0b11,
            content,
        })
    }

    /// Of extension headers, only one with hop-by-hop options is read: the router alert of MLD.
    fn parse_ipv6(packet: &'a [u8]) -> Result<Self, InnerError> {
        let length = InnerError::Length(packet.len());
        let (header, rest) = packet.split_at_checked(IPV6_BYTES).ok_or(length)?;
        let mut content = rest.get(..usize::from(be16(header, 4))).ok_or(length)?;
        let mut protocol = header[6];
        if protocol == HOP_BY_HOP {
            let &[next, units, ..] = content else { return Err(length) };
            content = content.get((usize::from(units) + 1) * 8..).ok_or(length)?;
            protocol = next;
        }
        let address = |at: usize| Ipv6Addr::from_octets(core::array::from_fn(|index| header[at + index]));
        Ok(Self {
            source: address(8).into(),
            destination: address(24).into(),
            protocol,
            ecn: header[1] >> 4 & 0b11,
            content,
        })
    }

    /// Returns the checksum of the content with the pseudo-header: zero if the content's checksum is right.
    pub(super) fn sum(&self, content: &[u8]) -> u16 {
        pseudo_sum(self.source, self.destination, self.protocol, content)
    }
}

/// Header of an IP packet to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct IpHeader {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) traffic_class: u8,
    pub(super) hops: u8,
    /// Whether the packet has the router alert option (RFC 2113, RFC 2711).
    pub(super) is_alert: bool,
}

impl IpHeader {
    /// Writes the header of a packet with so many bytes of content. Returns the header's length.
    pub(super) fn emit(&self, buffer: &mut [u8], content_bytes: usize) -> Option<usize> {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.emit_ipv4(buffer, source, destination, content_bytes)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.emit_ipv6(buffer, source, destination, content_bytes)
            }
            _ => None,
        }
    }

    fn emit_ipv4(
        &self,
        buffer: &mut [u8],
        source: Ipv4Addr,
        destination: Ipv4Addr,
        content_bytes: usize,
    ) -> Option<usize> {
        let bytes = if self.is_alert { IPV4_BYTES + 4 } else { IPV4_BYTES };
        let header = buffer.get_mut(..bytes)?;
        let total = u16::try_from(bytes + content_bytes).ok()?;
        header.fill(0);
        header[0] = 0x40 | if self.is_alert { 6 } else { 5 };
        header[1] = self.traffic_class;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[8] = self.hops;
        header[9] = self.protocol;
        header[12..16].copy_from_slice(&source.octets());
        header[16..20].copy_from_slice(&destination.octets());
        if self.is_alert {
            header[20..].copy_from_slice(&[0x94, 4, 0, 0]);
        }
        let sum = internet_checksum(0, header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        Some(bytes)
    }

    fn emit_ipv6(
        &self,
        buffer: &mut [u8],
        source: Ipv6Addr,
        destination: Ipv6Addr,
        content_bytes: usize,
    ) -> Option<usize> {
        let options_bytes = if self.is_alert { 8 } else { 0 };
        let header = buffer.get_mut(..IPV6_BYTES + options_bytes)?;
        let payload = u16::try_from(options_bytes + content_bytes).ok()?;
        header[..4].copy_from_slice(&[0x60 | self.traffic_class >> 4, self.traffic_class << 4, 0, 0]);
        header[4..6].copy_from_slice(&payload.to_be_bytes());
        header[6] = if self.is_alert { HOP_BY_HOP } else { self.protocol };
        header[7] = self.hops;
        header[8..24].copy_from_slice(&source.octets());
        header[24..40].copy_from_slice(&destination.octets());
        if self.is_alert {
            // Next header, length, the option router alert of MLD, and two bytes of padding.
            header[IPV6_BYTES..].copy_from_slice(&[self.protocol, 0, 5, 2, 0, 0, 1, 0]);
        }
        Some(IPV6_BYTES + options_bytes)
    }
}

/// Returns the checksum of a message with the pseudo-header of UDP or of ICMPv6.
pub(super) fn pseudo_sum(source: IpAddr, destination: IpAddr, protocol: u8, message: &[u8]) -> u16 {
    let mut sum = u64::from(protocol) + message.len() as u64;
    for address in [source, destination] {
        sum += match address {
            IpAddr::V4(address) => words(&address.octets()),
            IpAddr::V6(address) => words(&address.octets()),
        };
    }
    internet_checksum(sum, message)
}

/// Returns the Internet checksum (RFC 1071) of bytes, added to the sum of other 16-bit words.
pub(super) fn internet_checksum(sum: u64, bytes: &[u8]) -> u16 {
    let mut sum = sum + words(bytes);
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Returns the sum of the 16-bit words of at most 64 kB; a last odd byte counts as a word with a zero byte.
fn words(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>() + last
}
