//! The command line of `headwater-lab`. One definition feeds parsing, help, completions and the man pages.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use headwater_cli::{OutputArgs, values};

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

/// Commands of `headwater-lab`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment in the packet simulator
    #[command(after_help = SIMULATE_EXAMPLES, after_long_help = long(SIMULATE_EXAMPLES))]
    Simulate(Box<SimulateArgs>),
    /// Build the network of a plan on this machine, in namespaces; needs Linux and root
    #[command(after_help = TESTBED_EXAMPLES, after_long_help = long(TESTBED_EXAMPLES))]
    Testbed(TestbedArgs),
    /// Compare all controls, the kernel's TCP, UFTP, udpcast, NORM and OpenPGM on the same bottlenecks; needs
    /// Linux and root
    #[command(after_help = ARENA_EXAMPLES, after_long_help = long(ARENA_EXAMPLES))]
    Arena(Box<ArenaArgs>),
    /// Compute a table of the papers that needs no simulation, as CSV
    Analyse(AnalyseArgs),
    /// Run the experiments of a checkout and compare the results with published results; needs Python
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
    /// Table to compute
    #[arg(value_name = "NAME", value_enum)]
    pub analysis: Analysis,
}

/// Table to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Analysis {
    /// The application scheduler alone: symbols until the first duplicate, buffers until a receiver is done
    Scheduler,
    /// The part of a buffer that a receiver of any rate receives, and the length of the prefix in this part
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
    /// Part to measure
    #[command(subcommand)]
    pub part: BenchPart,
}

/// Part of the laboratory to measure.
#[derive(Debug, Subcommand)]
pub enum BenchPart {
    /// The simulator's packet-hops, beside a bare loop of heap, links and queues
    Netsim(NetsimArgs),
}

/// `headwater-lab bench netsim`.
#[derive(Debug, Args)]
pub struct NetsimArgs {
    /// Print one JSON object per row
    #[arg(long)]
    pub json: bool,
    /// Time for each row, all rounds together: 500ms, 3s
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = values::duration)]
    pub time: Duration,
}

/// `headwater-lab generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Folder; created if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// Programs that run on the nodes of a testbed.
#[derive(Debug, Args)]
pub struct ProgramsArgs {
    /// The command `headwater` [default: beside this program]
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

const ARENA_EXAMPLES: &str = "\
Examples:
  sudo headwater-lab arena --form short --out arena/           all against all: arena/arena.html";

/// `headwater-lab arena`.
#[derive(Debug, Args)]
pub struct ArenaArgs {
    /// Folder for results and the report; created if missing. Runs with results in the folder are skipped
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Extent: `short` takes some minutes for each contender at 4 Mbit/s, `full` about a day
    #[arg(long, value_enum, default_value_t = ArenaForm::Short)]
    pub form: ArenaForm,
    /// Contenders: m2c,tcp,uftp [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Runs of each cell [default: by the extent]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub runs: Option<u64>,
    /// Runs at the same time, each on a testbed of its own; more than 1 needs spare processors
    #[arg(long, value_name = "N", default_value = "1")]
    pub jobs: NonZeroUsize,
    /// Seed
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub programs: ProgramsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Size of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ArenaForm {
    /// Small files at 4 Mbit/s, once
    Short,
    /// 1, 4 and 40 Mbit/s, 1, 2 and 5 receivers, five times
    Full,
}

const SIMULATE_EXAMPLES: &str = "\
Examples:
  headwater-lab simulate plan.toml                            run a plan and print a table
  headwater-lab simulate plan.toml --jobs 4 --out results/    a line of JSON for each run; the same command resumes
  headwater-lab simulate plan.toml --shard 0/8 --out results/ every eighth run; a last call without --shard merges
  headwater-lab simulate plan.toml --list                     cells, and the keys of their runs
  headwater-lab simulate plan.toml --cell 3f9a --pcap x.pcap  one run again, with a capture of all links";

/// `headwater-lab simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Plan: an experiment in TOML (docs/reference/plans.md)
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    /// Number of runs at the same time; default: the number of processors
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Do only the runs whose number modulo N is I, from 0
    #[arg(long, value_name = "I/N", value_parser = shard, requires = "out")]
    pub shard: Option<Shard>,
    /// Folder for results; created if missing. Runs with results in the folder are skipped
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "cell")]
    pub out: Option<PathBuf>,
    /// List the cells and the keys of the runs; run nothing
    #[arg(long, conflicts_with_all = ["dry_run", "cell"])]
    pub list: bool,
    /// Check the plan and print the number of runs; run nothing
    #[arg(long, conflicts_with = "cell")]
    pub dry_run: bool,
    /// Do only the run of this key, or of the only key with this beginning
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub cell: Option<String>,
    /// Seed, instead of the plan's seed
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}

