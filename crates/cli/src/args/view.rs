//! Arguments of the live page.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;
use headwater_web::{REMOTES_MAX, RemotePage, ViewAddress};

use super::{ConfineArgs, values};

/// Default port of the page.
pub const VIEW_PORT: u16 = 9720;
/// Default address of the page.
const VIEW_DEFAULT: &str = "127.0.0.1:9720";

impl ViewArgs {
    /// Returns the address of a page that is shown without being asked for.
    pub fn http_or_default(&self) -> SocketAddr {
        self.http.unwrap_or((Ipv4Addr::LOCALHOST, VIEW_PORT).into())
    }
}

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

pub const EXAMPLES: &str = "\
Examples:
  headwater view --of http://127.0.0.1:7280/ http://127.0.0.1:9720/   a sender and a receiver of this machine
  headwater view --of sender=192.0.2.1:7280 lab=192.0.2.7 shop=192.0.2.8
                                        pages that other machines show by --http-view";

/// `headwater view`.
#[derive(Args, Debug)]
pub struct ViewCommandArgs {
    /// Pages to show on one page, by URL or address, with a name for the page's ends; default port: 9720. At
    /// most 1024; beyond 64 ends, curves are quantiles
    #[arg(long, required = true, num_args = 1..=REMOTES_MAX, value_name = "[NAME=]URL", value_parser = remote)]
    pub of: Vec<RemotePage>,
    /// Address and port of the page
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1:9719", value_parser = address)]
    pub http: SocketAddr,
    /// Show the page to other machines, too, at this address of this machine
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = view_address)]
    pub http_view: Option<ViewAddress>,
    #[command(flatten)]
    pub confine: ConfineArgs,
}

/// Parses the page of another process: `http://192.0.2.1:7280/`, `lab=192.0.2.7`, `[2001:db8::1]:9720`.
fn remote(text: &str) -> Result<RemotePage, String> {
    let wrong = || format!("not the page of an end; write for example http://192.0.2.1:{VIEW_PORT}/");
    let (name, url) = match text.split_once('=') {
        Some((name, url)) if !name.is_empty() && !name.contains('/') => (Some(name), url),
        _ => (None, text),
    };
    if url.starts_with("https://") {
        return Err("pages of ends are read by http, not by https".to_owned());
    }
    let authority = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) => {
            (host, port.parse().map_err(|_| wrong())?)
        }
        _ => (authority, VIEW_PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_%".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_host) {
        return Err(wrong());
    }
    Ok(RemotePage { name: name.unwrap_or(authority).to_owned(), host: host.to_owned(), port })
}

/// Parses the address of a page.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    values::own_address(text, VIEW_PORT)
}

fn view_address(text: &str) -> Result<ViewAddress, String> {
    let bare = text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| ViewAddress { ip, port: None });
    bare.or_else(|_| {
        values::own_address(text, VIEW_PORT).map(|at| ViewAddress { ip: at.ip(), port: Some(at.port()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_urls_or_addresses_with_names() {
        let page = |text: &str| remote(text).map(|page| (page.name, page.host, page.port));
        let expected = |name: &str, host: &str, port| Ok((name.to_owned(), host.to_owned(), port));
        assert_eq!(page("http://192.0.2.1:7280/"), expected("192.0.2.1:7280", "192.0.2.1", 7280));
        assert_eq!(page("lab=192.0.2.7"), expected("lab", "192.0.2.7", 9720));
        assert_eq!(page("[2001:db8::1]:80"), expected("[2001:db8::1]:80", "2001:db8::1", 80));
        assert_eq!(page("2001:db8::1"), expected("2001:db8::1", "2001:db8::1", 9720));
        for text in ["", "a=", "https://a/", "http://a/b", "host:port", "user@host", "a b"] {
            assert!(page(text).is_err(), "{text}");
        }
    }
}
