//! Options of the multicast groups of a session.

use std::time::Duration;

use clap::Args;

use super::values;

/// Number and reuse of groups.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct GroupArgs {
    /// With m2c and webrc: most groups of the session, for switches with small tables; fewer groups have
    /// coarser rates [default: as many as the rates need, 108 for m2c up to 100 Mbit/s]. With sim: groups of
    /// the session, at most 64 [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(headwater::GROUPS_MAX)))]
    pub groups: Option<u16>,
    /// With m2c and webrc: time for which a group is silent before it is used again. Below 260s, the network
    /// may send a group that is used again to a receiver that crashed [default: 300s]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub silence: Option<Duration>,
}
