//! Processes, users and terminals on Windows.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::windows::fs::FileExt as _;
use std::os::windows::io::AsHandle;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// Returns a command that runs this program.
pub fn own_program() -> Command {
    Command::new(std::env::current_exe().unwrap_or_else(|_| PathBuf::from("headwater.exe")))
}

/// Asks a child to end: Windows has no request for a process without a window, and the end of standard
/// input is no sign that commands look for.
pub fn interrupt(_child: &Child) {}

/// Ends a child.
pub fn kill_group(child: &mut Child) {
    child.kill().ok();
    child.wait().ok();
}

/// Ends this process together with the parent: not on this system.
pub fn end_with_parent(_at_once: bool) {}

/// Whether a process is this process's parent: unknown on this system.
pub fn is_parent(_process: u32) -> bool {
    true
}

/// Returns a path from bytes.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Returns standard input, which stays open when the copy is closed.
pub fn standard_input() -> io::Result<File> {
    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}

/// Returns the columns of the terminal: unknown on this system.
pub fn terminal_columns() -> Option<usize> {
    None
}

/// Reads from the terminal without echo: not on this system.
pub fn without_echo<T>(_read: impl FnOnce() -> T) -> Option<T> {
    None
}

/// Returns the processor time of the process so far: 0 on this system.
pub fn process_cpu() -> Duration {
    Duration::ZERO
}

/// Returns the processor time of the calling thread so far: 0 on this system.
pub fn thread_cpu() -> Duration {
    Duration::ZERO
}

/// Reading at an offset.
pub trait FileExt {
    /// Fills a buffer from an offset on.
    ///
    /// # Errors
    /// If the file is shorter, or cannot be read.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            let count = self.seek_read(buffer, offset)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = &mut buffer[count..];
            offset += count as u64;
        }
        Ok(())
    }
}

/// Becomes another program: runs the program, and ends with the exit code.
pub fn become_program(command: &mut Command) -> io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// User of the system: not on this system.
pub struct SystemUser(std::convert::Infallible);

impl SystemUser {
    /// Returns no user.
    ///
    /// # Errors
    /// Never.
    pub fn find(_name: &str) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// Gives a file or a folder to the user.
    ///
    /// # Errors
    /// Never.
    pub fn give(&self, _path: &Path) -> io::Result<()> {
        match self.0 {}
    }
}

/// Socket for connections of other programs of this machine.
pub struct LocalListener {
    listener: TcpListener,
    address: String,
}

impl LocalListener {
    /// Listens at a free port of the loopback interface.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind(_path: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = format!("tcp://{}", listener.local_addr()?);
        Ok(Self { listener, address })
    }

    /// Returns the address as ffmpeg writes addresses.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Accepts a connection; an error of the kind `WouldBlock` without a connection.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

/// Lets only the owner enter a folder: a folder for temporary files belongs to a single user on this system.
///
/// # Errors
/// Never.
pub fn private_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Whether a path names a character device: never on this system.
pub fn is_character_device(_path: &Path) -> bool {
    false
}

/// Waits until standard input has bytes: the read waits on this system.
pub fn wait_for_input(_patience: Duration) -> bool {
    true
}

/// Whether standard output takes some bytes at once: nobody tells.
pub fn wait_for_output(_patience: Option<Duration>) -> bool {
    true
}

/// Whether the path leads to a named pipe, whose opening waits for the other end: never here.
pub fn is_named_pipe(_path: &Path) -> bool {
    false
}

/// Whether two paths lead to the same existing file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.canonicalize().ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}
