//! Agents: traffic sources and sinks at nodes.

mod hosted;
mod pgm;
mod session;
mod tcp;
mod udp;

use std::any::Any;
use std::net::SocketAddr;

use headwater_proto::{Duration, Ecn, Instant, InterfaceId};

pub use hosted::{EVENTS_MAX, Hosted, MachineEvents, Ports, UDP_HEADER_BYTES};
pub use pgm::{Forget, GreedySource, NakAggregator};
pub use session::{ControlReceiver, ControlSender, KnownStore, Originals, Silence, ZeroSource};
pub use tcp::{
    OPEN_MAX, ShortFlows, ShortFlowsConfig, ShortFlowsSink, ShortFlowsTotals, SizeOf, TcpConnection, TcpSink,
    TcpSource,
};
pub use udp::{Cbr, OnOff, Period, Shape, Sink};

use crate::engine::PacketIndex;
use crate::engine::core::Core;
use crate::engine::{Body, Destination, Outgoing, Packet};
use crate::network::{AgentId, FlowId, GroupId, LinkId, NodeId};

/// A packet that reached an agent.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The packet.
    pub packet: &'a Packet,
    /// The UDP payload of a datagram; empty for all else.
    pub payload: &'a [u8],
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// Interface of the node through which the packet arrived: interface i is the node's i-th link. `None`
    /// for a packet from an agent of the same node.
    pub ingress: Option<InterfaceId>,
}

/// Something at a node that sends and receives: traffic, a hosted machine, a router's program.
///
/// All times are the agent's own clock's, which a plan may set off from the simulation's.
pub trait Agent: Any {
    /// The agent's time has come. Called once, before anything else.
    fn start(&mut self, outbox: &mut Outbox<'_>);

    /// A packet arrived.
    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>);

    /// The instant of [`Self::next_timeout`] has come. The engine may also call at another instant; the agent
    /// then does nothing.
    fn timeout(&mut self, outbox: &mut Outbox<'_>);

    /// Returns the instant of the next call of [`Self::timeout`]; `None` for never. The engine asks after
    /// every call. If the instant is past, the call comes at once; directly after a timeout, the call comes a
    /// nanosecond later, so that time advances.
    fn next_timeout(&self) -> Option<Instant>;

    /// The agent is removed. No further call follows, and the engine leaves the agent's groups.
    fn stop(&mut self, _outbox: &mut Outbox<'_>) {}
}

/// The way from an agent to the network.
#[derive(Debug)]
pub struct Outbox<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) agent: AgentId,
    pub(crate) node: NodeId,
    /// Lead of the agent's clock over the simulation's.
    pub(crate) ahead: Duration,
    /// Packet that the agent is handling, if any.
    pub(crate) received: Option<PacketIndex>,
}

/// A datagram to send, without its payload.
#[derive(Clone, Copy, Debug)]
pub struct DatagramHead {
    /// Flow that counts the datagram.
    pub flow: FlowId,
    /// Destination of the datagram.
    pub destination: Destination,
    /// Bytes that headers add to the payload on the wire.
    pub header_bytes: u32,
    /// Bytes of payload, written into [`Outbox::room`].
    pub payload_bytes: usize,
    /// ECN field to send.
    pub ecn: Ecn,
}

impl Outbox<'_> {
    /// The agent's clock.
    pub fn now(&self) -> Instant {
        self.core.now + self.ahead
    }

    /// Agent that is being called.
    pub const fn agent(&self) -> AgentId {
        self.agent
    }

    /// Node of the agent.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// The destination that reaches an agent.
    pub fn to(&self, agent: AgentId) -> Destination {
        self.core.destination(agent)
    }

    /// Sends a packet without a payload buffer.
    pub fn send(&mut self, packet: Outgoing) {
        let index = self.core.create(self.agent, packet, 0);
        self.core.depart(self.node, None, index, packet.ecn);
    }

    /// Room for the next datagram, [`headwater_proto::DATAGRAM_BYTES_MAX`] bytes.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.core.room
    }

    /// Sends the datagram written at the start of [`Self::room`].
    pub fn send_datagram(&mut self, head: DatagramHead) {
        let index = self.create_datagram(head);
        self.core.depart(self.node, None, index, head.ecn);
    }

    /// Sends the datagram at the start of [`Self::room`] through one interface of the node, the node's i-th
    /// link, whatever the destination. Returns false if the node has no such interface.
    pub fn send_datagram_by(&mut self, egress: InterfaceId, head: DatagramHead) -> bool {
        let Some(link) = self.core.egress(self.node, egress) else { return false };
        let index = self.create_datagram(head);
        let packet = *self.core.packets.get(index);
        self.core.offer(link, index, &packet, head.ecn);
        self.core.packets.drop_copy(index);
        true
    }

    /// Forwards the packet just received through one interface, without a copy and unchanged except for the
    /// ECN field. Returns false if no packet was received, or if the node has no such interface.
    pub fn forward_by(&mut self, egress: InterfaceId, ecn: Ecn) -> bool {
        let Some(index) = self.received else { return false };
        let Some(link) = self.core.egress(self.node, egress) else { return false };
        let packet = *self.core.packets.get(index);
        self.core.offer(link, index, &packet, ecn);
        true
    }

    /// Forwards the packet just received through `ingress` as a node without a router program would. Returns
    /// false if no packet was received.
    pub fn pass(&mut self, ingress: InterfaceId, ecn: Ecn) -> bool {
        let Some(index) = self.received else { return false };
        let ingress = self.core.egress(self.node, ingress).map(LinkId::reverse);
        self.core.packets.add_copy(index);
        self.core.depart(self.node, ingress, index, ecn);
        true
    }

    /// Replaces the payload of the datagram just received by the `payload_bytes` at the start of
    /// [`Self::room`], and sends the result with the same source and destination. Returns false if no packet
    /// was received.
    pub fn rewrite(&mut self, payload_bytes: usize, ecn: Ecn) -> bool {
        let Some(index) = self.received else { return false };
        let Packet { flow, source, destination, wire_bytes, payload_bytes: before, body, .. } =
            *self.core.packets.get(index);
        let bytes = u32::try_from(payload_bytes.min(self.core.room.len())).unwrap_or(u32::MAX);
        let wire_bytes = wire_bytes.saturating_sub(before).saturating_add(bytes);
        let packet = Outgoing { flow, destination, wire_bytes, payload_bytes: bytes, ecn, body };
        let index = self.core.create(source, packet, payload_bytes);
        self.core.depart(self.node, None, index, ecn);
        true
    }

    /// Joins a group.
    pub fn join(&mut self, group: GroupId) {
        self.core.join(self.agent, group);
    }

    /// Leaves a group.
    pub fn leave(&mut self, group: GroupId) {
        self.core.leave(self.agent, group);
    }

    /// Source address of an agent's datagrams.
    pub fn address(&self, agent: AgentId) -> SocketAddr {
        self.core.address(agent)
    }

    /// Returns the agent at `address`, if any.
    pub fn agent_at(&self, address: SocketAddr) -> Option<AgentId> {
        self.core.agent_at(address)
    }

    fn create_datagram(&mut self, head: DatagramHead) -> PacketIndex {
        let payload_bytes = head.payload_bytes.min(self.core.room.len());
        let bytes = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
        let packet = Outgoing {
            flow: head.flow,
            destination: head.destination,
            wire_bytes: bytes.saturating_add(head.header_bytes),
            payload_bytes: bytes,
            ecn: head.ecn,
            body: Body::Datagram,
        };
        self.core.create(self.agent, packet, payload_bytes)
    }
}
