//! Sessions: running on the caller's thread or on a thread of their own, updates, stopping, joining.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use futures_core::Stream;

use crate::net::OpenError;
use crate::threads::StopHandle;

/// Default maximum bytes of waiting updates, by the estimate of [`Session::cost`].
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Bytes of an update with the names that it holds.
const UPDATE_BYTES: usize = 1 << 10;
/// Interval at which a session that waits for its reader checks whether the session is stopped.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Session of this crate: runs on the thread of the caller ([`run`](Self::run)) or on a thread of its own
/// ([`spawn`](Self::spawn)).
pub trait Session: Sized + Send + 'static {
    /// Update to the observer of the session.
    type Update: Send + 'static;
    /// Summary at the end.
    type Summary: Send + 'static;
    /// Error that ends the session early.
    type Error: Send + 'static;

    /// Returns a handle that stops the session from any thread.
    fn stop_handle(&self) -> StopHandle;

    /// Runs the session to its end, or until the session is stopped, on the thread of the caller.
    ///
    /// # Errors
    /// If the session cannot begin, or the network fails.
    fn run(&mut self, observer: &mut dyn FnMut(Self::Update)) -> Result<Self::Summary, Self::Error>;

    /// Whether a later update of this kind makes an earlier one worthless.
    fn is_progress(update: &Self::Update) -> bool;

    /// Returns the estimated bytes of an update.
    fn cost(_update: &Self::Update) -> usize {
        UPDATE_BYTES
    }

    /// Returns the limit of the updates that wait for the reader of a spawned session.
    fn backlog(&self) -> Backlog {
        Backlog::Wait(WAITING_BYTES_MAX)
    }

    /// Runs the session on a thread of its own.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    fn spawn(mut self) -> Result<SessionThread<Self>, OpenError> {
        let (stop, queue) = (self.stop_handle(), Arc::new(UpdateQueue::<Self>::new(&self)));
        let guard = EndGuard(Arc::clone(&queue));
        let run = move || self.run(&mut |update| guard.0.put(update));
        let thread = Builder::new().name("headwater-session".to_owned()).spawn(run);
        let thread = thread.map_err(|source| OpenError::Option { attempt: "start a thread", source })?;
        Ok(SessionThread { queue, stop, thread: Some(thread) })
    }
}

/// Limit of the updates that wait for the reader of a spawned session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// At this number of bytes the session waits for the reader.
    Wait(usize),
    /// Above this number of bytes the oldest updates are lost. The last update always waits.
    DropOldest(usize),
}

/// Handle of a session that runs on a thread of its own ([`Session::spawn`]).
///
/// Updates wait in a queue for [`updates`](Self::updates), or, by wakers, for the handle as a [`Stream`].
/// Both end with the session. A progress update replaces a waiting progress update. Of other updates, only a
/// session with [`Backlog::DropOldest`] ever loses one: any other session waits for the reader while the
/// backlog is full, until the session is stopped or the handle dropped.
///
/// Dropping the handle stops the session and waits for its end.
#[derive(Debug)]
#[must_use = "dropping the handle stops the session"]
pub struct SessionThread<S: Session> {
    queue: Arc<UpdateQueue<S>>,
    stop: StopHandle,
    thread: Option<JoinHandle<Result<S::Summary, S::Error>>>,
}

impl<S: Session> SessionThread<S> {
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
        std::iter::from_fn(|| self.queue.take(None))
    }

    /// Waits for the next update, at most for `timeout`. `None`: the time is over, or the session has ended.
    pub fn next_within(&mut self, timeout: Duration) -> Option<S::Update> {
        self.queue.take(Some(timeout))
    }

    /// Returns the progress update that waits for the reader, if any, and leaves the update there: the latest
    /// progress, for an application that reads no updates.
    pub fn progress(&self) -> Option<S::Update>
    where
        S::Update: Clone,
    {
        self.queue.state().waiting.iter().rfind(|update| S::is_progress(update)).cloned()
    }

    /// Returns the number of updates that were lost because the reader was slow ([`Backlog::DropOldest`]).
    pub fn lost(&self) -> u64 {
        self.queue.state().lost
    }

    /// Waits for the end of the session. Updates that were not read are dropped.
    ///
    /// # Errors
    /// As for [`Session::run`].
    ///
    /// # Panics
    /// If the session's thread panicked.
    pub fn join(mut self) -> Result<S::Summary, S::Error> {
        self.queue.close();
        let thread = self.thread.take().expect("only `join` and `drop` take the thread");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<S: Session> Stream for SessionThread<S> {
    type Item = S::Update;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Update>> {
        self.queue.poll(context)
    }
}

impl<S: Session> Drop for SessionThread<S> {
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
struct UpdateQueue<S: Session> {
    backlog: Backlog,
    stop: StopHandle,
    state: Mutex<QueueState<S::Update>>,
    changed: Condvar,
}

struct QueueState<U> {
    waiting: VecDeque<U>,
    bytes: usize,
    /// Updates lost to a slow reader.
    lost: u64,
    /// Waker of the reader, if the reader polls.
    waker: Option<Waker>,
    /// The session has ended.
    is_ended: bool,
    /// The reader takes no more updates.
    is_closed: bool,
}

impl<S: Session> std::fmt::Debug for UpdateQueue<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpdateQueue").field("waiting", &self.state().waiting.len()).finish_non_exhaustive()
    }
}

