//! Errors of a bed, each a message of a single sentence.

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The machine lacks something: rights, a program, a part of the kernel.
    Missing,
    /// The plan asks for a feature that the testbed lacks.
    Plan,
    /// The run was aborted on request.
    GivenUp,
    /// Anything else: a command or a program failed.
    Failed,
}

/// Reason why a bed or a result is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Kind of the error.
    pub kind: Kind,
    /// The attempted action, the problem, and the remedy.
    pub message: String,
}

impl Error {
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self { kind: Kind::Missing, message: message.into() }
    }

    pub(crate) fn plan(message: impl Into<String>) -> Self {
        Self { kind: Kind::Plan, message: message.into() }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, message: message.into() }
    }
}

/// Adds the attempted action to an error.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: std::fmt::Display> Tried<T> for Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::failed(format!("cannot {}: {error}", what())))
    }
}
