//! Outcome of a run on a bed: the same object as for a simulated run, with the machine's part.

use std::collections::BTreeMap;
use std::time::Duration;

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

/// Values of a counter at some times since the start of a run, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(Vec<(Duration, u64)>);

impl Samples {
    /// Adds a reading. A reading older than the last is moved to the last reading's time.
    pub fn push(&mut self, at: Duration, value: u64) {
        let at = self.0.last().map_or(at, |(last, _)| at.max(*last));
        self.0.push((at, value));
    }

    /// The value at a time, between readings by the straight line, 0 before the first.
    pub fn at(&self, time: Duration) -> f64 {
        let next = self.0.partition_point(|(at, _)| *at <= time);
        let Some((before, low)) = next.checked_sub(1).map(|index| self.0[index]) else { return 0.0 };
        let Some((after, high)) = self.0.get(next).copied() else { return low as f64 };
        let part = (time - before).as_secs_f64() / (after - before).as_secs_f64();
        low as f64 + part * (high.saturating_sub(low)) as f64
    }

    /// Increase per second between two times, times eight: bit/s of a counter of bytes.
    pub fn bits_per_second(&self, from: Duration, to: Duration) -> f64 {
        let seconds = to.saturating_sub(from).as_secs_f64();
        if seconds > 0.0 { 8.0 * (self.at(to) - self.at(from)) / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_time_asked_for() {
        let mut samples = Samples::default();
        let at = Duration::from_secs;
        for (second, bytes) in [(1, 0), (2, 1_000), (4, 5_000)] {
            samples.push(at(second), bytes);
        }
        assert_eq!(samples.at(at(0)), 0.0);
        assert_eq!(samples.at(at(3)), 3_000.0);
        // Nothing came after the last reading.
        assert_eq!(samples.bits_per_second(at(2), at(6)), 8_000.0);
        assert_eq!(samples.bits_per_second(at(3), at(3)), 0.0);
        // A reading out of order does not turn time back.
        samples.push(at(3), 6_000);
        assert_eq!(samples.at(at(4)), 6_000.0);
    }
}
