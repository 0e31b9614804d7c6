//! Thread of the server: connections and their bounds.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use headwater::{FILES_PATH, PublishedFiles};
use headwater_proto::Rate;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

use crate::body::Pacer;
use crate::files::{Files, full_routes, routes};

/// Default rate of all connections together, with the headers of TCP, IPv4 and Ethernet.
pub const RATE_DEFAULT: Rate = Rate::from_kilobits(20_000);
/// Most connections that are served at the same time.
pub const CONNECTIONS_MAX: usize = 64;
/// Most of these connections for a network of clients, an IPv4 address or a /64 of IPv6: clients that take
/// nothing for long leave half of the places to other networks.
const CONNECTIONS_OF_NETWORK: usize = CONNECTIONS_MAX / 2;
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
    _running: Running,
}

/// Thread of a server. Dropping the value ends the thread and all connections.
#[derive(Debug)]
pub(crate) struct Running {
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Listens at an address, and returns the socket with its address and port.
pub(crate) fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

impl FileServerSocket {
    /// Listens. Connections wait until [`FileServerSocket::serve`].
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn open(options: FileServerOptions) -> Result<Self, ServerError> {
        let (listener, address) = listen(options.address)?;
        Ok(Self { listener, options, address })
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

    /// Serves the files on a new thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn serve(self, files: PublishedFiles) -> Result<FileServer, ServerError> {
        let pacer = Arc::new(Pacer::new(self.options.rate));
        let routes = routes(Files { files, pacer: Arc::clone(&pacer) });
        Ok(FileServer { pacer, _running: Running::start(self.listener, routes)? })
    }
}

impl FileServer {
    /// Returns the time since the server sent its last byte, or since its start.
    pub fn quiet(&self) -> Duration {
        self.pacer.quiet()
    }
}

impl Running {
    /// Serves routes on a new thread.
    pub(crate) fn start(listener: TcpListener, routes: Router) -> Result<Self, ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()
            .map_err(ServerError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(accept(listener, routes, stopped));
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

/// Accepts connections until the sender of `stopped` is dropped.
async fn accept(listener: TcpListener, routes: Router, mut stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the HTTP server ends: {error}"),
    };
    let (served, refused) = (Places::default(), Arc::new(Semaphore::new(REFUSED_MAX)));
    loop {
        let Some(accepted) = until(&mut stopped, listener.accept()).await else { return };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (place, refusal, routes) = match served.take(client.ip()) {
            Some(place) => (Some(place), None, routes.clone()),
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

/// Places of connections that are served, by the clients' networks.
#[derive(Clone, Debug, Default)]
struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Place of a connection, free again once dropped.
#[derive(Debug)]
struct Place {
    places: Places,
    network: IpAddr,
}

impl Places {
    /// Takes a place for a client, if the client's network may have one more.
    fn take(&self, client: IpAddr) -> Option<Place> {
        let network = match client.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            ip => ip,
        };
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = taken.values().sum::<usize>() >= CONNECTIONS_MAX;
        if is_full || taken.get(&network).is_some_and(|count| *count >= CONNECTIONS_OF_NETWORK) {
            return None;
        }
        *taken.entry(network).or_insert(0) += 1;
        Some(Place { places: self.clone(), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.network);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_leaves_half_of_the_places_to_others() {
        let places = Places::default();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let take = |clients: &[&str], count| -> Vec<Place> {
            (0..count).map_while(|place| places.take(ip(clients[place % clients.len()]))).collect()
        };
        let one = take(&["192.0.2.1", "::ffff:192.0.2.1"], 64);
        assert_eq!(one.len(), CONNECTIONS_OF_NETWORK);
        let other = take(&["2001:db8::1", "2001:db8::ffff:1"], 64);
        assert_eq!(other.len(), CONNECTIONS_OF_NETWORK);
        assert!(places.take(ip("198.51.100.1")).is_none(), "all places are taken");
        drop(one);
        assert_eq!(take(&["198.51.100.1"], 64).len(), CONNECTIONS_OF_NETWORK);
        drop(other);
        assert!(places.0.lock().unwrap().is_empty());
    }
}
