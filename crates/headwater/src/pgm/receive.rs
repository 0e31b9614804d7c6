//! Sessions that receive messages, on the thread of the caller or on a thread of their own.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use headwater_proto::control::Membership;
use headwater_proto::pgm::zmq::Unpacker;
use headwater_proto::pgm::{ByteStream, Deliver, PgmReceiverConfig, PgmReceiverEvent, PgmReceiverMachine};
use headwater_proto::{Instant, Seed};
use headwater_wire::pgm::Gsi;

use super::options::{Framing, PgmReceiveOptions};
use super::update::{
    PgmReceiveOutcome, PgmReceiveProgress, PgmReceiveStarted, PgmReceiveSummary, PgmReceiveUpdate,
    PgmReceived,
};
use crate::clock::{Clock, Progress, elapsed};
use crate::driver::Application;
use crate::net::{LinkChange, ReceiverSocket};
use crate::receive::{Listener, ReceiveError};
use crate::system;
use crate::threads::{self, StopHandle};

/// Time to wait for a confirmation, and for the following repair, before another NAK: the value of libzmq.
/// OpenPGM's own 2 s exceed the duration of a window on a fast network.
const WAIT: headwater_proto::Duration = headwater_proto::Duration::from_millis(200);

/// Session that receives the messages of the first source heard, on the thread that calls [`Self::run`].
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
            .with_payload_bytes(options.payload_bytes)
            .with_window_packets(options.window_packets)
            .with_message_bytes_max(options.message_bytes_max)
            .with_waits(WAIT, WAIT);
        let (framing, message_bytes_max) = (options.wire.framing, options.message_bytes_max);
        Ok(Self { listener, config, framing, message_bytes_max })
    }

    /// Returns a handle that stops the session from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.listener.stop.clone()
    }

    /// Receives until the source ends, the timeout expires, or the session is stopped.
    ///
    /// # Errors
    /// If the network failed.
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

/// Receiver on a thread of its own, until the source ends, or the receiver is stopped or dropped.
///
/// The iterator returns messages and losses in order. At most 16 MiB of messages wait for the application. A
/// slower application makes a slow receiver: datagrams wait in the socket's buffer, are then lost, and
/// requested again.
#[derive(Debug)]
pub struct PgmReceiver {
    mailbox: Mailbox,
    stop: StopHandle,
    thread: Option<JoinHandle<Result<PgmReceiveSummary, ReceiveError>>>,
}

impl PgmReceiver {
    /// Opens the socket and returns once the group is joined.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can receive from the group.
    pub fn open(options: PgmReceiveOptions) -> Result<Self, ReceiveError> {
        let mut session = PgmReceiveSession::open(options)?;
        let (stop, mailbox) = (session.stop_handle(), Mailbox::default());
        let (held, box_of_thread) = (stop.clone(), mailbox.clone());
        let (joined, has_joined) = mpsc::channel();
        let run = move || {
            let _end = box_of_thread.ending();
            session.run(&mut |update| match update {
                PgmReceiveUpdate::Message(message) => {
                    box_of_thread.put(PgmReceived::Message(message.into_owned()), &held);
                }
                PgmReceiveUpdate::Lost { packets } => box_of_thread.put(PgmReceived::Lost { packets }, &held),
                PgmReceiveUpdate::Progress(progress) => box_of_thread.report(progress),
                // Only the first join is awaited.
                PgmReceiveUpdate::Joined => _ = joined.send(()),
                _ => {}
            })
        };
        let thread = threads::spawn("headwater-pgm", run)?;
        // If joining failed, the end of the session returns the error.
        let _failed = has_joined.recv();
        Ok(Self { mailbox, stop, thread: Some(thread) })
    }

    /// Waits for a message or the report of a loss, at most for `timeout`. `None`: the time is over, or the
    /// session has ended.
    pub fn next_within(&mut self, timeout: Option<Duration>) -> Option<PgmReceived> {
        self.mailbox.take(timeout)
    }

    /// Returns the progress, updated about ten times a second.
    pub fn progress(&self) -> PgmReceiveProgress {
        self.mailbox.progress()
    }

    /// Returns a handle that stops the session from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Stops the session if necessary, and returns the summary.
    ///
    /// # Errors
    /// If the network failed.
    pub fn finish(mut self) -> Result<PgmReceiveSummary, ReceiveError> {
        self.stop.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(PgmReceiveSummary {
                outcome: PgmReceiveOutcome::Interrupted,
                progress: self.mailbox.progress(),
            }),
        }
    }
}

impl Iterator for PgmReceiver {
    type Item = PgmReceived;

    fn next(&mut self) -> Option<PgmReceived> {
        self.next_within(None)
    }
}

impl Drop for PgmReceiver {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            // Only `finish` returns the error.
            let _result = thread.join();
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

/// Maximum waiting bytes, except for a single message; beyond that the receiving thread waits.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Overhead of a message in bytes.
const MESSAGE_COST: usize = 64;
/// Interval at which a waiting thread checks whether the session is stopped.
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

    /// Appends a delivery. Waits while there is no room; drops the delivery if the session is stopped.
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

    /// Waits for the next delivery; `None` at the end or when the time is over.
    pub(super) fn take(&self, timeout: Option<Duration>) -> Option<PgmReceived> {
        let deadline = timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout));
        let mut state = self.state();
        loop {
            if let Some(received) = state.waiting.pop_front() {
                state.bytes -= cost(&received);
                drop(state);
                self.shared.1.notify_all();
                return Some(received);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
            if state.is_ended || left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let waited = self.shared.1.wait_timeout(state, left.unwrap_or(Duration::from_secs(3_600)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn report(&self, progress: PgmReceiveProgress) {
        self.state().progress = progress;
    }

    pub(super) fn progress(&self) -> PgmReceiveProgress {
        self.state().progress
    }

    /// Returns a guard that ends the mailbox when dropped, whatever ends the thread.
    pub(super) fn ending(&self) -> EndGuard {
        EndGuard(self.clone())
    }
}

#[derive(Debug)]
pub(super) struct EndGuard(Mailbox);

impl Drop for EndGuard {
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
