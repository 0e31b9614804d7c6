//! IGMPv3 (RFC 3376) and MLDv2 (RFC 3810) messages within AMT messages: reports and general queries.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::inner::{ICMPV6, IGMP, InnerError, IpHeader, IpPacket, internet_checksum, pseudo_sum};
use crate::bytes::{Writer, be16};

const IGMP_QUERY: u8 = 0x11;
const IGMP_REPORT: u8 = 0x22;
const MLD_QUERY: u8 = 130;
const MLD_REPORT: u8 = 143;

/// Traffic class of IGMP and MLD: internetwork control.
const CONTROL: u8 = 0xC0;
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const IGMP_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);
const MLD_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0x16);

/// Length of the report's fields before the records.
const REPORT_BYTES: usize = 8;
const IGMP_QUERY_BYTES: usize = 12;
const MLD_QUERY_BYTES: usize = 28;

/// Most bytes of a packet with a query: IPv6 with a router alert.
pub const QUERY_BYTES_MAX: usize = 40 + 8 + MLD_QUERY_BYTES;
/// Most bytes of a report that [`emit_report`] writes for one record.
pub const RECORD_BYTES_MAX: usize = 36;
/// Bytes of headers before the records of a report: IPv6 with a router alert.
pub const REPORT_HEADER_BYTES_MAX: usize = 40 + 8 + REPORT_BYTES;

/// Type of a group record (RFC 3376, section 4.2.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// The group is received from the listed sources.
    IsInclude,
    /// The group is received from all but the listed sources.
    IsExclude,
    /// The group is received from the listed sources from now on; without a source, the group is left.
    ToInclude,
    /// The group is received from all but the listed sources from now on.
    ToExclude,
    /// The group is received from the listed sources, too.
    Allow,
    /// The group is no longer received from the listed sources.
    Block,
    /// A type that this code does not know.
    Unknown(u8),
}

impl RecordKind {
    /// Returns the type of a code.
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::IsInclude,
            2 => Self::IsExclude,
            3 => Self::ToInclude,
            4 => Self::ToExclude,
            5 => Self::Allow,
            6 => Self::Block,
            other => Self::Unknown(other),
        }
    }

    /// Returns the code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::IsInclude => 1,
            Self::IsExclude => 2,
            Self::ToInclude => 3,
            Self::ToExclude => 4,
            Self::Allow => 5,
            Self::Block => 6,
            Self::Unknown(code) => code,
        }
    }
}

/// Record of a report: a group and its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Type.
    pub kind: RecordKind,
    /// Group.
    pub group: IpAddr,
    sources: &'a [u8],
}

impl Record<'_> {
    /// Returns the sources, of the group's IP version.
    pub fn sources(&self) -> impl Iterator<Item = IpAddr> {
        let is_ipv4 = self.group.is_ipv4();
        self.sources.chunks_exact(if is_ipv4 { 4 } else { 16 }).map(ip)
    }
}

/// Checked report: every record is whole.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    is_ipv4: bool,
    count: u16,
    records: &'a [u8],
}

impl<'a> Report<'a> {
    /// Reads an IP packet with a report.
    ///
    /// # Errors
    /// [`InnerError`]. Reports of IGMPv1, IGMPv2 and MLDv1 have other types.
    pub fn parse(packet: &'a [u8]) -> Result<Self, InnerError> {
        let message = message(packet, REPORT_BYTES)?;
        match (message.is_ipv4, message.content[0]) {
            (true, IGMP_REPORT) | (false, MLD_REPORT) => {}
            (_, other) => return Err(InnerError::Protocol(other)),
        }
        let report = Self {
            is_ipv4: message.is_ipv4,
            count: be16(message.content, 6),
            records: &message.content[REPORT_BYTES..],
        };
        let mut rest = report.records;
        for _ in 0..report.count {
            (_, rest) = report.split(rest).ok_or(InnerError::Length(packet.len()))?;
        }
        Ok(report)
    }

