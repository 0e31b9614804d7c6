//! State of source-specific groups at each node: the links to forward to, and the agents that are members.

use super::{AgentId, GroupId, LinkId, NodeId};

/// A link that a node forwards a group to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Downstream {
    pub(crate) link: LinkId,
    /// Number of the pending leave that the far end announced, or 0.
    pub(crate) leaving: u32,
}

/// A node's part of a group's tree.
#[derive(Debug, Default)]
pub(crate) struct Branch {
    /// In the order of links, so that copies leave in the same order whatever the order of joins.
    pub(crate) downstream: Vec<Downstream>,
    /// Members in the order of agents.
    pub(crate) members: Vec<AgentId>,
    /// Whether the node has joined the group at its neighbour towards the source.
    pub(crate) joined: bool,
}

impl Branch {
    /// Whether the node has neither members nor downstream links.
    pub(crate) fn is_idle(&self) -> bool {
        self.members.is_empty() && self.downstream.is_empty()
    }

    /// Forwards to `link` and cancels a pending leave. Returns false if the node already forwards there.
    pub(crate) fn graft(&mut self, link: LinkId) -> bool {
        match self.downstream.binary_search_by_key(&link, |entry| entry.link) {
            Ok(index) => {
                self.downstream[index].leaving = 0;
                false
            }
            Err(index) => {
                self.downstream.insert(index, Downstream { link, leaving: 0 });
                true
            }
        }
    }

    /// Returns the entry of a link, if any.
    pub(crate) fn find(&mut self, link: LinkId) -> Option<&mut Downstream> {
        let index = self.downstream.binary_search_by_key(&link, |entry| entry.link).ok()?;
        Some(&mut self.downstream[index])
    }

    pub(crate) fn remove(&mut self, link: LinkId) {
        self.downstream.retain(|entry| entry.link != link);
    }

    /// Adds a member; false for an existing member.
    pub(crate) fn add(&mut self, agent: AgentId) -> bool {
        let Err(index) = self.members.binary_search(&agent) else { return false };
        self.members.insert(index, agent);
        true
    }

    /// Removes a member; false for a non-member.
    pub(crate) fn remove_member(&mut self, agent: AgentId) -> bool {
        let Ok(index) = self.members.binary_search(&agent) else { return false };
        self.members.remove(index);
        true
    }
}

/// A message between neighbours about a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Receiver of the message.
    pub(crate) node: NodeId,
    pub(crate) group: GroupId,
    /// Link from the receiver of the message to its sender.
    pub(crate) link: LinkId,
    pub(crate) kind: MessageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Forward the group to the link.
    Graft,
    /// The last member at the link's far end has left: forward until the leave latency has passed.
    Leave,
    /// A router at the link's far end needs the group no more: stop at once.
    Prune,
    /// The node's own note: the leave of this number has run out.
    Expiry(u32),
}

/// All groups and branches. A branch is never removed: nodes times groups bounds the number of branches.
#[derive(Debug)]
pub(crate) struct Groups {
    /// By group: node of the source.
    sources: Vec<NodeId>,
    /// By node: the groups with a branch there, in order, each with the index of the branch.
    known: Vec<Vec<(GroupId, u32)>>,
    branches: Vec<Branch>,
    messages: Vec<Message>,
    free_messages: Vec<u32>,
    pub(crate) leaves: u32,
}

impl Groups {
    pub(crate) fn new(sources: Vec<NodeId>, nodes: usize) -> Self {
        Self {
            sources,
            known: vec![Vec::new(); nodes],
            branches: Vec::new(),
            messages: Vec::new(),
            free_messages: Vec::new(),
            leaves: 0,
        }
    }

    pub(crate) fn source(&self, group: GroupId) -> NodeId {
        self.sources[group.index()]
    }

    /// Returns a node's branch, if the node has ever had a branch of the group.
    pub(crate) fn find(&self, node: NodeId, group: GroupId) -> Option<&Branch> {
        let known = &self.known[node.index()];
        let index = known.binary_search_by_key(&group, |(group, _)| *group).ok()?;
        Some(&self.branches[known[index].1 as usize])
    }

    /// Lends out where a node forwards a group to, while copies are made; [`Self::give_back`] must follow.
    pub(crate) fn lend(&mut self, node: NodeId, group: GroupId) -> Option<(u32, Vec<Downstream>)> {
        let known = &self.known[node.index()];
        let branch = known[known.binary_search_by_key(&group, |(group, _)| *group).ok()?].1;
        Some((branch, std::mem::take(&mut self.branches[branch as usize].downstream)))
    }

    pub(crate) fn give_back(&mut self, branch: u32, downstream: Vec<Downstream>) {
        self.branches[branch as usize].downstream = downstream;
    }

    /// A node's branch, made if need be.
    pub(crate) fn branch(&mut self, node: NodeId, group: GroupId) -> &mut Branch {
        let known = &mut self.known[node.index()];
        let branch = match known.binary_search_by_key(&group, |(group, _)| *group) {
            Ok(index) => known[index].1,
            Err(index) => {
                self.branches.push(Branch::default());
                let branch = u32::try_from(self.branches.len() - 1).expect("fewer than 2^32 branches");
                known.insert(index, (group, branch));
                branch
            }
        };
        &mut self.branches[branch as usize]
    }

    /// The groups that an agent at `node` is a member of.
    pub(crate) fn of_member(&self, node: NodeId, agent: AgentId) -> Vec<GroupId> {
        let is_member = |branch: u32| self.branches[branch as usize].members.contains(&agent);
        self.known[node.index()]
            .iter()
            .filter(|(_, branch)| is_member(*branch))
            .map(|(group, _)| *group)
            .collect()
    }

    pub(crate) fn put(&mut self, message: Message) -> u32 {
        if let Some(index) = self.free_messages.pop() {
            self.messages[index as usize] = message;
            return index;
        }
        self.messages.push(message);
        u32::try_from(self.messages.len() - 1).expect("fewer than 2^32 messages under way")
    }

    pub(crate) fn take(&mut self, index: u32) -> Message {
        self.free_messages.push(index);
        self.messages[index as usize]
    }
}
