//! Deploys the flows of a plan as agents at nodes, and reads their counters.

use headwater_proto::control::Reception;
use headwater_proto::{ChannelId, Instant};

use super::Site;
use super::outcome::{Counter, Criteria, EndResults, MEMBERS_MAX, SessionOutcome, Shared};
use super::{RunError, pgm, rainbow, session};
use crate::agent::{
    Cbr, OnOff, Period, Shape, ShortFlows, ShortFlowsConfig, Sink, SizeOf, TcpConnection, TcpSink, TcpSource,
};
use crate::engine::{Destination, Run};
use crate::network::{AgentCounters, AgentId, FlowId, Session};
use crate::plan::control::ControlView;
use crate::plan::flow::{self, Flow, FlowKind, Member, Receivers};
use crate::tcp::Data;

/// Maximum number of open short connections; further connections wait.
const SHORT_OPEN_MAX: u32 = 256;

/// A flow at work.
pub(super) struct Deployed {
    flow: FlowId,
    pub receivers: Vec<AgentId>,
    /// Receivers as in the plan, if they are read individually.
    members: Vec<Member>,
    /// Groups of the flow, if the receivers form a multicast group.
    session: Option<Session>,
    pub ends: Box<dyn FlowEnds>,
}

/// Ends of a flow, from which counters other than packet counters are read. By default nothing is read: all
/// payload that arrives is new, and the transfer is endless.
pub(super) trait FlowEnds {
    /// New payload bytes at receivers, if not all payload is new.
    fn good_bytes(&self, _run: &Run, _receivers: &[AgentId]) -> Option<u64> {
        None
    }

    /// Counters of the ends, always in the same order.
    fn counters(&self, _run: &Run, _receivers: &[AgentId]) -> Vec<(&'static str, Counter)> {
        Vec::new()
    }

    /// Symbols that receivers had already; `None` for a flow without content.
    fn duplicates(&self, _run: &Run, _receivers: &[AgentId]) -> Option<u64> {
        None
    }

    /// Replaces the counters of a receiver that its agent does not know.
    fn read_member(&self, _run: &Run, _receiver: AgentId, _member: &Member, _counted: &mut MemberCounted) {}

    /// Whether the transfer ends at each receiver by itself.
    fn is_finite(&self) -> bool {
        false
    }

    /// Seconds from a receiver's join until its content was complete.
    fn completion(&self, _run: &Run, _receiver: AgentId, _member: &Member) -> Option<f64> {
        None
    }

    /// Whether the source has sent all that it may send.
    fn is_sent(&self, _run: &Run) -> bool {
        false
    }

    /// Completion time, losses and related figures of a complete transfer.
    fn criteria(&self, _run: &Run, _receivers: &[AgentId], _members: &[Member]) -> Option<Criteria> {
        None
    }

    /// Name of the node of the receiver with most loss events of late, where the source knows the receiver.
    fn worst(&self, _run: &Run) -> Option<String> {
        None
    }

    /// Replies of Rainbow that each receiver shared with the rest of the group; empty for other kinds.
    fn shared(&self, _run: &Run, _receivers: &[AgentId]) -> Vec<Shared> {
        Vec::new()
    }

    /// The session, if the flow is one of Headwater's own.
    fn session(&self) -> Option<&flow::Session> {
        None
    }
}

/// Traffic without content.
struct Traffic;

impl FlowEnds for Traffic {}

/// A TCP connection.
struct TcpEnds {
    flow: FlowId,
    connection: TcpConnection,
    /// Bytes to transfer, if finite.
    bytes: Option<u64>,
    start: Instant,
}

impl TcpEnds {
    /// Instant at which all data had arrived in order.
    fn completed_at(&self, run: &Run) -> Option<Instant> {
        let sink = run.agent::<TcpSink>(self.connection.sink)?;
        let is_complete = sink.sink().counters().payload_bytes_in_order >= self.bytes?;
        is_complete.then(|| sink.progressed())
    }
}

impl FlowEnds for TcpEnds {
    fn good_bytes(&self, run: &Run, _: &[AgentId]) -> Option<u64> {
        let sink = run.agent::<TcpSink>(self.connection.sink);
        Some(sink.map_or(0, |sink| sink.sink().counters().payload_bytes_in_order))
    }

