//! The sockets of a relay, as its driver sees them: one for each address that it listens at.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use headwater_proto::ChannelId;
use headwater_proto::control::Membership;

use crate::driver::Port;
use crate::net::{LinkChange, MembershipError, RecvBatch, Run, SendError, UnicastSocket};

#[derive(Debug)]
pub(super) struct RelayPort {
    sockets: Vec<UnicastSocket>,
    group: Option<SocketAddr>,
    /// The socket to read first, so that each has its turn.
    first: usize,
}

impl RelayPort {
    /// At least one socket.
    pub(super) const fn new(sockets: Vec<UnicastSocket>, group: Option<SocketAddr>) -> Self {
        Self { sockets, group, first: 0 }
    }

    pub(super) fn local_addrs(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(UnicastSocket::local_addr).collect()
    }
}

impl Port for RelayPort {
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
        // A relay hears what is sent to its own addresses only.
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
        // What interfaces do, a relay rides out: it loses what cannot be sent.
        None
    }
}

fn datagrams(run: &Run<'_>) -> u64 {
    run.contents.len().div_ceil(run.segment_bytes.max(1)) as u64
}
