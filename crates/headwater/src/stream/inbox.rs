//! The next buffer on its way from the application to the thread that sends.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use headwater_proto::stream::Submission;

use super::update::{StreamError, StreamSendProgress};
use crate::net::Waker;

/// Room for one buffer.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    shared: Arc<(Mutex<State>, Condvar)>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    next: Option<Submission>,
    /// The application has no more.
    is_finished: bool,
    /// The thread takes no more.
    is_ended: bool,
    progress: StreamSendProgress,
}

impl Inbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { shared: Arc::default(), waker }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a buffer in, and waits until it is next in line.
    pub(super) fn submit(&self, submission: Submission) -> Result<(), StreamError> {
        submission.check()?;
        let wait = |state, is_full: fn(&mut State) -> bool| {
            self.shared.1.wait_while(state, is_full).unwrap_or_else(PoisonError::into_inner)
        };
        let is_full = |state: &mut State| state.next.is_some() && !state.is_ended;
        let mut state = wait(self.state(), is_full);
        if state.is_ended {
            return Err(StreamError::Ended);
        }
        state.next = Some(submission);
        self.waker.wake();
        let state = wait(state, is_full);
        if state.next.is_some() { Err(StreamError::Ended) } else { Ok(()) }
    }

    /// There is no more to come.
    pub(super) fn finish(&self) {
        self.state().is_finished = true;
        self.waker.wake();
    }

    /// Takes the next buffer, if there is one.
    pub(super) fn take(&self) -> Option<Submission> {
        let next = self.state().next.take();
        if next.is_some() {
            self.shared.1.notify_all();
        }
        next
    }

    /// Whether a buffer is there, or none will come.
    pub(super) fn has_news(&self) -> bool {
        let state = self.state();
        state.next.is_some() || state.is_finished
    }

    /// Whether every buffer was taken and there is no more to come.
    pub(super) fn is_finished(&self) -> bool {
        let state = self.state();
        state.is_finished && state.next.is_none()
    }

    /// No buffer is taken any more.
    pub(super) fn end(&self) {
        self.state().is_ended = true;
        self.shared.1.notify_all();
    }

    pub(super) fn tell(&self, progress: StreamSendProgress) {
        self.state().progress = progress;
    }

    pub(super) fn progress(&self) -> StreamSendProgress {
        self.state().progress
    }
}
