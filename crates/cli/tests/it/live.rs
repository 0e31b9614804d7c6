//! Live page, metrics and events of commands.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

use crate::command::{Running, group, headwater, receive, send};
use crate::repair::{free_address, last, wait_for_server};
use crate::transfer::noise;

/// Head and body of the answer to a request, with a `Host`.
fn ask(address: &str, request: &str, host: &str) -> (u16, String, String) {
    let text = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    // An answer that comes before the whole request may end by a reset.
    stream.read_to_string(&mut answer).ok();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head.to_ascii_lowercase(), body.to_owned())
}

/// Reads the stream of events until a text comes.
fn events_up_to(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let (mut seen, began) = (String::new(), Instant::now());
    let mut piece = [0; 4_096];
    while !seen.contains(text) {
        assert!(began.elapsed() < Duration::from_secs(40), "no {text} in {seen}");
        if let Ok(bytes) = stream.read(&mut piece) {
            assert_ne!(bytes, 0, "the stream ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..bytes]));
        }
    }
    seen
}

#[test]
fn a_page_answers_this_machine_and_this_host_alone() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let receiver = receive(&group(), folder.path(), &["--http", &address]);
    wait_for_server(&address);
    let (status, head, body) = ask(&address, "GET /", &address);
    assert_eq!(status, 200, "{head}");
    assert!(body.contains("<title>Headwater</title>"));
    for field in [
        "content-security-policy: default-src 'none';",
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
    ] {
        assert!(head.contains(field), "{field} in {head}");
    }
    let port = address.rsplit_once(':').unwrap().1;
    for (request, host, expected) in [
        ("GET /view.js", &*address, 200),
        ("HEAD /", &address, 200),
        ("GET /metrics", &format!("localhost:{port}"), 200),
        ("GET /", "evil.example", 421),
        ("GET /metrics", &format!("evil.example:{port}"), 421),
        ("GET /events", "127.0.0.1.evil.example", 421),
        ("GET http://evil.example/", &address, 421),
        ("GET /", "a\r\nHost: b", 421),
        ("POST /", &address, 405),
        ("DELETE /metrics", &address, 405),
        ("OPTIONS /events", &address, 405),
        ("GET /other", &address, 404),
        ("GET /../etc/passwd", &address, 404),
        ("GET /files/a", &address, 404),
        ("GET /session.sdp", &address, 404),
    ] {
        let (status, head, _) = ask(&address, request, host);
        assert_eq!(status, expected, "{request} at {host:?}: {head}");
        assert!(!head.contains("access-control-allow"), "{head}");
    }
    // 20 kB in a field are more than a head has.
    let (status, ..) = ask(&address, "GET /", &format!("{address}\r\nX: {}", "x".repeat(20_000)));
    assert!(matches!(status, 0 | 400 | 431), "{status}");
    let (status, ..) = ask(&address, &format!("GET /{}", "x".repeat(100_000)), &address);
    assert!(matches!(status, 0 | 400 | 414 | 431), "{status}");
    receiver.interrupt();
    assert_eq!(receiver.end().code, Some(130));
}

#[test]
fn metrics_and_events_follow_a_transfer_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it's &lt;b&gt; é.bin");
    fs::write(&file, noise(300_000)).unwrap();
    let (group, page, sender_page) = (group(), free_address(), free_address());
    let out = folder.path().join("out");
    let receiver = receive(&group, &out, &["--http", &page]);
    wait_for_server(&page);
    let (_, _, before) = ask(&page, "GET /metrics", &page);
    assert!(before.contains(&format!("headwater_rate_bits{{session=\"{group}\"}} 0")), "{before}");
    let sender = send(&group, &file, &["--rate", "1M", "--no-roster", "--http", &sender_page]);
    let scraping = thread::spawn({
        let page = page.clone();
        move || {
            let mut last = String::new();
            // The receiver goes on after the end until a scrape has its last counters.
            while TcpStream::connect(&page).is_ok() {
                let (status, _, body) = ask(&page, "GET /metrics", &page);
                if status == 200 {
                    last = body;
                }
                thread::sleep(Duration::from_millis(200));
            }
            last
        }
    });
    let seen = events_up_to(&page, "\"state\":\"complete");
    let data: Vec<Value> = seen
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    assert!(data[0]["state"].is_object() && data.iter().skip(1).all(|sample| sample["at"].is_u64()));
    assert!(seen.contains("it's &lt;b&gt; é.bin"), "the name of the file: {seen}");
    let received = receiver.end();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    let events = received.json();
    let bytes = &last(&events, "session:ended")["bytes_by_path"]["multicast"];
    let scraped = scraping.join().unwrap();
    let line = format!("headwater_received_bytes_total{{session=\"{group}\",path=\"multicast\"}} {bytes}");
    assert!(scraped.lines().any(|other| other == line), "{line} in {scraped}");
    let (_, _, sent) = ask(&sender_page, "GET /metrics", &sender_page);
    assert!(sent.contains("headwater_sent_packets_total{session="), "{sent}");
    sender.interrupt();
    sender.end();
}

