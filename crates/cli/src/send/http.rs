//! HTTP server of a sending session, and the servers that the session names to receivers.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

use headwater::{RepairServers, SendSession};
use headwater_web::{FileServer, FileServerOptions, FileServerSocket, ServerError};

use crate::args::SendArgs;
use crate::exit::{Exit, Failure};
use crate::screen::{Screen, time};
use crate::shutdown::Shutdown;

/// Time without a byte after which the server of an ended session ends, beyond the wait of receivers.
const LINGER: Duration = Duration::from_secs(15);
/// Interval at which the end of the server is checked.
const INTERVAL: Duration = Duration::from_millis(50);

/// Opens the socket of the server, if the arguments ask for a server.
pub fn open(args: &SendArgs) -> Result<Option<FileServerSocket>, Failure> {
    let option = match (args.repair.http, &args.repair.repair_url) {
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
    let options = FileServerOptions { rate: args.repair.http_rate, ..FileServerOptions::new(address) };
    FileServerSocket::open(options).map(Some).map_err(server_failed)
}

/// Names the servers in the session's FDT, and starts the server.
pub fn serve(
    args: &SendArgs,
    mut session: SendSession,
    socket: Option<FileServerSocket>,
) -> Result<(SendSession, Option<FileServer>), Failure> {
    let own = socket.as_ref().map(|socket| base_url(socket, session.started().source.ip())).transpose()?;
    // Receivers resolve names relative to the last slash.
    let named = args.repair.repair_url.iter().map(|url| format!("{}/", url.trim_end_matches('/')));
    let base_urls: Vec<String> = named.chain(own).collect();
    if base_urls.is_empty() {
        return Ok((session, None));
    }
    if !session.is_signed() {
        tracing::warn!(
            "the session is not signed: receivers ask no server that the session names, only their own --repair-url"
        );
    }
    session = session.with_repair(RepairServers {
        base_urls,
        peer_urls: Vec::new(),
        // Other servers have entity tags of their own.
        has_etags: args.repair.repair_url.is_none(),
        offset: args.repair.repair_offset_time.into(),
        random: args.repair.repair_random_time.into(),
    });
    let files = session.published();
    let server = socket.map(|socket| socket.serve(files)).transpose().map_err(server_failed)?;
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
