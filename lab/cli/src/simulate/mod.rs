//! `headwater-lab simulate`: plans in, results out.

pub mod results;
mod summary;
pub mod work;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::path::Path;

use headwater_cli::exit::{Exit, Failure, OrExit};
use headwater_cli::screen;
use headwater_cli::screen::Screen;
use headwater_cli::shutdown::Shutdown;
use headwater_netsim::plan::{Plan, TEXT_BYTES_MAX};
use headwater_proto::Seed;

use results::Results;
use summary::Summary;
use work::Traces;
use work::{Done, Job};

use crate::args::{Shard, SimulateArgs};

pub fn run(args: &SimulateArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let plan = read(&args.plan, args.seed)?;
    if args.list {
        return list(&plan, args.output.json);
    }
    if args.dry_run {
        return describe(&plan);
    }
    match &args.cell {
        Some(key) => run_one(&plan, args, key),
        None => {
            refuse_traces(args)?;
            all(&plan, args, &screen)
        }
    }
}

/// Reads and checks a plan.
pub fn read(path: &Path, seed: Option<u64>) -> Result<Plan, Failure> {
    let shown = path.display();
    let tried = || format!("cannot read the plan '{shown}'");
    let file = File::open(path).or_exit(Exit::Usage, tried())?;
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text).or_exit(Exit::Usage, tried())?;
    let plan = Plan::parse(&shown.to_string(), &text)
        .or_exit(Exit::Usage, format!("the plan '{shown}' cannot be run; nothing was done"))?;
    Ok(match seed {
        Some(seed) => plan.with_seed(Seed(seed)),
        None => plan,
    })
}

/// All runs of a plan, with the runs of a cell in sequence.
pub fn jobs(plan: &Plan) -> Vec<Job> {
    let mut jobs = Vec::new();
    for index in 0..plan.cells() {
        let cell = plan.cell(index);
        jobs.extend((1..=plan.runs()).map(|run| Job {
            cell: index,
            run,
            key: plan.key(&cell, run).to_string(),
        }));
    }
    jobs
}

fn list(plan: &Plan, json: bool) -> Result<Exit, Failure> {
    let mut text = String::new();
    for job in jobs(plan) {
        let values = plan.cell(job.cell).values;
        let line = if json {
            serde_json::json!({ "key": job.key, "run": job.run, "cell": values }).to_string()
        } else {
            format!("{}  run {:<4} {}", job.key, job.run, summary::cell_title(&values))
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    print(&text)
}

fn describe(plan: &Plan) -> Result<Exit, Failure> {
    let first = plan.scenario(&plan.cell(0), 1).or_exit(Exit::Usage, "cannot read the first cell")?;
    let swept = plan.swept();
    let swept = if swept.is_empty() { String::new() } else { format!(" (over {})", swept.join(", ")) };
    let runs = plan.cells() as u64 * plan.runs();
    print(&format!(
        "{}\n  plan      {}, digest {}\n  seed      {}\n  to do     {}{swept}, {} each: {}\n  a run     {}, \
         measured from {}\n  cell 1    {}, {}, {}, {}\nNothing was run.\n",
        plan.title(),
        plan.name(),
        plan.digest(),
        plan.seed().0,
        screen::count(plan.cells(), "cell"),
        screen::count(usize::try_from(plan.runs()).unwrap_or(usize::MAX), "run"),
        screen::count(usize::try_from(runs).unwrap_or(usize::MAX), "simulation"),
        first.duration,
        first.warm_up,
        screen::count(first.topology.nodes.len(), "node"),
        screen::count(first.topology.links.len(), "link"),
        screen::count(first.flows.len(), "flow"),
        screen::count(first.timetable.len(), "timed change"),
    ))
}

fn print(text: &str) -> Result<Exit, Failure> {
    let written = std::io::stdout().lock().write_all(text.as_bytes());
    written.or_exit(Exit::Other, "cannot write to standard output")?;
    Ok(Exit::Ok)
}

/// Execution of the runs of a plan.
pub struct Campaign<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Runs to execute.
    pub jobs: Vec<Job>,
    /// Folder for results.
    pub out: Option<&'a Path>,
    /// Shard of the runs to execute; all runs if absent.
    pub shard: Option<Shard>,
    /// Runs at the same time.
    pub at_once: Option<NonZeroUsize>,
    /// Whether results are printed as JSON.
    pub json: bool,
    /// Function that executes a run.
    pub doing: &'a work::Doing<'a>,
    /// Message for a failed run, from its job and the reason.
    pub failure: &'a dyn Fn(&Job, &str) -> String,
}

/// Executes every run of the plan, or of a shard, without a result.
fn all(plan: &Plan, args: &SimulateArgs, screen: &Screen) -> Result<Exit, Failure> {
    let campaign = Campaign {
        plan,
        jobs: jobs(plan),
        out: args.out.as_deref(),
        shard: args.shard,
        at_once: args.jobs,
        json: args.output.json,
        doing: &|job, shutdown| work::simulate(plan, job, shutdown),
        failure: &|job, reason| failure(plan, args, job, reason),
    };
    campaign.run(screen)
}

impl Campaign<'_> {
    /// Executes the runs, and stores and prints the results.
    pub fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let Self { plan, jobs: all, out, shard, at_once, json, doing, failure } = self;
        let mut results = match out {
            Some(folder) => Some(Results::open(folder, shard, &all)?),
            None => None,
        };
        let is_ours = |index: usize| shard.is_none_or(|shard| index % shard.count == shard.index);
        let chosen: Vec<Job> =
            all.into_iter().enumerate().filter(|(index, _)| is_ours(*index)).map(|(_, job)| job).collect();
        let is_done = |job: &Job| results.as_ref().is_some_and(|results| results.has(&job.key));
        let (there, pending): (Vec<&Job>, Vec<&Job>) = chosen.iter().partition(|job| is_done(job));
        if !there.is_empty() {
            let runs = screen::count(chosen.len(), "run");
            screen.say(&format!("{} of {runs} have results already", there.len()));
        }
        let shutdown = Shutdown::install(None)?;
        let mut in_order = InOrder::new(json);
        let bar = screen.bar("runs", pending.len() as u64);
        let mut failed = 0_usize;
        work::run(doing, &pending, at_once, &shutdown, &mut |index, done| {
            bar.inc(1);
            match done {
                Done::Result(line) => match &mut results {
                    Some(results) => results.add(&pending[index].key, &line),
                    None => in_order.add(index, Some(line)),
                },
                Done::Failed(reason) => {
                    failed += 1;
                    screen.say(&failure(pending[index], &reason));
                    in_order.add(index, None)
                }
            }
        })?;
        screen.clear();
        let is_interrupted = shutdown.is_asked();
        if let Some(results) = results {
            let keys: Vec<&str> = chosen.iter().map(|job| job.key.as_str()).collect();
            results.finish(plan, &keys, &mut |line| in_order.put(line))?;
        }
        if !json {
            print(&in_order.summary.table())?;
        }
        finish(failed, is_interrupted, out.is_some())
    }
}

