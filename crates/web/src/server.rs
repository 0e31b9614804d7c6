//! Thread of the server: connections and their bounds.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use headwater::PublishedFiles;
use headwater_proto::Rate;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

use crate::body::Pacer;
use crate::files::{Files, PREFIX, full_routes, routes};

/// Default rate of all connections together, with the headers of TCP, IPv4 and Ethernet.
pub const RATE_DEFAULT: Rate = Rate::from_kilobits(20_000);
/// Most connections that are served at the same time.
pub const CONNECTIONS_MAX: usize = 64;
/// Most further connections, which get the answer 503; connections beyond are closed without an answer.
const REFUSED_MAX: usize = 256;
/// Time for the head of a request, and between two requests of a connection.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// Time after which a connection ends whose client takes no byte.
const STALL_TIME: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after a connection that could not be accepted, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Options of a server.
#[derive(Clone, Copy, Debug)]
pub struct FileServerOptions {
    /// Address and port. Port 0 takes any free port.
    pub address: SocketAddr,
    /// Rate of all connections together, in bit/s with the headers of TCP, IPv4 and Ethernet.
    pub rate: Rate,
}

impl FileServerOptions {
    /// Creates the default options for an address.
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, rate: RATE_DEFAULT }
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
    options: FileServerOptions,
    address: SocketAddr,
}

/// Server of a session's files. Dropping the server ends all connections.
#[derive(Debug)]
pub struct FileServer {
    pacer: Arc<Pacer>,
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
        let failed = |source| ServerError::Listen { address: options.address, source };
        let listener = TcpListener::bind(options.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, options, address })
    }

    /// Returns the address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL of the files. `own` stands for an unspecified address.
    pub fn base_url(&self, own: std::net::IpAddr) -> String {
        let ip = if self.address.ip().is_unspecified() { own } else { self.address.ip() };
        format!("http://{}{PREFIX}", SocketAddr::new(ip, self.address.port()))
    }

    /// Serves the files on a new thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn serve(self, files: PublishedFiles) -> Result<FileServer, ServerError> {
        let pacer = Arc::new(Pacer::new(self.options.rate));
        let routes = routes(Files { files, pacer: Arc::clone(&pacer) });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()
            .map_err(ServerError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(accept(self.listener, routes, stopped));
            // Reads of a slow disk may still be in progress.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("headwater-web".into()).spawn(run);
        Ok(FileServer { pacer, stop: Some(stop), thread: Some(thread.map_err(ServerError::Thread)?) })
    }
}

impl FileServer {
    /// Returns the time since the server sent its last byte, or since its start.
    pub fn quiet(&self) -> Duration {
        self.pacer.quiet()
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panicking thread has already printed a message.
            let _panicked = thread.join();
        }
    }
}

/// Accepts connections until the sender of `stopped` is dropped.
async fn accept(listener: TcpListener, routes: Router, mut stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the HTTP server ends: {error}"),
    };
    let (served, refused) =
        (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(Semaphore::new(REFUSED_MAX)));
    loop {
        let Some(accepted) = until(&mut stopped, listener.accept()).await else { return };
        let stream = match accepted {
            Ok((stream, _client)) => stream,
            Err(error) => {
                tracing::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (permit, routes) = match Arc::clone(&served).try_acquire_owned() {
            Ok(permit) => (permit, routes.clone()),
            Err(_full) => match Arc::clone(&refused).try_acquire_owned() {
                Ok(permit) => (permit, full_routes()),
                Err(_full) => continue,
            },
        };
        tokio::spawn(async move {
            if let Err(error) = connection(stream, routes).await {
                tracing::debug!("an HTTP connection ended: {error}");
            }
            drop(permit);
        });
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
    if socket.set_tcp_user_timeout(Some(STALL_TIME)).is_err() || stream.set_nodelay(true).is_err() {
        return Ok(());
    }
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await
}
