//! Options of SIM's sender.

use clap::Args;

use super::values::{self, Host};

/// Options of `--congestion-control sim`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct SimArgs {
    /// With sim: relay next to the sender, which reports for many receivers; up to 8 times. Any other report
    /// counts as one receiver
    #[arg(long, value_name = "HOST", value_parser = values::host)]
    pub sim_relay: Vec<Host>,
}
