//! Outcome of a run on a bed: the same object as for a simulated run, with the machine's part.

use std::collections::BTreeMap;

use headwater_netsim::plan::run::{FlowOutcome, Which, Window};
use serde::Serialize;

use crate::wire::LatenessReport;

/// Results of a run. Rates are bit/s, times are seconds, sizes are bytes. Unless stated otherwise, results
/// are of the window after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Identity of the run.
    #[serde(flatten)]
    pub which: Which,
    /// Begin and end of measurement.
    pub window: Window,
    /// Results of the flows, in the order of the plan.
    pub flows: Vec<FlowOutcome>,
    /// Reported directions of links with a queue of the bed: the link's name for the forward direction, the
    /// name with `/back` for the opposite direction.
    pub links: Vec<LinkOutcome>,
    /// Jain's index of the goodputs in each group of two or more flows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub jain: BTreeMap<String, f64>,
    /// Report of the bed, over the whole run.
    pub testbed: BedReport,
}

/// Results of a direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkOutcome {
    /// Name of the direction.
    pub name: String,
    /// Packets that arrived at the queue.
    pub arrivals: u64,
    /// Packets that the queue dropped.
    pub drops: u64,
    /// `drops / arrivals`; `None` without arrivals.
    pub loss: Option<f64>,
    /// Packets lost behind the queue.
    pub lost: u64,
    /// Packets marked.
    pub marks: u64,
    /// Wire bit/s that were sent.
    pub throughput: f64,
}

/// The machine's part in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BedReport {
    /// Routing that forwarded multicast.
    pub routing: String,
    /// Load average at the end.
    pub load: f64,
    /// Processors.
    pub processors: usize,
    /// Lateness of the wire, if the bed has a wire. A run with a wire that was too late has no valid results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<LatenessReport>,
    /// Programs that were started for flows.
    pub programs: Vec<ProgramReport>,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramReport {
    /// Flow, part and host.
    pub name: String,
    /// Processor seconds, including kernel time on the program's behalf.
    pub cpu: f64,
    /// Maximum memory observed, in bytes.
    pub memory: u64,
}

/// Part of a whole, if there is a whole.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
