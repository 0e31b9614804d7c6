//! Sources behind a bottleneck, receivers behind links that lose packets each for itself.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use headwater_baselines::{pgmcc, tfmcc};
use headwater_netsim::agent::{Hosted, Ports, TcpConnection};
use headwater_netsim::chance::uniform_duration;
use headwater_netsim::engine::Run;
use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{AgentId, Builder, FlowId, LinkConfig, NodeId};
use headwater_netsim::tcp::{AckPolicy, Data, Profile};
use headwater_proto::pgm::PgmSession;
use headwater_proto::queue::QueueConfig;
use headwater_proto::{Duration, Instant, Machine, Rate, Seed};
use headwater_wire::pgm::Gsi;

pub const PACKET: u16 = 1_000;
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 0, 1));
const PORT: u16 = 7_500;
/// Rate of links that are no bottleneck, in kbit/s.
const WIDE: u64 = 100_000;

pub type TfmccSender = Hosted<tfmcc::TfmccSender>;
pub type PgmccSender = Hosted<pgmcc::PgmccSender>;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Tfmcc,
    Pgmcc,
}

pub fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// A flow to a group.
#[derive(Clone, Copy)]
pub struct Sent {
    pub flow: FlowId,
    pub sender: AgentId,
    kind: Kind,
    /// Of the receivers: what they say is no part of the flow's rate.
    feedback: Ports,
}

/// A receiver's last hop.
#[derive(Clone, Copy)]
pub struct Place {
    pub kbps: u64,
    /// Lost behind the queue.
    pub loss: f64,
    pub delay_ms: u64,
}

impl Place {
    /// Nothing is lost, no time passes.
    pub const fn wide() -> Self {
        Self { kbps: WIDE, loss: 0.0, delay_ms: 1 }
    }
}

pub struct Bed {
    network: Builder,
    seed: Seed,
    left: NodeId,
    right: NodeId,
    nodes: u32,
}

impl Bed {
    /// A bottleneck of so many kbit/s with 25 ms one way and a queue of one round trip.
    pub fn new(seed: u64, kbps: u64) -> Self {
        let mut network = Builder::new();
        let (left, right) = (network.node("left"), network.node("right"));
        let packets = u32::try_from(kbps / 8 * 60 / u64::from(PACKET)).unwrap().max(10);
        let config = |queue| {
            LinkConfig::new(Rate::from_kilobits(kbps), Duration::from_millis(25))
                .with_queue(QueueConfig::drop_tail(queue))
        };
        network.link("bottleneck", left, right, config(packets), config(10_000));
        Self { network, seed: Seed(seed), left, right, nodes: 2 }
    }

    /// A node, and its address.
    fn host(&mut self, name: &str, router: NodeId, place: Place) -> (NodeId, IpAddr) {
        let node = self.network.node(name);
        let link = |loss| {
            let delay = Duration::from_millis(place.delay_ms);
            let queue = QueueConfig::drop_tail(if place.kbps == WIDE { 10_000 } else { 25 });
            let link = LinkConfig::new(Rate::from_kilobits(place.kbps), delay).with_queue(queue);
            LinkConfig {
                loss: if loss > 0.0 { LossConfig::Bernoulli(loss) } else { LossConfig::None },
                ..link
            }
        };
        self.network.link(&format!("{name}-access"), router, node, link(place.loss), link(0.0));
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + self.nodes);
        self.nodes += 1;
        (node, IpAddr::V4(address))
    }

    fn moment(&self, name: &str) -> Duration {
        uniform_duration(&mut self.seed.stream(&format!("{name}/start"), 0), Duration::from_secs(1))
    }

    /// A TCP that always has more to send.
    pub fn tcp(&mut self, name: &str) -> FlowId {
        let (from, _) = self.host(&format!("{name}-from"), self.left, Place::wide());
        let (to, _) = self.host(&format!("{name}-to"), self.right, Place::wide());
        let mut config = Profile::Rfc.config();
        config.rto_minimum = Duration::from_millis(200);
        // The equation's b = 1.
        config.acks = AckPolicy::EVERY_PACKET;
        // Against phase effects: up to a packet's time at 1 Mbit/s.
        config.overhead = Duration::from_millis(8);
        let stream = self.seed.stream(&format!("{name}/overhead"), 0);
        let connection =
            TcpConnection::declare(&mut self.network, name, (from, to), &config, Data::Greedy, stream)
                .unwrap();
        self.network.start_at(connection.source, Instant::ZERO + self.moment(name));
        connection.flow
    }

    fn agent<M>(&mut self, name: &str, node: NodeId, machine: M, ports: Ports, start: Instant) -> AgentId
    where
        M: Machine<Event: 'static> + 'static,
    {
        let agent = self.network.agent(name, node, Hosted::new(machine, ports));
        self.network.start_at(agent, start);
        agent
    }

    /// A sender of a group that nobody listens to yet.
    pub fn sender(&mut self, name: &str, kind: Kind) -> Sent {
        let (node, _) = self.host(&format!("{name}-from"), self.left, Place::wide());
        let flow = self.network.flow(name);
        let ports = Ports { flow, session: self.network.session(name, node, 1), header_bytes: 40 };
        let start = Instant::ZERO + self.moment(name);
        let agent = format!("{name}/sender");
        let sender = match kind {
            Kind::Tfmcc => {
                let machine = tfmcc::TfmccSender::new(tfmcc::TfmccSenderConfig::new(PACKET), start);
                self.agent(&agent, node, machine, ports, start)
            }
            Kind::Pgmcc => {
                let session = PgmSession {
                    gsi: Gsi([1; 6]),
                    source_port: 40_000,
                    destination_port: PORT,
                    group: GROUP,
                };
                let machine = pgmcc::PgmccSender::new(pgmcc::PgmccSenderConfig::new(session, PACKET));
                self.agent(&agent, node, machine, ports, start)
            }
        };
        let feedback = Ports { flow: self.network.flow(&format!("{name}-feedback")), ..ports };
        Sent { flow, sender, kind, feedback }
    }

    /// A receiver of it, which comes at `start`.
    pub fn receiver(&mut self, name: &str, sent: Sent, place: Place, start: Instant) -> AgentId {
        let (node, address) = self.host(&format!("{name}-to"), self.right, place);
        let agent = format!("{name}/receiver");
        let stream = self.seed.stream(&agent, 0);
        match sent.kind {
            Kind::Tfmcc => {
                let seed = Seed(rand::Rng::next_u64(&mut stream.clone()));
                self.agent(&agent, node, tfmcc::TfmccReceiver::new(seed), sent.feedback, start)
            }
            Kind::Pgmcc => {
                let config = pgmcc::PgmccReceiverConfig::new(PORT, GROUP, address)
                    .with_back_off(Duration::from_millis(10));
                self.agent(&agent, node, pgmcc::PgmccReceiver::new(config, stream), sent.feedback, start)
            }
        }
    }

    /// A sender with receivers at a place each, from the start.
    pub fn group(&mut self, name: &str, kind: Kind, places: &[Place]) -> Sent {
        let sent = self.sender(name, kind);
        for (number, place) in places.iter().enumerate() {
            self.receiver(&format!("{name}-{number}"), sent, *place, Instant::ZERO);
        }
        sent
    }

    pub fn run(self) -> Run {
        self.network.build(self.seed, 1).unwrap()
    }
}

