//! Datagrams to and from the kernel, and socket options beyond `socket2`, in two layers:
//!
//! | file | contents |
//! |---|---|
//! | `linux` | batches (`sendmmsg`, `recvmmsg`), segmentation, times of arrival and drops by the kernel |
//! | `portable` | a datagram per call, by `quinn-udp` and `socket2`, for every system |
//! | `ancillary` | ancillary data of a received message |
//! | `interfaces`, `route` | list of the network interfaces, and the interface of a route |
//! | `observe` | datagrams with TTL and traffic class |
//! | `wake` | an event that ends a wait |
//!
//! Linux uses the first layer, unless the environment has `HEADWATER_PORTABLE=1`. Other systems have the
//! second layer only.

#[cfg(target_os = "linux")]
mod ancillary;
mod interfaces;
#[cfg(target_os = "linux")]
mod linux;
mod observe;
mod portable;
#[cfg(target_os = "linux")]
mod route;
mod wake;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use quinn_udp::UdpSocketState;
use rustix::io::Errno;
use socket2::{SockAddr, Socket};

use super::interface::Interface;

pub(super) use interfaces::{interface_towards, list};
pub(super) use observe::{receive, report_headers};
pub(super) use wake::WakeEvent;

/// Most messages per call: with segmentation offload 2 MB.
pub(super) const MESSAGES_MAX: usize = 32;

/// Calls by which datagrams reach the kernel and come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketLayer {
    /// Batches of messages, segmentation offload, times of arrival and counts of drops by the kernel.
    Linux,
    /// A datagram per call, times of reading, no count of drops.
    Portable,
}

impl SocketLayer {
    /// Returns the layer of this process, which never changes: on Linux [`SocketLayer::Linux`], unless the
    /// environment has `HEADWATER_PORTABLE=1`.
    pub fn current() -> Self {
        static PORTABLE: OnceLock<bool> = OnceLock::new();
        let is_wanted = || std::env::var_os("HEADWATER_PORTABLE").is_some_and(|value| value == "1");
        let is_portable = !cfg!(target_os = "linux") || *PORTABLE.get_or_init(is_wanted);
        if is_portable { Self::Portable } else { Self::Linux }
    }

    /// Whether the layer is the portable layer.
    pub(super) fn is_portable(self) -> bool {
        self == Self::Portable
    }
}

impl fmt::Display for SocketLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linux => "linux",
            Self::Portable => "portable",
        })
    }
}

/// Ancillary data of a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MessageMetadata {
    /// Destination address.
    pub(super) destination: Option<IpAddr>,
    /// Traffic class octet: differentiated services (6 bits), ECN (2 bits).
    pub(super) traffic_class: u8,
    /// Bytes of each datagram of a run but the last.
    pub(super) segment_bytes: Option<usize>,
    /// Time of arrival of the first datagram at the machine, since 1970.
    pub(super) arrived: Option<Duration>,
}

/// A message to send.
pub(super) struct Outgoing<'a> {
    destination: SockAddr,
    contents: IoSlice<'a>,
    control: Control,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(destination: SocketAddr, contents: &'a [u8], control: Control) -> Self {
        Self { destination: destination.into(), contents: IoSlice::new(contents), control }
    }
}

/// Control data of a datagram or of a run of datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    octet: Option<u8>,
    #[cfg(target_os = "linux")]
    messages: linux::ControlMessages,
}

impl Control {
    /// Returns empty control data.
    pub(super) const fn new() -> Self {
        Self {
            octet: None,
            #[cfg(target_os = "linux")]
            messages: linux::ControlMessages::new(),
        }
    }

    /// Sends with this traffic class octet: differentiated services (6 bits), ECN (2 bits).
    pub(super) fn traffic_class(&mut self, ipv4: bool, octet: u8) {
        self.octet = Some(octet);
        #[cfg(target_os = "linux")]
        self.messages.traffic_class(ipv4, octet);
        #[cfg(not(target_os = "linux"))]
        let _ = ipv4;
    }

