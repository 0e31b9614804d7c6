//! Running `headwater-lab`.

use std::process::{Command, Stdio};

use serde_json::Value;

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// Standard output as lines of JSON.
    pub fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub fn run(args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-lab"));
    let output = command.args(args).env_remove("HEADWATER_LOG").stdin(Stdio::null()).output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Records of an event log, the header first.
pub fn records(log: &str) -> Vec<Value> {
    let records = log.split('\u{1e}').skip(1);
    records.map(|record| serde_json::from_str(record).unwrap()).collect()
}
