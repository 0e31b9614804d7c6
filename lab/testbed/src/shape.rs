//! A plan's topology as a network of machines: hosts and routers, the realisation of each link, addresses,
//! and routes. No system calls.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use headwater_netsim::network::{Impairments, LossFilter};
use headwater_netsim::network::{LinkQueue, LossConfig};
use headwater_netsim::plan::flow::{Flow, Receivers};
use headwater_netsim::plan::link::{Direction, Link};
use headwater_netsim::plan::topology::Topology;
use headwater_proto::Duration;
use headwater_proto::queue::{Limit, QueueConfig};

use crate::Error;

/// Maximum number of nodes of a bed: each node is a namespace, and each link a subnet where routers route.
pub const NODES_MAX: usize = 200;
/// Maximum delay that is left to the machine, whose own delay is some tens of microseconds. The wire emulates
/// longer delays.
pub const DELAY_LEAST: Duration = Duration::from_millis(1);
/// Maximum rate that a token bucket enforces. Faster links run at the machine's speed, because the bucket
/// would cost more than the limit.
const RATE_LIMITED_MAX: u64 = 500_000_000;

/// Role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Has a single link, and may send and receive.
    Host,
    /// Has several links, and forwards.
    Router,
}

/// Limit on the output of a port: a rate, and a queue of `packets` in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// bit/s of frames.
    pub rate: u64,
    /// Packets that wait at most.
    pub packets: u32,
}

/// A link made real.
#[derive(Clone, Debug, PartialEq)]
pub struct Cable {
    /// Nodes at the ends.
    pub ends: [usize; 2],
    /// Bucket at each end's port, for the output of that end.
    pub buckets: [Option<Bucket>; 2],
    /// Whether the link goes through the wire in user space, which provides all properties beyond the
    /// buckets.
    pub is_wired: bool,
    /// Delay of a membership message in addition to the propagation delay.
    pub graft_delay: Duration,
}

/// A topology that can be built.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// By node.
    pub roles: Vec<Role>,
    /// By link.
    pub cables: Vec<Cable>,
    /// By node: links, and the nodes at their far ends.
    neighbours: Vec<Vec<(usize, usize)>>,
}

impl Shape {
    /// Checks that the testbed can realise the plan.
    ///
    /// # Errors
    ///
    /// If the testbed cannot; the message says what is possible.
    pub fn of(topology: &Topology, flows: &[Flow], graft_delay: Duration) -> Result<Self, Error> {
        let count = topology.nodes.len();
        if count > NODES_MAX {
            return Err(Error::plan(format!(
                "a bed has at most {NODES_MAX} nodes, and the plan has {count}"
            )));
        }
        if topology.links.len() + 1 != count {
            return Err(Error::plan(
                "the links make a loop, and the testbed builds trees only: leave out links until one way is left between any two nodes",
            ));
        }
        let mut neighbours = vec![Vec::new(); count];
        for (index, link) in topology.links.iter().enumerate() {
            let [a, b] = link.ends;
            neighbours[a].push((index, b));
            neighbours[b].push((index, a));
        }
        for node in ends_of(flows) {
            if neighbours[node].len() != 1 {
                return Err(Error::plan(format!(
                    "node '{}' sends or receives and has {} links; on the testbed a host has one, and nodes with more forward: put a \
                     node behind it",
                    topology.nodes[node],
                    neighbours[node].len()
                )));
            }
        }
        let role = |links: &Vec<_>| if links.len() > 1 { Role::Router } else { Role::Host };
        let roles = neighbours.iter().map(role).collect();
        let cables = topology.links.iter().map(|link| cable(link, graft_delay)).collect::<Result<_, _>>()?;
        Ok(Self { roles, cables, neighbours })
    }

    /// Links of a node, and the nodes at their far ends.
    pub fn neighbours(&self, node: usize) -> &[(usize, usize)] {
        &self.neighbours[node]
    }

    /// Index of the end of a link at which a node is.
    pub fn end(&self, link: usize, node: usize) -> usize {
        usize::from(self.cables[link].ends[1] == node)
    }

