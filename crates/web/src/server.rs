//! Thread of the server: connections and their bounds.

mod places;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headwater::{FILES_PATH, PublishedFiles};
use headwater_proto::Rate;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

use crate::body::Pacer;
use crate::files::{self, Files, full_routes};
use crate::host;
use crate::view::{LiveView, ViewAccess};
use places::Places;
pub use places::{CONNECTIONS_MAX, LOCAL_CONNECTIONS_MAX};

/// Default rate of all connections together, with the headers of TCP, IPv4 and Ethernet.
pub const RATE_DEFAULT: Rate = Rate::from_kilobits(20_000);
/// Most further connections, which get the answer 503; connections beyond are closed without an answer.
const REFUSED_MAX: usize = 256;
/// Time for the head of a request, and between two requests of a connection.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// Time after which a connection ends whose client takes no byte.
const STALL_TIME: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Increase of the nice value of the server's thread.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;
/// Pause after a connection that could not be accepted, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Options of a server.
#[derive(Clone, Copy, Debug)]
pub struct FileServerOptions {
    /// Address and port. Port 0 takes any free port.
    pub address: SocketAddr,
    /// Rate of files on all connections together, in bit/s with the headers of TCP, IPv4 and Ethernet.
    pub rate: Rate,
    /// Further address at which the page, metrics and events answer; without a port, that of `address`.
    /// Default: clients of this machine alone get answers.
    pub view: Option<ViewAddress>,
}

/// Address at which the page, metrics and events answer clients of other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewAddress {
    /// Address; an unspecified address stands for all addresses.
    pub ip: IpAddr,
    /// Port, if other than the server's.
    pub port: Option<u16>,
}

impl FileServerOptions {
    /// Creates the default options for an address.
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, rate: RATE_DEFAULT, view: None }
    }
}

/// Failure to open a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen for HTTP on {address}; is the address of this machine, and the port free?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Reason of the system.
        source: io::Error,
    },
    /// The thread or its runtime could not be started.
    #[error("cannot start the HTTP server")]
    Thread(#[source] io::Error),
}

/// Socket of a server that does not answer yet: a process can open the socket before it confines itself.
#[derive(Debug)]
pub struct FileServerSocket {
    listener: TcpListener,
    /// Listener at the further address of the page.
    view: Option<TcpListener>,
    options: FileServerOptions,
    address: SocketAddr,
}

/// Server of a session's files. Dropping the server ends all connections.
#[derive(Debug)]
pub struct FileServer {
    pacer: Arc<Pacer>,
    _running: Running,
}

/// Thread that serves. Dropping the value ends all connections.
#[derive(Debug)]
pub(crate) struct Running {
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FileServerSocket {
    /// Listens. Connections wait until [`FileServerSocket::serve`].
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn open(options: FileServerOptions) -> Result<Self, ServerError> {
        let covers = |whole: IpAddr, part: IpAddr| {
            whole == part || whole.is_unspecified() && (whole.is_ipv6() || part.is_ipv4())
        };
        let (own, is_same_port) = (options.address, |view: ViewAddress| {
            view.port.is_none_or(|port| port == options.address.port())
        });
        // A single socket for both, if one address covers the other: requests are told apart by address.
        let wider = options.view.filter(|view| is_same_port(*view) && covers(view.ip, own.ip()));
        let at = wider.map_or(own, |view| SocketAddr::new(view.ip, own.port()));
        let (listener, bound) = listen(at)?;
        let address = SocketAddr::new(own.ip(), bound.port());
        let other = options.view.filter(|view| !is_same_port(*view) || !covers(at.ip(), view.ip));
        let other =
            other.map(|view| SocketAddr::new(view.ip, view.port.unwrap_or(address.port()))).map(listen);
        let view = other.transpose()?.map(|(listener, _)| listener);
        Ok(Self { listener, view, options, address })
    }

    /// Returns the URL of the page for a browser on this machine; `None` if the page answers nobody.
    pub fn view_url(&self) -> Option<String> {
        let (ip, port) = (self.address.ip(), self.address.port());
        let ip = match (ip, self.options.view) {
            (IpAddr::V4(ip), _) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V6(ip), _) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            (ip, _) if ip.is_loopback() => ip,
            (ip, Some(view)) if view.ip == ip || view.ip.is_unspecified() => ip,
            (_, Some(view)) => {
                let at = SocketAddr::new(view.ip, view.port.unwrap_or(port));
                return Some(format!("http://{at}/"));
            }
            (_, None) => return None,
        };
        Some(format!("http://{}/", SocketAddr::new(ip, port)))
    }

    /// Returns the address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL of the files. `own` stands for an unspecified address.
    pub fn base_url(&self, own: IpAddr) -> String {
        let ip = if self.address.ip().is_unspecified() { own } else { self.address.ip() };
        format!("http://{}{FILES_PATH}", SocketAddr::new(ip, self.address.port()))
    }

    /// Serves files, and the view of the process, on a new thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn serve(
        self,
        files: Option<PublishedFiles>,
        view: Option<LiveView>,
    ) -> Result<FileServer, ServerError> {
        let pacer = Arc::new(Pacer::new(self.options.rate));
        let files = files.map(|files| Files { files, pacer: Arc::clone(&pacer) });
        let opened = self.options.view.map(|view| (view.ip, view.port.unwrap_or(self.address.port())));
        let site = Site { files, view: view.clone(), address: self.address, opened };
        let begin = move || {
            if let Some(view) = view {
                view.follow_remotes();
                tokio::spawn(view.take_samples());
            }
        };
        let listeners = [Some(self.listener), self.view].into_iter().flatten().collect();
        let routes = Arc::new(move |addresses: ConnectionAddresses| routes(site.clone(), addresses));
        Ok(FileServer { pacer, _running: Running::start(listeners, routes, begin)? })
    }
}

