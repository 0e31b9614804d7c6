//! Shortest paths: least sum of link delays, then fewest hops, then lowest link.
//!
//! Routes do not change when a link goes down. A tree has a single path between two nodes; the next hop is
//! found from intervals of a depth-first walk, so that memory and set-up are linear. In any other graph, a
//! table is computed for a destination on first use; a node with a single link is reached through its
//! neighbour and has no table.
//!
//! Groups: state at each node, the links to forward to, and the agents that are members.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_proto::Duration;

use super::{AgentId, GroupId, LinkId, NodeId};

const NO_LINK: LinkId = LinkId(u32::MAX);

/// Nodes and links as a graph.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    /// By node: outgoing links, in the order of declaration.
    pub(crate) interfaces: Vec<Vec<LinkId>>,
    /// By link: position among the interfaces of the node that the link leaves.
    pub(crate) position: Vec<u32>,
    /// By link: node at the far end.
    pub(crate) to: Vec<NodeId>,
    /// By link: propagation delay.
    pub(crate) delay: Vec<Duration>,
}

impl Topology {
    fn nodes(&self) -> usize {
        self.interfaces.len()
    }

    /// Returns a node that cannot be reached from node 0, if any.
    pub(crate) fn unreachable(&self) -> Option<NodeId> {
        let walk = Walk::new(self);
        walk.enter.iter().position(|enter| *enter == UNSEEN).map(node)
    }
}

fn node(index: usize) -> NodeId {
    NodeId(u32::try_from(index).expect("fewer than 2^32 nodes"))
}

/// Next hops.
#[derive(Debug)]
pub(crate) enum Routing {
    Tree(Tree),
    Graph(Graph),
}

impl Routing {
    /// Routes of a connected topology.
    pub(crate) fn new(topology: &Topology) -> Self {
        if topology.to.len() / 2 + 1 == topology.nodes() {
            Self::Tree(Tree::new(topology))
        } else {
            Self::Graph(Graph::new(topology))
        }
    }

    /// Returns the link by which `from` reaches `to`, which must differ from `from`.
    pub(crate) fn next(&mut self, topology: &Topology, from: NodeId, to: NodeId) -> LinkId {
        match self {
            Self::Tree(tree) => tree.next(from, to),
            Self::Graph(graph) => graph.next(topology, from, to),
        }
    }
}

const UNSEEN: u32 = u32::MAX;

/// A depth-first walk from node 0: when each node was entered and left, counting nodes.
struct Walk {
    enter: Vec<u32>,
    leave: Vec<u32>,
    /// The link towards node 0.
    up: Vec<LinkId>,
}

impl Walk {
    fn new(topology: &Topology) -> Self {
        let nodes = topology.nodes();
        let mut walk = Self { enter: vec![UNSEEN; nodes], leave: vec![0; nodes], up: vec![NO_LINK; nodes] };
        if nodes == 0 {
            return walk;
        }
        let mut clock = 1;
        walk.enter[0] = 0;
        // Nodes on the way down, each with the number of interfaces already tried.
        let mut path = vec![(NodeId(0), 0)];
        while let Some((here, tried)) = path.last_mut() {
            let here = *here;
            let Some(link) = topology.interfaces[here.index()].get(*tried) else {
                walk.leave[here.index()] = clock;
                path.pop();
                continue;
            };
            *tried += 1;
            let there = topology.to[link.index()];
            if walk.enter[there.index()] == UNSEEN {
                walk.enter[there.index()] = clock;
                walk.up[there.index()] = link.reverse();
                clock += 1;
                path.push((there, 0));
            }
        }
        walk
    }
}

/// Routes in a tree.
#[derive(Debug)]
pub(crate) struct Tree {
    enter: Vec<u32>,
    leave: Vec<u32>,
    up: Vec<LinkId>,
    /// By node: begin of the node's part of `down`.
    first: Vec<u32>,
    /// Downward links of all nodes, each with the time at which the walk enters its far end; in that order
    /// within each node.
    down: Vec<(u32, LinkId)>,
}

impl Tree {
    fn new(topology: &Topology) -> Self {
        let Walk { enter, leave, up } = Walk::new(topology);
        let mut first = Vec::with_capacity(topology.nodes() + 1);
        let mut down = Vec::with_capacity(topology.nodes());
        for (links, up) in topology.interfaces.iter().zip(&up) {
            first.push(u32::try_from(down.len()).expect("fewer than 2^32 nodes"));
            let begin = down.len();
            let enters = |link: &LinkId| (enter[topology.to[link.index()].index()], *link);
            down.extend(links.iter().filter(|link| *link != up).map(enters));
            down[begin..].sort_unstable();
        }
        first.push(u32::try_from(down.len()).expect("fewer than 2^32 nodes"));
        Self { enter, leave, up, first, down }
    }

