//! A single run by its key: to repeat a failure, and to examine the run closely.

use headwater_netsim::plan::Plan;

use super::summary::Summary;
use super::traces::Traces;
use super::work::{self, Done, Job};
use super::{jobs, print};
use crate::args::SimulateArgs;
use headwater_cli::exit::{Exit, Failure};

/// Executes the run of `key`, with the requested traces.
pub fn run(plan: &Plan, args: &SimulateArgs, key: &str) -> Result<Exit, Failure> {
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
