//! The rules of SIM: rates and subscriptions together, routers and what hostile reports can do.

mod aggregation;
mod ends;
mod figure_2;
mod relay;

use headwater_wire::sim::{Group, SimReport};

/// What a receiver says of itself, of a request that began with a packet of timestamp `echo`.
pub const fn report(request: u16, rank: u8, is_congested: bool, rate: u32, echo: u32) -> SimReport {
    SimReport {
        is_last: true,
        request,
        source: 7,
        group: Group { session: 0, rank },
        reports: 1,
        congested: is_congested as u32,
        population: 1,
        min_rate: rate,
        max_rate: rate,
        echo,
        hold: 0,
    }
}
