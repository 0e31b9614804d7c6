//! The command line of `headwater-lab`. One definition feeds parsing, help, completions and the man pages.

mod arena;
mod simulate;
mod testbed;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use headwater_cli::values;

pub use arena::{ArenaArgs, ArenaForm};
pub use simulate::SimulateArgs;
pub use testbed::{RoutingName, TestbedArgs, TestbedCommand, TestbedRunArgs};

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  anything else
    2  usage: an option, a file name or a plan is wrong
    3  network: no testbed can be made here
    7  disk: a file could not be read or written
  130  interrupted";

const BENCH_EXAMPLES: &str = "\
Examples:
  headwater-lab bench netsim            packet-hops of the simulator, beside a bare loop in the same run";

/// Runs experiments on Headwater's protocols: in the packet simulator, or on this machine's kernel.
#[derive(Debug, Parser)]
#[command(name = "headwater-lab", version, propagate_version = true, after_help = EXIT_CODES, max_term_width = 110)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment in the packet simulator
    #[command(after_help = simulate::EXAMPLES, after_long_help = long(simulate::EXAMPLES))]
    Simulate(Box<SimulateArgs>),
    /// Make the network of a plan real on this machine, in namespaces; needs Linux and root
    #[command(after_help = testbed::EXAMPLES, after_long_help = long(testbed::EXAMPLES))]
    Testbed(TestbedArgs),
    /// All our controls, the kernel's TCP, UFTP, udpcast, NORM and OpenPGM on the same bottlenecks; needs
    /// Linux and root
    #[command(after_help = arena::EXAMPLES, after_long_help = long(arena::EXAMPLES))]
    Arena(Box<ArenaArgs>),
    /// Compute a table of the papers that needs no simulation, as CSV
    Analyse(AnalyseArgs),
    /// Run the experiments of a checkout and hold their results against the published ones; needs Python
    #[command(disable_help_flag = true)]
    Verdict(VerdictArgs),
    /// Measure the simulator, beside a bare loop in the same run
    #[command(after_help = BENCH_EXAMPLES, after_long_help = long(BENCH_EXAMPLES))]
    Bench(BenchArgs),
    /// Write completions for bash, zsh and fish, and man pages, into a folder
    Generate(GenerateArgs),
}

/// The examples of a command, then the exit codes.
fn long(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}

/// `headwater-lab analyse`.
#[derive(Debug, Args)]
pub struct AnalyseArgs {
    /// The table
    #[arg(value_name = "NAME", value_enum)]
    pub analysis: Analysis,
}

/// A table that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Analysis {
    /// The application scheduler alone: symbols until the first duplicate, buffers until a receiver is done
    Scheduler,
    /// The part of a buffer that a receiver of any rate holds, and the part of it that is the buffer's
    /// beginning
    Prefix,
    /// LE-SBCC's Markov chain: lost packets for each loss event, by the probability of loss
    Markov,
    /// Loss events that pass LE-SBCC's filters in the paper's round model, by the number of receivers
    Passed,
}

/// `headwater-lab verdict`.
#[derive(Debug, Args)]
pub struct VerdictArgs {
    /// Options of lab/experiments/verdict.py; `--help` lists them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// `headwater-lab bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure
    #[command(subcommand)]
    pub part: BenchPart,
}

/// A part of the laboratory to measure.
#[derive(Debug, Subcommand)]
pub enum BenchPart {
    /// The simulator's packet-hops, beside a bare loop of heap, links and queues
    Netsim(NetsimArgs),
}

/// `headwater-lab bench netsim`.
#[derive(Debug, Args)]
pub struct NetsimArgs {
    /// One JSON object per row
    #[arg(long)]
    pub json: bool,
    /// How long each row is measured, all rounds together: 500ms, 3s
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = values::duration)]
    pub time: Duration,
}

/// `headwater-lab generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Folder; made if there is none
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// Programs that run on the nodes of a testbed.
#[derive(Debug, Args)]
pub struct ProgramsArgs {
    /// The command `headwater` [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub headwater: Option<PathBuf>,
    /// Driver of NORM, built from tests/speed/norm.cc
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub norm: Option<PathBuf>,
}

/// A shard: a part of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the part, from 0.
    pub index: usize,
    /// Number of parts.
    pub count: usize,
}

/// Parses a shard: `0/8` is part 0 of 8.
fn shard(text: &str) -> Result<Shard, String> {
    let parts =
        text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match parts {
        Some((index, count)) if index < count => Ok(Shard { index, count }),
        _ => Err("a shard is I/N with I from 0 to N - 1, for example 0/8".into()),
    }
}

/// Parses the key of a run, or the beginning of a key.
fn key(text: &str) -> Result<String, String> {
    if (4..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a key is 4 to 32 hexadecimal digits, as --list prints them".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn shards_are_counted_from_0() {
        assert_eq!(shard("0/8"), Ok(Shard { index: 0, count: 8 }));
        assert!(
            shard("8/8").is_err() && shard("1").is_err() && shard("0/0").is_err() && shard("-1/2").is_err()
        );
    }

    #[test]
    fn keys_are_hexadecimal() {
        assert_eq!(key("3F9a"), Ok("3f9a".into()));
        assert!(key("3f9").is_err() && key("3f9g").is_err() && key(&"0".repeat(33)).is_err());
    }
}
