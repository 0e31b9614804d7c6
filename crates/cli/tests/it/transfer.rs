//! Sending and receiving over loopback multicast.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::command::{Running, group, headwater, records, run, sender};

fn folder_of_files(parent: &Path) -> PathBuf {
    let folder = parent.join("files");
    fs::create_dir_all(folder.join("nested")).unwrap();
    fs::write(folder.join("large.bin"), noise(300_000)).unwrap();
    fs::write(folder.join("nested/small.txt"), "small").unwrap();
    folder
}

/// Bytes without a pattern that matters.
pub fn noise(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The last value of a counter in a log of JSON lines, which may break off.
pub fn field(log: &str, name: &str) -> u64 {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter_map(|line| line[name].as_u64()).next_back().unwrap_or_default()
}

/// A receiver that listens: it has said so.
fn receiver(group: &str, out: &Path, more: &[&str]) -> Running {
    let mut command = headwater();
    command.args([
        "receive",
        "--interface",
        "lo",
        "--json",
        "--group",
        group,
        "--out",
        out.to_str().unwrap(),
    ]);
    let mut running = Running::start(command.args(more));
    running.wait_for("channel:joined");
    running
}

#[test]
fn linked_files_and_empty_folders_arrive() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let (rev, blobs) = (folder.path().join("snapshots/rev"), folder.path().join("blobs"));
    fs::create_dir_all(rev.join("empty/deep")).unwrap();
    fs::create_dir(&blobs).unwrap();
    for name in ["one", "two", "three", "four"] {
        fs::write(blobs.join(name), name).unwrap();
        symlink(format!("../../blobs/{name}"), rev.join(name)).unwrap();
    }
    symlink("nowhere", rev.join("dangling")).unwrap();
    symlink("loop", rev.join("loop")).unwrap();
    let (group, out) = (group(), folder.path().join("out"));
    let receiving = receiver(&group, &out, &["--timeout", "20s"]);
    let mut sending = headwater();
    sending.args(["send", "--interface", "lo", "--duration", "20s", "--group", &group]);
    let sending = Running::start(sending.arg(&rev));
    let received = receiving.end();
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(received.code, Some(0), "{}{}", received.stderr, sent.stderr);
    for name in ["one", "two", "three", "four"] {
        let copy = out.join("rev").join(name);
        assert!(fs::symlink_metadata(&copy).unwrap().is_file(), "receivers make no links");
        assert_eq!(fs::read_to_string(copy).unwrap(), name);
    }
    assert!(out.join("rev/empty/deep").is_dir());
    let left_out =
        ["loop' is a symbolic link that leads in a circle", "dangling' is a symbolic link to nothing"];
    for part in [&["4 links lead out of the given paths", "and 1 more"], &left_out[..]].concat() {
        assert!(sent.stderr.contains(part), "'{part}' is missing in {}", sent.stderr);
    }
    // Three of them are named, by the order of their names.
    let is_named = |name: &&str| {
        let target = blobs.join(name).canonicalize().unwrap();
        sent.stderr.contains(&format!("'{}' to '{}'", rev.join(name).display(), target.display()))
    };
    let named: Vec<_> = ["four", "one", "three", "two"].into_iter().filter(is_named).collect();
    assert_eq!(named, ["four", "one", "three"], "{}", sent.stderr);
    let rev = rev.to_str().unwrap();
    let skipped = run(&["send", "--interface", "lo", "--group", &group, "--links", "skip", rev]);
    assert_eq!(skipped.code, Some(2), "{}", skipped.stderr);
    assert!(skipped.stderr.contains("is a symbolic link; "), "{}", skipped.stderr);
}

