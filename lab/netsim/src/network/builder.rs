//! Declares a network and builds a run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use headwater_proto::queue::ParameterError;
use headwater_proto::{Duration, Instant, InterfaceId, Seed};

use super::host::{Host, HostConfig};
use super::link::Link;
use super::routing::Groups;
use super::routing::{Routing, Topology};
use super::{AgentCounters, AgentId, FlowCounters, FlowId, GroupId, LinkId, NodeId};
use super::{Change, Event, LinkConfig, Session};
use crate::agent::Agent;
use crate::engine::Packets;
use crate::engine::core::{Core, Home};
use crate::engine::events::Pending;
use crate::engine::events::{Class, EventQueue, Target};
use crate::engine::{AgentSlot, Destination, Run, State};
use crate::trace::Watchers;

/// Maximum number of nodes: the number of host addresses of 10.0.0.0/8.
pub const NODES_MAX: usize = (1 << 24) - 2;

/// Reason why a network cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// Two elements of a kind have the same name. Random streams and traces are identified by names.
    #[error("two {kind}s are called '{name}'; give each a name of its own")]
    Duplicate {
        /// `node`, `link`, `flow`, `group` or `agent`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Both ends of a link are the same node.
    #[error("link '{link}' leads from '{node}' to itself; a link joins two nodes")]
    Loop {
        /// The link.
        link: String,
        /// The node.
        node: String,
    },
    /// A link's parameter makes no sense.
    #[error("link '{link}': {source}")]
    Parameter {
        /// The link.
        link: String,
        /// Problem with the parameter.
        source: ParameterError,
    },
    /// A node cannot be reached from the rest of the network.
    #[error("node '{node}' has no path to '{from}'; join all nodes by links")]
    Unreachable {
        /// The node.
        node: String,
        /// The first node.
        from: String,
    },
    /// There is no node.
    #[error("the network has no nodes; declare some")]
    Empty,
    /// More elements than there are addresses or indices for.
    #[error("too many {what}: at most {most}")]
    TooMany {
        /// Kind of element.
        what: &'static str,
        /// Maximum number.
        most: usize,
    },
}

/// Names of all elements, in the order of declaration.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names of nodes.
    pub nodes: Vec<Box<str>>,
    /// Names of link directions: the link's name, and `<name>/back` for the opposite direction.
    pub links: Vec<Box<str>>,
    /// Names of flows.
    pub flows: Vec<Box<str>>,
    /// Names of groups: `<session>/<channel>`.
    pub groups: Vec<Box<str>>,
    /// Names of agents.
    pub agents: Vec<Box<str>>,
}

impl Names {
    /// The link direction of this name.
    pub fn link(&self, name: &str) -> Option<LinkId> {
        position(&self.links, name).map(LinkId)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        position(&self.nodes, name).map(NodeId)
    }

    /// The flow of this name.
    pub fn flow(&self, name: &str) -> Option<FlowId> {
        position(&self.flows, name).map(FlowId)
    }

    /// The agent of this name.
    pub fn agent(&self, name: &str) -> Option<AgentId> {
        position(&self.agents, name).map(AgentId)
    }
}

fn position(names: &[Box<str>], name: &str) -> Option<u32> {
    (0..).zip(names).find(|(_, other)| ***other == *name).map(|(index, _)| index)
}

/// Router programs: by node and flow, the agent that receives forwarded datagrams.
#[derive(Debug, Default)]
pub(crate) struct Routers(BTreeMap<(NodeId, FlowId), AgentId>);

impl Routers {
    #[inline]
    pub(crate) fn of(&self, node: NodeId, flow: FlowId) -> Option<AgentId> {
        if self.0.is_empty() { None } else { self.0.get(&(node, flow)).copied() }
    }
}

struct Declared {
    agent: Box<dyn Agent>,
    node: NodeId,
    start: Instant,
    ahead: Duration,
}

/// A network being declared. The declaring methods return ids, by which elements are referred to; names serve
/// errors, traces and random streams.
#[derive(Default)]
pub struct Builder {
    names: Names,
    ends: Vec<(NodeId, NodeId)>,
    links: Vec<LinkConfig>,
    group_sources: Vec<NodeId>,
    agents: Vec<Declared>,
    routers: Routers,
    hosts: BTreeMap<NodeId, HostConfig>,
    timetable: Vec<(Instant, Event)>,
    graft_delay: Duration,
    leave_latency: Duration,
}

