//! HTTP client of a receiver: byte ranges of files, on a thread of its own.
//!
//! A server is a stranger: redirects are not followed, responses are bounded in length and time, and a name
//! leads to allowed addresses alone, after the name is resolved.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use headwater_proto::delivery::{ContentCoding, FileIndex, MissingRange};
use ureq::http::{StatusCode, Uri, header};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body};

use crate::net::Waker;

/// Requests that wait for the thread; with one in progress, the next follows at once.
pub(super) const REQUESTS_MAX: usize = 2;
/// Pieces of content that wait for the session, of at most [`PIECE_BYTES`].
const PIECES_MAX: usize = 8;
const PIECE_BYTES: usize = 64 << 10;
/// Time to find a server's addresses, and to connect.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time between two reads of a response: a server at its rate limit is slow.
const READ_TIME: Duration = Duration::from_secs(20);
/// Time for each step of a request for a document that was fetched before.
const AGAIN_TIME: Duration = Duration::from_secs(2);
/// Least mean rate of a response's content in bytes a second, after [`READ_TIME`].
const BYTES_PER_SECOND_MIN: u64 = 4 << 10;
/// The same of a receiver that serves: a slow receiver costs at most 69 s, for
/// a range of 1 MiB.
const PEER_TIME: Duration = Duration::from_secs(5);
const PEER_BYTES_PER_SECOND_MIN: u64 = 16 << 10;
/// Longest head of a response, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bounds of the time for which a busy server can turn a receiver away.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
const RETRY_DEFAULT: Duration = Duration::from_secs(5);

/// Addresses that a server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressRule {
    /// Any: the receiver's user gave the URL.
    Any,
    /// No address of this machine, this link, or a group: the sender gave the URL.
    Remote,
    /// As `Remote`, and loopback: the sender is on this machine.
    RemoteOrLoopback,
}

impl AddressRule {
    pub(super) fn allows(self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        match self {
            Self::Any => true,
            Self::RemoteOrLoopback if ip.is_loopback() => true,
            Self::Remote | Self::RemoteOrLoopback => match ip {
                IpAddr::V4(ip) => is_remote_ipv4(ip),
                IpAddr::V6(ip) => is_remote_ipv6(ip),
            },
        }
    }
}

fn is_remote_ipv4(ip: Ipv4Addr) -> bool {
    let is_this_host = ip.is_loopback() || ip.octets()[0] == 0;
    !(is_this_host || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast())
}

fn is_remote_ipv6(ip: Ipv6Addr) -> bool {
    // IPv4-compatible addresses (`::a.b.c.d`), the NAT64 prefix and 6to4 lead to the IPv4 address within.
    let within = match ip.segments() {
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xFF9B, 0, 0, 0, 0, high, low] => Some((high, low)),
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    let within = within.map(|(high, low)| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    let is_local = ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast();
    !is_local && within.is_none_or(is_remote_ipv4)
}

/// Server of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// Base URL, ending in `/`.
    pub(super) url: String,
    pub(super) rule: AddressRule,
}

impl Server {
    /// Returns the server of a URL; `None` for a URL that is no `http` or `https` URL of a host.
    pub(super) fn new(url: &str, rule: AddressRule) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !is_http || !has_host || has_user || uri.query().is_some() {
            return None;
        }
        let slash = if url.ends_with('/') { "" } else { "/" };
        Some(Self { url: format!("{url}{slash}"), rule })
    }
}

/// Request for a range of a file.
#[derive(Clone, Debug)]
pub(super) struct RangeRequest {
    /// Number of the server, which comes back in each reply.
    pub(super) server: usize,
    pub(super) url: String,
    pub(super) rule: AddressRule,
    /// Whether the server is a receiver, for which time is short.
    pub(super) is_peer: bool,
    pub(super) range: MissingRange,
    /// Entity tag of the announced content.
    pub(super) etag: Option<String>,
    /// Length of the file in bytes.
    pub(super) file_bytes: u64,
    /// Coding of the content.
    pub(super) coding: Option<ContentCoding>,
    /// Whether a server without ranges may send the whole file.
    pub(super) takes_whole: bool,
}

