//! The receiving end of a stream: a thread that receives, and the handle that gives an application its
//! buffers.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::SessionEvent;
use headwater_proto::stream::{Received, Receiver, ReceiverConfig, ReceiverEvent};

use super::options::StreamReceiveOptions;
use super::outbox::Outbox;
use super::update::{StreamDelivery, StreamOutcome, StreamReceiveProgress, StreamReceiveSummary};
use crate::clock::{Clock, elapsed};
use crate::driver::Application;
use crate::net::ReceiverSocket;
use crate::progress::Progress;
use crate::receive::{Listener, ReceiveError};
use crate::stop::StopHandle;
use crate::workers;

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
        let thread = workers::spawn("headwater-stream", move || session.run())?;
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
            let progress = watch.tell(&mut machine, &self.listener.socket, clock.now());
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
    fn tell<C: ReceiverControl>(
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
        self.outbox.tell(progress.clone());
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
            self.tell(machine, socket, now);
        }
        Some(self.progress.next())
    }
}
