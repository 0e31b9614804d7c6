//! Exit codes and errors of a command.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Exit code; `headwater --help` lists all codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// Any error without a code of its own.
    Other = 1,
    /// An option or a file name is wrong. `clap` exits with the same code.
    Usage = 2,
    /// No such interface, no route, address in use; or the doctor found a problem.
    Network = 3,
    /// Nothing was received before the timeout, or nothing that the receiver wants.
    NothingReceived = 4,
    /// The session ended, or fell silent, before every file was whole; or a sender ended before all receivers
    /// that it waits for had everything.
    Incomplete = 5,
    /// A file differs from the sender's digest.
    VerificationFailed = 6,
    /// A file could not be read or written.
    Disk = 7,
    /// Packets arrived before the timeout, but no packet of a trusted sender.
    Untrusted = 8,
    /// Files that changed, became unreadable or have refused names were left out; all other files were sent.
    LeftOut = 9,
    /// Packets of a session arrived, but no content that a group key decrypts.
    Unopened = 10,
    /// SIGINT, SIGTERM or SIGHUP: 128 + SIGINT, as in shells.
    Interrupted = 130,
}

/// Returns what the exit code of a receiver means, in a few words.
pub const fn meaning(code: u8) -> &'static str {
    match code {
        4 => "nothing was received",
        5 => "the session ended before every file was whole",
        6 => "a file differs from the sender's digest",
        7 => "a file could not be written",
        8 => "no packet of a trusted sender came",
        10 => "no key decrypts the content",
        130 => "interrupted",
        _ => "another error",
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Error with an exit code.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub exit: Exit,
    /// Failed operation, cause, and advice.
    pub error: anyhow::Error,
}

impl Failure {
    /// Creates a failure of an error that names the failed operation.
    pub fn of(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// Creates a failure of a message with the failed operation and the cause.
    pub fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, error: anyhow::anyhow!("{message}") }
    }

    /// Prints the whole chain of causes, after the program's name.
    pub fn print(&self, program: &str) {
        let messages = self.messages();
        // Fails only if standard error is closed.
        let mut out = std::io::stderr().lock();
        writeln!(out, "{program}: {}", messages[0]).ok();
        for cause in &messages[1..] {
            writeln!(out, "  because: {cause}").ok();
        }
    }

    /// Returns the whole chain in one line.
    pub fn chain(&self) -> String {
        self.messages().join(": ")
    }

    /// Returns the messages of the chain, at least one, without repetitions.
    fn messages(&self) -> Vec<String> {
        let mut messages: Vec<String> = Vec::new();
        for error in self.error.chain() {
            let message = error.to_string();
            match messages.last() {
                Some(last) if last.ends_with(&message) => {}
                _ => messages.push(message),
            }
        }
        messages
    }
}

/// Adds the exit code and the failed operation to an error.
pub trait OrExit<T> {
    /// Converts the error; `tried` is printed first, and the error as the cause.
    fn or_exit(self, exit: Exit, tried: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit, tried: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure { exit, error: error.into().context(tried.to_string()) })
    }
}
