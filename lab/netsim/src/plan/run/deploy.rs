//! Deploys the flows of a plan as agents at nodes, and reads their counters. Each kind of flow is handled
//! here.

use headwater_proto::{ChannelId, Duration, Instant};

use super::RunError;
use super::assemble::Site;
use super::outcome::{
    BaselineOutcome, Criteria, LeSbccOutcome, RainbowOutcome, SessionOutcome, Shared, TcpOutcome,
};
use super::session::{self, MemberCounted};
use super::{baseline, le_sbcc, le_sbcc::Standing, rainbow};
use crate::agent::{
    Cbr, OnOff, Period, Shape, ShortFlows, ShortFlowsConfig, Sink, SizeOf, TcpConnection, TcpSink, TcpSource,
};
use crate::engine::{Destination, Run};
use crate::network::{AgentCounters, AgentId, FlowId, Session};
use crate::plan::flow::{self, Flow, FlowKind, Member, Receivers};
use crate::tcp::{Data, SenderCounters};

/// Maximum number of open short connections; further connections wait.
const SHORT_OPEN_MAX: u32 = 256;

/// A flow at work.
pub(super) struct Deployed {
    flow: FlowId,
    receivers: Vec<AgentId>,
    /// Groups of the flow, if the receivers form a multicast group.
    session: Option<Session>,
    ends: FlowEndpoints,
}

/// Source of counters other than packet counters.
enum FlowEndpoints {
    /// Nowhere: all payload that arrives is new.
    Traffic,
    Tcp(TcpEndpoints),
    Short(AgentId),
    Session(session::SessionEndpoints),
    LeSbcc(le_sbcc::LeSbccEndpoints),
    Baseline(baseline::BaselineEndpoints),
    Rainbow(rainbow::RainbowEndpoints),
}

/// A TCP connection.
struct TcpEndpoints {
    connection: TcpConnection,
    /// Bytes to transfer, if finite.
    bytes: Option<u64>,
    start: Instant,
}

impl TcpEndpoints {
    /// Instant at which all data had arrived in order.
    fn completion(&self, run: &Run) -> Option<Instant> {
        let sink = run.agent::<TcpSink>(self.connection.sink)?;
        let is_complete = sink.sink().counters().payload_bytes_in_order >= self.bytes?;
        is_complete.then(|| sink.progressed())
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
    /// Counters of a TCP sender.
    pub tcp: Option<SenderCounters>,
    /// Counters of a source under LE-SBCC.
    pub le_sbcc: Option<Standing>,
    /// Counters of a source under TFMCC or PGMCC.
    pub baseline: Option<BaselineOutcome>,
    /// Counters of Rainbow.
    pub rainbow: Option<rainbow::Standing>,
    /// Wire bytes offered to each group, wire bytes delivered to its members together, and its current number
    /// of members.
    pub groups: Vec<[u64; 3]>,
    /// Symbols that receivers of a session had already.
    pub duplicates: u64,
    /// Counters of each receiver of a session, if there are few.
    pub members: Vec<MemberCounted>,
}

impl Counted {
    /// TCP counters since `before`.
    pub fn tcp_since(&self, before: &Self) -> Option<TcpOutcome> {
        let (before, after) = (before.tcp?, self.tcp?);
        let of = |counter: fn(&SenderCounters) -> u64| counter(&after).saturating_sub(counter(&before));
        let mean = |sum: fn(&SenderCounters) -> Duration, count: u64| {
            (count > 0).then(|| (sum(&after).as_secs_f64() - sum(&before).as_secs_f64()) / count as f64)
        };
        Some(TcpOutcome {
            segments: of(|tcp| tcp.segments_sent),
            retransmissions: of(|tcp| tcp.segments_retransmitted),
            fast_retransmits: of(|tcp| tcp.fast_retransmits),
            timeouts: of(|tcp| tcp.timeouts),
            ecn_cuts: of(|tcp| tcp.ecn_cuts),
            mean_rtt: mean(|tcp| tcp.rtt_sum, of(|tcp| tcp.rtt_samples)),
            mean_first_timeout: mean(|tcp| tcp.first_timeouts_sum, of(|tcp| tcp.first_timeouts)),
        })
    }
}

impl Deployed {
    /// Number of receivers.
    pub fn receivers(&self) -> usize {
        self.receivers.len()
    }

