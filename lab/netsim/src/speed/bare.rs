//! The yardstick: a binary heap, links and drop-tail queues; nothing of protocols, routes, groups or
//! counters.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use headwater_proto::{Duration, Instant, Rate};

use super::{
    ACCESS_DELAY, ACCESS_RATE, ACK_BYTES, BOTTLENECK_DELAY, BOTTLENECK_RATE, DATA_BYTES, Leaves, PAIRS,
    QUEUE_PACKETS, STAR_BYTES, STAR_DELAY, STAR_LINK_RATE, STAR_RATE,
};

/// Instant, order of scheduling, link, packet; without a packet, the event ends the current transmission of
/// the link.
type Event = (Instant, u64, u32, Option<u32>);

struct Link {
    service: Duration,
    delay: Duration,
    sending: Option<u32>,
    waiting: VecDeque<u32>,
}

/// The loop: a link sends packets in sequence, and each packet arrives a delay later.
#[derive(Default)]
struct Bare {
    heap: BinaryHeap<Reverse<Event>>,
    links: Vec<Link>,
    now: Instant,
    scheduled: u64,
    hops: u64,
}

impl Bare {
    /// Adds a link for packets of `bytes`; all packets of a link have equal size.
    fn link(&mut self, rate: Rate, delay: Duration, bytes: u32) {
        let service = rate.time_of(bytes.into());
        self.links.push(Link { service, delay, sending: None, waiting: VecDeque::new() });
    }

    fn schedule(&mut self, at: Instant, link: u32, packet: Option<u32>) {
        self.scheduled += 1;
        self.heap.push(Reverse((at, self.scheduled, link, packet)));
    }

    fn send(&mut self, link: u32, packet: u32) {
        let state = &mut self.links[link as usize];
        if state.sending.is_none() {
            state.sending = Some(packet);
            let at = self.now + state.service;
            self.schedule(at, link, None);
        } else if state.waiting.len() < QUEUE_PACKETS as usize {
            state.waiting.push_back(packet);
        }
    }

    fn sent(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        let packet = state.sending.take();
        let arrival = self.now + state.delay;
        if let Some(next) = state.waiting.pop_front() {
            state.sending = Some(next);
            let at = self.now + state.service;
            self.schedule(at, link, None);
        }
        self.schedule(arrival, link, packet);
    }

    fn run_until(&mut self, until: Instant, mut arrived: impl FnMut(&mut Self, u32, u32)) {
        while self.heap.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            let Some(Reverse((at, _, link, packet))) = self.heap.pop() else { return };
            self.now = at;
            match packet {
                None => self.sent(link),
                Some(packet) => {
                    self.hops += 1;
                    arrived(self, link, packet);
                }
            }
        }
        self.now = until;
    }
}

/// Number of packets that each connection of the bare dumbbell keeps under way, chosen so that the bottleneck
/// is busy and loses no packet.
const WINDOW: u32 = 14;

/// As [`super::dumbbell`], with a fixed window in place of TCP: the packet-hops of `simulated`.
#[must_use]
pub fn bare_dumbbell(simulated: Duration) -> u64 {
    let mut bare = Bare::default();
    // First the path there: up, across, down; then the path back likewise. A packet's value is the number of
    // its connection.
    for bytes in [DATA_BYTES, ACK_BYTES] {
        (0..PAIRS).for_each(|_| bare.link(ACCESS_RATE, ACCESS_DELAY, bytes));
        bare.link(BOTTLENECK_RATE, BOTTLENECK_DELAY, bytes);
        (0..PAIRS).for_each(|_| bare.link(ACCESS_RATE, ACCESS_DELAY, bytes));
    }
    (0..PAIRS * WINDOW).for_each(|packet| bare.send(packet % PAIRS, packet % PAIRS));
    let (across, end) = (PAIRS, 2 * PAIRS + 1);
    bare.run_until(Instant::ZERO + simulated, |bare, link, packet| {
        let (side, hop) = (link / end, link % end);
        let next = match hop.cmp(&across) {
            std::cmp::Ordering::Less => side * end + across,
            std::cmp::Ordering::Equal => side * end + across + 1 + packet,
            std::cmp::Ordering::Greater => (1 - side) * end + packet,
        };
        bare.send(next, packet);
    });
    bare.hops
}

/// As [`super::star`]: the packet-hops of `packets` packets.
#[must_use]
pub fn bare_star(leaves: u32, packets: u64, kind: Leaves) -> u64 {
    let mut bare = Bare::default();
    bare.link(STAR_LINK_RATE, STAR_DELAY, STAR_BYTES);
    (0..leaves).for_each(|leaf| bare.link(STAR_LINK_RATE, kind.delay(leaf), STAR_BYTES));
    let fan_out = |bare: &mut Bare, link: u32, packet: u32| {
        if link == 0 {
            (1..=leaves).for_each(|leaf| bare.send(leaf, packet));
        }
    };
    for packet in 1..=packets {
        bare.send(0, 0);
        bare.run_until(Instant::ZERO + STAR_RATE.time_of(packet * u64::from(STAR_BYTES)), fan_out);
    }
    bare.hops
}
