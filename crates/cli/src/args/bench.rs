//! `headwater bench`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueHint};
use headwater_proto::Size;

use super::{OutputArgs, RoutingName, Shard, values};

pub const EXAMPLES: &str = "\
Examples:
  headwater bench net                   a sender and a receiver over loopback, beside bare loops of system calls
  headwater bench disk --dir incoming   a receiver's writes, beside a plain sequential write to the same folder
  headwater bench fec --json            the codes, beside BLAKE3 in the same run
  sudo headwater bench testbed --plan plan.toml --out results/   a plan of 'headwater simulate' on this machine's kernel
  sudo headwater bench arena --form short --out arena/           all against all: arena/arena.html";

/// `headwater bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure
    #[command(subcommand)]
    pub part: BenchPart,
}

/// A part of Headwater to measure.
#[derive(Debug, Subcommand)]
pub enum BenchPart {
    /// Sender and receiver on one interface, beside bare loops of sendmmsg, recvmmsg, UDP_SEGMENT and UDP_GRO
    Net(MeasureArgs),
    /// Encoding, repair symbols and decoding, beside BLAKE3
    Fec(MeasureArgs),
    /// A receiver's writes, beside a plain sequential write
    Disk(MeasureArgs),
    /// The simulator's packet-hops, beside a bare loop of heap, links and queues
    Netsim(MeasureArgs),
    /// A plan in network namespaces, beside the kernel's TCP; needs Linux and root
    Testbed(Box<BenchTestbedArgs>),
    /// All our controls, the kernel's TCP, UFTP, udpcast, NORM and OpenPGM on the same bottlenecks; needs Linux and root
    Arena(Box<ArenaArgs>),
}

/// How something is measured.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// One JSON object per row
    #[arg(long)]
    pub json: bool,
    /// How long each row is measured, all rounds together: 500ms, 3s
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = values::duration)]
    pub time: Duration,
    /// Length of the content of `net` and `disk`: 64MB, 1GiB
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = values::size)]
    pub size: Size,
    /// Network interface of `net`, by name or address
    #[arg(long, value_name = "IF", default_value = "lo", value_parser = NonEmptyStringValueParser::new())]
    pub interface: String,
    /// Folder to write in; default: for `net` in memory (/dev/shm), for `disk` the current one
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Sessions of `net` send datagrams one by one, not in runs that the kernel cuts
    #[arg(long)]
    pub no_offload: bool,
}

/// `headwater bench testbed`.
#[derive(Debug, Args)]
pub struct BenchTestbedArgs {
    /// The plan: an experiment in TOML, as docs/plans.md and docs/testbed.md describe it
    #[arg(long, value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    /// Runs at the same time, each on a bed of its own; more than 1 where the machine has time to spare
    #[arg(long, value_name = "N", default_value = "1")]
    pub jobs: NonZeroUsize,
    /// Do the runs whose number leaves I when divided by N, I from 0
    #[arg(long, value_name = "I/N", value_parser = values::shard, requires = "out")]
    pub shard: Option<Shard>,
    /// Folder for results; made if there is none. Runs whose results are there are not done again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Do only runs whose keys begin so
    #[arg(long, value_name = "KEY", conflicts_with = "out", value_parser = values::key)]
    pub cell: Option<String>,
    /// Use this seed instead of the plan's
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Who forwards multicast
    #[arg(long, value_enum, default_value_t = RoutingName::Auto)]
    pub routing: RoutingName,
    /// Driver of NORM, built from tests/speed/norm.cc
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub norm: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `headwater bench arena`.
#[derive(Debug, Args)]
pub struct ArenaArgs {
    /// Folder for results and the report; made if there is none. Runs whose results are there are not done again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// How much: `short` is some minutes for each contender at 4 Mbit/s, `full` takes about a day
    #[arg(long, value_enum, default_value_t = ArenaForm::Short)]
    pub form: ArenaForm,
    /// Only these take part: m2c,tcp,uftp
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Runs of each cell, in place of the form's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub runs: Option<u64>,
    /// Runs at the same time, each on a bed of its own; more than 1 where the machine has time to spare
    #[arg(long, value_name = "N", default_value = "1")]
    pub jobs: NonZeroUsize,
    /// Use this seed
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Driver of NORM, built from tests/speed/norm.cc
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub norm: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How much the arena does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ArenaForm {
    /// Small files at 4 Mbit/s, once
    Short,
    /// 1, 4 and 40 Mbit/s, 1, 2 and 5 receivers, five times
    Full,
}
