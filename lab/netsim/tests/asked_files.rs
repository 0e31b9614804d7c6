//! Files by request over relays: each receiver has what its own link carries, whatever is lost, and links
//! carry packets once for all below.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;

use headwater_fec::{Order, Scheme};
use headwater_netsim::agent::{Hosted, Ports, UDP_HEADER_BYTES};
use headwater_netsim::engine::Run;
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{AgentId, Builder, LinkConfig, NodeId};
use headwater_proto::bcfs::RouterConfig;
use headwater_proto::bcfs::relay::{Relay, RelayConfig, Upstream};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, FileToSend, MemorySource,
    MemoryStore, PlanConfig, RelativePath, SessionPlan,
};
use headwater_proto::queue::QueueConfig;
use headwater_proto::rainbow::{Overtaking, WindowConfig, carrier};
use headwater_proto::rng::Seed;
use headwater_proto::{Duration, Instant, Rate};
use rand::Rng;

const SYMBOL: u16 = 1_024;
/// 391 symbols in one block.
const BYTES: usize = 400_000;

type FileReceiver = Hosted<DeliveryReceiver<carrier::RainbowCarrierReceiver, MemoryStore>>;

struct Bed {
    network: Builder,
    ports: Ports,
    source: SocketAddr,
    sender: AgentId,
    relays: Vec<(NodeId, AgentId, SocketAddr)>,
    receivers: Vec<AgentId>,
    content: Vec<u8>,
    seed: u64,
}

fn link(kbps: u64, loss: f64) -> LinkConfig {
    let loss = if loss > 0.0 { LossConfig::Bernoulli(loss) } else { LossConfig::None };
    LinkConfig::new(Rate::from_kilobits(kbps), Duration::from_millis(5))
        .with_queue(QueueConfig::drop_tail(25))
        .with_loss(loss)
}

impl Bed {
    /// A source, and a relay next to it.
    fn new(seed: u64) -> Self {
        let mut network = Builder::new();
        let home = network.node("source");
        let flow = network.flow("files");
        let session = network.session("files", home, 1);
        let ports = Ports { flow, session, header_bytes: UDP_HEADER_BYTES };
        let mut content = vec![0; BYTES];
        Seed(seed).stream("content", 0).fill_bytes(&mut content);
        let path = RelativePath::new("content").unwrap();
        let file = FileToSend { path, bytes: BYTES as u64, mode: None, modified: None };
        let order = Order::Spread { rate: 10_000_000 };
        let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL, order };
        let plan = SessionPlan::new(vec![file], config).unwrap();
        let symbols = MemorySource::new(&plan, &[content.as_slice()]);
        let digests = symbols.digests();
        let control = carrier::RainbowCarrierSender::new(carrier::RainbowCarrierSenderConfig::new([seed, 1]));
        let machine =
            DeliverySender::new(DeliverySenderConfig::new(7), &plan, &digests, control, symbols).unwrap();
        let source = SocketAddr::new(network.host(home), 10_000);
        let sender = network.agent("source", home, Hosted::new(machine, ports));
        let (relays, receivers) = (Vec::new(), Vec::new());
        let mut bed = Self { network, ports, source, sender, relays, receivers, content, seed };
        bed.relay(home, None, link(100_000, 0.0));
        bed
    }

    /// A relay behind a link.
    fn relay(&mut self, near: NodeId, above: Option<SocketAddr>, down: LinkConfig) -> usize {
        let name = format!("relay-{}", self.relays.len());
        let node = self.network.node(&name);
        self.network.link(&format!("to-{name}"), near, node, down, link(100_000, 0.0));
        let upstreams = above.map(|via| Upstream { source: None, via }).into_iter().collect();
        let config = RelayConfig::new(RouterConfig::default(), Seed(self.seed)).with_upstreams(upstreams);
        let agent = self.network.agent(&name, node, Hosted::new(Relay::new(config).unwrap(), self.ports));
        let address = SocketAddr::new(self.network.host(node), 10_000);
        self.relays.push((node, agent, address));
        self.relays.len() - 1
    }

    /// A receiver below a relay, from an instant on.
    fn receiver(&mut self, relay: usize, down: LinkConfig, from: Instant) -> usize {
        let (near, _, upstream) = self.relays[relay];
        let name = format!("receiver-{}", self.receivers.len());
        let node = self.network.node(&name);
        self.network.link(&format!("to-{name}"), near, node, down, link(10_000, 0.0));
        let window = WindowConfig::new().with_overtaking(Overtaking::Longest);
        let control = carrier::RainbowCarrierReceiverConfig::new(self.source, upstream).with_window(window);
        let (control, store) = (carrier::RainbowCarrierReceiver::new(control), MemoryStore::new(1 << 24));
        let machine = DeliveryReceiver::new(DeliveryReceiverConfig::default(), control, store, from);
        let agent = self.network.agent(&name, node, Hosted::new(machine, self.ports));
        self.network.start_at(agent, from);
        self.receivers.push(agent);
        self.receivers.len() - 1
    }
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Runs until all have the file, and says when each had it.
fn run_until_whole(run: &mut Run, bed_receivers: &[AgentId], content: &[u8], limit: u64) -> Vec<Instant> {
    let mut whole = vec![None; bed_receivers.len()];
    for tenth in 1..10 * limit {
        run.run_until(at(100 * tenth));
        for (agent, whole) in bed_receivers.iter().zip(&mut whole) {
            let machine = run.agent::<FileReceiver>(*agent).unwrap().machine();
            if whole.is_none() && machine.is_ended() {
                let files: Vec<_> = machine.store().finished().map(|(_, bytes)| bytes).collect();
                assert_eq!(files, [content]);
                *whole = Some(run.now());
            }
        }
        if whole.iter().all(Option::is_some) {
            return whole.into_iter().flatten().collect();
        }
    }
    panic!("not all have it after {limit} s: {whole:?}");
}

