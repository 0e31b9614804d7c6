//! `headwater-lab analyse`: tables computed without a simulation, as lines of CSV.

mod markov;
mod passed;
mod prefix;
mod scheduler;

use headwater_cli::exit::Exit;

use crate::args::{AnalyseArgs, Analysis};

pub fn run(args: &AnalyseArgs) -> Exit {
    match args.analysis {
        Analysis::Scheduler => scheduler::run(),
        Analysis::Prefix => prefix::run(),
        Analysis::Markov => markov::run(),
        Analysis::Passed => passed::run(),
    }
    Exit::Ok
}
