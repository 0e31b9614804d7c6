//! Queue of messages from the application to the sending thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::net::Waker;

/// Longest single wait for room.
const WAIT_SLICE: Duration = Duration::from_secs(60);

/// Maximum bytes of waiting messages. A single message may exceed the maximum.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// Overhead of a message in bytes.
const MESSAGE_COST: usize = 16;

/// Error of handing over a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PgmFeedError {
    /// The message does not fit in half of the window.
    #[error(
        "a message of {bytes} bytes is too long: this window takes {max}; send it in pieces, or with a larger window"
    )]
    TooLong {
        /// Bytes of the message.
        bytes: usize,
        /// Maximum bytes of a message.
        max: usize,
    },
    /// The session was finished or stopped, or the network failed; the end of the session returns the error.
    #[error("the session has ended")]
    Ended,
}

/// Handle that passes messages to a session, from any thread.
#[derive(Clone, Debug)]
pub struct PgmFeed {
    shared: Arc<(Mutex<State>, Condvar)>,
    waker: Waker,
    message_bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: Batch,
    /// The application has no more messages.
    is_finished: bool,
    /// The session accepts no more messages.
    is_ended: bool,
}

/// Messages back to back, in a reused buffer.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// End of each message in the buffer.
    ends: Vec<usize>,
    /// Messages taken.
    taken: usize,
}

impl Batch {
    /// Returns the first message that was not taken.
    pub(super) fn first(&self) -> Option<&[u8]> {
        let end = *self.ends.get(self.taken)?;
        let start = self.taken.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// Counts the first message as taken.
    pub(super) const fn take(&mut self) {
        self.taken += 1;
    }

    fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
    }

    fn cost(&self) -> usize {
        self.bytes.len() + MESSAGE_COST * self.ends.len()
    }
}

impl PgmFeed {
    pub(super) fn new(waker: Waker, message_bytes_max: usize) -> Self {
        Self { shared: Arc::default(), waker, message_bytes_max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over a message. Blocks while 64 KiB of messages wait.
    ///
    /// # Errors
    /// If the message is too long, or the session has ended.
    pub fn send(&self, message: &[u8]) -> Result<(), PgmFeedError> {
        while !self.send_within(message, WAIT_SLICE)? {}
        Ok(())
    }

    /// Hands over a message, and waits at most for `timeout` while 64 KiB of messages wait. Returns whether
    /// the message was taken.
    ///
    /// # Errors
    /// As for [`PgmFeed::send`].
    pub fn send_within(&self, message: &[u8], timeout: Duration) -> Result<bool, PgmFeedError> {
        let (bytes, max) = (message.len(), self.message_bytes_max);
        if bytes > max {
            return Err(PgmFeedError::TooLong { bytes, max });
        }
        let is_full = |state: &mut State| {
            let cost = state.waiting.cost();
            cost > 0 && cost + bytes > WAITING_BYTES_MAX && !state.is_ended && !state.is_finished
        };
        let waited = self.shared.1.wait_timeout_while(self.state(), timeout, is_full);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_ended || state.is_finished {
            return Err(PgmFeedError::Ended);
        }
        if waited.timed_out() {
            return Ok(false);
        }
        let was_empty = state.waiting.ends.is_empty();
        state.waiting.push(message);
        drop(state);
        if was_empty {
            self.waker.wake();
        }
        Ok(true)
    }

    /// Ends the messages: the session ends once every message is sent and repaired.
    pub fn finish(&self) {
        self.state().is_finished = true;
        self.shared.1.notify_all();
        self.waker.wake();
    }

    /// Moves the waiting messages into a batch, which is cleared first. Whether any message waited.
    pub(super) fn take(&self, batch: &mut Batch) -> bool {
        batch.clear();
        let mut state = self.state();
        std::mem::swap(&mut state.waiting, batch);
        drop(state);
        let has_some = !batch.ends.is_empty();
        if has_some {
            self.shared.1.notify_all();
        }
        has_some
    }

    /// Whether a message waits.
    pub(super) fn has_some(&self) -> bool {
        !self.state().waiting.ends.is_empty()
    }

    /// Whether every message was taken and no more messages will come.
    pub(super) fn is_finished(&self) -> bool {
        let state = self.state();
        state.is_finished && state.waiting.ends.is_empty()
    }

    /// Refuses further messages.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.is_ended = true;
        state.waiting.clear();
        drop(state);
        self.shared.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::Poller;

    #[test]
    fn a_feed_holds_so_much_and_no_more() {
        let poller = Poller::new().unwrap();
        let feed = PgmFeed::new(poller.waker(), 100_000);
        assert_eq!(feed.send(&[0; 100_001]), Err(PgmFeedError::TooLong { bytes: 100_001, max: 100_000 }));
        let other = feed.clone();
        let thread = std::thread::spawn(move || {
            other.send(&[1; 100_000])?;
            (0..10_000).try_for_each(|_| other.send(&[]))?;
            other.finish();
            Ok::<_, PgmFeedError>(())
        });
        let (mut batch, mut messages, mut most) = (Batch::default(), 0, 0);
        while !feed.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            if feed.take(&mut batch) {
                most = most.max(batch.cost());
                messages += std::iter::from_fn(|| batch.first().is_some().then(|| batch.take())).count();
            }
        }
        assert_eq!((thread.join().unwrap(), messages), (Ok(()), 10_001));
        assert!(most <= 100_000 + MESSAGE_COST, "{most}");
        assert_eq!(feed.send(b"more"), Err(PgmFeedError::Ended));
    }

    #[test]
    fn an_end_lets_go_of_who_waits() {
        let poller = Poller::new().unwrap();
        let feed = PgmFeed::new(poller.waker(), 1 << 20);
        feed.send(&[0; 70_000]).unwrap();
        let other = feed.clone();
        let thread = std::thread::spawn(move || other.send(&[0; 70_000]));
        feed.end();
        assert_eq!(thread.join().unwrap(), Err(PgmFeedError::Ended));
    }
}