    /// Has the kernel cut the payload into datagrams of this many bytes. Linux layer only.
    pub(super) fn segment_bytes(&mut self, bytes: u16) {
        #[cfg(target_os = "linux")]
        self.messages.segment_bytes(bytes);
        #[cfg(not(target_os = "linux"))]
        let _ = bytes;
    }
}

/// A received message, without its contents.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Length of the contents in bytes.
    pub(super) bytes: usize,
    #[cfg(target_os = "linux")]
    kernel: linux::Ancillary,
    /// Source and ancillary data as the portable layer reads both.
    portable: Option<(SocketAddr, MessageMetadata)>,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self {
            bytes: 0,
            #[cfg(target_os = "linux")]
            kernel: linux::Ancillary::new(),
            portable: None,
        }
    }

    /// Returns the source address; `None` if the address is not an IP address.
    pub(super) fn source(&self) -> Option<SocketAddr> {
        #[cfg(target_os = "linux")]
        if self.portable.is_none() {
            return self.kernel.source();
        }
        self.portable.map(|(source, _)| source)
    }

    /// Returns the ancillary data of the message.
    pub(super) fn metadata(&self) -> MessageMetadata {
        #[cfg(target_os = "linux")]
        if self.portable.is_none() {
            return self.kernel.metadata();
        }
        self.portable.map_or_else(MessageMetadata::default, |(_, metadata)| metadata)
    }
}

/// Sends the messages before the first `None`, on Linux in a single call. Returns the number of messages
/// sent.
///
/// # Errors
/// The kernel's error for the first message. For a later message there is no error: the message is only not
/// counted as sent.
pub(super) fn send_messages(
    (socket, state): (&Socket, &UdpSocketState),
    messages: &[Option<Outgoing<'_>>; MESSAGES_MAX],
) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        return linux::send_messages(std::os::fd::AsFd::as_fd(socket), messages);
    }
    portable::send_messages(socket, state, messages)
}

/// Returns the number of kernel calls that sent so many messages.
pub(super) fn calls(sent: usize) -> u64 {
    if SocketLayer::current().is_portable() { sent as u64 } else { 1 }
}

/// Receives waiting messages, at most one per buffer. Returns the number of messages; 0 when no message
/// waits. Never blocks.
///
/// # Errors
/// The kernel's error for the first message.
pub(super) fn receive_messages(
    (socket, state): (&Socket, &UdpSocketState),
    buffers: &mut [IoSliceMut<'_>],
    incoming: &mut [Incoming],
) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        return linux::receive_messages(std::os::fd::AsFd::as_fd(socket), buffers, incoming);
    }
    portable::receive_messages(socket, state, buffers, incoming)
}

/// Returns the most segments per message.
pub(super) fn segments_max(state: &UdpSocketState) -> usize {
    if SocketLayer::current().is_portable() { 1 } else { state.max_gso_segments() }
}

/// Discards the kernel's error reports on datagrams sent before: ICMP may be forged, and an error at one
/// receiver's machine concerns no other receiver. Never blocks.
pub(super) fn discard_reports(socket: &Socket) {
    #[cfg(target_os = "linux")]
    linux::discard_reports(std::os::fd::AsFd::as_fd(socket));
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
}

/// Change of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::net) enum MembershipChange {
    Join,
    Leave,
}

/// Joins or leaves a source-specific channel (RFC 3678, section 5.1.2): packets of `source` to `group`
/// arriving on the interface. IPv4 and IPv6 alike.
///
/// # Errors
/// The error of `setsockopt`; [`is_exhausted`] when the socket has the maximum number of memberships.
pub(super) fn change_source(
    socket: &Socket,
    interface: &Interface,
    (group, source): (IpAddr, IpAddr),
    change: MembershipChange,
) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        let fd = std::os::fd::AsFd::as_fd(socket);
        return linux::change_source(fd, interface.index, (group, source), change);
    }
    portable::change_source(socket, interface, (group, source), change)
}

