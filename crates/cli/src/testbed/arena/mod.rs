//! `headwater bench arena`: all our controls, the kernel's TCP and other tools on the same bottlenecks, one report.

mod report;
mod scene;
mod score;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use headwater_netsim::plan::Plan;
use headwater_testbed::Setting;
use serde::Deserialize;

use super::failure;
use super::trials::one;
use crate::args::{ArenaArgs, ArenaForm};
use crate::exit::{Exit, Failure, OrExit};
use crate::screen::Screen;
use crate::shutdown::Shutdown;
use crate::simulate::results::open_journal;
use crate::simulate::work::{self, Done, Job};

use report::Report;
use scene::Scene;
use score::Score;

/// A contender in a scene.
pub struct Cell {
    pub scene: Scene,
    pub by: &'static str,
    /// Mbit/s of the bottleneck.
    pub rate: u64,
    pub receivers: usize,
    plan: Plan,
    /// A score for each run that ended.
    pub scores: Vec<Score>,
}

pub fn run(args: &ArenaArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let program = std::env::current_exe().or_exit(Exit::Other, "cannot find the program that runs")?;
    // The other tools know any-source groups only, which the bed's FRR does not route.
    let routing = Some(headwater_testbed::Routing::Bridge);
    let setting = Setting { program, routing, norm: args.norm.clone() };
    let (mut cells, part) = cells(args)?;
    let first = cells.first().ok_or_else(|| Failure::new(Exit::Usage, "nobody is left for the arena"))?;
    let scenario =
        first.plan.scenario(&first.plan.cell(0), 1).or_exit(Exit::Usage, "cannot read the first cell")?;
    headwater_testbed::check(&scenario, &setting).map_err(failure)?;
    fs::create_dir_all(&args.out)
        .or_exit(Exit::Disk, format!("cannot make the folder '{}'", args.out.display()))?;
    let jobs = jobs(&cells);
    let (lines, interrupted) = fight(args, &cells, &jobs, &setting, &screen)?;
    for job in &jobs {
        let cell = &mut cells[job.cell];
        let bytes = Scene::bytes(cell.rate, part) as f64;
        let line = lines.get(&job.key);
        cell.scores.extend(line.and_then(|line| Score::of(line, cell.rate as f64 * 1e6, bytes)));
    }
    let report = Report { cells: &cells, contenders: &contenders(args) };
    write(&args.out.join("arena.txt"), &report.text())?;
    write(&args.out.join("arena.html"), &report.html())?;
    screen.say(&format!("the report is in '{}': arena.txt, arena.html", args.out.display()));
    Ok(if interrupted { Exit::Interrupted } else { Exit::Ok })
}

/// Who takes part.
fn contenders(args: &ArenaArgs) -> Vec<&'static str> {
    let is_wanted = |by: &&&str| args.only.is_empty() || args.only.iter().any(|only| only == **by);
    scene::CONTENDERS.iter().filter(is_wanted).copied().collect()
}

/// All that is to be done, and which part of the full form's bytes files have.
fn cells(args: &ArenaArgs) -> Result<(Vec<Cell>, u64), Failure> {
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
                let text = scene.plan(by, rate, receivers, part, runs);
                let plan =
                    Plan::parse("the arena's plan", &text).or_exit(Exit::Other, "a plan of ours is wrong")?;
                let plan = args.seed.map_or(plan.clone(), |seed| plan.with_seed(headwater_proto::Seed(seed)));
                cells.push(Cell { scene: *scene, by, rate, receivers, plan, scores: Vec::new() });
            }
        }
    }
    Ok((cells, part))
}

/// Runs of all cells, the first of each before the second of any: contenders take turns, so that a busy time hits all alike.
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

/// Lines of results by key, and whether a signal ended it. Those that an earlier call has left are taken.
fn fight(
    args: &ArenaArgs,
    cells: &[Cell],
    jobs: &[Job],
    setting: &Setting,
    screen: &Screen,
) -> Result<(BTreeMap<String, String>, bool), Failure> {
    let path = args.out.join("arena.jsonl");
    let tried = || format!("cannot write '{}'", path.display());
    let mut file = open_journal(&path).or_exit(Exit::Disk, tried())?;
    let mut lines = known(&path);
    let pending: Vec<&Job> = jobs.iter().filter(|job| !lines.contains_key(&job.key)).collect();
    let shutdown = Shutdown::install(None)?;
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
            Done::Failed(why) => screen.say(&format!(
                "{}, {}, {} Mbit/s, {} receivers: {why}",
                cell.by, cell.scene.title, cell.rate, cell.receivers
            )),
        }
        Ok(())
    })?;
    screen.clear();
    Ok((lines, shutdown.is_asked()))
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
