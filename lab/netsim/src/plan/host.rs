//! `[hosts]`: nodes that receive in late batches, whose timers fire late, and that pause.

use headwater_proto::Duration;

use super::section::Section;
use super::topology::Topology;
use crate::network::{Delay, HostConfig, Pause};

const KEYS: &[&str] = &[
    "nodes",
    "receive-min",
    "receive-max",
    "timer-min",
    "timer-max",
    "pause-interval",
    "pause-min",
    "pause-max",
];

/// Reads the late nodes of a plan, as indices into the topology's nodes; none without `[hosts]`.
pub(crate) fn read(plan: &Section<'_>, topology: &Topology) -> Vec<(usize, HostConfig)> {
    let Some(hosts) = plan.section("hosts", KEYS) else { return Vec::new() };
    let delay = |min, max| {
        let delay = Delay { min: hosts.or(min, Duration::ZERO), max: hosts.or(max, Duration::ZERO) };
        if delay.max < delay.min {
            hosts.problem_at(max, format!("'{max}' must be at least '{min}'"));
        }
        delay
    };
    let receive = delay("receive-min", "receive-max");
    let interval = hosts.or("pause-interval", Duration::ZERO);
    let length = delay("pause-min", "pause-max");
    if interval == Duration::ZERO && length.max > Duration::ZERO {
        hosts.problem_at("pause-max", "'pause-max' needs 'pause-interval'".to_owned());
    }
    let pause = (interval > Duration::ZERO).then_some(Pause { interval, length });
    let config = HostConfig { receive, timer: delay("timer-min", "timer-max"), pause };
    let nodes = match hosts.node("nodes") {
        Some(_) => named(&hosts, topology),
        None => (0..topology.nodes.len()).filter(|node| links(topology, *node) == 1).collect(),
    };
    nodes.into_iter().map(|node| (node, config)).collect()
}

fn named(hosts: &Section<'_>, topology: &Topology) -> Vec<usize> {
    let mut nodes = Vec::new();
    for (name, span) in hosts.texts("nodes") {
        match topology.node(name) {
            Some(node) => nodes.push(node),
            None => hosts.problem(&span, format!("there is no node '{name}'")),
        }
    }
    nodes
}

fn links(topology: &Topology, node: usize) -> usize {
    topology.links.iter().filter(|link| link.ends.contains(&node)).count()
}
