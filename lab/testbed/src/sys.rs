//! System calls without a safe crate here: namespaces, packet sockets, resource usage of a child, TCP state.
#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// From `linux/if_packet.h`; missing in `libc`.
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Of `asm-generic/sockios.h`.
const SIOCGSTAMPNS: libc::c_ulong = 0x8907;
/// Kernel buffer requested for a port of the wire.
const PORT_BUFFER_BYTES: libc::c_int = 64 << 20;

/// Runs `work` in a network namespace, on a separate thread. Sockets opened by `work` stay in that namespace.
pub(crate) fn inside<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = File::open(namespace)?;
    thread::scope(|scope| {
        let done = scope.spawn(move || {
            // SAFETY: the descriptor is open; the thread has no resources of its own yet.
            match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => Ok(work()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        done.join().unwrap_or_else(|_| Err(io::Error::other("the work in a namespace panicked")))
    })
}

/// Whether this process is root, as required for namespaces.
pub(crate) fn is_root() -> bool {
    // SAFETY: no pointers; the call cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Gives the calling thread real-time priority over ordinary threads, and exact timers. If the kernel
/// refuses, nothing changes.
pub(crate) fn hurry() {
    let priority = libc::sched_param { sched_priority: 20 };
    // SAFETY: a whole parameter; 0 is the calling thread.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const priority);
    }
}

/// End of a child, and the processor time used by the child and its own children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Exit code; `None` for a signal.
    pub code: Option<i32>,
    pub cpu: Duration,
}

/// Reaps a child that has ended. Returns `None` while the child runs.
pub(crate) fn ended(pid: u32) -> io::Result<Option<Ended>> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: all-zero is a valid `rusage`, which the call fills.
    let mut used: libc::rusage = unsafe { zeroed() };
    // SAFETY: both pointers live as long as the call.
    match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut used) } {
        0 => Ok(None),
        found if found == pid => {
            let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
            Ok(Some(Ended { code, cpu: time_of(used.ru_utime) + time_of(used.ru_stime) }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn time_of(time: libc::timeval) -> Duration {
    let nanos = u32::try_from(time.tv_usec).unwrap_or(0) * 1_000;
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// Sends a signal to a child, or to a process found in a namespace of the testbed.
pub(crate) fn signal(pid: u32, signal: libc::c_int) {
    if let Ok(pid) = libc::pid_t::try_from(pid)
        && pid > 1
    {
        // SAFETY: no pointers. On failure the process no longer exists.
        unsafe { libc::kill(pid, signal) };
    }
}

/// The kernel's state of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    pub rtt_micros: u32,
    pub retransmitted: u32,
    pub data_segments_in: u32,
    pub data_segments_out: u32,
}

/// Reads the state of a TCP connection.
pub(crate) fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    // `struct tcp_info` of linux/tcp.h up to `tcpi_data_segs_out`, which is longer than that of `libc`.
    const BYTES: usize = 160;
    let mut info = [0_u8; BYTES];
    let mut length = libc::socklen_t::try_from(BYTES).unwrap_or(0);
    let descriptor = socket.as_fd().as_raw_fd();
    let into = info.as_mut_ptr().cast();
    // SAFETY: the buffer is as long as is said.
    match unsafe { libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length) } {
        0 => {
            let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
            Ok(TcpInfo {
                rtt_micros: word(68),
                retransmitted: word(100),
                data_segments_in: word(152),
                data_segments_out: word(156),
            })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a socket for all incoming frames of a port of the calling thread's namespace, whatever their
/// destination; outgoing frames are excluded. A `struct virtio_net_hdr` of 10 bytes precedes each frame, so
/// that unfinished offload work stays with the frame.
pub(crate) fn packet_socket(port: &str) -> io::Result<OwnedFd> {
    let name = CString::new(port)?;
    // SAFETY: the name ends with a zero.
    let index = match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => return Err(io::Error::last_os_error()),
        index => i32::try_from(index).unwrap_or(0),
    };
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let opened = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(opened) };
    for (level, option, value) in [
        (libc::SOL_PACKET, PACKET_VNET_HDR, 1),
        (libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, PORT_BUFFER_BYTES),
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, PORT_BUFFER_BYTES),
    ] {
        set(&socket, level, option, &value)?;
    }
    // SAFETY: all-zero is a valid request.
    let mut everyone: libc::packet_mreq = unsafe { zeroed() };
    (everyone.mr_ifindex, everyone.mr_type) = (index, u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or(0));
    set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &everyone)?;
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be();
    address.sll_ifindex = index;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0);
    // SAFETY: the address is as long as is said.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the value is as long as is said.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a frame; `None` if no frame waits.
pub(crate) fn receive(socket: &OwnedFd, into: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the buffer is as long as is said.
    let read = unsafe { libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), 0) };
    match (usize::try_from(read), io::Error::last_os_error()) {
        (Ok(bytes), _) => Ok(Some(bytes)),
        (Err(_), error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        (Err(_), error) => Err(error),
    }
}

/// Sends a frame. Returns whether the port accepted the frame.
pub(crate) fn send(socket: &OwnedFd, frame: &[u8]) -> bool {
    // SAFETY: the buffer is as long as is said.
    unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) >= 0 }
}

/// Arrival of the frame read last, by the wall clock, in nanoseconds; `None` if the kernel does not report
/// the time.
pub(crate) fn stamp(socket: &OwnedFd) -> Option<i128> {
    // SAFETY: all-zero is a valid `timespec`, which the call fills.
    let mut stamp: libc::timespec = unsafe { zeroed() };
    // SAFETY: as above; the descriptor is open.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS as _, &raw mut stamp) };
    (told == 0).then(|| nanos_of(stamp))
}

/// Wall clock and monotonic clock, in nanoseconds.
pub(crate) fn clocks() -> (i128, i128) {
    (read_clock(libc::CLOCK_REALTIME), read_clock(libc::CLOCK_MONOTONIC))
}

fn read_clock(clock: libc::clockid_t) -> i128 {
    // SAFETY: all-zero is a valid `timespec`, which the call fills.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: as above.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    nanos_of(time)
}

fn nanos_of(time: libc::timespec) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Waits until a frame has arrived on any socket, at most for `longest`.
pub(crate) fn wait(sockets: &[&OwnedFd], longest: Duration) -> io::Result<()> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(longest.as_secs()).unwrap_or(1),
        tv_nsec: libc::c_long::from(i32::try_from(longest.subsec_nanos()).unwrap_or(0)),
    };
    let poll = |socket: &&OwnedFd| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<_> = sockets.iter().map(poll).collect();
    let count = libc::nfds_t::try_from(polled.len()).unwrap_or(0);
    // SAFETY: as many entries as are said, and a time that lives as long as the call.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count, &raw const timeout, std::ptr::null()) };
    match io::Error::last_os_error() {
        error if ready < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}
