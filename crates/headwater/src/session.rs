//! Sessions on a thread of their own: spawning, updates by iterator or stream, stopping, joining.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use futures_core::Stream;

use crate::net::OpenError;
use crate::pgm::{
    PgmReceiveSession, PgmReceiveSummary, PgmReceiveUpdate, PgmSendSession, PgmSendSummary, PgmSendUpdate,
};
use crate::receive::{ReceiveError, ReceiveSession, ReceiveSummary, ReceiveUpdate};
use crate::relay::{
    RelayError, RelayProgress, RelaySession, SimRelayError, SimRelayProgress, SimRelaySession,
};
use crate::send::{SendError, SendSession, SendSummary, SendUpdate};
use crate::threads::{self, StopHandle};

/// Maximum bytes of waiting updates, by the estimate of [`SessionKind::cost`]. A full queue holds at most one
/// progress update more.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Bytes of an update with the names that it holds.
const UPDATE_BYTES: usize = 1 << 10;

/// Kind of session: types of its updates, summary and errors. Every session of this crate that has a `run`
/// is one; streams have threads of their own already.
pub trait SessionKind: Sized + Send + 'static {
    /// Update to the observer of the session.
    type Update: Send + 'static;
    /// Summary at the end.
    type Summary: Send + 'static;
    /// Error that ends the session early.
    type Error: Send + 'static;

    /// Returns a handle that stops the session from any thread.
    fn stop_handle(&self) -> StopHandle;

    /// Runs the session to its end on the thread of the caller.
    ///
    /// # Errors
    /// As for the session's own `run`.
    fn run_to_end(&mut self, observer: &mut dyn FnMut(Self::Update)) -> Result<Self::Summary, Self::Error>;

    /// Whether a later update of this kind makes an earlier one worthless.
    fn is_progress(update: &Self::Update) -> bool;

    /// Returns the estimated bytes of an update.
    fn cost(_update: &Self::Update) -> usize {
        UPDATE_BYTES
    }

    /// Runs the session on a thread of its own.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    fn spawn(mut self) -> Result<SessionThread<Self>, OpenError> {
        let (queue, stop) = (Arc::new(UpdateQueue::<Self>::default()), self.stop_handle());
        let guard = EndGuard(Arc::clone(&queue));
        let run = move || self.run_to_end(&mut |update| guard.0.put(update));
        let thread = threads::spawn("headwater-session", run)?;
        Ok(SessionThread { queue, stop, thread: Some(thread) })
    }
}

/// Handle of a session that runs on a thread of its own ([`SessionKind::spawn`]).
///
/// Updates wait in a queue for [`updates`](Self::updates), or, by wakers, for the handle as a [`Stream`].
/// Both end with the session. A progress update replaces a waiting progress update. No other update is
/// lost: while 16 MiB of updates wait, the session waits for the reader, as long as the handle lives.
///
/// Dropping the handle stops the session and waits for its end.
#[derive(Debug)]
#[must_use = "dropping the handle stops the session"]
pub struct SessionThread<S: SessionKind> {
    queue: Arc<UpdateQueue<S>>,
    stop: StopHandle,
    thread: Option<JoinHandle<Result<S::Summary, S::Error>>>,
}

impl<S: SessionKind> SessionThread<S> {
    /// Asks the session to end, and returns at once. The last updates and the end follow.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Returns a handle that stops the session from any thread or from a signal handler.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Returns the updates in order, waiting for each, until the session ends.
    pub fn updates(&mut self) -> impl Iterator<Item = S::Update> {
        std::iter::from_fn(|| self.queue.take())
    }

    /// Waits for the end of the session. Updates that were not read are dropped.
    ///
    /// # Errors
    /// As for the session's own `run`.
    ///
    /// # Panics
    /// If the session's thread panicked.
    pub fn join(mut self) -> Result<S::Summary, S::Error> {
        self.queue.close();
        let thread = self.thread.take().expect("only `join` and `drop` take the thread");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<S: SessionKind> Stream for SessionThread<S> {
    type Item = S::Update;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Update>> {
        self.queue.poll(context)
    }
}

impl<S: SessionKind> Drop for SessionThread<S> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.queue.close();
            self.stop.stop();
            // Only `join` returns the error.
            let _result = thread.join();
        }
    }
}

/// Updates between the session's thread and the reader.
struct UpdateQueue<S: SessionKind> {
    state: Mutex<QueueState<S::Update>>,
    changed: Condvar,
}

struct QueueState<U> {
    waiting: VecDeque<U>,
    bytes: usize,
    /// Waker of the reader, if the reader polls.
    waker: Option<Waker>,
    /// The session has ended.
    is_ended: bool,
    /// The reader takes no more updates.
    is_closed: bool,
}

