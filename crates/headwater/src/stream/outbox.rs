//! Buffers on their way from the thread that receives to the application.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::update::{StreamDelivery, StreamReceiveProgress};

/// What pieces and vectors cost beside their bytes.
const DELIVERY_BYTES: usize = 128;

/// Deliveries that wait for the application, of so many bytes at most; then the oldest is lost.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    shared: Arc<(Mutex<State>, Condvar)>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    deliveries: VecDeque<StreamDelivery>,
    bytes: usize,
    lost: u64,
    /// The thread gives no more.
    is_ended: bool,
    progress: StreamReceiveProgress,
}

impl Outbox {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { shared: Arc::default(), bytes_max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a delivery in. One alone is taken however long it is.
    pub(super) fn put(&self, delivery: StreamDelivery) {
        let mut state = self.state();
        state.bytes += bytes(&delivery);
        state.deliveries.push_back(delivery);
        while state.bytes > self.bytes_max && state.deliveries.len() > 1 {
            let oldest = state.deliveries.pop_front();
            state.bytes -= oldest.as_ref().map_or(0, bytes);
            state.lost += 1;
        }
        self.shared.1.notify_one();
    }

    /// Waits for the next delivery; `None` when the stream has ended, or the time is over.
    pub(super) fn take(&self, timeout: Option<Duration>) -> Option<StreamDelivery> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state();
        loop {
            if let Some(delivery) = state.deliveries.pop_front() {
                state.bytes -= bytes(&delivery);
                return Some(delivery);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if state.is_ended || left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            state = match left {
                Some(left) => {
                    self.shared.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.shared.1.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// There is no more to come.
    pub(super) fn end(&self) {
        self.state().is_ended = true;
        self.shared.1.notify_all();
    }

    pub(super) fn tell(&self, progress: StreamReceiveProgress) {
        self.state().progress = progress;
    }

    pub(super) fn progress(&self) -> StreamReceiveProgress {
        let state = self.state();
        StreamReceiveProgress { lost: state.lost, ..state.progress.clone() }
    }
}

fn bytes(delivery: &StreamDelivery) -> usize {
    let pieces = |pieces: &[_]| -> usize {
        pieces.iter().map(|piece: &super::Piece| piece.bytes.len() + DELIVERY_BYTES).sum()
    };
    DELIVERY_BYTES
        + match delivery {
            StreamDelivery::Buffer(received) => received.prefix.len() + pieces(&received.pieces),
            StreamDelivery::Late { piece, .. } => pieces(std::slice::from_ref(piece)),
        }
}

#[cfg(test)]
mod tests {
    use super::super::Received;
    use super::*;

    fn buffer(id: u16, bytes: usize) -> StreamDelivery {
        StreamDelivery::Buffer(Received { id, prefix: vec![0; bytes], ..Received::default() })
    }

    #[test]
    fn the_oldest_is_lost_when_nobody_comes() {
        let outbox = Outbox::new(1_000);
        for id in 0..5 {
            outbox.put(buffer(id, 300));
        }
        outbox.put(buffer(5, 2_000));
        outbox.end();
        assert_eq!(outbox.take(None), Some(buffer(5, 2_000)), "one alone is taken however long it is");
        assert_eq!(outbox.take(None), None);
        assert_eq!(outbox.progress().lost, 5);
        assert_eq!(outbox.state().bytes, 0);
    }

    #[test]
    fn a_wait_ends() {
        let outbox = Outbox::new(1_000);
        assert_eq!(outbox.take(Some(Duration::from_millis(1))), None);
        let other = outbox.clone();
        let thread = std::thread::spawn(move || other.take(None));
        outbox.put(buffer(1, 1));
        assert_eq!(thread.join().ok().flatten(), Some(buffer(1, 1)));
    }
}
