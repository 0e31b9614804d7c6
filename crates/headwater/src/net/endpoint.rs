//! What the sending and the receiving socket share: opening, buffers, reading.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, Socket, Type};

use super::interface::InterfaceError;
use super::sys::{Incoming, receive_messages};

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No interface to open it on.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The address or port is not free, or not ours.
    #[error("cannot bind UDP {address}; {}", why_not_bound(source))]
    Bind {
        /// What was to be bound.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// A socket option was refused.
    #[error("the kernel refused to {attempt}")]
    Option {
        /// What was tried.
        attempt: &'static str,
        /// What the kernel said.
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
        /// The source asked for.
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

/// A socket buffer: what was asked for and what the kernel granted, in bytes. Linux counts its own overhead
/// against it: a datagram of 1.4 kB takes about 2.3 kB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSize {
    /// Asked for.
    pub asked_bytes: usize,
    /// Granted. Less than asked for when `net.core.rmem_max` or `wmem_max` is lower and the process may not
    /// exceed it.
    pub granted_bytes: usize,
}

/// A non-blocking UDP socket that reads many datagrams at once.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) socket: Socket,
    state: UdpSocketState,
}

/// Names what was being tried when the kernel refused.
pub(super) fn trying<T>(attempt: &'static str, result: io::Result<T>) -> Result<T, OpenError> {
    result.map_err(|source| OpenError::Option { attempt, source })
}

impl Endpoint {
    /// Opens and binds. With `shared`, others on this machine may bind the same port.
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
        // quinn-udp asks for it, but lets a kernel refuse.
        trying(
            "set SO_TIMESTAMPNS",
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(io::Error::from),
        )?;
        Ok(Self { socket, state })
    }

    /// Asks for a receive buffer, beyond `net.core.rmem_max` when the process may.
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

    /// Asks for a send buffer, beyond `net.core.wmem_max` when the process may.
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

    /// The address that it is bound to.
    ///
    /// # Errors
    /// [`OpenError::Option`].
    pub(super) fn local_addr(&self) -> Result<SocketAddr, OpenError> {
        let address = trying("read the socket's address", self.socket.local_addr())?;
        Ok(address.as_socket().expect("bound to an IP address"))
    }

    /// Most segments that one call may send; 1 without segmentation offload.
    pub(super) fn segments_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Reads what is waiting, up to one message per buffer; 0 when nothing is.
    ///
    /// # Errors
    /// What `recvmmsg` says, but for "nothing is waiting".
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
    /// Linux doubles what it grants, to hold its overhead (socket(7), `SO_RCVBUF`), and reports the double.
    fn granted(asked_bytes: usize, held_bytes: usize) -> Self {
        Self { asked_bytes, granted_bytes: held_bytes / 2 }
    }
}
