//! An event that any thread or signal handler sets and that ends a wait for sockets.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
use rustix::event::{EventfdFlags, eventfd};

use super::SocketLayer;
use crate::net::descriptor::{AsFd, BorrowedFd};

/// Number of pending datagrams that a reset reads: more only end further waits early.
const RESET_MAX: usize = 64;

/// An event. Linux layer: a counter of the kernel. Portable layer: a UDP socket that sends to itself over the
/// loopback interface.
#[derive(Debug)]
pub(in crate::net) enum WakeEvent {
    #[cfg(target_os = "linux")]
    Counter(OwnedFd),
    Socket(UdpSocket),
}

impl WakeEvent {
    /// Creates an event that is not set.
    ///
    /// # Errors
    /// When the process has no descriptor left, or, in the portable layer, when there is no loopback
    /// interface.
    pub(in crate::net) fn new() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if !SocketLayer::current().is_portable() {
            return Ok(Self::Counter(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        }
        let _ = SocketLayer::current();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        Ok(Self::Socket(socket))
    }

    /// Sets the event.
    pub(in crate::net) fn set(&self) {
        // Fails only when many wake-ups are pending; a single wake-up is enough.
        match self {
            #[cfg(target_os = "linux")]
            Self::Counter(counter) => {
                let _full = rustix::io::write(counter, &1_u64.to_ne_bytes());
            }
            Self::Socket(socket) => {
                let _full = socket.send(&[1]);
            }
        }
    }

    /// Clears the event.
    ///
    /// # Errors
    /// The kernel's error.
    pub(in crate::net) fn reset(&self) -> io::Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Counter(counter) => {
                let mut count = [0; 8];
                match rustix::io::read(counter, &mut count) {
                    Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                    Err(errno) => Err(errno.into()),
                }
            }
            Self::Socket(socket) => {
                for _ in 0..RESET_MAX {
                    match socket.recv(&mut [0]) {
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }
        }
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Counter(counter) => counter.as_fd(),
            Self::Socket(socket) => socket.as_fd(),
        }
    }
}
