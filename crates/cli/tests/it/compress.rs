//! Compressed content: `send --compress`.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::command::{Running, group, headwater, receive, run, send, sender};
use crate::repair::{free_address, get, last, wait_for_server};
use crate::transfer::field;

/// Bytes that are the same on each run and do not shrink.
fn noise(bytes: u32) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..bytes).map(next).collect()
}

/// Words of few kinds in an order that does not repeat.
fn text(bytes: u32) -> Vec<u8> {
    let words = ["multicast ", "receiver ", "sender ", "channel ", "symbol ", "block ", "rate ", "loss\n"];
    let order = noise(bytes).into_iter();
    order.flat_map(|number| words[usize::from(number) % 8].bytes()).take(bytes as usize).collect()
}

fn files(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for number in 0..40 {
        fs::write(folder.join(format!("small {number}")), text(2_000 + number)).unwrap();
    }
    fs::write(folder.join("long"), text(6_000_000)).unwrap();
    fs::write(folder.join("noise"), noise(1_500_000)).unwrap();
}

fn assert_equal(sent: &Path, out: &Path) {
    for entry in fs::read_dir(sent).unwrap().map(Result::unwrap) {
        let came = fs::read(out.join(entry.file_name())).unwrap();
        assert!(came == fs::read(entry.path()).unwrap(), "{:?} differs", entry.file_name());
    }
    assert_eq!(fs::read_dir(sent).unwrap().count(), fs::read_dir(out).unwrap().count());
}

#[test]
fn a_folder_travels_in_fewer_packets_and_the_events_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    files(&path("files"));
    for compress in ["--compress", "--compress=gzip"] {
        let (group, out) = (group(), path(compress));
        let receiving = receive(&group, &out, &["--timeout", "20s"]);
        let sending = send(&group, &path("files"), &["--rate", "50M", compress]);
        let received = receiving.end();
        sending.interrupt();
        let sent = sending.end();
        assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
        assert_equal(&path("files"), &out.join("files"));
        let coding = if compress.ends_with("gzip") { "gzip" } else { "zstd" };
        let events = sent.json();
        let compressed = last(&events, "content:compressed");
        assert_eq!(
            (&compressed["coding"], &compressed["encoded"]),
            (&coding.into(), &2.into()),
            "{compressed}"
        );
        let bytes = |name: &str| compressed[name].as_u64().unwrap();
        assert!(bytes("encoded_bytes") * 2 < bytes("bytes") && bytes("plain") == 1, "{compressed}");
        let events = received.json();
        let announced =
            events.iter().find(|event| event["event"] == "object:announced" && event["file"] == "files/long");
        let announced = announced.unwrap();
        assert_eq!((&announced["bytes"], &announced["coding"]), (&6_000_000.into(), &coding.into()));
        assert!(announced["encoded_bytes"].as_u64() < Some(3_000_000), "{announced}");
    }
}

/// A receiver that is killed, and a sender that is killed, too: the content is encoded to the same bytes.
#[test]
fn killed_ends_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    files(&path("files"));
    let (group, out) = (group(), path("out"));
    let (mut useful, mut total) = (0, 0);
    for time in [250, 300, 350] {
        let mut sending = send(&group, &path("files"), &["--rate", "2M", "--compress"]);
        sending.wait_for("session:started");
        let mut receiving = receive(&group, &out, &[]);
        receiving.wait_for("object:announced");
        receiving.kill_after(Duration::from_millis(time));
        let log = receiving.end().stdout;
        useful += field(&log, "useful");
        total = total.max(field(&log, "symbols_total"));
        sending.kill();
        sending.end();
        let long = fs::read(out.join("files/long"));
        assert!(long.is_err() || long.is_ok_and(|bytes| bytes == text(6_000_000)), "half a file");
    }
    let receiving = receive(&group, &out, &["--timeout", "30s"]);
    let sending = send(&group, &path("files"), &["--rate", "2M", "--compress"]);
    let received = receiving.end();
    sending.interrupt();
    sending.end();
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    assert_equal(&path("files"), &out.join("files"));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "nothing but the folder stays");
    assert!(field(&received.stdout, "resumed") > 100, "{}", received.stdout);
    let twice = (useful + field(&received.stdout, "useful")).saturating_sub(total);
    assert!(twice <= 3 * 250, "{twice} of {total} symbols were received twice");
}

