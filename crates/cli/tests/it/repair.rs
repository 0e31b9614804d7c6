//! Repair by HTTP after a session.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::command::{self, Run, Running, group, receive, run};
use crate::transfer::noise;

/// Bytes of a symbol of a signed session.
const SYMBOL: u64 = 1_344;

fn send(group: &str, file: &Path, more: &[&str]) -> Running {
    command::send(group, file, &[&["--repair-random-time", "0s"], more].concat())
}

/// A port that nobody listens on now.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub fn wait_for_server(address: &str) {
    for _ in 0..200 {
        if TcpStream::connect(address).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("nobody listens on {address}");
}

pub fn last<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events.iter().rfind(|event| event["event"] == name).unwrap_or_else(|| panic!("no {name} in {events:?}"))
}

/// Bytes that came by HTTP, and bytes of symbols that were missing when the repair was scheduled.
fn repaired_and_missing(run: &Run) -> (u64, u64) {
    let events = run.json();
    let scheduled = events.iter().position(|event| event["event"] == "repair:scheduled");
    let before = &events[..scheduled.unwrap_or_else(|| panic!("no repair in {events:?}"))];
    let missing = last(before, "session:progress")["missing"].as_u64().unwrap() * SYMBOL;
    (last(&events, "session:ended")["bytes_by_path"]["http"].as_u64().unwrap(), missing)
}

/// Answer of a test's server to each request.
#[derive(Clone, Copy)]
enum Conduct {
    /// Zeros instead of the range.
    WrongBytes,
    /// Zeros in a whole file.
    WrongFile,
    /// Another server.
    Redirect(SocketAddr),
    /// A head and content without end.
    Endless,
    /// A head without end.
    EndlessHead,
    /// Half of the content.
    Short,
    /// The range that was not asked for.
    OtherRange,
    /// Nothing.
    Silent,
}

/// Serves until the test ends. Returns the address and the number of requests.
fn hostile(conduct: Conduct, length: u64) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let counter = Arc::clone(&counter);
            thread::spawn(move || answer(stream.unwrap(), conduct, length, &counter));
        }
    });
    (address, count)
}

fn answer(mut stream: TcpStream, conduct: Conduct, length: u64, count: &AtomicUsize) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let mut range = None;
        loop {
            let line = lines.next()?.ok()?.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("range: bytes=") {
                let (first, last) = value.split_once('-')?;
                range = Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?));
            }
            if line.is_empty() {
                break;
            }
        }
        count.fetch_add(1, Ordering::SeqCst);
        let (first, last) = range?;
        let bytes = last + 1 - first;
        let partial = |first: u64, last: u64, bytes: u64| {
            format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{length}\r\nContent-Length: {bytes}\r\n\r\n"
            )
        };
        let (head, content) = match conduct {
            Conduct::WrongBytes => (partial(first, last, bytes), bytes),
            Conduct::WrongFile => (format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"), length),
            Conduct::Redirect(to) => {
                (format!("HTTP/1.1 302 Found\r\nLocation: http://{to}/x\r\nContent-Length: 0\r\n\r\n"), 0)
            }
            Conduct::Endless => {
                let head = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n";
                let head = format!("{head}Content-Range: bytes {first}-{last}/{length}\r\n\r\n");
                stream.write_all(head.as_bytes()).ok()?;
                let chunk = [b"1000\r\n".to_vec(), vec![0; 0x1000], b"\r\n".to_vec()].concat();
                loop {
                    stream.write_all(&chunk).ok()?;
                }
            }
            Conduct::EndlessHead => loop {
                stream.write_all(b"HTTP/1.1 206 Partial Content\r\nX-Field: value\r\n").ok()?;
            },
            Conduct::Short => {
                stream.write_all(partial(first, last, bytes).as_bytes()).ok()?;
                return stream.write_all(&vec![0; usize::try_from(bytes / 2).ok()?]).ok();
            }
            Conduct::OtherRange => (partial(0, bytes - 1, bytes), bytes),
            Conduct::Silent => {
                thread::sleep(Duration::from_secs(300));
                return None;
            }
        };
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&vec![0; usize::try_from(content).ok()?]).ok()?;
    }
}