/// Lets a socket send datagrams above the path's MTU in fragments. Linux only: elsewhere long datagrams are
/// refused.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn allow_fragments(socket: &Socket, is_ipv4: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return linux::allow_fragments(std::os::fd::AsFd::as_fd(socket), is_ipv4);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (socket, is_ipv4);
        Ok(())
    }
}

/// Returns the number of messages that the kernel dropped at this socket since the socket was opened, mostly
/// for want of receive buffer. A coalesced run of datagrams counts once. Wraps. 0 in the portable layer.
pub(super) fn messages_dropped(socket: &Socket) -> u32 {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        return linux::messages_dropped(std::os::fd::AsFd::as_fd(socket)).unwrap_or(0);
    }
    let _ = socket;
    0
}

/// Returns the unsent bytes in a socket's send buffer, bookkeeping included; `None` in the portable layer.
///
/// # Errors
/// The kernel's error.
pub(super) fn unsent_bytes(socket: &Socket) -> io::Result<Option<u64>> {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        return linux::unsent_bytes(std::os::fd::AsFd::as_fd(socket)).map(Some);
    }
    let _ = socket;
    Ok(None)
}

/// Limits a socket to the groups that this socket has joined, or lifts the limit. Elsewhere than on Linux the
/// limit depends on the system; each message's destination is checked anyway.
///
/// # Errors
/// The error of `setsockopt`. [`io::ErrorKind::Unsupported`] when the limit cannot be lifted.
pub(super) fn receive_all_groups(socket: &Socket, is_ipv4: bool, all: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return if is_ipv4 { socket.set_multicast_all_v4(all) } else { socket.set_multicast_all_v6(all) };
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (socket, is_ipv4);
        if all { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
    }
}

/// Receives only datagrams that arrive on the interface (`SO_BINDTODEVICE`).
///
/// # Errors
/// The error of `setsockopt`; [`io::ErrorKind::Unsupported`] elsewhere than on Linux.
pub(crate) fn bind_interface(socket: &Socket, interface: &Interface) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return socket.bind_device(Some(interface.name.as_bytes()));
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (socket, interface);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Lets other sockets of this machine bind the same port and receive the same groups.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn share_port(socket: &Socket, shared: bool) -> io::Result<()> {
    // Systems by Apple share the port of a group with this option only.
    #[cfg(target_vendor = "apple")]
    socket.set_reuse_port(shared)?;
    // On Windows the option without a group's port would let two sockets hold the same unicast address.
    if cfg!(windows) && !shared {
        return Ok(());
    }
    socket.set_reuse_address(shared)
}

/// Sends to groups on an interface.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn send_on(socket: &Socket, interface: &Interface, is_ipv4: bool) -> io::Result<()> {
    if !is_ipv4 {
        return socket.set_multicast_if_v6(interface.index);
    }
    let address = interface.ipv4.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED);
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        let any = std::net::Ipv4Addr::UNSPECIFIED;
        return rustix::net::sockopt::set_ip_multicast_if_with_ifindex(
            socket,
            &any,
            &address,
            interface.index,
        )
        .map_err(io::Error::from);
    }
    socket.set_multicast_if_v4(&address)
}

/// Reports a full queue of the interface, and ICMP, as errors of later calls (`IP_RECVERR`). Linux layer
/// only.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn report_errors(socket: &Socket, is_ipv4: bool, wanted: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        return linux::report_errors(socket, is_ipv4, wanted);
    }
    let _ = (socket, is_ipv4, wanted);
    Ok(())
}

/// Has the kernel stamp arrivals. Linux layer only.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn stamp_arrivals(socket: &Socket) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        return linux::stamp_arrivals(socket);
    }
    let _ = socket;
    Ok(())
}

/// Sets the traffic class octet of a socket. Windows: no effect, as the octet belongs to the
/// system's policies.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn set_traffic_class(socket: &Socket, is_ipv4: bool, octet: u8) -> io::Result<()> {
    #[cfg(not(windows))]
    return if is_ipv4 { socket.set_tos_v4(octet.into()) } else { socket.set_tclass_v6(octet.into()) };
    #[cfg(windows)]
    {
        let _ = (socket, is_ipv4, octet);
        Ok(())
    }
}

