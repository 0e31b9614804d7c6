//! Running the command.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// Far beyond what any run takes, so that a hang fails instead of blocking.
const PATIENCE: Duration = Duration::from_secs(60);

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

pub fn headwater() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command
        .env_remove("HEADWATER_LOG")
        .env_remove("HEADWATER_KEY")
        .env("XDG_CONFIG_HOME", config_folder())
        .env("XDG_STATE_HOME", config_folder());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A folder of keys and known senders for all tests of one run.
fn config_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("config-{}", std::process::id()))
}

pub fn run(args: &[&str]) -> Run {
    Running::start(headwater().args(args)).end()
}

/// Receives on the loopback interface with `--json`; returns once the receiver has joined.
pub fn receive(group: &str, out: &Path, more: &[&str]) -> Running {
    let mut command = headwater();
    command.args(["receive", "--interface", "lo", "--json", "--group", group, "--out"]).arg(out);
    let mut running = Running::start(command.args(more));
    running.wait_for("channel:joined");
    running
}

/// Sends a path on the loopback interface with `--json`.
pub fn send(group: &str, path: &Path, more: &[&str]) -> Running {
    Running::start(sender(group, more).arg("--json").arg(path))
}

/// Command that sends on the loopback interface, without a path.
pub fn sender(group: &str, more: &[&str]) -> Command {
    let mut command = headwater();
    command.args(["send", "--interface", "lo", "--group", group]).args(more);
    command
}

/// A run under way.
pub struct Running {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    seen: String,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, stdout, seen: String::new() }
    }

    /// Reads standard output up to a line that contains `text`.
    pub fn wait_for(&mut self, text: &str) -> &str {
        let stdout = self.stdout.as_mut().unwrap();
        loop {
            let start = self.seen.len();
            assert_ne!(stdout.read_line(&mut self.seen).unwrap(), 0, "no '{text}' in {}", self.seen);
            if self.seen[start..].contains(text) {
                return &self.seen[start..];
            }
        }
    }

    /// Takes standard input, which must be a pipe.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub fn interrupt(&self) {
        self.signal("-INT");
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Kills it without a warning.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Lets it run for so long, and kills it without a warning.
    pub fn kill_after(&mut self, time: Duration) {
        std::thread::sleep(time);
        self.child.kill().unwrap();
    }

    /// Waits for the end, but not for ever.
    pub fn end(mut self) -> Run {
        let id = self.child.id().to_string();
        let (done, is_done) = mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            if is_done.recv_timeout(PATIENCE).is_err() {
                Command::new("kill").args(["-KILL", &id]).status().unwrap();
            }
        });
        let mut stderr = String::new();
        let errors = self.child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            BufReader::new(errors).read_to_string(&mut stderr).unwrap();
            stderr
        });
        if let Some(mut stdout) = self.stdout.take() {
            stdout.read_to_string(&mut self.seen).unwrap();
        }
        let code = self.child.wait().unwrap().code();
        done.send(()).unwrap();
        watchdog.join().unwrap();
        Run { code, stdout: self.seen, stderr: errors.join().unwrap() }
    }
}

/// A group of this test's own: a port that nobody uses now.
pub fn group() -> String {
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    format!("239.255.72.90:{port}")
}

/// Records of an event log, the header first.
pub fn records(log: &str) -> Vec<Value> {
    let records = log.split('\u{1e}').skip(1);
    records
        .map(|record| {
            assert!(record.ends_with('\n'), "a record ends with a newline: {record:?}");
            serde_json::from_str(record).unwrap()
        })
        .collect()
}