impl Builder {
    /// Creates an empty network. Membership messages take the delay of links only, and leaves take effect at
    /// once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a node.
    pub fn node(&mut self, name: &str) -> NodeId {
        self.names.nodes.push(name.into());
        NodeId(index(self.names.nodes.len()))
    }

    /// Declares a link between two nodes and returns its direction from `a` to `b`; [`LinkId::reverse`] is
    /// the opposite direction. The link becomes the next interface of both nodes.
    pub fn link(&mut self, name: &str, a: NodeId, b: NodeId, there: LinkConfig, back: LinkConfig) -> LinkId {
        let link = LinkId(index(self.links.len() + 1));
        self.names.links.extend([name.into(), format!("{name}/back").into()]);
        self.ends.extend([(a, b), (b, a)]);
        self.links.extend([there, back]);
        link
    }

    /// Declares a flow, under which packets are counted.
    pub fn flow(&mut self, name: &str) -> FlowId {
        self.names.flows.push(name.into());
        FlowId(index(self.names.flows.len()))
    }

    /// Declares a session with a source at `node`: a source-specific group for each of its channels.
    pub fn session(&mut self, name: &str, node: NodeId, channels: u16) -> Session {
        let first = index(self.names.groups.len() + 1);
        self.names.groups.extend((0..channels).map(|channel| format!("{name}/{channel}").into()));
        self.group_sources.extend((0..channels).map(|_| node));
        Session { first, channels }
    }

    /// Declares a session like [`Self::session`] whose groups share an address prefix; the last `bits` bits
    /// are the channel's number. By this naming convention routers identify a session's layers. Groups before
    /// and behind, up to whole blocks of such addresses, are left unused.
    pub fn aligned_session(&mut self, name: &str, node: NodeId, channels: u16, bits: u8) -> Session {
        let next = GroupId(index(self.names.groups.len() + 1)).address().to_bits();
        let before = next.wrapping_neg() % (1 << bits);
        self.leave_unused(name, node, 0..before);
        let session = self.session(name, node, channels);
        // No other session gets a group in the last block either.
        let behind = u32::from(channels).wrapping_neg() % (1 << bits);
        self.leave_unused(name, node, before..before + behind);
        session
    }

    fn leave_unused(&mut self, name: &str, node: NodeId, numbers: core::ops::Range<u32>) {
        for number in numbers {
            self.names.groups.push(format!("{name}/unused-{number}").into());
            self.group_sources.push(node);
        }
    }

    /// Puts an agent at a node. The agent starts at time zero; agents with the same start instant start in
    /// the order of declaration.
    pub fn agent(&mut self, name: &str, node: NodeId, agent: impl Agent) -> AgentId {
        self.boxed_agent(name, node, Box::new(agent))
    }

    /// As [`Self::agent`].
    pub fn boxed_agent(&mut self, name: &str, node: NodeId, agent: Box<dyn Agent>) -> AgentId {
        self.names.agents.push(name.into());
        self.agents.push(Declared { agent, node, start: Instant::ZERO, ahead: Duration::ZERO });
        AgentId(index(self.names.agents.len()))
    }

    /// Sets the start of an agent, by the simulation's clock.
    pub fn start_at(&mut self, agent: AgentId, start: Instant) {
        self.agents[agent.index()].start = start;
    }

    /// Sets an agent's clock ahead of the simulation's.
    pub fn clock_ahead(&mut self, agent: AgentId, ahead: Duration) {
        self.agents[agent.index()].ahead = ahead;
    }

    /// Makes an agent the router of its node for a flow: packets of the flow that arrive through a link go to
    /// the agent, and the node does not forward these packets.
    pub fn route(&mut self, router: AgentId, flow: FlowId) {
        let node = self.agents[router.index()].node;
        self.routers.0.insert((node, flow), router);
    }

    /// Makes a node late: packets that arrive through links are handed over in batches, and timers of its
    /// agents fire late. Default: neither.
    pub fn late_host(&mut self, node: NodeId, config: HostConfig) {
        self.hosts.insert(node, config);
    }

    /// The address that datagrams of agents at a node come from.
    pub fn host(&self, node: NodeId) -> IpAddr {
        Core::host(node)
    }

