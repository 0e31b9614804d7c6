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