impl<S: SessionKind> Default for UpdateQueue<S> {
    fn default() -> Self {
        let state =
            QueueState { waiting: VecDeque::new(), bytes: 0, waker: None, is_ended: false, is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<S: SessionKind> std::fmt::Debug for UpdateQueue<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpdateQueue").field("waiting", &self.state().waiting.len()).finish_non_exhaustive()
    }
}

impl<S: SessionKind> UpdateQueue<S> {
    fn state(&self) -> MutexGuard<'_, QueueState<S::Update>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an update. A progress update takes the place of the last one; any other update waits for room.
    fn put(&self, update: S::Update) {
        let mut state = self.state();
        if S::is_progress(&update) {
            if let Some(before) = state.waiting.iter().rposition(S::is_progress)
                && let Some(before) = state.waiting.remove(before)
            {
                state.bytes -= S::cost(&before);
            }
        } else {
            let is_full = |state: &mut QueueState<_>| state.bytes >= WAITING_BYTES_MAX && !state.is_closed;
            state = self.changed.wait_while(state, is_full).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return;
        }
        state.bytes += S::cost(&update);
        state.waiting.push_back(update);
        self.wake(state);
    }

    /// Wakes whoever waits for a change.
    fn wake(&self, mut state: MutexGuard<'_, QueueState<S::Update>>) {
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Removes the next update, if one waits.
    fn pop(&self, state: &mut QueueState<S::Update>) -> Option<S::Update> {
        let update = state.waiting.pop_front()?;
        state.bytes -= S::cost(&update);
        self.changed.notify_all();
        Some(update)
    }

    /// Waits for the next update; `None` at the end of the session.
    fn take(&self) -> Option<S::Update> {
        let is_empty = |state: &mut QueueState<S::Update>| state.waiting.is_empty() && !state.is_ended;
        let waited = self.changed.wait_while(self.state(), is_empty);
        self.pop(&mut waited.unwrap_or_else(PoisonError::into_inner))
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Option<S::Update>> {
        let mut state = self.state();
        let update = self.pop(&mut state);
        if update.is_some() || state.is_ended {
            return Poll::Ready(update);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Drops the waiting updates and all later updates.
    fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting.clear();
        self.wake(state);
    }
}

/// Ends the queue when the session's thread ends, by return or panic.
struct EndGuard<S: SessionKind>(Arc<UpdateQueue<S>>);

impl<S: SessionKind> Drop for EndGuard<S> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_ended = true;
        self.0.wake(state);
    }
}

/// Kinds of sessions: session, update, summary, error, progress updates.
macro_rules! session_kinds {
    ($($session:ident, $update:ty, $summary:ty, $error:ty, $progress:pat),* $(,)?) => {$(
        impl SessionKind for $session {
            type Update = $update;
            type Summary = $summary;
            type Error = $error;

            fn stop_handle(&self) -> StopHandle {
                $session::stop_handle(self)
            }

            fn run_to_end(&mut self, observer: &mut dyn FnMut($update)) -> Result<$summary, $error> {
                self.run(observer)
            }

            fn is_progress(update: &$update) -> bool {
                matches!(update, $progress)
            }
        }
    )*};
}

session_kinds! {
    SendSession, SendUpdate, SendSummary, SendError, SendUpdate::Progress(_) | SendUpdate::Hashing { .. },
    ReceiveSession, ReceiveUpdate, ReceiveSummary, ReceiveError, ReceiveUpdate::Progress(_),
    PgmSendSession, PgmSendUpdate, PgmSendSummary, SendError, PgmSendUpdate::Progress(_),
    RelaySession, RelayProgress, RelayProgress, RelayError, _,
    SimRelaySession, SimRelayProgress, SimRelayProgress, SimRelayError, _,
}

impl SessionKind for PgmReceiveSession {
    type Update = PgmReceiveUpdate<'static>;
    type Summary = PgmReceiveSummary;
    type Error = ReceiveError;

    fn stop_handle(&self) -> StopHandle {
        Self::stop_handle(self)
    }

