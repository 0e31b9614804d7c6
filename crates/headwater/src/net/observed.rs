//! A socket that reports the TTL and traffic class of each datagram of a group. For path inspection, not for
//! speed: one datagram per call.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use quinn_udp::UdpSocketState;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::descriptor::{AsFd, BorrowedFd};
use super::endpoint::{OpenError, trying};
use super::interface::Interface;
use super::sys::{self, MembershipChange};

/// Receives the datagrams of one group only; answers by unicast from the group's port.
#[derive(Debug)]
pub struct ObservedSocket {
    socket: Socket,
    /// State of the portable layer.
    state: Option<UdpSocketState>,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedDatagram {
    /// Bytes of the payload; bytes beyond the buffer are cut off.
    pub bytes: usize,
    /// Source address.
    pub source: SocketAddr,
    /// Remaining time to live or hop limit; `None` in the portable layer.
    pub ttl: Option<u8>,
    /// Traffic class octet: differentiated services (6 bits), ECN (2 bits). The portable layer has the ECN
    /// field alone.
    pub traffic_class: Option<u8>,
}

impl ObservedSocket {
    /// Joins a group on an interface, from one source or from any source. The port may be shared with
    /// receivers.
    ///
    /// # Errors
    /// [`OpenError`]: another process holds the port without sharing, or the group cannot be joined.
    pub fn open(group: SocketAddr, interface: &Interface, source: Option<IpAddr>) -> Result<Self, OpenError> {
        let opened = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP));
        let socket = trying("open a UDP socket", opened)?;
        trying("set O_NONBLOCK", socket.set_nonblocking(true))?;
        trying("set SO_REUSEADDR", sys::share_port(&socket, true))?;
        if group.is_ipv6() {
            trying("set IPV6_V6ONLY", socket.set_only_v6(true))?;
        }
        trying("clear IP_MULTICAST_ALL", sys::receive_all_groups(&socket, group.is_ipv4(), false))?;
        // Bound to the group rather than to any address, so that unicast datagrams to this machine are not
        // received.
        let address = scoped(group, interface.index);
        socket.bind(&address.into()).map_err(|source| OpenError::Bind { address, source })?;
        let state = trying("report headers of datagrams", sys::report_headers(&socket, group.is_ipv4()))?;
        trying("join the group", join(&socket, group.ip(), interface, source))?;
        Ok(Self { socket, state })
    }

    /// Returns the next datagram, its payload written to `buffer`; `None` when no datagram waits.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<ObservedDatagram>> {
        sys::receive(&self.socket, self.state.as_ref(), buffer)
    }

    /// Sends an answer by unicast.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn send_to(&self, payload: &[u8], destination: SocketAddr) -> io::Result<()> {
        self.socket.send_to(payload, &destination.into()).map(|_| ())
    }
}

impl AsFd for ObservedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn join(socket: &Socket, group: IpAddr, interface: &Interface, source: Option<IpAddr>) -> io::Result<()> {
    match (group, source) {
        (_, Some(source)) => sys::change_source(socket, interface, (group, source), MembershipChange::Join),
        (IpAddr::V4(group), None) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface.index))
        }
        (IpAddr::V6(group), None) => socket.join_multicast_v6(&group, interface.index),
    }
}

/// Returns the address to bind. An IPv6 group has the interface as scope: groups of link-local scope are
/// bound on an interface. Windows binds no group: any address.
fn scoped(group: SocketAddr, index: u32) -> SocketAddr {
    match group {
        _ if cfg!(windows) => {
            let any: IpAddr =
                if group.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            SocketAddr::new(any, group.port())
        }
        SocketAddr::V6(group) => SocketAddrV6::new(*group.ip(), group.port(), 0, index).into(),
        SocketAddr::V4(_) => group,
    }
}
