//! From a request for a file to the response.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headwater::{FILES_PATH, PublishedFile, PublishedFiles};
use headwater_proto::delivery::{block_digest, entity_tag};

use crate::body::{Pacer, body, text_body};
use crate::range::{Requested, has_tag, name, range};

/// Paths of the session's description and of its FDT.
const DESCRIPTION: &str = "/session.sdp";
const FDT: &str = "/session.fdt";
/// Bytes that the rate counts for the head of a response.
const HEAD_BYTES: u64 = 400;
/// Bounds in seconds between which clients of a full server choose the time of their next attempt.
const RETRY: core::ops::RangeInclusive<u32> = 1..=8;

/// Content and rate of a server.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) files: PublishedFiles,
    pub(crate) pacer: Arc<Pacer>,
}

/// Answers any request of a connection beyond the limit.
pub(crate) fn full_routes() -> Router {
    Router::new().fallback(|| async { unavailable() })
}

/// Answers a request for a file or a document of the session. The look-up knows exact names alone.
pub(crate) async fn respond(files: Files, request: Request) -> Response {
    files.pacer.take(HEAD_BYTES).await;
    let is_head = request.method() == Method::HEAD;
    if request.method() != Method::GET && !is_head {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")]).into_response();
    }
    let known = match request.uri().path() {
        DESCRIPTION => Some((files.files.sdp(), "application/sdp")),
        FDT => Some((files.files.fdt(), "application/xml")),
        _ => None,
    };
    if let Some((text, kind)) = known {
        let Some(text) = text else { return StatusCode::NOT_FOUND.into_response() };
        return document(text, kind, (request.headers(), is_head), files.pacer);
    }
    let path = request.uri().path().strip_prefix(FILES_PATH).and_then(name);
    let Some(file) = path.and_then(|name| files.files.find(&name)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let fields = request.headers();
    // An encoded file has two representations. Ranges and tags are those of the chosen one.
    let varies = file.coding().is_some();
    let coding = file.coding().filter(|coding| accepts(fields, coding.name()));
    let file = if varies && coding.is_none() { file.decoded() } else { Some(file) };
    let Some(file) = file else { return not_acceptable() };
    let tag = match file.digest() {
        Ok(Some(digest)) => entity_tag(&digest),
        Ok(None) => return unavailable(),
        Err(_changed) => return not_current(fields),
    };
    if let Some(response) = precondition(fields, &tag) {
        return response;
    }
    let is_version = field(fields, header::IF_RANGE).is_none_or(|wanted| wanted == tag);
    let wanted = field(fields, header::RANGE).filter(|_| is_version && !is_head);
    let length = file.bytes();
    let (status, start, bytes) = match range(wanted, length) {
        Requested::Whole => (StatusCode::OK, 0, length),
        Requested::Part { start, bytes } => (StatusCode::PARTIAL_CONTENT, start, bytes),
        Requested::Unsatisfiable => {
            let complete = [(header::CONTENT_RANGE, format!("bytes */{length}"))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, complete).into_response();
        }
    };
    let content = if is_head { Ok(Body::empty()) } else { content(file, (start, bytes), files.pacer).await };
    let Ok(content) = content else { return not_current(fields) };
    let mut response = (status, content).into_response();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    };
    coding.iter().for_each(|coding| set(header::CONTENT_ENCODING, coding.name().to_owned()));
    if varies {
        set(header::VARY, "Accept-Encoding".to_owned());
    }
    set(header::ETAG, tag);
    set(header::ACCEPT_RANGES, "bytes".to_owned());
    set(header::CONTENT_LENGTH, bytes.to_string());
    set(header::CONTENT_TYPE, "application/octet-stream".to_owned());
    if status == StatusCode::PARTIAL_CONTENT {
        set(header::CONTENT_RANGE, format!("bytes {start}-{}/{length}", start + bytes - 1));
    }
    response
}

/// Returns a document about the session; 304 if the client has it.
fn document(
    text: Arc<str>,
    kind: &'static str,
    (asked, is_head): (&HeaderMap, bool),
    pacer: Arc<Pacer>,
) -> Response {
    let tag = entity_tag(&block_digest(text.as_bytes()));
    if let Some(response) = precondition(asked, &tag) {
        return response;
    }
    let length = text.len().to_string();
    let body = if is_head { Body::empty() } else { text_body(text, pacer) };
    // Each change of the session changes the documents.
    let cache = (header::CACHE_CONTROL, "no-cache".to_owned());
    let length = (header::CONTENT_LENGTH, length);
    let fields = [length, (header::CONTENT_TYPE, kind.to_owned()), (header::ETAG, tag), cache];
    (fields, body).into_response()
}

async fn content(
    file: PublishedFile,
    (start, bytes): (u64, u64),
    pacer: Arc<Pacer>,
) -> Result<Body, headwater_proto::delivery::SourceError> {
    if bytes == 0 { Ok(Body::empty()) } else { body(file, start, bytes, pacer).await }
}

/// Returns the response of a request whose precondition decides (RFC 9110, section 13.2.2).
fn precondition(fields: &HeaderMap, tag: &str) -> Option<Response> {
    if field(fields, header::IF_MATCH).is_some_and(|tags| !has_tag(tags, tag)) {
        return Some(StatusCode::PRECONDITION_FAILED.into_response());
    }
    let is_known = field(fields, header::IF_NONE_MATCH).is_some_and(|tags| has_tag(tags, tag));
    is_known.then(|| (StatusCode::NOT_MODIFIED, [(header::ETAG, tag.to_owned())]).into_response())
}

/// Returns the response for a file that has changed: the announced version is gone.
fn not_current(fields: &HeaderMap) -> Response {
    let is_conditional = fields.contains_key(header::IF_MATCH);
    let status = if is_conditional { StatusCode::PRECONDITION_FAILED } else { StatusCode::NOT_FOUND };
    status.into_response()
}

/// Returns the response for a bundle that travels encoded, to a client that does not take the coding.
fn not_acceptable() -> Response {
    let text =
        "This bundle is there as encoded content alone: ask with Accept-Encoding (curl --compressed).\n";
    (StatusCode::NOT_ACCEPTABLE, [(header::VARY, "Accept-Encoding")], text).into_response()
}

/// Whether the client takes a content coding (RFC 9110, section 12.5.3). A client that states nothing does
/// not.
fn accepts(fields: &HeaderMap, coding: &str) -> bool {
    let codings = fields.get_all(header::ACCEPT_ENCODING);
    let listed = codings.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut weights = listed.filter_map(|listed| {
        let (name, weight) = listed.split_once(';').unwrap_or((listed, ""));
        let is_refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.trim().parse() == Ok(0.0_f32));
        name.trim().eq_ignore_ascii_case(coding).then_some(!is_refused)
    });
    weights.next().unwrap_or(false)
}

fn unavailable() -> Response {
    // The clock's nanoseconds are random enough to spread clients.
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let seconds = (RETRY.start() + nanos / 64 % (RETRY.end() - RETRY.start() + 1)).to_string();
    let fields = [(header::RETRY_AFTER, seconds), (header::CONNECTION, "close".to_owned())];
    (StatusCode::SERVICE_UNAVAILABLE, fields).into_response()
}

fn field(fields: &HeaderMap, name: HeaderName) -> Option<&str> {
    fields.get(name).and_then(|value| value.to_str().ok())
}
