//! Messages to whoever waits for a session: what else is heard, that a sender is silent, what a session came
//! to.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::command::{Running, group, headwater, run};

/// A sender of a file with the default control, which says that it sends.
fn sender(group: &str, tsi: &str, file: &std::path::Path) -> Running {
    let mut command = headwater();
    command.args(["send", "--interface", "lo", "--json", "--group", group, "--tsi", tsi]);
    let mut sending = Running::start(command.arg(file));
    sending.wait_for("session:progress");
    sending
}

#[test]
fn other_sessions_are_told_apart_from_silence() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("x"), folder.path().join("out"));
    fs::write(&file, vec![7; 200_000]).unwrap();
    let group = group();
    let sending = sender(&group, "37158", &file);
    let receive = |more: &[&str]| {
        let out = out.to_str().unwrap();
        let base = ["receive", "--interface", "lo", "--group", &group, "--out", out, "--timeout", "3s"];
        run(&[&base[..], more].concat())
    };
    let other_tsi = receive(&["--tsi", "5"]);
    let other_source = receive(&["--source", "127.0.0.2"]);
    let both = receive(&["--tsi", "5", "--source", "127.0.0.2"]);
    sending.interrupt();
    sending.end();
    for (run, asked) in [
        (&other_tsi, "(--tsi 5)"),
        (&other_source, "(--source 127.0.0.2)"),
        (&both, "(--tsi 5, --source 127.0.0.2)"),
    ] {
        assert_eq!(run.code, Some(4), "{}", run.stderr);
        let advice =
            if asked.contains("--tsi") { "--tsi 37158 --source 127.0.0.1" } else { "(--source 127.0.0.1)" };
        for part in [asked, "session 37158 from 127.0.0.1:", advice] {
            assert!(run.stderr.contains(part), "'{part}' is missing in {}", run.stderr);
        }
        assert!(!run.stderr.contains("firewall"), "{}", run.stderr);
    }
    let silence = receive(&["--tsi", "5"]);
    assert_eq!(silence.code, Some(4), "{}", silence.stderr);
    assert!(silence.stderr.contains("firewall") && !silence.stderr.contains("37158"), "{}", silence.stderr);
}

/// The kernel keeps the packets of other sources away from a membership of one, most of all in a
/// source-specific group.
#[test]
fn another_source_of_a_source_specific_group_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("x"), folder.path().join("out"));
    fs::write(&file, vec![7; 200_000]).unwrap();
    let group = group().replace("239.255.72.90", "232.72.72.90");
    let sending = sender(&group, "37158", &file);
    let mut command = headwater();
    command.args([
        "receive",
        "--interface",
        "lo",
        "--json",
        "--group",
        &group,
        "--source",
        "127.0.0.2",
        "--timeout",
        "12s",
        "--out",
    ]);
    let mut receiving = Running::start(command.arg(&out));
    // After the first silence, long before the timeout where there is none.
    let other: serde_json::Value = serde_json::from_str(receiving.wait_for("session:other")).unwrap();
    let received = receiving.end();
    sending.interrupt();
    sending.end();
    assert_eq!(other["tsi"], 37_158, "{other}");
    assert_eq!(received.code, Some(4), "{}", received.stderr);
    for part in ["session 37158 from 127.0.0.1:", "name that source (--source 127.0.0.1)"] {
        assert!(received.stderr.contains(part), "'{part}' is missing in {}", received.stderr);
    }
}

#[test]
fn datagrams_of_no_session_are_told_apart_from_silence() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let group = group();
    let mut command = headwater();
    command.args(["receive", "--interface", "lo", "--json", "--group", &group, "--timeout", "2s", "--out"]);
    let mut receiving = Running::start(command.arg(&out));
    receiving.wait_for("channel:joined");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = socket2::SockRef::from(&socket);
    options.set_multicast_if_v4(&std::net::Ipv4Addr::LOCALHOST).unwrap();
    for _ in 0..5 {
        socket.send_to(b"nonsense", &group).unwrap();
    }
    let received = receiving.end();
    assert_eq!(received.code, Some(4), "{}", received.stderr);
    assert!(received.stderr.contains("datagrams of another protocol"), "{}", received.stderr);
}

