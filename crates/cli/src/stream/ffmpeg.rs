//! Programs of a video: ffmpeg, and `cat` for standard input. Each runs as the user of `--user`, in a process
//! group of its own, and ends with this process, whatever ends this process.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::args::RunTiedArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::serve::SUPERVISED;
use crate::system::{SystemUser, become_program, become_user, end_with_parent, kill_group, own_program};

/// Longest look at the program, or at a source.
pub const LOOK_TIME: Duration = Duration::from_secs(20);
/// Interval at which the programs and the signals are looked at.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// Most bytes of an output that are kept.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// ffmpeg as demanded.
pub struct Ffmpeg<'a> {
    /// Program.
    pub program: &'a Path,
    /// User of the programs; `None` for the user of this process.
    user: Option<SystemUser>,
    /// Whether a signal has asked this process to end.
    is_asked: &'a dyn Fn() -> bool,
}

/// Output of a program that has ended, or was killed.
pub struct Looked {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub lines: String,
    /// Status of a program that has ended.
    pub status: Option<ExitStatus>,
}

impl<'a> Ffmpeg<'a> {
    /// # Errors
    /// If there is no such user.
    pub fn new(
        program: &'a Path,
        user: Option<&str>,
        is_asked: &'a dyn Fn() -> bool,
    ) -> Result<Self, Failure> {
        let find = |name: &str| {
            let found = SystemUser::find(name);
            let found = found.or_exit(Exit::Usage, format!("cannot look up the user '{name}'"))?;
            found.ok_or_else(|| Failure::new(Exit::Usage, format!("there is no user '{name}'")))
        };
        Ok(Self { program, user: user.map(find).transpose()?, is_asked })
    }

    /// Returns the command of a program: this program becomes the user, ties itself to this process, and then
    /// becomes the program.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = own_program();
        command.env(SUPERVISED, std::process::id().to_string()).arg("run-tied");
        if let Some(user) = &self.user {
            command.arg("--user").arg(user.name());
        }
        // Signals of the terminal end the session first, and the end of the session ends the programs.
        command.arg("--").arg(program);
        command
    }

    /// Gives a file or a folder to the user.
    pub fn give(&self, path: &Path) -> Result<(), Failure> {
        let Some(user) = &self.user else { return Ok(()) };
        let given = user.give(path);
        given.or_exit(Exit::Other, format!("cannot give '{}' to the user of ffmpeg", path.display()))
    }

    /// Returns the failure of a start that a signal has interrupted.
    ///
    /// # Errors
    /// If a signal has asked this process to end.
    pub fn check_signals(&self) -> Result<(), Failure> {
        if (self.is_asked)() {
            return Err(Failure::new(Exit::Interrupted, "interrupted before the first picture"));
        }
        Ok(())
    }

    /// Runs ffmpeg to the end, and returns the output. The program is killed after [`LOOK_TIME`].
    ///
    /// # Errors
    /// If a signal has asked this process to end.
    pub fn look<W: AsRef<OsStr>>(&self, words: &[W], input: Option<&[u8]>) -> Result<Looked, Failure> {
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = self
            .command(self.program)
            .args(["-hide_banner", "-nostdin"])
            .args(words)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .or_exit(Exit::Other, format!("cannot run '{}'", self.program.display()))?;
        let (pipe, out, lines) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let began = Instant::now();
        let looked = std::thread::scope(|scope| {
            scope.spawn(move || {
                if let (Some(mut pipe), Some(input)) = (pipe, input) {
                    // ffmpeg may have read enough.
                    pipe.write_all(input).ok();
                }
            });
            let out = scope.spawn(move || out.map(read_all).unwrap_or_default());
            let lines = scope.spawn(move || lines.map(read_all).unwrap_or_default());
            let mut status = None;
            while began.elapsed() < LOOK_TIME && !(self.is_asked)() {
                status = child.try_wait().ok().flatten();
                if status.is_some() && out.is_finished() && lines.is_finished() {
                    break;
                }
                std::thread::sleep(INTERVAL);
            }
            // Programs of a script may be left, or the source gives nothing.
            if status.is_none() || !out.is_finished() || !lines.is_finished() {
                kill_group(&mut child);
            }
            Looked { out: out.join().unwrap_or_default(), lines: lines.join().unwrap_or_default(), status }
        });
        if looked.status.is_none() {
            self.check_signals()?;
        }
        Ok(looked)
    }
}

fn read_all(output: impl Read) -> String {
    let mut bytes = Vec::new();
    // A read that fails ends the text.
    output.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Becomes a program that ends with the parent. The command has followed the parent since its start.
pub fn run_tied(args: &RunTiedArgs) -> Result<Exit, Failure> {
    if let Some(user) = &args.user {
        become_user(user)?;
    }
    // ffmpeg catches SIGTERM, and may then wait for a source.
    end_with_parent(true);
    let error = become_program(Command::new(&args.program).args(&args.words).env_remove(SUPERVISED));
    Err(Failure::of(Exit::Usage, error))
}
