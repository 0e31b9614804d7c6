//! A socket as a driver sees it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use headwater_proto::ChannelId;
use headwater_proto::control::Membership;

use crate::net::{MembershipError, ReceiverSocket, RecvBatch, Run, SendError, SenderSocket};

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

    /// Address and port of this end.
    fn local(&self) -> SocketAddr;

    /// Sends a run and says how many of its datagrams the kernel had no room for.
    fn send(&mut self, run: &Run<'_>) -> Result<u64, SendError>;
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

    fn local(&self) -> SocketAddr {
        self.local_addr()
    }

    fn send(&mut self, run: &Run<'_>) -> Result<u64, SendError> {
        let datagrams = run.contents.len().div_ceil(run.segment_bytes.max(1)) as u64;
        let before = self.counters().datagrams;
        match SenderSocket::send(self, std::slice::from_ref(run)) {
            Ok(()) => Ok(0),
            // A full queue is congestion on this machine: packets are lost, the session goes on.
            Err(SendError::NoBuffers { .. }) => {
                Ok(datagrams.saturating_sub(self.counters().datagrams - before))
            }
            Err(error) => Err(error),
        }
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
            Membership::Leave(channel) => self.leave(channel),
        }
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.channels().address(channel)
    }

    fn local(&self) -> SocketAddr {
        self.channels().base()
    }

    fn send(&mut self, run: &Run<'_>) -> Result<u64, SendError> {
        // No receiving control has anything to say yet: its datagrams would count as unsent.
        Ok(run.contents.len().div_ceil(run.segment_bytes.max(1)) as u64)
    }
}
