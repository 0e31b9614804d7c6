//! `headwater-lab testbed`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use headwater_cli::OutputArgs;

use super::{ProgramsArgs, Shard, key, shard};

pub const EXAMPLES: &str = "\
Examples:
  sudo headwater-lab testbed up plan.toml          the network of a plan's first cell; prints its name
  sudo headwater-lab testbed list                  what stands, and its nodes
  sudo headwater-lab testbed exec sink-1 -- ip address
  sudo headwater-lab testbed run plan.toml --out results/   runs of a plan on this machine's kernel
  sudo headwater-lab testbed down                  take all down; leftovers of killed runs go with it";

/// `headwater-lab testbed`.
#[derive(Debug, Args)]
pub struct TestbedArgs {
    /// What to do with it
    #[command(subcommand)]
    pub command: TestbedCommand,
}

/// What is done with testbeds.
#[derive(Debug, Subcommand)]
pub enum TestbedCommand {
    /// Make the network of a plan; the same plan's own, if it stands already, is made anew
    Up {
        /// The plan
        #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
        plan: PathBuf,
        /// Which cell of the plan, from 1
        #[arg(long, value_name = "N", default_value_t = 1)]
        cell: usize,
        /// Who forwards multicast
        #[arg(long, value_enum, default_value_t = RoutingName::Auto)]
        routing: RoutingName,
        /// Be the process that delays, loses and marks, and go on until the network is taken down
        #[arg(long, hide = true)]
        as_wire: bool,
    },
    /// Take a network down, or all that stand by themselves
    Down {
        /// Its name
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// List the networks that there are, and their nodes
    List,
    /// Run a plan in network namespaces, beside the kernel's TCP
    Run(Box<TestbedRunArgs>),
    /// Run a program on a node
    Exec {
        /// The network, where there are several
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The node
        #[arg(value_name = "NODE")]
        node: String,
        /// The program and its arguments
        #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

/// Multicast routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoutingName {
    /// FRR where it is installed, else bridges
    Auto,
    /// Bridges that snoop IGMPv3
    Bridge,
    /// FRR: IGMPv3 and PIM-SSM
    Frr,
    /// Bridges that know no members: every group goes everywhere
    Static,
}

/// `headwater-lab testbed run`.
#[derive(Debug, Args)]
pub struct TestbedRunArgs {
    /// The plan: an experiment in TOML, as docs/reference/plans.md and docs/reference/testbed.md describe it
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    /// Runs at the same time, each on a bed of its own; more than 1 where the machine has time to spare
    #[arg(long, value_name = "N", default_value = "1")]
    pub jobs: NonZeroUsize,
    /// Do the runs whose number leaves I when divided by N, I from 0
    #[arg(long, value_name = "I/N", value_parser = shard, requires = "out")]
    pub shard: Option<Shard>,
    /// Folder for results; made if there is none. Runs whose results are there are not done again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Do only runs whose keys begin so
    #[arg(long, value_name = "KEY", conflicts_with = "out", value_parser = key)]
    pub cell: Option<String>,
    /// Use this seed instead of the plan's
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Who forwards multicast
    #[arg(long, value_enum, default_value_t = RoutingName::Auto)]
    pub routing: RoutingName,
    #[command(flatten)]
    pub programs: ProgramsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
