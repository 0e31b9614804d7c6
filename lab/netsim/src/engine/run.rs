//! The event loop, and access to its results while it is stopped.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;

use crate::network::Loss;
use headwater_proto::{Duration, Ecn, Instant, Seed};

use super::core::{Core, DirectDelivery};
use super::events::Pending;
use super::events::{Class, Target};
use super::{Body, COPIES_MAX, Destination, PacketIndex};
use crate::agent::{Agent, Arrival, Outbox};
use crate::network::link::Queued;
use crate::network::wire::Fault;
use crate::network::{
    AgentCounters, AgentId, Change, DropCause, FlowCounters, FlowId, GroupId, LinkCounters, LinkId,
    LossFilter, Names, NodeId, Routers,
};
use crate::trace::{AgentEvent, Digest, LinkEvent, Observer};

/// An agent that leaves a timeout behind which is due already is called again this much later.
const TICK: Duration = Duration::from_nanos(1);

/// State of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started; the deadline is the start.
    Waiting,
    /// Paused before its start: the agent starts when it is resumed or at its start, whichever is later.
    Held,
    Running,
    /// Receives nothing until resumed.
    Paused,
    Stopped,
}

/// An agent and the engine's state of the agent.
pub(crate) struct AgentSlot {
    pub(crate) agent: Box<dyn Agent>,
    pub(crate) node: NodeId,
    pub(crate) state: State,
    /// Lead of the agent's clock over the simulation's.
    pub(crate) ahead: Duration,
    /// Instant of the next timeout, by the simulation's clock.
    pub(crate) deadline: Option<Instant>,
    /// Call for the last expiry at a late host. An earlier deadline has this call, too.
    pub(crate) wake: Instant,
    pub(crate) pending: Pending,
}

/// A network at work.
pub struct Run {
    pub(crate) core: Core,
    pub(crate) slots: Vec<AgentSlot>,
    pub(crate) routers: Routers,
    pub(crate) changes: Vec<(Instant, Change)>,
    pub(crate) names: Names,
    pub(crate) seed: (Seed, u64),
    /// The members that a packet is being handed to.
    pub(crate) members: Vec<AgentId>,
}

/// Resources used by a run so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Packets that crossed a link: the measure of speed.
    pub packet_hops: u64,
    /// Maximum number of packets under way; copies of a packet count once.
    pub packets_peak: usize,
    /// Packets under way now.
    pub packets_under_way: usize,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("now", &self.core.now)
            .field("agents", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl Run {
    /// Copies of packets that may be under way at once, unless [`Self::limit_copies`] says otherwise.
    pub const COPIES_MAX: usize = COPIES_MAX;

    /// Bounds the copies of packets that may be under way at once.
    pub const fn limit_copies(&mut self, most: usize) {
        self.core.packets.copies_max = most;
    }

    /// Processes events up to and including `until`, or until the run is overfull.
    pub fn run_until(&mut self, until: Instant) {
        while !self.is_overfull()
            && let Some((at, target)) = self.core.events.take(until)
        {
            debug_assert!(at >= self.core.now, "time goes on");
            self.core.now = at;
            match target {
                Target::Link(link) => self.on_link(link),
                Target::DirectDelivery(index) => self.on_delivery(index),
                Target::Membership(index) => self.core.on_membership(index),
                Target::Timer(agent) => self.on_timer(agent),
                Target::Change(index) => self.on_change(index),
                Target::Train(_) => unreachable!("the queue takes trains apart"),
            }
        }
        if !self.is_overfull() {
            self.core.now = self.core.now.max(until);
        }
    }

    /// Whether more copies of packets wait or travel than allowed. The run then stops, before it exhausts
    /// memory.
    pub const fn is_overfull(&self) -> bool {
        self.core.packets.is_overfull()
    }

    /// Current instant of the run.
    pub const fn now(&self) -> Instant {
        self.core.now
    }

    /// Returns an agent if it has type `A`.
    pub fn agent<A: Agent>(&self, agent: AgentId) -> Option<&A> {
        (&*self.slots[agent.index()].agent as &dyn Any).downcast_ref()
    }

    /// Returns the node with a host's address, if any.
    pub fn node_of(&self, host: IpAddr) -> Option<NodeId> {
        Core::node_of(host).filter(|node| node.index() < self.names.nodes.len())
    }

    /// A link's counters up to now.
    pub fn link_counters(&mut self, link: LinkId) -> LinkCounters {
        self.core.links[link.index()].counters(self.core.now).clone()
    }

    /// A flow's counters.
    pub fn flow_counters(&self, flow: FlowId) -> FlowCounters {
        self.core.flows[flow.index()]
    }

    /// Counters of a group, which is a channel of a session, over all flows that send to the group.
    pub fn group_counters(&self, group: GroupId) -> FlowCounters {
        self.core.groups_carried[group.index()]
    }

    /// Agents that are members of a group now.
    pub fn group_members(&self, group: GroupId) -> u32 {
        self.core.group_members[group.index()]
    }

    /// An agent's counters.
    pub fn agent_counters(&self, agent: AgentId) -> AgentCounters {
        self.core.agent_counters[agent.index()]
    }

    /// Resources used so far.
    pub fn usage(&self) -> Usage {
        Usage {
            packet_hops: self.core.hops,
            packets_peak: self.core.packets.peak(),
            packets_under_way: self.core.packets.under_way(),
        }
    }

    /// Names by which elements were declared.
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// Starts a digest of all events, which must precede the run; see [`Self::digest`].
    pub fn watch_digest(&mut self) {
        self.core.watchers.digest = Some(Box::new(Digest::new(&self.names)));
    }

    /// Returns the digest of all events since [`Self::watch_digest`]; `None` without an earlier call of that
    /// method. Equal traces have equal digests, in any build, on any machine, whatever the order in which
    /// independent elements were declared.
    pub fn digest(&self) -> Option<[u8; 32]> {
        self.core.watchers.digest.as_ref().map(|digest| digest.finish(&self.names))
    }

    /// Adds an observer of all further events.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.core.watchers.observers.push(observer);
    }

    /// Removes and returns the observers, so that the caller can finish each observer.
    pub fn take_observers(&mut self) -> Vec<Box<dyn Observer>> {
        std::mem::take(&mut self.core.watchers.observers)
    }
}

