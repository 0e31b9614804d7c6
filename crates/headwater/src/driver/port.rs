//! A socket as a driver sees it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use headwater_proto::ChannelId;
use headwater_proto::control::Membership;
use tracing::debug;

use crate::net::{LinkChange, MembershipError, ReceiverSocket, RecvBatch, Run, SendError, SenderSocket};

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
    fn look(&mut self) -> Option<LinkChange>;
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

    fn look(&mut self) -> Option<LinkChange> {
        SenderSocket::look(self)
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

    fn look(&mut self) -> Option<LinkChange> {
        ReceiverSocket::look(self)
    }
}