/// Requests a receive buffer, beyond the system's limit when the process may.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn set_receive_buffer(socket: &Socket, asked_bytes: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, asked_bytes).is_ok() {
        return Ok(());
    }
    halving(asked_bytes, |bytes| socket.set_recv_buffer_size(bytes))
}

/// Requests a send buffer, beyond the system's limit when the process may.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn set_send_buffer(socket: &Socket, asked_bytes: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if rustix::net::sockopt::set_socket_send_buffer_size_force(socket, asked_bytes).is_ok() {
        return Ok(());
    }
    halving(asked_bytes, |bytes| socket.set_send_buffer_size(bytes))
}

/// Least buffer in bytes that [`halving`] tries.
const BUFFER_BYTES_MIN: usize = 64 << 10;

/// Sets a buffer. Beyond the limit, Linux grants the limit; systems by Apple refuse, so that half is tried.
fn halving(mut bytes: usize, set: impl Fn(usize) -> io::Result<()>) -> io::Result<()> {
    loop {
        match set(bytes) {
            Err(error) if is_shortage(&error) && bytes > BUFFER_BYTES_MIN => bytes /= 2,
            result => return result,
        }
    }
}

/// Returns the granted buffer from the reported size. Linux doubles the granted size to hold its overhead
/// (socket(7), `SO_RCVBUF`), and reports the double.
pub(super) fn granted_bytes(reported: usize) -> usize {
    if cfg!(target_os = "linux") { reported / 2 } else { reported }
}

/// Whether the kernel has no room for a datagram now: the interface's queue is full, or memory is short.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::OutOfMemory || Errno::from_io_error(error) == Some(Errno::NOBUFS)
}

/// Whether a socket can join no more groups: IPv4 returns `ENOBUFS`, both versions return `ENOMEM` when
/// `net.core.optmem_max` is reached.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    is_shortage(error)
}

/// Whether the error reports on an earlier datagram, by ICMP or for a silent neighbour: the next call of any
/// kind fails with such an error.
pub(super) fn is_report(error: &io::Error) -> bool {
    /// Reports by ICMP.
    const REPORTS: &[Errno] = &[
        Errno::CONNREFUSED,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::NOPROTOOPT,
        Errno::OPNOTSUPP,
        Errno::MSGSIZE,
        #[cfg(target_os = "linux")]
        Errno::NONET,
        #[cfg(unix)]
        Errno::PROTO,
        Errno::ACCESS,
        // Windows reports a closed port and the end of a datagram's TTL so.
        Errno::CONNRESET,
        Errno::NETRESET,
    ];
    Errno::from_io_error(error).is_some_and(|errno| REPORTS.contains(&errno))
}

/// Whether the error is Linux's refusal of segmentation offload for the route, the device or the length.
pub(super) fn is_segmentation_refusal(error: &io::Error) -> bool {
    #[cfg(target_os = "linux")]
    return matches!(
        Errno::from_io_error(error),
        Some(Errno::IO | Errno::INVAL | Errno::OPNOTSUPP | Errno::MSGSIZE)
    );
    #[cfg(not(target_os = "linux"))]
    {
        let _ = error;
        false
    }
}

/// Kind of a refusal to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No route.
    Unreachable,
    /// The interface went away or down.
    Down,
    /// A packet filter or security policy.
    Forbidden,
    /// Above the MTU.
    TooLarge,
    /// Any other.
    Other,
}

impl Refusal {
    /// Classifies an error.
    pub(super) fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH) => Self::Unreachable,
            Some(Errno::NETDOWN | Errno::ADDRNOTAVAIL) => Self::Down,
            #[cfg(unix)]
            Some(Errno::NODEV | Errno::NXIO) => Self::Down,
            #[cfg(unix)]
            Some(Errno::PERM) => Self::Forbidden,
            Some(Errno::ACCESS) => Self::Forbidden,
            Some(Errno::MSGSIZE) => Self::TooLarge,
            _ => Self::Other,
        }
    }
}
