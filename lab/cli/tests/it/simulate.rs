//! `headwater-lab simulate`.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::command::{Run, records, run};

/// Small, but with chance, sweeps and runs.
const PLAN: &str = r#"
name = "tiny"
runs = 2
duration = "3s"
warm-up = "1s"
[topology]
kind = "dumbbell"
pairs = 2
bottleneck = { rate = "1M", delay = "10ms", queue = { packets = 10 }, loss = { kind = "bernoulli", p = 0.01 } }
access = { rate = "10M", delay = { uniform = ["1ms", "9ms"] } }
[flow.tcp]
kind = "tcp"
count = 2
from = "source-{i}"
to = "sink-{i}"
start = { uniform = ["0s", "1s"] }
[[sweep]]
"topology.bottleneck.rate" = ["1M", "2M", "4M"]
"#;

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new(plan: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("plan.toml"), plan).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn simulate(&self, args: &[&str]) -> Run {
        run(&[&["simulate", &self.path("plan.toml")][..], args].concat())
    }

    /// Runs into a folder, and gives its results.
    fn results(&self, out: &str, args: &[&str]) -> String {
        let run = self.simulate(&[&["--out", &self.path(out)][..], args].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        self.read(&format!("{out}/results.jsonl"))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(Path::new(&self.path(name))).unwrap()
    }
}

