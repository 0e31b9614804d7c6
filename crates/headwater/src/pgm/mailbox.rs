//! Messages on their way from the thread that receives to the application.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::update::{PgmReceiveProgress, PgmReceived};
use crate::stop::StopHandle;

/// Bytes that wait at most, but for one message alone; then the thread that receives waits.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// What a message costs beside its bytes.
const MESSAGE_COST: usize = 64;
/// How often a thread that waits looks whether it is stopped.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Default)]
pub(super) struct Mailbox {
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<PgmReceived>,
    bytes: usize,
    is_ended: bool,
    progress: PgmReceiveProgress,
}

fn cost(received: &PgmReceived) -> usize {
    match received {
        PgmReceived::Message(message) => message.len() + MESSAGE_COST,
        PgmReceived::Lost { .. } => MESSAGE_COST,
    }
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something in; waits while there is no room, unless stopped: then it is dropped.
    pub(super) fn put(&self, received: PgmReceived, stop: &StopHandle) {
        let cost = cost(&received);
        let mut state = self.state();
        while state.bytes > 0 && state.bytes + cost > WAITING_BYTES_MAX {
            if stop.is_stopped() {
                return;
            }
            let waited = self.shared.1.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.bytes += cost;
        state.waiting.push_back(received);
        drop(state);
        self.shared.1.notify_all();
    }

    /// Waits for the next; `None` when there is no more, or the time is over.
    pub(super) fn take(&self, timeout: Option<Duration>) -> Option<PgmReceived> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state();
        loop {
            if let Some(received) = state.waiting.pop_front() {
                state.bytes -= cost(&received);
                drop(state);
                self.shared.1.notify_all();
                return Some(received);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if state.is_ended || left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let waited = self.shared.1.wait_timeout(state, left.unwrap_or(Duration::from_secs(3_600)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn tell(&self, progress: PgmReceiveProgress) {
        self.state().progress = progress;
    }

    pub(super) fn progress(&self) -> PgmReceiveProgress {
        self.state().progress
    }

    /// When that is dropped there is no more to come, whatever ends the thread that holds it.
    pub(super) fn ending(&self) -> Ending {
        Ending(self.clone())
    }
}

#[derive(Debug)]
pub(super) struct Ending(Mailbox);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.state().is_ended = true;
        self.0.shared.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Poller;

    #[test]
    fn who_is_slow_holds_the_sender_up_and_loses_nothing() {
        let stop = StopHandle::new(Poller::new().unwrap().waker());
        let mailbox = Mailbox::default();
        let (other, held) = (mailbox.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let _end = other.ending();
            (0..40_u8).for_each(|number| other.put(PgmReceived::Message(vec![number; 1 << 20]), &held));
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(mailbox.state().bytes <= WAITING_BYTES_MAX);
        let all: Vec<_> = std::iter::from_fn(|| mailbox.take(None)).collect();
        thread.join().unwrap();
        assert!(
            (0..40_u8).zip(&all).all(|(number, got)| *got == PgmReceived::Message(vec![number; 1 << 20]))
        );
        assert_eq!((all.len(), mailbox.state().bytes), (40, 0));
    }

    #[test]
    fn who_waits_is_let_go_when_the_thread_panics() {
        let mailbox = Mailbox::default();
        let other = mailbox.clone();
        let thread = std::thread::spawn(move || {
            let _end = other.ending();
            std::panic::resume_unwind(Box::new(()));
        });
        assert_eq!(mailbox.take(Some(Duration::from_secs(20))), None);
        assert!(mailbox.state().is_ended && thread.join().is_err());
    }

    #[test]
    fn waits_end_by_a_stop_and_by_time() {
        let stop = StopHandle::new(Poller::new().unwrap().waker());
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.take(Some(Duration::from_millis(1))), None);
        mailbox.put(PgmReceived::Message(vec![0; WAITING_BYTES_MAX + 1]), &stop);
        stop.stop();
        mailbox.put(PgmReceived::Lost { packets: 1 }, &stop);
        assert_eq!(mailbox.state().waiting.len(), 1, "one alone however long, and no more once stopped");
    }
}