    /// The address of an agent.
    pub fn address(&self, agent: AgentId) -> Option<SocketAddr> {
        let node = self.agents[agent.index()].node;
        let earlier = self.agents[..agent.index()].iter().filter(|other| other.node == node).count();
        Some(SocketAddr::new(Core::host(node), Core::port(earlier)?))
    }

    /// Returns the interface through which `from` reaches `to`, over the links declared so far; `None` if the
    /// nodes are equal or if no path exists.
    pub fn interface(&self, from: NodeId, to: NodeId) -> Option<InterfaceId> {
        let topology = self.topology().ok().filter(|_| from != to)?;
        let link = Routing::new(&topology).next(&topology, from, to);
        Some(InterfaceId(topology.position[link.index()]))
    }

    /// Nodes at the far ends of a node's links declared so far, in the order of its interfaces.
    pub fn neighbours(&self, node: NodeId) -> Vec<NodeId> {
        self.ends.iter().filter(|(from, _)| *from == node).map(|(_, to)| *to).collect()
    }

    /// The destination that reaches an agent.
    pub fn destination(&self, agent: AgentId) -> Destination {
        Destination::Agent { agent, node: self.agents[agent.index()].node }
    }

    /// Schedules `event`. Events of the same instant happen in the order of declaration.
    pub fn at(&mut self, at: Instant, event: Event) {
        self.timetable.push((at, event));
    }

    /// Sets the delay that a membership message takes at each hop in addition to the link's delay, unless the
    /// link has its own setting; default zero.
    pub fn graft_delay(&mut self, delay: Duration) {
        self.graft_delay = delay;
    }

    /// Sets how long the last hop continues to forward after a leave reached it; default zero.
    pub fn leave_latency(&mut self, latency: Duration) {
        self.leave_latency = latency;
    }

    /// Names declared so far.
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// Builds the run, with random streams of `seed` and `run`: runs of the same seed differ by their number.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]; each variant names the element.
    pub fn build(self, seed: Seed, run: u64) -> Result<Run, BuildError> {
        self.check_names()?;
        let topology = self.topology()?;
        let links = self.make_links(seed, run)?;
        let changes = self.changes()?;
        let mut events = EventQueue::default();
        for (line, (at, _)) in (0..).zip(&changes) {
            events.schedule(*at, Class::Change, Target::Change(line));
        }
        let (homes, by_node) = self.homes()?;
        let stream = |node: &NodeId| seed.stream(&format!("node/{}/host", self.node_name(*node)), run);
        let host = |(node, config): (&NodeId, &HostConfig)| (*node, Host::new(*config, stream(node)));
        let hosts = self.hosts.iter().map(host).collect();
        let agents = self.agents.len();
        let slots = start(self.agents, &mut events);
        let core = Core {
            now: Instant::ZERO,
            events,
            packets: Packets::default(),
            links,
            routing: Routing::new(&topology),
            groups: Groups::new(self.group_sources, topology.interfaces.len()),
            topology,
            graft_delay: self.graft_delay,
            leave_latency: self.leave_latency,
            flows: vec![FlowCounters::default(); self.names.flows.len()],
            groups_carried: vec![FlowCounters::default(); self.names.groups.len()],
            group_members: vec![0; self.names.groups.len()],
            homes,
            agent_counters: vec![AgentCounters::default(); agents],
            agents_at: by_node,
            hosts,
            deliveries: Vec::new(),
            free_deliveries: Vec::new(),
            hops: 0,
            room: Core::room_for_datagrams(),
            watchers: Watchers::default(),
        };
        let (routers, names) = (self.routers, self.names);
        Ok(Run { core, slots, routers, changes, names, seed: (seed, run), members: Vec::new() })
    }

    fn check_names(&self) -> Result<(), BuildError> {
        let Names { nodes, links, flows, groups, agents } = &self.names;
        for (kind, names) in
            [("node", nodes), ("link", links), ("flow", flows), ("group", groups), ("agent", agents)]
        {
            let mut seen = BTreeSet::new();
            if let Some(name) = names.iter().find(|name| !seen.insert(&***name)) {
                return Err(BuildError::Duplicate { kind, name: name.to_string() });
            }
        }
        if nodes.is_empty() {
            return Err(BuildError::Empty);
        }
        if nodes.len() > NODES_MAX {
            return Err(BuildError::TooMany { what: "nodes", most: NODES_MAX });
        }
        Ok(())
    }