    /// Whether the receivers form a multicast group.
    pub fn is_group(&self) -> bool {
        self.session.is_some()
    }

    /// Current counters.
    pub fn count(&self, run: &Run) -> Counted {
        let flow = run.flow_counters(self.flow);
        let memberships = |count: fn(&AgentCounters) -> u64| {
            self.receivers.iter().map(|receiver| count(&run.agent_counters(*receiver))).sum()
        };
        let mut counted = Counted {
            sent_bytes: flow.sent_wire_bytes,
            delivered_bytes: flow.delivered_wire_bytes,
            delivered: flow.delivered_packets,
            good_bytes: flow.delivered_payload_bytes,
            dropped: flow.dropped_packets,
            joins: memberships(|agent| agent.joins),
            leaves: memberships(|agent| agent.leaves),
            tcp: None,
            le_sbcc: None,
            baseline: None,
            rainbow: None,
            groups: Vec::new(),
            duplicates: 0,
            members: Vec::new(),
        };
        for group in self.session.into_iter().flat_map(Session::groups) {
            let carried = run.group_counters(group);
            let members = run.group_members(group).into();
            counted.groups.push([carried.sent_wire_bytes, carried.delivered_wire_bytes, members]);
        }
        match &self.ends {
            FlowEndpoints::Traffic => {}
            FlowEndpoints::Tcp(TcpEndpoints { connection, .. }) => {
                let sink = run.agent::<TcpSink>(connection.sink);
                counted.good_bytes = sink.map_or(0, |sink| sink.sink().counters().payload_bytes_in_order);
                counted.tcp =
                    run.agent::<TcpSource>(connection.source).map(|source| *source.sender().counters());
            }
            FlowEndpoints::Short(source) => {
                let source = run.agent::<ShortFlows>(*source);
                counted.good_bytes = source.map_or(0, |source| source.totals().finished_bytes);
            }
            FlowEndpoints::Session(ends) => {
                counted.good_bytes = ends.good_bytes(run, &self.receivers).unwrap_or(counted.good_bytes);
                counted.duplicates = ends.duplicates(run, &self.receivers);
                if ends.counts_members() {
                    counted.members = ends.count(run, &self.receivers);
                }
            }
            FlowEndpoints::LeSbcc(ends) => {
                counted.good_bytes = ends.good_bytes(run, &self.receivers);
                counted.le_sbcc = ends.standing(run);
                counted.members = ends.count(run, &self.receivers);
            }
            FlowEndpoints::Baseline(ends) => {
                counted.baseline = ends.standing(run);
                counted.members = ends.count(run, &self.receivers);
            }
            FlowEndpoints::Rainbow(ends) => {
                counted.good_bytes = ends.good_bytes(run, &self.receivers);
                counted.rainbow = ends.standing(run, &self.receivers);
                counted.members = ends.count(run, &self.receivers);
            }
        }
        counted
    }

    /// Whether the whole transfer has arrived; always false for an endless transfer.
    pub fn is_complete(&self, run: &Run) -> bool {
        match &self.ends {
            FlowEndpoints::Traffic | FlowEndpoints::Short(_) | FlowEndpoints::Baseline(_) => false,
            FlowEndpoints::Tcp(tcp) => tcp.completion(run).is_some(),
            FlowEndpoints::Session(ends) => ends.is_complete(run, &self.receivers),
            FlowEndpoints::LeSbcc(ends) => ends.is_complete(run),
            FlowEndpoints::Rainbow(ends) => ends.is_complete(run, &self.receivers),
        }
    }

    /// Completion time, losses and related figures of a complete transfer.
    pub fn criteria(&self, run: &Run) -> Option<Criteria> {
        match &self.ends {
            FlowEndpoints::Traffic
            | FlowEndpoints::Short(_)
            | FlowEndpoints::LeSbcc(_)
            | FlowEndpoints::Baseline(_)
            | FlowEndpoints::Rainbow(_) => None,
            FlowEndpoints::Session(ends) => ends.criteria(run, &self.receivers),
            FlowEndpoints::Tcp(tcp) => {
                let time = tcp.completion(run)?.since(tcp.start).as_secs_f64();
                let link_bytes = run.agent_counters(tcp.connection.sink).received_wire_bytes;
                let flow = run.flow_counters(self.flow);
                let losses = (flow.dropped_packets, flow.delivered_packets);
                Some(Criteria::of_transfer(time, tcp.bytes?, link_bytes, losses))
            }
        }
    }

