//! Stopping a session from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::net::{OpenError, Poller, Waker};

/// Stops a session from any thread. A stopped sender closes its session with its last packets; a stopped receiver
/// cleans up. Then `run` returns.
///
/// [`StopHandle::stop`] only stores a flag and writes to a file descriptor, so a signal handler may call it.
#[derive(Clone, Debug)]
pub struct StopHandle {
    stopped: Arc<AtomicBool>,
    waker: Waker,
}

impl StopHandle {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { stopped: Arc::default(), waker }
    }

    /// What [`StopHandle::stop`] sets.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopped)
    }

    /// Asks the session to end. Once is enough; before `run` it ends as soon as it begins.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether it was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// What a session waits with, and what stops it.
///
/// # Errors
/// When the process has no file descriptor left.
pub(crate) fn stoppable() -> Result<(Poller, StopHandle), OpenError> {
    let poller =
        Poller::new().map_err(|source| OpenError::Option { attempt: "open an event descriptor", source })?;
    let stop = StopHandle::new(poller.waker());
    Ok((poller, stop))
}
