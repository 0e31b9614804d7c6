//! Common parts of the sending and the receiving socket: opening, buffers, reading.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, Socket, Type};

use super::interface::InterfaceError;
use super::sys::{Incoming, receive_messages};

/// Reasons why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No interface to open the socket on.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The address or port is not free, or the address is not an address of this machine.
    #[error("cannot bind UDP {address}; {}", why_not_bound(source))]
    Bind {
        /// The address to bind.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// A socket option was refused.
    #[error("the kernel refused to {attempt}")]
    Option {
        /// The attempted action.
        attempt: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The differentiated services code point has more than 6 bits.
    #[error("there is no differentiated services code point {0}; give one from 0 to 63")]
    CodePoint(u8),
    /// The source to receive from and the groups are of different IP versions.
    #[error(
        "source {from} and group {group} are not of one IP version; give an address of the group's version"
    )]
    SourceFamily {
        /// The requested source.
        from: IpAddr,
        /// The first group.
        group: IpAddr,
    },
}

fn why_not_bound(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => "it is no address of this host: see `ip address`",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges",
        _ => "another program may hold the port: see `ss -lunp`",
    }
}

/// A socket buffer: the requested and the granted size, in bytes. Linux counts its overhead against the
/// buffer: a datagram of 1.4 kB takes about 2.3 kB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSize {
    /// Requested size.
    pub asked_bytes: usize,
    /// Granted size. Smaller than the requested size when `net.core.rmem_max` or `wmem_max` is lower and the
    /// process may not exceed the limit.
    pub granted_bytes: usize,
}

/// A non-blocking UDP socket that reads many datagrams at once.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) socket: Socket,
    state: UdpSocketState,
}

/// Adds the attempted action to an error of the kernel.
pub(super) fn trying<T>(attempt: &'static str, result: io::Result<T>) -> Result<T, OpenError> {
    result.map_err(|source| OpenError::Option { attempt, source })
}

impl Endpoint {
    /// Opens and binds a socket. With `shared`, other sockets on this machine may bind the same port.
    ///
    /// # Errors
    /// [`OpenError::Bind`], [`OpenError::Option`].
    pub(super) fn open(address: SocketAddr, shared: bool) -> Result<Self, OpenError> {
        let domain = Domain::for_address(address);
        let socket = trying("open a UDP socket", Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)))?;
        if domain == Domain::IPV6 {
            trying("set IPV6_V6ONLY", socket.set_only_v6(true))?;
            trying("clear IPV6_MULTICAST_ALL", socket.set_multicast_all_v6(false))?;
        } else {
            trying("clear IP_MULTICAST_ALL", socket.set_multicast_all_v4(false))?;
        }
        trying("set SO_REUSEADDR", socket.set_reuse_address(shared))?;
        socket.bind(&address.into()).map_err(|source| OpenError::Bind { address, source })?;
        let state = trying("report addresses and ECN of datagrams", UdpSocketState::new((&socket).into()))?;
        // quinn-udp requests the option, but lets a kernel refuse.
        trying(
            "set SO_TIMESTAMPNS",
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(io::Error::from),
        )?;
        Ok(Self { socket, state })
    }

    /// Requests a receive buffer, beyond `net.core.rmem_max` when the process may.
    ///
    /// # Errors
    /// [`OpenError::Option`].
    pub(super) fn set_receive_buffer(&self, asked_bytes: usize) -> Result<BufferSize, OpenError> {
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&self.socket, asked_bytes).is_err() {
            trying("set SO_RCVBUF", self.socket.set_recv_buffer_size(asked_bytes))?;
        }
        let held = trying("read SO_RCVBUF", self.socket.recv_buffer_size())?;
        Ok(BufferSize::granted(asked_bytes, held))
    }

    /// Requests a send buffer, beyond `net.core.wmem_max` when the process may.
    ///
    /// # Errors
    /// [`OpenError::Option`].
    pub(super) fn set_send_buffer(&self, asked_bytes: usize) -> Result<BufferSize, OpenError> {
        if rustix::net::sockopt::set_socket_send_buffer_size_force(&self.socket, asked_bytes).is_err() {
            trying("set SO_SNDBUF", self.socket.set_send_buffer_size(asked_bytes))?;
        }
        let held = trying("read SO_SNDBUF", self.socket.send_buffer_size())?;
        Ok(BufferSize::granted(asked_bytes, held))
    }

    /// Returns the local address of the socket.
    ///
    /// # Errors
    /// [`OpenError::Option`].
    pub(super) fn local_addr(&self) -> Result<SocketAddr, OpenError> {
        let address = trying("read the socket's address", self.socket.local_addr())?;
        Ok(address.as_socket().expect("bound to an IP address"))
    }

    /// Returns the maximum number of segments per call; 1 without segmentation offload.
    pub(super) fn segments_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Reads waiting messages, at most one per buffer. Returns 0 when no message waits.
    ///
    /// # Errors
    /// The error of `recvmmsg`, except "nothing is waiting".
    pub(super) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        incoming: &mut [Incoming],
    ) -> io::Result<usize> {
        receive_messages(self.as_fd(), buffers, incoming)
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl BufferSize {
    /// Halves the reported size: Linux doubles the granted size to hold its overhead (socket(7),
    /// `SO_RCVBUF`), and reports the double.
    fn granted(asked_bytes: usize, held_bytes: usize) -> Self {
        Self { asked_bytes, granted_bytes: held_bytes / 2 }
    }
}
