//! What is wrong before anything is sent: exit codes, and errors that say what to do.

use std::fs;
use std::process::Stdio;

use crate::command::run;

/// Runs a command line that must fail with `code`, and say each of `hints`.
#[track_caller]
fn fails(args: &[&str], code: i32, hints: &[&str]) {
    let run = run(args);
    assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
    assert!(run.stdout.is_empty(), "errors go to standard error: {}", run.stdout);
    for hint in hints {
        assert!(run.stderr.contains(hint), "{args:?} does not say '{hint}': {}", run.stderr);
    }
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
}

#[test]
fn events_that_cannot_be_printed_are_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.bin");
    fs::write(&file, [7; 100]).unwrap();
    let full = fs::File::create("/dev/full").unwrap();
    let output = crate::command::headwater()
        .args([
            "send",
            "--interface",
            "lo",
            "--group",
            &crate::command::group(),
            "--json",
            "--rate",
            "10M",
            "--passes",
            "1",
        ])
        .arg(&file)
        .stdout(full)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{complaint}");
    assert!(complaint.contains("standard output"), "{complaint}");
}

#[test]
fn a_log_filter_that_cannot_be_read_is_said_to_be_ignored() {
    let mut command = crate::command::headwater();
    let output =
        command.args(["send", "/dev/null"]).env("HEADWATER_LOG", "headwater=nonsense").output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("HEADWATER_LOG is ignored"), "{complaint}");
    assert!(complaint.contains("'/dev/null' is a device"), "{complaint}");
}

#[test]
fn files_by_request_have_options_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.bin");
    fs::write(&file, [7; 100]).unwrap();
    let file = file.to_str().unwrap();
    let send = |more: &[&str], hints: &[&str]| {
        let mut args = vec!["send", file, "--congestion-control", "rainbow"];
        args.extend(more);
        fails(&args, 2, hints);
    };
    send(&["--rate", "5M"], &["--max-rate", "rainbow"]);
    send(&["--passes", "2"], &["--duration"]);
    send(&["--base-rate", "1M"], &["--base-rate"]);
    send(&["--interface", "lo"], &["--listen"]);
    for option in [&["--group", "239.1.2.3"][..], &["--ttl", "8"], &["--outage", "1s"], &["--no-offload"]] {
        send(option, &[option[0], "multicast"]);
    }
    send(&["--listen", "0.0.0.0:0", "--symbol-size", "8000"], &["1500 bytes", "MTU"]);
    let taken = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let args = ["send", file, "--congestion-control", "rainbow", "--listen", &at];
    fails(&args, 3, &["--listen", &at]);
    send(&["--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0"], &["one IP version"]);
    fails(&["send", file, "--listen", "127.0.0.1"], 2, &["rainbow"]);
    let receive = |more: &[&str], hints: &[&str]| {
        let mut args = vec!["receive", "--out", "x"];
        args.extend(more);
        fails(&args, 2, hints);
    };
    receive(&["--via", "192.0.2.1"], &["--ask"]);
    receive(&["--ask", "192.0.2.1", "--group", "239.1.2.3"], &["--group"]);
    receive(&["--ask", "192.0.2"], &["neither an address nor a host name"]);
    receive(&["--ask", "no-such-host.invalid"], &["cannot look up the name 'no-such-host.invalid'"]);
    receive(&["--source", "127.0.0.1", "--group", "ff15::1"], &["--source", "no IPv6 address"]);
    receive(&["--ask", "0.0.0.0"], &["no host's"]);
    receive(&["--ask", "239.1.2.3"], &["no host's", "a group"]);
    receive(&["--ask", "192.0.2.1", "--interface", "lo"], &["--multicast"]);
    let mixed = ["--ask", "192.0.2.1", "--multicast", "[ff15::1]:7290", "--interface", "lo"];
    receive(&mixed, &["not of one IP version"]);
}

/// Packets to a broadcast address are not sent.
#[test]
fn requests_that_find_no_way_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let args = ["receive", "--ask", "127.255.255.255", "--out", out, "--timeout", "500ms"];
    fails(&args, 4, &["requests cannot be sent to 127.255.255.255:7288"]);
}

