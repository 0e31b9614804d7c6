//! Socket options that neither `rustix`, `socket2` nor `nix` wrap.
#![expect(unsafe_code, reason = "setsockopt, getsockopt and ioctl with structures that no safe crate offers")]

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::SockAddr;

/// `SO_MEMINFO` of `asm-generic/socket.h`, which `libc` lacks.
const SO_MEMINFO: libc::c_int = 55;
/// Index of the drop counter in what `SO_MEMINFO` returns (`linux/sock_diag.h`).
const SK_MEMINFO_DROPS: usize = 8;

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
