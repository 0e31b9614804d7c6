//! Runs a machine on a socket: one thread, one loop, for ends and routers alike.
//!
//! A turn of the loop reads the waiting datagrams, passes the datagrams to the machine, drains the machine,
//! and sends the output. The loop then sleeps until the next deadline, a datagram, or a wake-up. The
//! machine's pacing makes up for late turns.
//!
//! The machine gets the arrival time of each datagram at this host, not the time of the turn: delay by a busy
//! processor is no queueing delay of the network.
//!
//! While datagrams arrive at short intervals, turns that read are apart by the pause of a [`ReadPace`]: a
//! thread that wakes for each datagram spends more time on waking than on reading.
//!
//! Turns that send are at least [`QUANTUM`] apart, so that at high rates each turn sends a run of datagrams
//! in one call. The burst is bounded by the bytes of a quantum and one datagram more: 18 full datagrams at
//! 1 Gbit/s. Below 57 Mbit/s full datagrams are further apart than a quantum and leave one by one. From 16
//! runs in a quantum on (many channels at 0.9 Gbit/s), the quantum is [`QUANTUM_OF_CHANNELS`], so that each
//! channel has a run.
//!
//! [`Gather`] holds outgoing datagrams back to back, so that one call to the kernel sends many datagrams.

mod port;
mod reading;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;

use headwater_proto::control::Membership;
use headwater_proto::{
    DATAGRAM_BYTES_MAX, Destination, EXPECTED_MAX, Ecn, Input, Instant, InterfaceId, Machine, Outlet, Output,
    RouterOutput, Transmit, drain,
};
use rand::RngExt;
use tracing::warn;

use crate::clock::{Clock, elapsed};
use crate::net::{LinkChange, LinkState, MembershipError, Poller, RUN_BYTES_MAX, RecvBatch, Run, SendError};
use crate::threads::wake_precisely;

pub use self::port::{Direction, PacketTrace, TraceHook};
pub(crate) use self::port::{END, Port, UnicastPort, datagrams};
use self::reading::{ReadTimer, ReceivedCount};

/// Sleep after a turn that was due and did nothing, so that no machine can keep the processor busy.
const IDLE: headwater_proto::Duration = headwater_proto::Duration::from_millis(1);

/// Minimum time from the start of a turn that sends to the start of the next turn that a deadline begins.
const QUANTUM: headwater_proto::Duration = headwater_proto::Duration::from_micros(200);
/// The same while turns send at least [`SCATTERED`] runs in a [`QUANTUM`]: a fraction of the delays by which
/// controls judge a queue (3 ms and more).
const QUANTUM_OF_CHANNELS: headwater_proto::Duration = headwater_proto::Duration::from_micros(500);

/// Interval of interface checks: in normal operation, and while the interface is down or refuses datagrams.
const LOOK: headwater_proto::Duration = headwater_proto::Duration::from_secs(1);
const LOOK_TROUBLED: headwater_proto::Duration = headwater_proto::Duration::from_millis(100);

/// Error that ends a driver.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// A datagram could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A channel could not be joined or left.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// Waiting for datagrams or reading them failed.
    #[error("cannot read from the socket")]
    Read(#[source] io::Error),
}

/// Trace hook, deliberate loss, and marking of a socket's datagrams.
pub(crate) struct Hooks<'a> {
    pub(crate) trace: Option<&'a mut TraceHook>,
    /// Probability that an arriving datagram is dropped, and the random stream.
    pub(crate) loss: Option<(f64, headwater_proto::rng::Stream)>,
    /// Traffic class of datagrams sent, for the trace.
    pub(crate) dscp: u8,
    /// Time to live of datagrams sent, for the trace.
    pub(crate) ttl: u8,
}

/// Application of a machine: steers the machine, takes the events, and ends the run.
pub(crate) trait Application<M: Machine, P> {
    /// Called before the machine is drained; may change the machine or the port.
    fn steer(&mut self, _machine: &mut M, _port: &mut P, _now: Instant) {}

    /// Takes an event of the machine.
    fn event(&mut self, event: M::Event);

    /// Reports a channel that was joined or left.
    fn membership(&mut self, _membership: Membership) {}