/// Wire bit/s offered by each flow between two seconds: what it takes of the first link.
pub fn rates(run: &mut Run, flows: &[FlowId], from: u64, to: u64) -> Vec<f64> {
    let sent = |run: &Run| -> Vec<u64> {
        flows.iter().map(|flow| run.flow_counters(*flow).sent_wire_bytes).collect()
    };
    run.run_until(at(from));
    let before = sent(run);
    run.run_until(at(to));
    sent(run)
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) as f64 * 8.0 / (to - from) as f64)
        .collect()
}

/// One receiver beside one TCP takes about half of a bottleneck: means over two runs.
pub fn takes_about_half_beside_tcp(kind: Kind, half: RangeInclusive<f64>) {
    for kbps in [1_000, 4_000] {
        let share = share_beside_tcp(kind, kbps, 2);
        assert!(half.contains(&share), "{share} of {kbps} kbit/s");
    }
}

fn share_beside_tcp(kind: Kind, kbps: u64, runs: u64) -> f64 {
    let shares = (1..=runs).map(|seed| {
        let mut bed = Bed::new(seed, kbps);
        let sent = bed.group("group", kind, &[Place::wide()]);
        let tcp = bed.tcp("tcp");
        let rates = rates(&mut bed.run(), &[sent.flow, tcp], 20, 100);
        let share = rates[0] / (rates[0] + rates[1]);
        println!(
            "{kind:?}, {kbps} kbit/s, seed {seed}: {:.0} and {:.0} kbit/s, share {share:.3}",
            rates[0] / 1e3,
            rates[1] / 1e3
        );
        share
    });
    shares.sum::<f64>() / runs as f64
}

/// The rate to so many receivers that lose a part each for itself, in wire bit/s; nothing else limits it.
pub fn rate_to(kind: Kind, receivers: usize, loss: f64, seed: u64) -> (f64, Run, Sent) {
    let mut bed = Bed::new(seed, 20_000);
    let sent = bed.group("group", kind, &vec![Place { loss, ..Place::wide() }; receivers]);
    let mut run = bed.run();
    let rate = rates(&mut run, &[sent.flow], 10, 35)[0];
    println!("{kind:?}, {receivers} receivers at {loss}: {:.0} kbit/s", rate / 1e3);
    (rate, run, sent)
}

/// A receiver behind 300 kbit/s joins five behind 2 Mbit/s after 30 s, and the rate becomes what it can take.
pub fn a_slow_receiver_joins(kind: Kind) -> (Run, Sent) {
    let mut bed = Bed::new(1, 2_000);
    let sent = bed.group("group", kind, &[Place::wide(); 5]);
    bed.receiver("slow", sent, Place { kbps: 300, ..Place::wide() }, at(30));
    let mut run = bed.run();
    let before = rates(&mut run, &[sent.flow], 15, 30)[0];
    let after = rates(&mut run, &[sent.flow], 50, 90)[0];
    println!("{before:.0} bit/s, then {after:.0} through 300 kbit/s");
    assert!(before > 1_500_000.0 && (200_000.0..330_000.0).contains(&after), "{before}, {after}");
    (run, sent)
}
