//! The receiving half of the easy API.

mod asker;
mod http;
mod listener;
mod repair;
mod session;
mod update;
mod watch;

pub use listener::ListenOptions;
pub(crate) use listener::Listener;
pub use repair::{RepairOptions, RepairUpdate};
pub use session::{Loss, ReceiveError, ReceiveOptions, ReceiveSession};
pub use update::{
    FileStatus, HeardSession, IncompleteReason, ReceiveOutcome, ReceiveProgress, ReceiveStarted,
    ReceiveSummary, ReceiveUpdate, SILENCE_SHOWN, SILENCE_TOLD,
};
pub use watch::LongPacketsMissing;
