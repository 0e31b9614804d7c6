//! Messages over loopback multicast, from standard input to standard output.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::command::{Run, Running, group, headwater, records, run};

/// A receiver that listens: it has said so in its event log.
fn receiver(group: &str, log: &str, more: &[&str]) -> Running {
    let mut command = headwater();
    command.args([
        "pgm",
        "receive",
        "--interface",
        "lo",
        "--timeout",
        "30s",
        "--group",
        group,
        "--events",
        log,
    ]);
    let running = Running::start(command.args(more));
    while !fs::read_to_string(log).is_ok_and(|log| log.contains("channel:joined")) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running
}

fn send(group: &str, input: &[u8], more: &[&str]) -> Run {
    let mut command = headwater();
    command.args(["pgm", "send", "--interface", "lo", "--group", group]).args(more);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // It need not read on after an error.
    child.stdin.take().unwrap().write_all(input).ok();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn lines_arrive_whole_and_both_ends_tell_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Less than a pipe holds, which nobody empties before the end.
    let lines: String =
        (0..1_200).map(|number| format!("message {number} {}\n", "x".repeat(number % 50))).collect();
    // ZeroMQ's framing puts all that waits for the roll call into some forty packets.
    for (framing, drop) in [("messages", "0.03"), ("zmq", "0.2")] {
        let (group, log) = (group(), path(framing));
        let receiving = receiver(&group, &log, &["--framing", framing, "--drop", drop, "--seed", "4"]);
        let options = [
            "--framing",
            framing,
            "--start-rate",
            "2M",
            "--max-rate",
            "4M",
            "--json",
            "--pcap",
            &path("sent.pcap"),
        ];
        let sent = send(&group, lines.as_bytes(), &options);
        let received = receiving.end();
        assert_eq!((sent.code, received.code), (Some(0), Some(0)), "{}{}", sent.stderr, received.stderr);
        // With a first packet that is dropped a receiver begins with the next.
        assert!(lines.ends_with(&received.stdout) && received.stdout.len() > lines.len() / 2);
        let ended = sent.json().pop().unwrap();
        assert_eq!((&ended["event"], &ended["outcome"]), (&"session:ended".into(), &"completed".into()));
        assert_eq!((&ended["messages"], &ended["worst"]), (&1_200.into(), &"127.0.0.1".into()));
        let count = |name: &str| ended[name].as_u64().unwrap();
        assert!(count("loss_indications") >= count("loss_events") && count("passed") >= count("reductions"));
        assert!(count("reductions") > 0 && count("repairs") > 0 && count("allowed_rate") <= 4_000_000);
        assert!(ended["rtt"].as_f64().unwrap() > 0.0);
        let started = &sent.json()[0];
        assert_eq!(
            (&started["event"], &started["control"]["name"]),
            (&"session:started".into(), &"le-sbcc".into())
        );
        let log = records(&fs::read_to_string(&log).unwrap());
        let found = log.iter().find(|record| record["name"] == "session:found").unwrap();
        assert_eq!(found["data"]["tsi"], started["tsi"]);
        let last = &log.last().unwrap()["data"];
        assert_eq!((&last["outcome"], &last["lost"]), (&"completed".into(), &0.into()));
        assert!(last["repaired"].as_u64().unwrap() > 0 && last["naks"].as_u64().unwrap() > 0);
        assert!(received.stderr.contains("session "), "{}", received.stderr);
    }
}

#[test]
fn other_forms_go_from_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let bytes: Vec<u8> =
        (0..20_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let counted: Vec<u8> = bytes
        .chunks(3_001)
        .flat_map(|message| [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat())
        .collect();
    for (name, input, sending, receiving) in [
        ("lengths", &counted, &["--form", "lengths"][..], &["--form", "lengths"][..]),
        ("bytes", &bytes, &["--size", "700"], &["--form", "bytes"]),
        (
            "large",
            &bytes,
            &["--form", "bytes", "--size", "7000", "--payload", "4000"],
            &["--form", "bytes", "--payload", "4000"],
        ),
    ] {
        let (group, out) = (group(), path(name));
        let options = [receiving, &["--json", "--out", &out]].concat();
        let receiving = receiver(&group, &path("log"), &options);
        let sent = send(&group, input, &[sending, &["--rate", "8M"]].concat());
        let received = receiving.end();
        assert_eq!((sent.code, received.code), (Some(0), Some(0)), "{}{}", sent.stderr, received.stderr);
        assert!(fs::read(&out).unwrap() == *input, "{name}");
        assert!(received.json().iter().any(|event| event["event"] == "session:progress"));
        fs::remove_file(path("log")).unwrap();
    }
}

#[test]
fn a_stream_of_bytes_comes_out_as_it_went_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let bytes: Vec<u8> =
        (0..150_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (group, out) = (group(), path("out"));
    let receiving = receiver(
        &group,
        &path("log"),
        &["--framing", "bytes", "--out", &out, "--drop", "0.05", "--seed", "7"],
    );
    let sent = send(&group, &bytes, &["--framing", "bytes", "--rate", "8M"]);
    let received = receiving.end();
    assert_eq!((sent.code, received.code), (Some(0), Some(0)), "{}{}", sent.stderr, received.stderr);
    assert!(fs::read(&out).unwrap() == bytes);
}

/// What is lost for good ends a stream there: what came is its beginning, and the end is no success.
#[test]
fn a_stream_of_bytes_breaks_off_at_what_is_lost_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let bytes: Vec<u8> = (0..600_000_u32).map(|number| (number / 1_000).to_le_bytes()[0]).collect();
    let (group, out) = (group(), path("out"));
    let options = ["--framing", "bytes", "--out", &out, "--json", "--drop", "0.1", "--seed", "7"];
    let receiving = receiver(&group, &path("log"), &options);
    // The window is over in a millisecond.
    let options = ["--framing", "bytes", "--rate", "200M", "--window", "16", "--linger", "350ms"];
    let sent = send(&group, &bytes, &options);
    let received = receiving.end();
    assert_eq!((sent.code, received.code), (Some(0), Some(5)), "{}{}", sent.stderr, received.stderr);
    let came = fs::read(&out).unwrap();
    let is_beginning = !came.is_empty() && came.len() < bytes.len() && bytes.starts_with(&came);
    assert!(is_beginning, "{} bytes", came.len());
    assert!(
        received.stderr.contains(&format!("ends there, after {} bytes", came.len())),
        "{}",
        received.stderr
    );
    let last = received.json().pop().unwrap();
    assert_eq!((&last["outcome"], &last["message_bytes"]), (&"incomplete".into(), &came.len().into()));
}