    /// Reports an interface that went down, disappeared, or came back.
    fn link(&mut self, _change: LinkChange) {}

    /// Called after the machine was drained. Returns the latest time of the next turn; `None` ends the run.
    fn observe(&mut self, machine: &mut M, port: &P, unsent: u64, now: Instant) -> Option<Instant>;
}

/// Drives `machine` on `port` until `application` ends it.
pub(crate) fn drive<M: Machine, P: Port>(
    machine: &mut M,
    port: &mut P,
    poller: &mut Poller,
    clock: Clock,
    hooks: Hooks<'_>,
    application: &mut impl Application<M, P>,
) -> Result<(), DriverError> {
    // Exact timers are a property of the thread, and the poller may come from another thread.
    wake_precisely().map_err(DriverError::Read)?;
    let mut batch = RecvBatch::new();
    let mut turn = LoopState {
        gather: Gather::new(),
        now: clock.now(),
        hooks,
        outputs: 0,
        pace: SendPace::default(),
        unsent: 0,
        is_cut: false,
        error: None,
    };
    let mut reading = ReadTimer::default();
    let mut watch = LinkCheckTimer { last: turn.now, unsent: 0, is_troubled: false };
    loop {
        let woken = clock.now();
        if watch.is_due(woken, turn.unsent)
            && let Some(change) = port.inspect_link()
        {
            watch.is_troubled = change.state != LinkState::Up;
            application.link(change);
        }
        let heard = if reading.is_due(woken) {
            turn.receive(machine, port, &mut batch, clock)?
        } else {
            ReceivedCount::NOTHING
        };
        // Datagrams that still wait arrived earlier: with a later time the machine would count them as late.
        if heard.is_all || port.read_pace().is_bounded {
            turn.now = turn.now.max(woken);
        }
        machine.handle(turn.now, Input::Timeout);
        application.steer(machine, port, turn.now);
        let spoken = turn.drain(machine, port, application)?;
        let Some(latest) = application.observe(machine, port, turn.unsent, turn.now) else {
            return Ok(());
        };
        let due = machine.poll_timeout().map(|next| next + machine.slack());
        let deadline = due.map_or(latest, |next| next.min(latest));
        let overdue = deadline <= turn.now && heard.datagrams == 0 && spoken == 0;
        let earliest = turn.pace.next(turn.now);
        let deadline = if overdue {
            turn.now + IDLE
        } else if turn.is_cut {
            turn.now
        } else {
            deadline.max(earliest)
        };
        reading.wait((poller, port), clock, (turn.now, deadline), heard).map_err(DriverError::Read)?;
    }
}

/// Timer of interface checks. Every application's turns are frequent enough for the checks.
struct LinkCheckTimer {
    last: Instant,
    /// Refused datagrams by the last check.
    unsent: u64,
    is_troubled: bool,
}

impl LinkCheckTimer {
    fn is_due(&mut self, now: Instant, unsent: u64) -> bool {
        let is_troubled = self.is_troubled || unsent != self.unsent;
        if now < self.last + if is_troubled { LOOK_TROUBLED } else { LOOK } {
            return false;
        }
        (self.last, self.unsent) = (now, unsent);
        true
    }
}

/// State of the loop.
struct LoopState<'a> {
    gather: Gather,
    /// Time last passed to the machine, which never goes back.
    now: Instant,
    hooks: Hooks<'a>,
    outputs: u64,
    pace: SendPace,
    unsent: u64,
    /// Whether a full buffer was sent and ended the turn: the machine may have more outputs.
    is_cut: bool,
    error: Option<DriverError>,
}

/// Pace of the turns that send.
#[derive(Clone, Copy, Debug, Default)]
struct SendPace {
    /// Runs of this turn, before runs of a channel are joined.
    runs: u64,
    /// Start of the last turn that sent, and end of its quantum.
    last: Instant,
    end: Instant,
}

