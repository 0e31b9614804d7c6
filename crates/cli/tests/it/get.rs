//! `headwater get`, and descriptions in files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::command::{Run, Running, group, headwater, run};
use crate::repair::{free_address, last, wait_for_server};
use crate::transfer::noise;

/// Documents of a server, by path.
type Documents = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Serves whole documents until the test ends.
fn serve() -> (SocketAddr, Documents) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, documents) = (listener.local_addr().unwrap(), Documents::default());
    let served = Arc::clone(&documents);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let served = Arc::clone(&served);
            thread::spawn(move || answer(stream.unwrap(), &served));
        }
    });
    (address, documents)
}

fn answer(mut stream: TcpStream, documents: &Documents) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
        while !lines.next()?.ok()?.is_empty() {}
        let found = documents.lock().unwrap().get(&path).cloned();
        let head = match &found {
            Some(content) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len()),
            None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&found.unwrap_or_default()).ok()?;
    }
}

/// Starts a sender on the loopback interface.
fn send(group: &str, file: &Path, more: &[&str]) -> Running {
    let mut command = headwater();
    command.args(["send", "--interface", "lo", "--json", "--no-roster", "--group", group]);
    Running::start(command.args(more).arg(file))
}

fn get(url: &str, out: &Path, more: &[&str]) -> Run {
    let mut command = headwater();
    command.args(["get", url, "--json", "--out"]).arg(out);
    Running::start(command.args(more)).end()
}

/// Sends once into nobody's ears, and returns the description and the FDT that were written.
fn described(folder: &Path, more: &[&str]) -> (String, String) {
    let (file, sdp) = (folder.join("file"), folder.join("session.sdp"));
    fs::write(&file, noise(200_000)).unwrap();
    let options = ["--rate", "8M", "--duration", "2s", "--sdp", sdp.to_str().unwrap()];
    let sent = send(&group(), &file, &[&options, more].concat()).end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    (fs::read_to_string(sdp).unwrap(), fs::read_to_string(folder.join("session.fdt")).unwrap())
}

fn assert_whole(received: &Run, file: &Path, length: u32) {
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    assert_eq!(fs::read(file).unwrap(), noise(length));
}

#[test]
fn multicast_is_taken_where_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(600_000)).unwrap();
    let address = free_address();
    let sending = send(&group(), &path("file"), &["--rate", "8M", "--http", &address]);
    wait_for_server(&address);
    let received = get(&format!("http://{address}"), &path("out"), &["--interface", "lo"]);
    assert_whole(&received, &path("out/file"), 600_000);
    let events = received.json();
    let bytes = &last(&events, "session:ended")["bytes_by_path"];
    assert!(bytes["multicast"].as_u64() > Some(600_000), "{bytes}");
    assert_eq!((bytes["http"].as_u64(), bytes["rainbow"].as_u64()), (Some(0), Some(0)));
    sending.interrupt();
    sending.end();
}

#[test]
fn a_source_on_request_takes_over_from_groups_without_packets() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(1_500_000)).unwrap();
    let address = free_address();
    let source = {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap().to_string()
    };
    let mut command = headwater();
    let control = ["--congestion-control", "rainbow", "--listen", &source, "--symbol-size", "1200"];
    let mut asked = Running::start(command.args(["send", "--json"]).args(control).arg(path("file")));
    asked.wait_for("session:started");
    // Receivers that name another interface hear nothing of the groups on the loopback interface.
    let options = ["--rate", "100k", "--http", &address, "--http-rate", "1M", "--symbol-size", "1200"];
    let sending = send(&group(), &path("file"), &[&options[..], &["--sdp-rainbow", &source]].concat());
    wait_for_server(&address);
    // Digests of all blocks.
    thread::sleep(Duration::from_secs(1));
    let received = get(&format!("http://{address}/session.sdp"), &path("out"), &["--timeout", "20s"]);
    assert_whole(&received, &path("out/file"), 1_500_000);
    let events = received.json();
    let bytes = &last(&events, "session:ended")["bytes_by_path"];
    assert!(bytes["rainbow"].as_u64() > Some(750_000) && bytes["multicast"] == 0, "{bytes}");
    assert_eq!(last(&events, "path:changed")["path"], "rainbow");
    for program in [asked, sending] {
        program.interrupt();
        program.end();
    }
}

