//! `headwater relay --sim`.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use headwater::SIM_GROUPS_DEFAULT;
use headwater::relay::SIM_RELAY_PORT;
use headwater_proto::Rate;
use headwater_proto::sim::GROUPS_MAX;

use super::values::{self, Host};

/// Options of a relay of SIM.
#[derive(Clone, Debug, Args)]
pub struct SimRelayArgs {
    /// Forward a session of SIM instead, given by the session's bottom group; may be repeated
    #[arg(
        long, value_name = "ADDR[:PORT]", requires = "sim_to", value_parser = values::group,
        conflicts_with_all = ["listen", "upstream", "source", "multicast", "interface", "network", "entries", "neighbours", "request_rate", "keep", "queue", "ecn", "amt"],
    )]
    pub sim: Vec<SocketAddr>,
    /// With --sim: interface to forward to, and the rate of the link in bit/s with headers; may be repeated
    /// [default rate: --egress-rate]
    #[arg(long, value_name = "IF[=RATE]", requires = "sim", value_parser = link)]
    pub sim_to: Vec<(String, Option<Rate>)>,
    /// With --sim: interface toward the senders [default: the interface of the route to the groups]
    #[arg(long, value_name = "IF", requires = "sim")]
    pub sim_from: Option<String>,
    /// With --sim: source of the sessions, the sender or the relay above [default: the first source heard]
    #[arg(long, value_name = "HOST", requires = "sim", value_parser = values::host)]
    pub sim_source: Option<Host>,
    /// With --sim: downstream relay, which reports for many receivers; may be repeated
    #[arg(long, value_name = "HOST", requires = "sim", value_parser = values::host)]
    pub sim_relay: Vec<Host>,
    /// With --sim: packets to mark when more packets arrive than a link carries
    #[arg(long, value_name = "NAME", value_enum, default_value_t = SimMarking::Red, requires = "sim")]
    pub sim_marking: SimMarking,
    /// With --sim: maximum groups of a session, at least the sender's --groups; no receiver gets more groups
    #[arg(long, value_name = "N", default_value_t = SIM_GROUPS_DEFAULT, requires = "sim", value_parser = clap::value_parser!(u16).range(1..=i64::from(GROUPS_MAX)))]
    pub sim_groups: u16,
    /// With --sim: UDP port for reports
    #[arg(long, value_name = "N", default_value_t = SIM_RELAY_PORT, requires = "sim", value_parser = clap::value_parser!(u16).range(1..))]
    pub sim_port: u16,
}

/// Packets that a relay of SIM marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimMarking {
    /// Packets of a session's top group below the link, at random while at least five packets wait, as the
    /// same queue drops packets without ECN
    Red,
    /// All packets of a session's top group, while more than five packets wait: for links without other
    /// traffic
    Threshold,
    /// Packets of all groups alike, at random, as by any router with ECN
    Plain,
    /// No packets: packets that arrive at a full queue are lost
    None,
}

/// `eth1` or `eth1=4M`.
fn link(text: &str) -> Result<(String, Option<Rate>), String> {
    let (interface, rate) = match text.split_once('=') {
        Some((interface, rate)) => (interface, Some(values::rate(rate)?)),
        None => (text, None),
    };
    if interface.is_empty() {
        return Err("no interface; write for example eth1 or eth1=4M".to_owned());
    }
    Ok((interface.to_owned(), rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_an_interface_and_perhaps_a_rate() {
        assert_eq!(link("eth1"), Ok(("eth1".to_owned(), None)));
        assert_eq!(link("10.0.0.1=4M"), Ok(("10.0.0.1".to_owned(), Rate::from_bits(4_000_000))));
        assert!(link("eth1=fast").is_err() && link("=4M").is_err());
    }
}
