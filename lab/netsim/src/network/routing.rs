//! Shortest paths: least sum of link delays, then fewest hops, then lowest link.
//!
//! Routes do not change when a link goes down. A tree has a single path between two nodes; the next hop is
//! found from intervals of a depth-first walk, so that memory and set-up are linear. In any other graph, a
//! table is computed for a destination on first use; a node with a single link is reached through its
//! neighbour and has no table.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_proto::Duration;

use super::{LinkId, NodeId};

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