    fn counters(&self, run: &Run, _: &[AgentId]) -> Vec<(&'static str, Counter)> {
        let Some(source) = run.agent::<TcpSource>(self.connection.source) else { return Vec::new() };
        let tcp = source.sender().counters();
        vec![
            ("segments", Counter::Count(tcp.segments_sent)),
            ("retransmissions", Counter::Count(tcp.segments_retransmitted)),
            ("fast_retransmits", Counter::Count(tcp.fast_retransmits)),
            ("timeouts", Counter::Count(tcp.timeouts)),
            ("ecn_cuts", Counter::Count(tcp.ecn_cuts)),
            ("mean_rtt", Counter::Mean(tcp.rtt_sum.as_secs_f64(), tcp.rtt_samples)),
            ("mean_first_timeout", Counter::Mean(tcp.first_timeouts_sum.as_secs_f64(), tcp.first_timeouts)),
        ]
    }

    fn is_sent(&self, run: &Run) -> bool {
        self.completed_at(run).is_some()
    }

    fn criteria(&self, run: &Run, _: &[AgentId], _: &[Member]) -> Option<Criteria> {
        let time = self.completed_at(run)?.since(self.start).as_secs_f64();
        let link_bytes = run.agent_counters(self.connection.sink).received_wire_bytes;
        let flow = run.flow_counters(self.flow);
        let losses = (flow.dropped_packets, flow.delivered_packets);
        Some(Criteria::of_transfer(time, self.bytes?, link_bytes, losses))
    }
}

/// Source of short TCP connections.
struct ShortEnds(AgentId);

impl FlowEnds for ShortEnds {
    fn good_bytes(&self, run: &Run, _: &[AgentId]) -> Option<u64> {
        Some(run.agent::<ShortFlows>(self.0).map_or(0, |source| source.totals().finished_bytes))
    }
}

/// Counters of a flow at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// Wire bytes offered by the sender.
    pub sent_bytes: u64,
    /// Wire bytes delivered to receivers.
    pub delivered_bytes: u64,
    /// Packets delivered to receivers.
    pub delivered: u64,
    /// New payload bytes at receivers.
    pub good_bytes: u64,
    /// Copies dropped or lost.
    pub dropped: u64,
    /// Joins of groups.
    pub joins: u64,
    /// Leaves of groups.
    pub leaves: u64,
    /// Counters of the ends.
    pub ends: Vec<(&'static str, Counter)>,
    /// For each group: wire bytes offered, wire bytes delivered, members.
    pub groups: Vec<[u64; 3]>,
    /// Symbols that receivers of a session had already.
    pub duplicates: u64,
    /// Counters of each receiver of a session, if there are few.
    pub members: Vec<MemberCounted>,
}

impl Counted {
    /// Value of the ends at the instant, by name.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.ends.iter().find_map(|(known, counter)| match counter {
            Counter::Last(value) if *known == name => Some(*value),
            _ => None,
        })
    }
}

/// Counters of a receiver at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemberCounted {
    /// Wire bytes received.
    pub wire_bytes: u64,
    /// Bytes of useful symbols; without a file, all payload.
    pub good_bytes: u64,
    /// Packets that the control counted as received or missing.
    pub reception: Reception,
    /// Joins of groups, and leaves.
    pub joins: u64,
    pub leaves: u64,
    /// Duplicate symbols.
    pub duplicates: u64,
    /// Seconds from the receiver's join until its content was complete.
    pub completion: Option<f64>,
    /// Mean seconds from a join to the first packet.
    pub join_latency: Option<f64>,
    /// Values shown by the control.
    pub view: ControlView,
}

impl Deployed {
    /// A flow; `members` are the receivers that are read individually.
    pub fn new(
        flow: FlowId,
        receivers: Vec<AgentId>,
        members: Vec<Member>,
        session: Option<Session>,
        ends: impl FlowEnds + 'static,
    ) -> Self {
        Self { flow, receivers, members, session, ends: Box::new(ends) }
    }

    /// Whether the receivers form a multicast group.
    pub fn is_group(&self) -> bool {
        self.session.is_some()
    }

    /// Receivers of a group, as in the plan.
    pub fn members(&self) -> &[Member] {
        if self.is_group() { &self.members } else { &[] }
    }

    /// Current counters.
    pub fn count(&self, run: &Run) -> Counted {
        let flow = run.flow_counters(self.flow);
        let memberships = |count: fn(&AgentCounters) -> u64| {
            self.receivers.iter().map(|receiver| count(&run.agent_counters(*receiver))).sum()
        };
        let groups = self.session.into_iter().flat_map(Session::groups).map(|group| {
            let carried = run.group_counters(group);
            [carried.sent_wire_bytes, carried.delivered_wire_bytes, run.group_members(group).into()]
        });
        Counted {
            sent_bytes: flow.sent_wire_bytes,
            delivered_bytes: flow.delivered_wire_bytes,
            delivered: flow.delivered_packets,
            good_bytes: self.ends.good_bytes(run, &self.receivers).unwrap_or(flow.delivered_payload_bytes),
            dropped: flow.dropped_packets,
            joins: memberships(|agent| agent.joins),
            leaves: memberships(|agent| agent.leaves),
            ends: self.ends.counters(run, &self.receivers),
            groups: groups.collect(),
            duplicates: self.ends.duplicates(run, &self.receivers).unwrap_or(0),
            members: self.count_members(run),
        }
    }

