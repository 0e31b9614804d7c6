//! State of a run without the agents: the part that an agent works on while it is called.
//!
//! Joins and leaves. A join travels up the reverse path to the source, hop by hop, to the first node that
//! already has the group; each hop takes the link's delay and the graft delay. A leave reaches the last hop
//! in the same time. The last hop forwards for the leave latency more; then the path is pruned upward, hop by
//! hop with the same delays. A join that reaches the last hop before the latency has passed cancels the
//! leave. Membership messages are never lost.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use headwater_proto::{DATAGRAM_BYTES_MAX, Duration, Ecn, Instant, InterfaceId};

use super::events::{Class, EventQueue, Target};
use super::{Body, Destination, Packet, PacketIndex, Packets};
use crate::network::host::Host;
use crate::network::link::{Admission, Link};
use crate::network::routing::{Groups, Message, MessageKind};
use crate::network::routing::{Routing, Topology};
use crate::network::{AgentCounters, AgentId, FlowCounters, FlowId, GroupId, LinkId, NodeId};
use crate::trace::{AgentEvent, LinkEvent, OnLink, Watchers};

/// Port of the first agent at a node; further agents use the following ports.
const FIRST_PORT: u16 = 10_000;
/// 10.0.0.1, the address of node 0; node n has the n-th address after it.
const FIRST_HOST: u32 = 0x0A00_0001;

/// A packet outside a link: on its way to another agent at the same node, or delayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectDelivery {
    pub(crate) packet: PacketIndex,
    pub(crate) ecn: Ecn,
    pub(crate) node: NodeId,
    /// Link through which the packet came; `None` for a packet to agents at its own node only.
    pub(crate) ingress: Option<LinkId>,
}

/// Location of an agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) node: NodeId,
    pub(crate) port: u16,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) now: Instant,
    pub(crate) events: EventQueue,
    pub(crate) packets: Packets,
    pub(crate) links: Vec<Link>,
    pub(crate) topology: Topology,
    pub(crate) routing: Routing,
    pub(crate) groups: Groups,
    /// Delay of a membership message at each hop, in addition to the link's delay.
    pub(crate) graft_delay: Duration,
    /// Time for which the last hop continues to forward after a leave.
    pub(crate) leave_latency: Duration,
    pub(crate) flows: Vec<FlowCounters>,
    /// By group, over all flows.
    pub(crate) groups_carried: Vec<FlowCounters>,
    /// By group: agents that are members.
    pub(crate) group_members: Vec<u32>,
    pub(crate) homes: Vec<Home>,
    pub(crate) agent_counters: Vec<AgentCounters>,
    /// By node: the node's agents, in the order of ports.
    pub(crate) agents_at: Vec<Vec<AgentId>>,
    /// Nodes that are late.
    pub(crate) hosts: BTreeMap<NodeId, Host>,
    pub(crate) deliveries: Vec<DirectDelivery>,
    pub(crate) free_deliveries: Vec<u32>,
    pub(crate) hops: u64,
    /// Buffer into which machines write datagrams.
    pub(crate) room: Box<[u8]>,
    pub(crate) watchers: Watchers,
}

/// A packet as described by its sender.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Flow that counts the packet.
    pub flow: FlowId,
    /// Destination of the packet.
    pub destination: Destination,
    /// Bytes on the wire, headers included.
    pub wire_bytes: u32,
    /// Bytes without headers.
    pub payload_bytes: u32,
    /// ECN field to send.
    pub ecn: Ecn,
    /// Content of the packet.
    pub body: Body,
}

impl Core {
    pub(crate) fn room_for_datagrams() -> Box<[u8]> {
        vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice()
    }

    /// Counts and stores a packet with a single copy, which the caller owns.
    pub(crate) fn create(&mut self, source: AgentId, packet: Outgoing, payload_bytes: usize) -> PacketIndex {
        let flow = &mut self.flows[packet.flow.index()];
        let sequence = flow.sent_packets;
        flow.sent(packet.wire_bytes, packet.payload_bytes);
        if let Destination::Group(group) = packet.destination {
            self.groups_carried[group.index()].sent(packet.wire_bytes, packet.payload_bytes);
        }
        let packet = Packet {
            flow: packet.flow,
            source,
            destination: packet.destination,
            wire_bytes: packet.wire_bytes,
            payload_bytes: packet.payload_bytes,
            sequence,
            sent_at: self.now,
            body: packet.body,
        };
        self.packets.insert(packet, &self.room[..payload_bytes])
    }

    /// Sends a copy from `node`: on behalf of its sender, or of a router program that received the packet
    /// through `ingress`.
    pub(crate) fn depart(&mut self, node: NodeId, ingress: Option<LinkId>, index: PacketIndex, ecn: Ecn) {
        let packet = *self.packets.get(index);
        let is_local = match packet.destination {
            Destination::Agent { node: home, .. } => home == node,
            Destination::Group(group) => {
                self.groups.find(node, group).is_some_and(|branch| !branch.members.is_empty())
            }
        };
        if is_local {
            self.packets.add_copy(index);
            self.deliver_at(self.now, DirectDelivery { packet: index, ecn, node, ingress: None });
        }
        self.forward(node, ingress, index, &packet, ecn);
        self.packets.drop_copy(index);
    }

