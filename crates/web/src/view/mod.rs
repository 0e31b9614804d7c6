//! Live page, metrics and events of the sessions of a process.
//!
//! `/` is the page, with its parts beside; `/metrics` is OpenMetrics; `/events` is a stream of server-sent
//! events. Only clients of this machine get answers, and clients of the address of `--http-view`. A request
//! whose `Host` names another host is refused, so that no page of a stranger reads the answers by a name that
//! leads here (DNS rebinding).
//!
//! | file | contents |
//! |---|---|
//! | `feed` | from events of sessions to samples |
//! | `sample` | samples, and changes of the state |
//! | `board` | state of all ends, and the last samples |
//! | `metrics` | list of metrics, and the values |
//! | `access` | clients and hosts that are answered |
//! | `stream` | server-sent events |
//! | `merge` | pages of other processes on one page |

mod access;
mod board;
mod feed;
mod merge;
mod metrics;
mod sample;
mod stream;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use crate::host;
use board::{Board, INTERVAL};

pub use feed::{Details, ViewFeed, ViewSender};
pub use merge::{PageReader, REMOTES_MAX, RemotePage};
pub use metrics::{METRICS, Metric, MetricKind};
pub use sample::{CELLS_MAX, ENDS_MAX, EndSample, FileSample, ROWS_MAX, RowSample};

/// Requests a second, of all clients together, and the burst. Each request beyond waits.
const REQUESTS_PER_SECOND: f64 = 200.0;
const BURST: f64 = 200.0;
/// Longest wait of a request beyond the rate; further requests are refused.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Bounds of the wait for a last scrape, and the wait after a single scrape.
const SCRAPE_WAIT: [Duration; 3] =
    [Duration::from_millis(1_500), Duration::from_secs(30), Duration::from_secs(16)];

/// Parts of the page: path, media type, content.
const PARTS: [(&str, &str, &[u8]); 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../../assets/view.html")),
    ("/view.css", "text/css; charset=utf-8", include_bytes!("../../assets/view.css")),
    ("/view.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/view.js")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
];

/// Page, metrics and events of a process. A clone is the same view.
#[derive(Clone, Debug)]
pub struct LiveView(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sender: ViewSender,
    board: Mutex<Board>,
    /// Text of the metrics, and the version of the state.
    text: Mutex<(u64, String)>,
    samples: watch::Sender<u64>,
    limit: Mutex<RequestLimit>,
    /// Streams that were opened.
    streams: AtomicU64,
    scrapes: Mutex<Scrapes>,
    /// Other pages to follow, until the server starts.
    remotes: Mutex<Vec<RemotePage>>,
}

/// Times of the last two scrapes.
#[derive(Clone, Copy, Debug, Default)]
struct Scrapes {
    last: Option<Instant>,
    interval: Option<Duration>,
}

impl Default for LiveView {
    fn default() -> Self {
        Self::new()
    }
}

impl LiveView {
    /// Creates a view without ends.
    pub fn new() -> Self {
        let (sender, changes) = ViewSender::new();
        let start = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        Self(Arc::new(Shared {
            sender,
            board: Mutex::new(Board::new(changes, format!("{start:x}"))),
            text: Mutex::new((u64::MAX, String::new())),
            samples: watch::Sender::new(0),
            limit: Mutex::new(RequestLimit { tokens: BURST, at: Instant::now() }),
            streams: AtomicU64::new(0),
            scrapes: Mutex::default(),
            remotes: Mutex::default(),
        }))
    }

    /// Returns a feed for the events of a process.
    pub fn feed(&self) -> ViewFeed {
        ViewFeed::new(self.sender())
    }

    /// Returns the queue for samples of other processes.
    pub fn sender(&self) -> ViewSender {
        self.0.sender.clone()
    }

    /// Whether a page or another client has opened the stream of events.
    pub fn has_viewers(&self) -> bool {
        self.0.streams.load(Ordering::Relaxed) > 0
    }

    /// Whether a scraper of metrics still waits for the counters after the last change, or a page for the
    /// last sample. A process that has ended its sessions goes on until then, so that the last counters are
    /// seen. A scraper that comes no more is not waited for.
    pub fn is_awaited(&self) -> bool {
        let mut board = lock(&self.0.board);
        board.take_changes();
        let changed = board.last_change().unwrap_or_else(Instant::now);
        drop(board);
        let scrapes = *lock(&self.0.scrapes);
        let scraped = scrapes.last.filter(|last| *last <= changed);
        let wait = scrapes.interval.map_or(SCRAPE_WAIT[2], |interval| interval * 3 / 2);
        let is_scraped =
            scraped.is_some_and(|last| last.elapsed() < wait.clamp(SCRAPE_WAIT[0], SCRAPE_WAIT[1]));
        is_scraped || (self.has_viewers() && changed.elapsed() < 3 * INTERVAL)
    }

    /// Whether the path is a path of the view.
    pub(crate) fn has_path(path: &str) -> bool {
        matches!(path, "/metrics" | "/events") || PARTS.iter().any(|(known, ..)| *known == path)
    }

