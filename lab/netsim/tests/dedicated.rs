//! The rate that a sender finds by the reports of its receivers, over links of three sizes, with losses by
//! chance and a capacity that changes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use headwater_fec::{Order, Scheme};
use headwater_netsim::agent::{Hosted, KnownStore, Originals, Ports, UDP_HEADER_BYTES, ZeroSource};
use headwater_netsim::engine::Run;
use headwater_netsim::network::{AgentId, Builder, Event, FlowId, LinkConfig, LinkId, LossConfig, Session};
use headwater_proto::control::{Counters, ReceiverControl, Reception, Value};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, FileToSend, PlanConfig,
    RelativePath, SessionPlan,
};
use headwater_proto::fixed::{FixedReceiver, FixedSender, RateSearchConfig};
use headwater_proto::queue::QueueConfig;
use headwater_proto::roster::{ReporterConfig, RosterConfig, RosterReporter, RosterSender};
use headwater_proto::{Duration, Instant, Rate, Seed};

type Sender = Hosted<DeliverySender<FixedSender, ZeroSource>>;
type Receiver = Hosted<DeliveryReceiver<FixedReceiver, KnownStore>>;

const NAME: &str = "zeros";
const SYMBOL: u16 = 1_408;
const START: Rate = Rate::from_kilobits(10_000);
const LEAST: Rate = Rate::from_kilobits(1_000);
/// Bytes of a packet on the wire over bytes of UDP payload.
const PAYLOAD: f64 = 1_424.0 / 1_452.0;

fn seconds(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn megabits(rate: u64) -> Rate {
    Rate::from_kilobits(1_000 * rate)
}

/// Link of a path with a round-trip time of 100 ms, whose queue holds 100 ms.
fn link(rate: Rate) -> LinkConfig {
    let packets = u32::try_from(rate.as_bits() / 8 / 10 / 1_452).unwrap();
    LinkConfig::new(rate, Duration::from_millis(49)).with_queue(QueueConfig::drop_tail(packets))
}

struct Bed {
    network: Builder,
    flow: FlowId,
    session: Session,
    sender: AgentId,
    receivers: Vec<AgentId>,
    links: Vec<LinkId>,
}

impl Bed {
    /// A sender of more than the links carry, and a receiver behind each of `lasts`.
    fn new(most: Rate, lasts: &[LinkConfig]) -> Self {
        let mut network = Builder::new();
        let [home, hub] = ["sender", "hub"].map(|name| network.node(name));
        let first = LinkConfig::new(megabits(10_000), Duration::from_millis(1));
        network.link("first", home, hub, first.clone(), first.clone());
        let flow = network.flow("file");
        let session = network.session("file", home, 1);
        let ports = Ports { flow, session, header_bytes: UDP_HEADER_BYTES };
        let bytes = most.as_bits() / 8 * 60;
        let path = RelativePath::new(NAME).unwrap();
        let file = FileToSend { path, bytes, mode: None, modified: None };
        let order = Order::Spread { rate: most.as_bits() };
        let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL, order };
        let plan = SessionPlan::new(vec![file], config).unwrap();
        let config = RateSearchConfig { start: START, least: LEAST, most };
        let control = FixedSender::searching(config, Instant::ZERO);
        let digests = ZeroSource::digests(&plan);
        let roster = RosterSender::new(RosterConfig::new().with_quick(true), [7; 32]);
        let machine = DeliverySender::new(DeliverySenderConfig::new(1), &plan, &digests, control, ZeroSource)
            .unwrap()
            .with_roster(Some(roster), &plan);
        let sender = network.agent("sender", home, Hosted::new(machine, ports));
        let (mut receivers, mut links) = (Vec::new(), Vec::new());
        for (index, last) in (1..).zip(lasts) {
            let node = network.node(&format!("leaf{index}"));
            let back = LinkConfig::new(megabits(10_000), Duration::from_millis(49));
            links.push(network.link(&format!("last{index}"), hub, node, last.clone(), back));
            let store = KnownStore::new(&Originals::zeros(NAME, bytes));
            let reporter = RosterReporter::new(ReporterConfig::new(index, Seed(index)));
            let config = DeliveryReceiverConfig::default();
            let machine = DeliveryReceiver::new(config, FixedReceiver::new(), store, Instant::ZERO)
                .with_reporter(Some(reporter));
            receivers.push(network.agent(&format!("receiver{index}"), node, Hosted::new(machine, ports)));
        }
        Self { network, flow, session, sender, receivers, links }
    }

    fn build(self, seed: u64) -> Built {
        let run = self.network.build(Seed(seed), 0).unwrap();
        assert_eq!(run.names().flow("file"), Some(self.flow));
        let _session = self.session;
        Built { run, sender: self.sender, receivers: self.receivers }
    }
}