    /// Puts copies of a packet on the links that lead on from `node`; the caller keeps its own copy.
    pub(crate) fn forward(
        &mut self,
        node: NodeId,
        ingress: Option<LinkId>,
        index: PacketIndex,
        packet: &Packet,
        ecn: Ecn,
    ) {
        match packet.destination {
            Destination::Agent { node: home, .. } if home == node => {}
            Destination::Agent { node: home, .. } => {
                let link = self.routing.next(&self.topology, node, home);
                self.offer(link, index, packet, ecn);
            }
            Destination::Group(group) => {
                let back = ingress.map(LinkId::reverse);
                let Some((branch, downstream)) = self.groups.lend(node, group) else { return };
                for entry in downstream.iter().filter(|entry| Some(entry.link) != back) {
                    self.offer(entry.link, index, packet, ecn);
                }
                self.groups.give_back(branch, downstream);
            }
        }
    }

    /// Offers a copy of a packet to a link.
    pub(crate) fn offer(&mut self, link: LinkId, index: PacketIndex, packet: &Packet, ecn: Ecn) {
        let is_data = packet.payload_bytes > 0;
        let group = match packet.destination {
            Destination::Group(group) => Some(group.number()),
            Destination::Agent { .. } => None,
        };
        let link_now = &mut self.links[link.index()];
        let admission = link_now.offer(self.now, index, packet.wire_bytes, is_data, (group, ecn));
        match admission {
            Admission::Taken { arrival, marked } => {
                self.packets.add_copy(index);
                if let Some(at) = arrival {
                    self.events.schedule(at, Class::Arrival, Target::Link(link));
                }
                if marked {
                    self.watch_link(link, index, ecn, LinkEvent::Marked);
                }
                self.watch_link(link, index, ecn, LinkEvent::Taken);
            }
            Admission::Dropped(drop) => {
                self.count_dropped(packet);
                self.watch_link(link, index, ecn, LinkEvent::Dropped(drop));
            }
        }
    }

    /// A copy of a packet was dropped or lost.
    pub(crate) fn count_dropped(&mut self, packet: &Packet) {
        self.flows[packet.flow.index()].dropped_packets += 1;
        if let Destination::Group(group) = packet.destination {
            self.groups_carried[group.index()].dropped_packets += 1;
        }
    }

    /// Schedules the arrival of a copy outside a link. The delivery owns the copy.
    pub(crate) fn deliver_at(&mut self, at: Instant, delivery: DirectDelivery) {
        let index = if let Some(index) = self.free_deliveries.pop() {
            self.deliveries[index as usize] = delivery;
            index
        } else {
            self.deliveries.push(delivery);
            u32::try_from(self.deliveries.len() - 1).expect("fewer than 2^32 packets under way")
        };
        self.events.schedule(at, Class::Arrival, Target::DirectDelivery(index));
    }

    /// Returns the interrupt that hands over a packet that arrives at `node` now; `None` at once.
    #[inline]
    pub(crate) fn interrupt(&mut self, node: NodeId) -> Option<Instant> {
        if self.hosts.is_empty() {
            return None;
        }
        self.hosts.get_mut(&node).map(|host| host.interrupt(self.now))
    }

    pub(crate) fn take_delivery(&mut self, index: u32) -> DirectDelivery {
        self.free_deliveries.push(index);
        self.deliveries[index as usize]
    }

    #[inline]
    pub(crate) fn watch_link(&mut self, link: LinkId, index: PacketIndex, ecn: Ecn, event: LinkEvent) {
        if self.watchers.any() {
            let packet = self.packets.get(index);
            let payload = self.packets.payload(index);
            self.watchers.on_link(self.now, &OnLink { link, event, packet, payload, ecn });
        }
    }

    #[inline]
    pub(crate) fn watch_agent(&mut self, agent: AgentId, event: AgentEvent<'_>) {
        if self.watchers.any() {
            self.watchers.on_agent(self.now, agent, event);
        }
    }

    /// Source address of an agent's datagrams: the node's host, and a port from 10000.
    pub(crate) fn address(&self, agent: AgentId) -> SocketAddr {
        let home = self.homes[agent.index()];
        SocketAddr::new(Self::host(home.node), home.port)
    }