    fn run_to_end(
        &mut self,
        observer: &mut dyn FnMut(PgmReceiveUpdate<'static>),
    ) -> Result<PgmReceiveSummary, ReceiveError> {
        self.run(&mut |update| observer(update.into_owned()))
    }

    fn is_progress(update: &PgmReceiveUpdate<'static>) -> bool {
        matches!(update, PgmReceiveUpdate::Progress(_))
    }

    fn cost(update: &PgmReceiveUpdate<'static>) -> usize {
        let bytes = if let PgmReceiveUpdate::Message(message) = update { message.len() } else { 0 };
        bytes + size_of::<PgmReceiveUpdate<'static>>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::net::Poller;

    /// Session that reports odd numbers, with even numbers as progress, until stopped or at the end.
    struct Count {
        stop: StopHandle,
        end: u64,
        reported: Arc<AtomicU64>,
        has_ended: Arc<AtomicU64>,
    }

    impl Count {
        fn to(end: u64) -> Self {
            let stop = StopHandle::new(Poller::new().unwrap().waker());
            Self { stop, end, reported: Arc::default(), has_ended: Arc::default() }
        }
    }

    impl SessionKind for Count {
        type Update = u64;
        type Summary = u64;
        type Error = ();

        fn stop_handle(&self) -> StopHandle {
            self.stop.clone()
        }

        fn run_to_end(&mut self, observer: &mut dyn FnMut(u64)) -> Result<u64, ()> {
            let mut number = 0;
            while number < self.end && !self.stop.is_stopped() {
                observer(number);
                number += 1;
                self.reported.store(number, Ordering::Relaxed);
            }
            self.has_ended.store(1, Ordering::Release);
            Ok(number)
        }

        fn is_progress(update: &u64) -> bool {
            update.is_multiple_of(2)
        }
    }

    fn odd(end: u64) -> Vec<u64> {
        (0..end).filter(|number| number % 2 == 1).collect()
    }

    #[test]
    fn no_update_is_lost_but_progress() {
        let mut thread = Count::to(100_000).spawn().unwrap();
        let got: Vec<_> = thread.updates().collect();
        assert!(got.is_sorted());
        let others: Vec<_> = got.into_iter().filter(|number| !Count::is_progress(number)).collect();
        assert_eq!(others, odd(100_000));
        assert_eq!(thread.join(), Ok(100_000));
    }

    #[test]
    fn a_slow_reader_holds_the_session_up_in_bounded_memory() {
        let session = Count::to(u64::MAX);
        let reported = Arc::clone(&session.reported);
        let mut thread = session.spawn().unwrap();
        let most = WAITING_BYTES_MAX / UPDATE_BYTES;
        while thread.queue.state().bytes < WAITING_BYTES_MAX {
            std::thread::yield_now();
        }
        let first: Vec<_> = thread.updates().filter(|number| !Count::is_progress(number)).take(10).collect();
        assert_eq!(first, odd(20), "the oldest updates waited");
        assert!(thread.queue.state().waiting.len() <= most + 1);
        assert!(reported.load(Ordering::Relaxed) <= 2 * most as u64 + 40);
        thread.stop();
        assert!(thread.updates().count() <= most + 2, "the updates end after a stop");
        assert!(thread.join().is_ok());
    }

    #[test]
    fn joining_lets_a_session_go_that_nobody_reads() {
        assert_eq!(Count::to(100_000).spawn().unwrap().join(), Ok(100_000));
    }

    #[test]
    fn dropping_the_handle_stops_and_joins() {
        let session = Count::to(u64::MAX);
        let has_ended = Arc::clone(&session.has_ended);
        drop(session.spawn().unwrap());
        assert_eq!(has_ended.load(Ordering::Acquire), 1);
    }

    #[test]
    fn the_stream_wakes_its_task_and_ends() {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut thread = Count::to(10_000).spawn().unwrap();
        let mut got = Vec::new();
        loop {
            match Pin::new(&mut thread).poll_next(&mut context) {
                Poll::Ready(Some(update)) => got.push(update),
                Poll::Ready(None) => break,
                Poll::Pending => std::thread::park(),
            }
        }
        got.retain(|number| !Count::is_progress(number));
        assert_eq!(got, odd(10_000));
        assert!(matches!(Pin::new(&mut thread).poll_next(&mut context), Poll::Ready(None)));
    }

    #[test]
    fn a_panic_ends_the_updates_and_reaches_the_joiner() {
        struct Panics(Count);
        impl SessionKind for Panics {
            type Update = u64;
            type Summary = ();
            type Error = ();
            fn stop_handle(&self) -> StopHandle {
                self.0.stop.clone()
            }
            fn run_to_end(&mut self, _observer: &mut dyn FnMut(u64)) -> Result<(), ()> {
                std::panic::resume_unwind(Box::new("on purpose"))
            }
            fn is_progress(_update: &u64) -> bool {
                false
            }
        }
        let mut thread = Panics(Count::to(1)).spawn().unwrap();
        assert_eq!(thread.updates().next(), None);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| thread.join())).is_err());
    }
}
