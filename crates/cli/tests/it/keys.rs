//! Keys: signed sessions, trusted and untrusted senders, `keygen`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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
    if received.code == Some(8) {
        assert_eq!(files(&out), Vec::<PathBuf>::new(), "no byte of an untrusted sender is written");
    }
    received
}

/// Files in a folder and below, hidden ones among them.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn has_event(run: &Run, event: &str) -> bool {
    run.json().iter().any(|line| line["event"] == event)
}

#[test]
fn a_damaged_record_of_known_senders_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("headwater")).unwrap();
    fs::write(folder.path().join("headwater/known_senders"), [0xff; 100]).unwrap();
    let mut command = headwater();
    command.env("XDG_STATE_HOME", folder.path());
    command.args(["receive", "--interface", "lo", "--timeout", "1s", "--group", &group(), "--out"]);
    let received = Running::start(command.arg(folder.path().join("out"))).end();
    assert_eq!(received.code, Some(7), "{}", received.stderr);
    assert!(received.stderr.contains("move it away"), "{}", received.stderr);
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
        assert!(command.status().unwrap().success(), "{program}");
    };
    make("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path("ssh")]);
    assert_eq!(dry_run(&path("ssh")).code, Some(0));
    make("ssh-keygen", &["-q", "-t", "ed25519", "-N", "secret", "-f", &path("locked")]);
    let locked = dry_run(&path("locked"));
    assert_eq!(locked.code, Some(2), "without a terminal no passphrase is asked for");
    assert!(locked.stderr.contains("start this command on a terminal"), "{}", locked.stderr);
    make("openssl", &["genpkey", "-algorithm", "ed25519", "-out", &path("pem")]);
    fs::set_permissions(path("pem"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(dry_run(&path("pem")).code, Some(0), "{}", dry_run(&path("pem")).stderr);
    for (kind, name) in [("rsa", "RSA"), ("ecdsa", "ECDSA")] {
        make("ssh-keygen", &["-q", "-t", kind, "-N", "", "-f", &path(kind)]);
        let refused = dry_run(&path(kind));
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(name) && refused.stderr.contains("ssh-keygen -t ed25519"));
        let refused = run(&["receive", "--out", &path("out"), "--trust", &path(&format!("{kind}.pub"))]);
        assert!(refused.code == Some(2) && refused.stderr.contains(name), "{}", refused.stderr);
    }
    let missing = dry_run(&path("missing"));
    assert!(missing.code == Some(2) && missing.stderr.contains("headwater keygen"), "{}", missing.stderr);
    keygen(folder.path().join("open").as_path());
    fs::set_permissions(path("open"), fs::Permissions::from_mode(0o640)).unwrap();
    let refused = dry_run(&path("open"));
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("chmod 600") && !refused.stderr.contains("PRIVATE"));
    let exists = run(&["keygen", &path("open")]);
    assert!(exists.code == Some(7) && exists.stderr.contains("name another file"), "{}", exists.stderr);
}

/// Makes a group key, or the next one.
fn group_keygen(path: &str, options: &[&str]) {
    let made = run(&[&["keygen", "--group", path][..], options].concat());
    assert_eq!((made.code, made.stdout.as_str()), (Some(0), ""), "{}", made.stderr);
}

