//! The scenario of a run of a cell: checked, complete, and independent of any simulator.

use headwater_proto::{Duration, Seed};

use super::flow::{self, Flow};
use super::host;
use super::section::Section;
use super::timetable::{self, Change};
use super::topology::{self, Topology};
use super::wanted::{self, Measure};
use crate::network::HostConfig;

pub(crate) const PLAN_KEYS: &[&str] = &[
    "name", "title", "seed", "runs", "duration", "warm-up", "tcp", "network", "hosts", "topology", "link",
    "flow", "at", "measure", "sweep",
];

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Seed of all random streams.
    pub seed: Seed,
    /// Number of the run, from 1: runs differ in their random streams only.
    pub run: u64,
    /// Duration of the run.
    pub duration: Duration,
    /// Time before measurement begins.
    pub warm_up: Duration,
    /// Delay of a join at each hop, in addition to the link's delay.
    pub graft_delay: Duration,
    /// Time for which the last router continues to forward after a leave.
    pub leave_latency: Duration,
    /// Nodes that are late, by index.
    pub hosts: Vec<(usize, HostConfig)>,
    /// Nodes and links.
    pub topology: Topology,
    /// Flows, in the order of the plan.
    pub flows: Vec<Flow>,
    /// Changes, in order of time.
    pub timetable: Vec<Change>,
    /// Measurements.
    pub measure: Measure,
}

/// Reads a plan without its sweeps. Returns `None` after a reported problem.
pub(crate) fn read(plan: &Section<'_>) -> Option<Scenario> {
    let duration = plan.need("duration");
    if duration == Some(Duration::ZERO) {
        plan.problem_at("duration", "a run must last longer than 0");
    }
    let warm_up = plan.or("warm-up", Duration::ZERO);
    if duration.is_some_and(|duration| warm_up >= duration) {
        plan.problem_at("warm-up", "the warm-up must be shorter than the run: nothing would be measured");
    }
    let network = plan.section("network", &["graft-delay", "leave-latency"]);
    let of_network = |key| network.as_ref().and_then(|network| network.get(key)).unwrap_or(Duration::ZERO);
    flow::check_tcp(plan);
    let topology = topology::read(plan)?;
    let flows = flow::read(plan, &topology);
    let timetable = timetable::read(plan, &topology);
    let duration = duration?;
    let measure = wanted::read(plan, &topology, &flows, duration);
    Some(Scenario {
        seed: plan.context.seed,
        run: plan.context.run,
        duration,
        warm_up,
        graft_delay: of_network("graft-delay"),
        leave_latency: of_network("leave-latency"),
        hosts: host::read(plan, &topology),
        topology,
        flows,
        timetable,
        measure,
    })
}