    fn next(&self, from: NodeId, to: NodeId) -> LinkId {
        let target = self.enter[to.index()];
        let below = self.enter[from.index()] < target && target < self.leave[from.index()];
        if !below {
            return self.up[from.index()];
        }
        let down = &self.down[self.first[from.index()] as usize..self.first[from.index() + 1] as usize];
        down[down.partition_point(|(enter, _)| *enter <= target) - 1].1
    }
}

/// Routes in any connected graph, as tables computed on first use.
#[derive(Debug)]
pub(crate) struct Graph {
    /// By destination with several links: by node, the link towards the destination.
    tables: Vec<Option<Box<[LinkId]>>>,
}

impl Graph {
    fn new(topology: &Topology) -> Self {
        Self { tables: vec![None; topology.nodes()] }
    }

    fn next(&mut self, topology: &Topology, from: NodeId, to: NodeId) -> LinkId {
        if let [only] = *topology.interfaces[from.index()] {
            return only;
        }
        let mut target = to;
        if let [only] = *topology.interfaces[to.index()] {
            target = topology.to[only.index()];
            if target == from {
                return only.reverse();
            }
        }
        let table = self.tables[target.index()].get_or_insert_with(|| towards(topology, target));
        table[from.index()]
    }
}

/// By node, the first link of the shortest path to `destination`.
fn towards(topology: &Topology, destination: NodeId) -> Box<[LinkId]> {
    let far = (Duration::from_nanos(u64::MAX), u32::MAX, NO_LINK);
    let mut best = vec![far; topology.nodes()];
    best[destination.index()] = (Duration::ZERO, 0, NO_LINK);
    let mut settled = vec![false; topology.nodes()];
    let mut near = BinaryHeap::from([Reverse((Duration::ZERO, 0, destination))]);
    while let Some(Reverse((delay, hops, here))) = near.pop() {
        if std::mem::replace(&mut settled[here.index()], true) {
            continue;
        }
        for link in &topology.interfaces[here.index()] {
            let (there, towards) = (topology.to[link.index()], link.reverse());
            let path = (delay + topology.delay[towards.index()], hops + 1, towards);
            if !settled[there.index()] && path < best[there.index()] {
                best[there.index()] = path;
                near.push(Reverse((path.0, path.1, there)));
            }
        }
    }
    best.into_iter().map(|(.., link)| link).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A topology from (end, end, delay in ms).
    fn topology(nodes: usize, links: &[(u32, u32, u64)]) -> Topology {
        let mut topology = Topology { interfaces: vec![Vec::new(); nodes], ..Topology::default() };
        for &(a, b, millis) in links {
            for (from, to) in [(a, b), (b, a)] {
                let link = LinkId(u32::try_from(topology.to.len()).unwrap());
                topology.interfaces[from as usize].push(link);
                topology.to.push(NodeId(to));
                topology.delay.push(Duration::from_millis(millis));
            }
        }
        topology
    }

    /// The nodes on the way.
    fn path(topology: &Topology, routing: &mut Routing, from: u32, to: u32) -> Vec<u32> {
        let mut path = vec![from];
        while path.last() != Some(&to) {
            let link = routing.next(topology, NodeId(*path.last().unwrap()), NodeId(to));
            path.push(topology.to[link.index()].0);
            assert!(path.len() <= topology.nodes(), "a loop: {path:?}");
        }
        path
    }

    #[test]
    fn a_tree_and_its_tables_agree() {
        let links: Vec<_> = (1..60).map(|child| (child / 3, child, u64::from(child * 7 % 11))).collect();
        let topology = topology(60, &links);
        let mut tree = Routing::new(&topology);
        assert!(matches!(tree, Routing::Tree(_)));
        let mut graph = Routing::Graph(Graph::new(&topology));
        for from in 0..60 {
            for to in (0..60).filter(|to| *to != from) {
                assert_eq!(path(&topology, &mut tree, from, to), path(&topology, &mut graph, from, to));
            }
        }
    }

    #[test]
    fn delay_counts_first_then_hops_then_the_lowest_link() {
        // 0 to 3: by 1 in 4 ms, by 2 in 3 ms, directly in 3 ms, and by a second direct link.
        let topology = topology(4, &[(0, 1, 2), (1, 3, 2), (0, 2, 1), (2, 3, 2), (0, 3, 3), (0, 3, 3)]);
        let mut routing = Routing::new(&topology);
        assert_eq!(routing.next(&topology, NodeId(0), NodeId(3)), LinkId(8));
        assert_eq!(routing.next(&topology, NodeId(3), NodeId(0)), LinkId(9));
        assert_eq!(path(&topology, &mut routing, 1, 2), [1, 0, 2]);
    }

    #[test]
    fn a_node_apart_is_found() {
        assert_eq!(topology(3, &[(0, 1, 1)]).unreachable(), Some(NodeId(2)));
        assert_eq!(topology(3, &[(0, 1, 1), (2, 1, 1)]).unreachable(), None);
    }
}