#[test]
fn encrypted_sessions_are_received_by_the_group_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, group) = (folder.path(), group());
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (ours, others, capture) = (path("ours"), path("others"), path("capture"));
    group_keygen(&ours, &[]);
    group_keygen(&others, &[]);
    let encrypted = |key: &'static str| [&["--group-key"][..], &[key]].concat();
    let [ours, others] = [ours, others].map(|path| &*path.leak());
    let sent = [&encrypted(ours)[..], &["--pcap", &capture]].concat();
    let taken = transfer(folder, &group, &sent, &encrypted(ours));
    assert_eq!(taken.code, Some(0), "{}", taken.stderr);
    let captured = fs::read(&capture).unwrap();
    let has = |part: &[u8]| captured.windows(part.len()).any(|window| window == part);
    assert!(captured.len() > 50_000 && !has(&[7; 16]) && !has(b"FDT-Instance"), "nothing is in the clear");
    let strangers: [(&[&str], &str); 2] =
        [(&[], "--group-key FILE"), (&encrypted(others), "does not decrypt it")];
    for (options, advice) in strangers {
        let refused = transfer(folder, &group, &encrypted(ours), options);
        assert_eq!(refused.code, Some(10), "{}", refused.stderr);
        // Told when the session is found, and as the reason of the failure.
        assert_eq!(refused.stderr.matches(advice).count(), 2, "{}", refused.stderr);
        assert!(has_event(&refused, "session:unopened") && has_event(&refused, "session:verified"));
    }
    let clear = transfer(folder, &group, &[], &encrypted(ours));
    assert!(clear.code == Some(10) && clear.stderr.contains("leave --group-key out"), "{}", clear.stderr);

    // Members have the next key before the sender.
    let members = &*path("members").leak();
    fs::copy(ours, members).unwrap();
    group_keygen(members, &["--next"]);
    assert_eq!(transfer(folder, &group, &encrypted(ours), &encrypted(members)).code, Some(0));
    assert_eq!(transfer(folder, &group, &encrypted(members), &encrypted(members)).code, Some(0));
    let old = transfer(folder, &group, &encrypted(members), &encrypted(ours));
    assert!(old.code == Some(10) && old.stderr.contains("epoch 2"), "{}", old.stderr);
    // Unsigned, too; who trusts nobody cannot know whose content it is.
    let unsigned = [&encrypted(ours)[..], &["--no-sign"]].concat();
    let trusting = [&encrypted(ours)[..], &["--trust", "any"]].concat();
    assert_eq!(transfer(folder, &group, &unsigned, &trusting).code, Some(0));
    let unchecked = run(&[&["receive", "--out", &path("out"), "--unsigned"][..], &encrypted(ours)].concat());
    assert_eq!(unchecked.code, Some(2), "{}", unchecked.stderr);
}

#[test]
fn files_of_group_keys_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let refused = |code: i32, advice: &str| {
        let run = run(&["receive", "--out", &path("out"), "--group-key", &path("key")]);
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert!(run.stderr.contains(advice), "{}", run.stderr);
    };
    refused(2, "headwater keygen");
    fs::write(path("key"), "no key\n").unwrap();
    refused(2, "chmod 600");
    fs::set_permissions(path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    refused(2, "headwater keygen --group");
    let exists = run(&["keygen", "--group", &path("key")]);
    assert!(exists.code == Some(7) && exists.stderr.contains("name another file"), "{}", exists.stderr);
    assert_eq!(run(&["keygen", "--group"]).code, Some(2), "a group key has no default place");
    assert_eq!(run(&["keygen", "--next", &path("key")]).code, Some(2));
}

#[test]
fn known_senders_follow_an_announced_key() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, group) = (folder.path(), group());
    let next = folder.join("next");
    let public = keygen(&next);
    let next = next.to_str().unwrap();
    let known = || fs::read_to_string(folder.join("receiver/headwater/known_senders")).unwrap();

    let announced = transfer(folder, &group, &["--next-key", &format!("{next}.pub")], &[]);
    assert_eq!(announced.code, Some(0), "{}", announced.stderr);
    assert!(has_event(&announced, "session:next-key") && announced.stderr.contains("later sessions"));
    assert_eq!((known().matches("ssh-ed25519").count(), known().contains(&public)), (2, true), "{}", known());
    assert_eq!(transfer(folder, &group, &[], &[]).code, Some(0), "the key in use is trusted as before");
    // The clock of the next key's machine may be behind, but not by a day.
    let path = folder.join("receiver/headwater/known_senders");
    let text = known();
    let started = text.split_whitespace().nth(1).unwrap();
    let ahead =
        |seconds: u32| text.replace(started, &(started.parse::<u32>().unwrap() + seconds).to_string());
    fs::write(&path, ahead(86_400)).unwrap();
    assert_eq!(transfer(folder, &group, &["--sign", next], &[]).code, Some(8), "an old recording");
    fs::write(&path, ahead(60)).unwrap();
    let rotated = transfer(folder, &group, &["--sign", next], &[]);
    assert_eq!(rotated.code, Some(0), "{}", rotated.stderr);
    assert_eq!((known().matches("ssh-ed25519").count(), known().contains(&public)), (1, true), "{}", known());
    let old = transfer(folder, &group, &[], &[]);
    assert_eq!(old.code, Some(8), "the old key has had its time: {}", old.stderr);
    let file = folder.join("content").to_str().unwrap().to_owned();
    let unsigned = run(&["send", "--dry-run", "--no-sign", "--next-key", &public, &file]);
    assert_eq!(unsigned.code, Some(2), "{}", unsigned.stderr);
}

