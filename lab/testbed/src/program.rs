//! Programs in namespaces: start, observation, end, output and resource usage.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::sys;
use crate::{Error, Tried};

/// Time for a program to end after a signal.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(2);
/// Number of bytes of a failed program's messages that an error quotes.
const COMPLAINT_BYTES: usize = 400;

/// Runs a command that must succeed. Returns the command's output.
pub(crate) fn must(command: &mut Command) -> Result<String, Error> {
    let said = |command: &Command| {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        format!("{} {}", command.get_program().to_string_lossy(), words.join(" "))
    };
    let ended =
        command.env("PATH", path()).stdin(Stdio::null()).output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::missing(format!(
                "'{}' is not installed; the testbed needs iproute2 (ip, tc) and ethtool",
                command.get_program().to_string_lossy()
            )),
            _ => Error::failed(format!("cannot run `{}`: {error}", said(command))),
        })?;
    if !ended.status.success() {
        let complaint = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        return Err(Error::failed(format!("`{}` failed: {complaint}", said(command))));
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

/// Search path of programs: `PATH`, and the directories that are normally only in root's `PATH`.
pub(crate) fn path() -> OsString {
    // An empty part of `PATH` would be the current directory.
    let mut path =
        std::env::var_os("PATH").filter(|path| !path.is_empty()).unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    path
}

/// Path of a program, if installed.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&path()).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A program running in a namespace. Dropping the value kills the program.
#[derive(Debug)]
pub(crate) struct Program {
    /// Name for people: the part played and the host.
    pub name: String,
    /// Instant of the start.
    pub began: Instant,
    child: Child,
    out: PathBuf,
    err: PathBuf,
    ended: Option<sys::Ended>,
    /// Maximum memory observed, in bytes.
    pub memory_bytes: u64,
}

impl Program {
    /// Starts the program; output goes to files of `folder`. `input` says whether standard input is a pipe.
    pub fn start(
        namespace: &str,
        name: &str,
        folder: &Path,
        words: &[String],
        input: bool,
    ) -> Result<Self, Error> {
        let (out, err) = (folder.join(format!("{name}.out")), folder.join(format!("{name}.err")));
        let open = |path: &Path| File::create(path).tried(|| format!("write '{}'", path.display()));
        // `ip netns exec` becomes the program, so the child's process id is the program's.
        let child = Command::new("ip")
            .env("PATH", path())
            .args(["netns", "exec", namespace])
            .args(words)
            .stdin(if input { Stdio::piped() } else { Stdio::null() })
            .stdout(open(&out)?)
            .stderr(open(&err)?)
            .spawn()
            .tried(|| format!("start {name}"))?;
        let name = name.to_owned();
        Ok(Self { name, began: Instant::now(), child, out, err, ended: None, memory_bytes: 0 })
    }

    /// Takes the program's standard input.
    pub fn take_input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether the program has ended.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            match sys::ended(self.child.id()) {
                Ok(ended) => self.ended = ended,
                // The process is no longer a child of this process, so nothing is known of its end.
                Err(_) => self.ended = Some(sys::Ended { code: None, cpu: Duration::ZERO }),
            }
        }
        self.ended.is_some()
    }

    /// Records the program's memory usage while the program runs; afterwards the process id may belong to
    /// another process.
    pub fn look(&mut self) {
        if self.has_ended() {
            return;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
        self.memory_bytes = self.memory_bytes.max(kilobytes.unwrap_or(0) * 1_024);
    }

    /// Processor time used; known after the end.
    pub fn cpu(&self) -> Duration {
        self.ended.map_or(Duration::ZERO, |ended| ended.cpu)
    }

    /// Exit code; `None` for a signal, or before the end.
    pub fn code(&self) -> Option<i32> {
        self.ended.and_then(|ended| ended.code)
    }

    pub fn signal(&mut self, signal: i32) {
        if !self.has_ended() {
            sys::signal(self.child.id(), signal);
        }
    }

    /// Sends `signal`, and waits for the end.
    pub fn end(&mut self, signal: i32) {
        self.look();
        self.signal(signal);
        let until = Instant::now() + PATIENCE;
        while !self.has_ended() {
            if Instant::now() > until {
                self.signal(libc::SIGKILL);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// All output so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// End of the standard error output.
    pub fn complaint(&self) -> String {
        let said = std::fs::read(&self.err).unwrap_or_default();
        let last =
            String::from_utf8_lossy(&said[said.len().saturating_sub(COMPLAINT_BYTES)..]).trim().to_owned();
        if last.is_empty() { "it said nothing".into() } else { last }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end(libc::SIGKILL);
    }
}
