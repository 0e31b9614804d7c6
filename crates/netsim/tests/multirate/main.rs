//! M2C and FLID beside TCP and beside themselves, on one drop-tail bottleneck.

mod flid;

use headwater_netsim::agent::{
    ControlReceiver, ControlSender, Hosted, Ports, TcpConnection, UDP_HEADER_BYTES,
};
use headwater_netsim::engine::Run;
use headwater_netsim::measure::jain;
use headwater_netsim::network::{AgentId, Builder, FlowId, LinkConfig, NodeId};
use headwater_netsim::tcp::{Data, Profile};
use headwater_proto::control::{ReceiverControl, SenderControl};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender};
use headwater_proto::queue::QueueConfig;
use headwater_proto::rtt::ProberConfig;
use headwater_proto::{Duration, Instant, Rate, Seed, m2c};

/// UDP payload of a full datagram of the paper's: 1480 bytes of IP payload.
const PAYLOAD: u16 = 1_472;

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn layers(bottleneck_kbps: u64) -> DynamicConfig {
    DynamicConfig::new(PAYLOAD, Rate::from_kilobits(4 * bottleneck_kbps))
        .with_base_rate(Rate::from_bits(11_776).expect("sound"))
        .with_quiescent_slots(10)
}

/// A dumbbell: 25 packets before the bottleneck, and access links of a delay each way.
struct Bed {
    network: Builder,
    left: NodeId,
    right: NodeId,
    layers: DynamicConfig,
    /// One way, of each access link.
    access: Duration,
    seed: Seed,
}

impl Bed {
    fn new(seed: u64, kbps: u64, round_trip: Duration, join: Duration) -> Self {
        let mut network = Builder::new();
        let (left, right) = (network.node("left"), network.node("right"));
        let link =
            LinkConfig::new(Rate::from_kilobits(kbps), Duration::ZERO).with_queue(QueueConfig::drop_tail(25));
        let back = LinkConfig::new(Rate::from_kilobits(1_000_000), Duration::ZERO);
        network.link("bottleneck", left, right, link, back);
        network.graft_delay(Duration::from_nanos(join.as_nanos() / 3));
        network.leave_latency(Duration::from_millis(100));
        let access = Duration::from_nanos(round_trip.as_nanos() / 4);
        Self { network, left, right, layers: layers(kbps), access, seed: Seed(seed) }
    }

    fn host(&mut self, name: &str, router: NodeId) -> NodeId {
        let node = self.network.node(name);
        let link = LinkConfig::new(Rate::from_kilobits(1_000_000), self.access)
            .with_queue(QueueConfig::drop_tail(10_000));
        self.network.link(&format!("{name}-access"), node, router, link.clone(), link);
        node
    }

    fn tcp(&mut self, name: &str, start: Duration) -> FlowId {
        let (from, to) =
            (self.host(&format!("{name}-from"), self.left), self.host(&format!("{name}-to"), self.right));
        // The paper's TCP: Linux with SACK.
        let config = Profile::Linux.config();
        let stream = self.seed.stream(&format!("{name}/overhead"), 0);
        let connection =
            TcpConnection::declare(&mut self.network, name, (from, to), &config, Data::Greedy, stream)
                .expect("sound");
        self.network.start_at(connection.source, Instant::ZERO + start);
        connection.flow
    }

    fn m2c(&mut self, name: &str, start: Duration) -> FlowId {
        self.m2c_as(name, start, m2c::ReceiverConfig::new()).0
    }

    fn m2c_as(&mut self, name: &str, start: Duration, config: m2c::ReceiverConfig) -> (FlowId, AgentId) {
        let channels = DynamicChannels::new(self.layers, Instant::ZERO).expect("sound");
        let control = m2c::Receiver::new(self.layers, config).expect("sound");
        self.session(name, DynamicSender::new(channels), control, start)
    }

