//! The demo, small.

use crate::command::run;

#[test]
fn the_demo_delivers_identical_copies_and_cleans_up() {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = crate::command::headwater();
    command.env("TMPDIR", scratch.path()).args(["demo", "--size", "1MB", "--rate", "8M", "--json"]);
    let demo = crate::command::Running::start(&mut command).end();
    assert_eq!(demo.code, Some(0), "{}", demo.stderr);
    let lines = demo.json();
    let compared: Vec<_> = lines.iter().filter(|line| line["event"] == "copy:compared").collect();
    let ends: Vec<_> = compared.iter().map(|line| line["end"].as_str().unwrap()).collect();
    assert_eq!(ends, ["steady", "late", "lossy"]);
    assert!(compared.iter().all(|line| line["identical"] == true));
    let ended =
        |end: &str| lines.iter().find(|line| line["event"] == "session:ended" && line["end"] == end).unwrap();
    assert!(ended("lossy")["lost"].as_u64().unwrap() > 0, "it drops packets");
    assert_eq!(ended("sender")["outcome"], "completed");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "the temporary folder is gone");
}

#[test]
fn the_demo_takes_a_file_and_ends_with_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.bin");
    std::fs::write(&file, vec![42; 200_000]).unwrap();
    let demo = run(&["demo", "--rate", "4M", file.to_str().unwrap()]);
    assert_eq!(demo.code, Some(0), "{}", demo.stderr);
    assert_eq!(demo.stdout.matches("identical").count(), 3, "{}", demo.stdout);
    for part in ["steady", "late", "lossy", "overhead", "unicast", "200 kB"] {
        assert!(demo.stdout.contains(part), "'{part}' is missing in {}", demo.stdout);
    }
}
