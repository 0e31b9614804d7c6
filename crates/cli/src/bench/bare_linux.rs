//! Bare loops of Linux: batches of messages, and segmentation.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use headwater::net::Interface;
use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, setsockopt, sockopt::UdpGroSegment,
    sockopt::UdpGsoSegment,
};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::bare::{Calls, Count, GROUP, LOOK, PORT, RECEIVE_BUFFER_BYTES, repeat_for};
use super::thread_cpu;

/// Messages per call, and bytes of buffer for each message.
const BATCH: usize = 64;
const MESSAGE_BYTES: usize = 9_000;
/// Messages per call, and bytes of buffer, if each message may hold a coalesced run.
const BATCH_RUNS: usize = 16;
const MESSAGE_BYTES_RUN: usize = 65_535;
/// Maximum datagrams that the kernel cuts from a message, and maximum payload of a message.
const SEGMENTS_MAX: usize = 64;
const RUN_BYTES_MAX: usize = 65_465;
pub(super) fn open_sender(interface: &Interface) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    rustix::net::sockopt::set_ip_multicast_if_with_ifindex(
        &socket,
        &Ipv4Addr::UNSPECIFIED,
        &interface.ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED),
        interface.index,
    )?;
    socket.connect(&SocketAddr::from((GROUP, PORT)).into())?;
    Ok(socket)
}

pub(super) fn open_receiver(interface: &Interface, calls: Calls) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddrV4::new(GROUP, PORT).into())?;
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    }
    socket.set_read_timeout(Some(LOOK))?;
    setsockopt(&socket, UdpGroSegment, &(calls == Calls::Segmented))?;
    socket.join_multicast_v4_n(&GROUP, &InterfaceIndexOrAddress::Index(interface.index))?;
    Ok(socket)
}

pub(super) fn send(socket: &Socket, calls: Calls, packet_bytes: usize, time: Duration) -> io::Result<Count> {
    match calls {
        Calls::Single => {
            let packet = vec![0; packet_bytes];
            let slices = [[IoSlice::new(&packet)]; BATCH];
            let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
            repeat_for(time, || {
                let (fd, addresses) = (socket.as_raw_fd(), [None; BATCH]);
                let sent = sendmmsg(fd, &mut headers, &slices, addresses, [], MsgFlags::empty())?;
                Ok(sent.map(|message| message.bytes as u64).sum())
            })
        }
        Calls::Segmented => {
            setsockopt(socket, UdpGsoSegment, &i32::try_from(packet_bytes).unwrap_or(i32::MAX))?;
            let run = vec![0; packet_bytes * (RUN_BYTES_MAX / packet_bytes).min(SEGMENTS_MAX)];
            repeat_for(time, || Ok(socket.send(&run)? as u64))
        }
    }
}

pub(super) fn receive(socket: &Socket, calls: Calls, over: &AtomicBool) -> io::Result<Count> {
    let (began, cpu) = (Instant::now(), thread_cpu());
    let (batch, message_bytes) = match calls {
        Calls::Single => (BATCH, MESSAGE_BYTES),
        Calls::Segmented => (BATCH_RUNS, MESSAGE_BYTES_RUN),
    };
    let mut buffer = vec![0; batch * message_bytes];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(batch, None);
    let mut bytes = 0;
    loop {
        let messages = buffer.chunks_exact_mut(message_bytes);
        let mut slices: Vec<_> = messages.map(|message| [IoSliceMut::new(message)]).collect();
        match recvmmsg(socket.as_raw_fd(), &mut headers, &mut slices, MsgFlags::MSG_WAITFORONE, None) {
            Ok(messages) => bytes += messages.map(|message| message.bytes as u64).sum::<u64>(),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if over.load(Relaxed) {
            return Ok(Count { bytes, took: began.elapsed(), cpu: thread_cpu() - cpu });
        }
    }
}
