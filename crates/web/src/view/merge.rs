//! Pages of other processes on one page: follows their streams of events.
//!
//! A stream is a stranger's: lines are bounded, each end is read into a sample of bounded size, and ends and
//! rows are bounded in number.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::LiveView;
use super::board::{INTERVAL, Messages};
use super::feed::{UNNAMED, ViewSender};
use super::sample::{ENDS_MAX, EndSample, ROWS_MAX, RowSample, apply};

/// Maximum number of pages on one page.
pub const REMOTES_MAX: usize = 1_024;
/// Longest name of an end or key of a row that another page may send, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Time to connect, and to the head of the response.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Time between two messages: a quiet server sends a comment each 15 s.
const QUIET_TIME: Duration = Duration::from_secs(40);
/// Wait before the next attempt.
const RETRY_TIME: Duration = Duration::from_secs(2);
/// Bytes that are read from a pipe at once.
const PIECE_BYTES: usize = 64 << 10;
/// Longest line of a stream, in bytes.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Page of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePage {
    /// Name of its ends here.
    pub name: String,
    /// Host: a name or an address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl LiveView {
    /// Shows the ends of other pages.
    #[must_use]
    pub fn with_remotes(self, remotes: Vec<RemotePage>) -> Self {
        *super::lock(&self.0.remotes) = remotes;
        self
    }

    /// Starts to follow the other pages.
    pub(crate) fn follow_remotes(&self) {
        for remote in std::mem::take(&mut *super::lock(&self.0.remotes)) {
            tokio::spawn(follow(remote, self.sender()));
        }
    }
}

/// Follows a page for ever.
async fn follow(remote: RemotePage, sender: ViewSender) {
    let mut is_told = false;
    loop {
        let mut ends = RemoteEnds { page: remote.name.clone(), ..RemoteEnds::default() };
        let result = read(&remote, &mut ends, &sender).await;
        if let Err(error) = result.as_ref().map_err(ToString::to_string)
            && !std::mem::replace(&mut is_told, true)
        {
            let RemotePage { host, port, .. } = &remote;
            tracing::warn!("the page of {host}:{port} cannot be read: {error}; trying on");
        }
        if ends.known.is_empty() {
            let state = "unreachable".to_owned();
            sender.end(&remote.name, EndSample { state, ..EndSample::default() });
        } else {
            is_told = false;
            ends.known.keys().for_each(|end| sender.gone(&ends.name(end)));
        }
        sleep(RETRY_TIME).await;
    }
}

/// Reads the stream of a page until the stream ends.
async fn read(remote: &RemotePage, ends: &mut RemoteEnds, sender: &ViewSender) -> io::Result<()> {
    let stream = timeout(CONNECT_TIME, TcpStream::connect((&*remote.host, remote.port))).await??;
    // A page answers requests for its address alone, not for names.
    let host = stream.peer_addr()?.to_string();
    let (mut requests, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = hyper::Request::get("/events").header("host", host).body(Body::empty());
    let request = request.map_err(io::Error::other)?;
    let response = timeout(CONNECT_TIME, requests.send_request(request)).await?.map_err(io::Error::other)?;
    if !response.status().is_success() {
        return Err(io::Error::other(format!("the answer is {}", response.status())));
    }
    let mut body = response.into_body();
    let mut lines = Lines::default();
    while let Some(frame) = timeout(QUIET_TIME, body.frame()).await? {
        let frame = frame.map_err(io::Error::other)?;
        if let Some(data) = frame.data_ref() {
            lines.push(data, |line| ends.on_line(line, sender))?;
        }
    }
    connection.abort();
    Ok(())
}

/// Lines of a stream.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Adds data, and passes whole lines on.
    fn push(&mut self, data: &[u8], mut on_line: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            if self.0.len() + part.len() > LINE_BYTES_MAX {
                return Err(io::Error::other("a line is too long"));
            }
            self.0.extend_from_slice(part);
            if self.0.last() == Some(&b'\n') {
                self.0.pop();
                on_line(&self.0)?;
                self.0.clear();
            }
        }
        Ok(())
    }
}

