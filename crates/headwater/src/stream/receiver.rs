//! Session that receives a stream of buffers.

use std::net::SocketAddr;

use headwater_proto::Instant;
use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::SessionEvent;
use headwater_proto::stream::{Piece, Receiver, ReceiverConfig, ReceiverEvent};

use super::StreamReceiveOptions;
use super::update::{StreamOutcome, StreamReceiveProgress, StreamReceiveSummary, StreamReceiveUpdate};
use crate::clock::{Clock, Progress, elapsed};
use crate::driver::Application;
use crate::net::{LinkChange, ReceiverSocket};
use crate::receive::{Listener, ReceiveError};
use crate::session::{Backlog, Session};
use crate::threads::StopHandle;

/// Session that receives a stream of buffers, until the sender closes the stream, the timeout expires, or the
/// session is stopped. The updates carry the buffers in order.
///
/// While buffers of more than twice the longest buffer wait for the reader of a spawned session, the oldest
/// is lost.
#[derive(Debug)]
pub struct StreamReceiveSession {
    listener: Listener,
    config: ReceiverConfig,
    buffer_bytes_max: usize,
}

impl StreamReceiveSession {
    /// Opens the socket. Nothing is joined yet.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can receive from the group.
    pub fn open(options: StreamReceiveOptions) -> Result<Self, ReceiveError> {
        let StreamReceiveOptions { listen, buffer_bytes_max, wants_pieces } = options;
        let listener = Listener::open(listen)?;
        let config = ReceiverConfig::default()
            .with_tsi(listener.options.tsi)
            .with_source(listener.options.source)
            .with_buffer_bytes_max(buffer_bytes_max)
            .with_pieces(wants_pieces);
        Ok(Self { listener, config, buffer_bytes_max })
    }

    fn receive(
        &mut self,
        observer: &mut dyn FnMut(StreamReceiveUpdate),
    ) -> Result<StreamReceiveSummary, ReceiveError> {
        let clock = Clock::start();
        loop {
            let options = &self.listener.options;
            let mut machine = Receiver::new(self.config, options.control(), clock.now())
                .with_verifying(options.trust.verifying(false, options.group_key.is_some()))
                .with_group_keys(options.group_keys());
            let mut watch = Watch {
                stop: self.listener.stop.clone(),
                observer,
                timeout: self.listener.options.timeout.map(Into::into),
                progress: Progress::new(clock.now()),
                sender: None,
                end: None,
            };
            self.listener.drive(&mut machine, clock, &mut watch)?;
            let progress = watch.progress(&mut machine, &self.listener.socket, clock.now());
            // Without an outcome another session has replaced the stream, and is received from here on.
            if let Some(outcome) = watch.end {
                return Ok(StreamReceiveSummary { outcome, progress });
            }
        }
    }
}

impl Session for StreamReceiveSession {
    type Update = StreamReceiveUpdate;
    type Summary = StreamReceiveSummary;
    type Error = ReceiveError;

    fn stop_handle(&self) -> StopHandle {
        self.listener.stop.clone()
    }

    fn run(
        &mut self,
        observer: &mut dyn FnMut(StreamReceiveUpdate),
    ) -> Result<StreamReceiveSummary, ReceiveError> {
        let result = self.receive(observer);
        self.listener.leave();
        result
    }

    fn is_progress(update: &StreamReceiveUpdate) -> bool {
        matches!(update, StreamReceiveUpdate::Progress(_))
    }

    fn cost(update: &StreamReceiveUpdate) -> usize {
        let pieces = |pieces: &[Piece]| -> usize {
            pieces.iter().map(|piece| piece.bytes.len() + DELIVERY_BYTES).sum()
        };
        DELIVERY_BYTES
            + match update {
                StreamReceiveUpdate::Buffer(received) => received.prefix.len() + pieces(&received.pieces),
                StreamReceiveUpdate::Late { piece, .. } => pieces(std::slice::from_ref(piece)),
                StreamReceiveUpdate::Progress(_) => size_of::<StreamReceiveProgress>(),
                StreamReceiveUpdate::LinkChanged(_) | StreamReceiveUpdate::Session(_) => 0,
            }
    }

    fn backlog(&self) -> Backlog {
        Backlog::DropOldest(self.buffer_bytes_max.saturating_mul(2))
    }
}

/// Overhead of a piece or vector in bytes.
const DELIVERY_BYTES: usize = 128;

/// Application of the machine: passes on buffers and ends the stream.
struct Watch<'a> {
    stop: StopHandle,
    observer: &'a mut dyn FnMut(StreamReceiveUpdate),
    timeout: Option<headwater_proto::Duration>,
    progress: Progress,
    sender: Option<(SocketAddr, u64)>,
    end: Option<StreamOutcome>,
}

impl Watch<'_> {
    fn progress<C: ReceiverControl>(
        &mut self,
        machine: &mut Receiver<C>,
        socket: &ReceiverSocket,
        now: Instant,
    ) -> StreamReceiveProgress {
        let stats = machine.stats();
        StreamReceiveProgress {
            elapsed: elapsed(now),
            session: self.sender,
            rate_bits: self.progress.rate_bits(now, stats.bytes),
            stats,
            reception: machine.reception(),
            control: machine.control_status(now),
            kernel_drops: socket.counters().kernel_drops,
        }
    }

    fn is_timed_out<C>(&self, machine: &Receiver<C>, now: Instant) -> bool
    where
        C: ReceiverControl,
    {
        self.timeout.is_some_and(|timeout| machine.stats().last_progress + timeout <= now)
    }
}

impl<C: ReceiverControl> Application<Receiver<C>, ReceiverSocket> for Watch<'_> {
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
            ReceiverEvent::Session(event) => {
                if let SessionEvent::Found { tsi, source } = event {
                    self.sender = Some((source, tsi));
                }
                (self.observer)(StreamReceiveUpdate::Session(event));
            }
            ReceiverEvent::NoBuffers => self.end = Some(StreamOutcome::NoBuffers),
            ReceiverEvent::ControlRefused { reason } => {
                self.end = Some(StreamOutcome::ControlRefused(reason));
            }
            ReceiverEvent::Buffer(received) => (self.observer)(StreamReceiveUpdate::Buffer(received)),
            ReceiverEvent::Late { id, piece } => (self.observer)(StreamReceiveUpdate::Late { id, piece }),
            ReceiverEvent::Closed => self.end = Some(StreamOutcome::Closed),
        }
    }

    fn link(&mut self, change: LinkChange) {
        (self.observer)(StreamReceiveUpdate::LinkChanged(change));
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
            let progress = self.progress(machine, socket, now);
            (self.observer)(StreamReceiveUpdate::Progress(Box::new(progress)));
        }
        Some(self.progress.next())
    }
}