#[test]
fn wrong_options_are_usage_errors_that_name_what_is_right() {
    fails(&[], 2, &["Usage:"]);
    fails(&["send"], 2, &["<PATH>..."]);
    fails(&["receive"], 2, &["--out <DIR>"]);
    fails(&["send", "--rate", "10MB", "x"], 2, &["'MB' is not a unit", "Mbit/s"]);
    fails(&["send", "--rate", "fast", "x"], 2, &["decimal number", "10M"]);
    fails(&["send", "--rate", "0", "x"], 2, &["out of range"]);
    fails(&["send", "--duration", "10", "x"], 2, &["10s"]);
    fails(&["send", "--duration", "10s", "--passes", "2", "x"], 2, &["cannot be used with"]);
    fails(&["send", "--fec", "magic", "x"], 2, &["raptorq, ldpc-triangle, ldpc-staircase, rs, none"]);
    fails(&["send", "--group", "192.0.2.1:7287", "x"], 2, &["not a multicast address"]);
    fails(&["send", "--ttl", "0", "x"], 2, &["1..=255"]);
    fails(&["send", "--dscp", "64", "x"], 2, &["0..=63"]);
    fails(&["send", "--symbol-size", "9000", "x"], 2, &["64 to 8880"]);
    fails(&["receive", "--out", "x", "--drop", "1"], 2, &["below 1"]);
    fails(&["demo", "--size", "0"], 2, &["at least 1 byte"]);
    fails(&["bench", "net", "--size", "0"], 2, &["at least 1 byte"]);
    fails(&["doctor", "--answer", "--wait", "3s"], 2, &["cannot be used with"]);
    fails(&["doctor", "--group", "192.0.2.1"], 2, &["not a multicast address"]);
    fails(&["inspect", "--json", "--fields", "tsv", "x"], 2, &["cannot be used with"]);
}

#[test]
fn rates_that_a_control_finds_by_itself_are_bounded_not_said() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let base = ["send", "--interface", "lo", path, "--congestion-control"];
    let relays: Vec<_> = (1..=9).map(|host| format!("--sim-relay=10.0.0.{host}")).collect();
    let relays: Vec<_> = ["sim"].into_iter().chain(relays.iter().map(String::as_str)).collect();
    fails(&[&base[..], &relays].concat(), 2, &["8 times"]);
    let le_sbcc =
        |control, more: &[&str], hints: &[&str]| fails(&[&base[..], &[control], more].concat(), 2, hints);
    le_sbcc("le-sbcc", &["--rate", "1M"], &["the sender finds the rate", "--max-rate"]);
    le_sbcc(
        "le-sbcc-tfrc",
        &["--base-rate", "1M", "--max-rate", "500k"],
        &["is above --max-rate", "500 kbit/s"],
    );
    let auto = |more: &[&str], hints: &[&str]| {
        fails(&[&["send", "--interface", "lo", path, "--rate", "auto"], more].concat(), 2, hints);
    };
    auto(&["--no-roster"], &["--rate auto follows the reports", "--no-roster"]);
    auto(&["--congestion-control", "m2c"], &["--rate auto is the control dedicated, and not m2c"]);
    auto(&["--base-rate", "20M", "--max-rate", "10M"], &["is above --max-rate"]);
    le_sbcc("dedicated", &["--rate", "1M"], &["the sender finds the rate", "--max-rate"]);
}

#[test]
fn a_folder_that_cannot_be_made_is_at_fault_and_not_the_group() {
    let refused = run(&["receive", "--interface", "lo", "--out", "/proc/no-such-folder"]);
    assert_eq!(refused.code, Some(7), "{}", refused.stderr);
    assert!(
        refused.stderr.starts_with("headwater: cannot receive into '/proc/no-such-folder'"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains("239.255.72.87"), "{}", refused.stderr);
}

#[test]
fn a_missing_file_is_named() {
    fails(&["send", "--interface", "lo", "no/such.iso"], 2, &["cannot read 'no/such.iso'", "No such file"]);
    fails(&["demo", "no/such.iso"], 2, &["cannot read 'no/such.iso'"]);
    fails(&["inspect", "no/such.pcap"], 7, &["no/such.pcap", "No such file"]);
}

#[test]
fn an_unknown_interface_is_a_network_error_that_lists_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    fs::write(folder.path().join("x"), "x").unwrap();
    let file = folder.path().join("x");
    fails(&["send", "--interface", "nope0", file.to_str().unwrap()], 3, &["nope0", "lo ("]);
    fails(&["receive", "--interface", "nope0", "--out", out], 3, &["nope0", "lo ("]);
}

