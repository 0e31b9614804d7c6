//! Options of SIM's sender.

use clap::Args;
use headwater_proto::sim::GROUPS_MAX;

use super::values::{self, Host};

/// Options of `--congestion-control sim`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct SimArgs {
    /// With sim: groups of the session [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(GROUPS_MAX)))]
    pub groups: Option<u16>,
    /// With sim: relay next to the sender, which reports for many receivers; up to 8 times. Any other report
    /// counts as one receiver
    #[arg(long, value_name = "HOST", value_parser = values::host)]
    pub sim_relay: Vec<Host>,
}