/// Ends of another page.
#[derive(Debug, Default)]
struct RemoteEnds {
    page: String,
    known: BTreeMap<String, EndSample>,
    rows: BTreeMap<String, RowSample>,
}

impl RemoteEnds {
    /// Name of an end here.
    fn name(&self, end: &str) -> String {
        if end == UNNAMED { self.page.clone() } else { format!("{}/{end}", self.page) }
    }

    fn on_line(&mut self, line: &[u8], sender: &ViewSender) -> io::Result<()> {
        let Some(data) = line.strip_prefix(b"data:") else { return Ok(()) };
        let mut data: Map<String, Value> = serde_json::from_slice(data)?;
        if let Some(Value::Object(state)) = data.remove("state") {
            data = state;
        }
        let mut members = |kind: &str| match data.remove(kind) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        };
        let (ends, rows) = (members("ends"), members("rows"));
        for (name, change) in ends {
            let Value::Object(change) = change else { continue };
            let is_new = !self.known.contains_key(&name);
            if name.len() > NAME_BYTES_MAX || is_new && self.known.len() >= ENDS_MAX {
                continue;
            }
            let end = self.known.entry(name.clone()).or_default();
            update(end, change)?;
            end.bound();
            let end = end.clone();
            sender.end(&self.name(&name), end);
        }
        for (key, change) in rows {
            let Value::Object(change) = change else { continue };
            let is_new = !self.rows.contains_key(&key);
            if key.len() > NAME_BYTES_MAX || is_new && self.rows.len() >= ROWS_MAX {
                continue;
            }
            let row = self.rows.entry(key.clone()).or_default();
            update(row, change)?;
            row.bound();
            sender.row(&format!("{}/{key}", self.page), row.clone());
        }
        Ok(())
    }
}

/// Reads the samples that another process writes to a pipe ([`LiveView::write_samples`]).
#[derive(Debug)]
pub struct PageReader {
    ends: RemoteEnds,
    sender: ViewSender,
}

impl PageReader {
    /// Creates a reader for a process whose ends have this name here.
    pub fn new(name: &str, sender: ViewSender) -> Self {
        Self { ends: RemoteEnds { page: name.to_owned(), ..RemoteEnds::default() }, sender }
    }

