//! PGM under LE-SBCC in a plan: the machines that run on sockets.

use headwater_proto::control::Reception;
use headwater_proto::le_sbcc::{Chain, Counters};
use headwater_proto::pgm::{
    Answers, Control, Receiver, ReceiverConfig, Session, Source, SourceConfig, SourceCounters,
};
use headwater_proto::{ChannelId, Duration, Instant};
use headwater_wire::pgm::Gsi;

use super::RunError;
use super::assemble::Site;
use super::outcome::LeSbccOutcome;
use super::session::MemberCounted;
use crate::agent::{Forget, GreedySource, Hosted, NakAggregator, Ports};
use crate::engine::Run;
use crate::network::AgentId;
use crate::plan::control::Limits;
use crate::plan::flow::{Flow, LeSbcc, Member, Receivers};

type SourceAgent = Hosted<GreedySource>;
type ReceiverAgent = Hosted<Receiver<Forget>>;

const SOURCE_PORT: u16 = 40_000;
const DESTINATION_PORT: u16 = 7_500;
/// Minimum wait for an NCF, for receivers that will receive no NCF.
const NO_WAIT: Duration = Duration::from_millis(10);

/// Agents of a flow, from which counters are read.
pub(super) struct LeSbccEndpoints {
    flow: LeSbcc,
    source: AgentId,
    members: Vec<Member>,
}

/// Counters of a source at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    chain: Counters,
    source: SourceCounters,
    naks: u64,
    /// Round-trip time and deviation in seconds.
    srtt: f64,
    sigma: f64,
}

impl Standing {
    /// Round-trip time in seconds.
    pub const fn srtt(&self) -> f64 {
        self.srtt
    }

    fn sent(&self) -> u64 {
        self.source.originals + self.source.repairs
    }

    /// Counters since `before`.
    pub fn since(&self, before: &Self) -> LeSbccOutcome {
        let (chain, first) = (&self.chain, &before.chain);
        let passed = chain.passed - first.passed;
        let sent = self.sent() - before.sent();
        let samples = chain.samples - first.samples;
        let sampled = chain.sampled.as_secs_f64() - first.sampled.as_secs_f64();
        LeSbccOutcome {
            packets: self.source.originals - before.source.originals,
            repairs: self.source.repairs - before.source.repairs,
            naks: self.naks - before.naks,
            loss_indications: chain.indications - first.indications,
            loss_events: chain.events - first.events,
            passed,
            reductions: chain.reductions - first.reductions,
            loss_event_rate: (sent > 0).then(|| passed as f64 / sent as f64),
            mean_rtt: (samples > 0).then(|| sampled / samples as f64),
            srtt: self.srtt,
            sigma: self.sigma,
            worst: None,
        }
    }
}

impl LeSbccEndpoints {
    /// The receivers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Current counters of the source.
    pub fn standing(&self, run: &Run) -> Option<Standing> {
        let source = run.agent::<SourceAgent>(self.source)?.machine().source();
        let chain = source.chain()?;
        Some(Standing {
            chain: *chain.counters(),
            source: *source.counters(),
            naks: run.agent_counters(self.source).received_packets,
            srtt: chain.round_trip().srtt(),
            sigma: chain.round_trip().sigma(),
        })
    }

    /// Name of the node of the receiver with most loss events of late.
    pub fn worst(&self, run: &Run) -> Option<String> {
        let source = run.agent::<SourceAgent>(self.source)?.machine().source();
        let (address, _) = source.chain()?.receivers().worst()?;
        run.node_of(address).map(|node| run.names().nodes[node.index()].to_string())
    }

    /// Bytes of messages that receivers received in order.
    pub fn good_bytes(&self, run: &Run, receivers: &[AgentId]) -> u64 {
        let messages = receivers.iter().filter_map(|receiver| run.agent::<ReceiverAgent>(*receiver));
        messages.map(|hosted| self.good(hosted)).sum()
    }

    fn good(&self, receiver: &ReceiverAgent) -> u64 {
        receiver.machine().counters().messages * u64::from(self.flow.payload_bytes)
    }

    /// Counters of each receiver; empty above [`MEMBERS_MAX`](super::outcome::MEMBERS_MAX) receivers.
    pub fn count(&self, run: &Run, receivers: &[AgentId]) -> Vec<MemberCounted> {
        if receivers.len() > super::outcome::MEMBERS_MAX {
            return Vec::new();
        }
        let count = |receiver: &AgentId| {
            let agent = run.agent_counters(*receiver);
            let hosted = run.agent::<ReceiverAgent>(*receiver);
            let counters = hosted.map(|hosted| hosted.machine().counters()).unwrap_or_default();
            MemberCounted {
                wire_bytes: agent.received_wire_bytes,
                good_bytes: hosted.map_or(0, |hosted| self.good(hosted)),
                reception: Reception {
                    packets: counters.packets - counters.repaired,
                    lost: counters.missed,
                    ..Reception::default()
                },
                joins: agent.joins,
                leaves: agent.leaves,
                duplicates: counters.duplicates,
                join_latency: hosted.and_then(Hosted::mean_join_latency),
                ..MemberCounted::default()
            }
        };
        receivers.iter().map(count).collect()
    }