#[test]
fn files_arrive_whole_and_both_ends_tell_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder_of_files(folder.path());
    let (group, out) = (group(), folder.path().join("out"));
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let logging = ["--events", &path("received.sqlog"), "--pcap", &path("received.pcap"), "--timeout", "20s"];
    let receiving = receiver(&group, &out, &logging);
    let mut sending = headwater();
    sending.args(["send", "--interface", "lo", "--json", "--rate", "20M", "--passes", "3", "--tsi", "4242"]);
    sending.args(["--group", &group, "--events", &path("sent.sqlog"), "--pcap", &path("sent.pcap")]);
    let sent = Running::start(sending.arg(&files)).end();
    let received = receiving.end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    for name in ["large.bin", "nested/small.txt"] {
        assert_eq!(fs::read(out.join("files").join(name)).unwrap(), fs::read(files.join(name)).unwrap());
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "nothing but the files stays");

    let events = |run: &crate::command::Run, event: &str| {
        run.json().into_iter().filter(|line| line["event"] == event).collect::<Vec<_>>()
    };
    assert_eq!(events(&received, "session:found")[0]["tsi"], 4_242);
    let completed = events(&received, "object:completed");
    assert_eq!(completed.len(), 2);
    assert!(completed.iter().all(|line| line["digest"].as_str().is_some_and(|digest| digest.len() == 64)));
    assert_eq!(events(&received, "session:ended")[0]["outcome"], "completed");
    for line in events(&received, "session:progress").iter().chain(&events(&received, "session:ended")) {
        let counters = ["useful", "duplicates", "surplus", "fdt_packets", "signalling", "pending", "dropped"];
        let sum: u64 = counters.iter().map(|name| line[*name].as_u64().unwrap()).sum();
        assert_eq!(line["packets"], sum, "each datagram is in one counter: {line}");
    }
    assert_eq!(events(&sent, "rate:updated")[0]["rate"], 20_000_000);
    let ended = &events(&sent, "session:ended")[0];
    assert_eq!(ended["outcome"], "completed");
    // 300 000 bytes are 214 symbols, 5 bytes are one.
    assert_eq!((ended["symbols_total"].as_u64(), ended["symbols"].as_u64()), (Some(215), Some(3 * 215)));

    let log = records(&fs::read_to_string(path("received.sqlog")).unwrap());
    assert_eq!(log[0]["trace"]["event_schemas"][0], "urn:headwater:events:1");
    let names: Vec<_> = log[1..].iter().map(|record| record["name"].as_str().unwrap()).collect();
    assert_eq!(names.first(), Some(&"session:started"));
    assert_eq!(names.last(), Some(&"session:ended"));
    assert_eq!(names.iter().filter(|name| **name == "object:completed").count(), 2);
    let times: Vec<_> = log[1..].iter().map(|record| record["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let passes = records(&fs::read_to_string(path("sent.sqlog")).unwrap());
    assert_eq!(passes.iter().filter(|record| record["name"] == "pass:completed").count(), 3);

    // Every packet sent is in the sender's capture; what the receiver has is the same, as far as it listened.
    let packets = |capture: &str| run(&["inspect", "--json", &path(capture)]).json();
    let (out_there, in_here) = (packets("sent.pcap"), packets("received.pcap"));
    assert_eq!(out_there.len() as u64, ended["packets"].as_u64().unwrap());
    assert!(out_there.iter().all(|packet| packet["lct"]["tsi"] == 4_242 && packet["error"].is_null()));
    let fdt = out_there.iter().find_map(|packet| packet["fdt"].as_str()).unwrap();
    assert!(fdt.contains("files/nested/small.txt"), "{fdt}");
    let symbol = |packet: &serde_json::Value| (packet["lct"]["toi"].clone(), packet["fec"].clone());
    assert!(!in_here.is_empty());
    assert!(in_here.iter().all(|packet| out_there.iter().any(|sent| symbol(sent) == symbol(packet))));
}

#[test]
fn silence_ends_with_exit_code_4() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let args = ["receive", "--interface", "lo", "--group", &group(), "--timeout", "300ms", "--out"];
    let run = run(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    assert!(run.stderr.contains("nothing was received"), "{}", run.stderr);
    assert!(run.stderr.contains("firewall"), "what to do is said: {}", run.stderr);
}

#[test]
fn a_session_that_ends_too_early_is_incomplete_and_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder_of_files(folder.path());
    let (group, out) = (group(), folder.path().join("out"));
    // Without a code, four fifths of the packets of one pass cannot be enough.
    let receiving = receiver(&group, &out, &["--drop", "0.2", "--timeout", "20s"]);
    let send = [
        "send",
        "--quiet",
        "--interface",
        "lo",
        "--rate",
        "20M",
        "--passes",
        "1",
        "--fec",
        "none",
        "--group",
    ];
    let sent = run(&[&send[..], &[&group, files.to_str().unwrap()]].concat());
    let received = receiving.end();
    assert_eq!((sent.code, sent.stderr.as_str()), (Some(0), ""));
    assert_eq!(received.code, Some(5), "{}{}", received.stdout, received.stderr);
    assert!(!out.join("files/large.bin").exists());
    let left: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "files" || name == ".headwater-work"), "{left:?}");
    assert!(received.stderr.contains("again to continue"), "{}", received.stderr);
}

