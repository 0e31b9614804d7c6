//! Sockets of a relay of AMT: the gateways', and the groups'.

use std::io;
use std::net::SocketAddr;

use headwater_proto::amt::{Relay, native, tunnel};
use headwater_proto::control::Membership;
use headwater_proto::{ChannelId, Datagram, Input, InterfaceId};

use crate::driver::{Port, datagrams};
use crate::net::{
    AsFd, BorrowedFd, GroupsSocket, LinkChange, MembershipError, RecvBatch, Run, SendError, UnicastSocket,
};
use crate::relay::RelayPort;

/// Sockets of a relay of AMT, as the driver sees them.
#[derive(Debug)]
pub(super) struct AmtPorts {
    /// Sockets for gateways, by address.
    tunnels: Vec<UnicastSocket>,
    groups: GroupsSocket,
    /// The socket last read, counting the groups last, so that each socket has its turn.
    last: usize,
}

impl AmtPorts {
    /// Creates the ports of at least one socket for gateways.
    pub(super) const fn new(tunnels: Vec<UnicastSocket>, groups: GroupsSocket) -> Self {
        Self { tunnels, groups, last: 0 }
    }

    fn tunnel(&self, interface: InterfaceId) -> Option<usize> {
        (0..self.tunnels.len()).find(|index| tunnel(*index) == interface)
    }

    pub(super) fn local_addrs(&self) -> Vec<SocketAddr> {
        self.tunnels.iter().map(UnicastSocket::local_addr).collect()
    }
}

impl RelayPort<Relay> for AmtPorts {
    /// Joins and leaves groups as the relay has it, and joins refused groups again each second.
    fn follow(&mut self, relay: &mut Relay, is_report: bool) {
        while let Some(native) = relay.poll_native() {
            if native.is_join {
                self.groups.join(native.channel, native.group, native.source);
            } else {
                self.groups.leave(native.group, native.source);
            }
        }
        if is_report {
            self.groups.inspect();
        }
    }
}

impl Port for AmtPorts {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tunnels.iter().map(AsFd::as_fd).chain(self.groups.fds())
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        for _ in 0..=self.tunnels.len() {
            self.last = (self.last + 1) % (self.tunnels.len() + 1);
            let count = match self.tunnels.get_mut(self.last) {
                Some(tunnel) => tunnel.recv(batch)?,
                None => self.groups.recv(batch)?,
            };
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    fn input<'a>(&self, datagram: Datagram<'a>) -> Input<'a> {
        let is_tunnel = self.last < self.tunnels.len();
        let ingress = if is_tunnel { tunnel(self.last) } else { native(self.groups.port()) };
        Input::Routed(ingress, datagram)
    }

    fn change(&mut self, _membership: Membership) -> Result<(), MembershipError> {
        // The relay's memberships name sources: see `follow`.
        Ok(())
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.groups.address(channel)
    }

    fn local(&self, interface: InterfaceId, peer: SocketAddr) -> SocketAddr {
        self.tunnel(interface).map_or(peer, |index| self.tunnels[index].local_addr())
    }

    fn send(&mut self, egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        match self.tunnel(egress) {
            Some(index) => Ok(self.tunnels[index].send(runs)),
            None => Ok(datagrams(runs)),
        }
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        // `follow` joins again what the relay has joined.
        None
    }
}