    /// The address of a node's host.
    pub(crate) const fn host(node: NodeId) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(FIRST_HOST + node.0))
    }

    /// The node of a host.
    pub(crate) fn node_of(host: IpAddr) -> Option<NodeId> {
        let IpAddr::V4(host) = host else { return None };
        host.to_bits().checked_sub(FIRST_HOST).map(NodeId)
    }

    /// Returns the agent at `address`, if any.
    pub(crate) fn agent_at(&self, address: SocketAddr) -> Option<AgentId> {
        let node = Self::node_of(address.ip())?;
        let place = address.port().checked_sub(FIRST_PORT)?;
        self.agents_at.get(node.index())?.get(usize::from(place)).copied()
    }

    /// Number of agent ports per node.
    pub(crate) const PORTS: usize = (u16::MAX - FIRST_PORT) as usize + 1;

    /// Port of a node's next agent, if a port is left.
    pub(crate) fn port(earlier: usize) -> Option<u16> {
        FIRST_PORT.checked_add(u16::try_from(earlier).ok()?)
    }

    pub(crate) fn destination(&self, agent: AgentId) -> Destination {
        Destination::Agent { agent, node: self.homes[agent.index()].node }
    }

    /// Replaces a copy by a copy of a new packet that differs in a single bit.
    pub(crate) fn change_bit(&mut self, index: PacketIndex, random: u64) -> PacketIndex {
        let changed = self.packets.with_changed_bit(index, random);
        self.packets.drop_copy(index);
        changed
    }

    /// The interface of the node at a link's far end that the link comes in by.
    pub(crate) fn interface(&self, link: LinkId) -> InterfaceId {
        InterfaceId(self.topology.position[link.reverse().index()])
    }

    /// The link that a node's interface leads out by.
    pub(crate) fn egress(&self, node: NodeId, interface: InterfaceId) -> Option<LinkId> {
        self.topology.interfaces[node.index()].get(interface.0 as usize).copied()
    }
}

impl Core {
    /// An agent joins a group. No effect for a member.
    pub(crate) fn join(&mut self, agent: AgentId, group: GroupId) {
        let node = self.homes[agent.index()].node;
        if self.groups.branch(node, group).add(agent) {
            self.agent_counters[agent.index()].joins += 1;
            self.group_members[group.index()] += 1;
            self.watch_agent(agent, AgentEvent::Joined(group));
            self.graft(node, group);
        }
    }

    /// An agent leaves a group. No effect for a non-member.
    pub(crate) fn leave(&mut self, agent: AgentId, group: GroupId) {
        let node = self.homes[agent.index()].node;
        if self.groups.branch(node, group).remove_member(agent) {
            self.agent_counters[agent.index()].leaves += 1;
            self.group_members[group.index()] -= 1;
            self.watch_agent(agent, AgentEvent::Left(group));
            self.withdraw(node, group, MessageKind::Leave);
        }
    }

    /// An agent leaves all groups.
    pub(crate) fn leave_all(&mut self, agent: AgentId) {
        let node = self.homes[agent.index()].node;
        for group in self.groups.of_member(node, agent) {
            self.leave(agent, group);
        }
    }

    /// A message about a group has arrived, or a leave has run out.
    pub(crate) fn on_membership(&mut self, index: u32) {
        let Message { node, group, link, kind } = self.groups.take(index);
        match kind {
            MessageKind::Graft => {
                if self.groups.branch(node, group).graft(link) {
                    self.links[link.index()].membership(group.number(), true);
                }
                self.graft(node, group);
            }
            MessageKind::Leave => self.begin_leave(node, group, link),
            MessageKind::Prune => self.stop_forwarding(node, group, link),
            MessageKind::Expiry(number) => {
                let entry = self.groups.branch(node, group).find(link);
                if entry.is_some_and(|entry| entry.leaving == number) {
                    self.stop_forwarding(node, group, link);
                }
            }
        }
    }

    fn begin_leave(&mut self, node: NodeId, group: GroupId, link: LinkId) {
        // 0 means "not leaving".
        self.groups.leaves = self.groups.leaves.wrapping_add(1).max(1);
        let number = self.groups.leaves;
        if let Some(entry) = self.groups.branch(node, group).find(link) {
            entry.leaving = number;
            let message = Message { node, group, link, kind: MessageKind::Expiry(number) };
            let at = self.now + self.leave_latency;
            let index = self.groups.put(message);
            self.events.schedule(at, Class::Arrival, Target::Membership(index));
        }
    }

    fn stop_forwarding(&mut self, node: NodeId, group: GroupId, link: LinkId) {
        self.groups.branch(node, group).remove(link);
        self.links[link.index()].membership(group.number(), false);
        self.withdraw(node, group, MessageKind::Prune);
    }

    /// Asks for the group upstream, unless that was done.
    fn graft(&mut self, node: NodeId, group: GroupId) {
        let source = self.groups.source(group);
        let branch = self.groups.branch(node, group);
        if node != source && !branch.joined {
            branch.joined = true;
            self.tell_upstream(node, group, MessageKind::Graft);
        }
    }

    /// Tells the node upstream if the group is no longer needed.
    fn withdraw(&mut self, node: NodeId, group: GroupId, kind: MessageKind) {
        let branch = self.groups.branch(node, group);
        if branch.joined && branch.is_idle() {
            branch.joined = false;
            self.tell_upstream(node, group, kind);
        }
    }

    fn tell_upstream(&mut self, node: NodeId, group: GroupId, kind: MessageKind) {
        let up = self.routing.next(&self.topology, node, self.groups.source(group));
        let upstream = self.topology.to[up.index()];
        let link = &self.links[up.index()];
        let at = self.now + link.delay() + link.graft_delay.unwrap_or(self.graft_delay);
        let index = self.groups.put(Message { node: upstream, group, link: up.reverse(), kind });
        self.events.schedule(at, Class::Arrival, Target::Membership(index));
    }
}