    /// All routers.
    pub fn routers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.roles.len()).filter(|node| self.roles[*node] == Role::Router)
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.roles.len()).filter(|node| self.roles[*node] == Role::Host)
    }

    /// Returns the link by which `from` reaches `to`, which must differ from `from`.
    pub fn way(&self, from: usize, to: usize) -> Option<usize> {
        self.neighbours[from]
            .iter()
            .find(|(link, next)| self.reaches(*next, *link, to))
            .map(|(link, _)| *link)
    }

    /// Whether `to` is `node`, or behind `node` as seen from link `by`.
    fn reaches(&self, node: usize, by: usize, to: usize) -> bool {
        // Trees of at most NODES_MAX nodes: as deep as that at worst.
        node == to
            || self.neighbours[node].iter().any(|(link, next)| *link != by && self.reaches(*next, *link, to))
    }

    /// Returns the links from a node to another, in order.
    pub fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let (mut at, mut path) = (from, Vec::new());
        while at != to
            && let Some(link) = self.way(at, to)
        {
            path.push(link);
            let [a, b] = self.cables[link].ends;
            at = if at == a { b } else { a };
        }
        path
    }

    /// The longest that a packet waits in the buckets on the way to any node, were all full.
    pub fn longest_wait(&self) -> Duration {
        let wait =
            |bucket: &Bucket| u64::from(bucket.packets + 1) * 1_514 * 8 * 1_000_000_000 / bucket.rate.max(1);
        let buckets = self.cables.iter().flat_map(|cable| cable.buckets.iter().flatten());
        Duration::from_nanos(buckets.map(wait).max().unwrap_or(0))
    }

    /// Address of a host in a common subnet of 16 bits.
    pub fn flat_address(node: usize) -> Ipv4Addr {
        let number = u32::try_from(node).unwrap_or(0) + 1;
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 72, 0, 0)) + (number / 250) * 256 + number % 250 + 1)
    }

    /// IPv6 address of a host in a common subnet of 64 bits.
    pub fn flat_address6(node: usize) -> Ipv6Addr {
        let number = u16::try_from(node).unwrap_or(0) + 1;
        Ipv6Addr::new(0xFD72, 0, 0, 0, 0, 0, 0, number)
    }

    /// The address of an end of a link in the link's own subnet, of 24 bits.
    pub fn link_address(link: usize, end: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 72, u8::try_from(link).unwrap_or(0), u8::try_from(end).unwrap_or(0) + 1)
    }
}

/// Nodes that send or receive.
fn ends_of(flows: &[Flow]) -> BTreeSet<usize> {
    let receivers = |flow: &Flow| match &flow.to {
        Receivers::Node(node) => vec![*node],
        Receivers::Group(members) => members.iter().map(|member| member.node).collect(),
    };
    flows.iter().flat_map(|flow| receivers(flow).into_iter().chain([flow.from])).collect()
}

fn cable(link: &Link, graft_delay: Duration) -> Result<Cable, Error> {
    let graft_delay = link.graft_delay.unwrap_or(graft_delay);
    let wired = [wire_of(link, &link.forward)?, wire_of(link, &link.back)?];
    let is_wired = wired.contains(&true) || graft_delay > DELAY_LEAST;
    let buckets = [bucket(&link.forward), bucket(&link.back)];
    Ok(Cable { ends: link.ends, buckets, is_wired, graft_delay })
}

/// Whether a direction needs the wire.
fn wire_of(link: &Link, direction: &Direction) -> Result<bool, Error> {
    let cannot = |what: &str| {
        Err(Error::plan(format!(
            "link '{}' {what}, which the testbed does not do; the simulator does",
            link.name
        )))
    };
    if direction.impair != Impairments::NONE {
        return cannot("reorders, doubles or damages packets");
    }
    if direction.loss.filter != LossFilter::All {
        return cannot("loses packets with data only");
    }
    if matches!(direction.queue, LinkQueue::Shared(QueueConfig::Priority(_))) {
        return cannot("marks by priority");
    }
    Ok(direction.delay > DELAY_LEAST
        || direction.loss.model != LossConfig::None
        || matches!(direction.queue, LinkQueue::Policer(_) | LinkQueue::Codel(_))
        || bucket(direction).is_none() && is_slow(direction))
}

fn is_slow(direction: &Direction) -> bool {
    direction.rate.as_bits() <= RATE_LIMITED_MAX
}

