//! A file to thousands of receivers: the delivery machines of a `Fixed`-rate session, unchanged.

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    End, FileToSend, MemorySource, PlanConfig, Receiver, ReceiverConfig, RelativePath, Sender, SenderConfig,
    SessionPlan,
};
use headwater_proto::queue::{LossConfig, QueueConfig};
use headwater_proto::{Duration, Instant, Rate, Seed, fixed};
use rand::Rng;

use crate::agent::{Hosted, KnownStore, Originals, Ports, UDP_HEADER_BYTES};
use crate::engine::Run;
use crate::network::{AgentId, Builder, LinkConfig};

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
            let machine =
                Receiver::new(ReceiverConfig::default(), fixed::Receiver::new(), store, Instant::ZERO);
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
                .agent::<Hosted<Receiver<fixed::Receiver, KnownStore>>>(**receiver)
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

fn sender(content: &[u8], start: Instant) -> Sender<fixed::Sender, MemorySource> {
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
    let config = SenderConfig::new(1).with_end(End::Passes(PASSES));
    Sender::new(config, &plan, &digests, fixed::Sender::new(rate, start), source).expect("a plan of one file")
}
