//! Calls and socket options that neither `rustix`, `socket2` nor `nix` wrap.
#![expect(
    unsafe_code,
    reason = "sendmmsg with messages that differ, and options with structures, that no safe crate offers"
)]

use std::io::{self, IoSlice};
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::SockAddr;

use super::control::Control;

/// `SO_MEMINFO` of `asm-generic/socket.h`, which `libc` lacks.
const SO_MEMINFO: libc::c_int = 55;
/// Index of the drop counter in what `SO_MEMINFO` returns (`linux/sock_diag.h`).
const SK_MEMINFO_DROPS: usize = 8;

/// Most messages of one `sendmmsg`: with segmentation offload 2 MB.
pub(super) const MESSAGES_MAX: usize = 32;

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

    /// The message as the kernel reads it, for as long as `self` stays where it is.
    fn header(&self) -> libc::mmsghdr {
        // SAFETY: all-zero is a valid `mmsghdr`: null pointers, no lengths.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_name = self.destination.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = self.destination.len();
        header.msg_hdr.msg_iov = (&raw const self.contents).cast_mut().cast();
        header.msg_hdr.msg_iovlen = 1;
        let control = self.control.as_bytes();
        if !control.is_empty() {
            header.msg_hdr.msg_control = control.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_controllen = control.len();
        }
        header
    }
}

/// Sends messages, those before the first `None`, in one call (`sendmmsg`), and says how many were sent.
///
/// # Errors
/// What the kernel says of the first message; of a later one it says nothing but that it was not sent.
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
    // SAFETY: the first `count` headers point to addresses, buffers and control messages of `messages`, which outlive the
    // call and are only read; an `IoSlice` has the layout of an `iovec`; `fd` is open for as long as it is borrowed.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Takes what the kernel has told of datagrams sent before (`IP_RECVERR`), and forgets it: ICMP may be forged, and what
/// one receiver's machine answers says nothing of the others. Never blocks.
pub(super) fn discard_reports(fd: BorrowedFd<'_>) {
    /// More are left for the next time, so that a flood of them stops nothing.
    const AT_ONCE: usize = 16;
    for _ in 0..AT_ONCE {
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: nothing is written, as the buffer has no length; `fd` is open for as long as it is borrowed.
        let taken = unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), 0, flags) };
        if taken < 0 {
            return;
        }
    }
}

/// Joins a source-specific channel (RFC 3678, section 5.1.2): packets of `source` to `group` arriving on the interface
/// with that index. IPv4 and IPv6 alike.
///
/// # Errors
/// What `setsockopt` says; `ENOBUFS` or `ENOMEM` when the socket has all the memberships that it may have.
pub(super) fn join_source(
    fd: BorrowedFd<'_>,
    interface_index: u32,
    group: IpAddr,
    source: IpAddr,
) -> io::Result<()> {
    set_source(fd, libc::MCAST_JOIN_SOURCE_GROUP, interface_index, group, source)
}

/// Leaves what [`join_source`] joined.
///
/// # Errors
/// What `setsockopt` says.
pub(super) fn leave_source(
    fd: BorrowedFd<'_>,
    interface_index: u32,
    group: IpAddr,
    source: IpAddr,
) -> io::Result<()> {
    set_source(fd, libc::MCAST_LEAVE_SOURCE_GROUP, interface_index, group, source)
}

fn set_source(
    fd: BorrowedFd<'_>,
    option: libc::c_int,
    interface_index: u32,
    group: IpAddr,
    source: IpAddr,
) -> io::Result<()> {
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
    // SAFETY: the pointer and the length are those of `request`, a plain C structure that lives through the call and
    // that the kernel only reads; `fd` is open for as long as it is borrowed.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const request).cast(), bytes) };
    checked(result)
}

fn storage(address: IpAddr) -> libc::sockaddr_storage {
    let mut storage = SockAddr::from(SocketAddr::new(address, 0)).as_storage();
    // SAFETY: `sockaddr_storage` is what the storage wraps, and every bit pattern of it is valid.
    unsafe { *storage.view_as::<libc::sockaddr_storage>() }
}

/// How many messages the kernel dropped at this socket since it was opened, mostly for want of receive buffer. A run of
/// datagrams that it had coalesced counts once. Wraps.
///
/// # Errors
/// What `getsockopt` says: kernels before 4.12 do not know the option.
pub(super) fn messages_dropped(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut counters = [0_u32; SK_MEMINFO_DROPS + 1];
    let mut bytes = libc::socklen_t::try_from(size_of_val(&counters)).expect("36 bytes");
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of `counters`; any bytes are valid `u32`s;
    // `fd` is open for as long as it is borrowed.
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

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes in a socket's send buffer that have not left it (`SIOCOUTQ`), bookkeeping included.
///
/// # Errors
/// What `ioctl` says.
pub(super) fn unsent_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int, and `bytes` is one that outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}