/// Listens at an address, and returns the socket with its address and port.
pub(crate) fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Lowers the priority of the calling thread: sessions go first on a busy machine.
fn yield_to_sessions() {
    // Elsewhere the priority is the process's.
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::getpriority_process(None) {
        // If the kernel refuses, the threads share evenly.
        let _refused = rustix::process::setpriority_process(None, nice + NICE);
    }
}

impl FileServer {
    /// Returns the time since the server sent its last byte, or since its start.
    pub fn quiet(&self) -> Duration {
        self.pacer.quiet()
    }
}

/// Addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionAddresses {
    client: SocketAddr,
    local: SocketAddr,
}

/// Routes of a connection by the addresses.
pub(crate) type Routes = Arc<dyn Fn(ConnectionAddresses) -> Router + Send + Sync>;

impl Running {
    /// Serves routes on a new thread. `begin` is called first, on that thread.
    pub(crate) fn start(
        listeners: Vec<TcpListener>,
        routes: Routes,
        begin: impl FnOnce() + Send + 'static,
    ) -> Result<Self, ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()
            .map_err(ServerError::Thread)?;
        let (stop, mut stopped) = oneshot::channel::<()>();
        let run = move || {
            yield_to_sessions();
            runtime.block_on(async {
                begin();
                let (served, refused) = (Places::default(), Arc::new(Semaphore::new(REFUSED_MAX)));
                for listener in listeners {
                    let places = (served.clone(), Arc::clone(&refused));
                    tokio::spawn(accept(listener, Arc::clone(&routes), places));
                }
                until(&mut stopped, std::future::pending::<()>()).await;
            });
            // Reads of a slow disk may still be in progress.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("headwater-web".into()).spawn(run);
        Ok(Self { stop: Some(stop), thread: Some(thread.map_err(ServerError::Thread)?) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panicking thread has already printed a message.
            let _panicked = thread.join();
        }
    }
}

/// Content of a server.
#[derive(Clone, Debug)]
struct Site {
    files: Option<Files>,
    view: Option<LiveView>,
    /// Address of the files.
    address: SocketAddr,
    /// Address and port of the view for other machines.
    opened: Option<(IpAddr, u16)>,
}

/// Accepts connections.
async fn accept(listener: TcpListener, routes: Routes, (served, refused): (Places, Arc<Semaphore>)) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the HTTP server ends: {error}"),
    };
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(local) = stream.local_addr() else { continue };
        let (place, refusal, routes) = match served.take(client.ip()) {
            Some(place) => (Some(place), None, routes(ConnectionAddresses { client, local })),
            None => match Arc::clone(&refused).try_acquire_owned() {
                Ok(refusal) => (None, Some(refusal), full_routes()),
                Err(_full) => continue,
            },
        };
        tokio::spawn(async move {
            if let Err(error) = connection(stream, routes).await {
                tracing::debug!("an HTTP connection ended: {error}");
            }
            drop((place, refusal));
        });
    }
}

/// Returns the routes of a connection.
fn routes(site: Site, ConnectionAddresses { client, local }: ConnectionAddresses) -> Router {
    let access = ViewAccess { view: site.opened, client, local };
    Router::new().fallback(respond).with_state((site, access))
}

async fn respond(State((site, access)): State<(Site, ViewAccess)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (address, local) = (site.address, access.local);
    let has_files = access.local.port() == address.port()
        && (address.ip().is_unspecified() || address.ip() == local.ip().to_canonical());
    match (&site.view, site.files.filter(|_| has_files)) {
        (Some(view), _) if LiveView::has_path(parts.uri.path()) => view.respond(&access, &parts).await,
        // Files at a public address are for all names of the address, files at a loopback address for this
        // machine.
        (_, Some(_)) if local.ip().to_canonical().is_loopback() && !host::is_own(&parts, &[]) => {
            StatusCode::MISDIRECTED_REQUEST.into_response()
        }
        (_, Some(files)) => files::respond(files, Request::from_parts(parts, body)).await,
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Returns the output of `future`, or `None` once the sender of `stopped` is dropped.
async fn until<F: Future>(stopped: &mut oneshot::Receiver<()>, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        if std::pin::Pin::new(&mut *stopped).poll(context).is_ready() {
            return std::task::Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

async fn connection(stream: TcpStream, routes: Router) -> Result<(), hyper::Error> {
    // Without this option, a client that takes no byte holds its connection for ever. The other options save
    // time.
    let socket = socket2::SockRef::from(&stream);
    #[cfg(target_os = "linux")]
    let is_bounded = socket.set_tcp_user_timeout(Some(STALL_TIME)).is_ok();
    #[cfg(not(target_os = "linux"))]
    // Finds clients that are gone; a client that takes no byte keeps the connection on these systems.
    let is_bounded = socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(STALL_TIME)).is_ok();
    if !is_bounded || stream.set_nodelay(true).is_err() {
        return Ok(());
    }
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await
}
