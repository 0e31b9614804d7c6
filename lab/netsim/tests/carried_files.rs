//! Files carried by PGM at LE-SBCC's rate: whoever comes when, whatever is lost and whoever lies, all of it
//! arrives, and nothing is sent twice.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{IpAddr, Ipv4Addr};

use headwater_fec::{Order, Scheme};
use headwater_netsim::agent::{Agent, Arrival, DatagramHead, Hosted, Outbox, Ports, UDP_HEADER_BYTES};
use headwater_netsim::engine::{Destination, Run};
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{AgentId, Builder, LinkConfig, NodeId};
use headwater_proto::control::SenderControl;
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, End, FileToSend,
    MemorySource, MemoryStore, PlanConfig, ReceiverEvent, RelativePath, SessionPlan,
};
use headwater_proto::le_sbcc::{Chain, Estimator, LeSbccConfig, Module};
use headwater_proto::pgm::{PgmSession, PgmSource, carrier};
use headwater_proto::queue::QueueConfig;
use headwater_proto::rng::Seed;
use headwater_proto::{ChannelId, Duration, Ecn, Instant, Rate, described};
use headwater_wire::pgm::{Body, Gsi, Packet, PgmReport};
use rand::Rng;

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 72, 87));
const SYMBOL: u16 = 512;
/// ALC's header and PGM's around a symbol.
const PACKET: u16 = SYMBOL + 16 + 24;
const BYTES: usize = 200_000;

type FileSender = Hosted<DeliverySender<carrier::PgmCarrierSender, MemorySource>>;
type FileReceiver = Hosted<DeliveryReceiver<described::DescribedReceiver, MemoryStore>>;

struct Bed {
    network: Builder,
    ports: Ports,
    sender: AgentId,
    router: NodeId,
    receivers: Vec<AgentId>,
    content: Vec<u8>,
    seed: u64,
}

