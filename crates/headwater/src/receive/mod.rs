//! The receiving half of the easy API.

mod asker;
mod block_map;
mod comparison;
mod description;
mod http;
mod listener;
mod long_packets;
mod nothing;
mod options;
mod paths;
mod rates;
mod repair;
mod servers;
mod serving;
mod session;
mod tunnel;
mod update;
mod watch;

pub use description::{DescriptionError, FetchedDescription};
pub use listener::ListenOptions;
pub(crate) use listener::Listener;
pub use long_packets::LongPacketsMissing;
pub use options::{Loss, ReceiveOptions};
pub use paths::{BytesByPath, ContentPath};
pub use repair::{HttpPath, RepairOptions, RepairUpdate};
pub use serving::ServingOptions;
pub(crate) use serving::{ReceivedFile, ReceivedFiles};
pub use session::{ReceiveError, ReceiveSession};
pub use update::{
    FileStatus, HeardSession, IncompleteReason, ReceiveOutcome, ReceiveProgress, ReceiveStarted,
    ReceiveSummary, ReceiveUpdate, SILENCE_SHOWN, SILENCE_TOLD,
};