impl SendPace {
    /// Ends a turn. Returns the earliest start of the next turn by a deadline.
    fn next(&mut self, now: Instant) -> Instant {
        let runs = std::mem::take(&mut self.runs);
        if runs > 0 {
            let time = now.since(self.last).as_nanos().max(QUANTUM.as_nanos());
            let is_scattered = runs * QUANTUM.as_nanos() >= SCATTERED as u64 * time;
            let quantum = if is_scattered { QUANTUM_OF_CHANNELS } else { QUANTUM };
            (self.last, self.end) = (now, now + quantum);
        }
        self.end
    }
}

impl LoopState<'_> {
    /// Passes the waiting datagrams to the machine, each with the time of arrival.
    fn receive<M: Machine, P: Port>(
        &mut self,
        machine: &mut M,
        port: &mut P,
        batch: &mut RecvBatch,
        clock: Clock,
    ) -> Result<ReceivedCount, DriverError> {
        let mut heard = ReceivedCount::default();
        for _ in 0..port.read_pace().batches_max {
            let count = match port.receive(batch) {
                Ok(0) => {
                    heard.is_all = true;
                    break;
                }
                Ok(count) => count,
                // An ICMP report on one receiver says nothing of the other receivers.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(DriverError::Read(error)),
            };
            heard.datagrams += count;
            let mut payloads = batch.iter().map(|datagram| datagram.payload);
            for (index, (arrived, datagram)) in batch.arrivals().enumerate() {
                if index % EXPECTED_MAX == 0 {
                    let mut expected = payloads.by_ref().take(EXPECTED_MAX);
                    machine.expect(&mut expected);
                    // The machine may have ignored some or all payloads.
                    expected.for_each(drop);
                }
                self.now = self.now.max(clock.at(arrived));
                let input = port.input(datagram);
                self.trace_received(port, &input);
                if !self.hooks.is_lost() {
                    machine.handle(self.now, input);
                }
            }
            if port.has_all(batch) {
                heard.is_all = true;
                break;
            }
        }
        Ok(heard)
    }

    /// Executes the machine's outputs. Returns the number of outputs.
    fn drain<M: Machine, P: Port>(
        &mut self,
        machine: &mut M,
        port: &mut P,
        application: &mut impl Application<M, P>,
    ) -> Result<u64, DriverError> {
        let before = self.outputs;
        let now = self.now;
        self.is_cut = false;
        let mut events = Vec::new();
        drain(machine, now, &mut OutputSink { turn: self, port, events: &mut events });
        self.flush(port);
        if let Some(packets_per_second) = port.take_full_link() {
            machine.on_full_link(packets_per_second);
        }
        for output in events {
            match output {
                PendingUpdate::Event(event) => application.event(event),
                PendingUpdate::Membership(membership) => application.membership(membership),
            }
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(self.outputs - before),
        }
    }

    fn flush(&mut self, port: &mut impl Port) {
        self.pace.runs += self.gather.runs.len() as u64;
        if self.error.is_none() && !self.gather.is_empty() {
            // One small allocation for each interface: the list borrows the buffer.
            self.gather.join_runs();
            for spans in self.gather.runs.chunk_by(|one, next| one.egress == next.egress) {
                let runs: Vec<_> = spans.iter().map(|span| self.gather.run(span)).collect();
                match port.send(spans[0].egress, &runs) {
                    Ok(unsent) => self.unsent += unsent,
                    Err(error) => _ = self.error.get_or_insert(error.into()),
                }
            }
        }
        self.gather.clear();
    }

    fn trace_received(&mut self, port: &impl Port, input: &Input<'_>) {
        let Some(trace) = self.hooks.trace.as_mut() else { return };
        let (ingress, datagram) = match input {
            Input::Timeout => return,
            Input::Datagram(datagram) => (END, datagram),
            Input::Routed(ingress, datagram) => (*ingress, datagram),
        };
        let destination = datagram
            .channel
            .and_then(|channel| port.address(channel))
            .unwrap_or_else(|| port.local(ingress, datagram.source));
        trace.call(&PacketTrace {
            direction: Direction::Received,
            elapsed: elapsed(self.now),
            source: datagram.source,
            destination,
            ecn: datagram.ecn,
            dscp: None,
            ttl: None,
            payload: datagram.payload,
        });
    }
}

impl Hooks<'_> {
    fn is_lost(&mut self) -> bool {
        self.loss.as_mut().is_some_and(|(probability, stream)| stream.random_bool(*probability))
    }
}

