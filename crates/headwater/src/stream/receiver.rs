//! The receiving end of a stream: a thread that receives, and the handle that gives an application its
//! buffers by an outbox.

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

/// Receives a stream of buffers, on a thread of its own, until its sender closes it, or it is stopped or
/// dropped.
///
/// As an iterator it gives one buffer after the other, and ends with the stream.
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
    /// When an option is out of range, or there is no way to receive from the group.
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

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// How far it is; new about ten times a second.
    pub fn progress(&self) -> StreamReceiveProgress {
        self.outbox.progress()
    }

    /// Waits for a buffer, or a piece that came late, for so long at most; `None` when none came, or the
    /// stream has ended.
    pub fn next_delivery(&mut self, timeout: Option<Duration>) -> Option<StreamDelivery> {
        self.outbox.take(timeout)
    }

    /// Stops it if it still goes on, and sums it up.
    ///
    /// # Errors
    /// When the network failed.
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
            // What went wrong is for those to know who call `finish`.
            let _result = thread.join();
        }
    }
}

/// What the thread owns.
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
            let mut machine = Receiver::new(self.config, self.listener.options.control(), clock.now());
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
            // Another session has come in its place: that one is received from here on.
            if let Some(outcome) = watch.end {
                return Ok(StreamReceiveSummary { outcome, progress });
            }
        }
    }
}

impl Drop for Session {
    /// Lets go of who waits for a buffer, whatever ended the thread.
    fn drop(&mut self) {
        self.outbox.end();
    }
}

/// Carries buffers from the machine to the application.
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
        // The base channel stays open to whoever may send on it next; the others are this sender's.
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

    /// There is no more to come.
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
