//! `headwater-lab analyse`: tables computed without a simulation, as lines of CSV.

mod markov;
mod passed;
mod prefix;
mod scheduler;

use std::io::{BufWriter, Error, ErrorKind, Write, stdout};

use headwater_cli::exit::{Exit, Failure, OrExit};

use crate::args::{AnalyseArgs, Analysis};

/// Writes a table to standard output. A reader that has gone is no error.
pub fn run(args: &AnalyseArgs) -> Result<Exit, Failure> {
    let mut out = BufWriter::new(stdout().lock());
    let written = match args.analysis {
        Analysis::Scheduler => scheduler::write(&mut out),
        Analysis::Prefix => prefix::write(&mut out),
        Analysis::Markov => markov::write(&mut out),
        Analysis::Passed => passed::write(&mut out),
    };
    let is_gone = |error: &Error| error.kind() == ErrorKind::BrokenPipe;
    match written.and_then(|()| out.flush()) {
        Err(error) if is_gone(&error) => Ok(Exit::Ok),
        written => written.or_exit(Exit::Other, "cannot write to standard output").map(|()| Exit::Ok),
    }
}
