//! A direction of a link without a simulation, for real packets: the emulated wire between two ports of
//! machines.

use std::collections::VecDeque;

use headwater_proto::queue::ParameterError;
use headwater_proto::rng::Seed;
use headwater_proto::{Ecn, Instant};

use super::link::{Admission, Link};
use super::{DropCause, LinkConfig, LinkCounters, NodeId};
use crate::engine::PacketIndex;

/// Instant at which a packet reached the far end, and the packet with its ECN field or the reason for its
/// loss.
pub type LineArrival<T> = (Instant, Result<(T, Ecn), DropCause>);

/// Queue, transmitter and delay of a simulated link, with the packets on the link. First in, first out. The
/// queue's limit and the delay bound the number of packets. Losses are the only faults. The caller rewrites
/// the ECN field of a marked packet.
#[derive(Debug)]
pub struct Line<T> {
    link: Link,
    packets: VecDeque<T>,
    next: Option<Instant>,
}

impl<T> Line<T> {
    /// Creates an idle line. `name` distinguishes its random streams from those of further lines with the
    /// same seed.
    ///
    /// # Errors
    ///
    /// If a parameter is invalid.
    pub fn new(config: &LinkConfig, seed: Seed, name: &str) -> Result<Self, ParameterError> {
        let stream = |purpose: &str| seed.stream(&format!("line/{name}/{purpose}"), 0);
        let link = Link::of(config, NodeId(0), stream)?;
        Ok(Self { link, packets: VecDeque::new(), next: None })
    }

    /// Offers a packet of `bytes` on the wire at `now`, which never goes back.
    ///
    /// # Errors
    ///
    /// If the queue drops the packet.
    pub fn offer(&mut self, now: Instant, packet: T, bytes: u32, ecn: Ecn) -> Result<(), DropCause> {
        match self.link.offer(now, PacketIndex(0), bytes, true, (None, ecn)) {
            Admission::Dropped(why) => Err(why),
            Admission::Taken { arrival, .. } => {
                self.packets.push_back(packet);
                self.next = arrival.or(self.next);
                Ok(())
            }
        }
    }

    /// Instant at which the first packet reaches the far end.
    pub const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Takes the first packet if the packet has reached the far end by `now`.
    pub fn arrive(&mut self, now: Instant) -> Option<LineArrival<T>> {
        let due = self.next.filter(|due| *due <= now)?;
        let (queued, next) = self.link.arrive(now)?;
        self.next = next;
        let packet = self.packets.pop_front()?;
        Some((due, queued.fate.map_or(Ok((packet, queued.ecn)), Err)))
    }

    /// Counters until `now`.
    pub fn counters(&mut self, now: Instant) -> &LinkCounters {
        self.link.counters(now)
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::queue::QueueConfig;

    use super::super::LossConfig;
    use headwater_proto::{Duration, Rate};

    use super::*;

    #[test]
    fn packets_wait_are_sent_and_travel_in_order() {
        // A kilobyte takes 8 ms; one is sent, two wait.
        let config = LinkConfig::new(Rate::from_kilobits(1_000), Duration::from_millis(100))
            .with_queue(QueueConfig::drop_tail(2));
        let mut line = Line::new(&config, Seed(1), "there").unwrap();
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let offers = [0, 0, 0, 0, 9].map(|ms| line.offer(at(ms), ms, 1_000, Ecn::NotCapable).is_ok());
        assert_eq!(offers, [true, true, true, false, true]);
        assert_eq!(line.next(), Some(at(108)));
        assert!(line.arrive(at(107)).is_none());
        // Whoever comes late is told when it came.
        let arrivals: Vec<_> = std::iter::from_fn(|| line.arrive(at(500))).collect();
        let came = |ms, packet| (at(ms), Ok((packet, Ecn::NotCapable)));
        assert_eq!(arrivals, [came(108, 0), came(116, 0), came(124, 0), came(132, 9)]);
        assert_eq!(line.next(), None);
        assert_eq!(line.counters(at(500)).dropped_full, 1);
        let lossy = LinkConfig { loss: LossConfig::Bernoulli(1.0), ..config };
        let mut line = Line::new(&lossy, Seed(1), "there").unwrap();
        line.offer(at(0), (), 1_000, Ecn::NotCapable).unwrap();
        assert_eq!(line.arrive(at(108)), Some((at(108), Err(DropCause::Lost))));
    }
}
