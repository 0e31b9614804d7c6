//! Files by request on loopback.

use std::fs;

use serde_json::Value;

use crate::command::{Running, headwater, run};
use crate::transfer::noise;

#[test]
fn a_file_is_asked_for_and_both_ends_and_the_capture_tell_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, out, capture) = (path("a.bin"), path("out"), path("received.pcap"));
    let content: Vec<u8> = (0..50_000_u32).flat_map(|at| (at * 7_919).to_be_bytes()).collect();
    fs::write(&file, &content).unwrap();
    let control = ["--congestion-control", "rainbow", "--listen", "127.0.0.1:0", "--json"];
    let mut sending = Running::start(headwater().args(["send", &file]).args(control));
    let started: Value = serde_json::from_str(sending.wait_for("session:started")).unwrap();
    let source = started["group"].as_str().unwrap().to_owned();
    let ask = ["receive", "--ask", &source, "--out", &out, "--timeout", "30s", "--json", "--pcap", &capture];
    let received = run(&ask);
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    assert_eq!(fs::read(folder.path().join("out/a.bin")).unwrap(), content);
    let last = received.json().pop().unwrap();
    assert_eq!((&last["outcome"], &last["control"]), (&"completed".into(), &"rainbow".into()));
    assert!(last["window"].as_u64().unwrap() > 1 && last["duplicates"] == 0, "{last}");
    let shown = run(&["inspect", "--json", &capture]);
    let packets = last["packets"].as_u64().unwrap();
    assert!(
        // The challenge is none of the session's packets.
        packets > 140 && u64::try_from(shown.json().len()).unwrap() + 1 >= packets,
        "{} of {packets}",
        shown.json().len()
    );
    sending.interrupt();
    let sent = sending.end();
    assert_eq!(sent.code, Some(130), "{}", sent.stderr);
    let last = sent.json().pop().unwrap();
    assert_eq!((&last["asked"]["challenged"], &last["asked"]["ignored"]), (&1.into(), &0.into()), "{last}");
    assert!(last["asked"]["requests"].as_u64().unwrap() + 1 >= packets, "{last}");
    // Nobody is there any more.
    assert_eq!(run(&["receive", "--ask", &source, "--out", &out, "--timeout", "500ms"]).code, Some(4));
}

#[test]
fn a_source_on_request_knows_its_receivers_and_ends_once_all_are_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, receipts) = (path("a.bin"), path("receipts"));
    fs::write(&file, noise(300_000)).unwrap();
    let control = ["--congestion-control", "rainbow", "--listen", "127.0.0.1:0", "--json"];
    let ends = ["--until", "3", "--start-when", "3:20s", "--receipts", &receipts];
    let mut sending = Running::start(headwater().args(["send", &file]).args(control).args(ends));
    let started: Value = serde_json::from_str(sending.wait_for("session:started")).unwrap();
    let source = started["group"].as_str().unwrap().to_owned();
    let mut relay = Running::start(headwater().args(["relay", "--listen", "127.0.0.1:0", "--json"]));
    let started: Value = serde_json::from_str(relay.wait_for("relay:started")).unwrap();
    let via = started["listen"][0].as_str().unwrap().to_owned();
    let receiving = ["hall", "attic", "cellar"].map(|name| {
        let out = path(name);
        let ask = ["receive", "--ask", &source, "--out", &out, "--timeout", "30s", "--json", "--name", name];
        let by_relay = ["--via", &via];
        Running::start(headwater().args(ask).args(if name == "cellar" { &by_relay[..] } else { &[] }))
    });
    for receiver in receiving {
        let received = receiver.end();
        assert_eq!(received.code, Some(0), "{}", received.stderr);
    }
    let sent = sending.end();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert!(sent.stderr.contains("receivers: 3 done, so the session has ended"), "{}", sent.stderr);
    let lines = fs::read_to_string(&receipts).unwrap();
    let names = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].clone());
    let mut names: Vec<Value> = names.collect();
    names.sort_by_key(Value::to_string);
    assert_eq!(names, ["attic", "cellar", "hall"]);
    relay.interrupt();
    relay.end();
}
