//! Exit codes and errors of a command.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// An exit code; `headwater --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Anything that has no code of its own.
    Other = 1,
    /// An option or a file name is wrong. Also what `clap` exits with.
    Usage = 2,
    /// No such interface, no route, address in use; or the doctor found a problem.
    Network = 3,
    /// Nothing was received before the timeout.
    NothingReceived = 4,
    /// The session ended, or fell silent, before every file was whole.
    Incomplete = 5,
    /// A file is not what its sender promised.
    VerificationFailed = 6,
    /// A file could not be read or written.
    Disk = 7,
    /// Packets came before the timeout, but none of a trusted sender.
    Untrusted = 8,
    /// Files changed or could not be read while they were sent, and were left out; the others were sent.
    LeftOut = 9,
    /// SIGINT or SIGTERM: 128 + SIGINT, as shells say it.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error, and the code to exit with.
#[derive(Debug)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// What was tried, what happened, what to do.
    pub error: anyhow::Error,
}

impl Failure {
    /// An error that says by itself what was tried.
    pub fn of(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// What was tried and why it failed.
    pub fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, error: anyhow::anyhow!("{message}") }
    }

    /// Prints the whole chain of causes, the first after the program's name.
    pub fn print(&self, program: &str) {
        let messages = self.messages();
        // Fails only where standard error is gone, and then there is nobody to tell.
        let mut out = std::io::stderr().lock();
        writeln!(out, "{program}: {}", messages[0]).ok();
        for cause in &messages[1..] {
            writeln!(out, "  because: {cause}").ok();
        }
    }

    /// The whole chain in one line.
    pub fn chain(&self) -> String {
        self.messages().join(": ")
    }

    /// At least one. Errors that repeat their cause's message are said once.
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

/// Gives an error its exit code and says what was tried.
pub trait OrExit<T> {
    /// `tried` is printed first, the error as its cause.
    fn or_exit(self, exit: Exit, tried: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit, tried: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure { exit, error: error.into().context(tried.to_string()) })
    }
}
