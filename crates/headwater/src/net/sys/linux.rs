//! The Linux layer: calls and socket options that neither `rustix`, `socket2` nor `nix` wrap.
//!
//! Control messages of a datagram to send: the traffic class octet and the segment size, in the kernel's
//! format (cmsg(3)).
//!
//! `quinn-udp` writes the ECN field as the whole octet, which clears the code point of differentiated
//! services; hence this module.
#![expect(
    unsafe_code,
    reason = "sendmmsg and recvmmsg with messages that differ, and options with structures, that no safe crate offers"
)]

use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{SockAddr, SockAddrStorage, Socket};

use super::{Incoming, MESSAGES_MAX, MembershipChange, MessageMetadata, Outgoing};

/// `SO_MEMINFO` of `asm-generic/socket.h`, which `libc` lacks.
const SO_MEMINFO: libc::c_int = 55;
/// Index of the drop counter in the result of `SO_MEMINFO` (`linux/sock_diag.h`).
const SK_MEMINFO_DROPS: usize = 8;

impl Outgoing<'_> {
    /// Returns the message in the kernel's format, valid as long as `self` is not moved.
    fn header(&self) -> libc::mmsghdr {
        // SAFETY: all-zero is a valid `mmsghdr`: null pointers, no lengths.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_name = self.destination.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = self.destination.len();
        header.msg_hdr.msg_iov = (&raw const self.contents).cast_mut().cast();
        header.msg_hdr.msg_iovlen = 1;
        let control = self.control.messages.as_bytes();
        if !control.is_empty() {
            header.msg_hdr.msg_control = control.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_controllen = control.len();
        }
        header
    }
}

/// Sends the messages before the first `None` in one call (`sendmmsg`). Returns the number of messages sent.
///
/// # Errors
/// The kernel's error for the first message. For a later message the kernel gives no error: the message is
/// only not counted as sent.
pub(super) fn send_messages(
    fd: BorrowedFd<'_>,
    messages: &[Option<Outgoing<'_>>; MESSAGES_MAX],
) -> io::Result<usize> {
    // SAFETY: as in `header`.
    let mut headers: [libc::mmsghdr; MESSAGES_MAX] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    for (header, message) in headers.iter_mut().zip(messages.iter().map_while(Option::as_ref)) {
        *header = message.header();
        count += 1;
    }
    // SAFETY: the first `count` headers point to addresses, buffers and control messages of `messages`, which
    // outlive the call and are only read; an `IoSlice` has the layout of an `iovec`; the borrow keeps `fd`
    // open.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Words of control messages per received message. With words of 8 bytes: destination (5 words for IPv6),
/// traffic class (3), segment size (3), time of arrival (4), and one spare word. With words of 4 bytes the
/// control messages take 84 bytes. No control message is ever cut off.
const CONTROL_WORDS: usize = 128 / size_of::<usize>();

/// Source and control messages of a received message, in the kernel's format.
pub(super) struct Ancillary {
    source: libc::sockaddr_storage,
    source_bytes: libc::socklen_t,
    control: [usize; CONTROL_WORDS],
    control_bytes: usize,
}

impl Ancillary {
    pub(super) fn new() -> Self {
        // SAFETY: all-zero is a valid `sockaddr_storage`, of no family.
        let source = unsafe { std::mem::zeroed() };
        Self { source, source_bytes: 0, control: [0; CONTROL_WORDS], control_bytes: 0 }
    }

    /// Returns the source address; `None` if the address is not an IP address.
    pub(super) fn source(&self) -> Option<SocketAddr> {
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: the storage wraps a `sockaddr_storage`.
        unsafe { *storage.view_as::<libc::sockaddr_storage>() = self.source };
        // SAFETY: the kernel wrote an address of so many bytes.
        unsafe { SockAddr::new(storage, self.source_bytes) }.as_socket()
    }

    /// Returns the ancillary data of the message.
    pub(super) fn metadata(&self) -> MessageMetadata {
        let mut bytes = [0; size_of::<[usize; CONTROL_WORDS]>()];
        for (bytes, word) in bytes.chunks_exact_mut(size_of::<usize>()).zip(&self.control) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        MessageMetadata::parse(&bytes[..self.control_bytes.min(bytes.len())])
    }

    /// Returns a header that the kernel fills in, valid as long as `self` and `contents` are not moved.
    fn header(&mut self, contents: &mut IoSliceMut<'_>) -> libc::mmsghdr {
        // SAFETY: as in `Outgoing::header`.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_name = (&raw mut self.source).cast();
        header.msg_hdr.msg_namelen = libc::socklen_t::try_from(size_of_val(&self.source)).expect("128 bytes");
        header.msg_hdr.msg_iov = (&raw mut *contents).cast();
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = (&raw mut self.control).cast();
        header.msg_hdr.msg_controllen = size_of_val(&self.control);
        header
    }
}

impl fmt::Debug for Ancillary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ancillary").finish_non_exhaustive()
    }
}

