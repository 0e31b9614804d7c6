//! A sender that knows its receivers.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{self, Run, Running, group, headwater, run};
use crate::transfer::noise;

fn receive(group: &str, out: &Path, name: &str) -> Running {
    command::receive(group, out, &["--timeout", "30s", "--name", name])
}

fn send(group: &str, file: &Path, options: &[&str]) -> Running {
    command::send(group, file, &[&["--rate", "4M"], options].concat())
}

fn events<'a>(run: &'a Run, name: &'a str) -> impl Iterator<Item = Value> + 'a {
    run.json().into_iter().filter(move |event| event["event"] == name)
}

#[test]
fn a_sender_ends_once_the_expected_receivers_have_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(1_500_000)).unwrap();
    fs::write(path("expected"), "# comment\nhall\n\n attic \n").unwrap();
    let (group, receipts, expected) = (group(), path("receipts"), path("expected"));
    let receivers = ["hall", "attic"].map(|name| receive(&group, &path(name), name));
    let options = ["--expect", expected.to_str().unwrap(), "--receipts", receipts.to_str().unwrap()];
    let sending = send(&group, &path("file"), &options);
    for receiver in receivers {
        let received = receiver.end();
        assert_eq!(received.code, Some(0), "{}", received.stderr);
    }
    let sent = sending.end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert!(sent.stderr.contains("receivers: 2 done, so the session has ended"), "{}", sent.stderr);
    let lines = fs::read_to_string(&receipts).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        let digest = line["digest"].as_str().unwrap();
        assert_eq!(digest.len(), 64);
        assert_eq!(line["bytes"]["multicast"].as_u64().unwrap() / 1_500_000, 1, "{line}");
        // Bytes before the first report are no part of the rate, which cannot exceed the session's.
        let is_possible = |rate: &Value| rate.as_u64().unwrap() < 5_000_000;
        assert!(line.get("rate").is_none_or(is_possible), "{line}");
        let id = line["id"].as_str().unwrap();
        let done = events(&sent, "receiver:reported").any(|event| {
            event["state"] == "done" && event["receiver"] == id && event["content"] == digest[..8]
        });
        assert!(done, "{id} of {}", sent.stdout);
    }
    let ended = events(&sent, "session:ended").next().unwrap();
    assert_eq!(ended["receivers"]["done"], 2, "{ended}");
}

#[test]
fn a_missing_receiver_is_named_with_exit_code_5() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(100_000)).unwrap();
    fs::write(path("expected"), "nowhere\n").unwrap();
    let expected = path("expected");
    let options = ["--expect", expected.to_str().unwrap(), "--duration", "2s"];
    let sent = send(&group(), &path("file"), &options).end();
    assert_eq!(sent.code, Some(5), "{}", sent.stderr);
    let wanted = "1 of 1 expected receiver lack files: nowhere has never reported";
    assert!(sent.stderr.contains(wanted), "{}", sent.stderr);
}

#[test]
fn the_content_waits_and_the_session_ends_by_count_or_silence() {
    for until in ["1", "idle:4s"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), noise(200_000)).unwrap();
        let group = group();
        let sending = send(&group, &path("file"), &["--until", until, "--start-when", "1"]);
        let received = receive(&group, &path("out"), "hall").end();
        assert_eq!(received.code, Some(0), "{}", received.stderr);
        let sent = sending.end();
        assert_eq!(sent.code, Some(0), "{until}: {}", sent.stderr);
        let reported = events(&sent, "receiver:reported").next().unwrap();
        assert_eq!(reported["name"], "hall");
        // The wait is over with the first report, and nothing of the content came before.
        assert_eq!(reported["done"], 0.0, "{reported}");
    }
}

