//! Socket of an end among several: receives by unicast, and sends to addresses and to groups on one
//! interface.

use std::io;
use std::net::SocketAddr;

use headwater_proto::Ecn;
use tracing::debug;

use super::batch::RecvBatch;
use super::descriptor::{AsFd, BorrowedFd};
use super::endpoint::{BufferSize, Endpoint, OpenError, trying};
use super::interface::Interface;
use super::sender::{Piece, Pieces, Run, SenderOptions, set_options, traffic_class};
use super::sys::{self, Control, Outgoing};

/// Maximum number of repeats of a failed call, in case the error concerned an earlier datagram.
const REPORTS_MAX: u32 = 3;

/// Options of a [`UnicastSocket`].
#[derive(Clone, Debug)]
pub struct UnicastOptions {
    /// Interface and TTL of multicast. `None`: nothing is sent to groups.
    pub multicast: Option<(Interface, u8)>,
    /// Whether datagrams sent to groups are received on this machine. Default: yes.
    pub loopback: bool,
    /// Whether only datagrams that arrive on the interface of `multicast` are received: Linux otherwise
    /// delivers datagrams for the socket's address from any interface. No privilege is needed from Linux 5.7
    /// on. Default: no.
    pub is_bound: bool,
    /// Send and receive buffer in bytes. Default: 4 MiB.
    pub buffer_bytes: usize,
    /// Differentiated services code point, 0 to 63 (RFC 2474). Default: 0, best effort.
    pub dscp: u8,
    /// Whether datagrams above the path's MTU are sent in fragments, instead of not at all. Default: no.
    pub fragments: bool,
}

impl Default for UnicastOptions {
    fn default() -> Self {
        Self {
            multicast: None,
            loopback: true,
            is_bound: false,
            buffer_bytes: 4 << 20,
            dscp: 0,
            fragments: false,
        }
    }
}

/// Sends without ever waiting: a datagram without room in the send buffer, or without a route, is lost as on
/// any link.
#[derive(Debug)]
pub struct UnicastSocket {
    endpoint: Endpoint,
    local_addr: SocketAddr,
    dscp: u8,
    receive_buffer: BufferSize,
    send_buffer: BufferSize,
    calls: u64,
}

impl UnicastSocket {
    /// Opens a socket at an address of this machine, or at all addresses of one IP version (0.0.0.0, ::).
    ///
    /// # Errors
    /// When the address is not an address of this machine, or the port is taken.
    pub fn open(address: SocketAddr, options: &UnicastOptions) -> Result<Self, OpenError> {
        let endpoint = Endpoint::open(address, false)?;
        if let Some((interface, ttl)) = &options.multicast {
            let UnicastOptions { dscp, loopback, is_bound, .. } = *options;
            if is_bound {
                let bound = sys::bind_interface(&endpoint.socket, interface);
                trying("bind the socket to its interface (SO_BINDTODEVICE)", bound)?;
            }
            let sender = SenderOptions { ttl: *ttl, dscp, loopback, ..SenderOptions::default() };
            set_options(&endpoint, address.is_ipv4(), interface, &sender)?;
            // An ICMP report on one peer must not fail reads from all peers. As on a socket without groups, a
            // full queue of the interface then goes unreported.
            let untold = sys::report_errors(&endpoint.socket, address.is_ipv4(), false);
            trying("clear IP_RECVERR", untold)?;
        }
        if options.fragments {
            trying("clear IP_MTU_DISCOVER", sys::allow_fragments(&endpoint.socket, address.is_ipv4()))?;
        }
        let octet = traffic_class(options.dscp, Ecn::NotCapable);
        let marked = sys::set_traffic_class(&endpoint.socket, address.is_ipv4(), octet);
        trying("set the traffic class", marked)?;
        let receive_buffer = endpoint.set_receive_buffer(options.buffer_bytes)?;
        let send_buffer = endpoint.set_send_buffer(options.buffer_bytes)?;
        let local_addr = endpoint.local_addr()?;
        debug!(%local_addr, ?receive_buffer, ?send_buffer, "opened a socket");
        Ok(Self { endpoint, local_addr, dscp: options.dscp, receive_buffer, send_buffer, calls: 0 })
    }

    /// Returns the address and port that the socket is bound to.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the size of the receive buffer that the kernel granted.
    pub const fn receive_buffer(&self) -> BufferSize {
        self.receive_buffer
    }

    /// Returns the size of the send buffer that the kernel granted.
    pub const fn send_buffer(&self) -> BufferSize {
        self.send_buffer
    }

    /// Returns the number of kernel calls to send.
    pub const fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the number of messages that the kernel dropped, mostly because the receive buffer was full.
    /// Asks the kernel.
    pub fn kernel_drops(&self) -> u64 {
        self.endpoint.messages_dropped().into()
    }

    /// Replaces the contents of `batch` by waiting datagrams. Returns the number of datagrams. Never blocks;
    /// 0 when no datagram waits.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        batch.read(&self.endpoint, |_| Some(None))?;
        Ok(batch.len())
    }

    /// Sends runs in order, up to 32 datagrams in a call. Returns the number of datagrams that the kernel
    /// refused.
    pub fn send(&mut self, runs: &[Run<'_>]) -> u64 {
        let (mut pieces, mut unsent) = (Pieces::new(runs, 1), 0);
        while let Some(first) = pieces.clone().next() {
            self.calls += 1;
            match self.transmit(pieces) {
                Ok(sent) => _ = pieces.nth(sent.saturating_sub(1)),
                Err(error) => {
                    debug!(%error, destination = %first.destination, "a datagram was not sent");
                    unsent += 1;
                    pieces.next();
                }
            }
        }
        unsent
    }

    /// Sends the first pieces in one `sendmmsg`. Returns the number of pieces sent, at least 1.
    fn transmit(&self, mut pieces: Pieces<'_>) -> io::Result<usize> {
        let messages = std::array::from_fn(|_| {
            let piece = pieces.next()?;
            Some(Outgoing::new(piece.destination, piece.contents, self.control(&piece)))
        });
        let mut reports = 0;
        loop {
            match self.endpoint.send(&messages) {
                // The error may concern an earlier datagram (ICMP); such an error is reported once.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock || reports == REPORTS_MAX => {
                    return Err(error);
                }
                Err(_) => reports += 1,
                sent => return sent,
            }
        }
    }

    fn control(&self, piece: &Piece<'_>) -> Control {
        let mut control = Control::new();
        if piece.ecn != Ecn::NotCapable {
            control.traffic_class(piece.destination.is_ipv4(), traffic_class(self.dscp, piece.ecn));
        }
        control
    }
}

impl AsFd for UnicastSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}
