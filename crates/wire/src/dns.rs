//! DNS queries for AMT relays (RFC 8777): the name of a multicast source's address, and the relays in the
//! answer. Nothing else of DNS (RFC 1035) is read.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt::Write as _;

use crate::bytes::be16;

/// Type of the records that name AMT relays.
pub const AMTRELAY: u16 = 260;
/// Most relays that are read from a response.
pub const RELAYS_MAX: usize = 16;
/// Most bytes of a query for the name of an address: header, 34 labels, type and class.
pub const QUERY_BYTES_MAX: usize = HEADER_BYTES + 74 + 4;
/// Most bytes of a name in text.
const NAME_BYTES_MAX: usize = 255;

const HEADER_BYTES: usize = 12;
const INTERNET: u16 = 1;
/// Flags of a query: recursion desired.
const RECURSION: u16 = 0x0100;

/// Reasons why bytes are no response to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// Not a response, or a response to another query.
    #[error("not a response to this query")]
    Foreign,
    /// The response is cut off or has a wrong length field.
    #[error("the DNS response is cut off or malformed")]
    Malformed,
    /// The server refuses or fails. Code 3 means that there is no such name.
    #[error("the DNS server answered with code {0}")]
    Code(u8),
}

/// A relay of a multicast source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmtRelay {
    /// Order of preference; the lowest comes first.
    pub precedence: u8,
    /// Whether a gateway may send requests to the relay without a discovery.
    pub is_direct: bool,
    /// Address or name.
    pub relay: RelayName,
}

/// Address or name of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayName {
    /// Address.
    Address(IpAddr),
    /// Domain name, without the final dot.
    Name(String),
}

/// Writes a query for the relays of a source at the start of a buffer. Returns the length; `None` if the
/// buffer is shorter than [`QUERY_BYTES_MAX`] and the query does not fit.
pub fn emit_query(id: u16, source: IpAddr, buffer: &mut [u8]) -> Option<usize> {
    let mut query = Vec::with_capacity(QUERY_BYTES_MAX);
    for field in [id, RECURSION, 1, 0, 0, 0] {
        query.extend(field.to_be_bytes());
    }
    for label in reverse_name(source).split('.') {
        query.push(u8::try_from(label.len()).ok()?);
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(AMTRELAY.to_be_bytes());
    query.extend(INTERNET.to_be_bytes());
    buffer.get_mut(..query.len())?.copy_from_slice(&query);
    Some(query.len())
}

/// Returns the name of an address in the reverse tree, such as `1.2.0.192.in-addr.arpa`.
pub fn reverse_name(address: IpAddr) -> String {
    let mut name = String::new();
    match address {
        IpAddr::V4(address) => {
            for octet in address.octets().iter().rev() {
                // Writing to a string cannot fail.
                let _ = write!(name, "{octet}.");
            }
            name + "in-addr.arpa"
        }
        IpAddr::V6(address) => {
            for octet in address.octets().iter().rev() {
                let _ = write!(name, "{:x}.{:x}.", octet & 0xF, octet >> 4);
            }
            name + "ip6.arpa"
        }
    }
}

/// Reads the response to `query`. Returns at most [`RELAYS_MAX`] relays, by precedence. The answers may
/// belong to an alias of the name.
///
/// # Errors
/// [`DnsError`]. A response without relays is no error.
pub fn parse_response(query: &[u8], response: &[u8]) -> Result<Vec<AmtRelay>, DnsError> {
    let question = query.get(HEADER_BYTES..).ok_or(DnsError::Malformed)?;
    let header = response.get(..HEADER_BYTES).ok_or(DnsError::Foreign)?;
    let is_response = header[2] & 0x80 != 0 && header[..2] == query[..2] && be16(header, 4) == 1;
    let asked = response.get(HEADER_BYTES..HEADER_BYTES + question.len());
    if !is_response || !asked.is_some_and(|asked| asked.eq_ignore_ascii_case(question)) {
        return Err(DnsError::Foreign);
    }
    match header[3] & 0xF {
        0 => {}
        code => return Err(DnsError::Code(code)),
    }
    let mut at = query.len();
    let mut relays = Vec::new();
    for _ in 0..be16(header, 6) {
        let fields = name_end(response, at).ok_or(DnsError::Malformed)?;
        let fixed = response.get(fields..fields + 10).ok_or(DnsError::Malformed)?;
        let data = response.get(fields + 10..).and_then(|rest| rest.get(..usize::from(be16(fixed, 8))));
        let data = data.ok_or(DnsError::Malformed)?;
        at = fields + 10 + data.len();
        if be16(fixed, 0) == AMTRELAY
            && be16(fixed, 2) == INTERNET
            && let Some(relay) = relay(data)
            && relays.len() < RELAYS_MAX
        {
            relays.push(relay);
        }
    }
    relays.sort_by_key(|relay| relay.precedence);
    Ok(relays)
}

/// Reads the data of a record; `None` for a record without a relay, or of an unknown type.
fn relay(data: &[u8]) -> Option<AmtRelay> {
    let (&[precedence, kind], rest) = data.split_first_chunk()?;
    let relay = match kind & 0x7F {
        1 => RelayName::Address(Ipv4Addr::from_octets(rest.try_into().ok()?).into()),
        2 => RelayName::Address(Ipv6Addr::from_octets(rest.try_into().ok()?).into()),
        3 => RelayName::Name(name(rest)?),
        _ => return None,
    };
    Some(AmtRelay { precedence, is_direct: kind & 0x80 != 0, relay })
}

/// Reads a name without compression, of letters, digits, hyphens and underscores.
fn name(mut bytes: &[u8]) -> Option<String> {
    let mut name = String::new();
    loop {
        let (&length, rest) = bytes.split_first()?;
        if length == 0 {
            return (rest.is_empty() && !name.is_empty()).then_some(name);
        }
        let (label, rest) = rest.split_at_checked(usize::from(length))?;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if length > 63 || !label.iter().all(is_plain) || name.len() + label.len() >= NAME_BYTES_MAX {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(core::str::from_utf8(label).ok()?);
        bytes = rest;
    }
}

/// Returns the place behind a name that begins at `at`. The name may end with a reference.
fn name_end(response: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *response.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            0xC0.. => return Some(at + 2),
            _ => return None,
        }
    }
}
