//! Receiving end of a stream: the receiving thread, and the handle that delivers buffers to the application.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::SessionEvent;
use headwater_proto::stream::{Received, Receiver, ReceiverConfig, ReceiverEvent};

use super::StreamReceiveOptions;
use super::update::{StreamDelivery, StreamOutcome, StreamReceiveProgress, StreamReceiveSummary};
use crate::clock::{Clock, Progress, elapsed};
use crate::driver::Application;
use crate::net::ReceiverSocket;
use crate::receive::{Listener, ReceiveError};
use crate::threads::{self, StopHandle};

/// Receiver of a stream of buffers, on a thread of its own, until the sender closes the stream, or the
/// receiver is stopped or dropped.
///
/// The iterator returns the buffers in order, and ends with the stream.
#[derive(Debug)]
pub struct StreamReceiver {
    outbox: Outbox,
    stop: StopHandle,
    thread: Option<JoinHandle<Result<StreamReceiveSummary, ReceiveError>>>,
}

impl StreamReceiver {
    /// Opens the socket and begins to listen.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can receive from the group.
    pub fn open(options: StreamReceiveOptions) -> Result<Self, ReceiveError> {
        let StreamReceiveOptions { listen, buffer_bytes_max, wants_pieces } = options;
        let listener = Listener::open(listen)?;
        let stop = listener.stop.clone();
        let outbox = Outbox::new(buffer_bytes_max.saturating_mul(2));
        let config = ReceiverConfig::default()
            .with_tsi(listener.options.tsi)
            .with_source(listener.options.source)
            .with_buffer_bytes_max(buffer_bytes_max)
            .with_pieces(wants_pieces);
        let mut session = Session { listener, config, outbox: outbox.clone() };
        let thread = threads::spawn("headwater-stream", move || session.run())?;
        Ok(Self { outbox, stop, thread: Some(thread) })
    }

    /// Returns a handle that stops the receiver from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Returns the progress, updated about ten times a second.
    pub fn progress(&self) -> StreamReceiveProgress {
        self.outbox.progress()
    }

    /// Waits for a buffer or a late piece, at most for `timeout`. `None`: the time is over, or the stream has
    /// ended.
    pub fn next_delivery(&mut self, timeout: Option<Duration>) -> Option<StreamDelivery> {
        self.outbox.take(timeout)
    }

    /// Stops the receiver if necessary, and returns the summary.
    ///
    /// # Errors
    /// If the network failed.
    pub fn finish(mut self) -> Result<StreamReceiveSummary, ReceiveError> {
        self.stop.stop();
        let summary = self.thread.take().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let progress = self.outbox.progress();
        match summary {
            Some(summary) => summary.map(|summary| StreamReceiveSummary { progress, ..summary }),
            None => Ok(StreamReceiveSummary { outcome: StreamOutcome::Interrupted, progress }),
        }
    }
}

impl Iterator for StreamReceiver {
    type Item = Received;

    fn next(&mut self) -> Option<Received> {
        loop {
            if let StreamDelivery::Buffer(received) = self.next_delivery(None)? {
                return Some(received);
            }
        }
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            // Only `finish` returns the error.
            let _result = thread.join();
        }
    }
}

/// State of the thread.
struct Session {
    listener: Listener,
    config: ReceiverConfig,
    outbox: Outbox,
}

impl Session {
    fn run(&mut self) -> Result<StreamReceiveSummary, ReceiveError> {
        let result = self.receive();
        self.listener.leave();
        result
    }

    fn receive(&mut self) -> Result<StreamReceiveSummary, ReceiveError> {
        let clock = Clock::start();
        loop {
            let options = &self.listener.options;
            let mut machine = Receiver::new(self.config, options.control(), clock.now())
                .with_verifying(options.trust.verifying(false));
            let mut watch = Watch {
                stop: self.listener.stop.clone(),
                outbox: self.outbox.clone(),
                timeout: self.listener.options.timeout.map(Into::into),
                progress: Progress::new(clock.now()),
                sender: None,
                end: None,
            };
            self.listener.drive(&mut machine, clock, &mut watch)?;
            let progress = watch.report(&mut machine, &self.listener.socket, clock.now());
            // Without an outcome another session has replaced the stream, and is received from here on.
            if let Some(outcome) = watch.end {
                return Ok(StreamReceiveSummary { outcome, progress });
            }
        }
    }
}