#[test]
fn an_interrupt_ends_both_ends_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder_of_files(folder.path());
    let (group, out) = (group(), folder.path().join("out"));
    // Nobody sends here.
    let receiving = receiver(&group, &out, &[]);
    let mut sending = headwater();
    sending.args(["send", "--interface", "lo", "--json", "--rate", "500k", "--group", &self::group()]);
    let mut sending = Running::start(sending.arg(&files));
    sending.wait_for("session:progress");
    sending.interrupt();
    receiving.interrupt();
    let (sent, received) = (sending.end(), receiving.end());
    assert_eq!(sent.code, Some(130), "{}", sent.stderr);
    assert_eq!(sent.json().last().unwrap()["outcome"], "interrupted");
    assert_eq!(received.code, Some(130), "{}", received.stderr);
    assert_eq!(received.json().last().unwrap()["outcome"], "interrupted");
    assert_eq!(fs::read_dir(&out).map_or(0, Iterator::count), 0, "nothing stays");
}

#[test]
fn a_second_interrupt_ends_at_once_and_leaves_the_capture_whole() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder_of_files(folder.path());
    let capture = folder.path().join("sent.pcap");
    let mut sending = headwater();
    // So slow that closing in good order takes many seconds.
    sending.args(["send", "--interface", "lo", "--json", "--rate", "1k", "--group", &group(), "--pcap"]);
    let mut sending = Running::start(sending.arg(&capture).arg(&files));
    sending.wait_for("session:progress");
    sending.interrupt();
    // Two signals at once count as one.
    std::thread::sleep(Duration::from_millis(200));
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(sent.code, Some(130), "{}", sent.stderr);
    assert!(!sent.stdout.contains("session:ended"), "it ended in good order: {}", sent.stdout);
    let inspected = run(&["inspect", "--json", capture.to_str().unwrap()]);
    let packets = inspected.json();
    assert!(!packets.is_empty() && packets.iter().all(|packet| packet["error"].is_null()), "{packets:?}");
}

#[test]
fn a_transfer_goes_on_when_nobody_reads_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder_of_files(folder.path());
    let mut sending = headwater();
    sending.args([
        "send",
        "--interface",
        "lo",
        "--json",
        "--rate",
        "20M",
        "--passes",
        "2",
        "--group",
        &group(),
    ]);
    let mut child = sending.arg(&files).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_log_that_nobody_reads_does_not_end_a_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    fs::write(&file, "content").unwrap();
    // Every line on it fails with "no space left".
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let group = group();
    let mut command = headwater();
    command
        .args(["send", "-v", "--interface", "lo", "--rate", "10M", "--passes", "1", "--group", &group])
        .arg(&file)
        .stderr(full);
    assert_eq!(command.status().unwrap().code(), Some(0));
}

/// A pipe holds 64 KiB, which is less than the events of these files, without bundles one after the other.
#[test]
fn a_reader_of_events_that_does_not_read_stops_no_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, group) = (folder.path().join("files"), folder.path().join("out"), group());
    fs::create_dir(&files).unwrap();
    (0..1_000).for_each(|number| fs::write(files.join(format!("{number:04}")), noise(100)).unwrap());
    let receiving = receiver(&group, &out, &[]);
    let sending = crate::command::send(&group, &files, &["--bundle", "never"]);
    let until = Instant::now() + Duration::from_secs(90);
    let came = || fs::read_dir(out.join("files")).map_or(0, Iterator::count);
    while came() < 1_000 {
        assert!(Instant::now() < until, "{} files came", came());
        std::thread::sleep(Duration::from_millis(50));
    }
    let received = receiving.end();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    assert_eq!(received.stdout.matches("object:completed").count(), 1_000);
    assert!(received.stdout.lines().last().is_some_and(|line| line.contains("session:ended")));
    sending.interrupt();
    assert_eq!(sending.end().code, Some(130));
}

