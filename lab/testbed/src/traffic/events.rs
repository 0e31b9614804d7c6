//! Output of Headwater's programs, line by line, as counters over time.

use std::time::Duration;

use serde::Deserialize;

use crate::results::Samples;

/// A line of JSON of `headwater send --json` or `receive --json`, reduced to the fields used here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    /// Milliseconds since the program's start.
    time: f64,
    event: String,
    outcome: Option<String>,
    channel: Option<u32>,
    packets: u64,
    bytes: u64,
    lost: u64,
    missed: u64,
    symbols_total: u64,
    useful: u64,
    duplicates: u64,
    surplus: u64,
    naks: Option<u64>,
    repairs: Option<u64>,
    join_latency: Option<f64>,
}

/// An end's whole story. Times are seconds since the run's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Story {
    pub packets: Samples,
    pub bytes: Samples,
    pub useful: Samples,
    pub joins: Vec<Duration>,
    pub leaves: Vec<Duration>,
    /// Begin of the session: the first join or, without groups, the first request.
    pub began: Option<Duration>,
    /// Last time that the receiver left the base channel before its files were complete: the receiver then
    /// had all symbols.
    pub left: Option<Duration>,
    /// Time at which the files were complete and verified.
    pub whole: Option<Duration>,
    /// The last counters.
    pub last: Counters,
}

/// Counters of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    pub symbols_total: u64,
    pub useful: u64,
    pub duplicates: u64,
    /// Symbols beyond the number needed to decode.
    pub surplus: u64,
    pub naks: u64,
    pub repairs: u64,
    pub join_latency_ms: Option<f64>,
}

impl Story {
    /// Reads the output of a program that started at `began`. Incomplete lines and unknown events are
    /// skipped.
    pub fn read(text: &str, began: Duration) -> Self {
        let mut story = Self::default();
        for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
            story.add(&line, began + Duration::from_secs_f64(line.time.max(0.0) / 1e3));
        }
        story
    }

    fn add(&mut self, line: &Line, at: Duration) {
        match line.event.as_str() {
            "session:started" => self.began = Some(at),
            "channel:joined" => {
                if self.joins.is_empty() {
                    self.began = Some(at);
                }
                self.joins.push(at);
            }
            "channel:left" => {
                self.leaves.push(at);
                if line.channel == Some(0) && self.whole.is_none() {
                    self.left = Some(at);
                }
            }
            "object:completed" => self.whole = Some(at),
            "session:ended" if line.outcome.as_deref() == Some("completed") => {
                self.whole.get_or_insert(at);
                self.count(line, at);
            }
            "session:progress" | "session:ended" => self.count(line, at),
            _ => {}
        }
    }

    fn count(&mut self, line: &Line, at: Duration) {
        self.packets.push(at, line.packets);
        self.bytes.push(at, line.bytes);
        self.useful.push(at, line.useful);
        self.last = Counters {
            packets: line.packets,
            bytes: line.bytes,
            lost: line.lost.max(line.missed),
            symbols_total: line.symbols_total,
            useful: line.useful,
            duplicates: line.duplicates,
            surplus: line.surplus,
            naks: line.naks.unwrap_or(0),
            repairs: line.repairs.unwrap_or(0),
            join_latency_ms: line.join_latency.or(self.last.join_latency_ms),
        };
    }
}

/// Number of `times` in a window.
pub(super) fn within(times: &[Duration], from: Duration, to: Duration) -> u64 {
    times.iter().filter(|at| (from..to).contains(*at)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVER: &str = r#"{"time":0.2,"event":"session:started","role":"receiver","group":"232.72.0.1:7300","interface":"eth0"}
{"time":1.0,"event":"channel:joined","channel":0,"group":"232.72.0.1:7300"}
{"time":500.0,"event":"session:progress","packets":10,"bytes":14240,"lost":1,"symbols":9,"symbols_total":20,"useful":9,"duplicates":0,"new":[1]}
{"time":900.0,"event":"channel:left","channel":0}
{"time":950.0,"event":"channel:joined","channel":0,"group":"232.72.0.1:7300"}
{"time":1400.0,"event":"channel:left","channel":0}
{"time":1500.0,"event":"object:completed","file":"content","bytes":28000}
{"time":1501.0,"event":"session:ended","role":"receiver","outcome":"completed","packets":24,"bytes":34176,"lost":3,"symbols":22,"symbols_total":20,"useful":21,"duplicates":1,"join_latency":12.5}
{"time":1502.0,"eve"#;

    #[test]
    fn a_story_is_read_to_its_end() {
        let story = Story::read(RECEIVER, Duration::from_secs(10));
        let at = |ms: u64| Some(Duration::from_millis(10_000 + ms));
        assert_eq!((story.began, story.left, story.whole), (at(1), at(1_400), at(1_500)));
        assert_eq!((story.joins.len(), story.leaves.len()), (2, 2));
        let last = story.last;
        assert_eq!((last.packets, last.lost, last.useful, last.duplicates), (24, 3, 21, 1));
        assert_eq!(last.join_latency_ms, Some(12.5));
        assert_eq!(within(&story.leaves, Duration::from_secs(10), Duration::from_secs(11)), 1);
        // Bytes of the second half.
        let bits = story.bytes.bits_per_second(Duration::from_millis(10_500), Duration::from_millis(11_501));
        assert!((bits * 1.001 / 8.0 - 19_936.0).abs() < 1.0, "{bits}");
    }

    #[test]
    fn nonsense_is_no_story() {
        assert_eq!(Story::read("", Duration::ZERO), Story::default());
        assert_eq!(Story::read("x\n[]\n{\"event\":7}\n", Duration::ZERO), Story::default());
    }
}
