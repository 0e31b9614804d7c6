//! A path between a sender and its sink: a fixed delay each way and a script of what happens to which
//! segment.

use std::collections::BTreeMap;

use headwater_netsim::tcp::{Config, Data, Segment, Sender, Sink, Transmit};
use headwater_proto::{Duration, Ecn, Instant, Seed};

/// One way. A round trip takes 100 ms.
pub const DELAY: Duration = Duration::from_millis(50);

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after [`DELAY`].
    Arrive,
    /// It is lost.
    Lose,
    /// It arrives this much later.
    Late(Duration),
    /// It arrives twice, the second time this much later.
    Twice(Duration),
    /// It arrives marked "congestion experienced" if it is ECN-capable, else it is lost.
    Mark,
}

/// What a script is told of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The segment.
    pub segment: Segment,
    /// How many packets went this way before.
    pub number: u64,
    /// Of those, how many with the same sequence number.
    pub earlier: u32,
}

/// The two ends and what is under way between them.
pub struct Path<'a> {
    pub sender: Sender,
    pub sink: Sink,
    pub now: Instant,
    /// Instant, sequence of insertion -> packet.
    under_way: BTreeMap<(Instant, u64), Flight>,
    inserted: u64,
    sent: BTreeMap<u32, u32>,
    data_count: u64,
    ack_count: u64,
    fate_of_data: Box<dyn FnMut(Packet) -> Fate + 'a>,
    fate_of_ack: Box<dyn FnMut(Packet) -> Fate + 'a>,
    /// (ms, text) of what the sender sent.
    log: Vec<(u64, String)>,
}

enum Flight {
    Data(Transmit),
    Ack(Transmit),
}

impl<'a> Path<'a> {
    pub fn new(config: &Config, data: Data) -> Self {
        config.check().unwrap();
        Self {
            sender: Sender::new(config.clone(), data, Seed(1).stream("overhead", 0)),
            sink: Sink::new(config.clone()),
            now: Instant::ZERO,
            under_way: BTreeMap::new(),
            inserted: 0,
            sent: BTreeMap::new(),
            data_count: 0,
            ack_count: 0,
            fate_of_data: Box::new(|_| Fate::Arrive),
            fate_of_ack: Box::new(|_| Fate::Arrive),
            log: Vec::new(),
        }
    }

    /// Decides about data segments and SYNs.
    pub fn data(mut self, fate: impl FnMut(Packet) -> Fate + 'a) -> Self {
        self.fate_of_data = Box::new(fate);
        self
    }

    /// Loses these transmissions: (segment, how often it was sent before).
    pub fn losing(self, lost: &'a [(u32, u32)]) -> Self {
        self.data(move |packet| {
            let hit =
                lost.contains(&(packet.segment.sequence, packet.earlier)) && packet.segment.payload_bytes > 0;
            if hit { Fate::Lose } else { Fate::Arrive }
        })
    }

    /// Decides about acknowledgements.
    pub fn acks(mut self, fate: impl FnMut(Packet) -> Fate + 'a) -> Self {
        self.fate_of_ack = Box::new(fate);
        self
    }

    /// Runs until `end` or until nothing is left to happen; gives what the sender sent: one line per instant
    /// with the time in ms and the segments, retransmissions with a star.
    pub fn run(&mut self, end: Instant) -> String {
        self.sender.start(self.now);
        self.drain();
        while let Some(next) = self.next_instant().filter(|next| *next <= end) {
            self.step(next);
        }
        self.transcript()
    }

    /// When something happens next.
    pub fn next_instant(&self) -> Option<Instant> {
        let arrival = self.under_way.keys().next().map(|(at, _)| *at);
        [arrival, self.sender.next_timeout(), self.sink.next_timeout()].into_iter().flatten().min()
    }

    /// Arrivals at `next` in order, then timers.
    pub fn step(&mut self, next: Instant) {
        self.now = next;
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= next) {
            match entry.remove() {
                Flight::Data(transmit) => self.sink.receive(next, &transmit.segment, transmit.ecn),
                Flight::Ack(transmit) => self.sender.receive(next, &transmit.segment),
            }
            self.drain();
        }
        self.sender.timeout(next);
        self.sink.timeout(next);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(transmit) = self.sender.poll_transmit(self.now) {
            self.send_data(transmit);
        }
        while let Some(transmit) = self.sink.poll_transmit() {
            let packet = Packet { segment: transmit.segment, number: self.ack_count, earlier: 0 };
            self.ack_count += 1;
            let fate = (self.fate_of_ack)(packet);
            self.put(fate, transmit, Flight::Ack);
        }
    }

    fn send_data(&mut self, transmit: Transmit) {
        let segment = transmit.segment;
        let mut earlier = 0;
        if segment.payload_bytes > 0 {
            let count = self.sent.entry(segment.sequence).or_default();
            earlier = *count;
            *count += 1;
        }
        let ms = self.now.as_nanos() / 1_000_000;
        let text = match (segment.syn, earlier, segment.cwr) {
            (true, ..) => "S".to_owned(),
            (_, 0, false) => segment.sequence.to_string(),
            (_, 0, true) => format!("{}c", segment.sequence),
            _ => format!("{}*", segment.sequence),
        };
        self.log.push((ms, text));
        let fate = (self.fate_of_data)(Packet { segment, number: self.data_count, earlier });
        self.data_count += 1;
        self.put(fate, transmit, Flight::Data);
    }

    fn put(&mut self, fate: Fate, transmit: Transmit, flight: impl Fn(Transmit) -> Flight) {
        let arrival = self.now + DELAY;
        let marked = Transmit { ecn: Ecn::CongestionExperienced, ..transmit };
        let arrivals = match fate {
            Fate::Arrive => vec![(arrival, transmit)],
            Fate::Late(by) => vec![(arrival + by, transmit)],
            Fate::Twice(by) => vec![(arrival, transmit), (arrival + by, transmit)],
            Fate::Mark if transmit.ecn != Ecn::NotCapable => vec![(arrival, marked)],
            Fate::Mark | Fate::Lose => Vec::new(),
        };
        for (at, transmit) in arrivals {
            self.under_way.insert((at, self.inserted), flight(transmit));
            self.inserted += 1;
        }
    }

    fn transcript(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut last = None;
        for (ms, text) in &self.log {
            match lines.last_mut().filter(|_| last == Some(*ms)) {
                Some(line) => {
                    line.push(' ');
                    line.push_str(text);
                }
                None => lines.push(format!("{ms}: {text}")),
            }
            last = Some(*ms);
        }
        lines.join("\n")
    }
}