/// Issue 3: "A receiver killed with SIGKILL twenty times at random instants ends whole", under the default
/// control.
#[test]
fn a_receiver_killed_twenty_times_ends_whole_and_receives_next_to_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("file"), folder.path().join("out"));
    fs::write(&file, noise(20_000_000)).unwrap();
    let group = group();
    let mut sending = headwater();
    sending.args(["send", "--interface", "lo", "--quiet", "--max-rate", "12M", "--group", &group]);
    let sending = Running::start(sending.arg(&file));
    let (mut useful, mut resumed) = (0, Vec::new());
    for kill in 0..20_u64 {
        let mut receiving = receiver(&group, &out, &[]);
        // Random enough: where in its work the receiver is then depends on the machine.
        receiving.kill_after(Duration::from_millis(150 + kill * 7_919 % 900));
        let log = receiving.end().stdout;
        assert!(!log.contains("object:completed"), "the file was whole after {kill} kills");
        useful += field(&log, "useful");
        resumed.push(field(&log, "resumed"));
    }
    let last = receiver(&group, &out, &["--timeout", "30s"]).end();
    sending.interrupt();
    sending.end();
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    assert!(fs::read(out.join("file")).unwrap() == fs::read(&file).unwrap(), "the file differs");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "nothing but the file stays");
    let final_resumed = field(&last.stdout, "resumed");
    assert!(final_resumed > 1_000, "{resumed:?}, {final_resumed}");
    let twice = (useful + field(&last.stdout, "useful")).saturating_sub(20_000_000 / 1_408);
    // What comes in a tenth of a second, which is 107 symbols, and as much again for a machine that is busy.
    assert!(twice <= 20 * 250, "{twice} symbols were received twice");
}

/// A receiver that is told nothing finds out by the packets that PGM carries them, and the sender tells why
/// its rate is what it is.
#[test]
fn files_at_a_rate_by_naks_tell_why() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder_of_files(folder.path());
    let (group, out) = (group(), folder.path().join("out"));
    let receiving = receiver(&group, &out, &["--drop", "0.05", "--timeout", "20s"]);
    let mut sending = headwater();
    sending.args(["send", "--interface", "lo", "--json", "--congestion-control", "le-sbcc"]);
    sending.args(["--base-rate", "1M", "--max-rate", "4M", "--group", &group]);
    let sending = Running::start(sending.arg(&files));
    let received = receiving.end();
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    assert_eq!(fs::read(out.join("files/large.bin")).unwrap(), fs::read(files.join("large.bin")).unwrap());
    let (received, sent) = (received.json(), sent.json());
    let (received, sent) = (received.last().unwrap(), sent.last().unwrap());
    assert_eq!((&received["control"], &sent["event"]), (&"le-sbcc".into(), &"session:ended".into()));
    assert!(received["naks"].as_u64() > Some(0) && received["lost"].as_u64() > Some(0), "{received}");
    let count = |name: &str| sent[name].as_u64().unwrap();
    assert!(count("loss_indications") >= count("loss_events") && count("loss_events") > 0, "{sent}");
    assert!(count("reductions") > 0 && count("confirmations") > 0 && count("repairs") == 0, "{sent}");
    assert!((1_000_000..=4_000_000).contains(&count("allowed_rate")), "{sent}");
    assert!(sent["worst"].as_str().is_some() && sent["rtt"].as_f64() > Some(0.0), "{sent}");
}

/// A sender finds its rate by the reports of a receiver that is told nothing, in a session that is signed as
/// by default.
#[test]
fn files_at_a_rate_that_the_sender_finds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("content.bin");
    fs::write(&file, noise(6_000_000)).unwrap();
    let (group, out) = (group(), folder.path().join("out"));
    let receiving = receiver(&group, &out, &["--timeout", "20s"]);
    let mut sending = headwater();
    sending.args(["send", "--interface", "lo", "--json", "--rate", "auto", "--group", &group]);
    sending.args(["--base-rate", "2M", "--max-rate", "20M"]);
    let sending = Running::start(sending.arg(&file));
    let received = receiving.end();
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    assert_eq!(fs::read(out.join("content.bin")).unwrap(), fs::read(&file).unwrap());
    let (received, sent) = (received.json(), sent.json());
    assert_eq!(received.last().unwrap()["control"], "fixed", "to receivers");
    let rates: Vec<u64> = sent.iter().filter_map(|event| event["target_rate"].as_u64()).collect();
    assert_eq!(rates.first(), Some(&2_000_000), "the rate of the start");
    assert!(rates.iter().any(|rate| *rate >= 4_000_000), "{rates:?}");
    assert!(rates.iter().all(|rate| (200_000..=20_000_000).contains(rate)), "{rates:?}");
}

