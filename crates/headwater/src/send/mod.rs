//! The sending half of the easy API.

mod content;
mod encoders;
mod error;
mod files;
mod hashing;
mod options;
mod session;
mod source;
mod update;

pub use error::{PrepareError, SendError};
pub use files::{FileSet, PreparedFile, Skipped, prepare};
pub use options::{SendEnd, SendOptions};
pub use session::SendSession;
pub use update::{SendOutcome, SendProgress, SendStarted, SendSummary, SendUpdate};
