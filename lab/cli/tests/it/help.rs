//! Help, completions and man pages.

use crate::command::run;

#[test]
fn help_lists_the_commands_and_the_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    for command in ["simulate ", "testbed ", "arena ", "verdict ", "bench ", "generate "] {
        assert!(help.stdout.contains(command), "{command} is missing");
    }
    for code in ["0  done", "2  usage", "3  network", "7  disk", "130  int"] {
        assert!(help.stdout.contains(code), "exit code '{code}' is missing");
    }
}

#[test]
fn completions_and_man_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&["generate", folder.path().to_str().unwrap()]).code, Some(0));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("headwater-lab.bash").contains("simulate"));
    assert!(read("headwater-lab-testbed-run.1").contains("headwater\\-lab testbed run"));
}

#[test]
fn a_reader_of_a_table_may_leave_early() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_headwater-lab"));
    let mut child = command.args(["analyse", "markov"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