/// A file that somebody writes to while it is sent does not end the session for the others, under any
/// control.
#[test]
fn a_growing_log_is_left_out_and_the_others_arrive() {
    let controls: [&[&str]; 7] = [
        &[],
        &["--congestion-control", "sim"],
        &["--congestion-control", "rainbow", "--listen", "127.0.0.1:0"],
        &["--congestion-control", "webrc"],
        &["--congestion-control", "flid-dl"],
        &["--congestion-control", "le-sbcc"],
        &["--rate", "4M"],
    ];
    std::thread::scope(|scope| {
        for control in controls {
            scope.spawn(move || growing_log(control));
        }
    });
}

/// A program that appends lines to a log.
struct LogWriter {
    is_over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl LogWriter {
    fn start(mut log: fs::File, pause: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                log.write_all(b"one more line\n").unwrap();
                std::thread::sleep(pause);
            }
        });
        Self { is_over, thread }
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn growing_log(control: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let files = folder_of_files(folder.path());
    let (group, out) = (group(), folder.path().join("out"));
    let mut log = fs::File::create(files.join("growing.log")).unwrap();
    // Longer to read than the time between two lines, so that no reading finds it at rest.
    log.write_all(&noise(5_000_000)).unwrap();
    let writing = LogWriter::start(log, Duration::from_millis(1));
    let is_asked = control.contains(&"rainbow");
    let receiving = (!is_asked).then(|| receiver(&group, &out, &["--timeout", "30s"]));
    let mut sending = headwater();
    sending.args(["send", "--json"]).args(control);
    if !is_asked {
        sending.args(["--interface", "lo", "--group", &group]);
    }
    let mut sending = Running::start(sending.arg(&files));
    let started: serde_json::Value = serde_json::from_str(sending.wait_for("session:started")).unwrap();
    let receiving = receiving.unwrap_or_else(|| {
        let mut command = headwater();
        command.args(["receive", "--json", "--timeout", "30s", "--ask", started["group"].as_str().unwrap()]);
        Running::start(command.arg("--out").arg(&out))
    });
    let received = receiving.end();
    writing.end();
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(sent.code, Some(9), "{control:?}: {}", sent.stderr);
    assert_eq!(received.code, Some(5), "{control:?}: {}", received.stderr);
    let event = |run: &crate::command::Run, name: &str| {
        run.json().into_iter().find(|line| line["event"] == name).unwrap_or_default()
    };
    assert_eq!(event(&sent, "object:withdrawn")["file"], "files/growing.log");
    let refused = event(&received, "object:refused");
    assert_eq!(refused["location"], "files/growing.log", "{control:?}");
    for run in [&sent, &received] {
        assert!(run.stderr.contains("growing.log") && run.stderr.contains("changed"), "{}", run.stderr);
    }
    for name in ["large.bin", "nested/small.txt"] {
        let is_same = fs::read(out.join("files").join(name)).unwrap() == fs::read(files.join(name)).unwrap();
        assert!(is_same, "{control:?}: {name} differs");
    }
    assert!(!out.join("files/growing.log").exists());
}

/// The same among many small files, which travel together.
#[test]
fn a_growing_log_among_many_files_takes_no_other_file_along() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, group) = (folder.path().join("files"), folder.path().join("out"), group());
    fs::create_dir(&files).unwrap();
    (0..100).for_each(|number| fs::write(files.join(format!("{number}")), noise(number)).unwrap());
    let log = fs::File::create(files.join("growing.log")).unwrap();
    let writing = LogWriter::start(log, Duration::from_micros(100));
    let receiving = receiver(&group, &out, &["--timeout", "30s"]);
    let sending = crate::command::send(&group, &files, &[]);
    let received = receiving.end();
    writing.end();
    sending.interrupt();
    let sent = sending.end();
    if received.code == Some(0) {
        // A writer that a busy machine keeps waiting leaves the log at rest while the sender reads it.
        let log = fs::read_to_string(out.join("files/growing.log")).unwrap();
        assert!(log.ends_with('\n') && log.lines().all(|line| line == "one more line"), "{log}");
    } else {
        assert_eq!((received.code, sent.code), (Some(5), Some(9)), "{}{}", received.stderr, sent.stderr);
        assert!(sent.stderr.contains("growing.log"), "{}", sent.stderr);
        assert!(!out.join("files/growing.log").exists());
    }
    for number in 0..100 {
        assert_eq!(fs::read(out.join(format!("files/{number}"))).unwrap(), noise(number));
    }
}

