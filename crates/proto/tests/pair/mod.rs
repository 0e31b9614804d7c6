//! The smallest driver: one sender, any number of receivers, a virtual clock, a lossy link to each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, FileToSend, MemorySource,
    MemoryStore, PlanConfig, ReceiverEvent, RelativePath, SenderEvent, SessionPlan,
};
use headwater_proto::rng::Stream;
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Duration, Ecn, Input, Instant, Machine, Outlet,
    Output, Rate, Seed, drain, fixed,
};
use rand::{Rng, RngExt};

pub type FixedSender = DeliverySender<fixed::FixedSender, MemorySource>;
pub type FixedReceiver = DeliveryReceiver<fixed::FixedReceiver, MemoryStore>;

/// Pseudo-random content of a file.
pub fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Seed(seed).stream("content", bytes as u64).fill_bytes(&mut content);
    content
}

/// A plan of files `file0`, `file1`.. with these contents, and a sender of it at `rate`.
pub fn sender(
    contents: &[Vec<u8>],
    plan: PlanConfig,
    config: DeliverySenderConfig,
    rate: Rate,
) -> FixedSender {
    let file = |(index, content): (usize, &Vec<u8>)| FileToSend {
        path: RelativePath::new(&format!("dir/file{index}")).unwrap(),
        bytes: content.len() as u64,
        mode: Some(0o644),
        modified: None,
    };
    let plan = SessionPlan::new(contents.iter().enumerate().map(file).collect(), plan).unwrap();
    let source = MemorySource::new(&plan, &contents.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let digests = source.digests();
    DeliverySender::new(config, &plan, &digests, fixed::FixedSender::new(rate, Instant::ZERO), source)
        .unwrap()
}

/// How a receiver is placed.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub delay: Duration,
    /// Share of packets lost, at random.
    pub loss: f64,
    /// Share of packets that arrive 5 ms late, behind others.
    pub reordered: f64,
    /// Share of packets that arrive twice.
    pub duplicated: f64,
    /// Share of packets of content with one bit of their symbol changed, past the UDP checksum.
    pub corrupted: f64,
    /// When the receiver comes.
    pub joins_at: Instant,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            loss: 0.0,
            reordered: 0.0,
            duplicated: 0.0,
            corrupted: 0.0,
            joins_at: Instant::ZERO,
        }
    }
}

pub struct End {
    pub machine: FixedReceiver,
    pub events: Vec<ReceiverEvent>,
    pub joins: usize,
    pub ended_at: Option<Instant>,
    link: Link,
    chance: Stream,
    pub joined: bool,
    config: DeliveryReceiverConfig,
    pub started: bool,
}

/// Sender and receivers with their links.
pub struct Pair {
    pub now: Instant,
    pub sender: FixedSender,
    pub sender_events: Vec<SenderEvent>,
    pub receivers: Vec<End>,
    /// BLAKE3 over every datagram sent, with its instant.
    trace: blake3::Hasher,
    in_flight: BinaryHeap<Reverse<Arrival>>,
    order: u64,
}

/// When, in which order, at which receiver, what.
type Arrival = (Instant, u64, usize, Vec<u8>);

#[derive(Default)]
struct Gather {
    buffer: Vec<u8>,
    datagrams: Vec<Vec<u8>>,
    sender_events: Vec<SenderEvent>,
}

impl Outlet<SenderEvent> for Gather {
    fn room(&mut self) -> &mut [u8] {
        self.buffer.resize(DATAGRAM_BYTES_MAX, 0);
        &mut self.buffer
    }

    fn put(&mut self, output: Output<SenderEvent>) {
        match output {
            Output::Transmit(transmit) => {
                assert_eq!(transmit.destination, Destination::Channel(ChannelId::BASE));
                self.datagrams.push(self.buffer[..transmit.bytes].to_vec());
            }
            Output::Event(event) => self.sender_events.push(event),
            other => panic!("a sender joins nothing: {other:?}"),
        }
    }
}

impl Pair {
    pub fn new(seed: Seed, sender: FixedSender, links: &[Link]) -> Self {
        let end = |(index, link): (usize, &Link)| End {
            machine: receiver(DeliveryReceiverConfig::default(), link.joins_at),
            events: Vec::new(),
            joins: 0,
            ended_at: None,
            link: *link,
            chance: seed.stream("link", index as u64),
            joined: false,
            config: DeliveryReceiverConfig::default(),
            started: false,
        };
        Self {
            now: Instant::ZERO,
            sender,
            sender_events: Vec::new(),
            receivers: links.iter().enumerate().map(end).collect(),
            trace: blake3::Hasher::new(),
            in_flight: BinaryHeap::new(),
            order: 0,
        }
    }

    /// Configures a receiver that has not come yet.
    pub fn configure(&mut self, receiver: usize, config: DeliveryReceiverConfig) {
        self.receivers[receiver].config = config;
    }

    /// Loses what is under way to any receiver.
    pub fn lose_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// The digest of all that was sent so far.
    pub fn trace(&self) -> String {
        self.trace.finalize().to_hex().to_string()
    }