#[test]
fn an_older_session_is_refused_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, group) = (folder.path(), group());
    assert_eq!(transfer(folder, &group, &[], &[]).code, Some(0));
    let known = folder.join("receiver/headwater/known_senders");
    let text = fs::read_to_string(&known).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let started: u32 = words[1].parse().unwrap();
    let later = text.replace(words[1], &(started + 86_400).to_string());
    fs::write(&known, &later).unwrap();
    let refused = transfer(folder, &group, &[], &[]);
    assert_eq!(refused.code, Some(8), "{}", refused.stderr);
    assert!(refused.stderr.contains("an earlier session with --allow-older"), "{}", refused.stderr);
    assert_eq!(transfer(folder, &group, &[], &["--allow-older"]).code, Some(0));
    assert_eq!(fs::read_to_string(&known).unwrap(), later, "the newest session stays known");
}

#[test]
fn a_receiver_names_both_sessions_that_it_hears() {
    for sign in [&[][..], &["--no-sign"]] {
        let folder = tempfile::tempdir().unwrap();
        let (folder, group) = (folder.path(), group());
        let file = folder.join("content");
        fs::write(&file, vec![7; 400_000]).unwrap();
        let send = |tsi: &str| {
            let mut sending = headwater();
            sending.args(["send", "--interface", "lo", "--quiet", "--rate", "1M", "--group", &group]);
            Running::start(sending.args(["--tsi", tsi]).args(sign).arg(&file))
        };
        let senders = [send("1"), send("2")];
        let mut receiving = headwater();
        receiving.env("XDG_STATE_HOME", folder.join("receiver"));
        receiving.args(["receive", "--interface", "lo", "--timeout", "5s", "--group", &group]);
        let received = Running::start(receiving.arg("--out").arg(folder.join("out"))).end();
        for sender in senders {
            sender.interrupt();
            sender.end();
        }
        assert_eq!(received.code, Some(0), "{}", received.stderr);
        let names = |tsi: &str| received.stderr.contains(&format!("session {tsi} from 127.0.0.1"));
        let names_one = received.stderr.matches("is not received beside this session").count();
        assert!(names("1") && names("2") && names_one == 1, "{sign:?}: {}", received.stderr);
    }
}

#[test]
fn unfinished_files_are_continued_with_their_sender_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, group) = (folder.path(), group());
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let keys = ["one", "other"].map(|name| {
        keygen(&folder.join(name));
        path(name)
    });
    let content: Vec<u8> =
        (0..250_000_u32).flat_map(|word| word.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    fs::write(path("content"), &content).unwrap();
    let send = |key: &str| {
        let mut sending = headwater();
        sending.args([
            "send",
            "--interface",
            "lo",
            "--quiet",
            "--rate",
            "2M",
            "--tsi",
            "5",
            "--group",
            &group,
        ]);
        Running::start(sending.args(["--sign", key]).arg(path("content")))
    };
    // No record of senders: the folder alone remembers.
    let receive = |options: &[&str]| {
        let mut receiving = headwater();
        receiving.env_remove("XDG_STATE_HOME").env_remove("HOME");
        receiving.args(["receive", "--interface", "lo", "--json", "--timeout", "3s", "--group", &group]);
        Running::start(receiving.args(options).args(["--out", &path("out")]))
    };
    let sending = send(&keys[0]);
    let mut killed = receive(&[]);
    killed.wait_for("object:announced");
    killed.kill_after(std::time::Duration::from_millis(1_500));
    killed.end();
    sending.interrupt();
    sending.end();
    assert!(folder.join("out/.headwater-work/sender").exists());

    let sending = send(&keys[1]);
    let refused = receive(&[]).end();
    assert_eq!(refused.code, Some(8), "{}", refused.stderr);
    assert!(refused.stderr.contains("--trust any") && refused.stderr.contains("unfinished files"));
    assert!(refused.stderr.contains("senders are not remembered"), "{}", refused.stderr);
    let told = receive(&["--trust", "any"]).end();
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(told.stdout.contains("\"resumed\""), "what came from the other sender is the same content");
    sending.interrupt();
    sending.end();
    assert!(fs::read(path("out/content")).unwrap() == content);
}
