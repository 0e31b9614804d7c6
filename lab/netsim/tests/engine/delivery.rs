//! Files over simulated links, by the machines that run on sockets.

use headwater_fec::{Order, Scheme};
use headwater_netsim::agent::{Hosted, KnownStore, Originals, Ports, UDP_HEADER_BYTES};
use headwater_netsim::engine::Run;
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{AgentId, Builder, Event, FlowId, Impairments, LinkConfig, LinkId, Session};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, End, FileToSend,
    MemorySource, MemoryStore, PlanConfig, ReceiverEvent, RelativePath, SessionPlan, Store,
};
use headwater_proto::{Duration, Instant, Rate, Seed, fixed};
use rand::Rng;

use crate::script::millis;

type FixedReceiver<S> = Hosted<DeliveryReceiver<fixed::FixedReceiver, S>>;

const NAME: &str = "file";

fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Seed(9).stream("content", 0).fill_bytes(&mut content);
    content
}

fn sender(content: &[u8], scheme: Scheme) -> DeliverySender<fixed::FixedSender, MemorySource> {
    let rate = Rate::from_kilobits(4_000);
    let file = FileToSend {
        path: RelativePath::new(NAME).unwrap(),
        bytes: content.len() as u64,
        mode: None,
        modified: None,
    };
    let config = PlanConfig { scheme, symbol_size: 1_000, order: Order::Spread { rate: rate.as_bits() } };
    let plan = SessionPlan::new(vec![file], config).unwrap();
    let source = MemorySource::new(&plan, &[content]);
    let digests = source.digests();
    let config = DeliverySenderConfig::new(1).with_end(End::Never);
    DeliverySender::new(config, &plan, &digests, fixed::FixedSender::new(rate, Instant::ZERO), source)
        .unwrap()
}

fn receiver<S: Store>(store: S, at: Instant) -> DeliveryReceiver<fixed::FixedReceiver, S> {
    DeliveryReceiver::new(DeliveryReceiverConfig::default(), fixed::FixedReceiver::new(), store, at)
}

struct Star {
    network: Builder,
    flow: FlowId,
    session: Session,
    last_links: Vec<LinkId>,
}

/// A sender, a router 10 ms away, and a node behind it for each of `lasts`.
fn star(content: &[u8], scheme: Scheme, lasts: &[LinkConfig]) -> Star {
    let mut network = Builder::new();
    let fast = LinkConfig::new(Rate::from_kilobits(10_000), Duration::from_millis(10));
    let [source, hub] = ["source", "hub"].map(|name| network.node(name));
    network.link("first", source, hub, fast.clone(), fast.clone());
    let flow = network.flow("session");
    let session = network.session("session", source, 1);
    let mut last_links = Vec::new();
    for (index, last) in lasts.iter().enumerate() {
        let node = network.node(&format!("leaf{index}"));
        last_links.push(network.link(&format!("last{index}"), hub, node, last.clone(), fast.clone()));
    }
    let ports = Ports { flow, session, header_bytes: UDP_HEADER_BYTES };
    network.agent("sender", source, Hosted::new(sender(content, scheme), ports));
    network.leave_latency(Duration::from_millis(100));
    Star { network, flow, session, last_links }
}

impl Star {
    fn receiver<S: Store + 'static>(&mut self, leaf: usize, store: S, start: Instant) -> AgentId {
        let node = self.network.names().node(&format!("leaf{leaf}")).unwrap();
        let ports = Ports { flow: self.flow, session: self.session, header_bytes: UDP_HEADER_BYTES };
        let agent =
            self.network.agent(&format!("receiver{leaf}"), node, Hosted::new(receiver(store, start), ports));
        self.network.start_at(agent, start);
        agent
    }

    fn memory_receiver(&mut self, leaf: usize, start: Instant) -> AgentId {
        self.receiver(leaf, MemoryStore::new(1 << 30), start)
    }
}

fn assert_whole(run: &Run, agent: AgentId, content: &[u8]) {
    let receiver = run.agent::<FixedReceiver<MemoryStore>>(agent).unwrap();
    let finished: Vec<_> = receiver.machine().store().finished().collect();
    assert_eq!(finished.len(), 1, "{:?}", receiver.machine().stats());
    assert!(finished[0].1 == content, "what arrived differs");
    let last = receiver.events().iter().next_back().map(|(_, event)| event);
    assert!(matches!(last, Some(ReceiverEvent::SessionCompleted { refused: 0 })), "{last:?}");
    assert_eq!(receiver.misdirected(), 0);
}