/// Event for the application, held until the machine is drained.
enum PendingUpdate<E> {
    Event(E),
    Membership(Membership),
}

/// Destination of the machine's outputs.
struct OutputSink<'t, 'a, P, E> {
    turn: &'t mut LoopState<'a>,
    port: &'t mut P,
    events: &'t mut Vec<PendingUpdate<E>>,
}

impl<P: Port, E> Outlet<E> for OutputSink<'_, '_, P, E> {
    fn room(&mut self) -> &mut [u8] {
        self.turn.gather.room()
    }

    fn put(&mut self, output: Output<E>) {
        self.turn.outputs += 1;
        match output {
            // A router sends all that is ready: its queues have bounds of their own.
            Output::Transmit(transmit) => self.turn.is_cut = self.transmit(END, transmit),
            Output::Router(RouterOutput::Transmit { egress, transmit }) => {
                let _is_full = self.transmit(egress, transmit);
            }
            // A turn hands in many datagrams, so that the datagram last handled is unknown.
            Output::Router(RouterOutput::Forward { .. } | RouterOutput::Pass { .. }) => self.turn.unsent += 1,
            Output::Join(channel) => self.change(Membership::Join(channel)),
            Output::Leave(channel) => self.change(Membership::Leave(channel)),
            Output::Event(event) => self.events.push(PendingUpdate::Event(event)),
        }
    }

    fn is_full(&self) -> bool {
        self.turn.is_cut
    }
}

impl<P: Port, E> OutputSink<'_, '_, P, E> {
    /// Gathers a datagram. Returns whether a full buffer was sent.
    fn transmit(&mut self, egress: InterfaceId, transmit: Transmit) -> bool {
        let Transmit { destination, bytes, ecn } = transmit;
        let destination = match destination {
            Destination::Unicast(address) => Some(address),
            Destination::Channel(channel) => self.port.address(channel),
        };
        let Some(destination) = destination else {
            warn!("dropped a datagram for a channel outside the session");
            self.turn.unsent += 1;
            return false;
        };
        let turn = &mut *self.turn;
        if let Some(trace) = turn.hooks.trace.as_mut() {
            trace.call(&PacketTrace {
                direction: Direction::Sent,
                elapsed: elapsed(turn.now),
                source: self.port.local(egress, destination),
                destination,
                ecn,
                dscp: Some(turn.hooks.dscp),
                ttl: Some(turn.hooks.ttl),
                payload: turn.gather.written(bytes),
            });
        }
        let is_full = !turn.gather.put(egress, destination, ecn, bytes);
        if is_full {
            turn.flush(self.port);
        }
        is_full
    }

    fn change(&mut self, membership: Membership) {
        match self.port.change(membership) {
            Ok(()) => self.events.push(PendingUpdate::Membership(membership)),
            Err(error) => {
                self.turn.error.get_or_insert(error.into());
            }
        }
    }
}

/// Bytes gathered before a send: four full messages with segmentation offload, of full datagrams.
const GATHER_BYTES: usize = 4 * (RUN_BYTES_MAX - 1_500);

/// Fewest spans that are joined.
const SCATTERED: usize = 16;

/// Datagrams to send, in order.
#[derive(Debug)]
pub(crate) struct Gather {
    buffer: Box<[u8]>,
    filled: usize,
    runs: Vec<Span>,
    /// Room for the same datagrams and spans in another order; empty until first needed.
    spare: (Box<[u8]>, Vec<Span>),
}

fn gather_buffer() -> Box<[u8]> {
    vec![0; GATHER_BYTES + DATAGRAM_BYTES_MAX].into()
}

/// Datagrams of one size (the last may be shorter) for one destination.
#[derive(Clone, Copy, Debug)]
struct Span {
    egress: InterfaceId,
    destination: SocketAddr,
    ecn: Ecn,
    start: usize,
    end: usize,
    segment_bytes: usize,
}

impl Gather {
    pub(crate) fn new() -> Self {
        Self { buffer: gather_buffer(), filled: 0, runs: Vec::new(), spare: Default::default() }
    }

