//! The test bed: multi-rate sessions and TCPs over one drop-tail bottleneck, or several behind one sender.

use headwater_netsim::agent::{
    ControlReceiver, ControlSender, Hosted, Ports, ShortFlows, ShortFlowsConfig, SizeOf, TcpConnection,
    UDP_HEADER_BYTES,
};
use headwater_netsim::chance::uniform_duration;
use headwater_netsim::engine::Run;
use headwater_netsim::network::{AgentId, Builder, FlowId, LinkConfig, NodeId, Session};
use headwater_netsim::tcp::{Config, Data, Profile};
use headwater_proto::control::{ReceiverControl, SenderControl};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender};
use headwater_proto::queue::QueueConfig;
use headwater_proto::{Duration, Instant, Rate, Seed, m2c};

/// UDP payload of a full datagram of the paper's: 1480 bytes of IP payload.
pub const PAYLOAD: u16 = 1_472;
/// Rate of links that are no bottleneck, in kbit/s.
const WIDE: u64 = 1_000_000;

pub type M2c = Hosted<ControlReceiver<m2c::Receiver>>;

pub fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Layers up to a rate, from ten packets a second.
pub fn layers(max_kbps: u64) -> DynamicConfig {
    let base = Rate::from_bits(10 * 8 * u64::from(PAYLOAD)).expect("sound");
    DynamicConfig::fine(PAYLOAD, Rate::from_kilobits(max_kbps)).with_base_rate(base).with_quiescent_slots(20)
}

/// What lies between two hosts.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub kbps: u64,
    /// Packets that may wait before the bottleneck.
    pub queue: u32,
    /// Without queueing.
    pub round_trip: Duration,
    /// What routers take over a join, beyond the round trip.
    pub join: Duration,
}

impl Place {
    /// The paper's: 25 packets, 8 ms, joins at once.
    pub fn new(kbps: u64) -> Self {
        Self { kbps, queue: 25, round_trip: ms(8), join: ms(5) }
    }
}

/// A session that is sent.
#[derive(Clone, Copy)]
pub struct Sent {
    pub flow: FlowId,
    session: Session,
}

/// A dumbbell.
pub struct Bed {
    pub network: Builder,
    left: NodeId,
    right: NodeId,
    access: Duration,
    /// Time of a packet on the bottleneck.
    service: Duration,
    seed: Seed,
}

impl Bed {
    pub fn new(seed: u64, place: Place) -> Self {
        let mut network = Builder::new();
        let (left, right) = (network.node("left"), network.node("right"));
        let link = LinkConfig::new(Rate::from_kilobits(place.kbps), Duration::ZERO)
            .with_queue(QueueConfig::drop_tail(place.queue));
        let back = LinkConfig::new(Rate::from_kilobits(WIDE), Duration::ZERO);
        network.link("bottleneck", left, right, link, back);
        // A join passes three links.
        network.graft_delay(Duration::from_nanos(place.join.as_nanos() / 3));
        network.leave_latency(ms(100));
        let access = Duration::from_nanos(place.round_trip.as_nanos() / 4);
        let service = Rate::from_kilobits(place.kbps).time_of(1_514);
        Self { network, left, right, access, service, seed: Seed(seed) }
    }

    /// An instant of the first ten seconds by the seed: flows of different runs begin at other phases.
    pub fn moment(&self, name: &str) -> Duration {
        uniform_duration(&mut self.seed.stream(&format!("{name}/moment"), 0), Duration::from_secs(10))
    }

    fn host(&mut self, name: &str, router: NodeId, kbps: u64, queue: u32) -> NodeId {
        let node = self.network.node(name);
        let link = |kbps, queue| {
            LinkConfig::new(Rate::from_kilobits(kbps), self.access).with_queue(QueueConfig::drop_tail(queue))
        };
        self.network.link(&format!("{name}-access"), node, router, link(WIDE, 10_000), link(kbps, queue));
        node
    }

    fn ends(&mut self, name: &str) -> (NodeId, NodeId) {
        let from = self.host(&format!("{name}-from"), self.left, WIDE, 10_000);
        (from, self.host(&format!("{name}-to"), self.right, WIDE, 10_000))
    }

    /// A TCP that always has more to send: the paper's, which is Linux with SACK.
    pub fn tcp(&mut self, name: &str, start: Duration) -> FlowId {
        self.tcp_as(name, start, Data::Greedy, |_| {})
    }

    /// A TCP. Its packets leave with a jitter of up to one packet's time, lest shares depend on how the
    /// bottleneck's ties are broken.
    pub fn tcp_as(
        &mut self,
        name: &str,
        start: Duration,
        data: Data,
        change: impl Fn(&mut Config),
    ) -> FlowId {
        let ends = self.ends(name);
        let mut config = Profile::Linux.config();
        config.overhead = self.service;
        change(&mut config);
        let stream = self.seed.stream(&format!("{name}/overhead"), 0);
        let connection =
            TcpConnection::declare(&mut self.network, name, ends, &config, data, stream).expect("sound");
        self.network.start_at(connection.source, Instant::ZERO + start);
        connection.flow
    }

