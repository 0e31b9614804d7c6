//! Sockets as a driver sees them, those of unicast among them, and the trace of every datagram, for captures.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use headwater_proto::control::Membership;
use headwater_proto::{ChannelId, Ecn};
use tracing::debug;

use crate::net::{
    BufferSize, LinkChange, MembershipError, ReceiverSocket, RecvBatch, Run, SendError, SenderSocket,
    UnicastSocket,
};

/// A socket as a driver sees it: datagrams in and out, memberships.
pub(crate) trait Port {
    /// What to wait on.
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Fills the batch with what is waiting; 0 when nothing is.
    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize>;

    /// Joins or leaves a channel.
    fn change(&mut self, membership: Membership) -> Result<(), MembershipError>;

    /// Group and port of a channel.
    fn address(&self, channel: ChannelId) -> Option<SocketAddr>;

    /// Address and port of this end, where it exchanges datagrams with `peer`.
    fn local(&self, peer: SocketAddr) -> SocketAddr;

    /// Sends runs and says how many of their datagrams the kernel did not take.
    fn send(&mut self, runs: &[Run<'_>]) -> Result<u64, SendError>;

    /// What has become of the interface, if that is another than at the last look.
    fn inspect_link(&mut self) -> Option<LinkChange>;
}

impl Port for SenderSocket {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.as_fd())
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.recv(batch)
    }

    fn change(&mut self, _membership: Membership) -> Result<(), MembershipError> {
        // A sender hears what is sent to its own address only.
        Ok(())
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.channels().address(channel)
    }

    fn local(&self, _peer: SocketAddr) -> SocketAddr {
        self.local_addr()
    }

    fn send(&mut self, runs: &[Run<'_>]) -> Result<u64, SendError> {
        let before = self.counters().unsent;
        SenderSocket::send(self, runs)?;
        Ok(self.counters().unsent - before)
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        SenderSocket::inspect_link(self)
    }
}

impl Port for ReceiverSocket {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        ReceiverSocket::fds(self)
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.recv(batch)
    }

    fn change(&mut self, membership: Membership) -> Result<(), MembershipError> {
        match membership {
            Membership::Join(channel) => self.join(channel),
            // A channel that cannot be left is gone with its interface.
            Membership::Leave(channel) => {
                let left = self.leave(channel);
                left.or_else(|error| {
                    if matches!(error, MembershipError::Refused { .. }) { Ok(()) } else { Err(error) }
                })
            }
        }
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.channels().address(channel)
    }

    fn local(&self, _peer: SocketAddr) -> SocketAddr {
        self.asks_from().unwrap_or_else(|| self.channels().base())
    }

    fn send(&mut self, runs: &[Run<'_>]) -> Result<u64, SendError> {
        // Without a socket to ask from the session goes on unasked.
        Ok(ReceiverSocket::send(self, runs).unwrap_or_else(|error| {
            debug!(%error, "cannot ask the sender");
            runs.iter().map(|run| run.contents.len().div_ceil(run.segment_bytes.max(1)) as u64).sum()
        }))
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        ReceiverSocket::inspect_link(self)
    }
}

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

    fn inspect_link(&mut self) -> Option<LinkChange> {
        // What interfaces do is ridden out: what cannot be sent is lost.
        None
    }
}

fn datagrams(run: &Run<'_>) -> u64 {
    run.contents.len().div_ceil(run.segment_bytes.max(1)) as u64
}

/// Which way a datagram went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This end sent it.
    Sent,
    /// This end received it.
    Received,
}

/// A datagram as it passed the socket.
#[derive(Clone, Copy, Debug)]
pub struct PacketTrace<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// Time since the session began to run.
    pub elapsed: Duration,
    /// Who sent it: address and port.
    pub source: SocketAddr,
    /// Where it was sent to: a group and its port, or one end.
    pub destination: SocketAddr,
    /// The ECN field.
    pub ecn: Ecn,
    /// Differentiated services code point, 0 to 63; `None` where it is not known (datagrams received).
    pub dscp: Option<u8>,
    /// Time to live or hop limit; `None` where it is not known (datagrams received).
    pub ttl: Option<u8>,
    /// UDP payload.
    pub payload: &'a [u8],
}

/// Called for each datagram on the thread that runs the session: what it does delays the session.
pub type TraceHook = Box<dyn FnMut(&PacketTrace<'_>) + Send>;