struct Built {
    run: Run,
    sender: AgentId,
    receivers: Vec<AgentId>,
}

impl Built {
    /// Returns the sender's rate as a part of the payload that a link of `rate` carries.
    fn share(&self, rate: Rate) -> f64 {
        let sender = self.run.agent::<Sender>(self.sender).unwrap();
        let Some(Value::Rate(found)) = Counters::of(sender.machine().control()).get("target_rate") else {
            panic!("no rate")
        };
        #[expect(clippy::cast_precision_loss, reason = "rates")]
        let [found, rate] = [found, rate].map(|rate| rate.as_bits() as f64);
        found / rate / PAYLOAD
    }

    fn reception(&self, receiver: usize) -> Reception {
        let agent = self.run.agent::<Receiver>(self.receivers[receiver]).unwrap();
        agent.machine().control().reception()
    }

    /// Runs for a while. Returns the mean share of the rate, and the part that a receiver lost.
    fn run(&mut self, from: u64, to: u64, rate: Rate, receiver: usize) -> (f64, f64) {
        let before = self.reception(receiver);
        let mut shares = 0.0;
        for second in from..to {
            self.run.run_until(seconds(second + 1));
            shares += self.share(rate);
        }
        let after = self.reception(receiver);
        let (received, lost) = (after.packets - before.packets, after.lost - before.lost);
        #[expect(clippy::cast_precision_loss, reason = "counts")]
        (shares / (to - from) as f64, lost as f64 / (received + lost) as f64)
    }
}

#[test]
fn the_slower_of_two_receivers_sets_the_rate_on_links_of_any_size() {
    for rate in [10, 100, 1_000] {
        let slow = megabits(rate);
        let lasts = [link(megabits(3 * rate)), link(slow)];
        let mut built = Bed::new(megabits(4 * rate), &lasts).build(1);
        built.run.run_until(seconds(15));
        let (share, lost) = built.run(15, 45, slow, 1);
        assert!((0.85..1.1).contains(&share), "{share} of {rate} Mbit/s");
        assert!(lost < 0.05, "{lost} lost at {rate} Mbit/s");
    }
}

#[test]
fn losses_by_chance_do_not_take_the_rate_down() {
    for (seed, count, chance) in [(1, 2, 0.01), (2, 9, 0.01), (3, 9, 0.05)] {
        let last = link(megabits(50)).with_loss(LossConfig::Bernoulli(chance));
        let mut built = Bed::new(megabits(500), &vec![last; count]).build(seed);
        built.run.run_until(seconds(25));
        let (share, lost) = built.run(25, 45, megabits(50), 0);
        assert!((0.8..1.1).contains(&share), "{share} of {count} receivers with {chance}");
        assert!(lost < chance + 0.04, "{lost} lost of {count} receivers with {chance}");
    }
}

#[test]
fn a_capacity_that_falls_to_a_tenth_and_comes_back_is_followed() {
    // The queue holds 100 ms at the lower rate.
    let first = link(megabits(100)).with_queue(QueueConfig::drop_tail(86));
    let mut bed = Bed::new(megabits(1_000), &[first, link(megabits(300))]);
    bed.network.at(seconds(15), Event::Rate(bed.links[0], megabits(10)));
    bed.network.at(seconds(30), Event::Rate(bed.links[0], megabits(100)));
    let mut built = bed.build(1);
    built.run.run_until(seconds(20));
    let (share, lost) = built.run(20, 30, megabits(10), 0);
    assert!((0.8..1.05).contains(&share), "{share} of a tenth");
    assert!(lost < 0.05, "{lost} lost of a tenth");
    built.run.run_until(seconds(60));
    let (share, _lost) = built.run(60, 70, megabits(100), 0);
    assert!((0.85..1.05).contains(&share), "{share} of what came back");
}

#[test]
fn without_reports_the_rate_stays() {
    let mut bed = Bed::new(megabits(1_000), &[]);
    let node = bed.network.node("leaf");
    let hub = bed.network.names().node("hub").unwrap();
    bed.network.link("last", hub, node, link(megabits(100)), link(megabits(100)));
    let mut built = bed.build(1);
    built.run.run_until(seconds(10));
    assert!((built.share(START) * PAYLOAD - 1.0).abs() < 1e-9);
}
