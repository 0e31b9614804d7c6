//! Server of a receiver for other receivers: `--serve-repair`.

use headwater::{ReceiveSession, ServingOptions};
use headwater_web::{FileServer, FileServerOptions, FileServerSocket};

use crate::args::ReceiveArgs;
use crate::exit::Failure;
use crate::send::server_failed;

/// Opens the socket of the server, before the process is confined, if the arguments ask for a server.
pub fn open(args: &ReceiveArgs) -> Result<Option<FileServerSocket>, Failure> {
    let Some(address) = args.serve.address(args.network.group) else { return Ok(None) };
    let options = FileServerOptions { address, rate: args.serve.http_rate };
    FileServerSocket::open(options).map(Some).map_err(server_failed)
}

/// Returns the options of a session with files for the server.
pub fn options(args: &ReceiveArgs, socket: Option<&FileServerSocket>) -> Option<ServingOptions> {
    let port = socket?.address().port();
    Some(ServingOptions { port, time: args.serve.serve_time })
}

/// Serves the files of a session.
pub fn start(
    socket: Option<FileServerSocket>,
    session: &ReceiveSession,
) -> Result<Option<FileServer>, Failure> {
    socket.map(|socket| socket.serve(session.published())).transpose().map_err(server_failed)
}
