//! Speed of the simulator: loads, most of which run both on the engine and on a bare loop that does as little
//! as a simulator can. The measure is packet-hops per second on a single core; the caller supplies the clock.
//!
//! | load | content |
//! |---|---|
//! | [`dumbbell`] | 17 TCPs over one bottleneck, three hops each way |
//! | [`star`] | constant rate to 10 000 leaves, an agent at each |
//! | [`Fleet`] | a file to thousands of receivers; no bare loop, only the time taken |
//!
//! A file to thousands of receivers: the delivery machines of a `Fixed`-rate session, unchanged.

mod bare;

use crate::network::LossConfig;
use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, End, FileToSend,
    MemorySource, PlanConfig, RelativePath, SessionPlan,
};
use headwater_proto::queue::QueueConfig;
use headwater_proto::{ChannelId, Duration, Instant, Rate, Seed, fixed};
use rand::Rng;

pub use bare::{bare_dumbbell, bare_star};

use crate::agent::{Cbr, Hosted, KnownStore, Originals, Ports, Sink, TcpConnection, UDP_HEADER_BYTES};
use crate::engine::{Destination, Run};
use crate::network::{AgentId, Builder, LinkConfig};
use crate::tcp::{Data, Profile};

/// Connections over the bottleneck.
const PAIRS: u32 = 17;
/// Parameters of the dumbbell: access links, bottleneck, and packet sizes.
const ACCESS_RATE: Rate = Rate::from_kilobits(100_000);
const BOTTLENECK_RATE: Rate = Rate::from_kilobits(34_000);
const ACCESS_DELAY: Duration = Duration::from_millis(5);
const BOTTLENECK_DELAY: Duration = Duration::from_millis(10);
const QUEUE_PACKETS: u32 = 125;
const DATA_BYTES: u32 = 1_040;
const ACK_BYTES: u32 = 40;

/// Parameters of the star: traffic and links.
const STAR_RATE: Rate = Rate::from_kilobits(1_000);
const STAR_BYTES: u32 = 1_000;
const STAR_LINK_RATE: Rate = Rate::from_kilobits(10_000);
const STAR_DELAY: Duration = Duration::from_millis(10);

/// Distance of the star's leaves: all equal, or each a little farther than the previous leaf, so that no two
/// events fall on the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// All leaves at the same distance.
    Level,
    /// Each leaf 100 ns farther than the previous leaf.
    Staggered,
}

impl Leaves {
    fn delay(self, leaf: u32) -> Duration {
        match self {
            Self::Level => STAR_DELAY,
            Self::Staggered => STAR_DELAY + Duration::from_nanos(100).saturating_mul(leaf.into()),
        }
    }
}

const FILE: &str = "file";
const SYMBOL_BYTES: u16 = 1_024;
const HEADER_BYTES: u64 = 64;
/// Number of passes within `PASSES_TIME`. The file is announced several times meanwhile, so that no receiver
/// misses all announcements.
const PASSES: u64 = 2;
const PASSES_TIME: Duration = Duration::from_secs(8);

/// Receivers behind links of 100 Mbit/s that lose packets at random, and a sender that stops after two passes
/// in 8 s.
#[derive(Debug)]
pub struct Fleet {
    /// Ready to run.
    pub run: Run,
    /// The receivers.
    pub receivers: Vec<AgentId>,
    /// Approximate end of the sender's two passes.
    pub end: Instant,
}

impl Fleet {
    /// Creates `receivers` of a file of `packets` packets, each with random loss of probability `loss`.
    ///
    /// The receivers compare received symbols with the original and keep no content (see [`KnownStore`]).
    #[must_use]
    pub fn new(receivers: u32, packets: u32, loss: f64) -> Self {
        let content = content(packets as usize * usize::from(SYMBOL_BYTES));
        let originals = Originals::new([(FILE.to_owned(), content.clone())]);
        let mut network = Builder::new();
        let link = LinkConfig::new(Rate::from_kilobits(100_000), Duration::from_millis(10))
            .with_queue(QueueConfig::drop_tail(100));
        let lossy = link.clone().with_loss(LossConfig::Bernoulli(loss));
        let [source, hub] = ["source", "hub"].map(|name| network.node(name));
        network.link("first", source, hub, link.clone(), link.clone());
        let session = network.session("session", source, 1);
        let ports = Ports { flow: network.flow("session"), session, header_bytes: UDP_HEADER_BYTES };
        let receiver = |number| {
            let node = network.node(&format!("leaf{number}"));
            network.link(&format!("last{number}"), hub, node, lossy.clone(), link.clone());
            let store = KnownStore::new(&originals);
            let machine = DeliveryReceiver::new(
                DeliveryReceiverConfig::default(),
                fixed::FixedReceiver::new(),
                store,
                Instant::ZERO,
            );
            network.agent(&format!("receiver{number}"), node, Hosted::new(machine, ports))
        };
        let receivers = (0..receivers).map(receiver).collect();
        let start = Instant::ZERO + Duration::from_millis(100);
        let sender = network.agent("sender", source, Hosted::new(sender(&content, start), ports));
        network.start_at(sender, start);
        let run = network.build(Seed(1), 0).expect("a star of nodes with names of their own");
        Self { run, receivers, end: start + PASSES_TIME + Duration::from_secs(2) }
    }

