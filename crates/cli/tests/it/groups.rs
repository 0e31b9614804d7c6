//! Sessions on few groups: what is refused, what a dry run tells, a transfer, and what the doctor finds.

use std::fs;

use crate::command::{Running, group, headwater, run};

#[test]
fn numbers_of_groups_that_cannot_work_are_usage_errors() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), [7; 100]).unwrap();
    let path = file.path().to_str().unwrap();
    let refused = |more: &[&str], hints: &[&str]| {
        let run = run(&[&["send", "--dry-run", "--interface", "lo", path], more].concat());
        assert_eq!(run.code, Some(2), "{more:?}: {}{}", run.stdout, run.stderr);
        for hint in hints {
            assert!(run.stderr.contains(hint), "{more:?} does not say '{hint}': {}", run.stderr);
        }
    };
    refused(&["--groups", "0"], &["1..=256"]);
    refused(&["--groups", "257"], &["1..=256"]);
    let up_to = ["--max-rate", "100M"];
    refused(&[&["--groups", "4"], &up_to[..]].concat(), &["4 groups are too few", "at least 11 are needed"]);
    refused(&[&["--groups", "10"], &up_to[..]].concat(), &["at least 11 are needed", "shorter silence"]);
    refused(&["--silence", "10h", "--groups", "256"], &["too few"]);
    let of = |control| ["--congestion-control", control];
    refused(
        &["--groups", "16", "--rate", "1M"],
        &["--groups is for m2c, webrc and sim", "leave --groups out"],
    );
    refused(&[&of("flid-dl")[..], &["--groups", "16"]].concat(), &["flid-dl has a group for each step"]);
    refused(&[&of("rainbow")[..], &["--groups", "16"]].concat(), &["rainbow sends by unicast"]);
    refused(&[&of("le-sbcc")[..], &["--groups", "16"]].concat(), &["le-sbcc sends to one group"]);
    refused(&[&of("sim")[..], &["--groups", "65"]].concat(), &["too many for sim: at most 64"]);
    refused(&[&of("sim")[..], &["--silence", "10s"]].concat(), &["--silence is for m2c and webrc"]);
}

#[test]
fn a_dry_run_tells_how_many_groups_are_used() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), [7; 100]).unwrap();
    let groups = |more: &[&str]| {
        let path = file.path().to_str().unwrap();
        let base = ["send", "--dry-run", "--interface", "lo", "--max-rate", "100M", path];
        let run = run(&[&base[..], more].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let line = run.stdout.lines().find(|line| line.starts_with("rate ")).unwrap().to_owned();
        let number = line.split(" on ").last().unwrap().split(' ').next().unwrap();
        number.parse::<u16>().unwrap_or_else(|_| panic!("{line}"))
    };
    assert_eq!(groups(&[]), 108);
    assert_eq!(groups(&["--silence", "10s"]), 50);
    for most in [11, 16, 32, 64, 107] {
        for control in ["m2c", "webrc"] {
            let used = groups(&["--congestion-control", control, "--groups", &most.to_string()]);
            assert!(used <= most && used >= most / 3, "{control}: {used} of {most}");
        }
    }
    assert_eq!(groups(&["--congestion-control", "webrc", "--groups", "256"]), 49);
}

/// The doctor listens to the session meanwhile.
#[test]
fn a_session_on_16_groups_arrives_whole() {
    for control in ["m2c", "webrc"] {
        let folder = tempfile::tempdir().unwrap();
        let (file, out) = (folder.path().join("a.bin"), folder.path().join("out"));
        let content = crate::transfer::noise(1_500_000);
        fs::write(&file, &content).unwrap();
        let group = group();
        let mut receiving = headwater();
        receiving.args(["receive", "--interface", "lo", "--json", "--timeout", "60s", "--group", &group]);
        let mut receiving = Running::start(receiving.arg("--out").arg(&out));
        receiving.wait_for("channel:joined");
        let mut sending = headwater();
        sending.args(["send", "--interface", "lo", "--json", "--group", &group, "--groups", "16"]);
        sending.args(["--max-rate", "20M", "--base-rate", "1M", "--congestion-control", control]);
        let sending = Running::start(sending.arg(&file));
        let looked = (control == "m2c")
            .then(|| run(&["doctor", "--json", "--interface", "lo", "--wait", "3s", "--group", &group]));
        let received = receiving.end();
        sending.interrupt();
        let sent = sending.end();
        assert_eq!(received.code, Some(0), "{}{}", received.stderr, sent.stderr);
        assert!(fs::read(out.join("a.bin")).unwrap() == content, "{control}");
        let started = sent.json().into_iter().find(|line| line["event"] == "session:started").unwrap();
        let channels = started["control"]["channels"].as_u64().unwrap();
        assert!((8..=16).contains(&channels), "{started}");
        let Some(looked) = looked else { continue };
        let checks = looked.json();
        let groups = checks.iter().find(|line| line["check"] == "groups");
        let groups = groups.unwrap_or_else(|| panic!("no check of groups: {}", looked.stdout));
        assert_eq!(groups["verdict"], "ok", "{groups}");
        assert!(groups["seen"].as_str().unwrap().contains("bring packets"), "{groups}");
    }
}
