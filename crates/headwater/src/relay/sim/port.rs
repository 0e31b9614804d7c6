//! Sockets of a relay of SIM: one for each session from upstream, one for each link below.

use std::io;
use std::net::{IpAddr, SocketAddr};

use headwater_proto::control::Membership;
use headwater_proto::sim::relay::{self, Relay, UPSTREAM, below};
use headwater_proto::{ChannelId, Datagram, Input, InterfaceId};
use tracing::debug;

use super::{SimRelayError, SimRelayOptions};
use crate::driver::{END, Port, datagrams};
use crate::net::{
    AsFd, BorrowedFd, Channels, Interface, LinkChange, MembershipError, ReceiverOptions, ReceiverSocket,
    RecvBatch, Run, SendError, UnicastOptions, UnicastSocket,
};
use crate::relay::RelayPort;

/// Sockets of a relay of SIM, as the driver sees them.
#[derive(Debug)]
pub(super) struct Ports {
    /// Sockets of the sessions, by block of groups.
    above: Vec<ReceiverSocket>,
    /// Sources of the sessions, by block of groups.
    sources: Vec<Option<IpAddr>>,
    /// By number of the link below.
    links: Vec<UnicastSocket>,
    /// The socket last read, counting sessions first, so that each socket has its turn.
    last: usize,
}

impl Ports {
    pub(super) fn open(options: &SimRelayOptions) -> Result<Self, SimRelayError> {
        let upstream = options.upstream.as_deref().map(Interface::find).transpose()?;
        let above = |group: &SocketAddr| {
            let channels = Channels::new(*group, options.groups_max)?;
            let receiver = ReceiverOptions {
                interface: upstream.clone(),
                source: options.source,
                ..ReceiverOptions::default()
            };
            Ok::<_, SimRelayError>(ReceiverSocket::open(&channels, &receiver)?)
        };
        let is_ipv4 = options.groups.first().is_none_or(SocketAddr::is_ipv4);
        let link = |link: &super::SimLink| {
            let interface = Interface::find(&link.interface)?;
            let address = interface.bind_address(is_ipv4, options.port)?;
            let multicast = Some((interface, options.ttl));
            let unicast = UnicastOptions {
                multicast,
                dscp: options.dscp,
                loopback: false,
                is_bound: true,
                ..UnicastOptions::default()
            };
            Ok::<_, SimRelayError>(UnicastSocket::open(address, &unicast)?)
        };
        Ok(Self {
            above: options.groups.iter().map(above).collect::<Result<_, _>>()?,
            sources: vec![None; options.groups.len()],
            links: options.links.iter().map(link).collect::<Result<_, _>>()?,
            last: 0,
        })
    }

    /// Returns the addresses at which the links accept reports.
    pub(super) fn local_addrs(&self) -> Vec<SocketAddr> {
        self.links.iter().map(UnicastSocket::local_addr).collect()
    }

    /// Joins again the groups of an interface that came back, and groups that were refused.
    fn inspect_links(&mut self, relay: &Relay) {
        for (block, socket) in self.above.iter_mut().enumerate() {
            if let Some(change) = socket.inspect_link() {
                debug!(
                    interface = change.interface,
                    state = change.state.name(),
                    "the interface of a session changed"
                );
            }
            for rank in (1..relay.held(block))
                .map(ChannelId)
                .filter(|rank| !socket.is_joined(*rank))
                .collect::<Vec<_>>()
            {
                let _refused = socket.join(rank);
            }
        }
    }

    /// Sends reports to the sessions' senders, each by the socket of a session of that sender: the socket
    /// reads the reply. Returns the number of datagrams that the kernel refused. A lost report is sent again.
    fn send_up(&mut self, runs: &[Run<'_>]) -> Result<u64, SendError> {
        let mut unsent = 0;
        for run in runs {
            let to = Some(run.destination.ip());
            let of_sender = self.sources.iter().position(|source| *source == to).unwrap_or(0);
            unsent += match self.above.get_mut(of_sender) {
                Some(above) => Port::send(above, END, core::slice::from_ref(run))?,
                None => datagrams(core::slice::from_ref(run)),
            };
        }
        Ok(unsent)
    }

    fn link(&self, interface: InterfaceId) -> Option<usize> {
        (interface.0 as usize).checked_sub(1).filter(|link| *link < self.links.len())
    }
}

impl RelayPort<Relay> for Ports {
    /// Sets the source of each session, and joins again each second.
    fn follow(&mut self, relay: &mut Relay, is_report: bool) {
        for (block, socket) in self.above.iter_mut().enumerate() {
            self.sources[block] = relay.source(block);
            socket.expect_source(self.sources[block]);
        }
        if is_report {
            self.inspect_links(relay);
        }
    }
}

impl Port for Ports {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let links = self.links.iter().map(AsFd::as_fd);
        self.above.iter().flat_map(ReceiverSocket::fds).chain(links)
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        // One socket at a time, until a socket has datagrams: a batch has the interface of one socket.
        let sockets = self.above.len() + self.links.len();
        for _ in 0..sockets {
            self.last = (self.last + 1) % sockets;
            let count = match self.last.checked_sub(self.above.len()) {
                None => self.above[self.last].recv_all(batch)?,
                Some(link) => self.links[link].recv(batch)?,
            };
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    fn input<'a>(&self, datagram: Datagram<'a>) -> Input<'a> {
        match self.last.checked_sub(self.above.len()) {
            None => {
                let channel = datagram.channel.map(|rank| relay::channel(self.last, rank.0));
                Input::Routed(UPSTREAM, Datagram { channel, ..datagram })
            }
            Some(link) => Input::Routed(below(link), datagram),
        }
    }

    fn change(&mut self, membership: Membership) -> Result<(), MembershipError> {
        let (Membership::Join(channel) | Membership::Leave(channel)) = membership;
        let (block, rank) = relay::place(channel);
        let Some(socket) = self.above.get_mut(block) else { return Ok(()) };
        let changed = match membership {
            Membership::Join(_) => socket.join(ChannelId(rank)),
            // A group that cannot be left is gone with its interface.
            Membership::Leave(_) => return Ok(_ = socket.leave(ChannelId(rank))),
        };
        match changed {
            Err(MembershipError::Refused { attempt, group, interface, source }) if rank > 0 => {
                debug!(attempt, %group, interface, %source, "tried again each second");
                Ok(())
            }
            changed => changed,
        }
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        let (block, rank) = relay::place(channel);
        self.above.get(block)?.channels().address(ChannelId(rank))
    }

    fn local(&self, interface: InterfaceId, peer: SocketAddr) -> SocketAddr {
        match self.link(interface) {
            Some(link) => self.links[link].local_addr(),
            None => self.above.first().and_then(ReceiverSocket::asks_from).unwrap_or(peer),
        }
    }

    fn send(&mut self, egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        match self.link(egress) {
            Some(link) => Ok(self.links[link].send(runs)),
            None => self.send_up(runs),
        }
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        // `follow` joins again what the relay holds.
        None
    }
}

/// Whether all groups and the source have one IP version.
pub(super) fn is_one_family(groups: &[SocketAddr], source: Option<IpAddr>) -> bool {
    let Some(first) = groups.first() else { return true };
    groups.iter().all(|group| group.is_ipv4() == first.is_ipv4())
        && source.is_none_or(|source| source.is_ipv4() == first.is_ipv4())
}
