//! Folders with links, modes, times and holes, and older versions of files.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::command::{group, receive, run, send};
use crate::transfer::noise;

/// Receives a folder, and returns the diagnostics of the receiver, which ends with `code`.
fn transfer(files: &Path, out: &Path, sending: &[&str], receiving: &[&str], code: i32) -> String {
    let group = group();
    let receiver = receive(&group, out, receiving);
    let sender = send(&group, files, sending);
    let received = receiver.end();
    sender.interrupt();
    sender.end();
    assert_eq!(received.code, Some(code), "{}", received.stderr);
    received.stderr
}

/// Time, mode and number of names.
fn of(path: &Path) -> ((i64, i64), u32, u64) {
    let found = fs::symlink_metadata(path).unwrap();
    ((found.mtime(), found.mtime_nsec()), found.mode() & 0o7777, found.nlink())
}

fn tree(files: &Path) {
    fs::create_dir_all(files.join("below/empty")).unwrap();
    fs::write(files.join("below/file"), noise(5_000)).unwrap();
    fs::write(files.join("top"), noise(3_000)).unwrap();
    fs::set_permissions(files.join("below/file"), fs::Permissions::from_mode(0o4750)).unwrap();
    fs::hard_link(files.join("top"), files.join("below/again")).unwrap();
    symlink("../top", files.join("below/link")).unwrap();
    symlink("/etc/passwd", files.join("out")).unwrap();
    fs::set_permissions(files.join("below"), fs::Permissions::from_mode(0o750)).unwrap();
    let time =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000));
    for folder in ["below/empty", "below"] {
        File::open(files.join(folder)).unwrap().set_times(time).unwrap();
    }
}

#[test]
fn folders_have_the_senders_modes_and_times_and_no_links_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out) = (folder.path().join("files"), folder.path().join("out"));
    tree(&files);
    transfer(&files, &out, &["--links", "skip"], &[], 0);
    for name in ["below", "below/empty"] {
        let (sent, came) = (of(&files.join(name)), of(&out.join("files").join(name)));
        assert_eq!((sent.0, sent.1), (came.0, came.1), "{name}");
    }
    assert_eq!(of(&out.join("files/below/file")).1, 0o750, "no special bit");
    assert_eq!(of(&out.join("files/below/again")).2, 1, "no hard link");
    assert!(!out.join("files/below/link").is_symlink());
}

#[test]
fn links_come_as_links_if_both_ends_keep_them() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out) = (folder.path().join("files"), folder.path().join("out"));
    tree(&files);
    let both = ["--links", "keep", "--preserve", "modes,times,hardlinks"];
    transfer(&files, &out, &both, &both, 0);
    let out = out.join("files");
    assert_eq!(fs::read_link(out.join("below/link")).unwrap(), Path::new("../top"));
    assert_eq!(
        fs::metadata(out.join("top")).unwrap().ino(),
        fs::metadata(out.join("below/again")).unwrap().ino()
    );
    assert!(!out.join("out").is_symlink(), "the sender leaves a link out that leads elsewhere");
    assert!(!out.join("below/empty").exists(), "empty folders were not asked for");
    let (sent, came) = (of(&files.join("below")), of(&out.join("below")));
    assert_eq!((sent.0, sent.1), (came.0, came.1));
}

#[test]
fn holes_stay_holes() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out) = (folder.path().join("files"), folder.path().join("out"));
    fs::create_dir(&files).unwrap();
    let image = File::create(files.join("image")).unwrap();
    image.set_len(40_000_000).unwrap();
    image.write_all_at(&noise(100_000), 20_000_000).unwrap();
    transfer(&files, &out, &["--rate", "100M"], &[], 0);
    let (sent, came) = (image.metadata().unwrap(), fs::metadata(out.join("files/image")).unwrap());
    assert_eq!(fs::read(files.join("image")).unwrap(), fs::read(out.join("files/image")).unwrap());
    assert!(came.blocks() <= sent.blocks() + 64, "{} and {} blocks", came.blocks(), sent.blocks());
}

#[test]
fn an_older_version_elsewhere_is_a_base() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, old) =
        (folder.path().join("files"), folder.path().join("out"), folder.path().join("old"));
    fs::create_dir(&files).unwrap();
    let mut content: Vec<u8> = (100_000..100_040).flat_map(noise).collect();
    fs::write(&old, &content).unwrap();
    content[3] ^= 1;
    fs::write(files.join("image"), &content).unwrap();
    transfer(&files, &out, &["--rate", "100M"], &["--base", old.to_str().unwrap()], 0);
    assert_eq!(fs::read(out.join("files/image")).unwrap(), content);
}