impl<S: Session> UpdateQueue<S> {
    fn new(session: &S) -> Self {
        let state = QueueState {
            waiting: VecDeque::new(),
            bytes: 0,
            lost: 0,
            waker: None,
            is_ended: false,
            is_closed: false,
        };
        let (backlog, stop) = (session.backlog(), session.stop_handle());
        Self { backlog, stop, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, QueueState<S::Update>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an update. A progress update takes the place of the last one; any other update waits for room,
    /// or takes the room of older updates.
    fn put(&self, update: S::Update) {
        let mut state = self.state();
        if S::is_progress(&update) {
            if let Some(before) = state.waiting.iter().rposition(S::is_progress)
                && let Some(before) = state.waiting.remove(before)
            {
                state.bytes -= S::cost(&before);
            }
        } else if let Backlog::Wait(bytes_max) = self.backlog {
            while state.bytes >= bytes_max && !state.is_closed && !self.stop.is_stopped() {
                let waited = self.changed.wait_timeout(state, STOP_CHECK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        if state.is_closed {
            return;
        }
        state.bytes += S::cost(&update);
        state.waiting.push_back(update);
        if let Backlog::DropOldest(bytes_max) = self.backlog {
            while state.bytes > bytes_max && state.waiting.len() > 1 {
                let oldest = self.pop(&mut state);
                state.lost += u64::from(!oldest.as_ref().is_some_and(S::is_progress));
            }
        }
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

    /// Waits for the next update; `None` at the end of the session or when the time is over.
    fn take(&self, timeout: Option<Duration>) -> Option<S::Update> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state();
        while state.waiting.is_empty() && !state.is_ended {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        self.pop(&mut state)
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
struct EndGuard<S: Session>(Arc<UpdateQueue<S>>);

impl<S: Session> Drop for EndGuard<S> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_ended = true;
        self.0.wake(state);
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
        backlog: Backlog,
        end: u64,
        reported: Arc<AtomicU64>,
        has_ended: Arc<AtomicU64>,
    }

    impl Count {
        fn to(end: u64) -> Self {
            let stop = StopHandle::new(Poller::new().unwrap().waker());
            let backlog = Backlog::Wait(WAITING_BYTES_MAX);
            Self { stop, backlog, end, reported: Arc::default(), has_ended: Arc::default() }
        }
    }

    impl Session for Count {
        type Update = u64;
        type Summary = u64;
        type Error = ();

        fn stop_handle(&self) -> StopHandle {
            self.stop.clone()
        }

        fn run(&mut self, observer: &mut dyn FnMut(u64)) -> Result<u64, ()> {
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

        fn backlog(&self) -> Backlog {
            self.backlog
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
    fn a_live_session_loses_the_oldest_updates_and_counts_them() {
        let mut session = Count::to(1_000);
        session.backlog = Backlog::DropOldest(10 * UPDATE_BYTES);
        let has_ended = Arc::clone(&session.has_ended);
        let mut thread = session.spawn().unwrap();
        while has_ended.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let got: Vec<_> = thread.updates().filter(|number| !Count::is_progress(number)).collect();
        assert!((9..=10).contains(&got.len()), "{got:?}");
        assert_eq!(got[..], odd(1_000)[500 - got.len()..]);
        assert_eq!(thread.lost(), 500 - got.len() as u64);
        assert_eq!(thread.join(), Ok(1_000));
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_reader() {
        let session = Count::to(u64::MAX);
        let (stop, has_ended) = (session.stop_handle(), Arc::clone(&session.has_ended));
        let thread = session.spawn().unwrap();
        while thread.queue.state().bytes < WAITING_BYTES_MAX {
            std::thread::yield_now();
        }
        stop.stop();
        while has_ended.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        assert!(thread.join().is_ok());
    }

    #[test]
    fn a_wait_for_an_update_ends() {
        let queue = UpdateQueue::<Count>::new(&Count::to(0));
        assert_eq!(queue.take(Some(Duration::from_millis(1))), None);
        queue.put(2);
        assert_eq!(queue.take(Some(Duration::ZERO)), Some(2));
    }

    #[test]
    fn the_latest_progress_can_be_seen_in_the_queue() {
        let mut thread = Count::to(101).spawn().unwrap();
        while !thread.queue.state().is_ended {
            std::thread::yield_now();
        }
        assert_eq!(thread.progress(), Some(100));
        assert_eq!(thread.updates().last(), Some(100));
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
        impl Session for Panics {
            type Update = u64;
            type Summary = ();
            type Error = ();
            fn stop_handle(&self) -> StopHandle {
                self.0.stop.clone()
            }
            fn run(&mut self, _observer: &mut dyn FnMut(u64)) -> Result<(), ()> {
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
