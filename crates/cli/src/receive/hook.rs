//! Programs that run for received files: `--exec`.
//!
//! A confined process starts no programs. A child that starts before the confinement reads paths from a pipe
//! and starts the program for each; the pipe carries paths, each with a byte 0 behind, and nothing else.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headwater::ReceiveUpdate;

use crate::args::{ReceiveArgs, RunForFilesArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::serve::SUPERVISED;
use crate::system::{become_user, own_program, path_of};

/// Maximum number of files that wait for the program; the session then waits.
const WAITING_MAX: usize = 1 << 16;
/// Longest wait for programs after a signal.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which the end of the child is checked.
const INTERVAL: Duration = Duration::from_millis(20);
/// Longest path, in bytes, that the child accepts.
const PATH_BYTES_MAX: u64 = 1 << 16;

/// Program that runs for each received file.
pub struct FileHook {
    child: Child,
    /// `None` once no more files come.
    paths: Option<SyncSender<PathBuf>>,
    writer: Option<JoinHandle<()>>,
    folder: PathBuf,
}

impl FileHook {
    /// Starts the child, if the arguments ask for a program.
    pub fn start(args: &ReceiveArgs) -> Result<Option<Self>, Failure> {
        let Some(program) = &args.follow.exec else { return Ok(None) };
        let attempt = format!("cannot run '{}' for received files", program.display());
        let mut command = own_program();
        command.arg("run-for-files").arg(program).env_remove(SUPERVISED);
        if let Some(user) = &args.confine.user {
            command.arg("--user").arg(user);
        }
        // Signals of the terminal end the session first, and the end of the pipe ends the child.
        let child = command.stdin(Stdio::piped()).spawn();
        let mut child = child.or_exit(Exit::Other, &attempt)?;
        let (paths, waiting) = sync_channel::<PathBuf>(WAITING_MAX);
        let pipe = child.stdin.take();
        let write = move || {
            let Some(mut pipe): Option<ChildStdin> = pipe else { return };
            for path in waiting {
                let mut bytes = path.into_os_string().into_encoded_bytes();
                bytes.push(0);
                if pipe.write_all(&bytes).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("hook".into()).spawn(write);
        let writer = thread.or_exit(Exit::Other, &attempt)?;
        let folder = std::path::absolute(args.folder()).or_exit(Exit::Other, attempt)?;
        Ok(Some(Self { child, paths: Some(paths), writer: Some(writer), folder }))
    }

    /// Passes a received file to the program.
    pub fn on_update(&self, update: &ReceiveUpdate) {
        let (ReceiveUpdate::FileCompleted { path, is_present: false, .. }, Some(paths)) =
            (update, &self.paths)
        else {
            return;
        };
        if paths.send(self.folder.join(path.as_str())).is_err() {
            tracing::warn!("the program of --exec is not run for '{path}': its process has ended");
        }
    }

    /// Waits until the program has run for all files; after a signal, for [`SIGNAL_PATIENCE`] at most.
    pub fn finish(mut self, is_asked: &dyn Fn() -> bool) -> Result<(), Failure> {
        drop(self.paths.take());
        let mut until = None;
        let status = loop {
            let ended =
                self.child.try_wait().or_exit(Exit::Other, "cannot wait for the program of --exec")?;
            if let Some(status) = ended {
                break status;
            }
            if is_asked() && Instant::now() >= *until.get_or_insert_with(|| Instant::now() + SIGNAL_PATIENCE)
            {
                self.child.kill().ok();
                self.child.wait().ok();
                let why = "the program of --exec has not run for all files: interrupted";
                return Err(Failure::new(Exit::Interrupted, why));
            }
            std::thread::sleep(INTERVAL);
        };
        if let Some(writer) = self.writer.take() {
            writer.join().ok();
        }
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(Exit::Other, "the program of --exec failed for a file; the lines above say which"))
    }
}

/// Runs a program for each path on standard input, in turn.
pub fn run_for_files(args: &RunForFilesArgs) -> Result<Exit, Failure> {
    if let Some(user) = &args.user {
        become_user(user)?;
    }
    let mut input = std::io::stdin().lock();
    let mut failed = 0_usize;
    loop {
        let mut path = Vec::new();
        let read = std::io::Read::take(&mut input, PATH_BYTES_MAX).read_until(0, &mut path);
        read.or_exit(Exit::Other, "cannot read paths")?;
        if path.pop() != Some(0) {
            break;
        }
        let path = path_of(&path);
        // The output of the session is on standard output.
        let program =
            Command::new(&args.program).arg(&path).stdin(Stdio::null()).stdout(std::io::stderr()).status();
        let problem = match program {
            Ok(status) if status.success() => continue,
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        failed += 1;
        let (program, path) = (args.program.display(), path.display());
        // Fails only if standard error is closed.
        writeln!(std::io::stderr(), "headwater: '{program}' for '{path}': {problem}").ok();
    }
    Ok(if failed == 0 { Exit::Ok } else { Exit::Other })
}