#[test]
fn receivers_of_a_killed_session_are_made_whole_by_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a file"), noise(1_500_000)).unwrap();
    let (group, address) = (group(), free_address());
    // A server of its own: the sender dies.
    let server = send(
        &command::group(),
        &path("a file"),
        &["--rate", "100k", "--duration", "60s", "--http", &address],
    );
    wait_for_server(&address);
    let receivers = ["one", "two"].map(|name| receive(&group, &path(name), &["--timeout", "2s"]));
    let url = format!("http://{address}/files");
    let mut sending = send(&group, &path("a file"), &["--rate", "6M", "--repair-url", &url]);
    sending.wait_for("session:progress");
    // One pass takes 2 s.
    sending.kill_after(Duration::from_millis(1_600));
    for (receiver, name) in receivers.into_iter().zip(["one", "two"]) {
        let received = receiver.end();
        assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
        assert_eq!(fs::read(path(name).join("a file")).unwrap(), noise(1_500_000));
        let (repaired, missing) = repaired_and_missing(&received);
        assert!(repaired * 10 <= missing * 11, "{repaired} bytes for {missing}");
        assert!(repaired + SYMBOL >= missing && missing > 0, "{repaired} bytes for {missing}");
        let events = received.json();
        let ended = last(&events, "session:ended");
        let counters = ["useful", "duplicates", "surplus", "fdt_packets", "signalling", "pending", "dropped"];
        let sum: u64 = counters.iter().map(|name| ended[*name].as_u64().unwrap()).sum();
        assert_eq!(ended["packets"], sum, "repair is in no counter of packets: {ended}");
    }
    server.interrupt();
    server.end();
}

#[test]
fn a_sender_serves_after_its_last_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(400_000)).unwrap();
    let group = group();
    let receiving = receive(&group, &path("out"), &["--drop", "0.2", "--timeout", "20s"]);
    let sending = send(&group, &path("file"), &["--rate", "20M", "--passes", "1", "--http", "127.0.0.1:0"]);
    let received = receiving.end();
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    assert_eq!(fs::read(path("out/file")).unwrap(), noise(400_000));
    assert!(received.stderr.contains(" by HTTP"), "{}", received.stderr);
    sending.interrupt();
    let sent = sending.end();
    assert!(sent.stderr.contains("serving missing parts"), "{}", sent.stderr);
}

/// Receives a session that ends with a fifth of its file missing; only a server has the rest.
fn receive_from(folder: &Path, server: &str, options: &[&str], more: &[&str]) -> Run {
    fs::write(folder.join("file"), noise(400_000)).unwrap();
    let group = group();
    let receiving =
        receive(&group, &folder.join("out"), &[&["--drop", "0.2", "--timeout", "20s"], more].concat());
    let sending = ["--rate", "20M", "--passes", "1", "--repair-url", server];
    let sent = send(&group, &folder.join("file"), &[&sending, options].concat()).end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    receiving.end()
}

fn assert_incomplete(folder: &Path, received: &Run) {
    assert_eq!(received.code, Some(5), "{}{}", received.stdout, received.stderr);
    assert!(!folder.join("out/file").exists(), "nothing wrong has the final name");
}

#[test]
fn a_hostile_server_leaves_a_file_incomplete() {
    let (elsewhere, visits) = hostile(Conduct::WrongBytes, 400_000);
    let conducts = [
        (Conduct::WrongBytes, "does not match the sender's digests"),
        (Conduct::Endless, "longer than announced"),
        (Conduct::OtherRange, "another range"),
        (Conduct::Redirect(elsewhere), "redirects are not followed"),
        (Conduct::EndlessHead, "missing parts cannot be fetched by HTTP"),
        (Conduct::Short, "missing parts cannot be fetched by HTTP"),
    ];
    for (conduct, told) in conducts {
        let folder = tempfile::tempdir().unwrap();
        let (address, _) = hostile(conduct, 400_000);
        let received = receive_from(folder.path(), &format!("http://{address}/"), &[], &[]);
        assert_incomplete(folder.path(), &received);
        assert!(received.stderr.contains(told), "no '{told}' in {}", received.stderr);
    }
    assert_eq!(visits.load(Ordering::SeqCst), 0, "the target of a redirect is not asked");
}