    /// Runs until every receiver has ended, or until `limit`.
    pub fn run(&mut self, limit: Instant) {
        loop {
            self.send();
            for index in 0..self.receivers.len() {
                self.tend(index);
            }
            if self.receivers.iter().all(|end| end.ended_at.is_some()) {
                return;
            }
            let Some(next) = self.next_event().filter(|next| *next <= limit) else { return };
            assert!(next >= self.now, "time goes on");
            self.now = next;
            self.deliver();
            self.sender.handle(self.now, Input::Timeout);
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let arrivals = self.in_flight.peek().map(|Reverse((at, ..))| *at);
        let starts = self.receivers.iter().filter(|end| !end.started).map(|end| end.link.joins_at);
        let timers =
            self.receivers.iter().filter(|end| end.started).filter_map(|end| end.machine.poll_timeout());
        self.sender.poll_timeout().into_iter().chain(arrivals).chain(starts).chain(timers).min()
    }

    fn send(&mut self) {
        let mut gather = Gather::default();
        drain(&mut self.sender, self.now, &mut gather);
        self.sender_events.append(&mut gather.sender_events);
        for datagram in gather.datagrams {
            self.trace.update(&self.now.as_nanos().to_le_bytes());
            self.trace.update(&datagram);
            for receiver in 0..self.receivers.len() {
                self.carry(receiver, &datagram);
            }
        }
    }

    fn carry(&mut self, receiver: usize, datagram: &[u8]) {
        let end = &mut self.receivers[receiver];
        // Draw all chances for every packet, so that one does not shift another's numbers.
        let [lost, reordered, duplicated, corrupted] = core::array::from_fn(|_| end.chance.random::<f64>());
        if !end.joined || lost < end.link.loss {
            return;
        }
        let late = if reordered < end.link.reordered { Duration::from_millis(5) } else { Duration::ZERO };
        let at = self.now + end.link.delay + late;
        let mut datagram = datagram.to_vec();
        if corrupted < end.link.corrupted {
            corrupt(&mut datagram, &mut end.chance);
        }
        for _ in 0..1 + usize::from(duplicated < end.link.duplicated) {
            self.order += 1;
            self.in_flight.push(Reverse((at, self.order, receiver, datagram.clone())));
        }
    }

    fn deliver(&mut self) {
        while self.in_flight.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
            let Some(Reverse((_, _, receiver, payload))) = self.in_flight.pop() else { return };
            let source: SocketAddr = "192.0.2.1:4000".parse().unwrap();
            let channel = Some(ChannelId::BASE);
            let datagram = Datagram { source, channel, ecn: Ecn::NotCapable, payload: &payload };
            let machine = &mut self.receivers[receiver].machine;
            machine.handle(self.now, Input::Datagram(datagram));
            let stats = machine.stats();
            assert_eq!(stats.accounted(), stats.packets, "each datagram is in one counter: {stats:?}");
        }
    }

    fn tend(&mut self, index: usize) {
        let now = self.now;
        let end = &mut self.receivers[index];
        if !end.started {
            if end.link.joins_at > now {
                return;
            }
            end.started = true;
            end.machine = receiver(end.config, now);
        }
        end.machine.handle(now, Input::Timeout);
        while let Some(output) = end.machine.poll_output(now, &mut []) {
            match output {
                Output::Join(ChannelId::BASE) => {
                    assert!(!end.joined, "joined twice");
                    end.joined = true;
                    end.joins += 1;
                }
                Output::Leave(ChannelId::BASE) => {
                    assert!(end.joined, "left without a join");
                    end.joined = false;
                }
                Output::Event(event) => end.events.push(event),
                other => panic!("a receiver of one channel does not {other:?}"),
            }
        }
        if end.machine.is_ended() && end.ended_at.is_none() {
            assert!(!end.joined, "a receiver that ended holds nothing");
            end.ended_at = Some(now);
        }
    }
}

fn corrupt(datagram: &mut [u8], chance: &mut Stream) {
    let (header, symbol) = headwater_wire::alc::parse(datagram).unwrap();
    let start = datagram.len() - symbol.len();
    if header.toi.is_some_and(|toi| toi > 0) {
        let byte = chance.random_range(start..datagram.len());
        datagram[byte] ^= 1 << chance.random_range(0..8);
    }
}

fn receiver(config: DeliveryReceiverConfig, now: Instant) -> FixedReceiver {
    DeliveryReceiver::new(config, fixed::FixedReceiver::new(), MemoryStore::new(1 << 30), now)
}

impl End {
    /// Sets the share of packets lost from now on.
    pub fn set_loss(&mut self, loss: f64) {
        self.link.loss = loss;
    }

    /// Asserts that the files are whole, right and nothing else.
    pub fn assert_received(&self, contents: &[Vec<u8>]) {
        assert!(
            matches!(self.events.last(), Some(ReceiverEvent::SessionCompleted { refused: 0 })),
            "{:?}",
            self.events
        );
        let mut finished: Vec<(&str, &[u8])> =
            self.machine.store().finished().map(|(spec, bytes)| (spec.path.as_str(), bytes)).collect();
        finished.sort_unstable();
        let mut expected: Vec<(String, &[u8])> = contents
            .iter()
            .enumerate()
            .map(|(index, bytes)| (format!("dir/file{index}"), bytes.as_slice()))
            .collect();
        expected.sort_unstable();
        assert_eq!(finished.len(), expected.len());
        for ((path, bytes), (expected_path, expected_bytes)) in finished.iter().zip(&expected) {
            assert_eq!(path, expected_path);
            assert!(bytes == expected_bytes, "{path} differs");
        }
    }
}