/// Packets.
impl Run {
    fn on_link(&mut self, link: LinkId) {
        let Some((queued, next)) = self.core.links[link.index()].arrive(self.core.now) else { return };
        if let Some(at) = next {
            self.core.events.schedule(at, Class::Arrival, Target::Link(link));
        }
        self.core.hops += 1;
        if queued.is_marked_late {
            self.core.watch_link(link, queued.packet, queued.ecn, LinkEvent::Marked);
        }
        if let Some(drop) = queued.fate {
            return self.drop_on(link, queued, drop);
        }
        if let Some(fault) = self.core.links[link.index()].wire().fault()
            && fault != Fault::default()
        {
            return self.on_fault(link, queued, fault);
        }
        self.core.watch_link(link, queued.packet, queued.ecn, LinkEvent::Delivered);
        let node = self.core.links[link.index()].to;
        match self.core.interrupt(node) {
            None => self.arrive(node, Some(link), queued.packet, queued.ecn),
            Some(at) => {
                let Queued { packet, ecn, .. } = queued;
                self.core.deliver_at(at, DirectDelivery { packet, ecn, node, ingress: Some(link) });
            }
        }
    }

    fn drop_on(&mut self, link: LinkId, queued: Queued, drop: DropCause) {
        let packet = *self.core.packets.get(queued.packet);
        self.core.count_dropped(&packet);
        self.core.watch_link(link, queued.packet, queued.ecn, LinkEvent::Dropped(drop));
        self.core.packets.drop_copy(queued.packet);
    }

    /// A packet that the wire did something to.
    fn on_fault(&mut self, link: LinkId, mut queued: Queued, fault: Fault) {
        let is_datagram = self.core.packets.get(queued.packet).body == Body::Datagram;
        if fault.damaged || (fault.changed.is_some() && !is_datagram) {
            self.core.links[link.index()].undeliver(queued.bytes);
            return self.drop_on(link, queued, DropCause::Corrupted);
        }
        if let Some(random) = fault.changed {
            queued.packet = self.core.change_bit(queued.packet, random);
        }
        self.core.watch_link(link, queued.packet, queued.ecn, LinkEvent::Delivered);
        let node = self.core.links[link.index()].to;
        let delivery = DirectDelivery { packet: queued.packet, ecn: queued.ecn, node, ingress: Some(link) };
        let at = self.core.now + fault.late_by.unwrap_or(Duration::ZERO);
        let at = self.core.interrupt(node).map_or(at, |interrupt| interrupt.max(at));
        for _ in 0..1 + usize::from(fault.doubled) {
            self.core.packets.add_copy(queued.packet);
            self.core.deliver_at(at, delivery);
        }
        self.core.packets.drop_copy(queued.packet);
    }