    /// Returns the records.
    pub fn records(&self) -> impl Iterator<Item = Record<'a>> {
        let (report, mut rest) = (*self, self.records);
        (0..self.count).map_while(move |_| {
            let (record, after) = report.split(rest)?;
            rest = after;
            Some(record)
        })
    }

    /// Splits the first record off.
    fn split(&self, bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let address_bytes = if self.is_ipv4 { 4 } else { 16 };
        let (start, rest) = bytes.split_at_checked(4)?;
        let (group, rest) = rest.split_at_checked(address_bytes)?;
        let (sources, rest) = rest.split_at_checked(usize::from(be16(start, 2)) * address_bytes)?;
        // Auxiliary data, in words of 32 bits.
        let rest = rest.get(usize::from(start[1]) * 4..)?;
        Some((Record { kind: RecordKind::from_code(start[0]), group: ip(group), sources }, rest))
    }
}

/// General query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Whether the query is of MLDv2, instead of IGMPv3.
    pub is_mld: bool,
    /// Time between queries, in seconds, at most 31 744.
    pub interval_s: u16,
    /// Number of times that a gateway sends a change of its memberships, 1 to 7 (robustness variable).
    pub robustness: u8,
}

impl Query {
    /// Reads an IP packet with a general query. Queries of older versions have no interval and are refused.
    ///
    /// # Errors
    /// [`InnerError`].
    pub fn parse(packet: &[u8]) -> Result<Self, InnerError> {
        let message = message(packet, IGMP_QUERY_BYTES)?;
        let length = InnerError::Length(packet.len());
        let at = match (message.is_ipv4, message.content[0]) {
            (true, IGMP_QUERY) => 8,
            (false, MLD_QUERY) => 24,
            (_, other) => return Err(InnerError::Protocol(other)),
        };
        let fields = message.content.get(at..at + 4).ok_or(length)?;
        Ok(Self {
            is_mld: !message.is_ipv4,
            interval_s: seconds(fields[1]),
            robustness: (fields[0] & 0b111).max(1),
        })
    }

    /// Writes an IP packet with the query, as sent by `source`, which has the IP version of the query.
    /// Returns the length; `None` if the buffer is shorter than [`QUERY_BYTES_MAX`], or the version is wrong.
    pub fn emit(&self, source: IpAddr, buffer: &mut [u8]) -> Option<usize> {
        let destination = if self.is_mld { ALL_NODES.into() } else { ALL_HOSTS.into() };
        let mut content = [0; MLD_QUERY_BYTES];
        let (at, bytes) = if self.is_mld { (24, MLD_QUERY_BYTES) } else { (8, IGMP_QUERY_BYTES) };
        content[0] = if self.is_mld { MLD_QUERY } else { IGMP_QUERY };
        if self.is_mld {
            // Maximum response delay: a second, in milliseconds.
            content[4..6].copy_from_slice(&1_000_u16.to_be_bytes());
        } else {
            // The same in tenths of a second.
            content[1] = 10;
        }
        content[at] = self.robustness & 0b111;
        content[at + 1] = code(self.interval_s);
        emit(source, destination, &mut content[..bytes], buffer)
    }
}

