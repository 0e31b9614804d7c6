//! Counters at one instant. What happened in a window is the difference of two readings.

use super::assemble::Assembly;
use super::deploy::Counted;
use crate::network::LinkCounters;

/// All counters that are reported.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// As the scenario's flows.
    pub flows: Vec<Counted>,
    /// As the links that are reported: forward, back.
    pub links: Vec<[LinkCounters; 2]>,
}

impl Reading {
    pub fn take(assembly: &mut Assembly) -> Self {
        let run = &mut assembly.run;
        let links = assembly
            .links
            .iter()
            .map(|(_, link)| [*link, link.reverse()].map(|direction| run.link_counters(direction)))
            .collect();
        Self { flows: assembly.flows.iter().map(|flow| flow.count(run)).collect(), links }
    }
}
