//! PGM flows without content: a source that always has more to send, receivers that only count, and the
//! model of LE-SBCC's aggregation (Thapliyal et al., aggregation): a router that sends on the first NAK for
//! each packet.

use std::collections::{BTreeMap, VecDeque};

use headwater_proto::pgm::{Deliver, PgmSource, SourceEvent};
use headwater_proto::{Duration, Ecn, Input, Instant, InterfaceId, Machine, Output};
use headwater_wire::pgm::{Body, Options, Packet, PgmReport};

use super::{Agent, Arrival, Outbox};

/// Number of messages kept ready; each fits in a packet.
const READY: u32 = 4;

/// A PGM source that never runs out of messages.
#[derive(Clone, Debug)]
pub struct GreedySource {
    source: PgmSource,
    message: Vec<u8>,
    packets_max: Option<u64>,
}

impl GreedySource {
    /// Sends messages of `bytes` zeros through `source`; a message should fit in a packet.
    pub fn new(source: PgmSource, bytes: u16) -> Self {
        let mut greedy = Self { source, message: vec![0; bytes.into()], packets_max: None };
        greedy.refill();
        greedy
    }

    /// Stops sending after `packets` packets of data, repairs included.
    #[must_use]
    pub fn with_packets_max(mut self, packets: u64) -> Self {
        self.packets_max = Some(packets);
        self
    }

    /// Whether the source has sent `packets_max` packets; always false without a bound.
    pub fn is_done(&self) -> bool {
        let counters = self.source.counters();
        self.packets_max.is_some_and(|most| counters.originals + counters.repairs >= most)
    }

    /// The source.
    pub const fn source(&self) -> &PgmSource {
        &self.source
    }

    fn refill(&mut self) {
        while self.source.waiting() < READY && self.source.send(&self.message) {}
    }
}

impl Machine for GreedySource {
    type Event = SourceEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.source.handle(now, input);
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<SourceEvent>> {
        if self.is_done() {
            return None;
        }
        let output = self.source.poll_output(now, buffer);
        self.refill();
        output
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // NAKs are still listened to.
        if self.is_done() { None } else { self.source.poll_timeout() }
    }
}

/// Discards all messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forget;

impl Deliver for Forget {
    fn message(&mut self, _now: Instant, _message: &[u8]) {}
}

/// Time for which one forwarded NAK suppresses further NAKs for the same number, unless the repair passes
/// before.
const LIFETIME: Duration = Duration::from_secs(1);

/// Aggregates the NAKs of PGM flows that are routed to this agent. A forwarded NAK is unchanged, as if from
/// its first sender, except that its list loses numbers already requested. The aggregator keeps the numbers
/// requested in the last second.
#[derive(Debug, Default)]
pub struct NakAggregator {
    /// Instant of the last forwarded request of each number.
    pending: BTreeMap<u32, Instant>,
    /// The same requests in order of time, including requests that a repair has already answered.
    by_time: VecDeque<(Instant, u32)>,
    absorbed: u64,
}

impl NakAggregator {
    /// Creates an aggregator without pending requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of requested sequence numbers that were already pending.
    pub const fn absorbed(&self) -> u64 {
        self.absorbed
    }

    fn nak(
        &mut self,
        report: PgmReport,
        packet: &Packet<'_>,
        way: (InterfaceId, Ecn),
        outbox: &mut Outbox<'_>,
    ) {
        let now = outbox.now();
        self.expire(now);
        let list = packet.options.nak_list.as_slice();
        let asked = 1 + list.len();
        let mut fresh = core::iter::once(report.sequence)
            .chain(list.iter().copied())
            .filter(|sequence| self.is_new(*sequence, now));
        let Some(sequence) = fresh.next() else {
            self.absorbed += asked as u64;
            return;
        };
        let mut options = Options { nak_list: Default::default(), ..packet.options };
        fresh.for_each(|sequence| _ = options.nak_list.push(sequence));
        let absorbed = asked - 1 - options.nak_list.as_slice().len();
        self.absorbed += absorbed as u64;
        let (ingress, ecn) = way;
        if absorbed == 0 {
            outbox.pass(ingress, ecn);
            return;
        }
        let rest = Packet { options, body: Body::Nak(PgmReport { sequence, ..report }), ..*packet };
        if let Ok(bytes) = rest.emit(outbox.room()) {
            outbox.rewrite(bytes, ecn);
        }
    }

    /// Whether `sequence` was not pending; records the request if so.
    fn is_new(&mut self, sequence: u32, now: Instant) -> bool {
        let is_new = !self.pending.contains_key(&sequence);
        if is_new {
            self.pending.insert(sequence, now);
            self.by_time.push_back((now, sequence));
        }
        is_new
    }

    fn expire(&mut self, now: Instant) {
        while let Some((asked, sequence)) =
            self.by_time.front().copied().filter(|(asked, _)| *asked + LIFETIME <= now)
        {
            self.by_time.pop_front();
            // A repair may have removed the number, and a later NAK may have requested the number anew.
            if self.pending.get(&sequence) == Some(&asked) {
                self.pending.remove(&sequence);
            }
        }
    }
}

impl Agent for NakAggregator {
    fn start(&mut self, _outbox: &mut Outbox<'_>) {}

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        let Some(ingress) = arrival.ingress else { return };
        if let Ok(packet) = Packet::parse(arrival.payload) {
            match packet.body {
                Body::Nak(report) => return self.nak(report, &packet, (ingress, arrival.ecn), outbox),
                Body::Rdata { sequence, .. } => _ = self.pending.remove(&sequence),
                _ => {}
            }
        }
        outbox.pass(ingress, arrival.ecn);
    }

    fn timeout(&mut self, _outbox: &mut Outbox<'_>) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}
