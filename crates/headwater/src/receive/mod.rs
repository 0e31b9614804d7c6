//! The receiving half of the easy API.

mod asker;
mod error;
mod listener;
mod options;
mod session;
mod update;
mod watch;

pub use error::ReceiveError;
pub(crate) use listener::{ListenOptions, Listener, listen_setters, session_setters};
pub use options::{Loss, ReceiveOptions};
pub use session::ReceiveSession;
pub use update::{
    FileStatus, IncompleteReason, ReceiveOutcome, ReceiveProgress, ReceiveStarted, ReceiveSummary,
    ReceiveUpdate,
};
