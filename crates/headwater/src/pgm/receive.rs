//! A session that receives messages.

use std::net::SocketAddr;

use headwater_proto::control::Membership;
use headwater_proto::pgm::{Receiver, ReceiverConfig, ReceiverEvent};
use headwater_proto::{Instant, Seed};
use headwater_wire::pgm::Gsi;

use super::options::{Framing, PgmReceiveOptions};
use super::sink::Sink;
use super::update::{
    PgmReceiveOutcome, PgmReceiveProgress, PgmReceiveStarted, PgmReceiveSummary, PgmReceiveUpdate,
};
use crate::chance;
use crate::clock::{Clock, elapsed};
use crate::driver::Application;
use crate::net::{LinkChange, ReceiverSocket};
use crate::progress::Progress;
use crate::receive::{Listener, ReceiveError};
use crate::stop::StopHandle;

/// How long to wait for a confirmation, and for the repair after it, before asking again: what libzmq waits.
/// OpenPGM's own 2 s are longer than a window lasts on a fast network.
const WAIT: headwater_proto::Duration = headwater_proto::Duration::from_millis(200);

/// Receives the messages of the first source that it hears, on the thread that calls [`Self::run`].
#[derive(Debug)]
pub struct PgmReceiveSession {
    listener: Listener,
    config: ReceiverConfig,
    framing: Framing,
    message_bytes_max: u32,
}

impl PgmReceiveSession {
    /// Opens the socket. Nothing is joined yet.
    ///
    /// # Errors
    /// When an option is out of range, or there is no way to receive from the group.
    pub fn open(options: PgmReceiveOptions) -> Result<Self, ReceiveError> {
        let group = options.listen.group;
        let listener = Listener::open(options.listen)?;
        let config = ReceiverConfig::new(options.wire.port(group), group.ip())
            .with_path_request(true)
            .with_nak_port(options.nak_port.unwrap_or(group.port()))
            .with_payload_bytes(options.payload_bytes)
            .with_window_packets(options.window_packets)
            .with_message_bytes_max(options.message_bytes_max)
            .with_waits(WAIT, WAIT);
        let (framing, message_bytes_max) = (options.wire.framing, options.message_bytes_max);
        Ok(Self { listener, config, framing, message_bytes_max })
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.listener.stop.clone()
    }

    /// Receives until the source ends, is silent for too long, or it is stopped.
    ///
    /// # Errors
    /// When the network failed.
    pub fn run(
        &mut self,
        observer: &mut dyn FnMut(PgmReceiveUpdate<'_>),
    ) -> Result<PgmReceiveSummary, ReceiveError> {
        observer(PgmReceiveUpdate::Started(PgmReceiveStarted {
            group: self.listener.options.group,
            source: self.listener.options.source,
            interface: self.listener.socket.interface().name.clone(),
        }));
        let clock = Clock::start();
        let sink = Sink::new(self.framing, self.message_bytes_max);
        let mut machine = Receiver::new(self.config, sink, Seed(chance::number()).stream("pgm", 0));
        let mut watch = Watch {
            stop: self.listener.stop.clone(),
            timeout: self.listener.options.timeout.map(Into::into),
            session: None,
            heard: (None, Instant::ZERO),
            is_finished: false,
            outcome: PgmReceiveOutcome::Interrupted,
            progress: Progress::new(clock.now()),
            last: PgmReceiveProgress::default(),
            observer,
        };
        let result = self.listener.drive(&mut machine, clock, &mut watch);
        let (outcome, progress) = (watch.outcome, watch.last);
        self.listener.leave();
        result.map(|()| PgmReceiveSummary { outcome, progress })
    }
}

struct Watch<'a> {
    stop: StopHandle,
    timeout: Option<headwater_proto::Duration>,
    session: Option<(SocketAddr, Gsi)>,
    /// When the last packet came, and when it was read: an application may hold that up for longer than the
    /// timeout.
    heard: (Option<Instant>, Instant),
    is_finished: bool,
    outcome: PgmReceiveOutcome,
    progress: Progress,
    last: PgmReceiveProgress,
    observer: &'a mut dyn FnMut(PgmReceiveUpdate<'_>),
}

impl Watch<'_> {
    /// How it ends now, if it does.
    fn end(&self, has_broken_off: bool, now: Instant) -> Option<PgmReceiveOutcome> {
        let (heard, read) = self.heard;
        let is_silent = |timeout| read + timeout <= now;
        if has_broken_off {
            Some(PgmReceiveOutcome::BrokenOff)
        } else if self.is_finished {
            Some(PgmReceiveOutcome::Closed)
        } else if self.stop.is_stopped() {
            Some(PgmReceiveOutcome::Interrupted)
        } else if self.timeout.is_some_and(is_silent) {
            Some(match heard {
                Some(_) => PgmReceiveOutcome::TimedOut,
                None => PgmReceiveOutcome::NothingReceived,
            })
        } else {
            None
        }
    }
}

impl Application<Receiver<Sink>, ReceiverSocket> for Watch<'_> {
    fn event(&mut self, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Heard { source, gsi } => {
                self.session = Some((source, gsi));
                (self.observer)(PgmReceiveUpdate::Found { source, gsi });
            }
            // The sink tells it in its place.
            ReceiverEvent::Lost { .. } => {}
            ReceiverEvent::Finished => self.is_finished = true,
        }
    }

    fn membership(&mut self, _membership: Membership) {
        (self.observer)(PgmReceiveUpdate::Joined);
    }

    fn link(&mut self, change: LinkChange) {
        (self.observer)(PgmReceiveUpdate::LinkChanged(change));
    }

    fn observe(
        &mut self,
        machine: &mut Receiver<Sink>,
        socket: &ReceiverSocket,
        _unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        machine.deliver_mut().empty(self.observer);
        if self.heard.0 != machine.heard() {
            self.heard = (machine.heard(), now);
        }
        let end = self.end(machine.deliver().has_broken_off(), now);
        if self.progress.is_due(now) || end.is_some() {
            let (counters, sink) = (machine.counters(), machine.deliver());
            self.last = PgmReceiveProgress {
                elapsed: elapsed(now),
                session: self.session,
                rate_bits: self.progress.rate_bits(now, counters.bytes),
                messages: sink.messages,
                message_bytes: sink.message_bytes,
                broken: counters.broken + sink.broken(),
                counters,
                kernel_drops: socket.counters().kernel_drops,
            };
            (self.observer)(PgmReceiveUpdate::Progress(self.last));
        }
        match end {
            Some(outcome) => {
                self.outcome = outcome;
                None
            }
            None => Some(self.progress.next()),
        }
    }
}
