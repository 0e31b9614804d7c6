//! The command `headwater`.

use std::process::ExitCode;

use clap::Parser;
use headwater_cli::Cli;

const NAME: &str = "headwater";

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print(NAME);
            failure.exit.into()
        }
    }
}
