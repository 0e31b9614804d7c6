//! Threads of sessions: stop handle, number and priority of worker threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

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

    /// Returns a handle of the same flag that wakes another session. Only the first handle wakes its session
    /// at once; the other session sees the flag at its next turn.
    pub(crate) fn shared_with(&self, waker: Waker) -> Self {
        Self { stopped: Arc::clone(&self.stopped), waker }
    }

    /// Returns the flag that [`StopHandle::stop`] sets.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopped)
    }

    /// Asks the session to end. A session stopped before `run` ends as soon as the session begins.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Wakes the session's thread.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Whether the session was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// Creates the poller of a session and the handle that stops the session.
///
/// # Errors
/// If the process has no file descriptor left.
pub(crate) fn stoppable() -> Result<(Poller, StopHandle), OpenError> {
    let poller =
        Poller::new().map_err(|source| OpenError::Option { attempt: "open an event descriptor", source })?;
    let stop = StopHandle::new(poller.waker());
    Ok((poller, stop))
}

/// Maximum worker threads of a session: each decoding thread takes 3 to 6.3 blocks of memory.
const WORKERS_MAX: usize = 4;

/// Increase of the nice value of worker threads: about a third of the share of the session's own thread.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Lowers the priority of the calling thread, so that the session's own thread goes first on a machine with
/// fewer processors than threads.
pub(crate) fn yield_to_session() {
    // Linux keeps priorities by thread, other systems by process. If the kernel refuses, the threads share
    // evenly, which is only slower.
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::getpriority_process(None) {
        let _refused = rustix::process::setpriority_process(None, nice + NICE);
    }
}

/// Lets the timers of the calling thread end on time. Linux has waits end up to 50 us late; other systems
/// have no such slack, or none that a process can change.
///
/// # Errors
/// The kernel's error.
pub(crate) fn wake_precisely() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    Ok(())
}

/// Returns the number of worker threads of a session: one per processor, at least 1 and at most 4.
pub(crate) fn worker_count() -> usize {
    available_parallelism().map_or(1, std::num::NonZero::get).min(WORKERS_MAX)
}
