//! `headwater-lab testbed` and `headwater-lab arena`: plans on this machine's kernel.

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod standing;

use std::path::PathBuf;

use headwater_cli::exit::{Exit, Failure, OrExit};
use headwater_cli::screen::Screen;
use headwater_cli::shutdown::Shutdown;
use headwater_netsim::plan::Plan;
use headwater_testbed::{Kind, Routing, Setting};

use crate::args::{ArenaArgs, ProgramsArgs, TestbedArgs, TestbedRunArgs};
use crate::simulate;
use crate::simulate::Campaign;
use crate::simulate::work::{Done, Job};

#[cfg(target_os = "linux")]
#[cfg(target_os = "linux")]
#[cfg(target_os = "linux")]
pub fn run(args: &TestbedArgs) -> Result<Exit, Failure> {
    standing::run(args)
}

#[cfg(target_os = "linux")]
pub fn arena(args: &ArenaArgs) -> Result<Exit, Failure> {
    arena::run(args)
}

#[cfg(not(target_os = "linux"))]
pub fn run(_: &TestbedArgs) -> Result<Exit, Failure> {
    Err(elsewhere())
}

#[cfg(not(target_os = "linux"))]
pub fn arena(_: &ArenaArgs) -> Result<Exit, Failure> {
    Err(elsewhere())
}

#[cfg(not(target_os = "linux"))]
fn elsewhere() -> Failure {
    Failure::new(
        Exit::Usage,
        "a testbed is made of Linux's network namespaces: run it on Linux; 'headwater-lab simulate' runs everywhere",
    )
}

/// Path of the command `headwater` that the nodes run.
#[cfg(target_os = "linux")]
fn product(programs: &ProgramsArgs) -> Result<PathBuf, Failure> {
    if let Some(program) = &programs.headwater {
        return Ok(program.clone());
    }
    let this = std::env::current_exe().or_exit(Exit::Other, "cannot find the program that runs")?;
    let program = this.with_file_name("headwater");
    if program.is_file() {
        return Ok(program);
    }
    let message = format!(
        "there is no 'headwater' beside '{}': build it with 'cargo build --release -p headwater-cli', or name one with --headwater",
        this.display()
    );
    Err(Failure::new(Exit::Usage, message))
}

/// Converts a bed's error to a failure with the exit code of the error's kind.
#[cfg(target_os = "linux")]
fn failure(error: headwater_testbed::Error) -> Failure {
    use headwater_testbed::Kind;
    let exit = match error.kind {
        Kind::Plan => Exit::Usage,
        Kind::Missing => Exit::Network,
        Kind::GivenUp => Exit::Interrupted,
        Kind::Failed => Exit::Other,
    };
    Failure::of(exit, error)
}

#[cfg(target_os = "linux")]
impl From<crate::args::RoutingName> for Option<Routing> {
    fn from(name: crate::args::RoutingName) -> Self {
        use crate::args::RoutingName;
        use headwater_testbed::{GroupProtocol, Routing};
        match name {
            RoutingName::Auto => None,
            RoutingName::Bridge => Some(Routing::Bridge(GroupProtocol::Igmpv3)),
            RoutingName::Igmpv2 => Some(Routing::Bridge(GroupProtocol::Igmpv2)),
            RoutingName::Mldv2 => Some(Routing::Bridge(GroupProtocol::Mldv2)),
            RoutingName::Mldv1 => Some(Routing::Bridge(GroupProtocol::Mldv1)),
            RoutingName::Frr => Some(Routing::Frr),
            RoutingName::Static => Some(Routing::Static),
        }
    }
}

/// Prefix of the keys of runs on a testbed, followed by the routing. The prefix distinguishes these runs from
/// runs of the same plan in the simulator or with another routing.
const KEY_PREFIX: &str = "bed-";

fn run_plan(args: &TestbedRunArgs) -> Result<Exit, Failure> {
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
    headwater_testbed::check(&first, &setting).map_err(failure)?;
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
