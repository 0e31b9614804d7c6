//! Receiving with the TTL and traffic class of each datagram.

use std::io;
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::net::SocketAddrV6;

use quinn_udp::UdpSocketState;
use socket2::Socket;

use super::{Incoming, SocketLayer};
use crate::net::observed::ObservedDatagram;

/// Requests the TTL and the traffic class of each datagram. Returns the state of the portable layer, which
/// has neither the TTL nor the code point of differentiated services.
///
/// # Errors
/// The error of `setsockopt`.
pub(in crate::net) fn report_headers(socket: &Socket, is_ipv4: bool) -> io::Result<Option<UdpSocketState>> {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        use nix::sys::socket::{setsockopt, sockopt};
        if is_ipv4 {
            socket.set_recv_tos_v4(true)?;
            setsockopt(socket, sockopt::Ipv4RecvTtl, &true)?;
        } else {
            socket.set_recv_tclass_v6(true)?;
            socket.set_recv_hoplimit_v6(true)?;
        }
        return Ok(None);
    }
    let _ = (SocketLayer::current(), is_ipv4);
    UdpSocketState::new(socket.into()).map(Some)
}

/// Returns the next datagram, with the payload written to `buffer`; `None` when no datagram waits.
///
/// # Errors
/// The kernel's error.
pub(in crate::net) fn receive(
    socket: &Socket,
    state: Option<&UdpSocketState>,
    buffer: &mut [u8],
) -> io::Result<Option<ObservedDatagram>> {
    #[cfg(target_os = "linux")]
    let Some(state) = state else { return receive_headers(socket, buffer) };
    #[cfg(not(target_os = "linux"))]
    let state = state.ok_or(io::ErrorKind::Unsupported)?;
    let mut incoming = [Incoming::new()];
    let mut buffers = [io::IoSliceMut::new(buffer)];
    if super::portable::receive_messages(socket, state, &mut buffers, &mut incoming)? == 0 {
        return Ok(None);
    }
    let [incoming] = incoming;
    let source: SocketAddr = incoming.source().ok_or(io::ErrorKind::InvalidData)?;
    let traffic_class = Some(incoming.metadata().traffic_class);
    Ok(Some(ObservedDatagram { bytes: incoming.bytes, source, ttl: None, traffic_class }))
}

/// Room for the TTL and the traffic class: two messages of a word each.
#[cfg(target_os = "linux")]
const CONTROL_BYTES: usize = 64;

#[cfg(target_os = "linux")]
fn receive_headers(socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<ObservedDatagram>> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
    use std::os::fd::AsRawFd;

    let mut buffers = [io::IoSliceMut::new(buffer)];
    // On the heap, which is aligned like the kernel's structures.
    let mut control = vec![0; CONTROL_BYTES];
    let received =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut buffers, Some(&mut control), MsgFlags::empty());
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

#[cfg(target_os = "linux")]
fn socket_address(address: &nix::sys::socket::SockaddrStorage) -> Option<SocketAddr> {
    if let Some(address) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(address.ip().into(), address.port()));
    }
    let address = address.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(address.ip(), address.port(), 0, address.scope_id()).into())
}
