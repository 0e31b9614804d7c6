//! `headwater simulate`, which is `headwater-lab simulate`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// The command in a folder of its own.
struct Installed {
    folder: TempDir,
}

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_headwater"), folder.path().join("headwater")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn simulate(&self, args: &[&str]) -> Output {
        let mut command = Command::new(self.path("headwater"));
        command.env("PATH", "/nowhere").arg("simulate").args(args).output().unwrap()
    }
}

#[cfg(unix)]
#[test]
fn plan_and_options_go_to_the_lab_beside_it() {
    use std::os::unix::fs::PermissionsExt;
    let installed = Installed::new();
    let lab = installed.path("headwater-lab");
    fs::write(&lab, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&lab, fs::Permissions::from_mode(0o755)).unwrap();
    let run = installed.simulate(&["plan.toml", "--jobs", "2", "--help"]);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "simulate\nplan.toml\n--jobs\n2\n--help\n");
    assert_eq!(run.status.code(), Some(7));
}

#[test]
fn without_a_lab_it_says_how_to_build_one() {
    let run = Installed::new().simulate(&["plan.toml"]);
    let complaint = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("cargo build --release -p headwater-lab"), "{complaint}");
}
