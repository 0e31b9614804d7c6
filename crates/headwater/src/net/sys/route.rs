//! Interface of the kernel's route to a destination, from the routing table (rtnetlink(7)). Connecting a
//! socket and reading its address is shorter, but wrong where a route names the address of another
//! interface, as on hosts that run a routing protocol.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Bytes of `struct rtmsg`.
const ROUTE_BYTES: usize = 12;
/// Bytes of `struct rtattr`, without the value.
const ATTRIBUTE_BYTES: usize = 4;
/// Alignment of attributes.
const ALIGNMENT_BYTES: usize = 4;
/// Room for the answer, one route without its statistics.
const ANSWER_BYTES_MAX: usize = 4096;

/// Returns the index of the interface of the route to `destination`.
///
/// # Errors
/// [`io::ErrorKind::NetworkUnreachable`] when there is no route, else the error of netlink.
pub(super) fn interface_towards(destination: IpAddr) -> io::Result<u32> {
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &route_request(destination), SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    let (_, bytes) = recv(&socket, &mut answer, RecvFlags::empty())?;
    answered_interface(answer.get(..bytes).unwrap_or(&answer))
}

fn route_request(destination: IpAddr) -> Vec<u8> {
    let (family, address) = match destination {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let octet = |value: usize| u8::try_from(value).expect("lengths and families are small");
    let attribute_bytes = ATTRIBUTE_BYTES + address.len();
    let total = HEADER_BYTES + ROUTE_BYTES + attribute_bytes;
    let request = u16::try_from(libc::NLM_F_REQUEST).expect("a flag of 16 bits");

    let mut message = Vec::with_capacity(total);
    message.extend(u32::from(octet(total)).to_ne_bytes());
    message.extend(libc::RTM_GETROUTE.to_ne_bytes());
    message.extend(request.to_ne_bytes());
    // Sequence number and port: a single request and a single answer, on a separate socket.
    message.extend([0; 8]);
    let family = u8::try_from(family).expect("families are small");
    message.extend([family, octet(8 * address.len())]);
    message.extend([0; ROUTE_BYTES - 2]);
    message.extend(u16::from(octet(attribute_bytes)).to_ne_bytes());
    message.extend(libc::RTA_DST.to_ne_bytes());
    message.extend(address);
    message
}

fn answered_interface(answer: &[u8]) -> io::Result<u32> {
    let kind = field(answer, 4).map(u16::from_ne_bytes).ok_or_else(malformed)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let errno = field(answer, HEADER_BYTES).map(i32::from_ne_bytes).ok_or_else(malformed)?;
        return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
    }
    // `rtm_type`: IPv6 answers with the route that says "unreachable" rather than with an error.
    let [route_kind] = field(answer, HEADER_BYTES + 7).ok_or_else(malformed)?;
    if [libc::RTN_UNREACHABLE, libc::RTN_BLACKHOLE, libc::RTN_PROHIBIT].contains(&route_kind) {
        return Err(Errno::NETUNREACH.into());
    }
    attribute(answer, libc::RTA_OIF).map(u32::from_ne_bytes).ok_or_else(malformed)
}

/// Returns the value of the first attribute of a kind.
fn attribute<const N: usize>(answer: &[u8], wanted: u16) -> Option<[u8; N]> {
    let mut at = HEADER_BYTES + ROUTE_BYTES;
    loop {
        let bytes = usize::from(u16::from_ne_bytes(field(answer, at)?));
        if u16::from_ne_bytes(field(answer, at + 2)?) == wanted {
            return field(answer, at + ATTRIBUTE_BYTES);
        }
        at += bytes.max(ATTRIBUTE_BYTES).next_multiple_of(ALIGNMENT_BYTES);
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the routing table's answer makes no sense")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_cut_short_are_refused() {
        let error = |answer: &[u8]| answered_interface(answer).unwrap_err().kind();
        assert_eq!(error(&[]), io::ErrorKind::InvalidData);
        // A route with an attribute of length 0, over and over.
        let mut answer = [0; 60];
        answer[4] = 24;
        assert_eq!(error(&answer), io::ErrorKind::InvalidData);
    }
}
