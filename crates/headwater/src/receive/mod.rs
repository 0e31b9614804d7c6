//! The receiving half of the easy API.

mod asker;
mod error;
mod listener;
mod long_packets;
mod options;
mod session;
mod update;
mod watch;

pub use error::ReceiveError;
pub(crate) use listener::{ListenOptions, Listener, listen_setters, session_setters};
pub use long_packets::LongPacketsMissing;
pub use options::{Loss, ReceiveOptions};
pub use session::ReceiveSession;
pub use update::{
    FileStatus, HeardSession, IncompleteReason, ReceiveOutcome, ReceiveProgress, ReceiveStarted,
    ReceiveSummary, ReceiveUpdate, SILENCE_SHOWN, SILENCE_TOLD,
};
