//! Standard input as the content of a session.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use crate::command::{Run, Running, group, headwater, receive, run, sender};
use crate::transfer::noise;

/// Sends a pipe. The input ends when the pipe is dropped.
fn send(group: &str, more: &[&str]) -> (Running, ChildStdin) {
    let mut command = sender(group, &[&["--rate", "20M"], more, &["-"]].concat());
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let stdin = running.stdin();
    (running, stdin)
}

/// Writes all of the input from a thread of its own, as the sender reads no faster than the network.
fn feed(mut stdin: ChildStdin, content: Vec<u8>) {
    std::thread::spawn(move || stdin.write_all(&content));
}

fn check_ok(run: &Run) {
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}

fn assert_no_traces(folder: &Path, names: &[&str]) {
    let found: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(found, names, "nothing else is left behind");
}

/// With 1 MB to keep, a part has 125 kB.
#[test]
fn input_of_any_length_becomes_a_file() {
    for (bytes, keep) in [(0, "1MB"), (1, "1MB"), (4 * 125_000, "1MB"), (3_000_000, "1GB")] {
        let folder = tempfile::tempdir().unwrap();
        let (group, content) = (group(), noise(bytes));
        // With losses, blocks are decoded.
        let drop = if bytes == 3_000_000 { "0.2" } else { "0" };
        let receiver = receive(&group, folder.path(), &["--timeout", "30s", "--drop", drop]);
        let (sending, stdin) = send(&group, &["--until", "1", "--keep", keep, "--name", "a/b.img"]);
        feed(stdin, content.clone());
        check_ok(&sending.end());
        let received = receiver.end();
        check_ok(&received);
        assert!(fs::read(folder.path().join("a/b.img")).unwrap() == content, "{bytes} bytes");
        assert_no_traces(folder.path(), &["a"]);
        assert_no_traces(&folder.path().join("a"), &["b.img"]);
        let end = received.json().into_iter().find(|event| event["event"] == "stream:completed").unwrap();
        assert_eq!((end["bytes"].as_u64(), end["missed"].as_u64()), (Some(bytes.into()), Some(0)));
    }
}

#[test]
fn slow_input_is_sent_before_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let group = group();
    let mut receiver = receive(&group, folder.path(), &["--timeout", "30s"]);
    let (sending, mut stdin) = send(&group, &["--until", "1"]);
    for part in ["one", "two"] {
        stdin.write_all(part.as_bytes()).unwrap();
        receiver.wait_for("object:completed");
    }
    drop(stdin);
    check_ok(&receiver.end());
    check_ok(&sending.end());
    assert_eq!(fs::read_to_string(folder.path().join("stdin")).unwrap(), "onetwo");
}

#[test]
fn a_late_receiver_gets_what_is_kept_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (group, content) = (group(), noise(2_500_000));
    let early = receive(&group, &path("early"), &["--timeout", "30s"]);
    let (mut sending, mut stdin) = send(&group, &["--keep", "1MB", "--until", "idle", "--json"]);
    let (first, rest) = content.split_at(2_000_000);
    stdin.write_all(first).unwrap();
    sending.wait_for("stream:released");
    // A pipe takes a stream from its beginning alone, and ends at once.
    let mut command = headwater();
    command.args([
        "receive",
        "--interface",
        "lo",
        "--group",
        &group,
        "--timeout",
        "30s",
        "--to",
        "-",
        "--out",
    ]);
    let to_pipe =
        Running::start(command.arg(path("work")).stdout(File::create(path("piped")).unwrap())).end();
    assert_eq!(to_pipe.code, Some(5), "{}", to_pipe.stderr);
    assert_eq!(fs::metadata(path("piped")).unwrap().len(), 0);
    let late = receive(&group, &path("late"), &["--timeout", "30s"]);
    stdin.write_all(rest).unwrap();
    drop(stdin);
    check_ok(&early.end());
    let late = late.end();
    assert_eq!(late.code, Some(5), "{}{}", late.stdout, late.stderr);
    assert!(late.stderr.contains("were not sent any more when this receiver began"), "{}", late.stderr);
    // Parts that are gone before the late receiver has them are missing, too.
    let mut wanted = content.clone();
    let events = late.json();
    let missed: Vec<_> = events.iter().filter(|event| event["event"] == "stream:missed").collect();
    assert_eq!(missed[0]["offset"], 0);
    for part in &missed {
        let number = |name: &str| usize::try_from(part[name].as_u64().unwrap()).unwrap();
        wanted[number("offset")..][..number("bytes")].fill(0);
    }
    assert!(wanted.iter().any(|byte| *byte != 0), "something was kept");
    assert!(fs::read(path("late/stdin.incomplete")).unwrap() == wanted, "{missed:?}");
    assert!(fs::read(path("early/stdin")).unwrap() == content);
    check_ok(&sending.end());
}

#[test]
fn a_killed_receiver_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (group, content) = (group(), noise(3_000_000));
    let mut killed = receive(&group, folder.path(), &["--timeout", "30s"]);
    let (sending, stdin) = send(&group, &["--keep", "4MB", "--until", "1"]);
    feed(stdin, content.clone());
    killed.wait_for("object:completed");
    killed.kill_after(Duration::from_millis(300));
    killed.end();
    let received = receive(&group, folder.path(), &["--timeout", "30s"]).end();
    check_ok(&received);
    check_ok(&sending.end());
    assert!(crate::transfer::field(&received.stdout, "resumed") > 0);
    assert!(fs::read(folder.path().join("stdin")).unwrap() == content);
    assert_no_traces(folder.path(), &["stdin"]);
}

#[test]
fn an_interrupted_sender_leaves_an_incomplete_stream() {
    let folder = tempfile::tempdir().unwrap();
    let group = group();
    let mut receiver = receive(&group, folder.path(), &["--timeout", "30s"]);
    let (sending, mut stdin) = send(&group, &[]);
    stdin.write_all(b"beginning").unwrap();
    receiver.wait_for("object:completed");
    sending.interrupt();
    assert_eq!(sending.end().code, Some(130));
    let received = receiver.end();
    assert_eq!(received.code, Some(5), "{}{}", received.stdout, received.stderr);
    assert!(!folder.path().join("stdin").exists());
}

/// Reading a folder fails like a device with an error.
#[test]
fn an_input_that_fails_ends_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let input = File::open(folder.path()).unwrap();
    let failed = Running::start(sender(&group(), &["--rate", "20M", "-"]).stdin(input)).end();
    assert_eq!(failed.code, Some(7), "{}", failed.stderr);
    assert!(failed.stderr.contains("cannot read standard input"), "{}", failed.stderr);
}

#[test]
fn options_for_files_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let file = file.path().to_str().unwrap();
    for (options, advice) in [
        (&["-", file][..], "sent alone"),
        (&["-", "--dry-run"], "--dry-run needs content of known length"),
        (&["-", "--http", "127.0.0.1"], "--http needs content of known length"),
        (&["-", "--keep", "10kB"], "at least 1 MB"),
        (&[file, "--keep", "1GB"], "--keep is for standard input"),
    ] {
        let refused = run(&[&["send", "--interface", "lo"], options].concat());
        assert_eq!(refused.code, Some(2), "{options:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(advice), "{}", refused.stderr);
    }
}