#[test]
fn silence_is_no_end_while_a_receiver_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(2_000_000)).unwrap();
    let group = group();
    // At 4 Mb/s the file takes longer than the silence, and reports come less often than that.
    let sending = send(&group, &path("file"), &["--until", "idle:1s", "--start-when", "1"]);
    let mut receiving = receive(&group, &path("out"), "hall");
    receiving.wait_for("object:announced");
    // The machine that receives, and then the machine that sends, stands still for longer than the silence.
    for running in [&receiving, &sending] {
        running.signal("-STOP");
        std::thread::sleep(Duration::from_secs(4));
        running.signal("-CONT");
    }
    let received = receiving.end();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    let sent = sending.end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(events(&sent, "session:ended").next().unwrap()["receivers"]["done"], 1);
}

/// A full disk takes no receipts: the sender names the receivers, and does not end with success.
#[cfg(target_os = "linux")]
#[test]
fn receipts_that_cannot_be_written_are_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (group, file) = (group(), folder.path().join("file"));
    fs::write(&file, "content").unwrap();
    let receiver = receive(&group, &folder.path().join("out"), "hall");
    let sent = send(&group, &file, &["--until", "1", "--receipts", "/dev/full", "--quiet"]).end();
    assert_eq!(receiver.end().code, Some(0));
    assert_eq!(sent.code, Some(7), "{}", sent.stderr);
    for part in ["cannot write the receipt of 127.0.0.1", "1 receipt could not be written to '/dev/full'"] {
        assert!(sent.stderr.contains(part), "'{part}' is missing in {}", sent.stderr);
    }
}

#[test]
fn receipts_are_added_to_those_of_earlier_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(200_000)).unwrap();
    // The last line of a session that was killed has no end.
    fs::write(path("receipts"), "{\"id\":\"an earlier one\"}\n{\"id\":").unwrap();
    let (group, receipts) = (group(), path("receipts"));
    let receiver = receive(&group, &path("out"), "hall");
    let sent = send(&group, &path("file"), &["--until", "1", "--receipts", receipts.to_str().unwrap()]).end();
    assert_eq!((sent.code, receiver.end().code), (Some(0), Some(0)), "{}", sent.stderr);
    let text = fs::read_to_string(&receipts).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["{\"id\":\"an earlier one\"}", "{\"id\":"]);
    let added: Vec<Value> = lines[2..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(added.len(), 1, "{text}");
    assert_eq!(added[0]["name"], "hall");
}

#[test]
fn names_that_would_steer_a_terminal_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), noise(1_000)).unwrap();
    for name in ["attic\u{1b}[2J", "attic\u{9b}2J", "attic\u{7f}", "attic\u{202e}", "at\u{200b}tic"] {
        fs::write(path("expected"), format!("hall\n{name}s\n")).unwrap();
        let received = run(&["receive", "--name", name, "--out", &path("out")]);
        assert_eq!(received.code, Some(2), "{}", received.stderr);
        let sent = run(&["send", "--expect", &path("expected"), &path("file")]);
        assert_eq!(sent.code, Some(2), "{}", sent.stderr);
        let is_shown = sent.stderr.chars().any(|c| name.contains(c) && !c.is_ascii_graphic());
        assert!(!is_shown && sent.stderr.contains("is no name"), "{:?}", sent.stderr);
    }
}

#[test]
fn a_receiver_that_waits_for_its_sender_stops_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(3_000_000)).unwrap();
    let group = group();
    let mut sending = send(&group, &path("file"), &["--until", "2"]);
    let mut command = headwater();
    command.args(["receive", "--interface", "lo", "--json", "--group", &group, "--timeout", "3s"]);
    let mut receiving = Running::start(command.args(["--linger", "40s", "--out"]).arg(path("out")));
    // The receiver has reported, and then the sender is gone.
    sending.wait_for("receiver:reported");
    receiving.wait_for("object:announced");
    sending.signal("-STOP");
    receiving.wait_for("channel:left");
    std::thread::sleep(Duration::from_millis(300));
    let stopped = Instant::now();
    receiving.interrupt();
    let received = receiving.end();
    assert!(stopped.elapsed() < Duration::from_secs(20), "it waits for {:?}", stopped.elapsed());
    assert_eq!(received.code, Some(5), "the timeout came first: {}", received.stderr);
    sending.kill();
}

