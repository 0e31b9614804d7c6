//! What a run on a bed came to: the same object as a simulated run's, and what the machine had to do with it.

use std::collections::BTreeMap;

use headwater_netsim::plan::run::{FlowOutcome, Which, Window};
use serde::Serialize;

use crate::wire::LatenessReport;

/// The results of one run. Rates are bit/s, times are seconds, sizes are bytes; of the window after the
/// warm-up, as far as nothing else is said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Which run it was.
    #[serde(flatten)]
    pub which: Which,
    /// When measuring began and ended.
    pub window: Window,
    /// As in the plan.
    pub flows: Vec<FlowOutcome>,
    /// Directions of the links that are reported and whose queues the bed keeps: forward, and with `/back`
    /// the other one.
    pub links: Vec<LinkOutcome>,
    /// Jain's index of the goodputs in each group of two or more flows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub jain: BTreeMap<String, f64>,
    /// Of the bed, over the whole run.
    pub testbed: BedReport,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkOutcome {
    /// Its name.
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

/// The machine's part in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BedReport {
    /// Who forwarded multicast.
    pub routing: String,
    /// Load average at the end.
    pub load: f64,
    /// Processors.
    pub processors: usize,
    /// How late the wire was, where there was one. A run whose wire was too late says nothing.
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
    /// Processor seconds, the kernel's in its name among them.
    pub cpu: f64,
    /// Most memory that it was seen to hold, bytes.
    pub memory: u64,
}

/// Part of a whole, if there is a whole.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