    /// Returns the room for the next datagram.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Returns the first `bytes` in the room.
    pub(crate) fn written(&self, bytes: usize) -> &[u8] {
        &self.buffer[self.filled..self.filled + bytes]
    }

    /// Takes the first `bytes` in the room as a datagram. Returns false if another datagram would not fit, so
    /// that the caller must send.
    #[must_use]
    pub(crate) fn put(
        &mut self,
        egress: InterfaceId,
        destination: SocketAddr,
        ecn: Ecn,
        bytes: usize,
    ) -> bool {
        let start = self.filled;
        self.filled += bytes;
        let end = self.filled;
        match self.runs.last_mut() {
            Some(run) if run.egress == egress && run.takes(destination, ecn, bytes) => run.end = end,
            _ => self.runs.push(Span { egress, destination, ecn, start, end, segment_bytes: bytes }),
        }
        self.filled <= GATHER_BYTES
    }

    /// Sorts the spans by interface. Datagrams of many channels are also joined by channel, as a run costs
    /// the kernel little more than a datagram: a copy costs less. The order for each destination stays.
    fn join_runs(&mut self) {
        if self.runs.len() < SCATTERED {
            self.runs.sort_by_key(|span| span.egress);
            return;
        }
        self.runs.sort_by_key(|span| (span.egress, span.destination));
        let (buffer, runs) = &mut self.spare;
        if buffer.is_empty() {
            *buffer = gather_buffer();
        }
        runs.clear();
        let mut start = 0;
        for span in &self.runs {
            let bytes = span.end - span.start;
            let end = start + bytes;
            buffer[start..end].copy_from_slice(&self.buffer[span.start..span.end]);
            // A span of several datagrams begins a run: its last datagram may be shorter.
            let joins = |last: &&mut Span| {
                let is_single = bytes <= span.segment_bytes && last.egress == span.egress;
                is_single && last.takes(span.destination, span.ecn, bytes)
            };
            match runs.last_mut().filter(joins) {
                Some(last) => last.end = end,
                None => runs.push(Span { start, end, ..*span }),
            }
            start = end;
        }
        std::mem::swap(&mut self.buffer, buffer);
        std::mem::swap(&mut self.runs, runs);
    }

    /// Returns a span's datagrams as a run to send.
    fn run(&self, span: &Span) -> Run<'_> {
        Run {
            destination: span.destination,
            contents: &self.buffer[span.start..span.end],
            segment_bytes: span.segment_bytes,
            ecn: span.ecn,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.filled = 0;
        self.runs.clear();
    }
}

impl Span {
    /// Whether another datagram may join: only the last datagram of a run may be shorter, and no datagram is
    /// empty.
    fn takes(&self, destination: SocketAddr, ecn: Ecn, bytes: usize) -> bool {
        let whole = self.segment_bytes > 0 && (self.end - self.start).is_multiple_of(self.segment_bytes);
        let fits = bytes > 0 && bytes <= self.segment_bytes;
        whole && fits && self.destination == destination && self.ecn == ecn
    }
}

#[cfg(test)]
mod gather_tests {
    use super::*;

    const HERE: &str = "239.0.0.1:1";
    const THERE: &str = "239.0.0.2:1";

    fn gather(datagrams: &[(&str, Ecn, usize)]) -> Vec<(usize, usize)> {
        let mut gather = Gather::new();
        for (destination, ecn, bytes) in datagrams {
            assert!(gather.put(END, destination.parse().unwrap(), *ecn, *bytes));
        }
        gather.runs.iter().map(|span| (gather.run(span).contents.len(), span.segment_bytes)).collect()
    }

    #[test]
    fn equal_datagrams_make_a_run_that_a_shorter_one_ends() {
        let no = Ecn::NotCapable;
        assert_eq!(
            gather(&[(HERE, no, 100), (HERE, no, 100), (HERE, no, 40), (HERE, no, 40)]),
            [(240, 100), (40, 40)]
        );
        assert_eq!(gather(&[(HERE, no, 100), (HERE, no, 101)]), [(100, 100), (101, 101)]);
    }