impl Drop for Session {
    /// Releases threads that wait for a buffer, whatever ended this thread.
    fn drop(&mut self) {
        self.outbox.end();
    }
}

/// Application of the machine: passes on buffers and ends the stream.
struct Watch {
    stop: StopHandle,
    outbox: Outbox,
    timeout: Option<headwater_proto::Duration>,
    progress: Progress,
    sender: Option<(SocketAddr, u64)>,
    end: Option<StreamOutcome>,
}

impl Watch {
    fn report<C: ReceiverControl>(
        &mut self,
        machine: &mut Receiver<C>,
        socket: &ReceiverSocket,
        now: Instant,
    ) -> StreamReceiveProgress {
        let stats = machine.stats();
        let progress = StreamReceiveProgress {
            elapsed: elapsed(now),
            session: self.sender,
            rate_bits: self.progress.rate_bits(now, stats.bytes),
            stats,
            reception: machine.reception(),
            control: machine.control_status(now),
            kernel_drops: socket.counters().kernel_drops,
            lost: 0,
        };
        self.outbox.report(progress.clone());
        progress
    }

    fn is_timed_out<C>(&self, machine: &Receiver<C>, now: Instant) -> bool
    where
        C: ReceiverControl,
    {
        self.timeout.is_some_and(|timeout| machine.stats().last_progress + timeout <= now)
    }
}

impl<C: ReceiverControl> Application<Receiver<C>, ReceiverSocket> for Watch {
    fn steer(&mut self, machine: &mut Receiver<C>, socket: &mut ReceiverSocket, now: Instant) {
        // The base channel accepts any next sender; the other channels belong to this sender.
        socket.expect_source(machine.session().map(|(source, _)| source));
        let end = if self.stop.is_stopped() {
            StreamOutcome::Interrupted
        } else if !self.is_timed_out(machine, now) {
            return;
        } else if machine.session().is_none() {
            StreamOutcome::NothingReceived
        } else {
            StreamOutcome::TimedOut
        };
        if !machine.is_ended() {
            machine.close(now);
            self.end = Some(end);
        }
    }

    fn event(&mut self, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Session(SessionEvent::Found { tsi, source }) => self.sender = Some((source, tsi)),
            ReceiverEvent::Session(_) => {}
            ReceiverEvent::NoBuffers => self.end = Some(StreamOutcome::NoBuffers),
            ReceiverEvent::ControlRefused { reason } => {
                self.end = Some(StreamOutcome::ControlRefused(reason));
            }
            ReceiverEvent::Buffer(received) => self.outbox.put(StreamDelivery::Buffer(received)),
            ReceiverEvent::Late { id, piece } => self.outbox.put(StreamDelivery::Late { id, piece }),
            ReceiverEvent::Closed => self.end = Some(StreamOutcome::Closed),
        }
    }

    fn observe(
        &mut self,
        machine: &mut Receiver<C>,
        socket: &ReceiverSocket,
        _unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        if machine.is_ended() {
            return None;
        }
        if self.progress.is_due(now) {
            self.report(machine, socket, now);
        }
        Some(self.progress.next())
    }
}

/// Overhead of a piece or vector in bytes.
const DELIVERY_BYTES: usize = 128;

/// Deliveries that wait for the application, up to a maximum of bytes; beyond that, the oldest is lost.
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
    /// The thread delivers no more.
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

    /// Appends a delivery. A single delivery may exceed the maximum.
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

    /// Waits for the next delivery; `None` at the end of the stream or when the time is over.
    pub(super) fn take(&self, timeout: Option<Duration>) -> Option<StreamDelivery> {
        let deadline = timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout));
        let mut state = self.state();
        loop {
            if let Some(delivery) = state.deliveries.pop_front() {
                state.bytes -= bytes(&delivery);
                return Some(delivery);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
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

    /// Ends the deliveries.
    pub(super) fn end(&self) {
        self.state().is_ended = true;
        self.shared.1.notify_all();
    }

    pub(super) fn report(&self, progress: StreamReceiveProgress) {
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