#[test]
fn a_folder_of_any_server_suffices_and_a_forged_description_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (sdp, fdt) = described(folder.path(), &[]);
    let (address, documents) = serve();
    let put =
        |path: &str, content: &[u8]| documents.lock().unwrap().insert(path.to_owned(), content.to_vec());
    put("/a/session.sdp", sdp.as_bytes());
    put("/a/session.fdt", fdt.as_bytes());
    put("/a/file", &noise(200_000));
    let url = format!("http://{address}/a/");
    let out = folder.path().join("out");
    let received = get(&url, &out, &["--timeout", "20s"]);
    assert_whole(&received, &out.join("file"), 200_000);
    let events = received.json();
    assert!(last(&events, "session:described")["key"].is_string());
    assert_eq!(last(&events, "path:changed")["path"], "http");

    let refused = |url: &str, more: &[&str], why: &str| {
        let other = folder.path().join("other");
        let received = get(url, &other, &[&["--timeout", "3s"], more].concat());
        assert_ne!(received.code, Some(0), "{}", received.stdout);
        assert!(received.stderr.contains(why), "{why}: {}", received.stderr);
        assert!(!other.join("file").exists());
    };
    put("/a/session.fdt", fdt.replace("Content-Length=\"200000\"", "Content-Length=\"200001\"").as_bytes());
    refused(&url, &[], "no trusted key has signed it");
    put("/a/session.fdt", fdt.split("\n<!--").next().unwrap().as_bytes());
    refused(&url, &[], "it is not signed");
    put("/a/session.fdt", fdt.as_bytes());
    let key = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    refused(&format!("{url}#key={key}"), &[], "no trusted key has signed it");
    put("/a/file", &noise(200_001)[1..]);
    refused(&url, &[], "does not match");
    // The user has named 127.0.0.1; the description may not name this machine by another name.
    let other =
        format!("v=0\r\na=x-hw-http:http://localhost:{}/a/\r\na=x-hw-fdt:session.fdt\r\n", address.port());
    put("/b/session.sdp", other.as_bytes());
    refused(&format!("http://{address}/b"), &[], "this machine");
}

#[test]
fn a_description_in_a_file_names_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(300_000)).unwrap();
    let sdp = path("own.sdp");
    let options = ["--rate", "8M", "--tsi", "77", "--sdp", sdp.to_str().unwrap()];
    let mut sending = send(&group(), &path("file"), &options);
    sending.wait_for("session:started");
    let mut command = headwater();
    command.args(["receive", "--interface", "lo", "--json", "--timeout", "20s", "--sdp"]).arg(&sdp);
    let received = Running::start(command.arg("--out").arg(path("out"))).end();
    assert_whole(&received, &path("out/file"), 300_000);
    assert_eq!(last(&received.json(), "session:found")["tsi"], 77);
    sending.interrupt();
    sending.end();
}

#[test]
fn what_is_no_description_is_explained() {
    let (address, documents) = serve();
    documents.lock().unwrap().insert("/x.sdp".to_owned(), b"<html>".to_vec());
    for (url, code, why) in [
        ("192.0.2.1".to_owned(), 2, "http://192.0.2.1:7280/"),
        (format!("http://{}", free_address()), 3, "cannot fetch"),
        (format!("http://{address}"), 3, "session.sdp': status 404"),
        (format!("http://{address}/x.sdp"), 1, "v=0"),
    ] {
        let failed = run(&["get", &url, "--out", "nowhere"]);
        assert_eq!(failed.code, Some(code), "{url}: {}", failed.stderr);
        assert!(failed.stderr.contains(why), "{url}: {}", failed.stderr);
    }
}
