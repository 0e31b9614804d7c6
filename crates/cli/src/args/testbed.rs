//! `headwater testbed`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

pub const EXAMPLES: &str = "\
Examples:
  sudo headwater testbed up plan.toml          the network of a plan's first cell; prints its name
  sudo headwater testbed list                  what stands, and its nodes
  sudo headwater testbed exec sink-1 -- ip address
  sudo headwater testbed down                  take all down; leftovers of killed runs go with it";

/// `headwater testbed`.
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

/// Who forwards multicast.
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