    fn on_delivery(&mut self, index: u32) {
        let DirectDelivery { packet, ecn, node, ingress } = self.core.take_delivery(index);
        self.arrive(node, ingress, packet, ecn);
    }

    /// Handles a copy at a node: forwards the copy, and delivers it to agents of the node. A copy without an
    /// ingress comes from an agent of the node and was forwarded already.
    fn arrive(&mut self, node: NodeId, ingress: Option<LinkId>, index: PacketIndex, ecn: Ecn) {
        let packet = *self.core.packets.get(index);
        if let Some(router) = self.routers.of(node, packet.flow).filter(|_| ingress.is_some()) {
            match packet.destination {
                Destination::Agent { agent, .. } if agent == router => {
                    self.deliver(router, ingress, index, ecn);
                }
                _ => self.hand(router, ingress, index, ecn),
            }
            return self.core.packets.drop_copy(index);
        }
        if ingress.is_some() {
            self.core.forward(node, ingress, index, &packet, ecn);
        }
        match packet.destination {
            Destination::Agent { agent, node: home } if home == node => {
                self.deliver(agent, ingress, index, ecn);
            }
            Destination::Agent { .. } => {}
            Destination::Group(group) => {
                let mut members = std::mem::take(&mut self.members);
                members.extend(self.core.groups.find(node, group).into_iter().flat_map(|b| &b.members));
                for member in members.drain(..).filter(|member| *member != packet.source) {
                    self.deliver(member, ingress, index, ecn);
                }
                self.members = members;
            }
        }
        self.core.packets.drop_copy(index);
    }

    /// Delivers a copy to the agent it is for.
    fn deliver(&mut self, agent: AgentId, ingress: Option<LinkId>, index: PacketIndex, ecn: Ecn) {
        if self.slots[agent.index()].state == State::Running {
            let packet = *self.core.packets.get(index);
            self.core.flows[packet.flow.index()].delivered(packet.wire_bytes, packet.payload_bytes);
            if let Destination::Group(group) = packet.destination {
                self.core.groups_carried[group.index()].delivered(packet.wire_bytes, packet.payload_bytes);
            }
        }
        self.hand(agent, ingress, index, ecn);
    }

    /// Hands a copy to an agent: its receiver, or a router program on the path.
    fn hand(&mut self, agent: AgentId, ingress: Option<LinkId>, index: PacketIndex, ecn: Ecn) {
        let packet = *self.core.packets.get(index);
        let counters = &mut self.core.agent_counters[agent.index()];
        if self.slots[agent.index()].state != State::Running {
            counters.missed_packets += 1;
            return;
        }
        counters.received_packets += 1;
        counters.received_wire_bytes += u64::from(packet.wire_bytes);
        counters.received_payload_bytes += u64::from(packet.payload_bytes);
        self.core.watch_agent(agent, AgentEvent::Received(&packet, ecn));
        let payload = self.core.packets.shared_payload(index);
        let ingress = ingress.map(|link| self.core.interface(link));
        let arrival = Arrival { packet: &packet, payload: &payload, ecn, ingress };
        self.call(agent, Some(index), self.core.now, |agent, outbox| agent.receive(arrival, outbox));
    }
}

/// Agents.
impl Run {
    fn on_timer(&mut self, agent: AgentId) {
        let now = self.core.now;
        let slot = &mut self.slots[agent.index()];
        if !slot.pending.fired(now) {
            return;
        }
        let due = slot.deadline.is_some_and(|deadline| deadline <= now);
        match slot.state {
            State::Waiting => {
                slot.state = State::Running;
                self.call(agent, None, now, |agent, outbox| agent.start(outbox));
            }
            State::Running if due => match self.wake(agent) {
                Some(later) => self.arm(agent, later),
                None => self.call(agent, None, now + TICK, |agent, outbox| agent.timeout(outbox)),
            },
            State::Running => self.arm(agent, now),
            State::Held | State::Paused | State::Stopped => {}
        }
    }

