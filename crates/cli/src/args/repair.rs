//! Arguments about repair by HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use headwater_proto::Rate;

use super::values;

/// HTTP servers of a session's files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Repair by HTTP")]
pub struct RepairServerArgs {
    /// Serve the files by HTTP under /files/, and a description of the session for `get`; name this server to
    /// receivers that miss something; default port: 7280. A session that ends by itself serves until nobody
    /// has asked for some time
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = values::http)]
    pub http: Option<SocketAddr>,
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

/// Use of HTTP servers by a receiver that misses parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Repair {
    /// Fetch.
    Auto,
    /// Wait for multicast alone.
    Never,
}
