//! The sending half of the easy API.

mod background;
mod budget;
mod bundle;
mod compress;
mod content;
mod encoders;
mod error;
mod files;
mod hashing;
mod input;
mod layout;
mod link;
mod metadata;
mod options;
mod packets;
mod published;
mod repair_store;
mod roster;
mod session;
mod source;
mod spool;
mod update;

pub use budget::RepairPlace;
pub use bundle::Bundling;
pub(crate) use bundle::{Bundle, BundleReader, MemberCache, MemberFault};
pub use compress::CompressionSummary;
pub use error::{PrepareError, SendError};
pub(crate) use files::Stamp;
pub use files::{
    FileSet, Links, OutsideLink, PrepareOptions, PreparedFile, SkipReason, Skipped, prepare, prepare_tree,
    prepare_with,
};
pub(crate) use link::Link;
pub use link::{LinkOptions, SOURCE_PORT};
pub use options::{SendEnd, SendOptions, SendOrder};
pub(crate) use packets::{Headers, LATENESS_BYTES, PacketOptions, PacketPlan, symbol_size_within};
pub use published::{FILES_PATH, PublishedFile, PublishedFiles};
pub use roster::{
    ContestedName, EXPECTED_MAX, MissingReceiver, PeerOptions, RosterEnd, RosterOptions, RosterProgress,
    RosterSummary, SLOWEST_MAX,
};
pub use session::SendSession;
pub use spool::SendInput;
pub(crate) use update::RateWatch;
pub use update::{RateLimit, SendOutcome, SendProgress, SendStarted, SendSummary, SendUpdate, SentCeiling};