/// Request for a short document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentRequest {
    pub(super) url: String,
    pub(super) rule: AddressRule,
    /// Longest document in bytes.
    pub(super) bytes_max: usize,
}

/// Request of a session.
#[derive(Debug)]
enum Request {
    Range(RangeRequest),
    Document(DocumentRequest),
}

/// Result of a request, or a part of the result.
#[derive(Debug)]
pub(super) enum Reply {
    /// A document.
    Document(Result<Vec<u8>, FetchFailure>),
    /// Content, from a symbol's first byte on.
    Bytes { server: usize, file: FileIndex, start: u64, bytes: Vec<u8> },
    /// The request is answered.
    Done { file: FileIndex, is_whole_file: bool },
    /// The request failed.
    Failed { server: usize, file: FileIndex, failure: FetchFailure },
}

/// Reason for which a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchFailure {
    /// The server asks for a later attempt.
    Busy(Duration),
    /// The server cannot be reached, or the connection broke.
    Unreachable(String),
    /// The server has no usable content of the file.
    Refused(String),
}

/// Thread of requests. Dropping the client ends the thread after its next read, which takes at most
/// [`READ_TIME`]; nobody waits for the thread.
#[derive(Debug)]
pub(super) struct HttpClient {
    requests: SyncSender<Request>,
    replies: Receiver<Reply>,
}

impl HttpClient {
    /// Starts the thread, which wakes the session for each reply; `None` if no thread can be started.
    pub(super) fn start(waker: Waker) -> Option<Self> {
        let (requests, received) = sync_channel::<Request>(REQUESTS_MAX);
        let (sender, replies) = sync_channel(PIECES_MAX);
        let outlet = Outlet { replies: sender, waker };
        let run = move || {
            let agents = Agents::new();
            let answer = |request| match request {
                Request::Range(request) => fetch(&agents, &request, &outlet),
                Request::Document(request) => {
                    outlet.send(Reply::Document(document(agents.of(request.rule), &request)))
                }
            };
            received.iter().try_for_each(answer).ok();
        };
        thread::Builder::new().name("headwater-http".into()).spawn(run).ok()?;
        Some(Self { requests, replies })
    }

    /// Queues a request. Returns false if the queue is full.
    pub(super) fn request(&self, request: RangeRequest) -> bool {
        !matches!(self.requests.try_send(Request::Range(request)), Err(TrySendError::Full(_)))
    }

    /// Queues a request for a document. Returns false if the queue is full.
    pub(super) fn request_document(&self, request: DocumentRequest) -> bool {
        !matches!(self.requests.try_send(Request::Document(request)), Err(TrySendError::Full(_)))
    }

    /// Returns the next reply.
    pub(super) fn poll(&self) -> Option<Reply> {
        self.replies.try_recv().ok()
    }
}

/// Replies to the session.
struct Outlet {
    replies: SyncSender<Reply>,
    waker: Waker,
}

/// The session does not wait for replies any more.
struct Gone;

impl Outlet {
    /// Waits while the session has many unread pieces.
    fn send(&self, reply: Reply) -> Result<(), Gone> {
        let sent = self.replies.send(reply).map_err(|_gone| Gone);
        self.waker.wake();
        sent
    }
}

/// Agents by rule: a connection of one rule never serves another.
struct Agents([(AddressRule, Agent); 3]);

impl Agents {
    fn new() -> Self {
        let rules = [AddressRule::Any, AddressRule::Remote, AddressRule::RemoteOrLoopback];
        Self(rules.map(|rule| (rule, agent(rule))))
    }

    fn of(&self, rule: AddressRule) -> &Agent {
        let found = self.0.iter().find(|(known, _)| *known == rule);
        &found.unwrap_or(&self.0[1]).1
    }
}

