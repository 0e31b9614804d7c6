//! Sessions that receive messages.

use std::net::SocketAddr;

use headwater_proto::control::Membership;
use headwater_proto::pgm::zmq::Unpacker;
use headwater_proto::pgm::{ByteStream, Deliver, PgmReceiverConfig, PgmReceiverEvent, PgmReceiverMachine};
use headwater_proto::{Instant, Seed};
use headwater_wire::pgm::Gsi;

use super::options::{Framing, PgmReceiveOptions};
use super::update::{
    PgmReceiveOutcome, PgmReceiveProgress, PgmReceiveStarted, PgmReceiveSummary, PgmReceiveUpdate,
};
use crate::clock::{Clock, Progress, elapsed};
use crate::driver::Application;
use crate::net::{LinkChange, ReceiverSocket};
use crate::receive::{Listener, ReceiveError};
use crate::session::Session;
use crate::system;
use crate::threads::StopHandle;

/// Time to wait for a confirmation, and for the following repair, before another NAK: the value of libzmq.
/// OpenPGM's own 2 s exceed the duration of a window on a fast network.
const WAIT: headwater_proto::Duration = headwater_proto::Duration::from_millis(200);

/// Session that receives the messages of the first source heard, until the source ends, the timeout expires,
/// or the session is stopped.
///
/// The session waits for a slow reader of its updates: datagrams wait in the socket's buffer, are then lost,
/// and requested again.
#[derive(Debug)]
pub struct PgmReceiveSession {
    listener: Listener,
    config: PgmReceiverConfig,
    framing: Framing,
    message_bytes_max: u32,
}

impl PgmReceiveSession {
    /// Opens the socket. Nothing is joined yet.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can receive from the group.
    pub fn open(options: PgmReceiveOptions) -> Result<Self, ReceiveError> {
        let group = options.listen.group;
        let listener = Listener::open(options.listen)?;
        let config = PgmReceiverConfig::new(options.wire.port(group), group.ip())
            .with_path_request(true)
            .with_nak_port(options.nak_port.unwrap_or(group.port()))
            .with_payload_bytes(options.payload_bytes.clamp(16, 8_192))
            .with_window_packets(options.window_packets)
            .with_message_bytes_max(options.message_bytes_max)
            .with_waits(WAIT, WAIT);
        let (framing, message_bytes_max) = (options.wire.framing, options.message_bytes_max);
        Ok(Self { listener, config, framing, message_bytes_max })
    }