/// Realises a direction's queue in the kernel, if possible: drop-tail, counted in packets.
pub fn bucket(direction: &Direction) -> Option<Bucket> {
    match direction.queue {
        LinkQueue::Shared(QueueConfig::DropTail(Limit::Packets(packets))) if is_slow(direction) => {
            // A token bucket keeps the packet in transmission in its queue; the simulator's link does not.
            Some(Bucket { rate: direction.rate.as_bits(), packets: packets.max(1) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use headwater_netsim::plan::{Plan, Scenario};

    use super::*;

    const FLOW: &str = "[flow.tcp]\nkind = \"tcp\"\nfrom = \"source-1\"\nto = \"sink-1\"\n";

    fn scenario(topology: &str, flow: &str) -> Scenario {
        let text = format!("name = \"x\"\nduration = \"1s\"\n{topology}\n{flow}");
        let plan = Plan::parse("x.toml", &text).unwrap();
        plan.scenario(&plan.cell(0), 1).unwrap()
    }

    fn shape(topology: &str, flow: &str) -> Result<Shape, Error> {
        let scenario = scenario(topology, flow);
        Shape::of(&scenario.topology, &scenario.flows, scenario.graft_delay)
    }

    #[test]
    fn a_dumbbell_is_two_routers_and_a_bucket() {
        let shape = shape(
            "topology = { kind = \"dumbbell\", pairs = 2, bottleneck = { rate = \"4M\", delay = \"1ms\", queue = { packets = 25 } }, \
             access = { rate = \"1G\", delay = \"500us\" } }",
            FLOW,
        )
        .unwrap();
        assert_eq!(shape.routers().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(shape.cables[0].buckets[0], Some(Bucket { rate: 4_000_000, packets: 25 }));
        assert!(shape.cables.iter().all(|cable| !cable.is_wired));
        assert!(shape.cables[1..].iter().all(|cable| cable.buckets == [None, None]));
        // source-1 is node 2, sink-2 node 5; the bottleneck is in the middle.
        assert_eq!(shape.path(2, 5), [1, 0, 4]);
        assert_eq!(shape.way(1, 2), Some(0));
    }

    #[test]
    fn delays_losses_and_red_want_the_wire() {
        let with = |bottleneck: &str| {
            let topology = format!(
                "topology = {{ kind = \"dumbbell\", bottleneck = {bottleneck}, access = {{ rate = \"1G\", delay = \"0ms\" }} }}"
            );
            shape(&topology, FLOW).unwrap().cables[0].clone()
        };
        assert!(with("{ rate = \"1M\", delay = \"20ms\" }").is_wired);
        assert!(
            with("{ rate = \"1M\", delay = \"1ms\", loss = { kind = \"bernoulli\", p = 0.1 } }").is_wired
        );
        assert!(with("{ rate = \"1M\", delay = \"1ms\", graft-delay = \"50ms\" }").is_wired);
        let red = with("{ rate = \"1M\", delay = \"1ms\", queue = { kind = \"red\", preset = \"ns1999\" } }");
        assert_eq!((red.is_wired, red.buckets), (true, [None, None]));
        assert!(!with("{ rate = \"1M\", delay = \"1ms\" }").is_wired);
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let graph = "topology = { kind = \"graph\", nodes = [\"a\", \"b\", \"c\"] }\n[link.x]\nbetween = [\"a\", \"b\"]\nrate = \"1M\"\ndelay = \
                     \"0ms\"\n[link.y]\nbetween = [\"b\", \"c\"]\nrate = \"1M\"\ndelay = \"0ms\"\n";
        let flow =
            |from: &str, to: &str| format!("[flow.tcp]\nkind = \"tcp\"\nfrom = \"{from}\"\nto = \"{to}\"\n");
        assert!(shape(graph, &flow("a", "c")).is_ok());
        let inner = shape(graph, &flow("a", "b")).unwrap_err();
        assert!(inner.message.contains("'b' sends or receives and has 2 links"), "{inner}");
        let closed = format!("{graph}[link.z]\nbetween = [\"a\", \"c\"]\nrate = \"1M\"\ndelay = \"0ms\"\n");
        assert!(shape(&closed, &flow("a", "c")).unwrap_err().message.contains("loop"));
        let faulty = graph.replacen("delay = \"0ms\"", "delay = \"0ms\"\nimpair = { duplicated = 0.1 }", 1);
        assert_eq!(shape(&faulty, &flow("a", "c")).unwrap_err().kind, crate::Kind::Plan);
    }

    #[test]
    fn addresses_differ() {
        let all: BTreeSet<Ipv4Addr> = (0..NODES_MAX).map(Shape::flat_address).collect();
        assert_eq!(all.len(), NODES_MAX);
        let ends: BTreeSet<Ipv4Addr> =
            (0..NODES_MAX).flat_map(|link| [0, 1].map(|end| Shape::link_address(link, end))).collect();
        assert_eq!(ends.len(), 2 * NODES_MAX);
    }
}
