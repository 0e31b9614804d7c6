//! `headwater view`: pages of several ends on one page.

use crate::args::{OutputArgs, ViewCommandArgs};
use crate::exit::{Exit, Failure};
use crate::live::tell;
use crate::sandbox::{Paths, RESOLVER_FILES, confine};
use crate::screen::Screen;
use crate::send::server_failed;
use crate::shutdown::Shutdown;

use headwater_web::{FileServerOptions, FileServerSocket, LiveView};

/// Interval of looking for a signal.
const INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// Shows the page until interrupted.
pub fn run(args: &ViewCommandArgs) -> Result<Exit, Failure> {
    let screen = Screen::new(&OutputArgs::default());
    let options = FileServerOptions { view: args.http_view, ..FileServerOptions::new(args.http) };
    let socket = FileServerSocket::open(options).map_err(server_failed)?;
    let read = RESOLVER_FILES.map(Into::into).to_vec();
    confine(&args.confine, &Paths { read, listens: true, ..Paths::default() })?;
    tell(&socket, &screen);
    let view = LiveView::new().with_remotes(args.of.clone());
    let _server = socket.serve(None, Some(view)).map_err(server_failed)?;
    let shutdown = Shutdown::install(None)?;
    while !shutdown.is_asked() {
        std::thread::sleep(INTERVAL);
    }
    Ok(Exit::Ok)
}