    /// Counters of each receiver; empty above [`MEMBERS_MAX`] receivers.
    fn count_members(&self, run: &Run) -> Vec<MemberCounted> {
        if self.members.len() > MEMBERS_MAX {
            return Vec::new();
        }
        let count = |(receiver, member): (&AgentId, &Member)| {
            let agent = run.agent_counters(*receiver);
            let mut counted = MemberCounted {
                wire_bytes: agent.received_wire_bytes,
                good_bytes: agent.received_payload_bytes,
                joins: agent.joins,
                leaves: agent.leaves,
                completion: self.ends.completion(run, *receiver, member),
                ..MemberCounted::default()
            };
            self.ends.read_member(run, *receiver, member, &mut counted);
            counted
        };
        self.receivers.iter().zip(&self.members).map(count).collect()
    }

    /// Completion times of the receivers with all content.
    fn completions(&self, run: &Run) -> Vec<f64> {
        let members = self.receivers.iter().zip(&self.members);
        members.filter_map(|(receiver, member)| self.ends.completion(run, *receiver, member)).collect()
    }

    /// Whether the whole transfer has arrived; always false for an endless transfer.
    pub fn is_complete(&self, run: &Run) -> bool {
        self.ends.is_sent(run) || self.ends.is_finite() && self.completions(run).len() == self.receivers.len()
    }

    /// Results of the ends between two readings.
    pub fn results(&self, run: &Run, before: &Counted, after: &Counted) -> EndResults {
        let mut results = EndResults::between(&before.ends, &after.ends);
        if let Some(worst) = self.ends.worst(run) {
            results.push("worst", worst);
        }
        results
    }

    /// Completion time, losses and related figures of a complete transfer.
    pub fn criteria(&self, run: &Run) -> Option<Criteria> {
        self.ends.criteria(run, &self.receivers, &self.members)
    }

    /// Outcome of a group.
    pub fn session(&self, run: &Run) -> SessionOutcome {
        if !self.ends.is_finite() {
            return SessionOutcome { receivers: self.receivers.len(), ..SessionOutcome::default() };
        }
        let outcome = SessionOutcome::of_completions(self.receivers.len(), &self.completions(run));
        SessionOutcome { duplicates: self.ends.duplicates(run, &self.receivers), ..outcome }
    }
}

/// Deploys a flow in the network.
pub(super) fn deploy(site: &mut Site<'_>, flow: &Flow) -> Result<Deployed, RunError> {
    match &flow.kind {
        FlowKind::Tcp(tcp) => deploy_tcp(site, flow, tcp),
        FlowKind::ShortTcp(short) => deploy_short(site, flow, short),
        FlowKind::Cbr(cbr) => deploy_udp(site, flow, |site, id, destination| {
            let agent = source(id, destination, cbr);
            let noise = || site.stream(&format!("{}/noise", flow.name));
            Box::new(if cbr.noise { agent.with_noise(noise()) } else { agent })
        }),
        FlowKind::OnOff(on_off) => deploy_udp(site, flow, |site, id, destination| {
            let period = |mean| match on_off.period {
                flow::Period::Exponential => Period::Exponential(mean),
                flow::Period::Pareto(shape) => Period::Pareto(mean, shape),
            };
            let periods = site.stream(&format!("{}/periods", flow.name));
            let pace = (on_off.cbr.rate, shape(&on_off.cbr));
            Box::new(OnOff::new(id, destination, pace, (period(on_off.on), period(on_off.off)), periods))
        }),
        FlowKind::Session(planned) => session::deploy(site, flow, planned),
        FlowKind::LeSbcc(planned) => pgm::deploy_le_sbcc(site, flow, planned),
        FlowKind::Baseline(planned) => pgm::deploy_baseline(site, flow, planned),
        FlowKind::Rainbow(planned) => rainbow::deploy(site, flow, planned),
        FlowKind::Transfer(_) => Err(RunError::Flow {
            flow: flow.name.clone(),
            reason: "programs move it, which the simulator has not: run the plan by 'headwater-lab testbed run --plan'".into(),
        }),
    }
}

