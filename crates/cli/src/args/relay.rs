//! `headwater relay`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args, ValueEnum};
use headwater_proto::Rate;
use headwater_proto::bcfs::relay::Upstream;

use super::relay_amt::AmtRelayArgs;
use super::relay_sim::SimRelayArgs;
use super::{ConfineArgs, OutputArgs, ViewArgs, values};
use values::ListenAddress;

pub const EXAMPLES: &str = "\
Examples:
  headwater relay                                     requests from each source directly
  headwater relay --upstream 192.0.2.1                requests from the relay on that host instead
  headwater relay --source 198.51.100.7:7290 --egress-rate 10M --queue red
  headwater relay --multicast 239.1.2.3 --interface eth1 --network 10.0.1.0/24
  headwater relay --amt --interface eth0              multicast of eth0 to receivers without multicast
  headwater relay --sim 239.1.2.0 --sim-from eth0 --sim-to eth1=4M --sim-to eth2=8M";

/// `headwater relay`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("groups").args(["multicast", "amt"])))]
#[command(group(ArgGroup::new("rates").args(["egress_rate", "sim_to"]).multiple(true)))]
pub struct RelayArgs {
    /// Address to listen at, with or without a port; at most one of each IP version [default: all, port 7289;
    /// with --amt, port 2268]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = values::own_relay)]
    pub listen: Vec<ListenAddress>,
    /// Relay to send requests to, for all sources or for a single source; may be repeated
    /// [default: requests go to the source]
    #[arg(long, value_name = "[SOURCE:PORT=]HOST[:PORT]", value_parser = upstream)]
    pub upstream: Vec<Upstream>,
    /// Source that receivers may request from; may be repeated [default: all]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = values::source)]
    pub source: Vec<SocketAddr>,
    /// Group for replies to the receivers on one network, instead of a copy to each receiver
    #[arg(long, value_name = "ADDR[:PORT]", requires_all = ["interface", "network"], value_parser = values::group)]
    pub multicast: Option<SocketAddr>,
    /// Network interface of the group, or of the groups with --amt, by name or address
    #[arg(long, value_name = "IF", requires = "groups", value_parser = NonEmptyStringValueParser::new())]
    pub interface: Option<String>,
    /// Network of the group's receivers
    #[arg(long, value_name = "ADDR/BITS", requires = "multicast", value_parser = network)]
    pub network: Option<(IpAddr, u8)>,
    /// Time to live of packets to the group; 1 stays on the local network
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: u8,
    /// DiffServ code point of the packets, 0 to 63
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=63))]
    pub dscp: u8,
    /// Maximum number of requests in memory
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub entries: u32,
    /// Maximum number of known addresses: receivers, relays and sources
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub neighbours: u32,
    /// Maximum requests per second from an address
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub request_rate: u32,
    /// Replies of a source that are kept for a second, for later requests that any new reply satisfies (files
    /// on request); 0 keeps no reply
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(..=16_384))]
    pub keep: u32,
    /// Maximum rate to each downstream address, in bit/s with headers; default: no limit
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub egress_rate: Option<Rate>,
    /// Queue for packets above --egress-rate
    #[arg(long, value_name = "NAME", value_enum, default_value_t = QueueName::DropTail, requires = "egress_rate")]
    pub queue: QueueName,
    /// Maximum packets that wait for each address
    #[arg(long, value_name = "N", default_value_t = 50, requires = "rates", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub queue_packets: u32,
    /// With --queue red: mark packets of senders that support ECN instead of dropping the packets
    #[arg(long, requires = "egress_rate")]
    pub ecn: bool,
    #[command(flatten)]
    pub amt: AmtRelayArgs,
    #[command(flatten)]
    pub sim: SimRelayArgs,
    /// Stop after this time: 10s, 5m, 1h; default: when interrupted
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub view: ViewArgs,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Queue disciplines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueueName {
    /// Drop packets that arrive at a full queue
    DropTail,
    /// Drop some packets before the queue is full (random early detection)
    Red,
}

/// `192.0.2.1`, or `198.51.100.7:7290=192.0.2.1` for one source.
fn upstream(text: &str) -> Result<Upstream, String> {
    let Some((source, via)) = text.split_once('=') else {
        return Ok(Upstream { source: None, via: values::relay(text)? });
    };
    let source = source
        .parse()
        .map_err(|_| "before '=' is no source; write for example 198.51.100.7:7290=192.0.2.1".to_owned())?;
    Ok(Upstream { source: Some(source), via: values::relay(via)? })
}

/// `10.0.1.0/24`.
fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let parts = text.split_once('/').and_then(|(ip, bits)| Some((ip.parse().ok()?, bits.parse().ok()?)));
    match parts {
        Some((ip @ IpAddr::V4(_), bits @ 0..=32)) => Ok((ip, bits)),
        Some((ip @ IpAddr::V6(_), bits @ 0..=128)) => Ok((ip, bits)),
        _ => Err("not a network; write for example 10.0.1.0/24".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_for_all_sources_or_for_one() {
        let (source, via) = ("198.51.100.7:7290".parse().unwrap(), "192.0.2.1:7289".parse().unwrap());
        assert_eq!(upstream("192.0.2.1").unwrap(), Upstream { source: None, via });
        assert_eq!(upstream("198.51.100.7:7290=192.0.2.1").unwrap(), Upstream { source: Some(source), via });
        assert!(upstream("198.51.100.7=192.0.2.1").unwrap_err().contains("7290"), "a source has a port");
    }

    #[test]
    fn a_network_has_as_many_bits_as_its_addresses() {
        assert_eq!(network("10.0.1.0/24").unwrap(), ("10.0.1.0".parse().unwrap(), 24));
        assert!(network("10.0.1.0/33").is_err() && network("10.0.1.0").is_err());
        assert!(network("2001:db8::/64").is_ok());
    }
}
