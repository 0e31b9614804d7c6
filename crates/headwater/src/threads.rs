//! Threads of sessions: how one is spawned, how many work beside it, and how it is stopped from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, available_parallelism};

use crate::net::{OpenError, Poller, Waker};

/// Stops a session from any thread. A stopped sender closes its session with its last packets; a stopped
/// receiver cleans up. Then `run` returns.
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

/// Most worker threads of a session: each decoding one takes 3 to 6.3 blocks of memory.
const WORKERS_MAX: usize = 4;

/// How much less of a busy processor a thread gets than the session's own: about a third of its share.
const NICE: i32 = 5;

/// Lets the session's own thread go first where there are fewer processors than threads. Only the thread that
/// calls it is changed.
pub(crate) fn yield_to_session() {
    // Linux keeps it by thread. Where it is refused, the threads share evenly, which is slower and no worse.
    if let Ok(nice) = rustix::process::getpriority_process(None) {
        let _refused = rustix::process::setpriority_process(None, nice + NICE);
    }
}

/// Worker threads of a session: one per processor, at least 1 and at most 4.
pub(crate) fn worker_count() -> usize {
    available_parallelism().map_or(1, std::num::NonZero::get).min(WORKERS_MAX)
}

/// Runs a session on a thread of its own.
///
/// # Errors
/// When the system has none.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, OpenError> {
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|source| OpenError::Option { attempt: "start a thread", source })
}
