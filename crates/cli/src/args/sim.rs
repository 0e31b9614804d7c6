//! Options of SIM's sender.

use std::net::IpAddr;

use clap::Args;
use headwater_proto::sim::GROUPS_MAX;

/// Options of `--congestion-control sim`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct SimArgs {
    /// With sim: groups of the session [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(GROUPS_MAX)))]
    pub groups: Option<u16>,
    /// With sim: relay next to the sender, whose reports speak for all receivers below it; up to 8 times. Reports of others count as one receiver
    #[arg(long, value_name = "ADDR")]
    pub sim_relay: Vec<IpAddr>,
}
