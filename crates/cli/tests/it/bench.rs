//! Every part of `bench` runs to its end and compares what it says it compares. How fast is nobody's test.

use crate::command::run;

/// The rows of a part, with little content and as few rounds as there may be.
fn rows(part: &str) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let run = run(&["bench", part, "--json", "--time", "30ms", "--size", "300kB", "--dir", dir]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it cleans up");
    run.json()
}

#[track_caller]
fn has(rows: &[serde_json::Value], what: &str, bare: &str) {
    let row = rows.iter().find(|row| row["what"] == what);
    let row = row.unwrap_or_else(|| panic!("no row '{what}' in {rows:?}"));
    assert_eq!(row["bare"], bare);
    assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{row}");
}

#[test]
fn net_measures_sessions_beside_bare_loops() {
    let rows = rows("net");
    for what in ["session, no code", "session, RaptorQ", "session, RaptorQ, 1 % loss"] {
        has(&rows, what, "bare sendmmsg and recvmmsg");
    }
    has(&rows, "1 Gbit/s, signed", "1 Gbit/s, unsigned");
    has(&rows, "sender alone, RaptorQ", "bare UDP_SEGMENT");
}

#[test]
fn fec_measures_codes_beside_a_hash() {
    let rows = rows("fec");
    for what in
        ["RaptorQ encode, K = 1002", "RaptorQ decode 10 % loss, K = 5008", "RS repair symbols, K = 64"]
    {
        has(&rows, what, "BLAKE3");
    }
}

#[test]
fn disk_measures_the_store_beside_a_plain_write() {
    has(&rows("disk"), "store, until every block is hashed", "sequential write");
}
