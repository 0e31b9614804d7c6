//! The start of LE-SBCC where a receiver's host must find the way to the source first, so that its first
//! words are seconds late.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use headwater_netsim::agent::{Forget, GreedySource, Hosted, Ports, UDP_HEADER_BYTES};
use headwater_netsim::engine::Run;
use headwater_netsim::network::{AgentId, Builder, LinkConfig};
use headwater_proto::le_sbcc::{Chain, LeSbccConfig, Module};
use headwater_proto::pgm::{
    PgmReceiverConfig, PgmReceiverMachine, PgmSession, PgmSource, SourceConfig, SourceControl,
};
use headwater_proto::queue::QueueConfig;
use headwater_proto::rng::Seed;
use headwater_proto::{Destination, Duration, Input, Instant, Machine, Output, Rate, Transmit};
use headwater_wire::pgm::Gsi;

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 72, 87));
const PAYLOAD: u16 = 1_400;

/// A machine whose host knows no way until so long after its first datagram: what it sends meanwhile goes out
/// then.
struct Finding<M> {
    machine: M,
    takes: Duration,
    /// It knows the way at once where less than this came in the 0.2 s before: what it asked is answered
    /// through the same queue.
    unless_below: Option<Rate>,
    arrived: VecDeque<(Instant, usize)>,
    opens: Option<Instant>,
    held: VecDeque<(Vec<u8>, Transmit)>,
}

impl<M> Finding<M> {
    fn opens(&mut self, now: Instant) -> Instant {
        let since = now - Duration::from_millis(200);
        self.arrived.retain(|(at, _)| *at >= since);
        let bytes: usize = self.arrived.iter().map(|(_, bytes)| bytes).sum();
        let is_free = self.unless_below.is_some_and(|rate| (bytes as u64) * 8 * 5 < rate.as_bits());
        if is_free { now } else { now + self.takes }
    }
}

impl<M: Machine> Machine for Finding<M> {
    type Event = M::Event;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Datagram(datagram) = &input {
            self.arrived.push_back((now, datagram.payload.len()));
            if self.arrived.len() > 1_000 {
                self.arrived.pop_front();
            }
        }
        self.machine.handle(now, input);
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<M::Event>> {
        while let Some(output) = self.machine.poll_output(now, buffer) {
            let Output::Transmit(transmit) = output else { return Some(output) };
            assert!(matches!(transmit.destination, Destination::Unicast(_)));
            if self.opens.is_none() {
                self.opens = Some(self.opens(now));
            }
            self.held.push_back((buffer[..transmit.bytes].to_vec(), transmit));
        }
        self.opens.filter(|opens| *opens <= now)?;
        let (bytes, transmit) = self.held.pop_front()?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Some(Output::Transmit(transmit))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let held = self.opens.filter(|_| !self.held.is_empty());
        self.machine.poll_timeout().into_iter().chain(held).min()
    }
}

type Late = Hosted<Finding<PgmReceiverMachine<Forget>>>;

/// What finding the way takes.
#[derive(Clone, Copy, Debug)]
struct Way {
    takes: Duration,
    /// Receivers greet the source, and it waits for that.
    greets: bool,
    /// The way is found at once where the link is not full.
    through_queue: bool,
    /// The source calls the roll.
    calls: bool,
}

struct Bed {
    run: Run,
    source: AgentId,
    receivers: Vec<AgentId>,
}

impl Bed {
    /// A source and receivers behind links of so many kbit/s and 25 packets; the last one's host knows no way
    /// yet.
    fn new(seed: u64, module: Module, way: Way, delay: Duration, links: &[u64]) -> Self {
        let mut network = Builder::new();
        let (home, router) = (network.node("source"), network.node("router"));
        let link =
            |kbps| LinkConfig::new(Rate::from_kilobits(kbps), delay).with_queue(QueueConfig::drop_tail(25));
        network.link("first", home, router, link(200_000), link(200_000));
        let flow = network.flow("messages");
        let ports =
            Ports { flow, session: network.session("messages", home, 1), header_bytes: UDP_HEADER_BYTES };
        let session =
            PgmSession { gsi: Gsi([3; 6]), source_port: 40_000, destination_port: 7_500, group: GROUP };
        let blind = if way.greets { None } else { Some(Duration::from_secs(2)) };
        let config = LeSbccConfig::new(PAYLOAD + 24)
            .with_module(module)
            .with_doubling_at_start(true)
            .with_assumed_rtt(true)
            .with_blind_doubling(blind)
            .with_max_rate(Rate::from_kilobits(100_000));
        let chain = Chain::new(config, Seed(seed).stream("chain", 0), Instant::ZERO);
        let source = SourceConfig::new(session, network.host(home), PAYLOAD)
            .with_window_packets(16_384)
            .with_roll_call(way.calls);
        let source = PgmSource::new(source, SourceControl::LeSbcc(Box::new(chain)), Instant::ZERO);
        let source = network.agent("source", home, Hosted::new(GreedySource::new(source, PAYLOAD), ports));
        let mut receivers = Vec::new();
        for (number, kbps) in links.iter().enumerate() {
            let node = network.node(&format!("receiver-{number}"));
            network.link(&format!("last-{number}"), router, node, link(*kbps), link(*kbps));
            let config = PgmReceiverConfig::new(session.destination_port, GROUP)
                .with_window_packets(16_384)
                .with_waits(Duration::from_millis(200), Duration::from_millis(200))
                .with_path_request(way.greets);
            let machine =
                PgmReceiverMachine::new(config, Forget, Seed(seed).stream("back-off", number as u64));
            let takes = if number + 1 == links.len() { way.takes } else { Duration::ZERO };
            let machine = Finding {
                machine,
                takes,
                unless_below: way.through_queue.then(|| Rate::from_kilobits(kbps * 8 / 10)),
                arrived: VecDeque::new(),
                opens: None,
                held: VecDeque::new(),
            };
            receivers.push(network.agent(&format!("receiver-{number}"), node, Hosted::new(machine, ports)));
        }
        Self { run: network.build(Seed(seed), 1).unwrap(), source, receivers }
    }

