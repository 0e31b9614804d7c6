//! Commands that a supervisor runs as separate processes: each command has a separate confinement, and a
//! fault of a command touches no other command.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use headwater_web::{PageReader, ViewSender};

use crate::system;

/// Variable with the process identifier of the supervisor.
pub const SUPERVISED: &str = "HEADWATER_SUPERVISED";
/// Variable that makes a command write samples of its ends to standard output.
pub const SAMPLES: &str = "HEADWATER_SAMPLES";
/// Longest time from SIGINT to the end of a command, before SIGKILL.
const STOP_TIME: Duration = Duration::from_secs(10);
/// Longest line that is passed on, in bytes.
const LINE_BYTES_MAX: u64 = 4 << 10;

/// A running command.
pub struct RunningChild {
    child: Child,
    began: Instant,
    /// Time of SIGKILL, once the command was asked to end.
    kill_at: Option<Instant>,
}

/// End of a command.
pub struct ChildEnd {
    /// Exit status.
    pub status: ExitStatus,
    /// Whether the supervisor asked the command to end.
    pub was_asked: bool,
    /// Time for which the command ran.
    pub lasted: Duration,
}

impl RunningChild {
    /// Starts this program with other arguments. Lines of the child's standard error go to standard error
    /// behind the service's name.
    /// Samples of its ends go to the page of `view`.
    pub fn start(
        name: &str,
        words: &[String],
        view: Option<&ViewSender>,
        now: Instant,
    ) -> std::io::Result<Self> {
        let mut command = system::own_program();
        command.args(words).env(SUPERVISED, std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if view.is_some() {
            command.env(SAMPLES, "1").stdout(Stdio::piped());
        }
        let mut child = command.spawn()?;
        if let (Some(samples), Some(view)) = (child.stdout.take(), view) {
            let (name, reader) = (name.to_owned(), PageReader::new(name, view.clone()));
            let read = move || {
                if let Err(error) = reader.read(samples) {
                    tracing::debug!("{name}: its samples cannot be read: {error}");
                }
            };
            std::thread::Builder::new().name("samples".into()).spawn(read)?;
        }
        if let Some(lines) = child.stderr.take() {
            let name = name.to_owned();
            std::thread::Builder::new().name("lines".into()).spawn(move || pass_on(&name, lines))?;
        }
        Ok(Self { child, began: now, kill_at: None })
    }

    /// Asks the command to end; kills a command that does not end in time.
    pub fn stop(&mut self, now: Instant) {
        match self.kill_at {
            None => {
                self.kill_at = Some(now + STOP_TIME);
                system::interrupt(&self.child);
            }
            Some(at) if now >= at => _ = self.child.kill(),
            Some(_) => {}
        }
    }

    /// Returns the end of the command, if the command has ended.
    pub fn poll_end(&mut self, now: Instant) -> Option<ChildEnd> {
        let status = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default()))?;
        Some(ChildEnd { status, was_asked: self.kill_at.is_some(), lasted: now - self.began })
    }
}

fn pass_on(name: &str, lines: ChildStderr) {
    let mut lines = BufReader::new(lines);
    loop {
        let mut line = Vec::new();
        match std::io::Read::take(&mut lines, LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line);
                // Fails only if standard error is closed.
                writeln!(std::io::stderr(), "{name}: {}", line.trim_end()).ok();
            }
        }
    }
}

/// Ends this process together with the supervisor, if a supervisor started this process.
pub fn follow_supervisor() {
    let Some(supervisor) = std::env::var(SUPERVISED).ok().and_then(|pid| pid.parse::<u32>().ok()) else {
        return;
    };
    system::end_with_parent(false);
    if !system::is_parent(supervisor) {
        // The supervisor has ended meanwhile.
        std::process::exit(crate::exit::Exit::Interrupted as i32);
    }
}
