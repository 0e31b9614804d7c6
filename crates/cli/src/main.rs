//! The command `headwater`.

mod args;
mod bench;
mod capture;
mod demo;
mod doctor;
mod events;
mod exit;
mod feedback;
mod generate;
mod inspect;
mod pgm;
mod receive;
mod relay;
mod screen;
mod send;
mod shutdown;
mod simulate;
mod testbed;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print();
            failure.exit.into()
        }
    }
}

fn run(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Send(args) => send::run(args),
        Command::Receive(args) => receive::run(args),
        Command::Pgm(args) => pgm::run(args),
        Command::Relay(args) => relay::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Testbed(args) => testbed::run(args),
        Command::Generate(args) => generate::run(args),
    }
}
