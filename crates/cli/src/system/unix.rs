//! Processes, users and terminals on Unix.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use nix::unistd::User;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use rustix::time::{ClockId, clock_gettime};

#[cfg(not(target_vendor = "apple"))]
use crate::exit::Failure;

pub use std::os::unix::fs::FileExt;

/// Returns a command that runs this program, on Linux also after an upgrade has replaced the file, as leader
/// of a process group: signals of the terminal do not reach the program.
pub fn own_program() -> Command {
    let linux = Path::new("/proc/self/exe");
    let program = if cfg!(target_os = "linux") { linux.to_owned() } else { current_program() };
    let mut command = Command::new(program);
    command.arg0("headwater").process_group(0);
    command
}

fn current_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("headwater"))
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Asks a child to end (SIGINT). A child that has ended waits to be reaped, so that the number is not another
/// process's.
pub fn interrupt(child: &Child) {
    pid_of(child).map(|pid| kill_process(pid, Signal::INT));
}

/// Kills the process group of a child that leads its group.
pub fn kill_group(child: &mut Child) {
    pid_of(child).map(|pid| kill_process_group(pid, Signal::KILL));
    child.kill().ok();
    child.wait().ok();
}

/// Ends this process together with the parent: with `at_once` by SIGKILL, else by SIGTERM. Linux only.
pub fn end_with_parent(at_once: bool) {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(if at_once { Signal::KILL } else { Signal::TERM }))
        .ok();
    #[cfg(not(target_os = "linux"))]
    let _ = at_once;
}

/// Whether a process is this process's parent.
pub fn is_parent(process: u32) -> bool {
    let parent = rustix::process::getppid().map(Pid::as_raw_nonzero);
    parent.is_some_and(|parent| u32::try_from(parent.get()) == Ok(process))
}

/// Becomes another program.
pub fn become_program(command: &mut Command) -> io::Error {
    command.exec()
}

/// Returns a path from bytes.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Takes the identity of a user, for good.
#[cfg(not(target_vendor = "apple"))]
pub fn become_user(name: &str) -> Result<(), Failure> {
    use crate::exit::{Exit, OrExit};
    use nix::unistd::{setgid, setgroups, setuid};

    let attempt = || format!("cannot become the user '{name}'");
    let user = User::from_name(name)
        .or_exit(Exit::Usage, attempt())?
        .ok_or_else(|| Failure::new(Exit::Usage, format!("{}: there is no such user", attempt())))?;
    setgroups(&[user.gid]).or_exit(Exit::Other, attempt())?;
    setgid(user.gid).or_exit(Exit::Other, attempt())?;
    setuid(user.uid).or_exit(Exit::Other, attempt())?;
    // The change of the user has ended the tie to the supervisor.
    crate::serve::follow_supervisor();
    Ok(())
}

/// Returns standard input, which stays open when the copy is closed.
pub fn standard_input() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Returns the columns of the terminal at standard error, if there is a terminal.
pub fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Reads from the terminal without echo; `None` if the echo cannot be switched off.
pub fn without_echo<T>(read: impl FnOnce() -> T) -> Option<T> {
    let input = io::stdin();
    let before = tcgetattr(&input).ok()?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Flush, &silent).ok()?;
    let result = read();
    tcsetattr(&input, OptionalActions::Flush, &before).ok();
    Some(result)
}

/// Returns the processor time of the process so far.
pub fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// Returns the processor time of the calling thread so far.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    // Both values are never negative.
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// User of the system.
pub struct SystemUser(User);

impl SystemUser {
    /// Returns a user by name, if the user exists.
    ///
    /// # Errors
    /// If the system's list of users cannot be read.
    pub fn find(name: &str) -> io::Result<Option<Self>> {
        Ok(User::from_name(name)?.map(Self))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Gives a file or a folder to the user.
    ///
    /// # Errors
    /// If this process may not give files away.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        std::os::unix::fs::chown(path, Some(self.0.uid.as_raw()), Some(self.0.gid.as_raw()))
    }
}

/// Socket for connections of other programs of this machine.
pub struct LocalListener {
    listener: UnixListener,
    address: String,
}

impl LocalListener {
    /// Listens at a path.
    ///
    /// # Errors
    /// If the path is too long, or the folder is missing.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, address: format!("unix:{}", path.display()) })
    }

    /// Returns the address as ffmpeg writes addresses.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Accepts a connection; an error of the kind `WouldBlock` without a connection.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

/// Lets only the owner enter a folder.
///
/// # Errors
/// If the folder is not this user's.
pub fn private_folder(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

/// Whether a path names a character device.
pub fn is_character_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// Waits until standard input has bytes or has ended; false after `patience`, of less than a second, without.
pub fn wait_for_input(patience: Duration) -> bool {
    let interval = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
    poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], Some(&interval)).unwrap_or(0) > 0
}

/// Waits until standard output takes some bytes at once, or fails; false after `patience`, of less than a
/// second, without.
pub fn wait_for_output(patience: Option<Duration>) -> bool {
    let interval = patience.map(|patience| Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() });
    poll(&mut [PollFd::new(&io::stdout(), PollFlags::OUT)], interval.as_ref()).unwrap_or(1) > 0
}

/// Whether the path leads to a named pipe, whose opening waits for the other end.
pub fn is_named_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Whether two paths lead to the same existing file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}