    /// Receivers that hold the whole file, verified.
    pub fn whole(&self) -> usize {
        let is_whole = |receiver: &&AgentId| {
            self.run
                .agent::<Hosted<DeliveryReceiver<fixed::FixedReceiver, KnownStore>>>(**receiver)
                .is_some_and(|hosted| hosted.machine().store().finished().eq([FILE]))
        };
        self.receivers.iter().filter(is_whole).count()
    }
}

fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Seed(1).stream("content", 0).fill_bytes(&mut content);
    content
}

fn sender(content: &[u8], start: Instant) -> DeliverySender<fixed::FixedSender, MemorySource> {
    let file = FileToSend {
        path: RelativePath::new(FILE).expect("a plain name"),
        bytes: content.len() as u64,
        mode: None,
        modified: None,
    };
    let symbols = (content.len() / usize::from(SYMBOL_BYTES)) as u64;
    let bits = symbols * PASSES * (u64::from(SYMBOL_BYTES) + HEADER_BYTES) * 8;
    let rate = Rate::from_kilobits(bits / PASSES_TIME.as_millis());
    let config = PlanConfig {
        scheme: Scheme::ReedSolomon,
        symbol_size: SYMBOL_BYTES,
        order: Order::Spread { rate: rate.as_bits() },
    };
    let plan = SessionPlan::new(vec![file], config).expect("one file of a plain name");
    let source = MemorySource::new(&plan, &[content]);
    let digests = source.digests();
    let config = DeliverySenderConfig::new(1).with_end(End::Passes(PASSES));
    DeliverySender::new(config, &plan, &digests, fixed::FixedSender::new(rate, start), source)
        .expect("a plan of one file")
}

/// Ready to run: 17 greedy SACK connections of profile `ns2005`, 1040 bytes a segment on the wire, over 34
/// Mbit/s with 125 packets of queue and 40 ms of round trip.
#[must_use]
pub fn dumbbell() -> Run {
    let mut network = Builder::new();
    let access = LinkConfig::new(ACCESS_RATE, ACCESS_DELAY).with_queue(QueueConfig::drop_tail(QUEUE_PACKETS));
    let bottleneck =
        LinkConfig::new(BOTTLENECK_RATE, BOTTLENECK_DELAY).with_queue(QueueConfig::drop_tail(QUEUE_PACKETS));
    let [left, right] = ["left", "right"].map(|name| network.node(name));
    network.link("bottleneck", left, right, bottleneck.clone(), bottleneck);
    for pair in 0..PAIRS {
        let [from, to] = ["from", "to"].map(|name| network.node(&format!("{name}{pair}")));
        network.link(&format!("up{pair}"), from, left, access.clone(), access.clone());
        network.link(&format!("down{pair}"), right, to, access.clone(), access.clone());
        let name = format!("tcp{pair}");
        let jitter = Seed(1).stream(&format!("{name}/overhead"), 0);
        let config = Profile::Ns2005.config();
        let connection =
            TcpConnection::declare(&mut network, &name, (from, to), &config, Data::Greedy, jitter)
                .expect("a profile passes its own check");
        network.start_at(
            connection.source,
            Instant::ZERO + Duration::from_millis(7).saturating_mul(pair.into()),
        );
    }
    network.build(Seed(1), 0).expect("17 pairs of nodes with names of their own, joined")
}

/// Ready to run: 1 Mbit/s of 1000-byte packets to a group that an agent at each of `leaves` leaves has
/// joined; the first packet leaves when all have.
#[must_use]
pub fn star(leaves: u32, kind: Leaves) -> Run {
    let mut network = Builder::new();
    let link =
        |delay| LinkConfig::new(STAR_LINK_RATE, delay).with_queue(QueueConfig::drop_tail(QUEUE_PACKETS));
    let [source, hub] = ["source", "hub"].map(|name| network.node(name));
    network.link("first", source, hub, link(STAR_DELAY), link(STAR_DELAY));
    let group = network.session("session", source, 1).group(ChannelId::BASE).expect("it has a channel");
    for leaf in 0..leaves {
        let node = network.node(&format!("leaf{leaf}"));
        network.link(&format!("last{leaf}"), hub, node, link(kind.delay(leaf)), link(kind.delay(leaf)));
        network.agent(&format!("sink{leaf}"), node, Sink::of_groups(vec![group]));
    }
    let flow = network.flow("cbr");
    let cbr = Cbr::new(flow, Destination::Group(group), STAR_RATE, STAR_BYTES, 28);
    let source = network.agent("cbr", source, cbr);
    network.start_at(source, Instant::ZERO + Duration::from_millis(100));
    network.build(Seed(1), 0).expect("a star of nodes with names of their own")
}