fn deploy_tcp(site: &mut Site<'_>, flow: &Flow, tcp: &flow::Tcp) -> Result<Deployed, RunError> {
    let to = one_receiver(flow)?;
    let overhead = site.stream(&format!("{}/overhead", flow.name));
    let nodes = (site.nodes[flow.from], site.nodes[to]);
    let declared = TcpConnection::declare(site.network, &flow.name, nodes, &tcp.config, tcp.data, overhead);
    let connection = declared.map_err(|error| RunError::flow(flow, &error))?;
    site.add(flow.from, connection.source);
    site.add(to, connection.sink);
    site.runs(connection.source, flow);
    let receivers = vec![connection.sink];
    let bytes = match tcp.data {
        Data::Greedy => None,
        Data::Bytes(bytes) => Some(bytes),
        Data::Segments(segments) => Some(u64::from(segments) * u64::from(tcp.config.segment_bytes)),
    };
    let (id, start) = (connection.flow, Instant::ZERO + flow.start);
    let ends = TcpEnds { flow: id, connection, bytes, start };
    Ok(Deployed::new(id, receivers, Vec::new(), None, ends))
}

fn deploy_short(site: &mut Site<'_>, flow: &Flow, short: &flow::ShortTcp) -> Result<Deployed, RunError> {
    let to = one_receiver(flow)?;
    let mean = short.mean_bytes as f64;
    let config = ShortFlowsConfig {
        mean_gap: short.interval,
        size: short.shape.map_or(SizeOf::Exponential(mean), |shape| SizeOf::Pareto(mean, shape)),
        open_max: SHORT_OPEN_MAX,
        tcp: short.config.clone(),
    };
    let nodes = (site.nodes[flow.from], site.nodes[to]);
    let (seed, run) = (site.seed, site.run);
    let stream = |name: &str| seed.stream(name, run);
    let declared = ShortFlows::declare(site.network, &flow.name, nodes, config, stream);
    let (id, source) = declared.map_err(|error| RunError::flow(flow, &error))?;
    site.add(flow.from, source);
    let sink = site.network.names().agent(&format!("{}/sink", flow.name));
    let receivers: Vec<AgentId> = sink.into_iter().collect();
    receivers.iter().for_each(|sink| site.add(to, *sink));
    site.runs(source, flow);
    Ok(Deployed::new(id, receivers, Vec::new(), None, ShortEnds(source)))
}

/// Deploys packets to a single node, or to a group of listening nodes.
fn deploy_udp(
    site: &mut Site<'_>,
    flow: &Flow,
    agent: impl FnOnce(&Site<'_>, FlowId, Destination) -> Box<dyn crate::agent::Agent>,
) -> Result<Deployed, RunError> {
    let id = site.network.flow(&flow.name);
    let mut groups = None;
    let (destination, receivers) = match &flow.to {
        Receivers::Node(node) => {
            let sink = site.network.agent(&format!("{}/sink", flow.name), site.nodes[*node], Sink::new());
            site.add(*node, sink);
            (site.network.destination(sink), vec![sink])
        }
        Receivers::Group(members) => {
            let session = site.network.session(&flow.name, site.nodes[flow.from], 1);
            let group =
                session.group(ChannelId::BASE).ok_or_else(|| RunError::flow(flow, &"it has no group"))?;
            groups = Some(session);
            let listen = |member| site.member(flow, member, Sink::of_groups(vec![group]));
            (Destination::Group(group), members.iter().map(listen).collect())
        }
    };
    let agent = agent(site, id, destination);
    let source = site.network.boxed_agent(&format!("{}/source", flow.name), site.nodes[flow.from], agent);
    site.add(flow.from, source);
    site.runs(source, flow);
    Ok(Deployed::new(id, receivers, Vec::new(), groups, Traffic))
}

fn source(id: FlowId, destination: Destination, cbr: &flow::Cbr) -> Cbr {
    let Shape { wire_bytes, header_bytes } = shape(cbr);
    Cbr::new(id, destination, cbr.rate, wire_bytes, header_bytes)
}

fn shape(cbr: &flow::Cbr) -> Shape {
    Shape { wire_bytes: cbr.payload_bytes + cbr.header_bytes, header_bytes: cbr.header_bytes }
}

fn one_receiver(flow: &Flow) -> Result<usize, RunError> {
    match flow.to {
        Receivers::Node(node) => Ok(node),
        Receivers::Group(_) => {
            Err(RunError::flow(flow, &"it has a group of receivers, and can have one only"))
        }
    }
}
