//! A run of a plan on a bed of its own.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use headwater_netsim::network::LinkCounters;
use headwater_netsim::plan::Scenario;
use headwater_netsim::plan::run::{FlowOutcome, Which, Window as Measured, fairness};

use crate::bed::Bed;
use crate::network::QueueCounters;
use crate::program::Program;
use crate::results::{BedReport, LinkOutcome, Outcome, ProgramReport, share};
use crate::routing::Routing;
use crate::traffic::{self, Site, Traffic, Window};
use crate::wire::{Lateness, Lines};
use crate::{Error, Kind};

/// Interval between ticks of the flows, and between readings of programs' memory.
const TICK: Duration = Duration::from_millis(5);
const LOOK: Duration = Duration::from_millis(250);
/// Prefix that gives a program real-time priority over the rest of the machine; otherwise the run would
/// measure the machine's scheduling. Further threads of the program are scheduled normally.
const URGENT: [&str; 4] = ["chrt", "--reset-on-fork", "--rr", "10"];

/// Settings common to all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The program `headwater` that runs sessions.
    pub program: PathBuf,
    /// Multicast routing; default FRR if installed, else bridges.
    pub routing: Option<Routing>,
    /// Driver program of NORM, if available.
    pub norm: Option<PathBuf>,
}

/// Checks that this machine can build beds, and the topology of `scenario` in particular, by building and
/// removing the topology. This takes a second, so that a missing requirement is reported once, and not for
/// each run.
///
/// # Errors
///
/// If the machine cannot build the bed; the message says what is missing.
pub fn check(scenario: &Scenario, setting: &Setting) -> Result<(), Error> {
    Bed::probe(scenario, setting.routing)
}

/// Executes a run on a bed created for the run and removed afterwards. `is_given_up` is polled every few
/// milliseconds.
///
/// # Errors
///
/// If the plan asks for a feature that the testbed lacks, the machine lacks a requirement, a flow failed, or
/// the run was aborted.
pub fn run(scenario: &Scenario, setting: &Setting, is_given_up: &dyn Fn() -> bool) -> Result<Outcome, Error> {
    let mut bed = Bed::up(scenario, setting.routing)?;
    let Measurement { flows, window, counted, programs } = {
        let site = Site {
            bed: &bed,
            scenario,
            program: setting.program.clone(),
            norm: setting.norm.clone(),
            began: Instant::now(),
            urgent: urgent(),
        };
        let mut trial = Trial::new(site, is_given_up)?;
        trial.go()?
    };
    let links = links_of(scenario, &counted, window);
    let lateness = bed.end_wire()?.as_ref().map(Lateness::report);
    if let Some(lateness) = lateness.filter(|lateness| !lateness.is_valid) {
        return Err(Error::failed(format!(
            "INVALID: the wire was late, p50 {:.2} ms, p99 {:.2} ms, at most {:.2} ms, and p99 may be 1 ms: the machine is too busy for \
             this plan",
            lateness.p50_ms, lateness.p99_ms, lateness.most_ms
        )));
    }
    Ok(Outcome {
        which: Which::of(scenario),
        window: Measured { from: window.from.as_secs_f64(), to: window.to.as_secs_f64() },
        jain: fairness(&flows),
        flows,
        links,
        testbed: BedReport {
            routing: bed.routing.to_string(),
            load: load(),
            processors: thread::available_parallelism().map_or(1, usize::from),
            wire: lateness,
            programs,
        },
    })
}

/// Command prefix that gives a program real-time priority; empty if the machine refuses.
fn urgent() -> Vec<String> {
    let is_allowed =
        Command::new(URGENT[0]).args(&URGENT[1..]).arg("true").output().is_ok_and(|run| run.status.success());
    if is_allowed { URGENT.map(str::to_owned).to_vec() } else { Vec::new() }
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Counters of links at the begin or the end of the window.
#[derive(Default)]
struct Counted {
    /// Counters of the reported links' queues in the kernel.
    queues: Vec<[Option<QueueCounters>; 2]>,
    /// Counters of all links on the wire.
    lines: Lines,
}

impl Counted {
    /// Counters of a direction on the wire.
    fn line(&self, link: usize, side: usize) -> Option<&LinkCounters> {
        self.lines.iter().find(|(wired, _)| *wired == link).map(|(_, lines)| &lines[side])
    }
}

/// Measurements of a run, from which the outcome is assembled.
struct Measurement {
    flows: Vec<FlowOutcome>,
    window: Window,
    /// Counters at the begin and the end of the window.
    counted: [Counted; 2],
    programs: Vec<ProgramReport>,
}

struct Trial<'a> {
    site: Site<'a>,
    flows: Vec<Box<dyn Traffic>>,
    is_given_up: &'a dyn Fn() -> bool,
}

impl<'a> Trial<'a> {
    fn new(mut site: Site<'a>, is_given_up: &'a dyn Fn() -> bool) -> Result<Self, Error> {
        for (number, flow) in site.scenario.flows.iter().enumerate() {
            traffic::content::write(&site, number, flow)?;
        }
        site.began = Instant::now();
        let mut flows = Vec::new();
        for (number, flow) in site.scenario.flows.iter().enumerate() {
            flows.push(traffic::of(&site, number, flow)?);
        }
        Ok(Self { site, flows, is_given_up })
    }

