//! The command `headwater-lab`.

mod analyse;
mod args;
mod netsim_bench;
mod simulate;
mod testbed;
mod verdict;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use headwater_cli::exit::{Exit, Failure};
use headwater_cli::generate;

use args::{BenchPart, Cli, Command};

const NAME: &str = "headwater-lab";

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print(NAME);
            failure.exit.into()
        }
    }
}

fn run(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Simulate(args) => simulate::run(args),
        Command::Testbed(args) => testbed::run(args),
        Command::Arena(args) => testbed::arena(args),
        Command::Analyse(args) => analyse::run(args),
        Command::Verdict(args) => verdict::run(args),
        Command::Bench(args) => match &args.part {
            BenchPart::Netsim(args) => Ok(netsim_bench::run(args)),
        },
        Command::Generate(args) => generate::write(&Cli::command(), &args.dir),
    }
}
