//! A router that sends on the first NAK for each packet: the model of LE-SBCC's aggregation (Thapliyal et
//! al., aggregation).

use std::collections::{BTreeMap, VecDeque};

use headwater_proto::{Duration, Ecn, Instant, InterfaceId};
use headwater_wire::pgm::{Body, Options, Packet, Report};

use super::{Agent, Arrival, Outbox};

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

    fn nak(&mut self, report: Report, packet: &Packet<'_>, way: (InterfaceId, Ecn), outbox: &mut Outbox<'_>) {
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
        let rest = Packet { options, body: Body::Nak(Report { sequence, ..report }), ..*packet };
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