    /// Poisson arrivals of short TCPs of 3160 bytes on average.
    pub fn short_tcps(&mut self, name: &str, mean_gap: Duration) -> FlowId {
        let ends = self.ends(name);
        let tcp = Profile::Linux.config();
        let config = ShortFlowsConfig { mean_gap, size: SizeOf::Exponential(3_160.0), open_max: 64, tcp };
        let seed = self.seed;
        let stream = |purpose: &str| seed.stream(purpose, 0);
        ShortFlows::declare(&mut self.network, name, ends, config, stream).expect("sound").0
    }

    /// A session whose sender begins at `start`.
    pub fn session<S>(&mut self, name: &str, sender: S, start: Duration) -> Sent
    where
        S: SenderControl + Send + 'static,
    {
        let from = self.host(&format!("{name}-from"), self.left, WIDE, 10_000);
        let flow = self.network.flow(name);
        let session = self.network.session(name, from, sender.channels());
        let ports = Ports { flow, session, header_bytes: UDP_HEADER_BYTES };
        let sender = Hosted::new(ControlSender::new(sender, PAYLOAD), ports);
        let sender = self.network.agent(&format!("{name}/sender"), from, sender);
        self.network.start_at(sender, Instant::ZERO + start);
        Sent { flow, session }
    }

    /// A receiver of a session, whose last hop carries `kbps` with a queue of 25 packets.
    pub fn receiver<R>(
        &mut self,
        name: &str,
        sent: Sent,
        kbps: Option<u64>,
        start: Duration,
        control: R,
    ) -> AgentId
    where
        R: ReceiverControl + Send + 'static,
    {
        let (rate, queue) = kbps.map_or((WIDE, 10_000), |kbps| (kbps, 25));
        let to = self.host(&format!("{name}-to"), self.right, rate, queue);
        let ports = Ports { flow: sent.flow, session: sent.session, header_bytes: UDP_HEADER_BYTES };
        let agent = self.network.agent(
            &format!("{name}/receiver"),
            to,
            Hosted::new(ControlReceiver::new(control), ports),
        );
        self.network.start_at(agent, Instant::ZERO + start);
        agent
    }

    /// A session with one receiver, which comes at `start`.
    pub fn one<S, R>(&mut self, name: &str, sender: S, receiver: R, start: Duration) -> (FlowId, AgentId)
    where
        S: SenderControl + Send + 'static,
        R: ReceiverControl + Send + 'static,
    {
        let sent = self.session(name, sender, Duration::ZERO);
        (sent.flow, self.receiver(name, sent, None, start, receiver))
    }

    /// The sender of M2C on layers up to a rate, whose first slot begins at `start`.
    pub fn m2c_session(&mut self, name: &str, max_kbps: u64, start: Duration) -> Sent {
        let channels = DynamicChannels::new(layers(max_kbps), Instant::ZERO + start).expect("sound");
        self.session(name, DynamicSender::new(channels), start)
    }

    /// An M2C session with one receiver; both begin at moments of their own.
    pub fn m2c(&mut self, name: &str, max_kbps: u64, config: m2c::ReceiverConfig) -> (FlowId, AgentId) {
        self.m2c_on(name, layers(max_kbps), config)
    }

    /// The same on these layers.
    pub fn m2c_on(
        &mut self,
        name: &str,
        layers: DynamicConfig,
        config: m2c::ReceiverConfig,
    ) -> (FlowId, AgentId) {
        let phase = self.moment(name);
        let channels = DynamicChannels::new(layers, Instant::ZERO + phase).expect("sound");
        let sent = self.session(name, DynamicSender::new(channels), phase);
        let start = phase + self.moment(&format!("{name}/receiver"));
        let receiver = m2c::Receiver::new(layers, config).expect("sound");
        (sent.flow, self.receiver(name, sent, None, start, receiver))
    }
}

/// The receiver of such a session.
pub fn receiver(max_kbps: u64, config: m2c::ReceiverConfig) -> m2c::Receiver {
    m2c::Receiver::new(layers(max_kbps), config).expect("sound")
}

/// Packets received and lost by an M2C receiver so far.
pub fn reception(run: &Run, agent: AgentId) -> (u64, u64) {
    let receiver: &M2c = run.agent(agent).expect("a receiver");
    let reception = receiver.machine().control().reception();
    (reception.packets, reception.lost)
}

/// Wire bit/s of each flow in `from..to` seconds.
pub fn rates(run: &mut Run, flows: &[FlowId], from: u64, to: u64) -> Vec<f64> {
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
pub fn mean(runs: u64, measure: impl Fn(u64) -> f64) -> f64 {
    (0..runs).map(measure).sum::<f64>() / runs as f64
}
