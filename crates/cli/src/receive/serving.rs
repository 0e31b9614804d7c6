//! Server of a receiver: files for other receivers (`--serve-repair`), and the live page (`--http`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater::{ReceiveSession, ServingOptions};
use headwater_web::{FileServer, FileServerOptions, FileServerSocket, LiveView};

use crate::args::ReceiveArgs;
use crate::exit::{Exit, Failure};
use crate::live::tell;
use crate::screen::Screen;
use crate::send::server_failed;

/// Opens the socket of the server, before the process is confined, if the arguments ask for a server.
pub fn open(args: &ReceiveArgs) -> Result<Option<FileServerSocket>, Failure> {
    let serving = match (args.serve.serve_repair, args.view.http) {
        // Other receivers reach the server, the page stays on this machine.
        (Some(None), Some(page)) if page.ip().is_loopback() => {
            let all: IpAddr =
                if page.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            Some(SocketAddr::new(all, page.port()))
        }
        (Some(None), Some(page)) => Some(page),
        _ => args.serve.address(args.network.group),
    };
    let address = match (serving, args.view.http) {
        (Some(serving), Some(page)) if serving != page && args.serve.serve_repair != Some(None) => {
            let why = "--serve-repair and --http are one server: give the address to one of both";
            return Err(Failure::new(Exit::Usage, why));
        }
        (serving, page) => serving.or(page),
    };
    let Some(address) = address else { return Ok(None) };
    let options = FileServerOptions { address, rate: args.serve.http_rate, view: args.view.opened.http_view };
    FileServerSocket::open(options).map(Some).map_err(server_failed)
}

/// Returns the options of a session with files for the server.
pub fn options(args: &ReceiveArgs, socket: Option<&FileServerSocket>) -> Option<ServingOptions> {
    args.serve.serve_repair?;
    let port = socket?.address().port();
    Some(ServingOptions { port, time: args.serve.serve_time })
}

/// Starts the server of a session.
pub fn start(
    args: &ReceiveArgs,
    (socket, view): (Option<FileServerSocket>, Option<LiveView>),
    session: &ReceiveSession,
    screen: &Screen,
) -> Result<Option<FileServer>, Failure> {
    if view.is_some() {
        socket.iter().for_each(|socket| tell(socket, screen));
    }
    let files = args.serve.serve_repair.map(|_| session.published());
    socket.map(|socket| socket.serve(files, view)).transpose().map_err(server_failed)
}
