//! A protocol machine at a node, unchanged: the simulator's driver.

use std::collections::VecDeque;

use headwater_proto::{
    ChannelId, Datagram, Destination as MachineDestination, Input, Instant, Machine, Outlet, Output,
    Transmit, drain,
};

use super::outbox::DatagramHead;
use super::{Agent, Arrival, Outbox};
use crate::engine::{Body, Destination};
use crate::network::{FlowId, Session};

/// Bytes of headers of a UDP datagram over IPv4.
pub const UDP_HEADER_BYTES: u32 = 28;

/// Events kept of a machine; beyond that, the oldest give way.
pub const EVENTS_MAX: usize = 1_024;

/// Connection of a machine to the network.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Flow that counts the machine's datagrams.
    pub flow: FlowId,
    /// Groups of the machine's channels.
    pub session: Session,
    /// Bytes that headers add to a datagram on the wire: [`UDP_HEADER_BYTES`], more to include link headers,
    /// or 0 where a paper counts no headers.
    pub header_bytes: u32,
}

impl Ports {
    /// Returns the destination of a machine's transmit; `None` for an unknown address, or for a channel
    /// beyond the session's.
    pub(crate) fn destination(self, outbox: &Outbox<'_>, to: MachineDestination) -> Option<Destination> {
        match to {
            MachineDestination::Channel(channel) => self.session.group(channel).map(Destination::Group),
            MachineDestination::Unicast(address) => outbox.agent_at(address).map(|agent| outbox.to(agent)),
        }
    }

    /// Returns the datagram to hand to a machine; `None` for a packet that is not a datagram, or whose group
    /// is outside the session.
    pub(crate) fn datagram<'a>(self, outbox: &Outbox<'_>, arrival: Arrival<'a>) -> Option<Datagram<'a>> {
        if arrival.packet.body != Body::Datagram {
            return None;
        }
        let channel = match arrival.packet.destination {
            Destination::Group(group) => Some(self.session.channel(group)?),
            Destination::Agent { .. } => None,
        };
        let source = outbox.address(arrival.packet.source);
        Some(Datagram { source, channel, ecn: arrival.ecn, payload: arrival.payload })
    }

    pub(crate) fn head(self, destination: Destination, transmit: Transmit) -> DatagramHead {
        DatagramHead {
            flow: self.flow,
            destination,
            header_bytes: self.header_bytes,
            payload_bytes: transmit.bytes,
            ecn: transmit.ecn,
        }
    }
}

/// Events of a hosted machine, latest last.
#[derive(Clone, Debug)]
pub struct Told<E> {
    events: VecDeque<(Instant, E)>,
    forgotten: u64,
}

impl<E> Default for Told<E> {
    fn default() -> Self {
        Self { events: VecDeque::new(), forgotten: 0 }
    }
}

impl<E> Told<E> {
    pub(crate) fn push(&mut self, at: Instant, event: E) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.forgotten += 1;
        }
        self.events.push_back((at, event));
    }

    /// Returns the last [`EVENTS_MAX`] events, each with its time by the agent's clock.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &(Instant, E)> {
        self.events.iter()
    }

    /// Number of old events dropped to make room for later events.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// Latency from joining a group to the group's first packet.
#[derive(Clone, Debug, Default)]
struct JoinTimes {
    /// Channels that were joined and have not been heard yet.
    waiting: Vec<(ChannelId, Instant)>,
    sum_seconds: f64,
    count: u64,
}

impl JoinTimes {
    fn join(&mut self, channel: ChannelId, now: Instant) {
        self.leave(channel);
        self.waiting.push((channel, now));
    }

    fn leave(&mut self, channel: ChannelId) {
        self.waiting.retain(|(waiting, _)| *waiting != channel);
    }

    fn heard(&mut self, channel: ChannelId, now: Instant) {
        let Some(index) = self.waiting.iter().position(|(waiting, _)| *waiting == channel) else { return };
        let (_, since) = self.waiting.swap_remove(index);
        self.sum_seconds += now.since(since).as_secs_f64();
        self.count += 1;
    }
}

/// A machine at a node. The driver follows the contract at the top of `headwater_proto`: after each input,
/// the outputs are drained.
#[derive(Debug)]
pub struct Hosted<M: Machine> {
    machine: M,
    ports: Ports,
    told: Told<M::Event>,
    misdirected: u64,
    joins: JoinTimes,
}

impl<M: Machine> Hosted<M> {
    /// Hosts `machine`, which must have been created for the instant at which its agent starts, by the
    /// agent's clock.
    pub fn new(machine: M, ports: Ports) -> Self {
        Self { machine, ports, told: Told::default(), misdirected: 0, joins: JoinTimes::default() }
    }

    /// The machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Events of the machine.
    pub const fn told(&self) -> &Told<M::Event> {
        &self.told
    }

    /// Number of datagrams, joins and leaves without a target: unknown addresses, or channels beyond the
    /// session's.
    pub const fn misdirected(&self) -> u64 {
        self.misdirected
    }

    /// Mean seconds from a join of a group to the group's first packet, by the agent's clock; `None` before
    /// the first such packet.
    pub fn mean_join_latency(&self) -> Option<f64> {
        (self.joins.count > 0).then(|| self.joins.sum_seconds / self.joins.count as f64)
    }

    fn give(&mut self, input: Input<'_>, outbox: &mut Outbox<'_>) {
        let now = outbox.now();
        self.machine.handle(now, input);
        let Self { machine, ports, told, misdirected, joins } = self;
        drain(machine, now, &mut HostedOutlet { ports: *ports, told, misdirected, joins, outbox });
    }
}

impl<M: Machine<Event: 'static> + 'static> Agent for Hosted<M> {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.give(Input::Timeout, outbox);
    }

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        if let Some(datagram) = self.ports.datagram(outbox, arrival) {
            if let Some(channel) = datagram.channel.filter(|_| !self.joins.waiting.is_empty()) {
                self.joins.heard(channel, outbox.now());
            }
            self.give(Input::Datagram(datagram), outbox);
        }
    }

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        self.give(Input::Timeout, outbox);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

/// Delivers a machine's outputs to the network.
struct HostedOutlet<'a, 'b, E> {
    ports: Ports,
    told: &'a mut Told<E>,
    misdirected: &'a mut u64,
    joins: &'a mut JoinTimes,
    outbox: &'a mut Outbox<'b>,
}

impl<E> HostedOutlet<'_, '_, E> {
    fn transmit(&mut self, transmit: Transmit) {
        match self.ports.destination(self.outbox, transmit.destination) {
            Some(destination) => self.outbox.send_datagram(self.ports.head(destination, transmit)),
            None => *self.misdirected += 1,
        }
    }

    fn membership(&mut self, channel: ChannelId, join: bool) {
        match self.ports.session.group(channel) {
            Some(group) if join => {
                self.joins.join(channel, self.outbox.now());
                self.outbox.join(group);
            }
            Some(group) => {
                self.joins.leave(channel);
                self.outbox.leave(group);
            }
            None => *self.misdirected += 1,
        }
    }
}

impl<E> Outlet<E> for HostedOutlet<'_, '_, E> {
    fn room(&mut self) -> &mut [u8] {
        self.outbox.room()
    }

    fn put(&mut self, output: Output<E>) {
        match output {
            Output::Transmit(transmit) => self.transmit(transmit),
            Output::Join(channel) => self.membership(channel, true),
            Output::Leave(channel) => self.membership(channel, false),
            Output::Event(event) => self.told.push(self.outbox.now(), event),
            Output::Router(_) => {}
        }
    }
}