const TESTBED_EXAMPLES: &str = "\
Examples:
  sudo headwater-lab testbed up plan.toml          the network of a plan's first cell; prints its name
  sudo headwater-lab testbed list                  what stands, and its nodes
  sudo headwater-lab testbed exec sink-1 -- ip address
  sudo headwater-lab testbed run plan.toml --out results/   runs of a plan on this machine's kernel
  sudo headwater-lab testbed down                  take all down; leftovers of killed runs go with it";

/// `headwater-lab testbed`.
#[derive(Debug, Args)]
pub struct TestbedArgs {
    /// Command
    #[command(subcommand)]
    pub command: TestbedCommand,
}

/// Commands of `headwater-lab testbed`.
#[derive(Debug, Subcommand)]
pub enum TestbedCommand {
    /// Build the network of a plan; an existing network of the same plan is rebuilt
    Up {
        /// Plan
        #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
        plan: PathBuf,
        /// Cell of the plan, from 1
        #[arg(long, value_name = "N", default_value_t = 1)]
        cell: usize,
        /// Multicast routing
        #[arg(long, value_enum, default_value_t = RoutingName::Auto)]
        routing: RoutingName,
        /// Run the process that delays, loses and marks packets, until the network is removed
        #[arg(long, hide = true)]
        as_wire: bool,
    },
    /// Remove a network, or all networks without a running testbed
    Down {
        /// Name of the network
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// List the networks and nodes
    List,
    /// Run a plan in network namespaces, beside the kernel's TCP
    Run(Box<TestbedRunArgs>),
    /// Run a program on a node
    Exec {
        /// Network, if several exist
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Node
        #[arg(value_name = "NODE")]
        node: String,
        /// Program and arguments
        #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

/// Multicast routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoutingName {
    /// FRR if installed, else bridges
    Auto,
    /// Bridges with IGMPv3 snooping
    Bridge,
    /// Bridges with IGMPv2 snooping, and hosts that speak IGMPv2
    Igmpv2,
    /// Bridges with MLDv2 snooping, and groups of IPv6
    Mldv2,
    /// Bridges with MLDv1 snooping, hosts that speak MLDv1, and groups of IPv6
    Mldv1,
    /// FRR: IGMPv3 and PIM-SSM
    Frr,
    /// Bridges without snooping: every group floods all ports
    Static,
}

/// `headwater-lab testbed run`.
#[derive(Debug, Args)]
pub struct TestbedRunArgs {
    /// Plan: an experiment in TOML (docs/reference/plans.md, lab/testbed/README.md)
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    /// Runs at the same time, each on a testbed of its own; more than 1 needs spare processors
    #[arg(long, value_name = "N", default_value = "1")]
    pub jobs: NonZeroUsize,
    /// Do only the runs whose number modulo N is I, from 0
    #[arg(long, value_name = "I/N", value_parser = shard, requires = "out")]
    pub shard: Option<Shard>,
    /// Folder for results; created if missing. Runs with results in the folder are skipped
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Do only runs whose keys have this beginning
    #[arg(long, value_name = "KEY", conflicts_with = "out", value_parser = key)]
    pub cell: Option<String>,
    /// Seed, instead of the plan's seed
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Multicast routing
    #[arg(long, value_enum, default_value_t = RoutingName::Auto)]
    pub routing: RoutingName,
    #[command(flatten)]
    pub programs: ProgramsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
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