/// Content that takes more than a second to hash if its holes are sent: sparse files, and a folder of them.
#[test]
fn sending_begins_before_all_is_hashed() {
    let folder = tempfile::tempdir().unwrap();
    let [image, large, files] = ["image", "large", "files"].map(|name| folder.path().join(name));
    fs::create_dir(&files).unwrap();
    let sparse = |path: &Path, bytes| {
        let mut file = fs::File::create(path).unwrap();
        file.write_all(&noise(1_000_000)).unwrap();
        file.set_len(bytes).unwrap();
    };
    // A code needs room on disk for its repair symbols.
    sparse(&image, 5_000_000_000);
    sparse(&large, 100_000_000_000);
    (0..5).for_each(|number| sparse(&files.join(format!("{number}.bin")), 1_000_000_000));
    for (path, options) in [
        (&image, &[][..]),
        (&image, &["--holes", "send"]),
        (&files, &["--holes", "send"]),
        (&large, &["--holes", "send", "--fec", "none"]),
    ] {
        // A machine that is busy may delay one.
        let is_soon = (0..3).any(|_| time_to_content(path, options) < Duration::from_secs(1));
        assert!(is_soon, "{path:?} {options:?}: no content within a second");
    }
}

/// Time from the start of a sender to its first packet of content.
fn time_to_content(path: &Path, options: &[&str]) -> Duration {
    let capture = path.with_extension("pcap");
    let began = Instant::now();
    let capturing = ["--pcap", capture.to_str().unwrap()];
    let mut sending = crate::command::send(&group(), path, &[options, &capturing].concat());
    loop {
        let line: serde_json::Value = serde_json::from_str(sending.wait_for("session:progress")).unwrap();
        if line["symbols"].as_u64() > Some(0) {
            break;
        }
    }
    let took = began.elapsed();
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(sent.code, Some(130), "{}", sent.stderr);
    let packets = run(&["inspect", "--json", capture.to_str().unwrap()]).json();
    let tables: Vec<&str> = packets.iter().filter_map(|packet| packet["fdt"].as_str()).collect();
    let is_hashed_later = tables.iter().any(|fdt| fdt.contains("hw:Digests-Follow"));
    assert_eq!(
        is_hashed_later,
        options.contains(&"--holes"),
        "{path:?} {options:?}: {} tables",
        tables.len()
    );
    took
}

/// Thousands of files: their description is long, most of all without bundles, and does not keep the session
/// from ending.
#[test]
fn a_session_of_many_files_ends_soon() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("many");
    fs::create_dir(&files).unwrap();
    for index in 0..10_000 {
        fs::write(files.join(format!("{index:05}")), noise(500)).unwrap();
    }
    for bundle in ["auto", "never"] {
        let mut sending = crate::command::send(&group(), &files, &["--bundle", bundle]);
        sending.wait_for("session:progress");
        let interrupted = Instant::now();
        sending.interrupt();
        let sent = sending.end();
        let took = interrupted.elapsed();
        assert_eq!(sent.code, Some(130), "{}", sent.stderr);
        // A round of the description on the base alone would take 48 s without bundles.
        assert!(took < Duration::from_secs(3), "--bundle {bundle}: it took {took:?} to end");
    }
}

/// The first session of a content begins with the source symbols, which need no decoder; the next begins
/// elsewhere, so that receivers of the first get other symbols.
#[test]
fn content_that_was_sent_before_is_sent_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), noise(2_000_000)).unwrap();
    let esis = |name: &str| -> Vec<u64> {
        let capture = path(name);
        let capture = capture.to_str().unwrap();
        let mut sending = sender(&group(), &["--rate", "4M", "--duration", "400ms", "--pcap", capture]);
        sending.env("XDG_STATE_HOME", path("state")).arg(path("file"));
        let sent = Running::start(&mut sending).end();
        assert_eq!(sent.code, Some(0), "{}", sent.stderr);
        let packets = run(&["inspect", "--json", capture]).json();
        let content = packets.iter().filter(|packet| packet["lct"]["toi"] == "1");
        content.filter_map(|packet| packet["fec"]["esi"].as_u64()).collect()
    };
    let (first, second) = (esis("first.pcap"), esis("second.pcap"));
    assert!(first.len() > 50 && second.len() > 50, "{} and {}", first.len(), second.len());
    assert!((0..).zip(&first).all(|(esi, sent)| *sent == esi), "{first:?}");
    assert_ne!(first[0], second[0]);
}
