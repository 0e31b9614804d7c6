//! Streams over loopback multicast. A script stands in for ffmpeg where faults of an encoder are tried.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::command::{Run, Running, group, headwater};

const ENCODERS: &str = "V....D libx264 H.264\\nA....D libopus Opus";
const STREAMS: &str = "Input #0, x, from 'x':\\n  Stream #0:0: Video: h264 (avc1 / 0x31637661), yuv420p, 640x360, 25 fps\\n  Stream #0:1: Audio: aac";

/// A program in place of ffmpeg, which prints encoders and streams, and then does as the Python lines say
/// with the connections `tracks`.
fn encoder(folder: &Path, encoders: &str, streams: &str, then: &str) -> PathBuf {
    let path = folder.join("ffmpeg");
    let script = format!(
        r#"#!/usr/bin/env python3
import os, socket, sys, time
words = sys.argv[1:]
if "-encoders" in words:
    print("{encoders}")
elif not any(word.startswith("unix:") for word in words):
    print("{streams}", file=sys.stderr)
else:
    tracks = []
    for word in words:
        if word.startswith("unix:"):
            track = socket.socket(socket.AF_UNIX)
            track.connect(word[5:])
            tracks.append(track)
    {then}
"#
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn send(ffmpeg: &Path, source: &str, more: &[&str]) -> Run {
    let mut command = headwater();
    command.args(["stream", "send", "--interface", "lo", "--group", &group(), "--video", source, "--ffmpeg"]);
    Running::start(command.arg(ffmpeg).args(more)).end()
}

/// Ends with an exit code, and says all of these.
fn assert_end(run: &Run, code: i32, parts: &[&str]) {
    assert_eq!(run.code, Some(code), "{}", run.stderr);
    for part in parts {
        assert!(run.stderr.contains(part), "'{part}' is missing in {}", run.stderr);
    }
}

#[test]
fn a_missing_program_or_encoder_names_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let run = send(Path::new("/nowhere/ffmpeg"), "test", &[]);
    assert_end(&run, 2, &["'/nowhere/ffmpeg'", "install the package ffmpeg", "--ffmpeg"]);
    let bare = encoder(folder.path(), "A....D aac AAC", STREAMS, "pass");
    assert_end(&send(&bare, "test", &[]), 2, &["no encoder libx264", "package ffmpeg"]);
    assert_end(&send(&bare, "test", &["--codec", "av1"]), 2, &["no encoder libsvtav1", "SVT-AV1"]);
}

#[test]
fn a_source_without_video_is_refused_and_silence_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let song = "Input #0, mp3, from 'x':\\n  Stream #0:0: Audio: mp3, 44100 Hz";
    assert_end(
        &send(&encoder(path, ENCODERS, song, "pass"), "song.mp3", &[]),
        2,
        &["'song.mp3' has no video"],
    );
    let gone = "gone.mkv: No such file or directory";
    assert_end(
        &send(&encoder(path, ENCODERS, gone, "pass"), "gone.mkv", &[]),
        2,
        &["cannot read 'gone.mkv'", gone],
    );
    let silent = "Input #0, x, from 'x':\\n  Stream #0:0: Video: h264, yuv420p, 640x360, 25 fps";
    let run = send(&encoder(path, ENCODERS, silent, "sys.exit(7)"), "silent.mkv", &[]);
    assert_end(&run, 1, &["'silent.mkv' has no audio"]);
}

#[test]
fn an_encoder_that_dies_or_stalls_is_told_with_its_last_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let dies = encoder(
        path,
        ENCODERS,
        STREAMS,
        "print('x264: out of \\x1b[31mwine', file=sys.stderr); time.sleep(0.5); os._exit(3)",
    );
    let run = send(&dies, "film.mkv", &[]);
    assert_end(
        &run,
        1,
        &["ffmpeg has failed", "exit status: 3", "the session is closed", "out of  [31mwine"],
    );
    let stalls = encoder(path, ENCODERS, STREAMS, "time.sleep(100)");
    let began = Instant::now();
    let run = send(&stalls, "film.mkv", &["--no-audio"]);
    assert_end(&run, 1, &["given no picture for 10 s", "the session is closed"]);
    assert!(began.elapsed() < Duration::from_secs(50));
    let garbage = encoder(path, ENCODERS, STREAMS, "tracks[0].sendall(b'no boxes at all'); time.sleep(5)");
    assert_end(&send(&garbage, "film.mkv", &[]), 1, &["no fragmented MP4"]);
    let left: Vec<_> = fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok).collect();
    let left =
        left.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with("headwater-video-"));
    let old = |entry: &&&fs::DirEntry| {
        entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < began.elapsed()))
    };
    assert_eq!(left.collect::<Vec<_>>().iter().filter(old).count(), 0, "no folder of sockets is left");
}

