//! Sockets as a driver sees them, and the trace of every datagram, for captures.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::control::Membership;
use headwater_proto::{ChannelId, Datagram, Ecn, Input, InterfaceId};
use tracing::debug;

use super::reading::ReadPace;
use crate::net::{
    AmtSocket, AsFd, BorrowedFd, BufferSize, LinkChange, MembershipError, ReceiverSocket, RecvBatch, Run,
    SendError, SenderSocket, UnicastSocket,
};

/// Interface of a port that belongs to an end.
pub(crate) const END: InterfaceId = InterfaceId(0);

/// A socket as a driver sees it: datagrams in and out, memberships.
pub(crate) trait Port {
    /// Returns the descriptors to wait on.
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Returns the time at which [`Port::receive`] is to be called even if no datagram has come. Default:
    /// never.
    fn wake_at(&self) -> Option<std::time::Instant> {
        None
    }

    /// Fills the batch with waiting datagrams. Returns the number of datagrams.
    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize>;

    /// Whether the batch last received has all datagrams that waited. Default: unknown, until a batch is
    /// empty.
    fn has_all(&self, _batch: &RecvBatch) -> bool {
        false
    }

    /// Returns the pace at which the driver reads. Default: that of data.
    fn read_pace(&self) -> ReadPace {
        ReadPace::DATA
    }

    /// Joins or leaves a channel.
    fn change(&mut self, membership: Membership) -> Result<(), MembershipError>;

    /// Returns the group and port of a channel.
    fn address(&self, channel: ChannelId) -> Option<SocketAddr>;

    /// Returns the input for a datagram of the batch last received. Ports of routers add the interface.
    fn input<'a>(&self, datagram: Datagram<'a>) -> Input<'a> {
        Input::Datagram(datagram)
    }

    /// Returns the address and port of this end for datagrams to or from `peer` on an interface. Ports of
    /// ends have a single interface, [`END`].
    fn local(&self, interface: InterfaceId, peer: SocketAddr) -> SocketAddr;

    /// Sends runs on an interface. Returns the number of datagrams that the kernel refused.
    fn send(&mut self, egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError>;

    /// Takes the datagrams per second that the end's own link carried while it was full, if it was since the
    /// last call. Default: unknown.
    fn take_full_link(&mut self) -> Option<f64> {
        None
    }

    /// Returns the state of the interface if the state has changed since the last check.
    fn inspect_link(&mut self) -> Option<LinkChange>;

    /// Returns the bytes of UDP payload by channel; empty for ports that do not count by channel.
    fn channel_bytes(&self) -> &[u64] {
        &[]
    }
}

impl Port for SenderSocket {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.as_fd())
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.recv(batch)
    }

    fn has_all(&self, batch: &RecvBatch) -> bool {
        batch.is_all()
    }

    fn read_pace(&self) -> ReadPace {
        ReadPace::REPORTS
    }

    fn change(&mut self, _membership: Membership) -> Result<(), MembershipError> {
        // A sender receives only datagrams to its own address.
        Ok(())
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.channels().address(channel)
    }

    fn local(&self, _interface: InterfaceId, _peer: SocketAddr) -> SocketAddr {
        self.local_addr()
    }

    fn send(&mut self, _egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        let before = self.counters().unsent;
        SenderSocket::send(self, runs)?;
        Ok(self.counters().unsent - before)
    }

    fn take_full_link(&mut self) -> Option<f64> {
        SenderSocket::take_full_link(self)
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        SenderSocket::inspect_link(self)
    }

    fn channel_bytes(&self) -> &[u64] {
        SenderSocket::channel_bytes(self)
    }
}

impl Port for ReceiverSocket {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        ReceiverSocket::fds(self)
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.recv(batch)
    }

    fn has_all(&self, batch: &RecvBatch) -> bool {
        batch.is_all()
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

    fn local(&self, _interface: InterfaceId, _peer: SocketAddr) -> SocketAddr {
        self.asks_from().unwrap_or_else(|| self.channels().base())
    }

    fn send(&mut self, _egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        // Without a socket for requests, the session continues without requests.
        Ok(ReceiverSocket::send(self, runs).unwrap_or_else(|error| {
            debug!(%error, "cannot send a request to the sender");
            datagrams(runs)
        }))
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        ReceiverSocket::inspect_link(self)
    }

    fn channel_bytes(&self) -> &[u64] {
        ReceiverSocket::channel_bytes(self)
    }
}

