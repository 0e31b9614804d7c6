//! `headwater-lab testbed run`: the runs of a plan, each on a separate bed.

use headwater_netsim::plan::Plan;
use headwater_testbed::{Kind, Routing, Setting};

use super::product;

use crate::args::TestbedRunArgs;
use crate::simulate::work::{Done, Job};
use crate::simulate::{self, Campaign};
use headwater_cli::exit::{Exit, Failure, OrExit};
use headwater_cli::screen::Screen;
use headwater_cli::shutdown::Shutdown;

/// Prefix of the keys of runs on a testbed, followed by the routing. The prefix distinguishes these runs from
/// runs of the same plan in the simulator or with another routing.
const KEY_PREFIX: &str = "bed-";

pub fn run(args: &TestbedRunArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&args.output);
    let plan = simulate::read(&args.plan, args.seed)?;
    let setting = setting(args)?;
    let mut jobs = simulate::jobs(&plan);
    let routing = setting.routing.unwrap_or_else(Routing::best);
    let prefix = format!("{KEY_PREFIX}{routing}-");
    if let Some(wanted) = &args.cell {
        jobs.retain(|job| job.key.starts_with(wanted.trim_start_matches(&prefix)));
    }
    for job in &mut jobs {
        job.key.insert_str(0, &prefix);
    }
    if jobs.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "no run of the plan has such a key; 'headwater-lab simulate PLAN --list' prints them",
        ));
    }
    // A missing requirement of the machine, or an unsupported plan, is reported once, and not for each run.
    let first = plan.scenario(&plan.cell(0), 1).or_exit(Exit::Usage, "cannot read the first cell")?;
    headwater_testbed::check(&first, &setting).map_err(super::failure)?;
    let campaign = Campaign {
        plan: &plan,
        jobs,
        out: args.out.as_deref(),
        shard: args.shard,
        at_once: Some(args.jobs),
        json: args.output.json,
        doing: &|job, shutdown| one(&plan, job.cell, job, &setting, shutdown),
        failure: &|job, reason| {
            let seed = args.seed.map_or_else(String::new, |seed| format!(" --seed {seed}"));
            format!(
                "run {} of cell {} failed: {reason}\n  again: headwater-lab testbed run --routing {routing} {} --cell {}{seed}",
                job.run,
                job.cell + 1,
                args.plan.display(),
                job.key.trim_start_matches(&prefix)
            )
        },
    };
    campaign.run(&screen)
}

fn setting(args: &TestbedRunArgs) -> Result<Setting, Failure> {
    let programs = &args.programs;
    let program = product(programs)?;
    Ok(Setting { program, routing: args.routing.into(), norm: programs.norm.clone() })
}

/// A run of a cell of a plan, until a signal comes.
pub fn one(plan: &Plan, cell: usize, job: &Job, setting: &Setting, shutdown: &Shutdown) -> Option<Done> {
    let cell = plan.cell(cell);
    let scenario = match plan.scenario(&cell, job.run) {
        Ok(scenario) => scenario,
        Err(error) => return Some(Done::Failed(error.to_string())),
    };
    match headwater_testbed::run(&scenario, setting, &|| shutdown.is_asked()) {
        Ok(mut outcome) => {
            outcome.which.key.clone_from(&job.key);
            outcome.which.plan = plan.name().to_owned();
            outcome.which.cell = cell.values;
            Some(
                serde_json::to_string(&outcome)
                    .map_or_else(|error| Done::Failed(error.to_string()), Done::Result),
            )
        }
        Err(error) if error.kind == Kind::GivenUp => None,
        Err(error) => Some(Done::Failed(error.message)),
    }
}