#[test]
fn rates_rungs_and_times_that_do_not_fit_are_explained() {
    let ffmpeg = Path::new("/nowhere/ffmpeg");
    assert_end(
        &send(ffmpeg, "test", &["--rungs", "4,100"]),
        2,
        &["96 kbit/s", "raise the lowest rung to 5 %"],
    );
    assert_end(&send(ffmpeg, "test", &["--rungs", "30,5"]), 2, &["ascending"]);
    assert_end(&send(ffmpeg, "test", &["--gop", "510ms"]), 2, &["no multiple of 20 ms"]);
    assert_end(&send(ffmpeg, "test", &["--fps", "25", "--gop", "500ms"]), 2, &["whole number of pictures"]);
    assert_end(&send(ffmpeg, "test", &["--congestion-control", "fixed"]), 2, &["has no layers"]);
    assert_end(&send(ffmpeg, "test", &["--stdin", "--buffer", "1s"]), 2, &["cannot be used with"]);
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let refused = |words: &[&str], parts: &[&str]| {
        let run = crate::command::run(words);
        assert_end(&run, 2, parts);
        assert!(run.stdout.is_empty());
    };
    let video = [
        ["--gop", "1s"],
        ["--repair", "4"],
        ["--rungs", "5,100"],
        ["--codec", "h264"],
        ["--fps", "25"],
        ["--ffmpeg", "ffmpeg"],
    ];
    for option in video.iter().map(|words| &words[..]).chain([&["--no-audio"][..]]) {
        let words = [&["stream", "send", "--stdin", "--buffer", "1s"], option].concat();
        refused(&words, &["--stdin", "cannot be used with", option[0]]);
    }
    for option in [&["--json"][..], &["--events", "log"], &["--seed", "9"]] {
        refused(&[&["demo", "--video"], option].concat(), &["--video", "cannot be used with", option[0]]);
    }
    refused(&["demo", "--ffmpeg", "ffmpeg"], &["--video"]);
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9720"] {
        refused(
            &["demo", "--video", "--http", address],
            &[address, "browsers on this machine", "stream receive"],
        );
    }
}

fn receive(group: &str, more: &[&str]) -> Running {
    let mut command = headwater();
    command.args(["stream", "receive", "--interface", "lo", "--json", "--timeout", "20s", "--group", group]);
    let mut running = Running::start(command.args(more));
    running.wait_for("session:started");
    running
}

fn send_buffers(group: &str, buffers: &[Vec<u8>], more: &[&str]) -> Run {
    let mut command = headwater();
    command
        .args(["stream", "send", "--stdin", "--buffer", "400ms", "--interface", "lo", "--group", group])
        .args(more);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let mut input = running.stdin();
    for buffer in buffers {
        input.write_all(&u32::try_from(buffer.len()).unwrap().to_be_bytes()).unwrap();
        input.write_all(buffer).unwrap();
    }
    drop(input);
    running.end()
}

fn buffers(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| (0..60_000).map(|at| u8::try_from((at / 7 + number * 31) % 251).unwrap()).collect())
        .collect()
}

