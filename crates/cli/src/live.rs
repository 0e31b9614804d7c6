//! Server of the live page, metrics and events of a command.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use headwater::PublishedFiles;
use headwater_web::{CELLS_MAX, FileServer, FileServerOptions, FileServerSocket, LiveView};

use crate::args::ViewArgs;
use crate::events::Events;
use crate::exit::Failure;
use crate::screen::Screen;
use crate::send::server_failed;
use crate::serve::SAMPLES;
use crate::shutdown::Shutdown;

/// Interval at which the end of the server is checked.
const INTERVAL: Duration = Duration::from_millis(50);

/// Page of a command: a socket that listens, then a server.
pub struct Live {
    view: LiveView,
    socket: Option<FileServerSocket>,
    server: Option<FileServer>,
}

impl Live {
    /// Listens, before the process is confined, if the arguments ask for a page. Events from now on appear
    /// on the page.
    pub fn open(args: &ViewArgs, events: &mut Events) -> Result<Option<Self>, Failure> {
        args.http.map(|address| Self::at(address, args, events)).transpose()
    }

    /// Listens at an address.
    pub fn at(address: SocketAddr, args: &ViewArgs, events: &mut Events) -> Result<Self, Failure> {
        let options = FileServerOptions { view: args.opened.http_view, ..FileServerOptions::new(address) };
        let socket = FileServerSocket::open(options).map_err(server_failed)?;
        let view = LiveView::new();
        events.show(view.feed());
        Ok(Self { view, socket: Some(socket), server: None })
    }

    /// Serves the page, and files if there are any, on a thread of the confined process.
    pub fn serve(&mut self, files: Option<PublishedFiles>, screen: &Screen) -> Result<(), Failure> {
        if let Some(socket) = self.socket.take() {
            tell(&socket, screen);
            self.server = Some(socket.serve(files, Some(self.view.clone())).map_err(server_failed)?);
        }
        Ok(())
    }

    /// Returns the view.
    pub fn view(&self) -> &LiveView {
        &self.view
    }

    /// Goes on until pages and scrapers have the last counters, or a signal arrives.
    pub fn finish(self, shutdown: &Shutdown) {
        await_viewers(&self.view, shutdown);
    }
}

/// Returns the number of cells of the block map, if a page shows the map.
pub fn block_cells(args: &ViewArgs) -> usize {
    let has_page = args.http.is_some() || std::env::var_os(SAMPLES).is_some();
    if has_page { CELLS_MAX } else { 0 }
}

/// Prints the URL of the page.
pub fn tell(socket: &FileServerSocket, screen: &Screen) {
    if let Some(url) = socket.view_url() {
        screen.say(&format!("live page at {url}"));
    }
}

/// Waits until pages and scrapers have the last counters, or a signal arrives.
pub fn await_viewers(view: &LiveView, shutdown: &Shutdown) {
    while !shutdown.is_asked() && view.is_awaited() {
        sleep(INTERVAL);
    }
}
