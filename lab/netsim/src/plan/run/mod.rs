//! Runs and measures a scenario.

mod deploy;
mod outcome;
mod pgm;
mod rainbow;
mod series;
mod session;

use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Instant, Machine, Seed};

pub use outcome::{
    Criteria, EndResults, FlowOutcome, LinkOutcome, MEMBERS_MAX, MemberOutcome, Outcome, SessionOutcome,
    Shared, Which, Window, fairness,
};
pub use series::Series;

use deploy::Deployed;
use series::{Reading, Recorder};

use super::flow::{Flow, Member};
use super::link::{Direction, Link};
use super::queue::Sides;
use super::timetable::What;
use super::{Cell, Plan, PlanError, Scenario};
use crate::agent::{Agent, Hosted, Ports};
use crate::engine::Run;
use crate::measure::{converged_at, variation};
use crate::network::{AgentId, BuildError, Builder, Event, FlowId, LinkConfig, LinkId, NodeId};
use crate::trace::Observer;

/// Minimum number of pauses of a run, at each of which the run can be aborted.
const PAUSES_MIN: u64 = 100;

/// Interval between checks for the end of a run, if the end depends on transfers.
const UNTIL_STEP: Duration = Duration::from_secs(1);

/// Reason why a run has no outcome.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The plan is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The network cannot be built; plans are checked so that this does not happen.
    #[error("the network cannot be built: {0}")]
    Build(#[from] BuildError),
    /// The parameters of a session are invalid.
    #[error("flow '{flow}' cannot be set up: {reason}")]
    Flow {
        /// Name of the flow.
        flow: String,
        /// Reason.
        reason: String,
    },
    /// More packets wait and travel than there is room for.
    #[error(
        "more than {} packets wait or travel {after} after the start; give queues smaller limits, or links with long delays \
         lower rates",
        Run::COPIES_MAX
    )]
    Overfull {
        /// Time since the start.
        after: Duration,
    },
    /// The watcher aborted the run.
    #[error("the run was given up before its end")]
    GivenUp,
}

impl RunError {
    fn flow(flow: &Flow, reason: &dyn ToString) -> Self {
        Self::Flow { flow: flow.name.clone(), reason: reason.to_string() }
    }
}

/// Observer of a run in progress.
pub trait Watch {
    /// Observers of all that happens in the run, for traces; `links` are the directions of the links that are
    /// reported.
    fn observers(&mut self, _run: &Run, _links: &[LinkId]) -> Vec<Box<dyn Observer>> {
        Vec::new()
    }

    /// The observers again, when the run has ended.
    fn finish(&mut self, _observers: Vec<Box<dyn Observer>>) {}

    /// Asked now and then: whether to go on.
    fn go_on(&mut self) -> bool {
        true
    }
}

/// No observation.
impl Watch for () {}

impl Plan {
    /// Runs `cell` for the `run`th time, counted from 1. The outcome depends on the plan, the cell, the seed
    /// and the number of the run only.
    ///
    /// # Errors
    ///
    /// See [`RunError`].
    pub fn run(&self, cell: &Cell, run: u64, watch: &mut dyn Watch) -> Result<Outcome, RunError> {
        let scenario = self.scenario(cell, run)?;
        let mut outcome = simulate(&scenario, watch)?;
        outcome.which.key = self.key(cell, run).to_string();
        outcome.which.plan = self.name().into();
        outcome.which.cell = cell.values.clone();
        Ok(outcome)
    }
}

/// Runs a scenario to the end.
///
/// # Errors
///
/// See [`RunError`].
pub fn simulate(scenario: &Scenario, watch: &mut dyn Watch) -> Result<Outcome, RunError> {
    let mut assembly = Assembly::new(scenario)?;
    assembly.run.watch_digest();
    let links: Vec<LinkId> = assembly.links.iter().flat_map(|(_, link)| [*link, link.reverse()]).collect();
    for observer in watch.observers(&assembly.run, &links) {
        assembly.run.observe(observer);
    }
    let measured = measure(scenario, &mut assembly, watch);
    watch.finish(assembly.run.take_observers());
    let Measured { before, after, series, shares } = measured?;
    let convergence = scenario.measure.convergence.as_ref().and_then(|wanted| {
        let rates: Vec<&[f64]> = shares.iter().map(Vec::as_slice).collect();
        let hold = wanted.hold.as_nanos().div_ceil(wanted.bin.as_nanos().max(1));
        let at = converged_at(&rates, wanted.delta, usize::try_from(hold).unwrap_or(usize::MAX));
        at.map(|bin| bin as f64 * wanted.bin.as_secs_f64())
    });
    let mut outcome = outcome::outcome(scenario, &assembly, &before, &after);
    outcome.convergence = convergence;
    if let Some(series) = &series {
        let warm = scenario.warm_up.as_secs_f64();
        for (flow, over_time) in outcome.flows.iter_mut().zip(&series.flows) {
            let bins = over_time.throughput.iter().enumerate();
            let measured = bins.filter(|(bin, _)| *bin as f64 * series.bin >= warm).map(|(_, rate)| *rate);
            flow.variation = variation(&measured.collect::<Vec<_>>());
        }
    }
    outcome.series = series;
    Ok(outcome)
}