/// Receives waiting messages, at most one per buffer, in one call (`recvmmsg`). Returns the number of
/// messages; 0 when no message waits. Never blocks.
///
/// # Errors
/// The kernel's error for the first message.
pub(super) fn receive_messages(
    fd: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    incoming: &mut [Incoming],
) -> io::Result<usize> {
    // SAFETY: as in `Outgoing::header`.
    let mut headers: [libc::mmsghdr; MESSAGES_MAX] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    for (header, (message, buffer)) in headers.iter_mut().zip(incoming.iter_mut().zip(buffers)) {
        *header = message.kernel.header(buffer);
        count += 1;
    }
    // SAFETY: the first `count` headers point to as many addresses, buffers and control buffers with their
    // lengths, which outlive the call, are borrowed mutably, and may hold any bytes; an `IoSliceMut` has the
    // layout of an `iovec`; the borrow keeps `fd` open.
    let received = unsafe {
        libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT, std::ptr::null_mut())
    };
    let Ok(received) = usize::try_from(received) else {
        let error = io::Error::last_os_error();
        let nothing = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
        return if nothing { Ok(0) } else { Err(error) };
    };
    for (header, message) in headers[..received].iter().zip(incoming) {
        message.bytes = header.msg_len as usize;
        message.kernel.source_bytes = header.msg_hdr.msg_namelen;
        message.kernel.control_bytes = header.msg_hdr.msg_controllen;
    }
    Ok(received)
}

/// Discards the kernel's error reports on datagrams sent before (`IP_RECVERR`): ICMP may be forged, and an
/// error at one receiver's machine concerns no other receiver. Never blocks.
pub(super) fn discard_reports(fd: BorrowedFd<'_>) {
    /// Further reports wait for the next call, so that a flood of reports delays nothing.
    const AT_ONCE: usize = 16;
    for _ in 0..AT_ONCE {
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: nothing is written, as the buffer has no length; the borrow keeps `fd` open.
        let taken = unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), 0, flags) };
        if taken < 0 {
            return;
        }
    }
}

/// Joins or leaves a source-specific channel (RFC 3678, section 5.1.2): packets of `source` to `group`
/// arriving on the interface with that index. IPv4 and IPv6 alike.
///
/// # Errors
/// The error of `setsockopt`; `ENOBUFS` or `ENOMEM` when the socket has the maximum number of memberships.
pub(super) fn change_source(
    fd: BorrowedFd<'_>,
    interface_index: u32,
    (group, source): (IpAddr, IpAddr),
    change: MembershipChange,
) -> io::Result<()> {
    let option = match change {
        MembershipChange::Join => libc::MCAST_JOIN_SOURCE_GROUP,
        MembershipChange::Leave => libc::MCAST_LEAVE_SOURCE_GROUP,
    };
    let level = match group {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    };
    let request = libc::group_source_req {
        gsr_interface: interface_index,
        gsr_group: storage(group),
        gsr_source: storage(source),
    };
    let bytes = libc::socklen_t::try_from(size_of::<libc::group_source_req>())
        .expect("a structure of some 260 bytes");
    // SAFETY: pointer and length describe `request`, a plain C structure that lives through the call and that
    // the kernel only reads; the borrow keeps `fd` open.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const request).cast(), bytes) };
    checked(result)
}