#[test]
fn an_unusable_folder_is_a_disk_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    let below = file.join("incoming");
    let args = ["receive", "--interface", "lo", "--timeout", "5s", "--out", below.to_str().unwrap()];
    fails(&args, 7, &["incoming"]);
    let log = file.join("events");
    let events = ["--events", log.to_str().unwrap(), file.to_str().unwrap()];
    fails(&[&["send", "--interface", "lo"][..], &events].concat(), 7, &["cannot write the event log"]);
    let pcap = ["--pcap", log.to_str().unwrap(), file.to_str().unwrap()];
    fails(&[&["send", "--interface", "lo"][..], &pcap].concat(), 7, &["cannot write the capture"]);
}

#[test]
fn a_dry_run_plans_and_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("photos")).unwrap();
    fs::write(folder.path().join("photos/a.jpg"), vec![7; 100_000]).unwrap();
    fs::write(folder.path().join("photos/b.jpg"), vec![7; 1]).unwrap();
    let photos = folder.path().join("photos");
    let base = ["send", "--dry-run", "--interface", "lo", "--rate", "1M", "--fec", "none", "--tsi", "77"];
    let pcap = folder.path().join("x.pcap");
    let files = ["--pcap", pcap.to_str().unwrap(), photos.to_str().unwrap()];
    let text = run(&[&base[..], &files].concat());
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    for part in [
        "photos/a.jpg",
        "photos/b.jpg",
        "100001",
        "TSI 77",
        "No-Code",
        "1 Mbit/s",
        "on lo",
        "Nothing was sent",
    ] {
        assert!(text.stdout.contains(part), "'{part}' is missing in {}", text.stdout);
    }
    assert!(!pcap.exists(), "a dry run leaves nothing behind");
    let json = run(&[&base[..], &["--json"], &files[..]].concat()).json();
    assert_eq!(json.len(), 1);
    assert_eq!(json[0]["event"], "session:planned");
    // 100 000 bytes are 71.02 symbols of 1408 bytes, and a byte is one: 73 packets of 1424 bytes at 1 Mbit/s.
    assert_eq!((json[0]["symbols"].as_u64(), json[0]["pass_time"].as_u64()), (Some(73), Some(831)));
    assert_eq!(json[0]["order"], "spread");
    assert_eq!((json[0]["tsi"].as_u64(), json[0]["files"].as_u64()), (Some(77), Some(2)));
}

/// A dry run and the session end alike, quiet or not, and the log has each path that is left out.
#[test]
fn a_dry_run_tells_of_refused_names_as_the_session_does() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("fine"), "fine").unwrap();
    (0..12).for_each(|number| fs::write(files.join(format!("{number}:")), "content").unwrap());
    std::os::unix::fs::symlink("nowhere", files.join("link")).unwrap();
    let group = crate::command::group();
    let base = ["send", "--interface", "lo", "--group", &group, "--rate", "1M", "--passes", "1"];
    for more in [&["--dry-run"][..], &[]] {
        let sent = run(&[&base[..], more, &["--json", "--quiet", files.to_str().unwrap()]].concat());
        assert_eq!(sent.code, Some(9), "{more:?}: {}", sent.stderr);
        for part in ["'", "11:' has a name that receivers refuse", "--events name them all", "12 paths"] {
            assert!(sent.stderr.contains(part), "'{part}' is missing in {}", sent.stderr);
        }
        assert!(!sent.stderr.contains("link"), "no regular file is no error: {}", sent.stderr);
        let events = sent.json();
        let skipped: Vec<_> = events.iter().filter(|event| event["event"] == "object:skipped").collect();
        let refused = skipped.iter().filter(|event| event["refused"] == true).count();
        assert_eq!((skipped.len(), refused), (13, 12), "{}", sent.stdout);
        let fits = |event: &serde_json::Value| {
            let (path, reason) = (event["path"].as_str().unwrap(), event["reason"].as_str().unwrap());
            path.ends_with("/0:") && reason.contains("has the character ':'")
        };
        assert!(skipped.iter().any(|event| fits(event)), "{}", sent.stdout);
    }
}