#[test]
fn a_sender_without_a_roster_gets_no_reports() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(1_500_000)).unwrap();
    let group = group();
    let receiving = receive(&group, &path("out"), "hall");
    let sending = send(&group, &path("file"), &["--no-roster"]);
    assert_eq!(receiving.end().code, Some(0));
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(sent.code, Some(130), "{}", sent.stderr);
    assert_eq!(events(&sent, "receiver:reported").count(), 0);
    let refused = run(&["send", "--no-roster", "--until", "3", path("file").to_str().unwrap()]);
    assert_eq!(refused.code, Some(2));
}

#[test]
fn a_receiver_without_the_key_of_the_roster_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(1_500_000)).unwrap();
    let key = path("key");
    assert_eq!(run(&["keygen", "--group", key.to_str().unwrap()]).code, Some(0));
    let (group, receipts) = (group(), path("receipts"));
    let with_key = ["--roster-key", key.to_str().unwrap()];
    let stranger = receive(&group, &path("stranger"), "stranger");
    let sending = {
        let mut options = with_key.to_vec();
        options.extend(["--until", "1", "--receipts", receipts.to_str().unwrap()]);
        send(&group, &path("file"), &options)
    };
    let received = stranger.end();
    assert_eq!(received.code, Some(0), "delivery depends on no report: {}", received.stderr);
    let mut options = vec!["--timeout", "30s", "--name", "member"];
    options.extend(with_key);
    let received = command::receive(&group, &path("member"), &options).end();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    let sent = sending.end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert!(sent.stderr.contains("without a key of --roster-key"), "{}", sent.stderr);
    let names: Vec<Value> = events(&sent, "receiver:reported").map(|event| event["name"].clone()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| *name == "member"), "{names:?}");
    assert_eq!(fs::read_to_string(&receipts).unwrap().lines().count(), 1);
}

/// Three files in bundles or not: a receiver that takes none of them, and a receiver that takes two.
#[test]
fn a_receiver_by_patterns_is_done_in_part_or_not_at_all() {
    for bundling in ["never", "always"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("photos")).unwrap();
        for name in ["a.jpg", "b.jpg", "c.txt"] {
            fs::write(path("photos").join(name), noise(100_000)).unwrap();
        }
        let (group, receipts) = (group(), path("receipts"));
        let options = ["--until", "1", "--bundle", bundling, "--receipts", receipts.to_str().unwrap()];
        let sending = send(&group, &path("photos"), &options);
        let nothing = command::receive(&group, &path("nothing"), &["--include", "*.JPG"]).end();
        assert_eq!(nothing.code, Some(4), "{}", nothing.stderr);
        assert!(nothing.stderr.contains("no file of the session fits --include"), "{}", nothing.stderr);
        assert!(nothing.stderr.contains("left out 3 of the 3 files"), "{}", nothing.stderr);
        let part = command::receive(&group, &path("part"), &["--exclude", "*.txt"]).end();
        assert_eq!(part.code, Some(0), "{}", part.stderr);
        assert!(part.stderr.contains("left out 1 of the 3 files of the session"), "{}", part.stderr);
        let sent = sending.end();
        assert_eq!(sent.code, Some(0), "{}", sent.stderr);
        let left =
            events(&sent, "receiver:reported").any(|event| event["state"] == "left" && event["result"] == 4);
        assert!(left, "{}", sent.stdout);
        let receipt = fs::read_to_string(&receipts).unwrap();
        let receipt: Value = serde_json::from_str(receipt.trim_end()).unwrap();
        let number = |field: &str| receipt[field].as_u64().unwrap();
        assert!(number("files_whole") < number("files"), "{bundling}: {receipt}");
    }
}

/// Receivers that end soon report nothing to a sender that does not await reports.
#[test]
fn a_lack_of_reports_is_not_blamed_on_the_network_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, noise(100_000)).unwrap();
    let sent = send(&group(), &file, &["--duration", "11s"]).end();
    assert!(
        sent.stderr.contains("receivers end before a report is due (--receipts awaits"),
        "{}",
        sent.stderr
    );
}
