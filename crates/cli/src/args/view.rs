//! Arguments of the live page.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use headwater_web::ViewAddress;

use super::values;

/// Default port of the page.
pub const VIEW_PORT: u16 = 9720;
/// Default address of the page.
const VIEW_DEFAULT: &str = "127.0.0.1:9720";

/// Live page, metrics and events of a process.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Live page")]
pub struct ViewArgs {
    /// Show a live page to browsers on this machine, metrics for Prometheus under /metrics, and events under
    /// /events [default address: 127.0.0.1:9720]
    #[arg(long, value_name = "ADDR[:PORT]", num_args = 0..=1, default_missing_value = VIEW_DEFAULT, value_parser = address)]
    pub http: Option<SocketAddr>,
    #[command(flatten)]
    pub opened: ViewAddressArgs,
}

/// Address of the page for other machines.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Live page")]
pub struct ViewAddressArgs {
    /// With --http: show page, metrics and events to other machines, too, at this address of this machine;
    /// everybody who reaches the address sees file names and addresses of receivers
    #[arg(long, value_name = "ADDR[:PORT]", requires = "http", value_parser = view_address)]
    pub http_view: Option<ViewAddress>,
}

/// Parses the address of a page.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    values::own_address(text, VIEW_PORT)
}

fn view_address(text: &str) -> Result<ViewAddress, String> {
    let bare = text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| ViewAddress { ip, port: None });
    bare.or_else(|_| {
        values::own_address(text, VIEW_PORT).map(|at| ViewAddress { ip: at.ip(), port: Some(at.port()) })
    })
}
