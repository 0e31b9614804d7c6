//! Joins and leaves. A join travels up the reverse path to the source, hop by hop, to the first node that
//! already has the group; each hop takes the link's delay and the graft delay. A leave reaches the last hop
//! in the same time. The last hop forwards for the leave latency more; then the path is pruned upward, hop by
//! hop with the same delays. A join that reaches the last hop before the latency has passed cancels the
//! leave. Membership messages are never lost.

use super::core::Core;
use super::events::{Class, Target};
use crate::network::groups::{Message, MessageKind};
use crate::network::{AgentId, GroupId, LinkId, NodeId};
use crate::trace::AgentEvent;

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