    /// Executes the run from start to end, and returns the measurements.
    fn go(&mut self) -> Result<Measurement, Error> {
        let (end, warm_up) =
            (Duration::from(self.site.scenario.duration), Duration::from(self.site.scenario.warm_up));
        let (mut before, mut looked) = (None, Duration::ZERO);
        loop {
            let now = self.site.now();
            if (self.is_given_up)() {
                return Err(Error { kind: Kind::GivenUp, message: "the run was given up".into() });
            }
            for flow in &mut self.flows {
                flow.tick(&self.site)?;
            }
            if before.is_none() && now >= warm_up {
                before = Some((now, self.counted()?));
            }
            if now >= looked + LOOK {
                looked = now;
                self.flows.iter_mut().flat_map(|flow| flow.programs()).for_each(Program::look);
            }
            if now >= end || before.is_some() && self.is_complete() {
                break;
            }
            thread::sleep(TICK);
        }
        let window = Window { from: before.as_ref().map_or(warm_up, |(at, _)| *at), to: self.site.now() };
        let after = self.counted()?;
        for flow in &mut self.flows {
            flow.stop(&self.site);
        }
        let mut outcomes = Vec::new();
        for flow in &mut self.flows {
            outcomes.push(flow.outcome(&self.site, window)?);
        }
        let programs = self.flows.iter_mut().flat_map(|flow| flow.programs());
        let report = |program: &mut Program| ProgramReport {
            name: program.name.clone(),
            cpu: program.cpu().as_secs_f64(),
            memory: program.memory_bytes,
        };
        let programs = programs.map(report).collect();
        let before = before.map(|(_, counted)| counted).unwrap_or_default();
        Ok(Measurement { flows: outcomes, window, counted: [before, after], programs })
    }

    /// Whether the plan ends with certain transfers, and all of these are complete.
    fn is_complete(&self) -> bool {
        let until = &self.site.scenario.measure.until;
        !until.is_empty() && until.iter().all(|flow| self.flows[*flow].is_complete())
    }

    fn counted(&self) -> Result<Counted, Error> {
        let bed = self.site.bed;
        let lines = bed.lines()?;
        let read = |link: &usize| {
            let cable = &bed.shape.cables[*link];
            let mut both = [None; 2];
            for (end, counters) in both.iter_mut().enumerate() {
                if cable.buckets[end].is_some() {
                    *counters = Some(bed.network.queue(&bed.shape, cable.ends[end], *link)?);
                }
            }
            Ok(both)
        };
        let queues = self.site.scenario.measure.links.iter().map(read).collect::<Result<_, Error>>()?;
        Ok(Counted { queues, lines })
    }
}

/// Outcomes of the reported links.
fn links_of(scenario: &Scenario, [before, after]: &[Counted; 2], window: Window) -> Vec<LinkOutcome> {
    let seconds = window.to.saturating_sub(window.from).as_secs_f64().max(f64::MIN_POSITIVE);
    let mut outcomes = Vec::new();
    for (place, link) in scenario.measure.links.iter().enumerate() {
        let name = &scenario.topology.links[*link].name;
        for (side, name) in [name.clone(), format!("{name}/back")].into_iter().enumerate() {
            let on_wire = after.line(*link, side).map(|line| {
                let before = before.line(*link, side).cloned().unwrap_or_default();
                OnWire::between(&before, line)
            });
            let queue = before
                .queues
                .get(place)
                .zip(after.queues.get(place))
                .and_then(|(before, after)| Some(after[side]?.since(before[side].unwrap_or_default())));
            match (queue, on_wire) {
                (Some(queue), wire) => outcomes.push(of_bucket(name, queue, wire, seconds)),
                (None, Some(wire)) => outcomes.push(of_wire(name, wire, seconds)),
                (None, None) => {}
            }
        }
    }
    outcomes
}

/// Counters of a line of the wire in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OnWire {
    arrivals: u64,
    drops: u64,
    lost: u64,
    marks: u64,
    bytes: u64,
}

impl OnWire {
    fn between(before: &LinkCounters, after: &LinkCounters) -> Self {
        Self {
            arrivals: after.offered_packets.saturating_sub(before.offered_packets),
            drops: after.queue_drops().saturating_sub(before.queue_drops()),
            lost: after.lost.saturating_sub(before.lost),
            marks: after.marked.saturating_sub(before.marked),
            bytes: after.sent_bytes.saturating_sub(before.sent_bytes),
        }
    }
}

fn of_bucket(name: String, queue: QueueCounters, wire: Option<OnWire>, seconds: f64) -> LinkOutcome {
    let arrivals = queue.packets + queue.drops;
    LinkOutcome {
        name,
        arrivals,
        drops: queue.drops,
        loss: share(queue.drops, arrivals),
        lost: wire.map_or(0, |wire| wire.lost),
        marks: 0,
        throughput: 8.0 * queue.bytes as f64 / seconds,
    }
}

/// Outcome of a direction that is entirely on the wire.
fn of_wire(name: String, wire: OnWire, seconds: f64) -> LinkOutcome {
    LinkOutcome {
        name,
        arrivals: wire.arrivals,
        drops: wire.drops,
        loss: share(wire.drops, wire.arrivals),
        lost: wire.lost,
        marks: wire.marks,
        throughput: 8.0 * wire.bytes as f64 / seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wired_link_is_reported_over_the_window() {
        let before = LinkCounters {
            offered_packets: 1_000,
            dropped_full: 400,
            lost: 50,
            marked: 7,
            sent_bytes: 900_000,
            ..LinkCounters::default()
        };
        let after = LinkCounters {
            offered_packets: 1_100,
            dropped_full: 405,
            dropped_early: 5,
            lost: 51,
            marked: 9,
            sent_bytes: 1_025_000,
            ..LinkCounters::default()
        };
        let outcome = of_wire("x".into(), OnWire::between(&before, &after), 2.0);
        assert_eq!((outcome.arrivals, outcome.drops, outcome.lost, outcome.marks), (100, 10, 1, 2));
        assert_eq!((outcome.loss, outcome.throughput), (share(10, 100), 500_000.0));
    }
}
