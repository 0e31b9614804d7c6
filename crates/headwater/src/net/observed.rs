//! A socket that reports the TTL and traffic class of each datagram of a group. For path inspection, not for
//! speed: one datagram per call.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::endpoint::{OpenError, trying};
use super::interface::Interface;
use super::sys;

/// Room for the TTL and the traffic class: two messages of a word each.
const CONTROL_BYTES: usize = 64;

/// Receives the datagrams of one group only; answers by unicast from the group's port.
#[derive(Debug)]
pub struct ObservedSocket {
    socket: Socket,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedDatagram {
    /// Bytes of the payload; bytes beyond the buffer are cut off.
    pub bytes: usize,
    /// Source address.
    pub source: SocketAddr,
    /// Remaining time to live or hop limit.
    pub ttl: Option<u8>,
    /// Traffic class octet: differentiated services (6 bits), ECN (2 bits).
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
        trying("set SO_REUSEADDR", socket.set_reuse_address(true))?;
        match group {
            SocketAddr::V4(_) => {
                trying("clear IP_MULTICAST_ALL", socket.set_multicast_all_v4(false))?;
                trying("set IP_RECVTOS", socket.set_recv_tos_v4(true))?;
                trying("set IP_RECVTTL", nix_option(setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)))?;
            }
            SocketAddr::V6(_) => {
                trying("set IPV6_V6ONLY", socket.set_only_v6(true))?;
                trying("clear IPV6_MULTICAST_ALL", socket.set_multicast_all_v6(false))?;
                trying("set IPV6_RECVTCLASS", socket.set_recv_tclass_v6(true))?;
                trying("set IPV6_RECVHOPLIMIT", socket.set_recv_hoplimit_v6(true))?;
            }
        }
        // Bound to the group rather than to any address, so that unicast datagrams to this machine are not
        // received.
        let address = scoped(group, interface.index);
        socket.bind(&address.into()).map_err(|source| OpenError::Bind { address, source })?;
        trying("join the group", join(&socket, group.ip(), interface.index, source))?;
        Ok(Self { socket })
    }

    /// Returns the next datagram, its payload written to `buffer`; `None` when no datagram waits.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<ObservedDatagram>> {
        let mut buffers = [IoSliceMut::new(buffer)];
        // On the heap, which is aligned like the kernel's structures.
        let mut control = vec![0; CONTROL_BYTES];
        let received = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut buffers,
            Some(&mut control),
            MsgFlags::empty(),
        );
        let message = match received {
            Ok(message) => message,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let Some(source) = message.address.as_ref().and_then(socket_address) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut observed = ObservedDatagram { bytes: message.bytes, source, ttl: None, traffic_class: None };
        for said in message.cmsgs().into_iter().flatten() {
            match said {
                ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => {
                    observed.ttl = u8::try_from(ttl).ok();
                }
                ControlMessageOwned::Ipv4Tos(octet) => observed.traffic_class = Some(octet),
                ControlMessageOwned::Ipv6TClass(octet) => observed.traffic_class = u8::try_from(octet).ok(),
                _ => {}
            }
        }
        Ok(Some(observed))
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

fn join(socket: &Socket, group: IpAddr, index: u32, source: Option<IpAddr>) -> io::Result<()> {
    match (group, source) {
        (_, Some(source)) => sys::join_source(socket.as_fd(), index, group, source),
        (IpAddr::V4(group), None) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
        }
        (IpAddr::V6(group), None) => socket.join_multicast_v6(&group, index),
    }
}

/// Adds the interface as scope to an IPv6 group: groups of link-local scope are bound on an interface.
fn scoped(group: SocketAddr, index: u32) -> SocketAddr {
    match group {
        SocketAddr::V6(group) => SocketAddrV6::new(*group.ip(), group.port(), 0, index).into(),
        SocketAddr::V4(_) => group,
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(address) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(address.ip().into(), address.port()));
    }
    let address = address.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(address.ip(), address.port(), 0, address.scope_id()).into())
}

fn nix_option(result: nix::Result<()>) -> io::Result<()> {
    result.map_err(io::Error::from)
}