    #[test]
    fn destinations_and_ecn_fields_are_kept_apart() {
        let no = Ecn::NotCapable;
        assert_eq!(gather(&[(HERE, no, 9), (THERE, no, 9), (HERE, no, 9)]).len(), 3);
        assert_eq!(gather(&[(HERE, no, 9), (HERE, Ecn::Capable0, 9)]).len(), 2);
    }

    #[test]
    fn interfaces_are_kept_apart_and_in_order() {
        let (mut gather, here) = (Gather::new(), HERE.parse().unwrap());
        for (egress, bytes) in [(2, 9), (1, 8), (2, 7), (1, 6), (1, 6)] {
            assert!(gather.put(InterfaceId(egress), here, Ecn::NotCapable, bytes));
        }
        gather.join_runs();
        let spans: Vec<_> = gather.runs.iter().map(|span| (span.egress.0, span.end - span.start)).collect();
        assert_eq!(spans, [(1, 8), (1, 12), (2, 9), (2, 7)]);
    }

    #[test]
    fn datagrams_of_many_channels_are_joined_by_channel_in_their_order() {
        let mut gather = Gather::new();
        let there = |index: usize| -> SocketAddr { format!("239.0.0.{}:1", index % 3 + 1).parse().unwrap() };
        let lengths = [100, 100, 100, 40, 100, 100];
        let mut expected: std::collections::BTreeMap<SocketAddr, Vec<u8>> = Default::default();
        for index in 0..60_u8 {
            let (bytes, to) = (lengths[usize::from(index) % lengths.len()], there(index.into()));
            gather.room()[..bytes].fill(index);
            expected.entry(to).or_default().extend(vec![index; bytes]);
            assert!(gather.put(END, to, Ecn::NotCapable, bytes));
        }
        gather.join_runs();
        let mut sent: std::collections::BTreeMap<SocketAddr, Vec<u8>> = Default::default();
        for span in &gather.runs {
            let Run { destination, contents, segment_bytes, .. } = gather.run(span);
            // Each datagram has one value: a segment of two would be two datagrams joined wrongly.
            assert!(
                contents
                    .chunks(segment_bytes)
                    .all(|datagram| datagram.iter().all(|byte| *byte == datagram[0]))
            );
            sent.entry(destination).or_default().extend(contents);
        }
        assert_eq!(sent, expected);
        assert!(gather.runs.len() < 30, "{} runs of 60 datagrams", gather.runs.len());
    }

    #[test]
    fn there_is_room_for_the_largest_datagram_until_it_says_otherwise() {
        let mut gather = Gather::new();
        loop {
            assert!(gather.room().len() >= DATAGRAM_BYTES_MAX);
            if !gather.put(END, HERE.parse().unwrap(), Ecn::NotCapable, DATAGRAM_BYTES_MAX) {
                break;
            }
        }
        gather.clear();
        assert!(gather.is_empty() && gather.room().len() >= DATAGRAM_BYTES_MAX);
    }
}

#[cfg(test)]
mod pace_tests {
    use headwater_proto::Duration;

    use super::*;

    #[test]
    fn turns_of_many_channels_are_further_apart_at_high_rates_only() {
        let many = SCATTERED as u64;
        for (runs, micros, quantum) in [
            (many, 200, QUANTUM_OF_CHANNELS),
            (many - 1, 200, QUANTUM),
            // The longer turns of the same rate, and of a lower rate.
            (5 * many / 2, 500, QUANTUM_OF_CHANNELS),
            (many, 500, QUANTUM),
        ] {
            let (mut pace, mut now) = (SendPace::default(), Instant::ZERO + Duration::from_secs(1));
            for _ in 0..3 {
                now += Duration::from_micros(micros);
                pace.runs = runs;
                pace.next(now);
            }
            assert_eq!(pace.end, now + quantum, "{runs} runs in {micros} us");
        }
    }

    #[test]
    fn a_turn_that_sends_nothing_waits_for_the_end_of_the_quantum() {
        let mut pace = SendPace { runs: 1, ..SendPace::default() };
        let now = Instant::ZERO + Duration::from_secs(1);
        assert_eq!(pace.next(now), now + QUANTUM);
        assert_eq!(pace.next(now + Duration::from_micros(50)), now + QUANTUM);
    }
}