#[test]
fn each_receiver_takes_what_its_link_carries_and_shared_links_carry_it_once() {
    let mut bed = Bed::new(1);
    let (_, _, top) = bed.relays[0];
    let near = bed.relays[0].0;
    let side = bed.relay(near, Some(top), link(20_000, 0.0));
    let kbps = [500, 1_000, 2_000];
    for relay in [0, side] {
        for kbps in kbps {
            bed.receiver(relay, link(kbps, 0.0), Instant::ZERO);
        }
    }
    // Behind a link that loses a hundredth, and one that comes when others have it.
    bed.receiver(side, link(2_000, 0.01), Instant::ZERO);
    bed.receiver(side, link(2_000, 0.0), at(20_000));
    let Bed { network, receivers, content, sender, relays, .. } = bed;
    let mut run = network.build(Seed(1), 1).unwrap();
    let whole = run_until_whole(&mut run, &receivers, &content, 60);
    for (index, end) in whole.iter().take(6).enumerate() {
        let link = kbps[index % 3] as f64 * 1e3;
        let rate = BYTES as f64 * 8.0 / end.since(Instant::ZERO).as_secs_f64();
        assert!(rate > 0.75 * link, "receiver {index}: {rate:.0} of {link:.0} bit/s");
    }
    assert!(whole[7] < at(24_500), "{whole:?}");
    let sent = run
        .agent::<Hosted<DeliverySender<carrier::RainbowCarrierSender, MemorySource>>>(sender)
        .unwrap()
        .machine()
        .stats();
    let taken: u64 = receivers
        .iter()
        .map(|agent| run.agent::<FileReceiver>(*agent).unwrap().machine().stats().packets)
        .sum();
    assert!(sent.packets * 2 < taken, "{} packets of the source for {taken}", sent.packets);
    for (_, agent, _) in relays {
        let counters = run.agent::<Hosted<Relay>>(agent).unwrap().machine().counters();
        assert!(counters.router.suppressed > 0, "{counters:?}");
    }
}
