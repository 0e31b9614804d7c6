//! What goes wrong with a bed, told in one sentence.

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The machine lacks something: rights, a program, a part of the kernel.
    Missing,
    /// The plan asks for what a testbed does not do.
    Plan,
    /// The run was given up because it was asked to.
    GivenUp,
    /// Anything else: a command or a program failed.
    Failed,
}

/// Why there is no bed, or no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind of thing it is.
    pub kind: Kind,
    /// What was tried, what happened, what to do.
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

/// Says what was tried when it fails.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: std::fmt::Display> Tried<T> for Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::failed(format!("cannot {}: {error}", what())))
    }
}
