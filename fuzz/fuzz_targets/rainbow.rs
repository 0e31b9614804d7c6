//! A source that is asked for a small file and a receiver that asks, in a storm of forged requests and
//! replies: no panic, no more replies than requests, no more at once than the highest rate allows; then the
//! two by themselves, and the file comes whole, unless what the source's address said was forged.
#![no_main]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, FileToSend, MemorySource,
    MemoryStore, PlanConfig, RelativePath, SessionPlan,
};
use headwater_proto::rainbow::carrier;
use headwater_proto::{DATAGRAM_BYTES_MAX, Datagram, Duration, Ecn, Input, Instant, Machine, Output, Rate};
use headwater_wire::alc;
use headwater_wire::bcfs::{Header, Kind, Label, Level};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7288);
const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 4000);
const STRANGER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66)), 4000);
/// Packets at once: 10 ms at the highest rate, of 40 bytes at the least, and one.
const AT_ONCE_MAX: u64 = 32;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// The two exchange so many datagrams.
    Honest(u8),
    Millis(u16),
    /// A datagram to the source.
    Asks {
        is_null: bool,
        is_stranger: bool,
        label: u32,
        level: u16,
        body: &'a [u8],
    },
    /// A datagram to the receiver.
    Replies {
        is_stranger: bool,
        label: u32,
        level: u16,
        body: &'a [u8],
    },
    /// Bytes to either.
    Bytes {
        to_source: bool,
        bytes: &'a [u8],
    },
}

struct Bench {
    sender: DeliverySender<carrier::RainbowCarrierSender, MemorySource>,
    receiver: DeliveryReceiver<carrier::RainbowCarrierReceiver, MemoryStore>,
    now: Instant,
    /// To the source, or not; and what.
    under_way: VecDeque<(bool, Vec<u8>)>,
    given: u64,
    is_misled: bool,
    content: Vec<u8>,
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let mut bench = Bench::new();
    for step in steps {
        bench.take(step);
        assert!(bench.sender.stats().packets <= bench.given);
        assert!(bench.sender.control().counters().requests <= bench.given);
    }
    for _ in 0..400 {
        bench.exchange(64);
        bench.pass(Duration::from_millis(500));
    }
    if !bench.is_misled {
        assert!(bench.receiver.is_ended());
        let files: Vec<_> = bench.receiver.store().finished().map(|(_, bytes)| bytes).collect();
        assert_eq!(files, [bench.content.as_slice()]);
    }
});

impl Bench {
    fn new() -> Self {
        let content: Vec<u8> = (0..2_000_u32).map(|at| (at * at % 251) as u8).collect();
        let path = RelativePath::new("content").expect("a name");
        let file = FileToSend { path, bytes: content.len() as u64, mode: None, modified: None };
        let order = Order::Spread { rate: 1_000_000 };
        let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: 128, order };
        let plan = SessionPlan::new(vec![file], config).expect("one file");
        let source = MemorySource::new(&plan, &[content.as_slice()]);
        let digests = source.digests();
        let rate = Some(Rate::from_kilobits(1_000));
        let control = carrier::RainbowCarrierSenderConfig::new([1, 2])
            .with_max_rate(rate, 168)
            .with_challenges(Some([3; 32]));
        let control = carrier::RainbowCarrierSender::new(control);
        let sender = DeliverySender::new(DeliverySenderConfig::new(7), &plan, &digests, control, source)
            .expect("a short FDT");
        let control = carrier::RainbowCarrierReceiver::new(
            carrier::RainbowCarrierReceiverConfig::new(SOURCE, SOURCE).with_words(),
        );
        let receiver = DeliveryReceiver::new(
            DeliveryReceiverConfig::default(),
            control,
            MemoryStore::new(1 << 20),
            Instant::ZERO,
        );
        let (now, under_way) = (Instant::ZERO, VecDeque::new());
        let mut bench = Self { sender, receiver, now, under_way, given: 0, is_misled: false, content };
        bench.drain();
        bench
    }

    fn take(&mut self, step: Step<'_>) {
        match step {
            Step::Honest(count) => self.exchange(count),
            Step::Millis(millis) => self.pass(Duration::from_millis(millis.into())),
            Step::Asks { is_null, is_stranger, label, level, body } => {
                let kind = if is_null { Kind::Null } else { Kind::Request };
                let from = if is_stranger { STRANGER } else { HERE };
                self.give(true, from, &message(kind, label, level, body));
            }
            Step::Replies { is_stranger, label, level, body } => {
                let from = if is_stranger { STRANGER } else { SOURCE };
                // Whatever else it is, it says that it is a packet of a session.
                self.is_misled |= !is_stranger && alc::parse(body).is_ok();
                self.give(false, from, &message(Kind::Reply, label, level, body));
            }
            Step::Bytes { to_source, bytes } => {
                let body = Header::parse(bytes).map(|(_, body)| body).unwrap_or_default();
                self.is_misled |= !to_source && alc::parse(body).is_ok();
                self.give(to_source, if to_source { HERE } else { SOURCE }, bytes);
            }
        }
    }

    fn give(&mut self, to_source: bool, source: SocketAddr, payload: &[u8]) {
        let input = Input::Datagram(Datagram { source, channel: None, ecn: Ecn::NotCapable, payload });
        if to_source {
            self.given += 1;
            self.sender.handle(self.now, input);
        } else {
            self.receiver.handle(self.now, input);
        }
        self.drain();
    }

    fn exchange(&mut self, count: u8) {
        for _ in 0..count {
            let Some((to_source, payload)) = self.under_way.pop_front() else { return };
            self.give(to_source, if to_source { HERE } else { SOURCE }, &payload);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.sender.handle(self.now, Input::Timeout);
        self.receiver.handle(self.now, Input::Timeout);
        self.drain();
    }

    fn drain(&mut self) {
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        let mut sent = 0;
        while let Some(output) = self.sender.poll_output(self.now, &mut room) {
            if let Output::Transmit(transmit) = output {
                sent += 1;
                self.under_way.push_back((false, room[..transmit.bytes].to_vec()));
            }
        }
        assert!(sent <= AT_ONCE_MAX);
        while let Some(output) = self.receiver.poll_output(self.now, &mut room) {
            if let Output::Transmit(transmit) = output {
                self.under_way.push_back((true, room[..transmit.bytes].to_vec()));
            }
        }
    }
}

fn message(kind: Kind, label: u32, level: u16, body: &[u8]) -> Vec<u8> {
    let header = Header::new(kind, SOURCE, Label(label), Level(level));
    let mut bytes = vec![0; header.buffer_len()];
    header.emit(&mut bytes).expect("there is room");
    bytes.extend(body);
    bytes
}