    /// A session with one receiver, which comes at `start`.
    fn session<S, R>(&mut self, name: &str, sender: S, receiver: R, start: Duration) -> (FlowId, AgentId)
    where
        S: SenderControl + Send + 'static,
        R: ReceiverControl + Send + 'static,
    {
        let (from, to) =
            (self.host(&format!("{name}-from"), self.left), self.host(&format!("{name}-to"), self.right));
        let flow = self.network.flow(name);
        let session = self.network.session(name, from, sender.channels());
        let ports = Ports { flow, session, header_bytes: UDP_HEADER_BYTES };
        let sender = ControlSender::new(sender, PAYLOAD);
        self.network.agent(&format!("{name}/sender"), from, Hosted::new(sender, ports));
        let receiver = self.network.agent(
            &format!("{name}/receiver"),
            to,
            Hosted::new(ControlReceiver::new(receiver), ports),
        );
        self.network.start_at(receiver, Instant::ZERO + start);
        (flow, receiver)
    }
}

/// Wire bit/s of each flow in `from..to` seconds.
fn rates(run: &mut Run, flows: &[FlowId], from: u64, to: u64) -> Vec<f64> {
    run.run_until(at(from));
    let count = |run: &Run| -> Vec<u64> {
        flows.iter().map(|flow| run.flow_counters(*flow).delivered_wire_bytes).collect()
    };
    let before = count(run);
    run.run_until(at(to));
    let seconds = (to - from) as f64;
    count(run).iter().zip(before).map(|(after, before)| (after - before) as f64 * 8.0 / seconds).collect()
}

/// The mean over some runs of what is measured in each.
fn mean(runs: u64, measure: impl Fn(u64) -> f64) -> f64 {
    (0..runs).map(measure).sum::<f64>() / runs as f64
}

#[test]
fn m2c_shares_with_one_tcp() {
    for kbps in [1_000, 4_000] {
        let share = mean(3, |seed| {
            let mut bed = Bed::new(seed, kbps, Duration::from_millis(8), Duration::from_millis(5));
            let flows = [
                bed.m2c("m2c", Duration::from_millis(137 * seed)),
                bed.tcp("tcp", Duration::from_millis(1_000 + 211 * seed)),
            ];
            let mut run = bed.network.build(Seed(seed), 0).expect("sound");
            let found = rates(&mut run, &flows, 60, 240);
            found[0] / (found[0] + found[1])
        });
        assert!((0.40..=0.60).contains(&share), "M2C takes {share:.3} of {kbps} kbit/s");
    }
}

#[test]
fn two_sessions_share() {
    for kbps in [1_000, 4_000] {
        let index = mean(3, |seed| {
            let mut bed = Bed::new(seed, kbps, Duration::from_millis(8), Duration::from_millis(5));
            let later = Duration::from_millis(7_300 + 1_900 * seed);
            let flows = [bed.m2c("one", Duration::ZERO), bed.m2c("other", later)];
            let mut run = bed.network.build(Seed(seed), 0).expect("sound");
            let found = rates(&mut run, &flows, 60, 240);
            let total: f64 = found.iter().sum();
            assert!(total > 850.0 * kbps as f64, "{total:.0} bit/s of {kbps} kbit/s are used");
            jain(&found).expect("sound")
        });
        // Sessions share loosely, as the paper says of its own; neither may starve the other.
        assert!(index > 0.70, "Jain's index {index:.3} at {kbps} kbit/s");
    }
}

#[test]
fn questions_find_the_round_trip_that_joins_hide() {
    let mut bed = Bed::new(1, 4_000, Duration::from_millis(40), Duration::from_millis(500));
    let asking = m2c::ReceiverConfig::new().with_prober(ProberConfig::new(Seed(1)));
    let (_, asking) = bed.m2c_as("asking", Duration::ZERO, asking);
    let mut run = bed.network.build(Seed(1), 0).expect("sound");
    run.run_until(at(5));
    let rtt = |agent| {
        let receiver: &Hosted<ControlReceiver<m2c::Receiver>> = run.agent(agent).expect("a receiver");
        receiver.machine().control().status(run.now()).expect("it has begun").rtt
    };
    // 40 ms, and the queue of 25 packets, which is 75 ms.
    assert!((0.04..0.13).contains(&rtt(asking)), "{}", rtt(asking));
}