#[test]
fn servers_have_the_encoded_content_for_receivers_and_the_file_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    files(&path("files"));
    let content = text(6_000_000);
    let (group, address) = (group(), free_address());
    let options = [
        "--rate",
        "4M",
        "--compress=gzip",
        "--passes",
        "1",
        "--http",
        &address,
        "--repair-random-time",
        "0s",
    ];
    let receiving = receive(&group, &path("out"), &["--drop", "0.2", "--timeout", "20s"]);
    let sending = send(&group, &path("files"), &options);
    wait_for_server(&address);
    thread::sleep(Duration::from_secs(1));
    let name = "/files/files/long";
    let plain = get(&address, "GET", name, &[]);
    assert!(plain.status == 200 && plain.content == content && !plain.head.contains("content-encoding"));
    assert_eq!(plain.field("vary"), "Accept-Encoding");
    let part =
        get(&address, "GET", name, &[("Range", "bytes=5999990-"), ("Accept-Encoding", "gzip;q=0, br")]);
    assert_eq!((part.status, &part.content[..]), (206, &content[5_999_990..]));
    let encoded = get(&address, "GET", name, &[("Accept-Encoding", "br, gzip;q=0.5")]);
    assert_eq!((encoded.status, encoded.field("content-encoding").as_str()), (200, "gzip"));
    let mut decoded = Vec::new();
    flate2::read::GzDecoder::new(&encoded.content[..]).read_to_end(&mut decoded).unwrap();
    assert!(decoded == content);
    assert_ne!(encoded.field("etag"), plain.field("etag"));
    let ranges = [("Range", "bytes=100-199"), ("Accept-Encoding", "gzip")];
    let part = get(&address, "GET", name, &ranges);
    assert_eq!((part.status, &part.content[..]), (206, &encoded.content[100..200]));
    let noise = get(&address, "HEAD", "/files/files/noise", &[("Accept-Encoding", "gzip")]);
    assert!(noise.status == 200 && !noise.head.contains("content-encoding"), "{}", noise.head);

    let received = receiving.end();
    assert_eq!(received.code, Some(0), "{}{}", received.stdout, received.stderr);
    let events = received.json();
    assert!(
        last(&events, "session:ended")["bytes_by_path"]["http"].as_u64() > Some(0),
        "nothing came by HTTP"
    );
    let bundle =
        events.iter().find(|event| event["file"].as_str().is_some_and(|file| file.starts_with("bundle-")));
    let name = format!("/files/{}", bundle.unwrap()["file"].as_str().unwrap());
    assert_eq!(get(&address, "GET", &name, &[]).status, 406);
    let bundle = get(&address, "GET", &name, &[("Accept-Encoding", "gzip")]);
    assert_eq!((bundle.status, bundle.field("content-encoding").as_str()), (200, "gzip"));
    assert_equal(&path("files"), &path("out/files"));
    sending.interrupt();
    sending.end();
}

#[test]
fn a_receiver_serves_no_content_that_travelled_encoded() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("files")).unwrap();
    fs::write(path("files/long"), text(300_000)).unwrap();
    fs::write(path("files/noise"), noise(50_000)).unwrap();
    let group = group();
    let mut serving = receive(&group, &path("out"), &["--serve-repair=127.0.0.1:0", "--serve-time", "60s"]);
    let sending = send(&group, &path("files"), &["--rate", "8M", "--compress"]);
    let served: serde_json::Value = serde_json::from_str(serving.wait_for("repair:serving")).unwrap();
    let address = format!("127.0.0.1:{}", served["port"].as_u64().unwrap());
    assert_eq!(get(&address, "GET", "/files/files/noise", &[]).status, 200);
    assert_eq!(get(&address, "GET", "/files/files/long", &[("Accept-Encoding", "zstd")]).status, 404);
    [&serving, &sending].iter().for_each(|running| running.interrupt());
    assert_eq!(serving.end().code, Some(0));
    sending.end();
}