#[test]
fn buffers_of_standard_input_arrive_as_files() {
    let (group, folder) = (group(), tempfile::tempdir().unwrap());
    let receiver = receive(&group, &["--out", folder.path().to_str().unwrap(), "--unsigned"]);
    let content = buffers(8);
    let sent = send_buffers(&group, &content, &["--max-rate", "4M", "--no-sign"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let received = receiver.end();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let ids: Vec<_> = received
        .json()
        .iter()
        .filter(|event| event["event"] == "stream:buffer")
        .map(|event| event["number"].as_u64().unwrap())
        .collect();
    assert_eq!(files.len(), ids.len());
    assert!(files.len() >= 6, "{files:?}");
    for (file, id) in files.iter().zip(&ids) {
        let prefix = fs::read(file).unwrap();
        assert!(content[usize::try_from(*id).unwrap()].starts_with(&prefix), "{file:?}");
    }
    assert!(files.iter().any(|file| fs::metadata(file).unwrap().len() == 60_000), "some are whole");
}

#[test]
fn a_session_without_video_is_told() {
    let signed = group();
    let receiver = receive(&signed, &["--http", "127.0.0.1:0"]);
    let sent = send_buffers(&signed, &buffers(9), &["--max-rate", "4M"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_end(&receiver.end(), 1, &["other content than video", "--out DIR"]);

    let files = group();
    let receiver = receive(&files, &["--http", "127.0.0.1:0"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, [1; 1_000]).unwrap();
    let mut sender = headwater();
    sender
        .args(["send", "--interface", "lo", "--group", &files, "--rate", "1M", "--duration", "3s"])
        .arg(&file);
    Running::start(&mut sender).end();
    assert_end(&receiver.end(), 1, &["carries files", "headwater receive --group"]);
}

fn request(address: &str, head: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_gateway_serves_its_own_names_alone_and_a_taken_port_is_told() {
    let group = group();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let mut command = headwater();
    command.args(["stream", "receive", "--interface", "lo", "--group", &group, "--http", &taken]);
    assert_end(&Running::start(&mut command).end(), 3, &["cannot listen for HTTP", &taken]);
    drop(listener);
    let receiver = receive(&group, &["--http", &taken, "--http-name", "media.example"]);
    let status = |head: &str| request(&taken, head).split_whitespace().nth(1).unwrap().to_owned();
    let page = request(&taken, "GET / HTTP/1.1\r\nHost: 127.0.0.1");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for part in [
        "content-security-policy: default-src 'none'",
        "nosniff",
        "cross-origin-resource-policy",
        "<!doctype html>",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    assert_eq!(status("GET /list HTTP/1.1\r\nHost: media.example:80"), "200");
    assert_eq!(status("GET / HTTP/1.1\r\nHost: evil.example"), "421");
    assert_eq!(status("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0"), "405");
    assert_eq!(status("GET /video.m3u8 HTTP/1.1\r\nHost: 127.0.0.1"), "503");
    let others = [
        "/etc/passwd",
        "/../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/v0.m4s",
        "/v18446744073709551616.m4s",
        "/init-video",
        "/r0/list",
        "/é.m4s",
        "/v",
    ];
    for name in others.iter().filter(|name| name.is_ascii()) {
        assert_eq!(status(&format!("GET {name} HTTP/1.1\r\nHost: localhost")), "404", "{name}");
    }
    receiver.interrupt();
    assert_eq!(receiver.end().code, Some(130));
}

/// Runs the demo with the prepared clip, which needs no ffmpeg.
#[test]
fn the_demo_plays_a_clip_where_ffmpeg_is_missing() {
    let mut command = headwater();
    command
        .args(["demo", "--video", "--http", "127.0.0.1:0", "--ffmpeg", "/nowhere/ffmpeg"])
        .stderr(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let mut lines = std::io::BufReader::new(demo.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("open http://") {
        assert_ne!(std::io::BufRead::read_line(&mut lines, &mut text).unwrap(), 0, "{text}");
    }
    assert!(text.contains("prepared clip") && text.contains("package ffmpeg"), "{text}");
    let address = text.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let list = |receiver: usize| {
        let answer = request(&address, &format!("GET /r{receiver}/list HTTP/1.1\r\nHost: localhost"));
        let list: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        list["buffers"].as_array().unwrap().iter().filter_map(|buffer| buffer["rung"].as_u64()).max()
    };
    let until = Instant::now() + Duration::from_secs(40);
    // The receivers of few and of all bytes have different pictures.
    while (list(0), list(2)) != (Some(0), Some(2)) {
        assert!(Instant::now() < until, "rungs {:?} and {:?}", list(0), list(2));
        std::thread::sleep(Duration::from_millis(200));
    }
    interrupt(&demo);
    assert_eq!(demo.wait().unwrap().code(), Some(130));
}

fn interrupt(child: &std::process::Child) {
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
}

/// A program in place of ffmpeg, which writes its process identifier into `pid`, and sleeps at a phase.
fn sleeper(folder: &Path, phase: &str) -> PathBuf {
    let path = folder.join("ffmpeg");
    let script = format!(
        r#"#!/usr/bin/env python3
import os, signal, sys, time
words = sys.argv[1:]
name = " ".join(words)
phase = "list" if "-encoders" in words else "start" if "-map" in words else "draw" if "-frames:v" in words else "probe"
if phase == "{phase}":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("{folder}/own", "w").write(f"{{os.getpid()}} {{os.getuid()}}")
    os.rename("{folder}/own", "{folder}/pid")
    time.sleep(60)
elif phase == "list":
    print("{ENCODERS} libsvtav1")
else:
    print("{STREAMS}", file=sys.stderr)
"#,
        folder = folder.display(),
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Starts a sender, waits for a sleeping ffmpeg, and returns the process identifier and the user of ffmpeg.
fn start_sleeper(folder: &Path, phase: &str, source: &str, more: &[&str]) -> (std::process::Child, [u32; 2]) {
    let mut command = headwater();
    command.args(["stream", "send", "--interface", "lo", "--group", &group(), "--video", source, "--ffmpeg"]);
    command.arg(sleeper(folder, phase)).args(more).env("TMPDIR", folder);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"film").unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let text = loop {
        match fs::read_to_string(folder.join("pid")) {
            Ok(text) => break text,
            Err(_) if Instant::now() > until => break String::new(),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let numbers: Vec<u32> = text.split(' ').filter_map(|number| number.parse().ok()).collect();
    assert_eq!(numbers.len(), 2, "ffmpeg is not reached in the phase {phase}");
    (child, [numbers[0], numbers[1]])
}

/// Waits until a process has ended.
fn assert_gone(pid: u32, phase: &str) {
    let is_there = || {
        let status = fs::read_to_string(format!("/proc/{pid}/stat"));
        status.is_ok_and(|status| !status.contains(") Z "))
    };
    let until = Instant::now() + Duration::from_secs(20);
    while is_there() {
        assert!(Instant::now() < until, "ffmpeg has survived in the phase {phase}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_during_the_start_ends_ffmpeg_and_leaves_no_folder() {
    let cases: [(&str, &[&str]); 4] =
        [("list", &[]), ("probe", &[]), ("start", &[]), ("start", &["--codec", "av1"])];
    for (phase, more) in cases {
        let folder = tempfile::tempdir().unwrap();
        let film = folder.path().join("film.mkv");
        fs::write(&film, "film").unwrap();
        let film = film.to_str().unwrap();
        let (sender, [pid, _]) = start_sleeper(folder.path(), phase, film, more);
        interrupt(&sender);
        let output = sender.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{phase}: {text}");
        assert_gone(pid, phase);
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let is_folder = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("headwater-video-");
        assert!(!left.iter().any(is_folder), "{phase}: {left:?}");

        fs::remove_file(folder.path().join("pid")).unwrap();
        let (mut sender, [pid, _]) = start_sleeper(folder.path(), phase, film, more);
        sender.kill().unwrap();
        sender.wait().unwrap();
        assert_gone(pid, phase);
    }
}

/// Starts ffmpeg as another user, which needs root.
#[test]
fn ffmpeg_runs_as_the_user_in_each_phase() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (phase, source) in [("list", "-"), ("draw", "test"), ("probe", "-"), ("start", "-")] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let (mut sender, [pid, user]) = start_sleeper(folder.path(), phase, source, &["--user", "nobody"]);
        assert_ne!(user, 0, "{phase}");
        interrupt(&sender);
        assert_eq!(sender.wait().unwrap().code(), Some(130), "{phase}");
        assert_gone(pid, phase);
    }
}

#[test]
fn short_buffers_arrive_as_files() {
    let (group, folder) = (group(), tempfile::tempdir().unwrap());
    let receiver = receive(&group, &["--out", folder.path().to_str().unwrap(), "--unsigned"]);
    // The header of a video alone is no video.
    let content: Vec<_> =
        (0..8).map(|n| if n % 2 == 0 { format!("line {n}") } else { "HWV1".into() }).collect();
    let content: Vec<Vec<u8>> = content.into_iter().map(String::into_bytes).collect();
    let sent = send_buffers(&group, &content, &["--max-rate", "4M", "--no-sign"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let received = receiver.end();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let mut files: Vec<_> = files.collect();
    assert!(files.len() >= 6 && files.iter().all(|file| content.contains(file)), "{files:?}");
    files.sort();
    files.dedup();
    assert!(files.len() >= 4 && files[0] == b"HWV1", "{files:?}");
}