#[test]
fn a_log_or_capture_never_overwrites_what_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("precious");
    fs::write(&file, "content").unwrap();
    let path = file.to_str().unwrap();
    for option in ["--pcap", "--events"] {
        fails(
            &["send", "--interface", "lo", "--rate", "10M", "--passes", "1", option, path, path],
            2,
            &["among the files to send"],
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    }
}

#[test]
fn symbols_that_do_not_fit_the_mtu_are_refused_before_anything_is_read() {
    // The loopback interface takes them, so any other that is up does for the test.
    let interfaces = headwater::net::Interface::list().unwrap();
    let narrow = |one: &&headwater::net::Interface| {
        one.up && one.ipv4.is_some() && one.mtu().is_some_and(|mtu| mtu < 8_900)
    };
    let Some(interface) = interfaces.iter().find(narrow) else {
        eprintln!("no interface here has an MTU below 8900: nothing to test");
        return;
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let args = ["send", "--interface", &interface.name, "--symbol-size", "8880", "--dry-run", path];
    fails(&args, 2, &["does not fit the MTU"]);
}

#[test]
fn a_source_of_the_other_family_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    fails(&["receive", "--interface", "lo", "--source", "::1", "--out", out], 2, &["::1"]);
}

#[test]
fn a_dry_run_tells_where_repair_symbols_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    // 20 blocks of Reed-Solomon, one of which takes 0.36 MB to encode.
    fs::write(&file, vec![7; 20 * 127 * 1_408]).unwrap();
    let temporary = folder.path().to_str().unwrap();
    let args = |memory, temporary| {
        let base = ["send", "--dry-run", "--interface", "lo", "--symbol-size", "1408", "--fec", "rs"];
        [&base[..], &["--memory", memory, "--temp-dir", temporary, file.to_str().unwrap()]].concat()
    };
    let on_disk = run(&args("1MB", temporary)).stdout;
    assert!(on_disk.contains(&format!("3.57 MB in '{temporary}'")), "{on_disk}");
    let in_memory = run(&args("4MB", temporary)).stdout;
    assert!(in_memory.contains("encoders in memory, 3.57 MB"), "{in_memory}");
    fails(&args("300kB", temporary), 2, &["needs 357 kB", "raise the limit"]);
    fails(&args("1MB", "/no/such/folder"), 7, &["/no/such/folder", "choose another folder"]);
}

#[test]
fn rates_without_a_unit_are_probably_mistaken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.bin");
    fs::write(&file, "content").unwrap();
    let file = file.to_str().unwrap();
    for option in ["--rate", "--max-rate"] {
        let said = run(&["send", "--interface", "lo", "--dry-run", option, "10", file]).stderr;
        assert!(said.contains(&format!("{option} 10M is 10 Mbit/s")), "{said}");
    }
    let said = run(&["send", "--interface", "lo", "--dry-run", "--rate", "1k", file]).stderr;
    assert!(!said.contains("1kM") && !said.contains("a packet takes"), "{said}");
}

/// As with SIGTERM, receivers learn that the session is over; under `nohup` it goes on.
#[test]
fn a_hangup_closes_the_session_unless_it_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.bin");
    fs::write(&file, "content").unwrap();
    for (disposition, code) in [("--default-signal=HUP", 130), ("--ignore-signal=HUP", 0)] {
        let mut command = std::process::Command::new("env");
        command.args([disposition, env!("CARGO_BIN_EXE_headwater"), "send", "--interface", "lo", "--json"]);
        command.args(["--rate", "1M", "--duration", "2s", "--no-sign", "--group", &crate::command::group()]);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut sender = crate::command::Running::start(&mut command);
        sender.wait_for("session:started");
        // As from a closed terminal: by the kernel, and by the shell.
        sender.signal("-HUP");
        sender.signal("-HUP");
        let ended = sender.end();
        assert_eq!(ended.code, Some(code), "{disposition}: {}", ended.stderr);
        assert!(ended.stdout.contains("session:ended"), "{}", ended.stdout);
    }
}
