//! A direction of a link: a queue, a transmitter, a wire.
//!
//! The queue is first in, first out at a known rate. So the end of a packet's transmission is known on
//! admission: the later of now and the end of the previous transmission, plus the packet's serialisation. The
//! end of a transmission therefore needs no event; a link has a single pending event, the arrival of its
//! first packet at the far end. A mark that advances over packets with transmission begun separates waiting
//! packets from the rest.
//!
//! A discipline that decides on packets as they leave the queue is asked when the mark reaches a packet. A
//! packet dropped then takes no link time, packets behind it begin earlier, and the drop is counted when the
//! packet would have arrived.

use std::collections::VecDeque;

use headwater_proto::queue::{DropReason, GroupAddress, Occupancy, Offered, ParameterError, Verdict};
use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Ecn, Instant, Rate};

use super::codel::Head;
use super::policy::Policy;
use super::wire::{Impairments, Wire};
use super::{LinkConfig, LinkCounters, LossConfig};
use crate::engine::PacketIndex;
use crate::network::NodeId;

/// Reason why a packet was lost on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropCause {
    /// The queue refused the packet.
    Queue(DropReason),
    /// The wire lost the packet, after the transmission had used its link time.
    Lost,
    /// A changed bit was noticed by a checksum at the far end.
    Corrupted,
    /// The link was down.
    Down,
}

/// A packet on a link: waiting, in transmission, or travelling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    /// Arrival at the queue.
    came: Instant,
    /// Begin and end of transmission.
    begin: Instant,
    end: Instant,
    pub(crate) packet: PacketIndex,
    pub(crate) bytes: u32,
    pub(crate) ecn: Ecn,
    /// Whether the queue marked the packet as the packet left.
    pub(crate) is_marked_late: bool,
    /// Reason why the packet will not arrive, if any.
    pub(crate) fate: Option<DropCause>,
}

/// Result of offering a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The packet is on the link. If the link was empty, the caller schedules `arrival`.
    Taken {
        arrival: Option<Instant>,
        marked: bool,
    },
    Dropped(DropCause),
}

/// State of a direction of a link.
#[derive(Debug)]
pub(crate) struct Link {
    /// First in, first out. The first `begun` packets are in service or on the wire, the rest waits. Bounded
    /// by the queue's limit and the capacity of the wire.
    ring: VecDeque<Queued>,
    begun: usize,
    /// Instant at which the transmitter becomes idle.
    busy_until: Instant,
    waiting_bytes: u64,
    /// Serialisation time of the last packet size; the packets of a flow have few sizes.
    last_size: (u32, Duration),
    rate: Rate,
    delay: Duration,
    pub(crate) to: NodeId,
    /// Delay of a membership message in addition to the propagation delay, if configured for this link.
    pub(crate) graft_delay: Option<Duration>,
    up: bool,
    policy: Policy,
    wire: Wire,
    /// Up to when the counters' integrals have been taken.
    integrated: Instant,
    counters: LinkCounters,
}

impl Link {
    /// Creates a direction from its configuration; `stream` creates a random stream for each purpose.
    pub(crate) fn of(
        config: &LinkConfig,
        to: NodeId,
        stream: impl Fn(&str) -> Stream,
    ) -> Result<Self, ParameterError> {
        let mut wire = Wire::default();
        if config.loss != LossConfig::None {
            wire = wire.with_loss(config.loss.model()?, config.loss_filter, stream("loss"));
        }
        if config.impairments != Impairments::NONE {
            config.impairments.check()?;
            wire = wire.with_faults(config.impairments, stream("impairments"));
        }
        let policy = Policy::new(config.queue, config.rate, config.delay, || stream("queue"))?;
        Ok(Self::new(config.rate, config.delay, to, policy, wire))
    }

    fn new(rate: Rate, delay: Duration, to: NodeId, policy: Policy, wire: Wire) -> Self {
        Self {
            ring: VecDeque::new(),
            begun: 0,
            busy_until: Instant::ZERO,
            waiting_bytes: 0,
            last_size: (0, Duration::ZERO),
            rate,
            delay,
            to,
            graft_delay: None,
            up: true,
            policy,
            wire,
            integrated: Instant::ZERO,
            counters: LinkCounters::default(),
        }
    }

