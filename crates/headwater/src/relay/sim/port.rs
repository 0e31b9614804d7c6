//! The sockets of a relay of SIM: one for each session that comes from above, one for each link below.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use headwater_proto::sim::relay::{self, Relay, UPSTREAM, below};
use headwater_proto::{
    ChannelId, Datagram, Destination, Input, Instant, InterfaceId, Machine, Output, RouterOutput, Transmit,
};
use tracing::debug;

use super::{SimRelayError, SimRelayOptions};
use crate::clock::{Clock, elapsed};
use crate::driver::Gather;
use crate::driver::{Direction, PacketTrace, TraceHook};
use crate::net::{
    Channels, Interface, MembershipError, ReceiverOptions, ReceiverSocket, RecvBatch, Run, UnicastOptions,
    UnicastSocket,
};

/// Batches read of a socket before the relay is drained.
const BATCHES: usize = 4;

/// A link below.
#[derive(Debug)]
struct Link {
    socket: UnicastSocket,
    gather: Gather,
}

#[derive(Debug)]
pub(super) struct Ports {
    /// By block of groups.
    above: Vec<ReceiverSocket>,
    links: Vec<Link>,
    /// What the relay writes goes here first: it says only then by which link that leaves.
    room: Box<[u8]>,
    dscp: u8,
    ttl: u8,
    pub(super) unsent: u64,
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
            let socket = UnicastSocket::open(address, &unicast)?;
            Ok::<_, SimRelayError>(Link { socket, gather: Gather::new() })
        };
        Ok(Self {
            above: options.groups.iter().map(above).collect::<Result<_, _>>()?,
            links: options.links.iter().map(link).collect::<Result<_, _>>()?,
            room: vec![0; headwater_proto::DATAGRAM_BYTES_MAX].into(),
            dscp: options.dscp,
            ttl: options.ttl,
            unsent: 0,
        })
    }

    /// Where reports are taken.
    pub(super) fn local_addrs(&self) -> Vec<SocketAddr> {
        self.links.iter().map(|link| link.socket.local_addr()).collect()
    }

    /// What to wait on.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let links = self.links.iter().map(|link| link.socket.as_fd());
        self.above.iter().flat_map(ReceiverSocket::fds).chain(links)
    }

    /// Joins again what was joined on an interface that came back, or could not be joined while it was away.
    pub(super) fn inspect_links(&mut self, relay: &Relay) {
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

    /// Hands the relay what waits, each datagram at the time when it came.
    pub(super) fn receive(
        &mut self,
        relay: &mut Relay,
        batch: &mut RecvBatch,
        (clock, now): (Clock, &mut Instant),
        trace: &mut Option<TraceHook>,
    ) -> io::Result<()> {
        let mut give = |ingress,
                        batch: &RecvBatch,
                        number: &dyn Fn(ChannelId) -> ChannelId,
                        local: &dyn Fn(Option<ChannelId>) -> SocketAddr| {
            for (arrived, datagram) in batch.arrivals() {
                *now = (*now).max(clock.at(arrived));
                show(trace.as_mut(), *now, &datagram, local(datagram.channel));
                let channel = datagram.channel.map(number);
                relay.handle(*now, Input::Routed(ingress, Datagram { channel, ..datagram }));
            }
        };
        for (block, socket) in self.above.iter_mut().enumerate() {
            for _ in 0..BATCHES {
                if socket.recv(batch)? == 0 {
                    break;
                }
                let own = socket.asks_from().unwrap_or_else(|| socket.channels().base());
                let channels = *socket.channels();
                let local = |channel: Option<ChannelId>| {
                    channel.and_then(|channel| channels.address(channel)).unwrap_or(own)
                };
                give(UPSTREAM, batch, &|channel| relay::channel(block, channel.0), &local);
            }
        }
        for (number, link) in self.links.iter_mut().enumerate() {
            for _ in 0..BATCHES {
                if link.socket.recv(batch)? == 0 {
                    break;
                }
                let local = link.socket.local_addr();
                give(below(number), batch, &|channel| channel, &|_| local);
            }
        }
        Ok(())
    }

    /// Does what the relay wants done. Says whether something was sent.
    pub(super) fn drain(
        &mut self,
        relay: &mut Relay,
        now: Instant,
        trace: &mut Option<TraceHook>,
    ) -> Result<bool, MembershipError> {
        let mut has_sent = false;
        while let Some(output) = relay.poll_output(now, &mut self.room) {
            match output {
                Output::Join(channel) => self.change(relay, channel, true)?,
                Output::Leave(channel) => self.change(relay, channel, false)?,
                Output::Router(RouterOutput::Transmit { egress, transmit }) => {
                    has_sent = true;
                    self.transmit(now, egress, &transmit, trace);
                }
                Output::Transmit(_) | Output::Router(_) => {}
                Output::Event(event) => match event {},
            }
        }
        for link in &mut self.links {
            self.unsent += link.flush();
        }
        Ok(has_sent)
    }

    fn change(&mut self, relay: &Relay, channel: ChannelId, is_join: bool) -> Result<(), MembershipError> {
        let (block, rank) = relay::place(channel);
        let Some(socket) = self.above.get_mut(block) else { return Ok(()) };
        socket.expect_source(relay.source(block));
        if is_join {
            return match socket.join(ChannelId(rank)) {
                Err(MembershipError::Refused { attempt, group, interface, source }) if rank > 0 => {
                    debug!(attempt, %group, interface, %source, "tried again each second");
                    Ok(())
                }
                joined => joined,
            };
        }
        // One that cannot be left is gone with its interface.
        let _left = socket.leave(ChannelId(rank));
        Ok(())
    }

    fn transmit(
        &mut self,
        now: Instant,
        egress: InterfaceId,
        transmit: &Transmit,
        trace: &mut Option<TraceHook>,
    ) {
        let contents = &self.room[..transmit.bytes];
        let number = (egress.0 as usize).checked_sub(1);
        let destination = match transmit.destination {
            Destination::Unicast(address) => Some(address),
            Destination::Channel(channel) => group(&self.above, channel),
        };
        let Some(destination) = destination else { return };
        let link = number.and_then(|number| self.links.get_mut(number));
        if let Some(trace) = trace {
            let source = match &link {
                Some(link) => link.socket.local_addr(),
                None => self.above.first().and_then(ReceiverSocket::asks_from).unwrap_or(destination),
            };
            let (ecn, dscp, ttl) = (transmit.ecn, Some(self.dscp), Some(self.ttl));
            let (direction, elapsed) = (Direction::Sent, elapsed(now));
            trace(&PacketTrace {
                direction,
                elapsed,
                source,
                destination,
                ecn,
                dscp,
                ttl,
                payload: contents,
            });
        }
        match link {
            Some(link) => self.unsent += link.put(destination, transmit, contents),
            None => self.unsent += send_up(&mut self.above, destination, transmit, contents),
        }
    }
}