    /// Takes samples for ever.
    pub(crate) async fn take_samples(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut board = lock(&self.0.board);
            if board.sample() {
                self.0.samples.send_replace(board.count());
            }
        }
    }

    /// Answers a request.
    pub(crate) async fn respond(&self, access: &ViewAccess, request: &Parts) -> Response {
        let mut response = match self.admit(access, request).await {
            Ok(()) => self.answer(request),
            Err(refusal) => refusal,
        };
        let fields = response.headers_mut();
        for (name, value) in host::HEADERS {
            fields.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn admit(&self, access: &ViewAccess, request: &Parts) -> Result<(), Response> {
        if !access.admits_client(request) {
            let text = "this address answers no questions about the session; --http-view opens it\n";
            return Err((StatusCode::FORBIDDEN, text).into_response());
        }
        if !host::is_own(request, &[]) {
            let text = "the request names another host: write localhost, or the address of this machine, not a name\n";
            return Err((StatusCode::MISDIRECTED_REQUEST, text).into_response());
        }
        if request.method != Method::GET && request.method != Method::HEAD {
            return Err((StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")]).into_response());
        }
        let wait = lock(&self.0.limit).take(Instant::now());
        let Some(wait) = wait else {
            let fields = [(header::RETRY_AFTER, "5"), (header::CONNECTION, "close")];
            return Err((StatusCode::TOO_MANY_REQUESTS, fields).into_response());
        };
        if wait > Duration::ZERO {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn answer(&self, request: &Parts) -> Response {
        let is_head = request.method == Method::HEAD;
        match request.uri.path() {
            "/events" => {
                let body = if is_head { Body::empty() } else { self.stream() };
                ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")], body)
                    .into_response()
            }
            "/metrics" => {
                let text = self.metrics();
                let fields =
                    [(header::CONTENT_TYPE, metrics::MEDIA_TYPE), (header::CACHE_CONTROL, "no-store")];
                (fields, if is_head { Body::empty() } else { Body::from(text) }).into_response()
            }
            path => match PARTS.iter().find(|(known, ..)| *known == path) {
                Some((_, kind, content)) => {
                    let fields = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "no-cache")];
                    (fields, if is_head { Body::empty() } else { Body::from(*content) }).into_response()
                }
                None => StatusCode::NOT_FOUND.into_response(),
            },
        }
    }

    fn stream(&self) -> Body {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        Body::from_stream(stream::events(self.clone()))
    }

    /// Returns the text of the metrics: a text is as old as the state.
    fn metrics(&self) -> String {
        let mut board = lock(&self.0.board);
        board.take_changes();
        let mut text = lock(&self.0.text);
        if text.0 != board.version {
            *text = (board.version, metrics::encode(&board.ends));
        }
        let mut scrapes = lock(&self.0.scrapes);
        scrapes.interval = scrapes.last.map(|last| last.elapsed());
        scrapes.last = Some(Instant::now());
        text.1.clone()
    }
}

/// Rule of the clients that get answers about a session, and the addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewAccess {
    /// Address and port of `--http-view`.
    pub(crate) view: Option<(IpAddr, u16)>,
    pub(crate) client: SocketAddr,
    pub(crate) local: SocketAddr,
}

/// Token bucket of requests.
#[derive(Debug)]
struct RequestLimit {
    tokens: f64,
    at: Instant,
}

impl RequestLimit {
    /// Takes a token. Returns the time to wait; `None` if the wait would be too long.
    fn take(&mut self, now: Instant) -> Option<Duration> {
        let filled = self.tokens + now.duration_since(self.at).as_secs_f64() * REQUESTS_PER_SECOND;
        let tokens = filled.min(BURST) - 1.0;
        let wait = Duration::from_secs_f64((-tokens / REQUESTS_PER_SECOND).max(0.0));
        if wait > WAIT_MAX {
            return None;
        }
        (self.tokens, self.at) = (tokens, now);
        Some(wait)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_beyond_the_rate_wait_and_far_beyond_are_refused() {
        let now = Instant::now();
        let mut limit = RequestLimit { tokens: BURST, at: now };
        let waits: Vec<_> = (0..2_000).map(|_| limit.take(now)).collect();
        assert_eq!(waits[199], Some(Duration::ZERO));
        assert_eq!(waits[399], Some(Duration::from_secs(1)));
        assert_eq!(waits[1_999], None);
        assert_eq!(limit.take(now + Duration::from_secs(60)), Some(Duration::ZERO));
    }

    #[test]
    fn the_page_is_small_and_names_no_other_place() {
        let bytes: usize = PARTS.iter().map(|(_, _, content)| content.len()).sum();
        assert!(bytes <= 120_000, "{bytes} bytes");
        for (path, _, content) in PARTS {
            let text = String::from_utf8(content.to_vec()).unwrap();
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !text.contains("http://") && !text.contains("https://") && !text.contains("innerHTML"),
                "{path}"
            );
        }
    }

    #[test]
    fn a_process_waits_for_the_scrape_after_the_last_change() {
        let view = LiveView::new();
        assert!(!view.is_awaited(), "nobody has come");
        let sender = view.sender();
        sender.end("a", EndSample::default());
        view.metrics();
        assert!(!view.is_awaited(), "the counters were seen");
        sender.end("a", EndSample { bytes: 1, ..EndSample::default() });
        lock(&view.0.board).take_changes();
        assert!(view.is_awaited());
        assert!(view.metrics().ends_with("# EOF\n"));
        assert!(!view.is_awaited());
    }
}
