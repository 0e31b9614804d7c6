//! Arguments about repair by HTTP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use headwater::REPAIR_PEERS_MAX;
use headwater_proto::Rate;

use super::{ViewAddressArgs, values};

/// HTTP servers of a session's files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Repair by HTTP")]
pub struct RepairServerArgs {
    /// Serve the files by HTTP under /files/, and a description of the session for `get`; name this server to
    /// receivers that miss something; default port: 7280. A session that ends by itself serves until nobody
    /// has asked for some time. Browsers on this machine see a live page there, Prometheus /metrics; with a
    /// loopback address, nobody else sees anything
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = values::http)]
    pub http: Option<SocketAddr>,
    #[command(flatten)]
    pub opened: ViewAddressArgs,
    /// With --http: rate of all connections together, headers included
    #[arg(long, value_name = "RATE", value_parser = values::rate, requires = "http", default_value = "20M")]
    pub http_rate: Rate,
    /// Name another server of the same files to receivers, before the server of --http: nginx, for example
    #[arg(long, value_name = "URL", value_parser = values::base_url)]
    pub repair_url: Option<String>,
    /// Earliest request of a receiver, from the end of reception on, in whole seconds
    #[arg(long, value_name = "TIME", value_parser = values::seconds, default_value = "0s")]
    pub repair_offset_time: Duration,
    /// Time over which receivers spread their first requests, in whole seconds
    #[arg(long, value_name = "TIME", value_parser = values::seconds, default_value = "10s")]
    pub repair_random_time: Duration,
    /// Most receivers with --serve-repair to name to receivers that miss something
    #[arg(long, value_name = "N", default_value_t = REPAIR_PEERS_MAX, value_parser = values::peers)]
    pub repair_peers: usize,
    /// Write the session's description (SDP) to this file, for `receive --sdp` and for `get` from any server;
    /// the FDT is written beside it, with the extension fdt
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub sdp: Option<PathBuf>,
    /// In the description, name a source that answers requests for the same files
    #[arg(long, value_name = "HOST[:PORT]", value_parser = values::source)]
    pub sdp_rainbow: Option<SocketAddr>,
    /// In the description, name the relay between receivers and that source
    #[arg(long, value_name = "HOST[:PORT]", value_parser = values::relay, requires = "sdp_rainbow")]
    pub sdp_relay: Option<SocketAddr>,
    /// In the description, name an AMT relay for receivers without multicast; `auto`: the relay that DNS
    /// names for the sender
    #[arg(long, value_name = "HOST[:PORT]|auto", value_parser = values::described_amt_relay)]
    pub sdp_amt: Option<String>,
}

/// Repair of a receiver.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Repair by HTTP")]
pub struct RepairArgs {
    /// Fetch missing parts by HTTP when the session has ended or nothing needed comes for 10 s: `auto` from
    /// the servers that a signed session names, `never` from none
    #[arg(long, value_name = "auto|never", value_enum, default_value_t = Repair::Auto)]
    pub repair: Repair,
    /// Server of the files, for any session; asked first
    #[arg(long, value_name = "URL", value_parser = values::base_url)]
    pub repair_url: Option<String>,
}

/// Repair of other receivers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Repair by HTTP")]
pub struct ServingArgs {
    /// Serve the received files by HTTP under /files/ to other receivers. The sender of a signed session
    /// names this server once every file is complete. Not with --to, --ask, --group-key or --follow. Default:
    /// all addresses, port 7280
    #[arg(long, value_name = "ADDR[:PORT]", num_args = 0..=1, require_equals = true, value_parser = values::serving, conflicts_with_all = ["to", "ask", "group_key", "follow"])]
    pub serve_repair: Option<Option<SocketAddr>>,
    /// With --serve-repair: time to serve after the last file is complete; ^C ends it
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "10m", requires = "serve_repair")]
    pub serve_time: Duration,
    /// With --serve-repair: rate of all connections together, headers included
    #[arg(long, value_name = "RATE", value_parser = values::rate, requires = "serve_repair", default_value = "20M")]
    pub http_rate: Rate,
}

impl ServingArgs {
    /// Serves nobody.
    pub fn none() -> Self {
        let http_rate = headwater_web::RATE_DEFAULT;
        Self { serve_repair: None, serve_time: Duration::ZERO, http_rate }
    }

    /// Returns the address to listen at, for a session on a group.
    pub fn address(&self, group: SocketAddr) -> Option<SocketAddr> {
        let any: IpAddr =
            if group.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.serve_repair.map(|address| address.unwrap_or((any, values::HTTP_PORT).into()))
    }
}

/// Use of HTTP servers by a receiver that misses parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Repair {
    /// Fetch.
    Auto,
    /// Wait for multicast alone.
    Never,
}