/// Sends a file slowly, and kills the sender when a tenth has been sent.
fn send_a_tenth(group: &str, file: &Path, more: &[&str]) {
    let mut sending = send(group, file, &[&["--rate", "400k"], more].concat());
    sending.wait_for("session:progress");
    sending.kill_after(Duration::from_millis(800));
    sending.end();
}

#[test]
fn multicast_that_resumes_makes_up_for_a_hostile_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(400_000)).unwrap();
    let (group, (address, requests)) = (group(), hostile(Conduct::WrongFile, 400_000));
    let (url, key) = (format!("http://{address}/"), path("key"));
    let key = key.to_str().unwrap();
    let made = run(&["keygen", key]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let receiving = receive(&group, &path("out"), &["--repair-url", &url, "--timeout", "2s"]);
    send_a_tenth(&group, &path("file"), &["--sign", key]);
    let received = receiving.end();
    assert_incomplete(folder.path(), &received);
    assert!(requests.load(Ordering::SeqCst) > 0);
    assert!(received.stderr.contains("does not match"), "{}", received.stderr);
    // Another session completes the file.
    let again = receive(&group, &path("out"), &["--repair", "never", "--timeout", "20s"]);
    let sending = send(&group, &path("file"), &["--rate", "20M", "--sign", key]);
    let received = again.end();
    sending.interrupt();
    sending.end();
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    assert_eq!(fs::read(path("out/file")).unwrap(), noise(400_000));
}

#[test]
fn a_silent_server_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (address, requests) = hostile(Conduct::Silent, 400_000);
    let began = std::time::Instant::now();
    let (url, group) = (format!("http://{address}/"), group());
    fs::write(folder.path().join("file"), noise(400_000)).unwrap();
    let receiving = receive(&group, &folder.path().join("out"), &["--drop", "0.2"]);
    let sending = ["--rate", "20M", "--passes", "1", "--repair-url", &url];
    let sent = send(&group, &folder.path().join("file"), &sending).end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    // An interruption does not wait for the server.
    while requests.load(Ordering::SeqCst) == 0 && began.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(50));
    }
    let asked = std::time::Instant::now();
    receiving.interrupt();
    let received = receiving.end();
    assert_eq!(received.code, Some(130), "{}", received.stderr);
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
}

#[test]
fn an_unsigned_session_names_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let (address, requests) = hostile(Conduct::WrongBytes, 400_000);
    let url = format!("http://{address}/");
    let received = receive_from(folder.path(), &url, &["--no-sign"], &[]);
    assert_incomplete(folder.path(), &received);
    assert_eq!(requests.load(Ordering::SeqCst), 0);
    let folder = tempfile::tempdir().unwrap();
    let received = receive_from(folder.path(), &url, &[], &["--repair", "never"]);
    assert_incomplete(folder.path(), &received);
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}

#[test]
fn a_file_that_changed_stays_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(400_000)).unwrap();
    let (group, address) = (group(), free_address());
    let mut receiving = receive(&group, &path("out"), &["--drop", "0.2", "--timeout", "20s"]);
    let options = ["--rate", "20M", "--passes", "1", "--http", &address, "--repair-offset-time", "2s"];
    let sending = send(&group, &path("file"), &options);
    receiving.wait_for("repair:scheduled");
    let etag = get(&address, "HEAD", "/files/file", &[]).field("etag");
    fs::write(path("file"), vec![1; 400_000]).unwrap();
    let received = receiving.end();
    assert_incomplete(folder.path(), &received);
    assert!(received.stderr.contains("(status 412)"), "{}", received.stderr);
    assert_eq!(get(&address, "GET", "/files/file", &[]).status, 404);
    assert_eq!(get(&address, "GET", "/files/file", &[("If-Match", &etag)]).status, 412);
    sending.interrupt();
    sending.end();
}

/// `python3 -m http.server`, which has no ranges.
struct Python(Child);

impl Drop for Python {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn python(folder: &Path) -> (Python, String) {
    let address = free_address();
    let port = address.rsplit_once(':').unwrap().1;
    let child = Command::new("python3")
        .args(["-m", "http.server", "--bind", "127.0.0.1", port])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_server(&address);
    (Python(child), format!("http://{address}/"))
}

#[test]
fn a_server_without_ranges_sends_the_whole_file_if_most_of_it_misses() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (_server, url) = python(folder.path());
    fs::write(path("file"), noise(400_000)).unwrap();
    let group = group();
    let receiving = receive(&group, &path("out"), &["--timeout", "2s", "--repair-url", &url]);
    // The receiver's own server may be asked whether the session is signed or not.
    send_a_tenth(&group, &path("file"), &["--no-sign"]);
    let received = receiving.end();
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    assert_eq!(fs::read(path("out/file")).unwrap(), noise(400_000));

