//! Keys: signed sessions, trusted and untrusted senders, `keygen`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::{Run, Running, group, headwater, run};

/// Makes a key and returns the public key.
fn keygen(path: &Path) -> String {
    let made = run(&["keygen", path.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    made.stdout.trim().to_owned()
}

/// Sends a small file for a while, and receives it.
fn transfer(folder: &Path, group: &str, send: &[&str], receive: &[&str]) -> Run {
    let (file, out) = (folder.join("content"), folder.join("out"));
    fs::write(&file, vec![7; 50_000]).unwrap();
    let _old = fs::remove_dir_all(&out);
    let mut sending = headwater();
    sending.env("XDG_CONFIG_HOME", folder.join("sender"));
    sending.args(["send", "--interface", "lo", "--quiet", "--rate", "4M", "--group", group]).args(send);
    let sending = Running::start(sending.arg(&file));
    let mut receiving = headwater();
    receiving.env("XDG_CONFIG_HOME", folder.join("receiver")).env("XDG_STATE_HOME", folder.join("receiver"));
    receiving.args(["receive", "--interface", "lo", "--json", "--timeout", "3s", "--group", group]);
    let received = Running::start(receiving.args(receive).arg("--out").arg(&out)).end();
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(sent.code, Some(130), "{}", sent.stderr);
    assert_eq!(out.join("content").exists(), received.code == Some(0), "{}", received.stderr);
    received
}

fn has_event(run: &Run, event: &str) -> bool {
    run.json().iter().any(|line| line["event"] == event)
}

#[test]
fn sessions_are_signed_and_their_senders_are_known_again() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, group) = (folder.path(), group());
    let first = transfer(folder, &group, &[], &[]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(
        first.stderr.contains("signed by SHA256:") && has_event(&first, "session:verified"),
        "{}",
        first.stderr
    );
    let known = fs::read_to_string(folder.join("receiver/headwater/known_senders")).unwrap();
    assert!(known.starts_with(&group) && known.contains("ssh-ed25519"), "{known}");
    let mode = fs::metadata(folder.join("sender/headwater/id_ed25519")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    assert_eq!(transfer(folder, &group, &[], &[]).code, Some(0), "the same sender again");
    let other = folder.join("other");
    let public = keygen(&other);
    let other = other.to_str().unwrap();
    let refused = transfer(folder, &group, &["--sign", other], &[]);
    assert_eq!(refused.code, Some(8), "{}", refused.stderr);
    assert!(refused.stderr.contains("remove the line") && has_event(&refused, "session:untrusted"));
    let unsigned = transfer(folder, &group, &["--no-sign"], &[]);
    assert_eq!(unsigned.code, Some(8), "{}", unsigned.stderr);
    for trust in [&["--trust", &public][..], &["--trust", &format!("{other}.pub")], &["--trust", "any"]] {
        let taken = transfer(folder, &group, &["--sign", other], trust);
        assert_eq!(taken.code, Some(0), "{trust:?}: {}", taken.stderr);
    }
}

#[test]
fn unsigned_sessions_are_received_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, group) = (folder.path(), group());
    let taken = transfer(folder, &group, &["--no-sign"], &[]);
    assert_eq!(taken.code, Some(0), "{}", taken.stderr);
    assert!(
        taken.stderr.contains("is not signed") && has_event(&taken, "session:unsigned"),
        "{}",
        taken.stderr
    );
    let unchecked = transfer(folder, &group, &[], &["--unsigned"]);
    assert_eq!(unchecked.code, Some(0), "{}", unchecked.stderr);
    let key = keygen(&folder.join("key"));
    let refused = transfer(folder, &group, &["--no-sign"], &["--trust", &key]);
    assert_eq!(refused.code, Some(8), "{}", refused.stderr);
}

#[test]
fn keys_of_other_programs_load_and_other_kinds_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = path("content");
    fs::write(&file, "content").unwrap();
    let dry_run = |key: &str| run(&["send", "--dry-run", "--interface", "lo", "--sign", key, &file]);
    let make = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if make("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path("ssh")]) {
        assert_eq!(dry_run(&path("ssh")).code, Some(0));
    }
    if make("ssh-keygen", &["-q", "-t", "ed25519", "-N", "secret", "-f", &path("locked")]) {
        let locked = dry_run(&path("locked"));
        assert_eq!(locked.code, Some(2), "without a terminal no passphrase is asked for");
        assert!(locked.stderr.contains("passphrase"), "{}", locked.stderr);
    }
    if make("openssl", &["genpkey", "-algorithm", "ed25519", "-out", &path("pem")]) {
        fs::set_permissions(path("pem"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(dry_run(&path("pem")).code, Some(0), "{}", dry_run(&path("pem")).stderr);
    }
    for (kind, name) in [("rsa", "RSA"), ("ecdsa", "ECDSA")] {
        if make("ssh-keygen", &["-q", "-t", kind, "-N", "", "-f", &path(kind)]) {
            let refused = dry_run(&path(kind));
            assert_eq!(refused.code, Some(2), "{}", refused.stderr);
            assert!(refused.stderr.contains(name), "{}", refused.stderr);
            let refused = run(&["receive", "--out", &path("out"), "--trust", &path(&format!("{kind}.pub"))]);
            assert!(refused.code == Some(2) && refused.stderr.contains(name), "{}", refused.stderr);
        }
    }
    keygen(folder.path().join("open").as_path());
    fs::set_permissions(path("open"), fs::Permissions::from_mode(0o640)).unwrap();
    let refused = dry_run(&path("open"));
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("can be read by others") && !refused.stderr.contains("PRIVATE"));
    assert_eq!(run(&["keygen", &path("open")]).code, Some(7), "no key is overwritten");
}
