//! HTTP server of a sending session, and the servers that the session names to receivers.

use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use headwater::{RepairServers, SendSession};
use headwater_web::{FileServer, FileServerOptions, FileServerSocket, LiveView, ServerError};

use crate::args::SendArgs;
use crate::exit::{Exit, Failure};
use crate::live::tell;
use crate::screen::{Screen, time};
use crate::shutdown::Shutdown;

/// Time without a byte after which the server of an ended session ends, beyond the wait of receivers.
const LINGER: Duration = Duration::from_secs(15);
/// Interval at which the end of the server is checked.
const INTERVAL: Duration = Duration::from_millis(50);

/// Opens the socket of the server, if the arguments ask for a server.
pub fn open(args: &SendArgs) -> Result<Option<FileServerSocket>, Failure> {
    let is_public = |address: &SocketAddr| !address.ip().is_loopback();
    let option = match (args.repair.http.filter(is_public), &args.repair.repair_url) {
        (Some(_), _) => Some("--http"),
        (None, Some(_)) => Some("--repair-url"),
        (None, None) => None,
    };
    if let Some(option) = option.filter(|_| args.keys.group_key.is_some()) {
        let reason = format!(
            "with {option} everybody can fetch the files in the clear, which --group-key keeps secret; leave one of both out"
        );
        return Err(Failure::new(Exit::Usage, reason));
    }
    let Some(address) = args.repair.http.filter(|_| !args.dry_run) else { return Ok(None) };
    let options =
        FileServerOptions { address, rate: args.repair.http_rate, view: args.repair.opened.http_view };
    FileServerSocket::open(options).map(Some).map_err(server_failed)
}

/// Returns the socket if its server has the files, which --group-key forbids.
pub fn public<'s>(args: &SendArgs, socket: Option<&'s FileServerSocket>) -> Option<&'s FileServerSocket> {
    socket.filter(|_| args.keys.group_key.is_none())
}

/// Whether receivers may ask the server after the end of the session.
pub fn is_named(args: &SendArgs) -> bool {
    let is_loopback = args.repair.http.is_some_and(|address| address.ip().is_loopback());
    let is_local =
        args.network.interface.as_deref().is_some_and(|name| name == "lo" || name.starts_with("127."));
    args.keys.group_key.is_none() && (!is_loopback || is_local)
}

/// Names the servers in the session's FDT, and starts the server. A server at a loopback address is named in
/// sessions on the loopback interface alone, and serves no content that --group-key keeps secret.
pub fn serve(
    args: &SendArgs,
    mut session: SendSession,
    (socket, view): (Option<FileServerSocket>, Option<LiveView>),
    screen: &Screen,
) -> Result<(SendSession, Option<FileServer>), Failure> {
    socket.iter().for_each(|socket| tell(socket, screen));
    let source = session.started().source.ip();
    let is_secret = args.keys.group_key.is_some();
    let is_reached = |socket: &&FileServerSocket| {
        !is_secret && (source.is_loopback() || !socket.address().ip().is_loopback())
    };
    let own = socket.as_ref().filter(is_reached).map(|socket| base_url(socket, source)).transpose()?;
    // Receivers resolve names relative to the last slash.
    let named = args.repair.repair_url.iter().map(|url| format!("{}/", url.trim_end_matches('/')));
    let base_urls: Vec<String> = named.chain(own).collect();
    if !base_urls.is_empty() && !session.is_signed() {
        tracing::warn!(
            "the session is not signed: receivers ask no server that the session names, only their own --repair-url"
        );
    }
    if !base_urls.is_empty() {
        session = session.with_repair(RepairServers {
            base_urls,
            peer_urls: Vec::new(),
            // Other servers have entity tags of their own.
            has_etags: args.repair.repair_url.is_none(),
            offset: args.repair.repair_offset_time.into(),
            random: args.repair.repair_random_time.into(),
        });
    }
    let files = (!is_secret).then(|| session.published());
    let server = socket.map(|socket| socket.serve(files, view)).transpose().map_err(server_failed)?;
    Ok((session, server))
}

fn base_url(socket: &FileServerSocket, own: IpAddr) -> Result<String, Failure> {
    if socket.address().ip().is_unspecified() && own.is_unspecified() {
        let reason =
            "--http needs an address of this machine that receivers reach: the session has none of its own";
        return Err(Failure::new(Exit::Usage, reason));
    }
    Ok(socket.base_url(own))
}

/// Serves after the end of the session until nobody has asked for some time, or a signal arrives.
pub fn linger(args: &SendArgs, server: &FileServer, screen: &Screen, shutdown: &Shutdown) {
    let quiet = args.repair.repair_offset_time + args.repair.repair_random_time + LINGER;
    screen.say(&format!("serving missing parts until nobody has asked for {}", time(quiet)));
    let began = std::time::Instant::now();
    while !shutdown.is_asked() && (began.elapsed() < quiet || server.quiet() < quiet) {
        sleep(INTERVAL);
    }
}

/// Adds an exit code to an error of a server.
pub fn server_failed(error: ServerError) -> Failure {
    let exit = match &error {
        ServerError::Listen { .. } => Exit::Network,
        ServerError::Thread(_) => Exit::Other,
    };
    Failure::of(exit, error)
}