    /// Offers a packet of `bytes` on the wire, to a group or not; `is_data` for the filter of losses.
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        packet: PacketIndex,
        bytes: u32,
        is_data: bool,
        (group, ecn): (Option<GroupAddress>, Ecn),
    ) -> Admission {
        self.advance(now);
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += u64::from(bytes);
        if !self.up {
            return self.dropped(DropCause::Down);
        }
        let verdict = self.policy.admit(now, self.occupancy(now), Offered { bytes, ecn, group });
        let marked = match verdict {
            Verdict::Drop(reason) => return self.dropped(DropCause::Queue(reason)),
            Verdict::Mark => true,
            Verdict::Enqueue => false,
        };
        self.counters.marked += u64::from(marked);
        let ecn = if marked { Ecn::CongestionExperienced } else { ecn };
        let fate = self.wire.loses(is_data).then_some(DropCause::Lost);
        let begin = self.busy_until.max(now);
        let end = begin + self.time_of(bytes);
        self.busy_until = end;
        self.ring.push_back(Queued {
            came: now,
            begin,
            end,
            packet,
            bytes,
            ecn,
            is_marked_late: false,
            fate,
        });
        if begin <= now {
            // An empty queue: never dropped, but news for the discipline.
            self.policy.dequeue(now, Head { waited: Duration::ZERO, bytes, ecn, bytes_behind: 0 });
            self.begin_service(bytes);
        } else {
            self.waiting_bytes += u64::from(bytes);
            self.counters.waiting_peak = self.counters.waiting_peak.max(self.waiting());
        }
        let arrival = (self.ring.len() == 1).then(|| end + self.delay);
        Admission::Taken { arrival, marked }
    }

    /// Takes the first packet, which has reached the far end, and returns the arrival of the next packet.
    ///
    /// The next packet's transmission has begun by now: at the end of the taken packet's transmission, or on
    /// admission to an idle transmitter.
    pub(crate) fn arrive(&mut self, now: Instant) -> Option<(Queued, Option<Instant>)> {
        self.advance(now);
        let queued = self.ring.pop_front()?;
        self.begun -= 1;
        match queued.fate {
            None => {
                self.counters.delivered_packets += 1;
                self.counters.delivered_bytes += u64::from(queued.bytes);
            }
            Some(fate) => self.counters.count(fate),
        }
        Some((queued, self.ring.front().map(|next| next.end + self.delay)))
    }

    /// Changes the rate. A packet with transmission begun keeps the old rate; waiting packets are
    /// rescheduled.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: Rate) {
        self.advance(now);
        self.rate = rate;
        self.last_size = (0, Duration::ZERO);
        self.policy.set_rate(rate);
        // No packet waits behind an idle link. The start of the idle time stays, because RED uses that
        // instant.
        let Some(sending) = self.begun.checked_sub(1).filter(|_| self.waiting() > 0) else { return };
        self.reschedule(self.ring[sending].end);
    }

    /// Schedules waiting packets anew, the first from `free` on.
    fn reschedule(&mut self, mut free: Instant) {
        for index in self.begun..self.ring.len() {
            let time = self.time_of(self.ring[index].bytes);
            let queued = &mut self.ring[index];
            (queued.begin, queued.end) = (free, free + time);
            free = queued.end;
        }
        self.busy_until = free;
    }

    /// The link starts or stops carrying a group.
    pub(crate) fn membership(&mut self, group: GroupAddress, is_forwarded: bool) {
        self.policy.membership(group, is_forwarded);
    }

    /// Cuts or mends the link. A cut loses waiting packets and the packet in transmission, and reports each
    /// to `lost`; packets on the wire arrive.
    pub(crate) fn set_up(&mut self, now: Instant, up: bool, mut lost: impl FnMut(PacketIndex)) {
        self.advance(now);
        self.up = up;
        if up {
            return;
        }
        for queued in self.ring.drain(self.begun..) {
            self.counters.count(DropCause::Down);
            lost(queued.packet);
        }
        self.waiting_bytes = 0;
        if let Some(sending) = self.ring.back_mut().filter(|queued| queued.end > now) {
            sending.fate = Some(DropCause::Down);
        }
        self.busy_until = self.ring.back().map_or(self.busy_until.min(now), |queued| queued.end);
    }

    /// Faults of the wire.
    pub(crate) const fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    pub(crate) const fn delay(&self) -> Duration {
        self.delay
    }

    /// The counters up to `now`.
    pub(crate) fn counters(&mut self, now: Instant) -> &LinkCounters {
        self.advance(now);
        &self.counters
    }

    /// A checksum at the far end noticed a changed bit in a packet that was counted as delivered.
    pub(crate) const fn undeliver(&mut self, bytes: u32) {
        self.counters.delivered_packets -= 1;
        self.counters.delivered_bytes -= bytes as u64;
        self.counters.count(DropCause::Corrupted);
    }

    fn dropped(&mut self, drop: DropCause) -> Admission {
        self.counters.count(drop);
        Admission::Dropped(drop)
    }

    /// Number of waiting packets, excluding the packet in transmission.
    pub(crate) fn waiting(&self) -> u64 {
        (self.ring.len() - self.begun) as u64
    }

    fn occupancy(&self, now: Instant) -> Occupancy {
        Occupancy {
            packets: u32::try_from(self.waiting()).unwrap_or(u32::MAX),
            bytes: self.waiting_bytes,
            idle_since: (self.busy_until <= now).then_some(self.busy_until),
        }
    }

    /// Advances the mark over packets whose transmission begins by `now`, and integrates the queue meanwhile.
    fn advance(&mut self, now: Instant) {
        while let Some(next) = self.ring.get(self.begun).filter(|queued| queued.begin <= now) {
            let (came, begin, bytes, ecn) = (next.came, next.begin, next.bytes, next.ecn);
            self.integrate(begin);
            self.waiting_bytes -= u64::from(bytes);
            let waited = begin.since(came);
            let head = Head { waited, bytes, ecn, bytes_behind: self.waiting_bytes };
            match self.policy.dequeue(begin, head) {
                Verdict::Enqueue => self.begin_service(bytes),
                Verdict::Mark => {
                    self.mark_head();
                    self.begin_service(bytes);
                }
                Verdict::Drop(reason) => self.drop_head(begin, reason),
            }
        }
        self.integrate(now);
    }

    /// Marks the first waiting packet.
    fn mark_head(&mut self) {
        self.counters.marked += 1;
        let head = &mut self.ring[self.begun];
        (head.ecn, head.is_marked_late) = (Ecn::CongestionExperienced, true);
    }

    /// Drops the first waiting packet, whose transmission was to begin at `now`.
    fn drop_head(&mut self, now: Instant, reason: DropReason) {
        let head = &mut self.ring[self.begun];
        (head.end, head.fate) = (now, Some(DropCause::Queue(reason)));
        self.begun += 1;
        self.reschedule(now);
    }

    fn begin_service(&mut self, bytes: u32) {
        self.begun += 1;
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += u64::from(bytes);
    }

    fn integrate(&mut self, until: Instant) {
        let time = u128::from(until.since(self.integrated).as_nanos());
        self.counters.waiting_packet_nanos += time * u128::from(self.waiting());
        self.counters.waiting_byte_nanos += time * u128::from(self.waiting_bytes);
        self.integrated = until;
    }

    fn time_of(&mut self, bytes: u32) -> Duration {
        if self.last_size.0 != bytes {
            self.last_size = (bytes, serialisation(bytes, self.rate));
        }
        self.last_size.1
    }
}

/// Time that `bytes` take at `rate`, rounded to the nearest nanosecond, half up.
pub(crate) fn serialisation(bytes: u32, rate: Rate) -> Duration {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    let rate = u128::from(rate.as_bits());
    Duration::from_nanos(u64::try_from((bits + rate / 2) / rate).unwrap_or(u64::MAX))
}
