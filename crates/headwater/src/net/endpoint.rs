//! Common parts of the sending and the receiving socket: opening, buffers, reading.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, Socket, Type};

use super::descriptor::{AsFd, BorrowedFd};
use super::interface::InterfaceError;
use super::sys::{self, Incoming, MESSAGES_MAX, Outgoing};

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
        }
        let limited = sys::receive_all_groups(&socket, address.is_ipv4(), false);
        trying("clear IP_MULTICAST_ALL", limited)?;
        trying("set SO_REUSEADDR", sys::share_port(&socket, shared))?;
        socket.bind(&address.into()).map_err(|source| OpenError::Bind { address, source })?;
        let state = trying("report addresses and ECN of datagrams", UdpSocketState::new((&socket).into()))?;
        trying("set SO_TIMESTAMPNS", sys::stamp_arrivals(&socket))?;
        Ok(Self { socket, state })
    }

    /// Requests a receive buffer, beyond `net.core.rmem_max` when the process may.
    ///
    /// # Errors
    /// [`OpenError::Option`].
    pub(super) fn set_receive_buffer(&self, asked_bytes: usize) -> Result<BufferSize, OpenError> {
        trying("set SO_RCVBUF", sys::set_receive_buffer(&self.socket, asked_bytes))?;
        let held = trying("read SO_RCVBUF", self.socket.recv_buffer_size())?;
        Ok(BufferSize::granted(asked_bytes, held))
    }

    /// Requests a send buffer, beyond `net.core.wmem_max` when the process may.
    ///
    /// # Errors
    /// [`OpenError::Option`].
    pub(super) fn set_send_buffer(&self, asked_bytes: usize) -> Result<BufferSize, OpenError> {
        trying("set SO_SNDBUF", sys::set_send_buffer(&self.socket, asked_bytes))?;
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
        sys::segments_max(&self.state)
    }

    /// Sends the messages before the first `None`. Returns the number of messages sent.
    ///
    /// # Errors
    /// The kernel's error for the first message.
    pub(super) fn send(&self, messages: &[Option<Outgoing<'_>>; MESSAGES_MAX]) -> io::Result<usize> {
        sys::send_messages((&self.socket, &self.state), messages)
    }

    /// Returns the number of messages that the kernel dropped at this socket; 0 if the system does not tell.
    pub(super) fn messages_dropped(&self) -> u32 {
        sys::messages_dropped(&self.socket)
    }

    /// Reads waiting messages, at most one per buffer. Returns 0 when no message waits.
    ///
    /// # Errors
    /// The kernel's error, except "nothing is waiting".
    pub(super) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        incoming: &mut [Incoming],
    ) -> io::Result<usize> {
        sys::receive_messages((&self.socket, &self.state), buffers, incoming)
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl BufferSize {
    fn granted(asked_bytes: usize, held_bytes: usize) -> Self {
        Self { asked_bytes, granted_bytes: sys::granted_bytes(held_bytes) }
    }
}
