//! A router that sends on the first NAK for each packet: the model of LE-SBCC's aggregation (Thapliyal et
//! al., aggregation).

use std::collections::{BTreeMap, VecDeque};

use headwater_proto::{Duration, Ecn, Instant, InterfaceId};
use headwater_wire::pgm::{Body, Options, Packet, Report};

use super::{Agent, Arrival, Outbox};

/// For how long a NAK stands for all others, unless the repair passes before.
const LIFETIME: Duration = Duration::from_secs(1);

/// Aggregates the NAKs of PGM flows that are routed to it. The one that goes on is unchanged, as if from its
/// first sender, but for numbers of its list that others asked for already. It holds the numbers asked for in
/// the last second.
#[derive(Debug, Default)]
pub struct NakAggregator {
    /// When each number was asked for.
    pending: BTreeMap<u32, Instant>,
    /// The same in order of time, those that a repair has settled among them.
    by_time: VecDeque<(Instant, u32)>,
    absorbed: u64,
}

impl NakAggregator {
    /// Nothing pending.
    pub fn new() -> Self {
        Self::default()
    }

    /// Numbers that others had asked for already.
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

    /// Whether nobody has asked for it yet; now somebody has.
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
            // It may have been settled, and asked for anew.
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
