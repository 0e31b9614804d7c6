//! Gateway of received video: a page with a player, and playlists and segments for HLS players.
//!
//! | path | answer |
//! |---|---|
//! | `/`, `/player.js`, `/player.css` | page with a player for each receiver |
//! | `/receivers` | names and paths of the receivers, JSON |
//! | `PATH list` | received buffers, JSON |
//! | `PATH master.m3u8`, `video.m3u8`, `audio.m3u8` | playlists (RFC 8216) |
//! | `PATH init-video`, `init-audio`, `vN.m4s`, `aN.m4s` | segments (fragmented MP4) |
//!
//! A single receiver has the path `/`, several have `/r0/`, `/r1/` and so on.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::host;
use crate::reception::{Kind, VideoReception};
use crate::server::{Running, ServerError, listen};

const PAGE: &str = include_str!("gateway/page.html");
const SCRIPT: &str = include_str!("gateway/player.js");
const STYLE: &str = include_str!("gateway/player.css");

/// Socket of a gateway that does not answer yet: a process can open the socket before it confines itself.
#[derive(Debug)]
pub struct GatewaySocket {
    listener: TcpListener,
    address: SocketAddr,
}

/// Running gateway. Dropping the gateway ends all connections.
#[derive(Debug)]
pub struct Gateway {
    _running: Running,
}

/// Receivers of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Line about the session, for the page.
    pub about: String,
    /// Names of the server, beside addresses and `localhost`.
    pub names: Vec<String>,
    /// Names and receptions of the receivers.
    pub receivers: Vec<(String, VideoReception)>,
}

impl GatewaySocket {
    /// Listens. Connections wait until [`GatewaySocket::serve`].
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn open(address: SocketAddr) -> Result<Self, ServerError> {
        let (listener, address) = listen(address)?;
        Ok(Self { listener, address })
    }

    /// Returns the address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves receivers on a new thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn serve(self, options: GatewayOptions) -> Result<Gateway, ServerError> {
        let routes = Router::new().fallback(respond).with_state(Arc::new(options));
        let routes = Arc::new(move |_| routes.clone());
        Ok(Gateway { _running: Running::start(vec![self.listener], routes, || ())? })
    }
}

impl GatewayOptions {
    fn path(&self, receiver: usize) -> String {
        if self.receivers.len() == 1 { "/".to_owned() } else { format!("/r{receiver}/") }
    }

    /// Returns the reception and the rest of a path.
    fn find<'a>(&self, path: &'a str) -> Option<(&VideoReception, &'a str)> {
        let (receiver, rest) = if self.receivers.len() == 1 {
            (0, path.strip_prefix('/')?)
        } else {
            let (number, rest) = path.strip_prefix("/r")?.split_once('/')?;
            (number.parse().ok()?, rest)
        };
        self.receivers.get(receiver).map(|(_, reception)| (reception, rest))
    }

    fn receivers(&self) -> String {
        let receiver = |(number, (name, _)): (usize, &(String, VideoReception))| serde_json::json!({ "name": name, "path": self.path(number) });
        let receivers: Vec<_> = self.receivers.iter().enumerate().map(receiver).collect();
        serde_json::json!({ "about": self.about, "receivers": receivers }).to_string()
    }

    fn answer(&self, path: &str) -> Option<Answer> {
        let text = |kind, text: &'static str| Some(Answer::new(kind, Bytes::from_static(text.as_bytes())));
        match path {
            "/" => return text("text/html; charset=utf-8", PAGE),
            "/player.js" => return text("text/javascript; charset=utf-8", SCRIPT),
            "/player.css" => return text("text/css; charset=utf-8", STYLE),
            "/receivers" => return Some(Answer::new(JSON, self.receivers().into())),
            _ => {}
        }
        let (reception, name) = self.find(path)?;
        let playlist = |playlist: Option<String>| {
            let unavailable =
                || Answer { status: StatusCode::SERVICE_UNAVAILABLE, ..Answer::new(PLAYLIST, Bytes::new()) };
            Some(playlist.map_or_else(unavailable, |text| Answer::new(PLAYLIST, text.into())))
        };
        match name {
            "list" => Some(Answer::new(JSON, reception.list().into())),
            "master.m3u8" => playlist(reception.master_playlist()),
            "video.m3u8" => playlist(reception.playlist(Kind::Video)),
            "audio.m3u8" => playlist(reception.playlist(Kind::Audio)),
            "init-video" => reception.init(Kind::Video).map(|init| Answer::new(VIDEO, init)),
            "init-audio" => reception.init(Kind::Audio).map(|init| Answer::new(AUDIO, init)),
            _ => {
                let (kind, number) = match name.strip_suffix(".m4s")?.split_at_checked(1)? {
                    ("v", number) => (Kind::Video, number),
                    ("a", number) => (Kind::Audio, number),
                    _ => return None,
                };
                let media = if matches!(kind, Kind::Video) { VIDEO } else { AUDIO };
                reception.segment(kind, number.parse().ok()?).map(|segment| Answer::new(media, segment))
            }
        }
    }
}

const JSON: &str = "application/json";
const PLAYLIST: &str = "application/vnd.apple.mpegurl";
const VIDEO: &str = "video/mp4";
const AUDIO: &str = "audio/mp4";

struct Answer {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
}

impl Answer {
    const fn new(kind: &'static str, body: Bytes) -> Self {
        Self { status: StatusCode::OK, kind, body }
    }
}

async fn respond(State(options): State<Arc<GatewayOptions>>, request: Request) -> Response {
    let (request, _body) = request.into_parts();
    let is_head = request.method == Method::HEAD;
    let mut response = if !host::is_own(&request, &options.names) {
        (
            StatusCode::MISDIRECTED_REQUEST,
            "this server is reached by its address, or by a name of --http-name\n",
        )
            .into_response()
    } else if request.method != Method::GET && !is_head {
        (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")]).into_response()
    } else if let Some(Answer { status, kind, body }) = options.answer(request.uri.path()) {
        let fields = [
            (header::CONTENT_TYPE, kind.to_owned()),
            (header::CONTENT_LENGTH, body.len().to_string()),
            (header::CACHE_CONTROL, "no-store".to_owned()),
        ];
        let body = if is_head { Body::empty() } else { Body::from(body) };
        let mut response = (status, fields, body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    } else {
        StatusCode::NOT_FOUND.into_response()
    };
    for (name, value) in host::HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