fn seconds(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn link(kbps: u64, loss: f64) -> LinkConfig {
    let loss = if loss > 0.0 { LossConfig::Bernoulli(loss) } else { LossConfig::None };
    LinkConfig::new(Rate::from_kilobits(kbps), Duration::from_millis(15))
        .with_queue(QueueConfig::drop_tail(20))
        .with_loss(loss)
}

impl Bed {
    fn new(seed: u64, scheme: Scheme, end: End, config: LeSbccConfig) -> Self {
        Self::over(link(20_000, 0.0), (BYTES, SYMBOL), seed, scheme, end, config)
    }

    /// A file of `bytes` in symbols of `symbol_size` over a first link.
    fn over(
        first: LinkConfig,
        (bytes, symbol_size): (usize, u16),
        seed: u64,
        scheme: Scheme,
        end: End,
        config: LeSbccConfig,
    ) -> Self {
        let mut network = Builder::new();
        let (home, router) = (network.node("sender"), network.node("router"));
        network.link("first", home, router, first.clone(), first);
        let flow = network.flow("files");
        let ports =
            Ports { flow, session: network.session("files", home, 1), header_bytes: UDP_HEADER_BYTES };
        let mut content = vec![0; bytes];
        Seed(seed).stream("content", 0).fill_bytes(&mut content);
        let file = FileToSend {
            path: RelativePath::new("content").unwrap(),
            bytes: bytes as u64,
            mode: None,
            modified: None,
        };
        let order = Order::Spread { rate: 10_000_000 };
        let plan = SessionPlan::new(vec![file], PlanConfig { scheme, symbol_size, order }).unwrap();
        let source = MemorySource::new(&plan, &[content.as_slice()]);
        let digests = source.digests();
        let session = PgmSession { gsi: Gsi([3; 6]), source_port: 1, destination_port: 7_500, group: GROUP };
        let chain = Chain::new(config, Seed(seed).stream("chain", 0), Instant::ZERO);
        let path = Ipv4Addr::new(10, 0, 0, 1).into();
        let mut control = carrier::PgmCarrierSender::new(session, path, 4_096, chain, Instant::ZERO);
        control.set_admission_key([9; 32]);
        let machine =
            DeliverySender::new(DeliverySenderConfig::new(7).with_end(end), &plan, &digests, control, source)
                .unwrap();
        let sender = network.agent("sender", home, Hosted::new(machine, ports));
        Self { network, ports, sender, router, receivers: Vec::new(), content, seed }
    }

    fn config() -> LeSbccConfig {
        LeSbccConfig::new(PACKET).with_doubling_at_start(true).with_max_rate(Rate::from_kilobits(5_000))
    }

    fn node(&mut self, name: &str, down: LinkConfig) -> NodeId {
        let node = self.network.node(name);
        let up = link(1_000, 0.0);
        self.network.link(&format!("last-{name}"), self.router, node, down, up);
        node
    }

    /// A receiver behind a link, from an instant on.
    fn receiver(&mut self, down: LinkConfig, from: Instant) {
        let name = format!("receiver-{}", self.receivers.len());
        let node = self.node(&name, down);
        let naks = carrier::PgmCarrierReceiverConfig::new(
            GROUP,
            Seed(self.seed + 100 + self.receivers.len() as u64),
        );
        let control = described::DescribedReceiver::new(
            described::DescribedReceiverConfig::new().with_naks(Some(naks)),
        );
        let machine = DeliveryReceiver::new(
            DeliveryReceiverConfig::default(),
            control,
            MemoryStore::new(1 << 24),
            from,
        );
        let agent = self.network.agent(&name, node, Hosted::new(machine, self.ports));
        self.network.start_at(agent, from);
        self.receivers.push(agent);
    }

    fn build(self) -> Built {
        let run = self.network.build(Seed(self.seed), 1).unwrap();
        Built { run, sender: self.sender, receivers: self.receivers, content: self.content }
    }
}

struct Built {
    run: Run,
    sender: AgentId,
    receivers: Vec<AgentId>,
    content: Vec<u8>,
}

impl Built {
    fn sender(&self) -> &FileSender {
        self.run.agent(self.sender).unwrap()
    }

    fn source(&self) -> &PgmSource {
        self.sender().machine().control().source()
    }

    fn chain(&self) -> &Chain {
        self.source().chain().unwrap()
    }

    fn receiver(&self, index: usize) -> &FileReceiver {
        self.run.agent(self.receivers[index]).unwrap()
    }

    fn ended(&self, index: usize) -> Option<&ReceiverEvent> {
        let receiver = self.receiver(index);
        receiver.machine().is_ended().then(|| &receiver.events().iter().last().unwrap().1)
    }

    /// Runs until all that are given have ended, and says when.
    fn run_until_ended(&mut self, receivers: &[usize], limit: u64) -> Instant {
        for half_second in 0..2 * limit {
            self.run.run_until(Instant::ZERO + Duration::from_millis(500 * half_second));
            if receivers.iter().all(|index| self.ended(*index).is_some()) {
                return self.run.now();
            }
        }
        panic!("not ended after {limit} s: {:?}", self.chain().counters());
    }

    fn assert_whole(&self, index: usize) {
        let machine = self.receiver(index).machine();
        let files: Vec<_> = machine.store().finished().map(|(_, bytes)| bytes).collect();
        assert_eq!(files.len(), 1, "{:?}", self.ended(index));
        assert!(files[0] == self.content);
        assert_eq!(machine.stats().dropped.malformed, 0);
    }
}

/// As on sockets, over the arena's path: 4 Mbit/s, 25 packets, 2 ms. The sender has begun long before, and
/// starts by the distance that its receiver measures.
#[test]
fn two_megabytes_at_four_megabits_take_six_seconds_and_a_half_at_most() {
    let config = LeSbccConfig::new(1_408 + 40)
        .with_doubling_at_start(true)
        .with_blind_doubling(None)
        .with_assumed_rtt(true)
        .with_estimator(Estimator::Sawtooth)
        .with_dismissal(true)
        .with_max_rate(Rate::from_kilobits(16_000));
    let near = |kbps, delay| {
        LinkConfig::new(Rate::from_kilobits(kbps), delay).with_queue(QueueConfig::drop_tail(25))
    };
    for seed in 1..=3 {
        let lan = near(1_000_000, Duration::ZERO);
        let mut bed = Bed::over(lan, (2_000_000, 1_408), seed, Scheme::RaptorQ, End::Never, config);
        bed.receiver(near(4_000, Duration::from_millis(1)), seconds(8));
        let mut run = bed.build();
        let end = run.run_until_ended(&[0], 60);
        let bits = 8.0 * run.receiver(0).machine().stats().bytes as f64;
        let took = end.since(seconds(8)).as_secs_f64();
        println!("{took} s, {bits} bits, {:?}, {:?}", run.chain().round_trip(), run.chain().counters());
        run.assert_whole(0);
        assert!(took <= 6.5, "{took} s: {:?}", run.chain().counters());
    }
}

/// Three receivers, one behind a quarter of what the others have: all end together, at the slow one's pace,
/// and the sender knows whose. Losses are repaired by other symbols.
#[test]
fn the_slowest_receiver_sets_the_pace_and_all_end() {
    for (scheme, module) in
        [(Scheme::RaptorQ, Module::Aimd), (Scheme::RaptorQ, Module::Tfrc), (Scheme::NoCode, Module::Aimd)]
    {
        let mut bed = Bed::new(1, scheme, End::Never, Bed::config().with_module(module));
        for kbps in [1_000, 1_000, 250] {
            bed.receiver(link(kbps, 0.0), Instant::ZERO);
        }
        let mut run = bed.build();
        let end = run.run_until_ended(&[0, 1, 2], 120);
        (0..3).for_each(|index| run.assert_whole(index));
        let slow =
            run.receiver(2).machine().stats().bytes as f64 * 8.0 / end.since(Instant::ZERO).as_secs_f64();
        let (counters, worst) = (*run.chain().counters(), run.chain().receivers().worst());
        println!("{scheme:?} {module:?}: {slow:.0} bit/s until {end:?}, {counters:?}, {worst:?}");
        assert!((0.5..=1.0).contains(&(slow / 250e3)), "{scheme:?} {module:?}: {slow} of 250 000 bit/s");
        assert_eq!(worst.unwrap().0, IpAddr::from(Ipv4Addr::new(10, 0, 0, 5)));
        assert!(counters.reductions > 0 && counters.passed <= counters.events);
        assert_eq!(run.source().counters().repairs, 0);
        let receiver = run.receiver(2).machine();
        assert!(receiver.reception().lost > 0);
        // Who has all has left, and is silent.
        run.run.run_until(end + Duration::from_secs(20));
        assert_eq!(run.chain().counters().indications, counters.indications);
    }
}

/// At a tenth lost each receiver misses other packets; whichever symbols come next make up for all of them.
#[test]
fn losses_of_many_are_repaired_by_the_symbols_that_come_next() {
    let mut bed = Bed::new(2, Scheme::RaptorQ, End::Never, Bed::config());
    for _ in 0..6 {
        bed.receiver(link(2_000, 0.1), Instant::ZERO);
    }
    let mut run = bed.build();
    run.run_until_ended(&[0, 1, 2, 3, 4, 5], 300);
    for index in 0..6 {
        run.assert_whole(index);
        let stats = run.receiver(index).machine().stats();
        assert_eq!(stats.duplicates, 0);
        assert!(stats.useful < 410, "{} symbols, of which 391 make the file", stats.useful);
    }
}

#[test]
fn who_comes_late_gets_all_and_who_comes_too_late_is_told() {
    let end = End::At(seconds(60));
    let mut bed = Bed::new(3, Scheme::RaptorQ, end, Bed::config().with_max_rate(Rate::from_kilobits(400)));
    bed.receiver(link(1_000, 0.02), Instant::ZERO);
    bed.receiver(link(1_000, 0.02), seconds(20));
    bed.receiver(link(1_000, 0.02), seconds(58));
    let mut run = bed.build();
    let first = run.run_until_ended(&[0], 60);
    assert!(first < seconds(20), "{first:?}");
    run.run_until_ended(&[0, 1, 2], 70);
    run.assert_whole(0);
    run.assert_whole(1);
    assert_eq!(run.ended(2), Some(&ReceiverEvent::SessionClosed));
    assert!(run.sender().machine().is_finished());
    let reception = run.receiver(1).machine().reception();
    // What was sent before it came is no loss of its.
    assert!(reception.lost < reception.packets / 10, "{reception:?}");
}

/// Says that it misses every packet that comes.
struct Liar {
    ports: Ports,
    copies: u32,
}

impl Agent for Liar {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        outbox.join(self.ports.session.group(ChannelId::BASE).unwrap());
    }

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        let Ok(packet) = Packet::parse(arrival.payload) else { panic!("all is PGM") };
        let Body::Odata { sequence, .. } = packet.body else { return };
        let source = outbox.address(arrival.packet.source).ip();
        let body = Body::Nak(PgmReport { sequence, source, group: GROUP });
        let nak = Packet::new(packet.destination_port, packet.source_port, packet.gsi, body);
        for _ in 0..self.copies {
            let payload_bytes = nak.emit(outbox.room()).unwrap();
            let destination: Destination = outbox.to(arrival.packet.source);
            let (flow, header_bytes) = (self.ports.flow, self.ports.header_bytes);
            let head = DatagramHead { flow, destination, header_bytes, payload_bytes, ecn: Ecn::NotCapable };
            outbox.send_datagram(head);
        }
    }

    fn timeout(&mut self, _outbox: &mut Outbox<'_>) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A receiver that lies about everything, in floods, costs the others no more than the rate above the
/// operator's least.
#[test]
fn a_liar_takes_no_more_than_what_is_above_the_least_rate() {
    let least = Rate::from_kilobits(100);
    for most in [least, Rate::from_kilobits(5_000)] {
        let mut bed =
            Bed::new(4, Scheme::RaptorQ, End::Never, Bed::config().with_min_rate(least).with_max_rate(most));
        bed.receiver(link(2_000, 0.0), Instant::ZERO);
        let node = bed.node("liar", link(2_000, 0.0));
        let ports = bed.ports;
        bed.network.agent("liar", node, Liar { ports, copies: 20 });
        let mut run = bed.build();
        let end = run.run_until_ended(&[0], 60);
        run.assert_whole(0);
        assert!(end > seconds(5), "it has an effect: {end:?}");
        // Between two lies that count it rises by a packet each round trip.
        let last = run.source().rate();
        assert!((least..Rate::from_kilobits(300)).contains(&last), "{last:?}");
        let received = run.receiver(0).machine().stats().bytes as f64 * 8.0;
        let rate = received / end.since(Instant::ZERO).as_secs_f64();
        assert!(rate >= 0.9 * 100e3, "{rate} bit/s at {most:?} at most: it pauses, or confirms too much");
        assert_eq!(
            run.chain().receivers().worst().unwrap().0,
            IpAddr::from(Ipv4Addr::new(10, 0, 0, 4)),
            "and is found"
        );
    }
}