    /// LE-SBCC's counters between two readings.
    pub fn le_sbcc(&self, run: &Run, before: &Counted, after: &Counted) -> Option<LeSbccOutcome> {
        let FlowEndpoints::LeSbcc(ends) = &self.ends else { return None };
        let outcome = after.le_sbcc?.since(&before.le_sbcc?);
        Some(LeSbccOutcome { worst: ends.worst(run), ..outcome })
    }

    /// Counters of TFMCC or PGMCC between two readings.
    pub fn baseline(before: &Counted, after: &Counted) -> Option<BaselineOutcome> {
        Some(baseline::since(&after.baseline?, &before.baseline?))
    }

    /// Rainbow's counters between two readings.
    pub fn rainbow(before: &Counted, after: &Counted) -> Option<RainbowOutcome> {
        Some(after.rainbow?.since(&before.rainbow?))
    }

    /// Replies of Rainbow that each receiver shared with the rest of the group; empty for other kinds.
    pub fn shared(&self, run: &Run) -> Vec<Shared> {
        match &self.ends {
            FlowEndpoints::Rainbow(ends) if self.receivers.len() <= super::outcome::MEMBERS_MAX => {
                ends.shared(run, &self.receivers)
            }
            _ => Vec::new(),
        }
    }

    /// Receivers of a group, as in the plan.
    pub fn members(&self) -> &[Member] {
        match &self.ends {
            FlowEndpoints::Session(ends) => ends.members(),
            FlowEndpoints::LeSbcc(ends) if self.is_group() => ends.members(),
            FlowEndpoints::Baseline(ends) if self.is_group() => ends.members(),
            FlowEndpoints::Rainbow(ends) if self.is_group() => ends.members(),
            _ => &[],
        }
    }

    /// Ends of the session, if the flow is a session.
    pub fn ends(&self) -> Option<&session::SessionEndpoints> {
        match &self.ends {
            FlowEndpoints::Session(ends) => Some(ends),
            _ => None,
        }
    }

    /// Outcome of a group.
    pub fn session(&self, run: &Run) -> SessionOutcome {
        let outcome = SessionOutcome { receivers: self.receivers.len(), ..SessionOutcome::default() };
        match &self.ends {
            FlowEndpoints::Session(ends) => ends.outcome(run, &self.receivers, outcome),
            FlowEndpoints::Rainbow(ends) => ends.outcome(run, &self.receivers, outcome),
            _ => outcome,
        }
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
        FlowKind::Session(session) => {
            let (ports, receivers, ends) = session::deploy(site, flow, session)?;
            Ok(Deployed {
                flow: ports.flow,
                receivers,
                session: Some(ports.session),
                ends: FlowEndpoints::Session(ends),
            })
        }
        FlowKind::LeSbcc(planned) => {
            let (ports, receivers, ends) = le_sbcc::deploy(site, flow, planned)?;
            let session = matches!(flow.to, Receivers::Group(_)).then_some(ports.session);
            Ok(Deployed { flow: ports.flow, receivers, session, ends: FlowEndpoints::LeSbcc(ends) })
        }
        FlowKind::Baseline(planned) => {
            let (ports, receivers, ends) = baseline::deploy(site, flow, planned)?;
            let session = matches!(flow.to, Receivers::Group(_)).then_some(ports.session);
            Ok(Deployed { flow: ports.flow, receivers, session, ends: FlowEndpoints::Baseline(ends) })
        }
        FlowKind::Rainbow(planned) => {
            let (ports, receivers, ends) = rainbow::deploy(site, flow, planned)?;
            let session = matches!(flow.to, Receivers::Group(_)).then_some(ports.session);
            Ok(Deployed { flow: ports.flow, receivers, session, ends: FlowEndpoints::Rainbow(ends) })
        }
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
    let ends = FlowEndpoints::Tcp(TcpEndpoints { connection, bytes, start: Instant::ZERO + flow.start });
    Ok(Deployed { flow: connection.flow, receivers, session: None, ends })
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
    Ok(Deployed { flow: id, receivers, session: None, ends: FlowEndpoints::Short(source) })
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
    Ok(Deployed { flow: id, receivers, session: groups, ends: FlowEndpoints::Traffic })
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