    fn run_until(&mut self, seconds: u64) {
        self.run.run_until(Instant::ZERO + Duration::from_secs(seconds));
    }

    fn source(&self) -> &PgmSource {
        self.run.agent::<Hosted<GreedySource>>(self.source).unwrap().machine().source()
    }

    fn rate(&self) -> f64 {
        self.source().rate().as_bits() as f64 / 1e6
    }

    /// Of the packets that were sent to a receiver, and those it missed.
    fn packets(&self, receiver: usize) -> [u64; 2] {
        let counters = self.run.agent::<Late>(self.receivers[receiver]).unwrap().machine().machine.counters();
        [counters.packets + counters.duplicates + counters.missed - counters.repaired, counters.missed]
    }
}

/// Of what was sent to the last receiver in half a minute, the share that it missed; and the rate in Mbit/s.
fn loss(seed: u64, module: Module, way: Way, links: &[u64]) -> (f64, f64) {
    let mut bed = Bed::new(seed, module, way, Duration::from_millis(1), links);
    bed.run_until(30);
    let [sent, missed] = bed.packets(links.len() - 1);
    (missed as f64 / sent as f64, bed.rate())
}

const LINKS: [u64; 3] = [4_000, 4_000, 1_000];

#[test]
fn a_receiver_whose_first_naks_are_late_loses_little() {
    for module in [Module::Aimd, Module::Tfrc] {
        for greets in [false, true] {
            for takes in [0, 1_000, 2_000, 3_000] {
                let way =
                    Way { takes: Duration::from_millis(takes), greets, through_queue: false, calls: false };
                let (share, rate) = loss(takes + 1, module, way, &LINKS);
                // Who greets and is 3 s late finds the others' greetings believed. Who does not greet is
                // outrun by what a rate that doubles in 2 s comes to meanwhile: that is not little any more.
                let most = match (takes, greets) {
                    (0 | 1_000, _) | (2_000, true) => 0.1,
                    (2_000, false) | (_, true) => 0.2,
                    _ => 0.5,
                };
                assert!(
                    share < most && (0.2..1.3).contains(&rate),
                    "{module:?} {way:?}: {share} lost, {rate} Mbit/s"
                );
            }
        }
    }
}

/// OpenPGM's receivers do not greet: a host asks for the way through the full queue, in vain for seconds,
/// unless a roll call had it ask before.
#[test]
fn a_roll_call_spares_receivers_that_do_not_greet() {
    for module in [Module::Aimd, Module::Tfrc] {
        for seed in 0..5 {
            let way =
                |calls| Way { takes: Duration::from_secs(4), greets: false, through_queue: true, calls };
            let (without, _) = loss(seed, module, way(false), &LINKS);
            let (share, rate) = loss(seed, module, way(true), &LINKS);
            assert!(without > 0.2, "{module:?} {seed}: {without} lost without");
            assert!(
                share < 0.1 && (0.2..1.3).contains(&rate),
                "{module:?} {seed}: {share} lost, {rate} Mbit/s"
            );
        }
    }
}

#[test]
fn a_fast_link_is_found_within_seconds() {
    for (module, kbps, seconds) in
        [(Module::Aimd, 10_000, 5), (Module::Aimd, 90_000, 6), (Module::Tfrc, 10_000, 5)]
    {
        for delay in [1, 20] {
            let way = Way { takes: Duration::ZERO, greets: true, through_queue: false, calls: false };
            let mut bed = Bed::new(1, module, way, Duration::from_millis(delay), &[kbps]);
            bed.run_until(seconds);
            assert!(bed.rate() > 0.3 * kbps as f64 / 1e3, "{module:?}, {kbps} kbit/s: {} Mbit/s", bed.rate());
        }
    }
}

#[test]
fn far_away_receivers_are_not_overrun() {
    for module in [Module::Aimd, Module::Tfrc] {
        let way = Way { takes: Duration::ZERO, greets: true, through_queue: false, calls: false };
        // 500 ms there and back.
        let mut bed = Bed::new(1, module, way, Duration::from_millis(125), &[1_000]);
        bed.run_until(30);
        let [sent, missed] = bed.packets(0);
        // The link carries 86 packets in a second. What is asked for again and again is no new loss.
        assert!(missed < 100, "{missed} of {sent}");
        assert!((0.08..1.3).contains(&bed.rate()), "{}", bed.rate());
    }
}
