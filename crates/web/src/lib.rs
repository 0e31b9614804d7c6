//! HTTP server of a session: receivers that miss symbols at the end of a session fetch byte ranges, anybody
//! fetches whole files, and a live page, metrics and events show the session ([`LiveView`]).
//!
//! `GET` and `HEAD` of `/files/NAME`, the percent-encoded name of a file. The entity tag of a file is its
//! digest. Answers: 200, 206 for one range, 304, 404 for anything but a file of the session, 412 if the file
//! is not the requested version any more, 416, 503 while a file is being hashed or the server is full.
//!
//! | file | contents |
//! |---|---|
//! | `server` | thread, connections, bounds |
//! | `files` | from request to response |
//! | `range` | fields of requests: ranges, entity tags, names |
//! | `body` | bytes of a file at the server's rate |
//! | `view` | live page, metrics, events |
//! | `gateway` | page and playlists of received video |
//! | `reception` | last buffers of a received video |
//! | `host` | names of the server, headers of pages |
//!
//! `/session.sdp` describes the session, and `/session.fdt` is its FDT, if the session publishes them.
//!
//! The server runs on a thread of its own, with the only async runtime of the project.

mod body;
mod files;
mod gateway;
mod host;
mod range;
mod reception;
mod server;
mod view;

pub use gateway::{Gateway, GatewayOptions, GatewaySocket};
pub use reception::{BUFFERS_KEPT, Presentation, VideoReception, VideoSegment};
pub use server::{
    CONNECTIONS_MAX, FileServer, FileServerOptions, FileServerSocket, LOCAL_CONNECTIONS_MAX, RATE_DEFAULT,
    ServerError, ViewAddress,
};
pub use view::{
    CELLS_MAX, Details, ENDS_MAX, EndSample, FileSample, LiveView, METRICS, Metric, MetricKind, PageReader,
    REMOTES_MAX, ROWS_MAX, RemotePage, RowSample, ViewFeed, ViewSender,
};