    fn topology(&self) -> Result<Topology, BuildError> {
        let mut topology =
            Topology { interfaces: vec![Vec::new(); self.names.nodes.len()], ..Topology::default() };
        for (link, ((from, to), config)) in (0..).map(LinkId).zip(self.ends.iter().zip(&self.links)) {
            if from == to {
                let (link, node) = (self.link_name(link), self.node_name(*from));
                return Err(BuildError::Loop { link, node });
            }
            let interfaces = &mut topology.interfaces[from.index()];
            topology.position.push(index(interfaces.len() + 1));
            interfaces.push(link);
            topology.to.push(*to);
            topology.delay.push(config.delay);
        }
        match topology.unreachable() {
            Some(node) => {
                let (node, from) = (self.node_name(node), self.node_name(NodeId(0)));
                Err(BuildError::Unreachable { node, from })
            }
            None => Ok(topology),
        }
    }

    fn make_links(&self, seed: Seed, run: u64) -> Result<Vec<Link>, BuildError> {
        let make = |(link, config): (LinkId, &LinkConfig)| {
            let name = &self.names.links[link.index()];
            let stream = |purpose: &str| seed.stream(&format!("link/{name}/{purpose}"), run);
            let wrong = |source| BuildError::Parameter { link: name.to_string(), source };
            let (_, to) = self.ends[link.index()];
            let mut link = Link::of(config, to, stream).map_err(wrong)?;
            link.graft_delay = config.graft_delay;
            Ok(link)
        };
        (0..).map(LinkId).zip(&self.links).map(make).collect()
    }

    fn changes(&self) -> Result<Vec<(Instant, Change)>, BuildError> {
        let check = |(at, event): &(Instant, Event)| {
            let change = match event.clone() {
                Event::Rate(link, rate) => Change::Rate(link, rate),
                Event::Up(link) => Change::Up(link),
                Event::Down(link) => Change::Down(link),
                Event::Loss(link, loss, filter) => {
                    let wrong = |source| BuildError::Parameter { link: self.link_name(link), source };
                    Change::Loss(link, loss.model().map_err(wrong)?, filter)
                }
                Event::Stop(agent) => Change::Stop(agent),
                Event::Pause(agent) => Change::Pause(agent),
                Event::Resume(agent) => Change::Resume(agent),
                Event::StepClock(agent, step) => Change::StepClock(agent, step),
            };
            Ok((*at, change))
        };
        self.timetable.iter().map(check).collect()
    }

    /// Locations of agents, and agents by node.
    fn homes(&self) -> Result<(Vec<Home>, Vec<Vec<AgentId>>), BuildError> {
        let mut agents_at = vec![Vec::new(); self.names.nodes.len()];
        let mut homes = Vec::with_capacity(self.agents.len());
        for (agent, declared) in (0..).map(AgentId).zip(&self.agents) {
            let here = &mut agents_at[declared.node.index()];
            let port = Core::port(here.len())
                .ok_or(BuildError::TooMany { what: "agents at one node", most: Core::PORTS })?;
            homes.push(Home { node: declared.node, port });
            here.push(agent);
        }
        Ok((homes, agents_at))
    }

    fn link_name(&self, link: LinkId) -> String {
        self.names.links[link.index()].to_string()
    }

    fn node_name(&self, node: NodeId) -> String {
        self.names.nodes[node.index()].to_string()
    }
}

/// Schedules the start of all agents.
fn start(agents: Vec<Declared>, events: &mut EventQueue) -> Vec<AgentSlot> {
    let wait = |(id, declared): (u32, Declared)| {
        let mut pending = Pending::default();
        if pending.wants(declared.start) {
            events.schedule(declared.start, Class::Timer, Target::Timer(AgentId(id)));
        }
        let Declared { agent, node, start, ahead } = declared;
        AgentSlot {
            agent,
            node,
            state: State::Waiting,
            ahead,
            deadline: Some(start),
            wake: Instant::ZERO,
            pending,
        }
    };
    (0..).zip(agents).map(wait).collect()
}

/// The index of the last of `count` elements.
fn index(count: usize) -> u32 {
    u32::try_from(count - 1).expect("fewer than 2^32 elements of a kind")
}