/// Lets a socket send datagrams above the path's MTU in fragments.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn allow_fragments(fd: BorrowedFd<'_>, is_ipv4: bool) -> io::Result<()> {
    let (level, option, value) = match is_ipv4 {
        true => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        false => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
    };
    let bytes = libc::socklen_t::try_from(size_of_val(&value)).expect("4 bytes");
    // SAFETY: pointer and length describe `value`, which the kernel only reads; the borrow keeps `fd` open.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), bytes) })
}

fn storage(address: IpAddr) -> libc::sockaddr_storage {
    let mut storage = SockAddr::from(SocketAddr::new(address, 0)).as_storage();
    // SAFETY: the storage wraps a `sockaddr_storage`, for which every bit pattern is valid.
    unsafe { *storage.view_as::<libc::sockaddr_storage>() }
}

/// Returns the number of messages that the kernel dropped at this socket since the socket was opened, mostly
/// for want of receive buffer. A coalesced run of datagrams counts once. Wraps.
///
/// # Errors
/// The error of `getsockopt`: kernels before 4.12 do not know the option.
pub(super) fn messages_dropped(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut counters = [0_u32; SK_MEMINFO_DROPS + 1];
    let mut bytes = libc::socklen_t::try_from(size_of_val(&counters)).expect("36 bytes");
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of `counters`; any bytes are valid
    // `u32`s; the borrow keeps `fd` open.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            counters.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    checked(result)?;
    Ok(counters[SK_MEMINFO_DROPS])
}

/// Reports a full queue of the interface, and ICMP, as errors of later calls. Without the option a full queue
/// goes unnoticed.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn report_errors(socket: &Socket, is_ipv4: bool, wanted: bool) -> io::Result<()> {
    let set = match is_ipv4 {
        true => setsockopt(socket, sockopt::Ipv4RecvErr, &wanted),
        false => setsockopt(socket, sockopt::Ipv6RecvErr, &wanted),
    };
    set.map_err(io::Error::from)
}

/// Has the kernel stamp arrivals: `quinn-udp` requests the option, but lets a kernel refuse.
///
/// # Errors
/// The error of `setsockopt`.
pub(super) fn stamp_arrivals(socket: &Socket) -> io::Result<()> {
    setsockopt(socket, sockopt::ReceiveTimestampns, &true).map_err(io::Error::from)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the unsent bytes in a socket's send buffer (`SIOCOUTQ`), bookkeeping included.
///
/// # Errors
/// The error of `ioctl`.
pub(super) fn unsent_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int; the int `bytes` outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// `cmsg_len`, `cmsg_level`, `cmsg_type` as the kernel declares these fields.
const HEADER_BYTES: usize = size_of::<usize>() + 2 * size_of::<libc::c_int>();
/// Alignment of control messages.
const ALIGNMENT_BYTES: usize = size_of::<usize>();
/// Two messages, each of at most one aligned word of data.
const CAPACITY_BYTES: usize = 2 * (HEADER_BYTES + ALIGNMENT_BYTES);

/// Control messages of a datagram or of a run of datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlMessages {
    buffer: [u8; CAPACITY_BYTES],
    bytes: usize,
}

impl ControlMessages {
    /// Returns an empty list of control messages.
    pub(super) const fn new() -> Self {
        Self { buffer: [0; CAPACITY_BYTES], bytes: 0 }
    }

    /// Sends with this traffic class octet: differentiated services (6 bits), ECN (2 bits).
    pub(super) fn traffic_class(&mut self, ipv4: bool, octet: u8) {
        let value = libc::c_int::from(octet).to_ne_bytes();
        if ipv4 {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &value);
        } else {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value);
        }
    }

    /// Has the kernel cut the payload into datagrams of this many bytes.
    pub(super) fn segment_bytes(&mut self, bytes: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
    }

    /// Returns the bytes for the kernel.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }

    fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        self.put(&(HEADER_BYTES + data.len()).to_ne_bytes());
        self.put(&level.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(data);
        self.bytes = self.bytes.next_multiple_of(ALIGNMENT_BYTES);
    }

    fn put(&mut self, data: &[u8]) {
        let end = self.bytes + data.len();
        self.buffer[self.bytes..end].copy_from_slice(data);
        self.bytes = end;
    }
}
