//! What an agent can do while it is called.

use std::net::SocketAddr;

use headwater_proto::{Duration, Ecn, Instant, InterfaceId};

use crate::engine::core::Core;
use crate::engine::packets::PacketIndex;
use crate::engine::{Body, Destination, Outgoing, Packet};
use crate::network::{AgentId, FlowId, GroupId, LinkId, NodeId};

/// The way from an agent to the network.
#[derive(Debug)]
pub struct Outbox<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) agent: AgentId,
    pub(crate) node: NodeId,
    /// By how much the agent's clock is ahead.
    pub(crate) ahead: Duration,
    /// The packet it was just handed.
    pub(crate) received: Option<PacketIndex>,
}

/// A datagram to send, but for its payload.
#[derive(Clone, Copy, Debug)]
pub struct DatagramHead {
    /// What to count it under.
    pub flow: FlowId,
    /// Where to.
    pub destination: Destination,
    /// Bytes that headers add to the payload on the wire.
    pub header_bytes: u32,
    /// Bytes of payload, written into [`Outbox::room`].
    pub payload_bytes: usize,
    /// The ECN field to send it with.
    pub ecn: Ecn,
}

impl Outbox<'_> {
    /// The agent's clock.
    pub fn now(&self) -> Instant {
        self.core.now + self.ahead
    }

    /// Who is called.
    pub const fn agent(&self) -> AgentId {
        self.agent
    }

    /// Where it lives.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// The destination that reaches an agent.
    pub fn to(&self, agent: AgentId) -> Destination {
        self.core.destination(agent)
    }

    /// Sends a packet without bytes of its own.
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

    /// Sends the datagram written at the start of [`Self::room`] out of one interface of the node, the node's
    /// i-th link, whatever its destination; false if the node does not have it.
    pub fn send_datagram_by(&mut self, egress: InterfaceId, head: DatagramHead) -> bool {
        let Some(link) = self.core.egress(self.node, egress) else { return false };
        let index = self.create_datagram(head);
        let packet = *self.core.packets.get(index);
        self.core.offer(link, index, &packet, head.ecn);
        self.core.packets.drop_copy(index);
        true
    }

    /// Sends the packet just received out of one interface, unchanged but for its ECN field, and never
    /// copied; false if none was received, or the node does not have the interface.
    pub fn forward_by(&mut self, egress: InterfaceId, ecn: Ecn) -> bool {
        let Some(index) = self.received else { return false };
        let Some(link) = self.core.egress(self.node, egress) else { return false };
        let packet = *self.core.packets.get(index);
        self.core.offer(link, index, &packet, ecn);
        true
    }

    /// Sends the packet just received by `ingress` on its way, as if no router's program were here; false if
    /// none was.
    pub fn pass(&mut self, ingress: InterfaceId, ecn: Ecn) -> bool {
        let Some(index) = self.received else { return false };
        let ingress = self.core.egress(self.node, ingress).map(LinkId::reverse);
        self.core.packets.add_copy(index);
        self.core.depart(self.node, ingress, index, ecn);
        true
    }

    /// Sends the `payload_bytes` written at the start of [`Self::room`] in place of the datagram just
    /// received: from its sender, and to where it was going. False if none was.
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

    /// Where an agent's datagrams come from.
    pub fn address(&self, agent: AgentId) -> SocketAddr {
        self.core.address(agent)
    }

    /// Whose address it is, if anyone's.
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