impl Port for AmtSocket {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        AmtSocket::fds(self)
    }

    fn wake_at(&self) -> Option<std::time::Instant> {
        AmtSocket::wake_at(self)
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.recv(batch)
    }

    fn change(&mut self, membership: Membership) -> Result<(), MembershipError> {
        match membership {
            Membership::Join(channel) => self.join(channel),
            Membership::Leave(channel) => self.leave(channel),
        }
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.channels().address(channel)
    }

    fn local(&self, _interface: InterfaceId, _peer: SocketAddr) -> SocketAddr {
        self.local_addr().unwrap_or_else(|| self.channels().base())
    }

    fn send(&mut self, _egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        // Without a socket for requests, the session continues without requests.
        Ok(AmtSocket::send(self, runs).unwrap_or_else(|_| datagrams(runs)))
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        // The gateway asks the relay again after an outage.
        None
    }
}

/// Sockets at addresses of this machine, and an optional group for sending.
#[derive(Debug)]
pub(crate) struct UnicastPort {
    sockets: Vec<UnicastSocket>,
    group: Option<SocketAddr>,
    /// Socket last read, so that the sockets take turns.
    first: usize,
}

impl UnicastPort {
    /// Creates a port of at least one socket.
    pub(crate) const fn new(sockets: Vec<UnicastSocket>, group: Option<SocketAddr>) -> Self {
        Self { sockets, group, first: 0 }
    }

    /// Returns the send buffer of the first socket.
    pub(crate) fn send_buffer(&self) -> BufferSize {
        self.sockets[0].send_buffer()
    }

    /// Returns the number of kernel calls to send.
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
        // One socket at a time, until a socket has datagrams: a batch holds the datagrams of one call.
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
        // The sockets receive only datagrams to their own addresses.
        Ok(())
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.group.filter(|_| channel == ChannelId::BASE)
    }

    fn local(&self, _interface: InterfaceId, peer: SocketAddr) -> SocketAddr {
        let of_family = self.sockets.iter().find(|socket| socket.local_addr().is_ipv4() == peer.is_ipv4());
        of_family.unwrap_or(&self.sockets[0]).local_addr()
    }

    fn send(&mut self, _egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        let mut unsent = 0;
        for family in runs.chunk_by(|one, other| one.destination.is_ipv4() == other.destination.is_ipv4()) {
            let is_ipv4 = family[0].destination.is_ipv4();
            let socket = self.sockets.iter_mut().find(|socket| socket.local_addr().is_ipv4() == is_ipv4);
            unsent += match socket {
                Some(socket) => socket.send(family),
                None => datagrams(family),
            };
        }
        Ok(unsent)
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        // Changes of interfaces are ignored: datagrams that cannot be sent are lost.
        None
    }
}

/// Returns the number of datagrams in runs.
pub(crate) fn datagrams(runs: &[Run<'_>]) -> u64 {
    runs.iter().map(|run| run.datagrams().count() as u64).sum()
}

/// Direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Sent by this end.
    Sent,
    /// Received by this end.
    Received,
}

/// Datagram that passed the socket.
#[derive(Clone, Copy, Debug)]
pub struct PacketTrace<'a> {
    /// Direction of the datagram.
    pub direction: Direction,
    /// Time since the start of the session.
    pub elapsed: Duration,
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Destination: a group or one end, with port.
    pub destination: SocketAddr,
    /// ECN field.
    pub ecn: Ecn,
    /// Differentiated services code point, 0 to 63; `None` if unknown (received datagrams).
    pub dscp: Option<u8>,
    /// Time to live or hop limit; `None` if unknown (received datagrams).
    pub ttl: Option<u8>,
    /// UDP payload.
    pub payload: &'a [u8],
}

/// Hook called for each datagram on the session's thread. A slow hook delays the session.
pub struct TraceHook(Box<dyn FnMut(&PacketTrace<'_>) + Send>);

impl TraceHook {
    /// Creates a hook that runs on the thread of the session.
    pub fn new(hook: impl FnMut(&PacketTrace<'_>) + Send + 'static) -> Self {
        Self(Box::new(hook))
    }

    pub(super) fn call(&mut self, trace: &PacketTrace<'_>) {
        (self.0)(trace);
    }
}

impl fmt::Debug for TraceHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceHook")
    }
}
