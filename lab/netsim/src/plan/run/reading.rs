//! Counters at an instant. Events in a window are the difference of two readings.

use super::assemble::Assembly;
use super::deploy::Counted;
use crate::network::LinkCounters;

/// All reported counters.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// In the order of the scenario's flows.
    pub flows: Vec<Counted>,
    /// In the order of the reported links: forward, back.
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
