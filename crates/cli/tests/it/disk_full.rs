//! Disks that fill up: a small file system of the test's own, in a mount namespace that goes with it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::command::{Running, group, headwater};
use crate::transfer::{field, noise};

/// Content and, while its only block is decoded, as many repair symbols.
const DISK_BYTES: usize = 24 << 20;
const FILE_BYTES: u32 = 10_000_000;

/// A tmpfs that a process of its own has mounted, and keeps until it ends.
struct SmallDisk {
    keeper: Child,
    path: PathBuf,
}

impl SmallDisk {
    fn mount(at: &Path) -> Self {
        let script = format!(
            "mount -t tmpfs -o size={DISK_BYTES} none '{}' && echo mounted && exec cat",
            at.display()
        );
        let mut keeper = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test needs `unshare` (util-linux)");
        let mut answer = String::new();
        BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
        assert_eq!(
            answer, "mounted\n",
            "the test needs root or user namespaces to mount a small file system"
        );
        let path = Path::new("/proc").join(keeper.id().to_string()).join("root");
        let path = path.join(at.strip_prefix("/").unwrap());
        Self { keeper, path }
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut ballast = fs::File::create(self.path.join("ballast")).unwrap();
        let chunk = [1; 4096];
        while ballast.write_all(&chunk).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.path.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.keeper.kill();
        let _status = self.keeper.wait();
    }
}

fn receive(group: &str, out: &Path) -> Command {
    let mut command = headwater();
    command
        .args(["receive", "--interface", "lo", "--json", "--timeout", "30s", "--group", group, "--out"])
        .arg(out.file_name().unwrap());
    // A confined process does not get into another one's root, where the disk is.
    command.current_dir(out.parent().unwrap());
    command
}

#[test]
fn a_disk_that_fills_up_ends_the_session_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (file, at) = (folder.path().join("file"), folder.path().join("disk"));
    fs::write(&file, noise(FILE_BYTES)).unwrap();
    fs::create_dir(&at).unwrap();
    let disk = SmallDisk::mount(&at);
    let out = disk.path.join("out");
    let group = group();
    let mut sending = headwater();
    sending.args(["send", "--interface", "lo", "--json", "--quiet", "--rate", "20M", "--group", &group]);
    let mut sending = Running::start(sending.arg(&file));
    sending.wait_for("session:started");

    let mut first = Running::start(&mut receive(&group, &out));
    first.wait_for("object:announced");
    std::thread::sleep(std::time::Duration::from_millis(700));
    disk.fill();
    let first = first.end();
    assert_eq!(first.code, Some(7), "{}", first.stderr);
    assert!(first.stderr.contains("free some space"), "{}", first.stderr);
    assert!(!out.join("file").exists(), "nothing partial has the final name");
    // As long as there is no room nothing is lost by trying.
    let second = Running::start(&mut receive(&group, &out)).end();
    assert_eq!(second.code, Some(7), "{}", second.stderr);
    assert!(second.stderr.contains("free some space"), "{}", second.stderr);
    disk.make_room();
    let third = Running::start(&mut receive(&group, &out)).end();
    sending.interrupt();
    sending.end();
    assert_eq!(third.code, Some(0), "{}", third.stderr);
    assert!(fs::read(out.join("file")).unwrap() == noise(FILE_BYTES), "the file differs");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "nothing but the file stays");
    let resumed = field(&third.stdout, "resumed");
    assert!(resumed > 300, "{resumed} symbols were kept of those that came in 0.7 s, some 1200");
}

#[test]
fn a_file_that_does_not_fit_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (file, at) = (folder.path().join("file"), folder.path().join("disk"));
    fs::write(&file, noise(FILE_BYTES * 2)).unwrap();
    fs::create_dir(&at).unwrap();
    let disk = SmallDisk::mount(&at);
    let group = group();
    let mut sending = headwater();
    sending.args(["send", "--interface", "lo", "--json", "--quiet", "--rate", "20M", "--group", &group]);
    let mut sending = Running::start(sending.arg(&file));
    sending.wait_for("session:started");
    let receiving = Running::start(&mut receive(&group, &disk.path.join("out"))).end();
    sending.interrupt();
    sending.end();
    assert_eq!(receiving.code, Some(7), "{}", receiving.stderr);
    assert!(receiving.stderr.contains("free some space"), "{}", receiving.stderr);
}
