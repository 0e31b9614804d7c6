//! Sockets that are spoken to by unicast, as a driver sees them: one for each address that is listened at.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use headwater_proto::ChannelId;
use headwater_proto::control::Membership;

use super::Port;
use crate::net::{BufferSize, LinkChange, MembershipError, RecvBatch, Run, SendError, UnicastSocket};

#[derive(Debug)]
pub(crate) struct UnicastPort {
    sockets: Vec<UnicastSocket>,
    group: Option<SocketAddr>,
    /// The socket to read first, so that each has its turn.
    first: usize,
}

impl UnicastPort {
    /// At least one socket.
    pub(crate) const fn new(sockets: Vec<UnicastSocket>, group: Option<SocketAddr>) -> Self {
        Self { sockets, group, first: 0 }
    }

    /// The send buffer of the first socket.
    pub(crate) fn send_buffer(&self) -> BufferSize {
        self.sockets[0].send_buffer()
    }

    /// Calls to the kernel that were to send something.
    pub(crate) fn calls(&self) -> u64 {
        self.sockets.iter().map(UnicastSocket::calls).sum()
    }

    pub(crate) fn local_addrs(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(UnicastSocket::local_addr).collect()
    }
}

impl Port for UnicastPort {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        // One socket at a time, until one has something: a batch holds what one call reads.
        for _ in 0..self.sockets.len() {
            self.first = (self.first + 1) % self.sockets.len();
            let count = self.sockets[self.first].recv(batch)?;
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    fn change(&mut self, _membership: Membership) -> Result<(), MembershipError> {
        // It hears what is sent to its own addresses only.
        Ok(())
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.group.filter(|_| channel == ChannelId::BASE)
    }

    fn local(&self, peer: SocketAddr) -> SocketAddr {
        let of_family = self.sockets.iter().find(|socket| socket.local_addr().is_ipv4() == peer.is_ipv4());
        of_family.unwrap_or(&self.sockets[0]).local_addr()
    }

    fn send(&mut self, runs: &[Run<'_>]) -> Result<u64, SendError> {
        let mut unsent = 0;
        for family in runs.chunk_by(|one, other| one.destination.is_ipv4() == other.destination.is_ipv4()) {
            let is_ipv4 = family[0].destination.is_ipv4();
            let socket = self.sockets.iter_mut().find(|socket| socket.local_addr().is_ipv4() == is_ipv4);
            unsent += match socket {
                Some(socket) => socket.send(family),
                None => family.iter().map(datagrams).sum(),
            };
        }
        Ok(unsent)
    }

    fn look(&mut self) -> Option<LinkChange> {
        // What interfaces do is ridden out: what cannot be sent is lost.
        None
    }
}

fn datagrams(run: &Run<'_>) -> u64 {
    run.contents.len().div_ceil(run.segment_bytes.max(1)) as u64
}