#[test]
fn a_page_shows_the_ends_of_other_pages() {
    let folder = tempfile::tempdir().unwrap();
    let pages = [free_address(), free_address()];
    let receivers: Vec<_> =
        pages.iter().map(|page| receive(&group(), &folder.path().join(page), &["--http", page])).collect();
    pages.iter().for_each(|page| wait_for_server(page));
    let address = free_address();
    let of = [format!("one={}", pages[0]), format!("http://{}/", pages[1]), "gone=127.0.0.1:9".to_owned()];
    let mut command = headwater();
    command.args(["view", "--http", &address, "--of"]).args(&of);
    let view = Running::start(&mut command);
    wait_for_server(&address);
    for text in ["\"one\":{", &format!("\"{}\":{{", pages[1]), "\"unreachable\"", "\"waiting\""] {
        events_up_to(&address, text);
    }
    for receiver in receivers {
        receiver.interrupt();
        receiver.end();
    }
    events_up_to(&address, "\"state\":\"gone\"");
    view.interrupt();
    assert_eq!(view.end().code, Some(0));
}

#[test]
fn a_daemon_shows_its_services_on_one_page() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("images")).unwrap();
    fs::write(folder.path().join("images/a"), noise(100_000)).unwrap();
    let (address, configuration) = (free_address(), folder.path().join("serve.toml"));
    let (group, path) = (group(), folder.path().join("images"));
    let text = format!(
        "http = \"{address}\"\n[[carousel]]\nname = \"images\"\npath = \"{}\"\ngroup = \"{group}\"\ninterface = \"lo\"\nno-sandbox = true\n\
         [[receive]]\nname = \"copies\"\nout = \"{}\"\ngroup = \"{group}\"\ninterface = \"lo\"\n",
        path.display(),
        folder.path().join("out").display()
    );
    fs::write(&configuration, text).unwrap();
    let mut command = headwater();
    command.arg("serve").arg("--config").arg(&configuration);
    let daemon = Running::start(&mut command);
    wait_for_server(&address);
    for text in ["\"images\":{", "\"copies\":{", "\"sending\"", "\"m2c\""] {
        events_up_to(&address, text);
    }
    let (_, _, metrics) = ask(&address, "GET /metrics", &address);
    assert!(metrics.contains("headwater_sent_packets_total{session=\"images\"}"), "{metrics}");
    daemon.signal("-TERM");
    assert_eq!(daemon.end().code, Some(0));
}

/// Status of an answer to a request for an address by its own name.
fn status(address: &str, request: &str) -> u16 {
    ask(address, request, address).0
}

#[test]
fn an_address_of_the_page_has_no_files_and_files_of_this_machine_are_for_no_name_of_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.txt");
    fs::write(&file, "content").unwrap();
    let (files, at) = (free_address(), free_address());
    let page = at.replace("127.0.0.1", "127.0.0.2");
    let options = ["--rate", "1M", "--no-roster", "--http", &files, "--http-view", &page];
    let sender = send(&group(), &file, &options);
    wait_for_server(&files);
    let until = Instant::now() + Duration::from_secs(20);
    while status(&files, "GET /files/a.txt") != 200 {
        assert!(Instant::now() < until, "no file is served");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status(&page, "GET /metrics"), 200);
    for path in ["/files/a.txt", "/session.sdp", "/session.fdt"] {
        assert_eq!(status(&page, &format!("GET {path}")), 404, "{path} at the address of the page");
        let (status, ..) = ask(&files, &format!("GET {path}"), "evil.example");
        assert_eq!(status, 421, "{path} by a stranger's name");
    }
    sender.interrupt();
    sender.end();
    // The page at all addresses, on the port of files at one.
    let files = free_address();
    let options = ["--rate", "1M", "--no-roster", "--http", &files, "--http-view", "0.0.0.0"];
    let sender = send(&group(), &file, &options);
    wait_for_server(&files);
    let other = files.replace("127.0.0.1", "127.0.0.2");
    let statuses = ["/metrics", "/files/a.txt"].map(|path| status(&other, &format!("GET {path}")));
    assert_eq!(statuses, [200, 404]);
    sender.interrupt();
    sender.end();
}

#[test]
fn a_receiver_that_serves_and_shows_a_page_serves_other_machines() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let receiver = receive(&group(), folder.path(), &["--serve-repair", "--http", &address]);
    wait_for_server(&address);
    // 127.0.0.2 stands for another address of this machine.
    let other = address.replace("127.0.0.1", "127.0.0.2");
    assert_eq!(status(&other, "GET /files/none"), 404);
    receiver.interrupt();
    receiver.end();
}