    /// Reads to the end of the pipe. The ends are gone then.
    ///
    /// # Errors
    /// If the pipe cannot be read, or has something other than samples.
    pub fn read(mut self, mut pipe: impl Read) -> io::Result<()> {
        let mut lines = Lines::default();
        let mut piece = vec![0; PIECE_BYTES];
        let result = loop {
            match pipe.read(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(bytes) => {
                    let on_line = |line: &[u8]| self.ends.on_line(line, &self.sender);
                    if let Err(error) = lines.push(&piece[..bytes], on_line) {
                        break Err(error);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.ends.known.keys().for_each(|end| self.sender.gone(&self.ends.name(end)));
        result
    }
}

impl LiveView {
    /// Writes samples to a pipe on a new thread, until the reader is gone.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn write_samples(&self, mut pipe: impl Write + Send + 'static) -> io::Result<()> {
        let view = self.clone();
        let write = move || {
            let mut next = None;
            loop {
                let messages = {
                    let mut board = super::lock(&view.0.board);
                    board.sample();
                    board.messages(next)
                };
                if let Messages::New(messages, count) = messages {
                    next = Some(count);
                    let written = messages.iter().try_for_each(|message| pipe.write_all(message));
                    if written.and_then(|()| pipe.flush()).is_err() {
                        return;
                    }
                }
                thread::sleep(INTERVAL);
            }
        };
        thread::Builder::new().name("samples".into()).spawn(write).map(drop)
    }
}

/// Changes members of a sample.
fn update<T: Serialize + DeserializeOwned>(sample: &mut T, changes: Map<String, Value>) -> io::Result<()> {
    if let Value::Object(mut state) = serde_json::to_value(&*sample)? {
        apply(&mut state, changes, 0);
        *sample = serde_json::from_value(Value::Object(state))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::feed::Change;
    use super::*;

    fn lines(ends: &mut RemoteEnds, text: &str) -> (io::Result<()>, Vec<Change>) {
        let (sender, changes) = ViewSender::new();
        let result = Lines::default().push(text.as_bytes(), |line| ends.on_line(line, &sender));
        (result, changes.try_iter().collect())
    }

    #[test]
    fn changes_of_a_page_become_samples_here() {
        let mut ends = RemoteEnds { page: "a".into(), ..RemoteEnds::default() };
        let state = "retry: 1000\nevent: state\ndata: {\"state\":{\"ends\":{\"end\":{\"role\":\"receiver\",\"rate\":7,\"rtt\":2}}}}\n\n";
        let (result, changes) = lines(&mut ends, state);
        assert!(result.is_ok() && changes.len() == 1, "{result:?} {changes:?}");
        let delta =
            "id: 5\ndata: {\"at\":9,\"ends\":{\"end\":{\"rate\":8,\"rtt\":null},\"b\":{\"rate\":1}}}\n\n";
        let (result, changes) = lines(&mut ends, delta);
        assert!(result.is_ok());
        let mut seen = BTreeMap::new();
        for change in changes {
            let Change::End(name, end) = change else { panic!("{change:?}") };
            seen.insert(name, *end);
        }
        assert_eq!((seen["a"].rate, seen["a"].rtt, seen["a"].role.as_str()), (8, None, "receiver"));
        assert_eq!(seen["a/b"].rate, 1);
    }

    #[test]
    fn samples_pass_through_a_pipe() {
        let (here, child) = (LiveView::new(), LiveView::new());
        let (reader, writer) = io::pipe().unwrap();
        child.write_samples(writer).unwrap();
        let sender = here.sender();
        let reading = thread::spawn(move || PageReader::new("images", sender).read(reader));
        child.sender().end(UNNAMED, EndSample { role: "sender".into(), bytes: 7, ..EndSample::default() });
        let bytes = || super::super::lock(&here.0.board).ends.get("images").map(|end| end.bytes);
        while bytes() != Some(7) {
            super::super::lock(&here.0.board).take_changes();
            thread::yield_now();
        }
        assert!(!reading.is_finished());
    }

    #[test]
    fn streams_of_strangers_are_bounded() {
        let mut ends = RemoteEnds { page: "a".into(), ..RemoteEnds::default() };
        for number in 0..5_000 {
            let junk = "x".repeat(500);
            let text = format!(
                "data: {{\"ends\":{{\"e{number}\":{{\"junk\":\"{junk}\",\"role\":\"{junk}\"}}}},\"rows\":{{\"{number}\":{{}}}}}}\n"
            );
            assert!(lines(&mut ends, &text).0.is_ok());
        }
        assert_eq!((ends.known.len(), ends.rows.len()), (ENDS_MAX, ROWS_MAX));
        assert!(ends.known.values().all(|end| end.role.len() <= 128));
        for text in
            ["data: [1]\n", "data: {\"ends\":{\"e1\":{\"rate\":\"x\"}}}\n", "data: {\n", "data: \u{7f}\n"]
        {
            assert!(lines(&mut ends, text).0.is_err(), "{text:?}");
        }
        assert!(lines(&mut ends, "data: {\"ends\":7,\"rows\":[]}\n: comment\nevent: other\n").0.is_ok());
        let endless = "x".repeat(LINE_BYTES_MAX + 1);
        assert!(lines(&mut ends, &endless).0.is_err());
        // Deep nesting is an error, not a full stack.
        let deep = format!("data: {{\"ends\":{}\n", "[".repeat(100_000));
        assert!(lines(&mut ends, &deep).0.is_err());
    }
}
