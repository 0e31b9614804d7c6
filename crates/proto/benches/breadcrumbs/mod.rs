//! A full table of breadcrumbs and batches of messages about them, for the bench and the example that are
//! named after it.

use std::net::SocketAddr;

use headwater_proto::bcfs::relay::{Relay, RelayConfig, Upstream};
use headwater_proto::bcfs::{BreadcrumbRouter, Label, Level, RouterConfig};
use headwater_proto::{
    DATAGRAM_BYTES_MAX, Datagram, EXPECTED_MAX, Ecn, Input, Instant, InterfaceId, Machine as _, Seed,
};
use headwater_wire::bcfs::{Header, Kind};

/// Bytes of a reply's body.
const BODY: usize = 512;
const NOW: Instant = Instant::from_nanos(1_000_000_000);
const UPSTREAM: InterfaceId = InterfaceId(0);
const BELOW: InterfaceId = InterfaceId(1);

/// Messages that a driver has at once, as from `recvmmsg`.
pub const BATCH: usize = EXPECTED_MAX;

/// What follows breadcrumbs.
pub trait Forwards {
    /// One that holds at most this many.
    fn new(entries: u32) -> Self;

    /// Tells it of the next batch.
    fn expect(&mut self, batch: &[Vec<u8>]);

    /// Hands in a batch; how many messages came out.
    fn give(&mut self, kind: Kind, batch: &[Vec<u8>], room: &mut [u8]) -> usize;

    /// Breadcrumbs that it holds.
    fn entries(&self) -> usize;
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], 7_000))
}

fn config(entries: u32) -> RouterConfig {
    RouterConfig::default().with_entries(entries as usize).with_hash_key([3, 4])
}

/// The router alone: a reply is not copied.
impl Forwards for BreadcrumbRouter<InterfaceId> {
    fn new(entries: u32) -> Self {
        Self::new(config(entries), UPSTREAM)
    }

    fn expect(&mut self, batch: &[Vec<u8>]) {
        self.expect(batch.iter().map(Vec::as_slice));
    }

    fn give(&mut self, kind: Kind, batch: &[Vec<u8>], room: &mut [u8]) -> usize {
        let ingress = if kind == Kind::Reply { UPSTREAM } else { BELOW };
        let mut outputs = 0;
        for payload in batch {
            let datagram = Datagram { source: address(2), channel: None, ecn: Ecn::NotCapable, payload };
            self.handle(NOW, Input::Routed(ingress, datagram));
            while self.poll_output(NOW, room).is_some() {
                outputs += 1;
            }
        }
        outputs
    }

    fn entries(&self) -> usize {
        self.entries()
    }
}

/// All that `headwater relay` does with a message but what its sockets do: who sends it and how fast, the
/// router, the queue, the packet that is written.
impl Forwards for Relay {
    fn new(entries: u32) -> Self {
        let config = RelayConfig::new(config(entries), Seed(1))
            .with_upstreams(vec![Upstream { source: None, via: address(9) }])
            .with_requests_per_second(u32::MAX);
        Self::new(config).expect("sound numbers")
    }

    fn expect(&mut self, batch: &[Vec<u8>]) {
        headwater_proto::Machine::expect(self, &mut batch.iter().map(Vec::as_slice));
    }

    fn give(&mut self, kind: Kind, batch: &[Vec<u8>], room: &mut [u8]) -> usize {
        let source = address(if kind == Kind::Reply { 9 } else { 2 });
        for payload in batch {
            let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload };
            self.handle(NOW, Input::Datagram(datagram));
        }
        let mut outputs = 0;
        while self.poll_output(NOW, room).is_some() {
            outputs += 1;
        }
        outputs
    }

    fn entries(&self) -> usize {
        self.counters().entries
    }
}

/// A full table, and who asks and answers.
pub struct Bed<F> {
    forwards: F,
    requests: Vec<Vec<u8>>,
    replies: Vec<Vec<u8>>,
    room: Vec<u8>,
    /// Whether it is told of a batch before it comes.
    expects: bool,
}

impl<F: Forwards> Bed<F> {
    pub fn new(entries: u32, expects: bool) -> Self {
        let messages = |kind, body: usize| {
            let mut bytes = vec![0; 20 + body];
            Header::new(kind, address(1), Label(0), Level::ONE).emit(&mut bytes).expect("room");
            vec![bytes; BATCH]
        };
        let mut bed = Self {
            forwards: F::new(entries),
            requests: messages(Kind::Request, 8),
            replies: messages(Kind::Reply, BODY),
            room: vec![0; DATAGRAM_BYTES_MAX],
            expects,
        };
        for first in (0..entries).step_by(BATCH) {
            let mut labels = first..entries;
            bed.give(Kind::Request, std::array::from_fn(|_| labels.next().unwrap_or(first)), 1);
        }
        assert_eq!(bed.forwards.entries(), entries as usize);
        bed
    }

    /// Replies that leave the breadcrumbs, as those of EXPRESS channels do.
    pub fn replies(&mut self, labels: &mut Labels) {
        assert_eq!(self.give(Kind::Reply, labels.batch(), 0), BATCH);
    }

    /// Replies that take the breadcrumbs, and requests that leave them anew.
    pub fn pairs(&mut self, labels: &mut Labels) {
        let batch = labels.batch();
        assert_eq!(self.give(Kind::Reply, batch, 1), BATCH);
        assert_eq!(self.give(Kind::Request, batch, 1), BATCH);
    }

    fn give(&mut self, kind: Kind, labels: [u32; BATCH], level: u8) -> usize {
        let messages = if kind == Kind::Reply { &mut self.replies } else { &mut self.requests };
        for (message, label) in messages.iter_mut().zip(labels) {
            message[4..8].copy_from_slice(&label.to_be_bytes());
            message[9] = level;
        }
        if self.expects {
            self.forwards.expect(messages);
        }
        self.forwards.give(kind, messages, &mut self.room)
    }
}

/// Each label of a table once a round.
pub struct Labels {
    entries: u32,
    label: u32,
    step: u32,
    /// Of this round.
    left: usize,
    state: u64,
    are_scattered: bool,
}

impl Labels {
    /// In an order that neither the memory nor a processor can foresee, another one each round: the worst
    /// case.
    pub fn scattered(entries: u32) -> Self {
        Self { entries, label: 0, step: 1, left: 0, state: 1, are_scattered: true }
    }

    /// One after the other, as a source's packets are numbered.
    pub fn in_sequence(entries: u32) -> Self {
        Self { are_scattered: false, ..Self::scattered(entries) }
    }

    /// The next ones, no two the same.
    pub fn batch(&mut self) -> [u32; BATCH] {
        if self.left < BATCH {
            self.left = self.entries as usize;
            if self.are_scattered {
                self.step = self.draw_step();
            }
        }
        self.left -= BATCH;
        std::array::from_fn(|_| {
            self.label = (self.label + self.step) % self.entries;
            self.label
        })
    }

    /// One that comes by all labels before it comes by any again.
    fn draw_step(&mut self) -> u32 {
        loop {
            // Knuth's generator, of which the high bits are wanted.
            self.state =
                self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let step = (self.state >> 33) as u32 % self.entries;
            let (mut a, mut b) = (step, self.entries);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            if a == 1 {
                return step;
            }
        }
    }
}
