//! Receivers that follow a sender from session to session, and daemons.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::command::{Running, group, headwater, receive, run, send};
use crate::transfer::noise;

/// A program that appends its argument to a file, and fails for a file of this name.
fn hook(folder: &Path, fails_for: &str) -> String {
    let (program, log) = (folder.join("hook.sh"), folder.join("hooked"));
    let text =
        format!("#!/bin/sh\necho \"$1\" >> '{}'\ncase $1 in */{fails_for}) exit 3; esac\n", log.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

fn hooked(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("hooked")).unwrap_or_default();
    let mut names: Vec<_> = text.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_follower_has_what_the_latest_session_has() {
    follow(false);
}

#[test]
fn a_follower_follows_a_folder_that_becomes_a_file_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, group) = (folder.path().join("files"), folder.path().join("out"), group());
    fs::create_dir_all(files.join("name")).unwrap();
    fs::write(files.join("name/a"), "in a folder").unwrap();
    fs::write(files.join("gone"), "gone").unwrap();
    let mut follower = receive(&group, &out, &["--follow", "--delete"]);
    let mut session = |is_folder: bool| {
        let sender = send(&group, &files, &[]);
        let whole = if is_folder { "files/name/a" } else { "files/name" };
        let content = |at: &Path| fs::read_to_string(at).unwrap_or_default();
        let began = std::time::Instant::now();
        while content(&out.join(whole)) != content(&files.join(&whole["files/".len()..])) {
            assert!(began.elapsed().as_secs() < 40, "{whole} does not come");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        // The folder of the next session follows the end of this session.
        follower.wait_for("session:completed\",\"refused\":0");
        sender.interrupt();
        sender.end();
    };
    session(true);
    fs::remove_dir_all(files.join("name")).unwrap();
    fs::remove_file(files.join("gone")).unwrap();
    fs::write(files.join("name"), "a file").unwrap();
    session(false);
    fs::remove_file(files.join("name")).unwrap();
    fs::create_dir(files.join("name")).unwrap();
    fs::write(files.join("name/a"), "in a folder again").unwrap();
    session(true);
    follower.interrupt();
    let followed = follower.end();
    assert_eq!(followed.code, Some(0), "{}", followed.stderr);
    assert!(!out.join("files/gone").exists());
}

#[test]
fn a_follower_of_bundles_has_what_the_latest_session_has() {
    follow(true);
}

fn follow(is_bundled: bool) {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, group) = (folder.path().join("files"), folder.path().join("out"), group());
    fs::create_dir_all(files.join("old")).unwrap();
    for name in ["stays", "changes", "old/goes"] {
        fs::write(files.join(name), name).unwrap();
    }
    // Enough for a bundle.
    let many = if is_bundled { 100 } else { 0 };
    (0..many).for_each(|number| fs::write(files.join(format!("{number}")), noise(number)).unwrap());
    fs::create_dir(&out).unwrap();
    fs::write(out.join("own"), "of the user").unwrap();
    let hook = hook(folder.path(), "nothing");
    let mut follower = receive(&group, &out, &["--follow", "--delete", "--exec", &hook]);
    let first = send(&group, &files, &[]);
    follower.wait_for("session:ended");
    first.interrupt();
    first.end();
    assert_eq!(fs::read_to_string(out.join("files/old/goes")).unwrap(), "old/goes");

    fs::remove_dir_all(files.join("old")).unwrap();
    fs::write(files.join("changes"), "has changed").unwrap();
    fs::write(files.join("comes"), "comes").unwrap();
    let second = send(&group, &files, &[]);
    follower.wait_for("session:ended");
    // The next session is awaited: the files that are gone have been deleted.
    follower.wait_for("channel:joined");
    let next = std::time::Instant::now();
    while hooked(folder.path()).len() < 5 + many as usize && next.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    follower.interrupt();
    let followed = follower.end();
    second.interrupt();
    second.end();
    assert_eq!(followed.code, Some(0), "a follower that has everything: {}", followed.stderr);
    assert_eq!(fs::read_to_string(out.join("files/changes")).unwrap(), "has changed");
    assert_eq!(fs::read_to_string(out.join("files/comes")).unwrap(), "comes");
    assert!(!out.join("files/old").exists() && out.join("own").exists());
    assert!(followed.stderr.contains("files/old/goes: deleted"), "{}", followed.stderr);
    assert!(!followed.stderr.contains("not the requested session"), "{}", followed.stderr);
    let named: Vec<_> =
        hooked(folder.path()).into_iter().filter(|name| name.parse::<u32>().is_err()).collect();
    assert_eq!(named, ["changes", "changes", "comes", "goes", "stays"]);
    assert_eq!(hooked(folder.path()).len(), 5 + many as usize, "no program for a member that was there");
}

#[test]
fn a_program_that_fails_for_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, group) = (folder.path().join("files"), folder.path().join("out"), group());
    fs::create_dir(&files).unwrap();
    fs::write(files.join("bad"), "content").unwrap();
    fs::write(files.join("good"), "content").unwrap();
    let hook = hook(folder.path(), "bad");
    let receiver = receive(&group, &out, &["--exec", &hook]);
    let sender = send(&group, &files, &[]);
    let received = receiver.end();
    sender.interrupt();
    sender.end();
    assert_eq!(received.code, Some(1), "{}", received.stderr);
    assert!(received.stderr.contains("files/bad': exit status: 3"), "{}", received.stderr);
    assert!(out.join("files/bad").exists() && out.join("files/good").exists());
    assert_eq!(hooked(folder.path()), ["bad", "good"]);
}

#[test]
fn a_configuration_is_checked_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    let carousel = "[[carousel]]\nname = \"images\"\npath = \"/srv/my images\"\nmax-rate = \"20M\"\n";
    fs::write(&config, carousel).unwrap();
    let path = config.to_str().unwrap();
    let checked = run(&["serve", "--check", "--config", path]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert_eq!(checked.stdout, "images: headwater send --max-rate=20M --links=skip -- '/srv/my images'\n");
    fs::write(&config, carousel.replace("max-rate", "max-rat")).unwrap();
    for more in [&["--check"][..], &[]] {
        let refused = run(&[&["serve", "--config", path], more].concat());
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        for part in ["serve.toml", "[[carousel]] 'images'", "did you mean 'max-rate'?"] {
            assert!(refused.stderr.contains(part), "{}", refused.stderr);
        }
    }
    let missing = run(&["serve", "--config", folder.path().join("none").to_str().unwrap()]);
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
}

#[test]
fn services_of_a_daemon_end_with_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, group) = (folder.path().join("files"), folder.path().join("out"), group());
    fs::create_dir(&files).unwrap();
    fs::write(files.join("file"), "content").unwrap();
    let config = folder.path().join("serve.toml");
    let network = format!("interface = \"lo\"\ngroup = \"{group}\"");
    let text = format!(
        "[[carousel]]\nname = \"sender\"\npath = {files:?}\n{network}\n[[receive]]\nname = \"receiver\"\nout = {out:?}\n{network}\n"
    );
    fs::write(&config, text).unwrap();
    let daemon = Running::start(headwater().args(["serve", "--config"]).arg(&config));
    let began = std::time::Instant::now();
    while !out.join("files/file").exists() {
        assert!(began.elapsed().as_secs() < 60, "nothing came");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    daemon.signal("-TERM");
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("receiver: files/file: 7 B, verified"), "{}", ended.stderr);
}