#[test]
fn a_sender_that_died_is_missed_without_a_terminal_and_heard_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("x"), folder.path().join("out"));
    // More than the receiver takes of it before its sender dies.
    fs::write(&file, vec![7; 20_000_000]).unwrap();
    let group = group();
    let receiver = |more: &[&str], out: &std::path::Path| {
        let mut command = headwater();
        command.args(["receive", "--interface", "lo", "--max-rate", "1M", "--group", &group, "--out"]);
        Running::start(command.arg(out).args(more))
    };
    let log = folder.path().join("plain.sqlog");
    let plain = receiver(&["--events", log.to_str().unwrap()], &folder.path().join("plain"));
    let wait_for_plain = |text: &str| {
        while !fs::read_to_string(&log).is_ok_and(|log| log.contains(text)) {
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for_plain("channel:joined");
    let mut receiving = receiver(&["--json"], &out);
    receiving.wait_for("channel:joined");
    let mut sending = sender(&group, "7", &file);
    receiving.wait_for("session:found");
    wait_for_plain("session:found");
    sending.kill();
    sending.end();
    let silent: serde_json::Value = serde_json::from_str(receiving.wait_for("session:silent")).unwrap();
    assert_eq!((silent["seconds"].as_u64() >= Some(10), silent["found"].as_bool()), (true, Some(true)));
    wait_for_plain("session:silent");
    // The same session from another process: the address and the TSI are the same.
    let sending = sender(&group, "7", &file);
    receiving.wait_for("session:heard-again");
    wait_for_plain("session:heard-again");
    for receiving in [receiving, plain] {
        receiving.interrupt();
        let received = receiving.end();
        let said = received.stderr;
        assert_eq!(said.matches("nothing has arrived from the sender for 10").count(), 1, "{said}");
        assert!(said.contains("packets of the sender arrive again after"), "{said}");
        assert_eq!(received.code, Some(130));
    }
    sending.interrupt();
    sending.end();
}

/// The sender sends its FDT alone until a second receiver reports.
#[test]
fn packets_that_bring_nothing_needed_are_told_apart_from_silence() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("x"), folder.path().join("out"));
    fs::write(&file, vec![7; 200_000]).unwrap();
    let group = group();
    let mut command = headwater();
    command.args(["send", "--interface", "lo", "--json", "--group", &group, "--start-when", "2"]);
    let mut sending = Running::start(command.arg(&file));
    sending.wait_for("session:started");
    let out = out.to_str().unwrap();
    let base = ["receive", "--interface", "lo", "--group", &group, "--out", out, "--timeout", "3s"];
    let received = run(&base);
    sending.interrupt();
    sending.end();
    assert_eq!(received.code, Some(5), "{}", received.stderr);
    assert!(received.stderr.contains("the session goes on"), "{}", received.stderr);
    assert!(!received.stderr.contains("silent"), "{}", received.stderr);
}

#[test]
fn messages_end_with_the_whole_session_in_words() {
    let group = group();
    let mut command = headwater();
    command.args(["pgm", "receive", "--interface", "lo", "--group", &group, "--timeout", "20s"]);
    let receiving = Running::start(&mut command);
    thread::sleep(Duration::from_secs(1));
    let mut command = headwater();
    command.args(["pgm", "send", "--interface", "lo", "--group", &group, "--linger", "1s"]);
    let mut sending = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = sending.stdin.take().unwrap();
    for _ in 0..50 {
        input.write_all(b"a line that is a message\n").unwrap();
    }
    drop(input);
    let sent = sending.wait_with_output().unwrap();
    let sent = String::from_utf8_lossy(&sent.stderr).into_owned();
    let received = receiving.end();
    assert!(sent.contains("sent 50 messages, 1.2 kB in ") && sent.contains("on average"), "{sent}");
    assert!(sent.contains("receivers reported") && sent.contains("the rate was reduced"), "{sent}");
    for jargon in ["LIs", "LEs", "passed"] {
        assert!(!sent.contains(jargon), "{sent}");
    }
    assert!(received.stderr.contains("received 50 messages, 1.2 kB in "), "{}", received.stderr);
}

#[test]
fn hosts_may_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let asked = run(&["receive", "--ask", "localhost:9", "--out", out, "--timeout", "500ms"]);
    assert_eq!(asked.code, Some(4), "{}", asked.stderr);
    assert!(
        asked.stderr.contains("asking 127.0.0.1:9") || asked.stderr.contains("asking [::1]:9"),
        "{}",
        asked.stderr
    );
    let named = ["receive", "--interface", "lo", "--group", &group(), "--source", "localhost", "--out", out];
    let named = run(&[&named[..], &["--timeout", "500ms"]].concat());
    assert!(named.stderr.contains("from 127.0.0.1 only"), "{}", named.stderr);
}