impl Link {
    fn put(&mut self, destination: SocketAddr, transmit: &Transmit, contents: &[u8]) -> u64 {
        self.gather.room()[..contents.len()].copy_from_slice(contents);
        if self.gather.put(destination, transmit.ecn, contents.len()) { 0 } else { self.flush() }
    }

    fn flush(&mut self) -> u64 {
        if self.gather.is_empty() {
            return 0;
        }
        let runs: Vec<_> = self.gather.runs().collect();
        let unsent = self.socket.send(&runs);
        self.gather.clear();
        unsent
    }
}

/// Group and port of a channel.
fn group(above: &[ReceiverSocket], channel: ChannelId) -> Option<SocketAddr> {
    let (block, rank) = relay::place(channel);
    above.get(block)?.channels().address(ChannelId(rank))
}

/// A report, or what is held, to whoever sends. What is lost is told again.
fn send_up(
    above: &mut [ReceiverSocket],
    destination: SocketAddr,
    transmit: &Transmit,
    contents: &[u8],
) -> u64 {
    let Some(socket) = above.first_mut() else { return 1 };
    let run = Run { destination, contents, segment_bytes: contents.len(), ecn: transmit.ecn };
    socket.send(&[run]).unwrap_or(1)
}

fn show(trace: Option<&mut TraceHook>, now: Instant, datagram: &Datagram<'_>, destination: SocketAddr) {
    let Some(trace) = trace else { return };
    let Datagram { source, ecn, payload, .. } = *datagram;
    let (direction, elapsed) = (Direction::Received, elapsed(now));
    trace(&PacketTrace { direction, elapsed, source, destination, ecn, dscp: None, ttl: None, payload });
}

/// The IP version of all groups.
pub(super) fn is_one_family(groups: &[SocketAddr], source: Option<IpAddr>) -> bool {
    let Some(first) = groups.first() else { return true };
    groups.iter().all(|group| group.is_ipv4() == first.is_ipv4())
        && source.is_none_or(|source| source.is_ipv4() == first.is_ipv4())
}