#[test]
fn receivers_end_whole_under_loss_whenever_they_come() {
    let content = content(300_000);
    let link = LinkConfig::new(Rate::from_kilobits(10_000), Duration::from_millis(5));
    let gilbert = headwater_netsim::network::GilbertElliott::simple(0.2, 8.0);
    let lasts = [
        link.clone(),
        link.clone().with_loss(LossConfig::Bernoulli(0.05)),
        link.clone().with_loss(LossConfig::Bernoulli(0.4)),
        link.with_loss(LossConfig::GilbertElliott(gilbert)),
    ];
    for scheme in [Scheme::RaptorQ, Scheme::NoCode] {
        let mut star = star(&content, scheme, &lasts);
        let agents: Vec<_> =
            (0..lasts.len()).map(|leaf| star.memory_receiver(leaf, millis(leaf as u64 * 250))).collect();
        let mut run = star.network.build(Seed(4), 0).unwrap();
        run.run_until(millis(60_000));
        for agent in agents {
            assert_whole(&run, agent, &content);
            let counters = run.agent_counters(agent);
            assert_eq!(counters.joins, counters.leaves, "who has all leaves");
        }
        // Nobody listens any more: the tree is pruned back to the source.
        let first = run.names().link("first").unwrap();
        let before = run.link_counters(first).offered_packets;
        run.run_until(millis(61_000));
        assert_eq!(run.link_counters(first).offered_packets, before);
    }
}

#[test]
fn faults_of_the_wire_and_of_the_node_cost_time_only() {
    let content = content(200_000);
    let impairments = Impairments {
        reordered: 0.1,
        reordered_by: Duration::from_millis(20),
        duplicated: 0.05,
        damaged: 0.05,
        ..Impairments::NONE
    };
    let faulty = LinkConfig::new(Rate::from_kilobits(10_000), Duration::from_millis(5))
        .with_loss(LossConfig::Bernoulli(0.1))
        .with_impairments(impairments);
    let mut star = star(&content, Scheme::RaptorQ, &[faulty.clone(), faulty.clone(), faulty]);
    let agents = [0, 1, 2].map(|leaf| star.memory_receiver(leaf, Instant::ZERO));
    star.network.at(millis(200), Event::Down(star.last_links[0]));
    star.network.at(millis(1_500), Event::Up(star.last_links[0]));
    star.network.at(millis(200), Event::Pause(agents[1]));
    star.network.at(millis(1_500), Event::Resume(agents[1]));
    star.network.at(millis(200), Event::StepClock(agents[2], Duration::from_secs(3_600)));
    let mut run = star.network.build(Seed(4), 0).unwrap();
    run.run_until(millis(60_000));
    for agent in agents {
        assert_whole(&run, agent, &content);
    }
}

#[test]
fn a_store_that_keeps_nothing_tells_right_from_wrong() {
    let content = content(300_000);
    let link = LinkConfig::new(Rate::from_kilobits(10_000), Duration::from_millis(5))
        .with_loss(LossConfig::Bernoulli(0.1));
    let mut star = star(&content, Scheme::NoCode, &[link.clone(), link]);
    let right =
        star.receiver(0, KnownStore::new(&Originals::new([(NAME.into(), content.clone())])), Instant::ZERO);
    let mut other = content;
    other[7_500] ^= 1;
    let wrong = star.receiver(1, KnownStore::new(&Originals::new([(NAME.into(), other)])), Instant::ZERO);
    let mut run = star.network.build(Seed(4), 0).unwrap();
    run.run_until(millis(10_000));
    let store = |agent| run.agent::<FixedReceiver<KnownStore>>(agent).unwrap().machine().store();
    assert_eq!((store(right).finished().collect::<Vec<_>>(), store(right).differing()), (vec![NAME], 0));
    assert_eq!(store(wrong).finished().count(), 0);
    assert!(store(wrong).differing() > 1, "the block is fetched anew, and is wrong again");
}