    let less = tempfile::tempdir().unwrap();
    let received = receive_from(less.path(), &url, &[], &[]);
    assert_incomplete(less.path(), &received);
    assert!(received.stderr.contains("has no ranges"), "{}", received.stderr);
}

pub struct Response {
    pub status: u16,
    pub head: String,
    pub content: Vec<u8>,
}

impl Response {
    pub fn field(&self, name: &str) -> String {
        let prefix = format!("{name}: ");
        let value = self.head.lines().find_map(|line| line.strip_prefix(&prefix));
        value.unwrap_or_else(|| panic!("no {name} in {}", self.head)).to_owned()
    }
}

pub fn get(address: &str, method: &str, path: &str, fields: &[(&str, &str)]) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    fields.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..split].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head, content: bytes[split + 4..].to_vec() }
}

#[test]
fn the_server_answers_for_files_of_the_session_alone() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a b.bin"), noise(100_000)).unwrap();
    fs::write(files.join("empty"), "").unwrap();
    fs::write(folder.path().join("secret"), "secret").unwrap();
    let address = free_address();
    let sending = send(&group(), &files, &["--rate", "100k", "--duration", "60s", "--http", &address]);
    wait_for_server(&address);
    thread::sleep(Duration::from_secs(1));
    let name = "/files/files/a%20b.bin";
    let whole = get(&address, "GET", name, &[]);
    assert_eq!((whole.status, &whole.content), (200, &noise(100_000)));
    let etag = whole.field("etag");
    assert_eq!(etag.len(), 66, "{etag}");
    let part = get(&address, "GET", name, &[("Range", "bytes=99990-200000"), ("If-Match", &etag)]);
    assert_eq!((part.status, part.content.as_slice()), (206, &noise(100_000)[99_990..]));
    assert_eq!(part.field("content-range"), "bytes 99990-99999/100000");
    let head = get(&address, "HEAD", name, &[("Range", "bytes=0-1")]);
    assert_eq!((head.status, head.content.len()), (200, 0));
    assert_eq!(head.field("content-length"), "100000");
    let statuses = [
        ("GET", name, vec![("Range", "bytes=100000-")], 416),
        ("GET", name, vec![("If-None-Match", etag.as_str())], 304),
        ("GET", name, vec![("If-Match", "\"other\"")], 412),
        ("GET", name, vec![("Range", "bytes=0-1"), ("If-Range", "\"other\"")], 200),
        ("GET", name, vec![("Range", "bytes=0-1,4-5")], 200),
        ("GET", "/files/files/empty", vec![], 200),
        ("POST", name, vec![], 405),
        ("GET", "/files/../secret", vec![], 404),
        ("GET", "/files/files/../../secret", vec![], 404),
        ("GET", "/files/files/..%2f..%2fsecret", vec![], 404),
        ("GET", "/files/%2e%2e/secret", vec![], 404),
        ("GET", "/files/files/%2e/a%20b.bin", vec![], 404),
        ("GET", "/files/files/./a%20b.bin", vec![], 404),
        ("GET", "/files/files//a%20b.bin", vec![], 404),
        ("GET", "/files/files/a%20b.bin%00", vec![], 404),
        ("GET", "/files/files/a%20b%2ebin", vec![], 404),
        ("GET", "/files/files", vec![], 404),
        ("GET", "/files/", vec![], 404),
        ("GET", "/", vec![], 200),
        ("GET", "/other", vec![], 404),
    ];
    for (method, path, fields, status) in statuses {
        assert_eq!(get(&address, method, path, &fields).status, status, "{method} {path} {fields:?}");
    }
    // Connections without a request take places; one more is turned away.
    let idle: Vec<_> = (0..128).map(|_| TcpStream::connect(&address).unwrap()).collect();
    thread::sleep(Duration::from_millis(300));
    let full = get(&address, "GET", name, &[]);
    assert_eq!(full.status, 503);
    assert!((1..=8).contains(&full.field("retry-after").parse().unwrap()), "{}", full.head);
    drop(idle);
    sending.interrupt();
    sending.end();
}

