//! Listens for IGMP and MLD queries on a raw socket, and provokes one: whoever keeps track of members asks
//! whether there are others when a group is left (RFC 3376 section 6.4.2, RFC 3810 section 7.4.2).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{SockaddrIn6, SockaddrStorage, recvfrom};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::querier::{Listening, Query, igmp_query, mld_query};
use crate::net::{Interface, Poller};

/// Groups of nobody: what is left to be asked about. Beside the default group of sessions,
/// organization-local.
const SCRATCH_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 72, 86);
const SCRATCH_V6: Ipv6Addr = Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0x4857, 0x6472);
/// How long the group is held, so that its join is reported, and how long it stays left, so that its leave
/// is.
const HELD: Duration = Duration::from_millis(300);
const IGMP: i32 = 2;
const MESSAGE_BYTES_MAX: usize = 2_048;

/// Listens until `deadline`.
pub(super) fn listen(interface: &Interface, is_ipv4: bool, deadline: Instant) -> Listening {
    let start = Instant::now();
    match heard(interface, is_ipv4, deadline) {
        Ok(Some(query)) => Listening::Heard(query),
        Ok(None) => Listening::Silence(start.elapsed()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Listening::Forbidden,
        Err(_) => Listening::Failed,
    }
}

fn heard(interface: &Interface, is_ipv4: bool, deadline: Instant) -> io::Result<Option<Query>> {
    let socket = raw_socket(interface, is_ipv4)?;
    let mut poller = Poller::new()?;
    let mut hear = |until: Instant| next_query(&socket, &mut poller, is_ipv4, until.min(deadline));
    // Joined, left, and joined again, for the question goes to the group itself.
    for is_joined in [true, false] {
        member(&socket, interface.index, is_ipv4, is_joined)?;
        if let Some(query) = hear(Instant::now() + HELD)? {
            return Ok(Some(query));
        }
    }
    member(&socket, interface.index, is_ipv4, true)?;
    hear(deadline)
}

fn raw_socket(interface: &Interface, is_ipv4: bool) -> io::Result<Socket> {
    let (domain, protocol) =
        if is_ipv4 { (Domain::IPV4, Protocol::from(IGMP)) } else { (Domain::IPV6, Protocol::ICMPV6) };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(interface.name.as_bytes()))?;
    Ok(socket)
}

fn member(socket: &Socket, index: u32, is_ipv4: bool, is_joined: bool) -> io::Result<()> {
    let on = InterfaceIndexOrAddress::Index(index);
    match (is_ipv4, is_joined) {
        (true, true) => socket.join_multicast_v4_n(&SCRATCH_V4, &on),
        (true, false) => socket.leave_multicast_v4_n(&SCRATCH_V4, &on),
        (false, true) => socket.join_multicast_v6(&SCRATCH_V6, index),
        (false, false) => socket.leave_multicast_v6(&SCRATCH_V6, index),
    }
}

fn next_query(
    socket: &Socket,
    poller: &mut Poller,
    is_ipv4: bool,
    until: Instant,
) -> io::Result<Option<Query>> {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    loop {
        let (bytes, from) = match recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut buffer) {
            Ok(received) => received,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) if Instant::now() >= until => return Ok(None),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => {
                poller.wait([socket.as_fd()], Some(until))?;
                continue;
            }
            Err(errno) => return Err(errno.into()),
        };
        let message = &buffer[..bytes];
        let query =
            if is_ipv4 { igmp_query(message) } else { mld_query(message, ipv6_source(from.as_ref())) };
        // A busy link must not hold us beyond the deadline.
        if query.is_some() || Instant::now() >= until {
            return Ok(query);
        }
    }
}

fn ipv6_source(from: Option<&SockaddrStorage>) -> IpAddr {
    let address = from.and_then(SockaddrStorage::as_sockaddr_in6);
    address.map_or(Ipv6Addr::UNSPECIFIED, SockaddrIn6::ip).into()
}