    /// Whether the source has sent all permitted packets.
    pub fn is_complete(&self, run: &Run) -> bool {
        run.agent::<SourceAgent>(self.source).is_some_and(|source| source.machine().is_done())
    }
}

/// Deploys a flow in the network.
pub(super) fn deploy(
    site: &mut Site<'_>,
    flow: &Flow,
    planned: &LeSbcc,
) -> Result<(Ports, Vec<AgentId>, LeSbccEndpoints), RunError> {
    let members = members_of(flow);
    let (ports, pgm) = session(site, flow, planned.header_bytes)?;
    let source = site.add_source(flow, planned, pgm, ports);
    // Feedback of receivers is not part of the flow's rate.
    let feedback = site.network.flow(&format!("{}/feedback", flow.name));
    for node in &flow.routers {
        let name =
            format!("{}/aggregator/{}", flow.name, site.network.names().nodes[site.nodes[*node].index()]);
        let agent = site.network.agent(&name, site.nodes[*node], NakAggregator::new());
        site.add(*node, agent);
        site.network.route(agent, ports.flow);
        site.network.route(agent, feedback);
    }
    let config = receiver_config(planned, pgm);
    let receivers = members.iter().map(|member| {
        let node = &site.network.names().nodes[site.nodes[member.node].index()];
        let name = format!("{}/back-off/{node}", flow.name);
        let machine = Receiver::new(config, Forget, site.stream(&name));
        site.member(flow, member, Hosted::new(machine, Ports { flow: feedback, ..ports }))
    });
    let receivers = receivers.collect();
    Ok((ports, receivers, LeSbccEndpoints { flow: planned.clone(), source, members }))
}

/// Receivers of a flow; a single receiver for a flow to a node.
pub(super) fn members_of(flow: &Flow) -> Vec<Member> {
    match &flow.to {
        Receivers::Group(members) => members.clone(),
        Receivers::Node(node) => {
            vec![Member { node: *node, join: Duration::ZERO, leave: None, limits: Limits::default() }]
        }
    }
}

/// Creates a flow with its group, and the PGM session.
pub(super) fn session(
    site: &mut Site<'_>,
    flow: &Flow,
    header_bytes: u32,
) -> Result<(Ports, Session), RunError> {
    let session = site.network.session(&flow.name, site.nodes[flow.from], 1);
    let ports = Ports { flow: site.network.flow(&flow.name), session, header_bytes };
    let group = session.group(ChannelId::BASE).ok_or_else(|| RunError::flow(flow, &"it has no group"))?;
    let pgm = Session {
        gsi: Gsi([0, 0, 0, 0, 0, 1]),
        source_port: SOURCE_PORT,
        destination_port: DESTINATION_PORT,
        group: group.address().into(),
    };
    Ok((ports, pgm))
}

fn receiver_config(planned: &LeSbcc, session: Session) -> ReceiverConfig {
    let config = ReceiverConfig::new(session.destination_port, session.group)
        .with_payload_bytes(planned.payload_bytes)
        .with_window_packets(planned.receiver_window())
        .with_back_off(planned.back_off);
    match planned.repairs {
        true => config,
        false => config.with_waits(NO_WAIT, NO_WAIT).with_retries(0, 0),
    }
}

impl Site<'_> {
    fn add_source(&mut self, flow: &Flow, planned: &LeSbcc, session: Session, ports: Ports) -> AgentId {
        let (node, start) = (self.nodes[flow.from], Instant::ZERO + flow.start);
        let chain = Chain::new(planned.chain, self.stream(&format!("{}/le-sbcc", flow.name)), start);
        let config = SourceConfig::new(session, self.network.host(node), planned.payload_bytes)
            .with_mode(planned.mode)
            .with_window_packets(planned.window_packets)
            .with_answers(if planned.repairs { Answers::Repairs } else { Answers::Nothing });
        let source = Source::new(config, Control::LeSbcc(Box::new(chain)), start);
        let mut source = GreedySource::new(source, planned.payload_bytes);
        if let Some(packets) = planned.packets {
            source = source.with_packets_max(packets);
        }
        self.source(flow, source, ports)
    }
}
