//! Sockets of a relay of AMT: the gateways', and the groups'.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use headwater_proto::amt::{Relay, TUNNELS, native};
use headwater_proto::control::Membership;
use headwater_proto::{ChannelId, Datagram, Input, InterfaceId};

use crate::driver::{Port, UnicastPort};
use crate::net::{GroupsSocket, LinkChange, MembershipError, RecvBatch, Run, SendError, UnicastSocket};
use crate::relay::RelayPort;

/// Sockets of a relay of AMT, as the driver sees them.
#[derive(Debug)]
pub(super) struct AmtPorts {
    tunnels: UnicastPort,
    groups: GroupsSocket,
    /// Whether the groups were read last; the two take turns.
    is_groups_turn: bool,
}

impl AmtPorts {
    /// Creates the ports of at least one socket for gateways.
    pub(super) const fn new(tunnels: Vec<UnicastSocket>, groups: GroupsSocket) -> Self {
        Self { tunnels: UnicastPort::new(tunnels, None), groups, is_groups_turn: false }
    }

    pub(super) fn local_addrs(&self) -> Vec<SocketAddr> {
        self.tunnels.local_addrs()
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
        self.tunnels.fds().chain(self.groups.fds())
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        for _ in 0..2 {
            self.is_groups_turn = !self.is_groups_turn;
            let count =
                if self.is_groups_turn { self.groups.recv(batch)? } else { self.tunnels.receive(batch)? };
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    fn input<'a>(&self, datagram: Datagram<'a>) -> Input<'a> {
        let ingress = if self.is_groups_turn { native(self.groups.port()) } else { TUNNELS };
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
        self.tunnels.local(interface, peer)
    }

    fn send(&mut self, egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        self.tunnels.send(egress, runs)
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        // `follow` joins again what the relay has joined.
        None
    }
}