/// Nothing was lost on the way, and yet messages are missing: that is no success.
#[test]
fn messages_that_are_not_taken_make_an_end_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let (group, log) = (group(), folder.path().join("log").to_str().unwrap().to_owned());
    let receiving = receiver(&group, &log, &["--message-max", "2kB"]);
    let lines = format!("short\n{}\nlast\n", "x".repeat(5_000));
    let sent = send(&group, lines.as_bytes(), &["--rate", "8M"]);
    let received = receiving.end();
    assert_eq!((sent.code, received.code), (Some(0), Some(5)), "{}{}", sent.stderr, received.stderr);
    assert_eq!(received.stdout, "short\nlast\n");
    assert!(
        received.stderr.contains("1 messages were dropped: longer than --message-max"),
        "{}",
        received.stderr
    );
    let last = records(&fs::read_to_string(&log).unwrap()).pop().unwrap();
    assert_eq!((&last["data"]["outcome"], &last["data"]["broken"]), (&"incomplete".into(), &1.into()));
}

/// A sender that waits for standard input for ever ends by a signal; its receiver hears of it.
#[test]
fn an_interrupted_sender_ends_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (group, log) = (group(), folder.path().join("log").to_str().unwrap().to_owned());
    let receiving = receiver(&group, &log, &[]);
    let mut command = headwater();
    command.args(["pgm", "send", "--interface", "lo", "--group", &group, "--json"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"one\ntwo\n").unwrap();
    while !fs::read_to_string(&log).unwrap().contains("\"messages\":2,") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    drop(input);
    let received = receiving.end();
    assert_eq!((received.code, received.stdout.as_str()), (Some(0), "one\ntwo\n"), "{}", received.stderr);
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let fails = |args: &[&str], code: i32, hint: &str| {
        let run = run(&[&["pgm"], args].concat());
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(hint), "{args:?} does not say '{hint}': {}", run.stderr);
    };
    fails(&["send", "--form", "bytes"], 2, "--size 1400");
    for form in ["lines", "lengths"] {
        fails(&["send", "--form", form, "--size", "1400"], 2, "--size is for --form bytes");
    }
    for end in [&["send"][..], &["receive", "--timeout", "1s"]] {
        fails(&[end, &["--framing", "bytes", "--form", "lines"]].concat(), 2, "leave --form out");
    }
    fails(&["send", "--framing", "bytes", "--size", "9"], 2, "--size is for messages");
    fails(&["send", "--rate", "1M", "--max-rate", "2M"], 2, "leave --max-rate and --start-rate out");
    fails(&["send", "--congestion-control", "fixed"], 2, "--rate 10M");
    fails(&["send", "--congestion-control", "le-sbcc", "--rate", "1M"], 2, "--max-rate");
    fails(&["send", "--start-rate", "200M"], 2, "lower --start-rate");
    fails(&["send", "--interface", "nowhere0"], 3, "nowhere0");
    fails(&["receive", "--json"], 2, "--out FILE");
    fails(
        &["receive", "--interface", "lo", "--group", &group(), "--timeout", "200ms"],
        4,
        "headwater doctor",
    );
    let group = group();
    let sent = send(&group, &[7; 200_000], &["--rate", "50M", "--window", "16", "--linger", "100ms"]);
    assert_eq!(sent.code, Some(2), "{}", sent.stderr);
    assert!(sent.stderr.contains("larger --window"), "{}", sent.stderr);
    let sent = send(&group, b"\0\0\0\x09cut", &["--rate", "50M", "--form", "lengths", "--linger", "100ms"]);
    assert_eq!(sent.code, Some(2), "{}", sent.stderr);
    assert!(sent.stderr.contains("ends within a message"), "{}", sent.stderr);
}
