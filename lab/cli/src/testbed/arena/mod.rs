//! `headwater-lab arena`: all Headwater controls, the kernel's TCP and other tools on the same bottlenecks,
//! with a single report.
//!
//! Score of a run in the arena.

mod report;
mod scene;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use headwater_cli::exit::{Exit, Failure, OrExit};
use headwater_cli::screen::Screen;
use headwater_cli::shutdown::Shutdown;
use headwater_netsim::plan::Plan;
use headwater_netsim::plan::flow::is_by_unicast;
use headwater_testbed::{GroupProtocol, Routing, Setting};
use serde::Deserialize;

use report::ArenaReport;
use scene::Scene;

use super::{failure, one};
use crate::args::{ArenaArgs, ArenaForm};
use crate::simulate::results::open_journal;
use crate::simulate::work;
use crate::simulate::work::{Done, Job};

/// A contender in a scene.
pub struct Cell {
    pub scene: Scene,
    pub by: &'static str,
    /// Mbit/s of the bottleneck.
    pub rate: u64,
    pub receivers: usize,
    /// Size of the file in bytes.
    pub bytes: f64,
    plan: Plan,
    /// A score for each run that ended.
    pub scores: Vec<Score>,
    /// Reasons of the failed runs.
    pub failures: Vec<String>,
}

impl Cell {
    /// Creates a cell without runs, for a rate in Mbit/s and a number of receivers.
    fn new(
        scene: Scene,
        by: &'static str,
        (rate, receivers): (u64, usize),
        part: u64,
        runs: u64,
    ) -> Result<Self, Failure> {
        let text = scene.plan(by, rate, receivers, part, runs);
        let plan = Plan::parse("the arena's plan", &text).or_exit(Exit::Other, "a plan of ours is wrong")?;
        let bytes = Scene::bytes(rate, part) as f64;
        Ok(Self { scene, by, rate, receivers, bytes, plan, scores: Vec::new(), failures: Vec::new() })
    }

    /// Seconds that the file takes at the fair rate, the mean over the receivers. The fair rate is the link's
    /// rate minus the rival's share: half for a TCP, the requested rate for short connections.
    pub fn ideal(&self) -> f64 {
        let rate = self.rate as f64 * 1e6;
        let others = match self.scene.rival {
            scene::Rival::None => 0.0,
            scene::Rival::Tcp => rate / 2.0,
            scene::Rival::Short => scene::SHORT_RATE,
        };
        let shared = self.bytes * 8.0 / (rate - others);
        let receivers = self.receivers as f64;
        if self.scene.is_slow { shared * (receivers - 1.0 + 4.0) / receivers } else { shared }
    }
}

pub fn run(args: &ArenaArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let program = super::product(&args.programs)?;
    // The other tools know any-source groups only, which the bed's FRR does not route.
    let routing = Some(Routing::Bridge(GroupProtocol::Igmpv3));
    let setting = Setting { program, routing, norm: args.programs.norm.clone() };
    let mut cells = cells(args)?;
    let first = cells.first().ok_or_else(|| Failure::new(Exit::Usage, "nobody is left for the arena"))?;
    let scenario =
        first.plan.scenario(&first.plan.cell(0), 1).or_exit(Exit::Usage, "cannot read the first cell")?;
    headwater_testbed::check(&scenario, &setting).map_err(failure)?;
    fs::create_dir_all(&args.out)
        .or_exit(Exit::Disk, format!("cannot make the folder '{}'", args.out.display()))?;
    let jobs = jobs(&cells);
    let Fought { lines, failures, is_interrupted } = fight(args, &cells, &jobs, &setting, &screen)?;
    for (cell, why) in failures {
        cells[cell].failures.push(why);
    }
    for job in &jobs {
        let cell = &mut cells[job.cell];
        let line = lines.get(&job.key);
        cell.scores
            .extend(line.and_then(|line| Score::of(line, cell.by, cell.rate as f64 * 1e6, cell.bytes)));
    }
    let report =
        ArenaReport { cells: &cells, contenders: &contenders(args), machine: &machine(&cells, jobs.len()) };
    write(&args.out.join("arena.txt"), &report.text())?;
    write(&args.out.join("arena.html"), &report.html())?;
    screen.say(&format!("the report is in '{}': arena.txt, arena.html", args.out.display()));
    Ok(if is_interrupted { Exit::Interrupted } else { Exit::Ok })
}