    /// Runs the session like [`Session::run`], without a copy of each message.
    ///
    /// # Errors
    /// If the network failed.
    pub fn run_borrowing(
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
        let mut machine =
            PgmReceiverMachine::new(self.config, sink, Seed(system::random_u64()).stream("pgm", 0));
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

impl Session for PgmReceiveSession {
    type Update = PgmReceiveUpdate<'static>;
    type Summary = PgmReceiveSummary;
    type Error = ReceiveError;

    fn stop_handle(&self) -> StopHandle {
        self.listener.stop.clone()
    }

    fn run(
        &mut self,
        observer: &mut dyn FnMut(PgmReceiveUpdate<'static>),
    ) -> Result<PgmReceiveSummary, ReceiveError> {
        self.run_borrowing(&mut |update| observer(update.into_owned()))
    }

    fn is_progress(update: &PgmReceiveUpdate<'static>) -> bool {
        matches!(update, PgmReceiveUpdate::Progress(_))
    }

    fn cost(update: &PgmReceiveUpdate<'static>) -> usize {
        let bytes = if let PgmReceiveUpdate::Message(message) = update { message.len() } else { 0 };
        bytes + size_of::<PgmReceiveUpdate<'static>>()
    }
}

struct Watch<'a> {
    stop: StopHandle,
    timeout: Option<headwater_proto::Duration>,
    session: Option<(SocketAddr, Gsi)>,
    /// Arrival of the last packet, and the time of reading the packet: an application may delay the reading
    /// for longer than the timeout.
    heard: (Option<Instant>, Instant),
    is_finished: bool,
    outcome: PgmReceiveOutcome,
    progress: Progress,
    last: PgmReceiveProgress,
    observer: &'a mut dyn FnMut(PgmReceiveUpdate<'_>),
}

impl Watch<'_> {
    /// Returns the outcome if the session ends now.
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

impl Application<PgmReceiverMachine<Sink>, ReceiverSocket> for Watch<'_> {
    fn event(&mut self, event: PgmReceiverEvent) {
        match event {
            PgmReceiverEvent::Heard { source, gsi } => {
                self.session = Some((source, gsi));
                (self.observer)(PgmReceiveUpdate::Found { source, gsi });
            }
            // The sink reports losses in order with the messages.
            PgmReceiverEvent::Lost { .. } => {}
            PgmReceiverEvent::Finished => self.is_finished = true,
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
        machine: &mut PgmReceiverMachine<Sink>,
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

/// Holds what came since it was last emptied: at most the window and what was read in one turn, and 8 bytes
/// for each message. Of ZeroMQ's empty messages, 2 bytes each, that is four times as much again.
#[derive(Debug)]
pub(super) struct Sink {
    unpacking: Unpacking,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    pub(super) messages: u64,
    pub(super) message_bytes: u64,
}

/// Conversion of packets to messages.
#[derive(Debug)]
enum Unpacking {
    /// Messages as assembled by PGM.
    Messages,
    Zmq(Unpacker),
    Bytes(ByteStream),
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    /// Message with this number of bytes.
    Message(u32),
    /// Least number of lost packets.
    Lost(u32),
}

impl Sink {
    pub(super) fn new(framing: Framing, message_bytes_max: u32) -> Self {
        Self {
            unpacking: match framing {
                Framing::Messages => Unpacking::Messages,
                Framing::Zmq => Unpacking::Zmq(Unpacker::new(message_bytes_max)),
                Framing::Bytes => Unpacking::Bytes(ByteStream::default()),
            },
            bytes: Vec::new(),
            entries: Vec::new(),
            messages: 0,
            message_bytes: 0,
        }
    }

    /// Returns the number of invalid frames.
    pub(super) fn broken(&self) -> u64 {
        match &self.unpacking {
            Unpacking::Zmq(unpacker) => unpacker.broken(),
            Unpacking::Messages | Unpacking::Bytes(_) => 0,
        }
    }

    /// Whether the session carries a stream of bytes and bytes are lost for good.
    pub(super) const fn has_broken_off(&self) -> bool {
        matches!(&self.unpacking, Unpacking::Bytes(stream) if stream.is_broken())
    }

    /// Passes all entries to the application, in order.
    pub(super) fn empty(&mut self, observer: &mut dyn FnMut(PgmReceiveUpdate<'_>)) {
        if self.entries.is_empty() {
            return;
        }
        let mut rest = &self.bytes[..];
        for entry in self.entries.drain(..) {
            match entry {
                Entry::Message(bytes) => {
                    let (message, behind) = rest.split_at(bytes as usize);
                    rest = behind;
                    observer(PgmReceiveUpdate::Message(message.into()));
                }
                Entry::Lost(packets) => observer(PgmReceiveUpdate::Lost { packets: packets.into() }),
            }
        }
        self.bytes.clear();
        observer(PgmReceiveUpdate::Settled);
    }
}

impl Deliver for Sink {
    fn message(&mut self, _now: Instant, message: &[u8]) {
        let Self { unpacking, bytes, entries, messages, message_bytes } = self;
        let mut keep = |message: &[u8]| {
            // No message is longer than `message_bytes_max` or a packet.
            let Ok(length) = u32::try_from(message.len()) else { return };
            bytes.extend_from_slice(message);
            entries.push(Entry::Message(length));
            *messages += 1;
            *message_bytes += message.len() as u64;
        };
        match unpacking {
            Unpacking::Messages => keep(message),
            Unpacking::Zmq(unpacker) => unpacker.packet(message, keep),
            Unpacking::Bytes(stream) => stream.packet(message, keep),
        }
    }

    fn lost(&mut self, _now: Instant, packets: u64) {
        match &mut self.unpacking {
            Unpacking::Messages => {}
            Unpacking::Zmq(unpacker) => unpacker.lost(),
            Unpacking::Bytes(stream) => stream.lost(),
        }
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        match self.entries.last_mut() {
            Some(Entry::Lost(before)) => *before = before.saturating_add(packets),
            _ => self.entries.push(Entry::Lost(packets)),
        }
    }
}
