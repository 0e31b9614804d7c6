//! `headwater relay --amt`.

use clap::Args;

use super::PORT_DEFAULT;

/// Options of a relay of AMT.
#[derive(Clone, Debug, Args)]
pub struct AmtRelayArgs {
    /// Forward multicast by unicast instead (AMT, RFC 7450), from --interface to gateways such as
    /// `headwater receive --amt`
    #[arg(
        long, requires = "interface",
        conflicts_with_all = ["upstream", "source", "multicast", "network", "entries", "neighbours", "request_rate", "keep"],
    )]
    pub amt: bool,
    /// With --amt: UDP port of the groups to forward; may be repeated, at most 16 times [default: 7287]
    #[arg(long, value_name = "N", requires = "amt", value_parser = clap::value_parser!(u16).range(1..))]
    pub amt_port: Vec<u16>,
}

impl AmtRelayArgs {
    /// Returns the UDP ports of the groups, each once.
    pub fn ports(&self) -> Vec<u16> {
        let mut ports = self.amt_port.clone();
        ports.sort_unstable();
        ports.dedup();
        if ports.is_empty() { vec![PORT_DEFAULT] } else { ports }
    }
}