struct Measured {
    before: Reading,
    after: Reading,
    series: Option<Series>,
    /// Rates of the flows for which convergence is measured.
    shares: Vec<Vec<f64>>,
}

/// Whether all that the plan waits for is complete, and something has been measured.
fn is_over(scenario: &Scenario, assembly: &Assembly) -> bool {
    let until = &scenario.measure.until;
    !until.is_empty()
        && assembly.run.now() > Instant::ZERO + scenario.warm_up
        && until.iter().all(|flow| assembly.flows[*flow].is_complete(&assembly.run))
}

/// Advances the run from reading to reading. A reading changes nothing in the run.
fn measure(
    scenario: &Scenario,
    assembly: &mut Assembly,
    watch: &mut dyn Watch,
) -> Result<Measured, RunError> {
    let end = Instant::ZERO + scenario.duration;
    let warm = Instant::ZERO + scenario.warm_up;
    let mut series = scenario.measure.bin.map(|bin| Recorder::new(bin, Instant::ZERO));
    let wanted = scenario.measure.convergence.as_ref();
    let mut shares = wanted.map(|wanted| Recorder::new(wanted.bin, Instant::ZERO + wanted.from));
    let pause = Duration::from_nanos((scenario.duration.as_nanos() / PAUSES_MIN).max(1));
    let mut before = None;
    loop {
        let now = assembly.run.now();
        if now >= warm && before.is_none() {
            before = Some(Reading::take(assembly));
        }
        if let Some(recorder) = &mut series {
            recorder.record(now, assembly);
        }
        if let Some(recorder) = &mut shares {
            recorder.record(now, assembly);
        }
        if now >= end || is_over(scenario, assembly) {
            break;
        }
        if !watch.go_on() {
            return Err(RunError::GivenUp);
        }
        let mut next = (now + pause).min(end);
        if !scenario.measure.until.is_empty() {
            next = next.min(now + UNTIL_STEP);
        }
        if before.is_none() {
            next = next.min(warm);
        }
        for recorder in [&series, &shares].into_iter().flatten() {
            next = next.min(recorder.next());
        }
        assembly.run.run_until(next);
        if assembly.run.is_overfull() {
            return Err(RunError::Overfull { after: assembly.run.now().since(Instant::ZERO) });
        }
    }
    let after = Reading::take(assembly);
    let shares = match (shares, wanted) {
        (Some(recorder), Some(wanted)) => recorder.shares(&wanted.flows),
        _ => Vec::new(),
    };
    let series = series.map(|recorder| recorder.finish(scenario, assembly));
    Ok(Measured { before: before.unwrap_or_else(|| Reading::take(assembly)), after, series, shares })
}

/// A run, and the identifiers to read its counters by.
pub(super) struct Assembly {
    run: Run,
    /// Directions forward of the links that are reported, by index into the scenario's links.
    links: Vec<(usize, LinkId)>,
    /// In the order of the scenario's flows.
    flows: Vec<Deployed>,
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

    /// Name of a node of the scenario.
    pub fn node_name(&self, node: usize) -> String {
        self.network.names().nodes[self.nodes[node].index()].to_string()
    }

    /// Puts the source of a flow at its node.
    pub fn source<M>(&mut self, flow: &Flow, machine: M, ports: Ports) -> AgentId
    where
        M: Machine<Event: 'static> + 'static,
    {
        let node = self.nodes[flow.from];
        let source = self.network.agent(&format!("{}/source", flow.name), node, Hosted::new(machine, ports));
        self.add(flow.from, source);
        self.runs(source, flow);
        source
    }

    /// Puts a router's program called `name` at a node, on the way of packets of `flows`.
    pub fn router(&mut self, node: usize, name: &str, agent: impl Agent, flows: [FlowId; 2]) {
        let agent = self.network.agent(name, self.nodes[node], agent);
        self.add(node, agent);
        flows.into_iter().for_each(|flow| self.network.route(agent, flow));
    }

    /// Ports for packets of receivers that are not part of the flow's rate.
    pub fn ports_beside(&mut self, flow: &Flow, what: &str, ports: Ports) -> Ports {
        Ports { flow: self.network.flow(&format!("{}/{what}", flow.name)), ..ports }
    }

    /// Puts a receiver of a group at its node, for the time of its membership.
    pub fn member(&mut self, flow: &Flow, member: &Member, agent: impl Agent) -> AgentId {
        // Not by the node alone, which may be called `source`.
        let name = format!("{}/receiver/{}", flow.name, self.node_name(member.node));
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