    /// Returns the instant of a late host's call for an expired deadline; `None` if the call is due.
    fn wake(&mut self, agent: AgentId) -> Option<Instant> {
        let slot = &mut self.slots[agent.index()];
        let host = self.core.hosts.get_mut(&slot.node)?;
        if let Some(deadline) = slot.deadline.filter(|deadline| *deadline > slot.wake) {
            slot.wake = host.wake(deadline);
        }
        Some(slot.wake).filter(|wake| *wake > self.core.now)
    }

    /// Calls a running agent, then asks for the next deadline, which is not before `earliest`.
    fn call(
        &mut self,
        id: AgentId,
        received: Option<PacketIndex>,
        earliest: Instant,
        work: impl FnOnce(&mut dyn Agent, &mut Outbox<'_>),
    ) {
        let slot = &mut self.slots[id.index()];
        let mut outbox =
            Outbox { core: &mut self.core, agent: id, node: slot.node, ahead: slot.ahead, received };
        work(&mut *slot.agent, &mut outbox);
        let ahead = slot.ahead;
        slot.deadline = slot.agent.next_timeout().map(|deadline| deadline - ahead);
        self.arm(id, earliest);
    }

    /// Makes sure that an event is pending for the agent's deadline, or for `earliest` if that is later.
    fn arm(&mut self, agent: AgentId, earliest: Instant) {
        let slot = &mut self.slots[agent.index()];
        let Some(deadline) = slot.deadline.map(|deadline| deadline.max(earliest)) else { return };
        if slot.pending.wants(deadline) {
            self.core.events.schedule(deadline, Class::Timer, Target::Timer(agent));
        }
    }

    fn on_change(&mut self, index: u32) {
        let now = self.core.now;
        let change = self.changes[index as usize].1.clone();
        match change {
            Change::Rate(link, rate) => self.core.links[link.index()].set_rate(now, rate),
            Change::Up(link) => self.core.links[link.index()].set_up(now, true, |_| {}),
            Change::Down(link) => self.cut(link),
            Change::Loss(link, loss, filter) => self.set_loss(link, loss, filter),
            Change::Stop(agent) => self.stop(agent),
            Change::Pause(agent) => self.pause(agent),
            Change::Resume(agent) => self.resume(agent),
            Change::StepClock(agent, step) => self.step_clock(agent, step),
        }
    }

    fn cut(&mut self, link: LinkId) {
        let mut lost = Vec::new();
        self.core.links[link.index()].set_up(self.core.now, false, |packet| lost.push(packet));
        for index in lost {
            let packet = *self.core.packets.get(index);
            self.core.count_dropped(&packet);
            self.core.watch_link(link, index, Ecn::NotCapable, LinkEvent::Dropped(DropCause::Down));
            self.core.packets.drop_copy(index);
        }
    }

    fn set_loss(&mut self, link: LinkId, loss: Loss, filter: LossFilter) {
        let (seed, run) = self.seed;
        let name = &self.names.links[link.index()];
        let stream = || seed.stream(&format!("link/{name}/loss"), run);
        self.core.links[link.index()].wire().set_loss(loss, filter, stream);
    }

    fn stop(&mut self, agent: AgentId) {
        let state = std::mem::replace(&mut self.slots[agent.index()].state, State::Stopped);
        if state == State::Running {
            self.call(agent, None, self.core.now, |agent, outbox| agent.stop(outbox));
        }
        self.slots[agent.index()].deadline = None;
        self.core.leave_all(agent);
    }

    fn pause(&mut self, agent: AgentId) {
        let state = &mut self.slots[agent.index()].state;
        *state = match *state {
            State::Waiting => State::Held,
            State::Running => State::Paused,
            other => other,
        };
    }

    fn resume(&mut self, agent: AgentId) {
        let state = &mut self.slots[agent.index()].state;
        *state = match *state {
            State::Held => State::Waiting,
            State::Paused => State::Running,
            _ => return,
        };
        self.arm(agent, self.core.now);
    }

    fn step_clock(&mut self, agent: AgentId, step: Duration) {
        let slot = &mut self.slots[agent.index()];
        slot.ahead = slot.ahead + step;
        if matches!(slot.state, State::Waiting | State::Held) {
            // A start goes by the simulation's clock.
            return;
        }
        slot.deadline = slot.deadline.map(|deadline| deadline - step);
        if slot.state == State::Running {
            self.arm(agent, self.core.now);
        }
    }
}