#[test]
fn a_base_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let said = run(&["receive", "--out", out.to_str().unwrap(), "--base", "/nowhere/old", "--timeout", "1s"]);
    assert_eq!(said.code, Some(7), "{}", said.stderr);
    assert!(said.stderr.contains("cannot take blocks from '/nowhere/old'"), "{}", said.stderr);
}

#[test]
fn unknown_kinds_of_metadata_are_named() {
    let said = run(&["receive", "--out", "x", "--preserve", "modes,user"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("user") && said.stderr.contains("xattrs"), "{}", said.stderr);
}

/// A file system of another system, which takes no mode and no time: the receiver's calls are answered by the
/// tracer. Returns the end of the receiver and the calls that it made.
fn receive_without_metadata(receiving: &[&str]) -> (crate::command::Run, String) {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, log) =
        (folder.path().join("files"), folder.path().join("out"), folder.path().join("log"));
    tree(&files);
    // The working file has another mode than the file.
    fs::set_permissions(files.join("top"), fs::Permissions::from_mode(0o440)).unwrap();
    let group = group();
    let mut command = std::process::Command::new("strace");
    command.args([
        "-f",
        "-qq",
        "-e",
        "trace=fchmod,utimensat",
        "-e",
        "inject=fchmod,utimensat:error=EPERM",
        "-o",
    ]);
    command.arg(&log).args([env!("CARGO_BIN_EXE_headwater"), "receive", "--interface", "lo", "--json"]);
    command.args(["--group", &group, "--out"]).arg(&out).args(receiving);
    command.env("XDG_CONFIG_HOME", folder.path()).env("XDG_STATE_HOME", folder.path());
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut receiver = crate::command::Running::start(&mut command);
    receiver.wait_for("channel:joined");
    let sender = send(&group, &files, &["--preserve", "all"]);
    let received = receiver.end();
    sender.interrupt();
    sender.end();
    assert_eq!(fs::read(files.join("top")).unwrap(), fs::read(out.join("files/top")).unwrap());
    (received, fs::read_to_string(log).unwrap())
}

#[test]
fn modes_and_times_that_cannot_be_set_are_a_warning() {
    let (received, calls) = receive_without_metadata(&[]);
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    let is_warned =
        received.stderr.matches("modes or times of 8 files and folders could not be set").count() == 1;
    assert!(is_warned && calls.contains("fchmod") && calls.contains("utimensat"), "{}", received.stderr);
    let (received, calls) = receive_without_metadata(&["--preserve", "none"]);
    assert_eq!((received.code, &*calls), (Some(0), ""), "{}", received.stderr);
    assert!(!received.stderr.contains("could not be set"), "{}", received.stderr);
}

/// Modes with special bits are an explicit request, as owners are.
#[test]
fn modes_that_were_asked_for_with_owners_are_a_failure_by_name() {
    let (received, _) = receive_without_metadata(&["--preserve", "all"]);
    assert_eq!(received.code, Some(5), "{}", received.stderr);
    assert!(received.stdout.contains("its mode or time cannot be set"), "{}", received.stdout);
}

#[test]
fn names_that_receivers_refuse_are_left_out_with_exit_code_9() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out) = (folder.path().join("files"), folder.path().join("out"));
    tree(&files);
    for name in ["note 12:30.txt", "\u{1b}[31mred", "CON"] {
        fs::write(files.join("below").join(name), "content").unwrap();
    }
    let group = group();
    let receiver = receive(&group, &out, &[]);
    let sender = send(&group, &files, &["--rate", "20M", "--passes", "3"]);
    let (received, sent) = (receiver.end(), sender.end());
    assert_eq!((received.code, sent.code), (Some(0), Some(9)), "{} {}", received.stderr, sent.stderr);
    assert!(out.join("files/below/file").exists());
    let named = sent.stderr.matches("has a name that receivers refuse").count();
    assert!(named == 3 && sent.stderr.contains("3 paths could not be sent"), "{}", sent.stderr);
    assert!(sent.stderr.contains("\\u{1b}[31mred") && !sent.stderr.contains('\u{1b}'), "{:?}", sent.stderr);
    fs::write(folder.path().join("expected"), "nowhere\n").unwrap();
    let expected = folder.path().join("expected");
    let options = ["--expect", expected.to_str().unwrap(), "--duration", "1s"];
    let missing = send(&group, &files, &options).end();
    assert_eq!(missing.code, Some(5), "{}", missing.stderr);
    let said = |text| missing.stderr.contains(text);
    assert!(said("nowhere has never reported; 3 paths could not be sent"), "{}", missing.stderr);
    let alone = run(&["send", "--interface", "lo", files.join("below/CON").to_str().unwrap()]);
    assert_eq!(alone.code, Some(2), "{}", alone.stderr);
    assert!(alone.stderr.contains("CON' has a name that receivers refuse"), "{}", alone.stderr);
}