#[test]
fn encrypted_content_has_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let (key, file) = (folder.path().join("key"), folder.path().join("file"));
    fs::write(&file, "content").unwrap();
    let made = run(&["keygen", "--group", key.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    for server in [["--http", "0.0.0.0:0"], ["--repair-url", "http://192.0.2.1/"]] {
        let options = [&["send", "--interface", "lo", "--group-key", key.to_str().unwrap()], &server[..]];
        let sent = run(&[&options.concat()[..], &[file.to_str().unwrap()]].concat());
        assert_eq!(sent.code, Some(2), "{}", sent.stderr);
        assert!(sent.stderr.contains("in the clear"), "{}", sent.stderr);
    }
}

#[test]
fn a_session_of_many_files_makes_no_flood_of_requests() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    (0..40).for_each(|number| fs::write(files.join(format!("{number}")), noise(20_000)).unwrap());
    let (elsewhere, _) = hostile(Conduct::WrongBytes, 1);
    let (address, requests) = hostile(Conduct::Redirect(elsewhere), 20_000);
    let (group, url) = (group(), format!("http://{address}/"));
    let receiving = receive(&group, &folder.path().join("out"), &["--drop", "0.3", "--timeout", "20s"]);
    let sent =
        send(&group, &files, &["--rate", "20M", "--passes", "1", "--bundle", "never", "--repair-url", &url])
            .end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let received = receiving.end();
    assert_eq!(received.code, Some(5), "{}", received.stderr);
    let requests = requests.load(Ordering::SeqCst);
    assert!((10..20).contains(&requests), "{requests} requests");
}

#[test]
fn a_whole_receiver_serves_others_once_the_sender_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // The FDT, a packet in a second of which half are lost, comes long before the content.
    fs::write(path("file"), noise(3_000_000)).unwrap();
    let group = group();
    let mut serving = receive(&group, &path("first"), &["--serve-repair=127.0.0.1:0", "--serve-time", "60s"]);
    let mut sending = send(&group, &path("file"), &["--rate", "4M"]);
    let served: Value = serde_json::from_str(serving.wait_for("repair:serving")).unwrap();
    let port = served["port"].as_u64().unwrap();
    let address = format!("127.0.0.1:{port}");
    assert_eq!(get(&address, "GET", "/files/file", &[]).status, 200);
    assert_eq!(get(&address, "GET", "/files/../first/file", &[]).status, 404);
    sending.wait_for("\"repair_port\"");
    thread::sleep(Duration::from_secs(3));
    let mut receiving = receive(&group, &path("second"), &["--drop", "0.5", "--timeout", "20s"]);
    receiving.wait_for("object:announced");
    sending.kill();
    sending.end();
    let received = receiving.end();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    assert_eq!(fs::read(path("second/file")).unwrap(), noise(3_000_000));
    let events = received.json();
    assert_eq!(last(&events, "repair:scheduled")["url"], format!("http://{address}/files/"));
    serving.interrupt();
    let served = serving.end();
    assert_eq!(served.code, Some(0), "{}", served.stderr);
    assert_eq!(last(&served.json(), "session:ended")["outcome"], "completed");
}

#[test]
fn a_receiver_that_serves_ends_by_itself_and_serves_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(50_000)).unwrap();
    let group = group();
    let serving = receive(&group, &path("out"), &["--serve-repair=127.0.0.1:0", "--serve-time", "2s"]);
    let sending = send(&group, &path("file"), &["--rate", "8M"]);
    let served = serving.end();
    assert_eq!(served.code, Some(0), "{}", served.stderr);
    assert!(served.stderr.contains("other receivers are served at port"), "{}", served.stderr);
    sending.interrupt();
    sending.end();
    for (options, why) in [
        (&["--serve-repair", "--group-key", "key"][..], "cannot be used with"),
        (&["--serve-repair", "--to", "pipe"], "cannot be used with"),
        (&["--serve-repair=192.0.2.1:80"], "below 1024"),
        (&["--serve-time", "1m"], "--serve-repair"),
    ] {
        let refused = run(&[&["receive", "--out", "out"], options].concat());
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}