fn agent(rule: AddressRule) -> Agent {
    let config = Agent::config_builder()
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        // A proxy would resolve the name in place of this receiver.
        .proxy(None)
        .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .timeout_resolve(Some(CONNECT_TIME))
        .timeout_connect(Some(CONNECT_TIME))
        .timeout_recv_response(Some(READ_TIME))
        .timeout_per_read(Some(READ_TIME))
        .timeout_per_write(Some(READ_TIME))
        .max_response_header_size(HEAD_BYTES_MAX)
        .max_idle_connections_per_host(1)
        .build();
    Agent::with_parts(config, DefaultConnector::default(), CheckedResolver(rule))
}

/// Resolver that returns allowed addresses alone: the connection goes to an address that was checked.
#[derive(Debug)]
struct CheckedResolver(AddressRule);

impl Resolver for CheckedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        found.iter().filter(|address| self.0.allows(address.ip())).for_each(|address| allowed.push(*address));
        if allowed.is_empty() { Err(ureq::Error::Other(Box::new(LocalAddress))) } else { Ok(allowed) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the name leads to an address of this machine or this link, which only a URL of the command line may name"
)]
struct LocalAddress;

fn fetch(agents: &Agents, request: &RangeRequest, outlet: &Outlet) -> Result<(), Gone> {
    let file = request.range.file;
    let failure = match get(agents, request) {
        Ok(mut response) => match receive(&mut response, request, outlet)? {
            Ok(is_whole_file) => return outlet.send(Reply::Done { file, is_whole_file }),
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    outlet.send(Reply::Failed { server: request.server, file, failure })
}

fn get(agents: &Agents, request: &RangeRequest) -> Result<ureq::http::Response<Body>, FetchFailure> {
    let MissingRange { start, bytes, .. } = request.range;
    let longest = if request.takes_whole { request.file_bytes } else { bytes };
    let (start_time, rate) = match request.is_peer {
        true => (PEER_TIME, PEER_BYTES_PER_SECOND_MIN),
        false => (READ_TIME, BYTES_PER_SECOND_MIN),
    };
    let time = start_time + Duration::from_secs(longest / rate);
    let mut builder = agents.of(request.rule).get(&request.url);
    builder = builder.header(header::RANGE, format!("bytes={start}-{}", start + bytes.max(1) - 1));
    if let Some(coding) = request.coding {
        builder = builder.header(header::ACCEPT_ENCODING, coding.name());
    }
    if let Some(etag) = &request.etag {
        builder = builder.header(header::IF_MATCH, etag);
    }
    let config = builder.config().timeout_recv_body(Some(time)).timeout_recv_response(Some(start_time));
    config.timeout_connect(Some(start_time.min(CONNECT_TIME))).build().call().map_err(failure)
}

/// Document and entity tag.
pub(super) type TaggedDocument = (Vec<u8>, Option<String>);

/// Fetches a document on the caller's thread. The user gave the URL: any address is allowed. For a document
/// that the caller has had, `again` is the entity tag, if the document had one: `None` if the document is the
/// same, and only some seconds are spent.
pub(super) fn fetch_document(
    url: &str,
    bytes_max: usize,
    again: Option<Option<&str>>,
) -> Result<Option<TaggedDocument>, FetchFailure> {
    let mut request = agent(AddressRule::Any).get(url);
    if let Some(tag) = again.flatten() {
        request = request.header(header::IF_NONE_MATCH, tag);
    }
    let time = if again.is_some() { AGAIN_TIME } else { document_time(bytes_max) };
    let mut config = request.config().timeout_recv_body(Some(time));
    if again.is_some() {
        let time = Some(AGAIN_TIME);
        config = config.timeout_resolve(time).timeout_connect(time).timeout_recv_response(time);
    }
    let response = config.build().call().map_err(failure)?;
    if response.status() == StatusCode::NOT_MODIFIED && again.is_some() {
        return Ok(None);
    }
    let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    read_document(response, bytes_max).map(|bytes| Some((bytes, tag)))
}

fn document_time(bytes_max: usize) -> Duration {
    READ_TIME + Duration::from_secs(bytes_max as u64 / BYTES_PER_SECOND_MIN)
}

fn document(agent: &Agent, request: &DocumentRequest) -> Result<Vec<u8>, FetchFailure> {
    let time = document_time(request.bytes_max);
    let call = agent.get(&request.url).config().timeout_recv_body(Some(time)).build().call();
    read_document(call.map_err(failure)?, request.bytes_max)
}

fn read_document(
    mut response: ureq::http::Response<Body>,
    bytes_max: usize,
) -> Result<Vec<u8>, FetchFailure> {
    check_status(&response)?;
    let mut bytes = Vec::new();
    let limit = bytes_max as u64 + 1;
    let read = response.body_mut().as_reader().take(limit).read_to_end(&mut bytes);
    read.map_err(|error| FetchFailure::Unreachable(format!("the response broke off: {error}")))?;
    if bytes.len() > bytes_max {
        return Err(FetchFailure::Refused(format!("the response has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn failure(error: ureq::Error) -> FetchFailure {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => FetchFailure::Refused(error.to_string()),
        ureq::Error::Other(ref other) if other.is::<LocalAddress>() => {
            FetchFailure::Refused(other.to_string())
        }
        error => FetchFailure::Unreachable(error.to_string()),
    }
}

/// Returns the failure of a status other than 200 and 206.
fn check_status(response: &ureq::http::Response<Body>) -> Result<(), FetchFailure> {
    let field = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let refused = |reason: String| Err(FetchFailure::Refused(reason));
    match response.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(()),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            let seconds = field(header::RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
            let time = seconds.map_or(RETRY_DEFAULT, Duration::from_secs);
            Err(FetchFailure::Busy(time.clamp(RETRY_MIN, RETRY_MAX)))
        }
        StatusCode::PRECONDITION_FAILED => refused("the file has changed (status 412)".to_owned()),
        status if status.is_redirection() => refused(format!("redirects are not followed (status {status})")),
        status => refused(format!("status {status}")),
    }
}

/// Passes the content of a response on. Returns whether the content was the whole file.
fn receive(
    response: &mut ureq::http::Response<Body>,
    request: &RangeRequest,
    outlet: &Outlet,
) -> Result<Result<bool, FetchFailure>, Gone> {
    let (start, bytes) = match content_range(response, request) {
        Ok(range) => range,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut reader = response.body_mut().as_reader();
    let size = usize::from(request.range.symbol_bytes).max(1);
    let piece_bytes = (PIECE_BYTES / size).max(1) * size;
    let (mut at, end) = (start, start + bytes);
    while at < end {
        let length = usize::try_from(end - at).map_or(piece_bytes, |left| left.min(piece_bytes));
        let mut piece = vec![0; length];
        if let Err(error) = reader.read_exact(&mut piece) {
            return Ok(Err(FetchFailure::Unreachable(format!("the response broke off: {error}"))));
        }
        let (server, file) = (request.server, request.range.file);
        outlet.send(Reply::Bytes { server, file, start: at, bytes: piece })?;
        at += length as u64;
    }
    // The end of the content lets the connection be used again.
    if !matches!(reader.read(&mut [0]), Ok(0)) {
        return Ok(Err(FetchFailure::Refused("the response is longer than announced".to_owned())));
    }
    Ok(Ok(start == 0 && bytes == request.file_bytes))
}

/// Checks the head of a response. Returns start and length of the content in the file.
fn content_range(
    response: &ureq::http::Response<Body>,
    request: &RangeRequest,
) -> Result<(u64, u64), FetchFailure> {
    let MissingRange { start, bytes, .. } = request.range;
    let field = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let refused = |reason: String| Err(FetchFailure::Refused(reason));
    check_status(response)?;
    let expected = request.coding.map_or("identity", ContentCoding::name);
    if field(header::CONTENT_ENCODING).is_some_and(|coding| coding != expected) {
        return refused(format!("the content is encoded in another way than expected ('{expected}')"));
    }
    let length = field(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    match response.status() {
        StatusCode::PARTIAL_CONTENT => {
            let expected = format!("bytes {start}-{}/{}", start + bytes - 1, request.file_bytes);
            let is_expected = field(header::CONTENT_RANGE) == Some(&expected);
            if !is_expected || length.is_some_and(|length| length != bytes) {
                return refused("the response has another range, or the file another length".to_owned());
            }
            Ok((start, bytes))
        }
        StatusCode::OK if length != Some(request.file_bytes) => {
            refused("the file has another length".to_owned())
        }
        // A request for the whole file has this answer from any server.
        StatusCode::OK if request.takes_whole || bytes == request.file_bytes => Ok((0, request.file_bytes)),
        _ => refused("the server has no ranges, and less than 80 % of the file misses".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_for_the_user_alone() {
        let local = [
            "127.0.0.1",
            "127.8.9.10",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::1",
        ];
        for ip in local.map(|ip| ip.parse::<IpAddr>().unwrap()) {
            assert!(!AddressRule::Remote.allows(ip), "{ip}");
            assert!(AddressRule::Any.allows(ip), "{ip}");
            let is_loopback = ip.to_canonical().is_loopback();
            assert_eq!(AddressRule::RemoteOrLoopback.allows(ip), is_loopback, "{ip}");
        }
        for ip in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"] {
            assert!(AddressRule::Remote.allows(ip.parse().unwrap()), "{ip}");
        }
    }

    /// Fetches ten bytes, and returns the failure and whether the server got a connection.
    fn fetch_from(host: &str, rule: AddressRule) -> (FetchFailure, bool) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().ok()?;
            let read = stream.read(&mut [0; 1_000]).ok()?;
            std::io::Write::write_all(&mut stream, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                .ok()?;
            Some(read)
        });
        let client = HttpClient::start(crate::net::Poller::new().unwrap().waker()).unwrap();
        let range = MissingRange { file: FileIndex(0), start: 0, bytes: 10, symbol_bytes: 10 };
        let url = format!("http://{host}:{port}/file");
        let (etag, file_bytes, coding) = (None, 100, None);
        let request = RangeRequest {
            server: 0,
            url,
            rule,
            is_peer: false,
            range,
            etag,
            file_bytes,
            coding,
            takes_whole: false,
        };
        assert!(client.request(request));
        let reply = client.replies.recv_timeout(Duration::from_secs(30)).unwrap();
        let Reply::Failed { failure, .. } = reply else { panic!("{reply:?}") };
        // A connection of the test's own ends a server that nobody has asked.
        let _refused = std::net::TcpStream::connect(("127.0.0.1", port)).map(drop);
        (failure, server.join().unwrap().is_some_and(|read| read > 0))
    }

    #[test]
    fn a_name_of_this_machine_is_not_connected_to_unless_the_user_gave_the_name() {
        for host in ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"] {
            let (failure, is_asked) = fetch_from(host, AddressRule::Remote);
            assert!(
                matches!(&failure, FetchFailure::Refused(why) if why.contains("this machine")),
                "{failure:?}"
            );
            assert!(!is_asked, "{host}");
        }
        for rule in [AddressRule::RemoteOrLoopback, AddressRule::Any] {
            let (failure, is_asked) = fetch_from("127.0.0.1", rule);
            assert!(matches!(&failure, FetchFailure::Refused(why) if why.contains("404")), "{failure:?}");
            assert!(is_asked);
        }
    }

    #[test]
    fn a_base_url_is_of_a_host_by_http() {
        let url = |text| Server::new(text, AddressRule::Remote).map(|server| server.url);
        assert_eq!(url("http://h/files").as_deref(), Some("http://h/files/"));
        assert_eq!(url("https://h:8443").as_deref(), Some("https://h:8443/"));
        for text in [
            "",
            "h",
            "/files",
            "file:///etc/",
            "ftp://h/",
            "http:///x",
            "http://a@h/",
            "http://h/?a=",
            "http://h /",
        ] {
            assert_eq!(url(text), None, "{text:?}");
        }
    }
}
