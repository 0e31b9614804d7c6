//! From a scenario to a network at work.

use headwater_proto::rng::Stream;
use headwater_proto::{Instant, Seed};

use super::RunError;
use super::deploy::{self, Deployed};
use crate::agent::Agent;
use crate::engine::Run;
use crate::network::{AgentId, Builder, Event, LinkConfig, LinkId, NodeId};
use crate::plan::Scenario;
use crate::plan::flow::{Flow, Member};
use crate::plan::link::{Direction, Link};
use crate::plan::queue::Sides;
use crate::plan::timetable::What;

/// A run, and the identifiers to read its counters by.
pub(super) struct Assembly {
    pub run: Run,
    /// Directions forward of the links that are reported, by index into the scenario's links.
    pub links: Vec<(usize, LinkId)>,
    /// In the order of the scenario's flows.
    pub flows: Vec<Deployed>,
}

impl Assembly {
    pub fn new(scenario: &Scenario) -> Result<Self, RunError> {
        let mut network = Builder::new();
        network.graft_delay(scenario.graft_delay);
        network.leave_latency(scenario.leave_latency);
        let nodes: Vec<NodeId> = scenario.topology.nodes.iter().map(|name| network.node(name)).collect();
        for (node, config) in &scenario.hosts {
            network.late_host(nodes[*node], *config);
        }
        let links: Vec<LinkId> = scenario
            .topology
            .links
            .iter()
            .map(|link| {
                let [a, b] = link.ends.map(|end| nodes[end]);
                network.link(&link.name, a, b, config(&link.forward, link), config(&link.back, link))
            })
            .collect();
        let (seed, run) = (scenario.seed, scenario.run);
        let at_node = vec![Vec::new(); nodes.len()];
        let mut site = Site { network: &mut network, nodes: &nodes, at_node, seed, run };
        let flows =
            scenario.flows.iter().map(|flow| deploy::deploy(&mut site, flow)).collect::<Result<_, _>>()?;
        let at_node = site.at_node;
        timetable(&mut network, scenario, &links, &at_node);
        let run = network.build(scenario.seed, scenario.run)?;
        let links = scenario.measure.links.iter().map(|link| (*link, links[*link])).collect();
        Ok(Self { run, links, flows })
    }
}

/// Context for deploying flows.
pub(super) struct Site<'a> {
    pub network: &'a mut Builder,
    /// In the order of the scenario's nodes.
    pub nodes: &'a [NodeId],
    /// Agents by node: a node that pauses pauses all its agents.
    at_node: Vec<Vec<AgentId>>,
    pub seed: Seed,
    pub run: u64,
}

impl Site<'_> {
    /// The random stream of this name.
    pub fn stream(&self, name: &str) -> Stream {
        self.seed.stream(name, self.run)
    }

    /// Notes where an agent lives.
    pub fn add(&mut self, node: usize, agent: AgentId) {
        self.at_node[node].push(agent);
    }

    /// Sets an agent's start and stop to those of the flow.
    pub fn runs(&mut self, agent: AgentId, flow: &Flow) {
        self.network.start_at(agent, Instant::ZERO + flow.start);
        if let Some(stop) = flow.stop {
            self.network.at(Instant::ZERO + stop, Event::Stop(agent));
        }
    }

    /// Puts a receiver of a group at its node, for the time of its membership.
    pub fn member(&mut self, flow: &Flow, member: &Member, agent: impl Agent) -> AgentId {
        // Not by the node alone, which may be called `source`.
        let name = format!("{}/receiver/{}", flow.name, self.network.names().nodes[member.node]);
        let agent = self.network.agent(&name, self.nodes[member.node], agent);
        self.add(member.node, agent);
        self.network.start_at(agent, Instant::ZERO + member.join);
        if let Some(leave) = member.leave {
            self.network.at(Instant::ZERO + leave, Event::Stop(agent));
        }
        agent
    }
}

fn config(direction: &Direction, link: &Link) -> LinkConfig {
    LinkConfig {
        rate: direction.rate,
        delay: direction.delay,
        queue: direction.queue,
        loss: direction.loss.model.clone(),
        loss_filter: direction.loss.filter,
        impairments: direction.impair,
        graft_delay: link.graft_delay,
    }
}

fn timetable(network: &mut Builder, scenario: &Scenario, links: &[LinkId], at_node: &[Vec<AgentId>]) {
    for change in &scenario.timetable {
        let at = Instant::ZERO + change.time;
        for event in events(&change.what, links, at_node) {
            network.at(at, event);
        }
    }
}

fn events(what: &What, links: &[LinkId], at_node: &[Vec<AgentId>]) -> Vec<Event> {
    let on_link = |link: usize, sides: Sides, event: &dyn Fn(LinkId) -> Event| {
        let both = [links[link], links[link].reverse()];
        both.into_iter().zip(sides).filter(|(_, chosen)| *chosen).map(|(link, _)| event(link)).collect()
    };
    let of_node = |node: usize, event: &dyn Fn(AgentId) -> Event| {
        at_node[node].iter().map(|agent| event(*agent)).collect()
    };
    match what {
        What::Rate { link, sides, rate } => on_link(*link, *sides, &|link| Event::Rate(link, *rate)),
        What::Up { link, sides, up: true } => on_link(*link, *sides, &Event::Up),
        What::Up { link, sides, up: false } => on_link(*link, *sides, &Event::Down),
        What::Loss { link, sides, loss } => {
            on_link(*link, *sides, &|link| Event::Loss(link, loss.model.clone(), loss.filter))
        }
        What::Running { node, running: true } => of_node(*node, &Event::Resume),
        What::Running { node, running: false } => of_node(*node, &Event::Pause),
        What::ClockStep { node, step } => of_node(*node, &|agent| Event::StepClock(agent, *step)),
    }
}