fn finish(failed: usize, is_interrupted: bool, is_kept: bool) -> Result<Exit, Failure> {
    if failed > 0 {
        let message = format!(
            "{} failed; each is named above with the command that repeats it",
            screen::count(failed, "run")
        );
        return Err(Failure::new(Exit::Other, message));
    }
    if is_interrupted {
        let kept = if is_kept { "the same command goes on from here" } else { "nothing was kept: see --out" };
        return Err(Failure::new(
            Exit::Interrupted,
            format!("interrupted before all runs were done; {kept}"),
        ));
    }
    Ok(Exit::Ok)
}

/// Lines come as runs end, and go out as jobs are numbered.
struct InOrder {
    json: bool,
    next: usize,
    waiting: BTreeMap<usize, Option<String>>,
    summary: Summary,
}

impl InOrder {
    fn new(json: bool) -> Self {
        Self { json, next: 0, waiting: BTreeMap::new(), summary: Summary::default() }
    }

    fn add(&mut self, index: usize, line: Option<String>) -> Result<(), Failure> {
        self.waiting.insert(index, line);
        while let Some(line) = self.waiting.remove(&self.next) {
            self.next += 1;
            if let Some(line) = line {
                self.put(&line)?;
            }
        }
        Ok(())
    }

    /// Prints a line whose turn has come.
    fn put(&mut self, line: &str) -> Result<(), Failure> {
        self.summary.add(line)?;
        if self.json {
            print(&format!("{line}\n"))?;
        }
        Ok(())
    }
}

/// Executes the run of `key`, with the requested traces.
fn run_one(plan: &Plan, args: &SimulateArgs, key: &str) -> Result<Exit, Failure> {
    let job = find(plan, key)?;
    let mut traces = Traces::open(args, plan.title())?;
    let done = work::do_job(plan, &job, &mut traces);
    traces.result()?;
    match done {
        Some(Done::Result(line)) => {
            let mut summary = Summary::default();
            summary.add(&line)?;
            if args.output.json { print(&format!("{line}\n")) } else { print(&summary.table()) }
        }
        Some(Done::Failed(reason)) => Err(Failure::new(Exit::Other, failure(plan, args, &job, &reason))),
        None => Ok(Exit::Interrupted),
    }
}

/// Refuses traces of several runs.
pub fn refuse_traces(args: &SimulateArgs) -> Result<(), Failure> {
    let wanted = args.output.pcap.is_some() || args.output.events.is_some();
    if wanted {
        let message = format!(
            "--pcap and --events write down one run: name it by --cell, with a key that 'headwater-lab simulate {} --list' \
             prints",
            args.plan.display()
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(())
}

/// Message that names the failed run, and the command that repeats the run.
pub fn failure(plan: &Plan, args: &SimulateArgs, job: &Job, reason: &str) -> String {
    let seed = args.seed.map_or_else(String::new, |seed| format!(" --seed {seed}"));
    format!(
        "run {} of cell {} failed: {reason}\n  plan {} (digest {}), seed {}, headwater {} ({})\n  again: headwater-lab simulate {} \
         --cell {}{seed}",
        job.run,
        job.cell + 1,
        plan.name(),
        plan.digest(),
        plan.seed().0,
        env!("CARGO_PKG_VERSION"),
        env!("HEADWATER_COMMIT"),
        args.plan.display(),
        job.key
    )
}

fn find(plan: &Plan, key: &str) -> Result<Job, Failure> {
    let mut found: Vec<Job> = jobs(plan).into_iter().filter(|job| job.key.starts_with(key)).collect();
    match (found.pop(), found.len()) {
        (Some(job), 0) => Ok(job),
        (Some(_), others) => {
            let message = format!("{} runs have keys that begin with {key}; give more digits", others + 1);
            Err(Failure::new(Exit::Usage, message))
        }
        (None, _) => {
            let message = format!(
                "no run of the plan has the key {key}; keys change with the plan, the seed and the version: see --list"
            );
            Err(Failure::new(Exit::Usage, message))
        }
    }
}
