//! Bare loops of any system: a datagram in each call, whatever the calls of the loop are.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use headwater::net::Interface;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::bare::{Calls, Count, GROUP, LOOK, PORT, RECEIVE_BUFFER_BYTES, repeat_for};
use super::thread_cpu;

const MESSAGE_BYTES: usize = 9_000;

pub(super) fn open_sender(interface: &Interface) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_multicast_if_v4(&interface.ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
    socket.connect(&SocketAddr::from((GROUP, PORT)).into())?;
    Ok(socket)
}

pub(super) fn open_receiver(interface: &Interface, _calls: Calls) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT).into())?;
    // A smaller buffer is the system's limit.
    let _limited = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    socket.set_read_timeout(Some(LOOK))?;
    socket.join_multicast_v4_n(&GROUP, &InterfaceIndexOrAddress::Index(interface.index))?;
    Ok(socket)
}

pub(super) fn send(socket: &Socket, _calls: Calls, packet_bytes: usize, time: Duration) -> io::Result<Count> {
    let packet = vec![0; packet_bytes];
    repeat_for(time, || Ok(socket.send(&packet)? as u64))
}

pub(super) fn receive(mut socket: &Socket, _calls: Calls, over: &AtomicBool) -> io::Result<Count> {
    let (began, cpu) = (Instant::now(), thread_cpu());
    let mut buffer = vec![0; MESSAGE_BYTES];
    let mut bytes = 0;
    loop {
        match socket.read(&mut buffer) {
            Ok(count) => bytes += count as u64,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        if over.load(Relaxed) {
            return Ok(Count { bytes, took: began.elapsed(), cpu: thread_cpu() - cpu });
        }
    }
}