/// Writes an IP packet with a report of groups, each with at most one source, as sent by `source`. Returns
/// the length; `None` if the buffer is too short, or an address is of another IP version than `source`.
pub fn emit_report(
    source: IpAddr,
    records: &[(RecordKind, IpAddr, Option<IpAddr>)],
    buffer: &mut [u8],
) -> Option<usize> {
    let (start, kind, destination) = match source {
        IpAddr::V4(_) => (24, IGMP_REPORT, IGMP_ROUTERS.into()),
        IpAddr::V6(_) => (48, MLD_REPORT, MLD_ROUTERS.into()),
    };
    let address_bytes = if source.is_ipv4() { 4 } else { 16 };
    let each = |of: &(_, _, Option<_>)| 4 + address_bytes * (1 + usize::from(of.2.is_some()));
    let bytes = REPORT_BYTES + records.iter().map(each).sum::<usize>();
    let content = buffer.get_mut(start..start + bytes)?;
    let mut writer = Writer::new(content);
    writer.put(&[kind, 0, 0, 0, 0, 0]);
    writer.put(&u16::try_from(records.len()).ok()?.to_be_bytes());
    for (kind, group, of) in records {
        writer.put(&[kind.code(), 0, 0, u8::from(of.is_some())]);
        for address in [Some(*group), *of].into_iter().flatten() {
            match address {
                IpAddr::V4(address) if source.is_ipv4() => writer.put(&address.octets()),
                IpAddr::V6(address) if source.is_ipv6() => writer.put(&address.octets()),
                _ => return None,
            }
        }
    }
    finish(source, destination, start, bytes, buffer)
}

/// IGMP or ICMPv6 message with a right checksum and at least the requested length.
struct Checked<'a> {
    is_ipv4: bool,
    content: &'a [u8],
}

fn message(packet: &[u8], bytes_min: usize) -> Result<Checked<'_>, InnerError> {
    let ip = IpPacket::parse(packet)?;
    let sum = match (ip.source.is_ipv4(), ip.protocol) {
        (true, IGMP) => internet_checksum(0, ip.content),
        (false, ICMPV6) => ip.sum(ip.content),
        (_, other) => return Err(InnerError::Protocol(other)),
    };
    if ip.content.len() < bytes_min {
        return Err(InnerError::Length(packet.len()));
    }
    if sum != 0 {
        return Err(InnerError::Checksum);
    }
    Ok(Checked { is_ipv4: ip.source.is_ipv4(), content: ip.content })
}

fn emit(source: IpAddr, destination: IpAddr, content: &mut [u8], buffer: &mut [u8]) -> Option<usize> {
    let start = if source.is_ipv4() { 24 } else { 48 };
    buffer.get_mut(start..start + content.len())?.copy_from_slice(content);
    finish(source, destination, start, content.len(), buffer)
}

/// Writes the IP header before the content, and the checksum of the content.
fn finish(
    source: IpAddr,
    destination: IpAddr,
    start: usize,
    bytes: usize,
    buffer: &mut [u8],
) -> Option<usize> {
    let protocol = if source.is_ipv4() { IGMP } else { ICMPV6 };
    let header = IpHeader { source, destination, protocol, traffic_class: CONTROL, hops: 1, is_alert: true };
    header.emit(buffer, bytes)?;
    let content = buffer.get_mut(start..start + bytes)?;
    let sum = match source {
        IpAddr::V4(_) => internet_checksum(0, content),
        IpAddr::V6(_) => pseudo_sum(source, destination, protocol, content),
    };
    content[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(start + bytes)
}

/// Reads an address of 4 or 16 bytes.
fn ip(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(octets) => octets.into(),
        Err(_) => <[u8; 16]>::try_from(bytes).unwrap_or_default().into(),
    }
}

/// Returns the seconds of a query interval code (RFC 3376, section 4.1.7).
const fn seconds(code: u8) -> u16 {
    match code {
        0..128 => code as u16,
        _ => ((code & 0xF) as u16 | 0x10) << ((code >> 4 & 0b111) + 3),
    }
}

/// Returns the code of the longest interval that is not above so many seconds.
fn code(seconds_max: u16) -> u8 {
    (0..=u8::MAX).rev().find(|code| seconds(*code) <= seconds_max).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_codes_are_seconds_or_floating_point() {
        assert_eq!([0, 20, 127, 128, 0b1000_0001, 255].map(seconds), [0, 20, 127, 128, 136, 31_744]);
        assert_eq!([0, 20, 127, 128, 130, u16::MAX].map(code), [0, 20, 127, 128, 128, 255]);
    }
}
