//! Content straight to a stream.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::{self, Run, Running, group, headwater, run};
use crate::transfer::noise;

/// Starts a receiver to a pipe or to standard output, and waits until the receiver has joined.
fn receive(group: &str, folder: &Path, to: &str, stdout: Stdio) -> Running {
    let events = folder.join("events");
    let mut command = headwater();
    command.args(["receive", "--interface", "lo", "--timeout", "30s", "--group", group]);
    command.args(["--to", to, "--events"]).arg(&events).arg("--out").arg(folder.join("work")).stdout(stdout);
    let running = Running::start(&mut command);
    while !fs::read_to_string(&events).is_ok_and(|log| log.contains("channel:joined")) {
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

fn send(group: &str, content: &Path) -> Running {
    Running::start(command::sender(group, &["--rate", "20M", "--until", "1"]).arg(content))
}

fn pipe(folder: &Path) -> String {
    let pipe = folder.join("pipe").to_str().unwrap().to_owned();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    pipe
}

fn check_ok(receiver: Running, sender: Running) {
    for Run { code, stderr, .. } in [receiver.end(), sender.end()] {
        assert_eq!(code, Some(0), "{stderr}");
    }
}

#[test]
fn standard_output_gets_the_content_alone() {
    for bytes in [0, 1, 3_000_000] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (group, content) = (group(), noise(bytes));
        fs::write(path("content"), &content).unwrap();
        let receiver = receive(&group, folder.path(), "-", File::create(path("got")).unwrap().into());
        let sender = send(&group, &path("content"));
        check_ok(receiver, sender);
        assert!(fs::read(path("got")).unwrap() == content, "{bytes} bytes");
        assert!(fs::read_dir(path("work")).unwrap().next().is_none(), "nothing is left behind");
    }
}

/// A receiver that was killed goes on with the blocks of its working folder, from the start of the stream.
#[test]
fn a_slow_reader_gets_all_in_order_after_a_kill_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (group, content) = (group(), noise(3_000_000));
    fs::write(path("content"), &content).unwrap();
    let name = pipe(folder.path());
    let reading = |pauses: u32| {
        let name = name.clone();
        std::thread::spawn(move || {
            let (mut pipe, mut got) = (File::open(name).unwrap(), Vec::new());
            let mut chunk = vec![0; 50_000];
            while let Ok(bytes @ 1..) = pipe.read(&mut chunk) {
                got.extend_from_slice(&chunk[..bytes]);
                std::thread::sleep(Duration::from_millis(5) * pauses);
            }
            got
        })
    };
    let first = reading(0);
    let mut killed = receive(&group, folder.path(), &name, Stdio::null());
    let sender = send(&group, &path("content"));
    killed.kill_after(Duration::from_millis(700));
    assert!(content.starts_with(&first.join().unwrap()));
    fs::remove_file(path("events")).unwrap();
    let second = reading(10);
    let receiver = receive(&group, folder.path(), &name, Stdio::null());
    check_ok(receiver, sender);
    assert!(second.join().unwrap() == content);
}

#[test]
fn a_reader_that_ends_ends_the_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let group = group();
    fs::write(folder.path().join("content"), noise(3_000_000)).unwrap();
    let name = pipe(folder.path());
    let reader = {
        let name = name.clone();
        std::thread::spawn(move || File::open(name).unwrap().read_exact(&mut [0; 100_000]).unwrap())
    };
    let receiver = receive(&group, folder.path(), &name, Stdio::null());
    let sender = send(&group, &folder.path().join("content"));
    reader.join().unwrap();
    let received = receiver.end();
    assert_eq!(received.code, Some(7), "{}", received.stderr);
    assert!(received.stderr.contains("has ended before the content was whole"), "{}", received.stderr);
    sender.interrupt();
    sender.end();
}

#[test]
fn a_session_of_several_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let group = group();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    for name in ["one", "two"] {
        fs::write(files.join(name), name).unwrap();
    }
    let receiver = receive(&group, folder.path(), "-", Stdio::null());
    let sender = send(&group, &files);
    let received = receiver.end();
    assert_eq!(received.code, Some(5), "{}", received.stderr);
    assert!(
        received.stderr.contains("'-' takes one file, and 'files/one' came first"),
        "{}",
        received.stderr
    );
    sender.interrupt();
    sender.end();
}

#[test]
fn other_places_are_refused_with_advice() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let file = file.path().to_str().unwrap();
    for (to, code, advice) in [
        (file, 7, "receive files into a folder with --out"),
        ("/tmp", 7, "receive files into a folder with --out"),
        ("/dev/headwater-none", 7, "does not exist; --to takes a device, a pipe or '-'"),
    ] {
        let refused = run(&["receive", "--interface", "lo", "--to", to]);
        assert_eq!(refused.code, Some(code), "{}", refused.stderr);
        assert!(refused.stderr.contains(advice), "{}", refused.stderr);
    }
    assert_eq!(run(&["receive", "--to", "-", "--json"]).code, Some(2));
    assert_eq!(run(&["receive"]).code, Some(2));
}

/// The system lets nobody write to a pipe that nobody reads, and opening waits without a word.
#[test]
fn a_receiver_that_waits_for_the_reader_of_a_pipe_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, said) = (pipe(folder.path()), folder.path().join("said"));
    let mut command = headwater();
    command.args(["receive", "--interface", "lo", "--group", &group(), "--to", &pipe]);
    let mut receiver = command.stderr(File::create(&said).unwrap()).spawn().unwrap();
    let began = std::time::Instant::now();
    while !fs::read_to_string(&said).unwrap().contains("opens the pipe") {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing was said");
        std::thread::sleep(Duration::from_millis(20));
    }
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}