#[test]
fn the_same_bytes_come_of_any_number_of_jobs_and_shards() {
    let bench = Bench::new(PLAN);
    let one = bench.results("one", &["--jobs", "1"]);
    assert_eq!(one.lines().count(), 6);
    assert_eq!(bench.results("four", &["--jobs", "4"]), one);
    for shard in ["0/2", "1/2"] {
        let run = bench.simulate(&["--out", &bench.path("shards"), "--shard", shard]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    }
    assert_eq!(bench.read("shards/results.0-of-2.jsonl").lines().count(), 3);
    assert_eq!(bench.results("shards", &[]), one, "the last call only merges");
    assert_eq!(bench.read("four/manifest.json"), bench.read("one/manifest.json"));
    let stdout = bench.simulate(&["--json", "--jobs", "3"]).stdout;
    assert_eq!(stdout, one, "without a folder lines go to standard output, in the same order");
}

#[test]
fn what_is_there_is_not_run_again() {
    let bench = Bench::new(PLAN);
    let all = bench.results("out", &[]);
    let lines: Vec<&str> = all.lines().collect();
    // As a run that was killed leaves it: three results in any order, and the beginning of a fourth.
    fs::remove_file(bench.path("out/results.jsonl")).unwrap();
    let journal = format!("{}\n{}\n{}\n{}", lines[4], lines[0], lines[2], &lines[1][..50]);
    fs::write(bench.path("out/results.journal"), journal).unwrap();
    let run = bench.simulate(&["--out", &bench.path("out")]);
    assert!(run.stderr.contains("3 of 6 runs have results already"), "{}", run.stderr);
    assert_eq!(bench.read("out/results.jsonl"), all);
    assert!(!Path::new(&bench.path("out/results.journal")).exists());
    let again = bench.simulate(&["--out", &bench.path("out")]);
    assert!(again.stderr.contains("6 of 6 runs"), "{}", again.stderr);
    assert!(again.stdout.contains("topology.bottleneck.rate = \"4M\", 2 runs"), "{}", again.stdout);
    // A plan with a run more goes on from there.
    fs::write(bench.path("plan.toml"), PLAN.replace("runs = 2", "runs = 3")).unwrap();
    let more = bench.simulate(&["--out", &bench.path("out")]);
    assert!(more.stderr.contains("6 of 9 runs have results already"), "{}", more.stderr);
}

#[test]
fn results_of_another_plan_are_never_overwritten() {
    let bench = Bench::new(PLAN);
    let all = bench.results("out", &[]);
    let other = bench.simulate(&["--out", &bench.path("out"), "--seed", "9"]);
    assert_eq!(other.code, Some(7));
    assert!(other.stderr.contains("6 of 6 results there are not of this plan"), "{}", other.stderr);
    assert_eq!(bench.read("out/results.jsonl"), all);
}

#[test]
fn a_run_is_repeated_by_its_key() {
    let bench = Bench::new(PLAN);
    let listed = bench.simulate(&["--list"]).stdout;
    assert_eq!(listed.lines().count(), 6);
    assert!(listed.contains("run 2    topology.bottleneck.rate = \"4M\""), "{listed}");
    let key = listed.lines().nth(3).unwrap().split_whitespace().next().unwrap();
    let all = bench.simulate(&["--json"]).stdout;
    let one = bench.simulate(&["--cell", &key[..12], "--json"]);
    assert_eq!(Some(one.stdout.trim_end()), all.lines().nth(3), "{}", one.stderr);
    assert_eq!(one.json()[0]["key"], key);
    let wrong = bench.simulate(&["--cell", "00000000"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("see --list"), "{}", wrong.stderr);
    let reseeded = bench.simulate(&["--cell", key, "--seed", "2"]);
    assert_eq!(reseeded.code, Some(2), "a key is of one seed");
}

#[test]
fn one_run_is_written_down_on_request() {
    let bench = Bench::new(PLAN);
    let key = bench.simulate(&["--list", "--json"]).json()[0]["key"].as_str().unwrap().to_owned();
    let (pcap, events) = (bench.path("x.pcap"), bench.path("x.events"));
    let traced = bench.simulate(&["--cell", &key, "--json", "--pcap", &pcap, "--events", &events]);
    assert_eq!(traced.code, Some(0), "{}", traced.stderr);
    assert_eq!(traced.stdout, bench.simulate(&["--cell", &key, "--json"]).stdout, "watching changes nothing");
    let mut packets = pcap_file::pcap::PcapReader::new(fs::File::open(&pcap).unwrap()).unwrap();
    let mut count = 0;
    while let Some(packet) = packets.next_packet() {
        count += usize::from(packet.unwrap().data.len() >= 40);
    }
    assert!(count > 500, "{count}");
    assert!(records(&bench.read("x.events")).len() > 1, "drops are told");
    for option in ["--pcap", "--events"] {
        let all = bench.simulate(&[option, &bench.path("y")]);
        assert_eq!(all.code, Some(2));
        assert!(all.stderr.contains("--cell"), "{}", all.stderr);
        let plan = bench.simulate(&["--cell", &key, option, &bench.path("plan.toml")]);
        assert_eq!((plan.code, bench.read("plan.toml").as_str()), (Some(2), PLAN));
    }
}

#[test]
fn a_wrong_plan_is_shown_where_it_is_wrong() {
    let bench = Bench::new(&PLAN.replace("rate = \"10M\"", "rate = \"10MB\""));
    let run = bench.simulate(&[]);
    assert_eq!(run.code, Some(2));
    for hint in
        ["plan.toml:10:19", "'MB' is not a unit", " 10 | access = { rate = \"10MB\"", "nothing was done"]
    {
        assert!(run.stderr.contains(hint), "'{hint}' is missing in {}", run.stderr);
    }
    let missing = crate::command::run(&["simulate", "no/such.toml"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("no/such.toml"), "{}", missing.stderr);
}

#[test]
fn a_dry_run_checks_and_runs_nothing() {
    let bench = Bench::new(PLAN);
    let run = bench.simulate(&["--dry-run", "--out", &bench.path("out")]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for part in ["3 cells", "over topology.bottleneck.rate", "6 simulations", "6 nodes", "Nothing was run"] {
        assert!(run.stdout.contains(part), "'{part}' is missing in {}", run.stdout);
    }
    assert!(!Path::new(&bench.path("out")).exists());
}

/// The plans that users are shown must be right.
#[test]
fn every_plan_of_the_tree_can_be_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let mut plans = 0;
    for folder in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.extension().is_some_and(|extension| extension == "toml") {
                let run = run(&["simulate", "--dry-run", path.to_str().unwrap()]);
                assert_eq!(run.code, Some(0), "{}: {}", path.display(), run.stderr);
                plans += 1;
            }
        }
    }
    assert!(plans >= 5);
}
