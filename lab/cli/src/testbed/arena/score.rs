//! Score of a run in the arena.

use headwater_netsim::plan::flow::is_by_unicast;
use serde::Deserialize;

/// Fields of a line of results that the score uses.
#[derive(Deserialize)]
struct Line {
    flows: Vec<Flow>,
    links: Vec<Link>,
    testbed: Bed,
}

#[derive(Deserialize)]
struct Flow {
    name: String,
    throughput: f64,
    receivers: Option<usize>,
    complete: Option<usize>,
    mean_completion: Option<f64>,
    longest_completion: Option<f64>,
    criteria: Option<Criteria>,
}

#[derive(Deserialize)]
struct Criteria {
    net: f64,
}

#[derive(Deserialize)]
struct Link {
    name: String,
    loss: Option<f64>,
}

#[derive(Deserialize)]
struct Bed {
    programs: Vec<Program>,
    #[serde(default)]
    load: f64,
}

#[derive(Deserialize)]
struct Program {
    cpu: f64,
    memory: u64,
}

/// A measure of a run: its title, and its value in the title's unit.
pub struct Column {
    pub title: &'static str,
    pub value: fn(&Score) -> Option<f64>,
}

/// Places in [`COLUMNS`].
pub const TIME: usize = 0;
pub const RIVAL: usize = 3;
pub const JAIN: usize = 4;
pub const LOSS: usize = 5;

/// Columns of reports, in order.
pub const COLUMNS: &[Column] = &[
    Column { title: "time, s", value: |score| score.time },
    Column { title: "slowest, s", value: |score| score.slowest },
    Column { title: "net, %", value: |score| score.net.map(|net| 100.0 * net) },
    Column { title: "TCP's share, %", value: |score| score.rival.map(|share| 100.0 * share) },
    Column { title: "Jain", value: |score| score.jain },
    Column { title: "loss, %", value: |score| score.loss.map(|loss| 100.0 * loss) },
    Column { title: "CPU, s/GB", value: |score| score.cpu },
    Column { title: "memory, MB", value: |score| score.memory.map(|bytes| bytes / 1e6) },
];

/// Score of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Mean time in seconds from a receiver's join until its file was complete.
    pub time: Option<f64>,
    /// Time of the slowest receiver, in seconds.
    pub slowest: Option<f64>,
    /// Bytes on a receiver's link over the bytes of the file, less 1.
    pub net: Option<f64>,
    /// The rival's part of the bottleneck's rate while the transfer lasted.
    pub rival: Option<f64>,
    /// Jain's index of the bottleneck's shares of the transfer and the rival.
    pub jain: Option<f64>,
    /// Packets that the bottleneck's queue dropped.
    pub loss: Option<f64>,
    /// Processor seconds of all programs for each GB that a receiver has.
    pub cpu: Option<f64>,
    /// Maximum memory of a program, in bytes.
    pub memory: Option<f64>,
    /// Load average at the end.
    pub load: f64,
}

impl Score {
    /// Reads a line of results of `by`; `bits` is the bottleneck's rate, `bytes` the file's length. `None` if
    /// the line has another form.
    pub fn of(line: &str, by: &str, bits: f64, bytes: f64) -> Option<Self> {
        let line: Line = serde_json::from_str(line).ok()?;
        let main = line.flows.iter().find(|flow| flow.name == "main")?;
        let rival = line.flows.iter().find(|flow| flow.name == "rival").map(|flow| flow.throughput);
        let link = line.links.iter().find(|link| link.name == "bottleneck");
        // Who serves each receiver by itself crosses the bottleneck once for each; throughput is the mean of
        // receivers.
        let crossings = if is_by_unicast(by) { main.receivers.unwrap_or(1).max(1) as f64 } else { 1.0 };
        let mut score = Self {
            rival: rival.map(|rate| rate / bits),
            jain: rival
                .and_then(|rate| headwater_netsim::measure::jain(&[crossings * main.throughput, rate])),
            loss: link.and_then(|link| link.loss),
            load: line.testbed.load,
            ..Self::default()
        };
        let receivers = main.receivers.unwrap_or(0);
        if receivers == 0 || main.complete != Some(receivers) {
            // Some receivers lack the file, so the duration has no meaning.
            return Some(score);
        }
        score.time = main.mean_completion;
        score.slowest = main.longest_completion;
        score.net = main.criteria.as_ref().map(|criteria| criteria.net);
        if !line.testbed.programs.is_empty() {
            let cpu: f64 = line.testbed.programs.iter().map(|program| program.cpu).sum();
            score.cpu = Some(cpu / (bytes * receivers as f64 / 1e9));
            score.memory = line.testbed.programs.iter().map(|program| program.memory as f64).reduce(f64::max);
        }
        Some(score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"key":"x","flows":[
        {"name":"main","throughput":1e6,"receivers":2,"complete":2,"mean_completion":8.0,"longest_completion":9.0,"criteria":{"net":0.05}},
        {"name":"rival","throughput":3e6}],
        "links":[{"name":"bottleneck","loss":0.02},{"name":"bottleneck/back","loss":0.5}],
        "testbed":{"programs":[{"name":"a","cpu":1.0,"memory":5},{"name":"b","cpu":3.0,"memory":7}]}}"#;

    #[test]
    fn a_run_is_scored() {
        let score = Score::of(LINE, "m2c", 4e6, 1e9).unwrap();
        assert_eq!((score.time, score.slowest, score.net), (Some(8.0), Some(9.0), Some(0.05)));
        assert_eq!((score.rival, score.jain), (Some(0.75), Some(0.8)));
        assert_eq!((score.loss, score.cpu, score.memory), (Some(0.02), Some(2.0), Some(7.0)));
        let each = Score::of(LINE, "tcp", 4e6, 1e9).unwrap();
        assert!((each.jain.unwrap() - 25.0 / 26.0).abs() < 1e-9, "two of 1 Mbit/s beside one of 3");
    }

    #[test]
    fn who_has_not_served_all_has_no_time() {
        let score = Score::of(&LINE.replace("\"complete\":2", "\"complete\":1"), "m2c", 4e6, 1e9).unwrap();
        assert_eq!((score.time, score.net, score.cpu, score.rival), (None, None, None, Some(0.75)));
        assert_eq!(Score::of("{}", "m2c", 4e6, 1e9), None);
    }
}