/// A receiver asks peers for plain files alone, and does not leave the peers for what they cannot have.
#[test]
fn peers_repair_plain_files_beside_encoded_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("files")).unwrap();
    fs::write(path("files/long"), text(2_000_000)).unwrap();
    fs::write(path("files/noise"), noise(1_500_000)).unwrap();
    let group = group();
    let mut serving = receive(&group, &path("first"), &["--serve-repair=127.0.0.1:0", "--serve-time", "60s"]);
    let options = ["--rate", "4M", "--compress", "--repair-random-time", "0s"];
    let mut sending = send(&group, &path("files"), &options);
    serving.wait_for("repair:serving");
    sending.wait_for("\"repair_port\"");
    thread::sleep(Duration::from_secs(3));
    let mut receiving = receive(&group, &path("second"), &["--drop", "0.5", "--timeout", "5s"]);
    receiving.wait_for("object:announced");
    sending.kill();
    sending.end();
    let received = receiving.end();
    assert_eq!(received.code, Some(5), "nobody has the encoded file: {}", received.stderr);
    assert!(fs::read(path("second/files/noise")).is_ok_and(|bytes| bytes == noise(1_500_000)));
    assert!(received.json().iter().all(|event| event["event"] != "repair:refused"), "{}", received.stdout);
    serving.interrupt();
    assert_eq!(serving.end().code, Some(0));
}

/// Groups may write to what the user makes, as with the user's own group on many systems.
#[test]
fn compressed_content_needs_no_folder_of_its_own_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    files(&path("files"));
    ["state", "temporary"].iter().for_each(|name| fs::create_dir(path(name)).unwrap());
    let (group, out) = (group(), path("out"));
    let receiving = receive(&group, &out, &["--timeout", "20s"]);
    let program = sender(&group, &["--rate", "50M", "--compress", "--json"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 002; exec \"$0\" \"$@\""]).arg(program.get_program()).args(program.get_args());
    shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.arg(path("files")).env("XDG_STATE_HOME", path("state")).env("TMPDIR", path("temporary"));
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sending = Running::start(&mut shell);
    sending.wait_for("content:compressed");
    sending.wait_for("session:started");
    let names = |name: &str| fs::read_dir(path(name)).unwrap().count();
    assert_eq!(names("temporary"), 0, "a session that is killed leaves nothing");
    let received = receiving.end();
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(received.code, Some(0), "{}{}", sent.stderr, received.stderr);
    assert_equal(&path("files"), &out.join("files"));
    assert!(!path("state/headwater/encoded").exists());
}

#[test]
fn what_cannot_be_compressed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, text(100_000)).unwrap();
    let name = file.to_str().unwrap();
    let mut input = headwater();
    let input = Running::start(input.args(["send", "--interface", "lo", "--compress", "-"])).end();
    assert_eq!(input.code, Some(2), "{}", input.stderr);
    assert!(input.stderr.contains("--compress needs content of known length"), "{}", input.stderr);
    let unknown = run(&["send", "--compress=xz", name]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("zstd"), "{}", unknown.stderr);
    let planned = run(&["send", "--interface", "lo", "--dry-run", "--compress", name]);
    assert_eq!(planned.code, Some(0), "{}", planned.stderr);
    assert!(planned.stdout.contains("compressed by zstd: 1 of 1 object"), "{}", planned.stdout);

    // A pipe takes content as it travels.
    let (group, pipe) = (group(), folder.path().join("pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe)
    });
    let mut to = headwater();
    to.args(["receive", "--interface", "lo", "--json", "--timeout", "20s", "--group", &group, "--to"])
        .arg(&pipe);
    let mut receiving = Running::start(&mut to);
    receiving.wait_for("channel:joined");
    let sending = send(&group, &file, &["--rate", "8M", "--compress"]);
    let received = receiving.end();
    sending.interrupt();
    sending.end();
    assert_ne!(received.code, Some(0));
    assert!(received.stderr.contains("send it without --compress"), "{}", received.stderr);
    assert_eq!(reader.join().unwrap().unwrap(), b"");
}