/// Description of the machine and the runs.
fn machine(cells: &[Cell], runs: usize) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let scores = || cells.iter().flat_map(|cell| &cell.scores);
    let most = scores().map(|score| score.load).fold(0.0, f64::max);
    let least = scores().map(|score| score.load).fold(most, f64::min);
    format!(
        "Headwater {}, Linux {}, {}, load {least:.1} to {most:.1}, {} of {}",
        env!("CARGO_PKG_VERSION"),
        kernel.trim(),
        headwater_cli::screen::count(processors, "processor"),
        scores().count(),
        headwater_cli::screen::count(runs, "run"),
    )
}

/// Contenders that take part.
fn contenders(args: &ArenaArgs) -> Vec<&'static str> {
    let is_wanted = |by: &&&str| args.only.is_empty() || args.only.iter().any(|only| only == **by);
    scene::CONTENDERS.iter().filter(is_wanted).copied().collect()
}

/// All cells to run.
fn cells(args: &ArenaArgs) -> Result<Vec<Cell>, Failure> {
    if let Some(stranger) = args.only.iter().find(|only| !scene::CONTENDERS.contains(&only.as_str())) {
        let known = scene::CONTENDERS.join(", ");
        return Err(Failure::new(Exit::Usage, format!("'{stranger}' does not take part; there are {known}")));
    }
    let (scenes, part, runs) = match args.form {
        ArenaForm::Short => (scene::SHORT, 4, 1),
        ArenaForm::Full => (scene::FULL, 1, 5),
    };
    let runs = args.runs.unwrap_or(runs);
    let mut cells = Vec::new();
    for scene in scenes {
        for (rate, receivers) in
            scene.rates.iter().flat_map(|rate| scene.receivers.iter().map(move |n| (*rate, *n)))
        {
            for by in contenders(args) {
                let mut cell = Cell::new(*scene, by, (rate, receivers), part, runs)?;
                if let Some(seed) = args.seed {
                    cell.plan = cell.plan.with_seed(headwater_proto::Seed(seed));
                }
                cells.push(cell);
            }
        }
    }
    Ok(cells)
}

/// Runs of all cells, the first of each before the second of any: contenders alternate, so that a busy time
/// affects all contenders alike.
fn jobs(cells: &[Cell]) -> Vec<Job> {
    let runs = cells.iter().map(|cell| cell.plan.runs()).max().unwrap_or(0);
    let of = |run: u64| {
        let job = move |(index, cell): (usize, &Cell)| Job {
            cell: index,
            run,
            key: cell.plan.key(&cell.plan.cell(0), run).to_string(),
        };
        cells.iter().enumerate().map(job)
    };
    (1..=runs).flat_map(of).collect()
}

/// Results of all runs.
struct Fought {
    /// Results by key.
    lines: BTreeMap<String, String>,
    /// Cells of runs that failed, and why.
    failures: Vec<(usize, String)>,
    /// Whether a signal ended the runs.
    is_interrupted: bool,
}

/// Executes the runs. Results of an earlier call are reused.
fn fight(
    args: &ArenaArgs,
    cells: &[Cell],
    jobs: &[Job],
    setting: &Setting,
    screen: &Screen,
) -> Result<Fought, Failure> {
    let path = args.out.join("arena.jsonl");
    let tried = || format!("cannot write '{}'", path.display());
    let mut file = open_journal(&path).or_exit(Exit::Disk, tried())?;
    let mut lines = known(&path);
    let pending: Vec<&Job> = jobs.iter().filter(|job| !lines.contains_key(&job.key)).collect();
    let shutdown = Shutdown::install(None)?;
    let mut failures = Vec::new();
    let bar = screen.bar("runs", pending.len() as u64);
    let doing = |job: &Job, shutdown: &Shutdown| one(&cells[job.cell].plan, 0, job, setting, shutdown);
    work::run(&doing, &pending, Some(args.jobs), &shutdown, &mut |index, done| {
        bar.inc(1);
        let (job, cell) = (pending[index], &cells[pending[index].cell]);
        match done {
            Done::Result(line) => {
                file.write_all(format!("{line}\n").as_bytes()).or_exit(Exit::Disk, tried())?;
                lines.insert(job.key.clone(), line);
            }
            Done::Failed(why) => {
                screen.say(&format!(
                    "{}, {}, {} Mbit/s, {} receivers: {why}",
                    cell.by, cell.scene.title, cell.rate, cell.receivers
                ));
                failures.push((job.cell, why));
            }
        }
        Ok(())
    })?;
    screen.clear();
    Ok(Fought { lines, failures, is_interrupted: shutdown.is_asked() })
}

/// Whole lines of an earlier call.
fn known(path: &Path) -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct Keyed {
        key: String,
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let keyed = |line: &str| Some((serde_json::from_str::<Keyed>(line).ok()?.key, line.to_owned()));
    text.lines().filter_map(keyed).collect()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).or_exit(Exit::Disk, format!("cannot write '{}'", path.display()))
}

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
