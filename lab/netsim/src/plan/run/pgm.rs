//! Single-rate multicast in a plan: PGM under LE-SBCC, and the baselines TFMCC and PGMCC, with unchanged
//! machines.

use headwater_baselines::{pgmcc, tfmcc};
use headwater_proto::control::Reception;
use headwater_proto::le_sbcc::{Chain, Estimator};
use headwater_proto::pgm::{
    Answers, PgmReceiverConfig, PgmReceiverMachine, PgmSession, PgmSource, SourceConfig, SourceControl,
};
use headwater_proto::{ChannelId, Duration, Instant, Seed};
use headwater_wire::pgm::Gsi;
use rand::Rng;

use super::RunError;
use super::Site;
use super::deploy::{Deployed, FlowEnds, MemberCounted};
use super::outcome::Counter;
use crate::agent::{Forget, GreedySource, Hosted, NakAggregator, Ports};
use crate::engine::Run;
use crate::network::AgentId;
use crate::plan::control::Limits;
use crate::plan::flow::{Baseline, BaselineControl, Flow, LeSbcc, Member, Receivers};

type SourceAgent = Hosted<GreedySource>;
type ReceiverAgent = Hosted<PgmReceiverMachine<Forget>>;

const SOURCE_PORT: u16 = 40_000;
const DESTINATION_PORT: u16 = 7_500;
/// Minimum wait for an NCF, for receivers that will receive no NCF.
const NO_WAIT: Duration = Duration::from_millis(10);

/// Ends of a flow under LE-SBCC.
struct LeSbccEnds {
    payload_bytes: u64,
    source: AgentId,
}

impl LeSbccEnds {
    fn good(&self, receiver: &ReceiverAgent) -> u64 {
        receiver.machine().counters().messages * self.payload_bytes
    }
}

impl FlowEnds for LeSbccEnds {
    /// Bytes of messages that receivers received in order.
    fn good_bytes(&self, run: &Run, receivers: &[AgentId]) -> Option<u64> {
        let messages = receivers.iter().filter_map(|receiver| run.agent::<ReceiverAgent>(*receiver));
        Some(messages.map(|hosted| self.good(hosted)).sum())
    }

    fn counters(&self, run: &Run, _: &[AgentId]) -> Vec<(&'static str, Counter)> {
        let Some(hosted) = run.agent::<SourceAgent>(self.source) else { return Vec::new() };
        let source = hosted.machine().source();
        let Some(chain) = source.chain() else { return Vec::new() };
        let (sent, counters, rtt) = (source.counters(), chain.counters(), chain.round_trip());
        vec![
            ("packets", Counter::Count(sent.originals)),
            ("repairs", Counter::Count(sent.repairs)),
            ("naks", Counter::Count(run.agent_counters(self.source).received_packets)),
            ("loss_indications", Counter::Count(counters.indications)),
            ("loss_events", Counter::Count(counters.events)),
            ("passed", Counter::Count(counters.passed)),
            ("reductions", Counter::Count(counters.reductions)),
            ("loss_event_rate", Counter::Mean(counters.passed as f64, sent.originals + sent.repairs)),
            ("mean_rtt", Counter::Mean(counters.sampled.as_secs_f64(), counters.samples)),
            ("srtt", Counter::Last(rtt.srtt())),
            ("sigma", Counter::Last(rtt.sigma())),
        ]
    }

    fn read_member(&self, run: &Run, receiver: AgentId, _: &Member, counted: &mut MemberCounted) {
        let Some(hosted) = run.agent::<ReceiverAgent>(receiver) else { return };
        let counters = hosted.machine().counters();
        counted.good_bytes = self.good(hosted);
        counted.reception.packets = counters.packets - counters.repaired;
        counted.reception.lost = counters.missed;
        counted.duplicates = counters.duplicates;
        counted.join_latency = hosted.mean_join_latency();
    }

    fn is_sent(&self, run: &Run) -> bool {
        run.agent::<SourceAgent>(self.source).is_some_and(|source| source.machine().is_done())
    }

    fn worst(&self, run: &Run) -> Option<String> {
        let source = run.agent::<SourceAgent>(self.source)?.machine().source();
        let (address, _) = source.chain()?.receivers().worst()?;
        run.node_of(address).map(|node| run.names().nodes[node.index()].to_string())
    }
}

/// Source of a flow under TFMCC or PGMCC.
struct BaselineEnds(AgentId);

impl FlowEnds for BaselineEnds {
    fn counters(&self, run: &Run, _: &[AgentId]) -> Vec<(&'static str, Counter)> {
        let tfmcc = run.agent::<Hosted<tfmcc::TfmccSender>>(self.0).map(|hosted| hosted.machine().counters());
        let pgmcc = run.agent::<Hosted<pgmcc::PgmccSender>>(self.0).map(|hosted| hosted.machine().counters());
        let (packets, switches, halvings, own) = match (tfmcc, pgmcc) {
            (Some(own), _) => (own.packets, own.switches, own.halvings, ("rounds", own.rounds)),
            (_, Some(own)) => (own.packets, own.elections, own.halvings, ("timeouts", own.timeouts)),
            _ => return Vec::new(),
        };
        let feedback = run.agent_counters(self.0).received_packets;
        let all = [
            ("packets", packets),
            ("feedback", feedback),
            ("switches", switches),
            ("halvings", halvings),
            own,
        ];
        all.into_iter().map(|(name, count)| (name, Counter::Count(count))).collect()
    }

    fn read_member(&self, run: &Run, receiver: AgentId, _: &Member, counted: &mut MemberCounted) {
        let tfmcc = run.agent::<Hosted<tfmcc::TfmccReceiver>>(receiver).map(|hosted| {
            let counters = hosted.machine().counters();
            (counters.packets, counters.lost)
        });
        let pgmcc = || {
            let counters = run.agent::<Hosted<pgmcc::PgmccReceiver>>(receiver)?.machine().counters();
            Some((counters.packets, counters.lost))
        };
        let (packets, lost) = tfmcc.or_else(pgmcc).unwrap_or_default();
        counted.reception = Reception { packets, lost, ..Reception::default() };
    }
}

/// Deploys a flow under LE-SBCC in the network.
pub(super) fn deploy_le_sbcc(
    site: &mut Site<'_>,
    flow: &Flow,
    planned: &LeSbcc,
) -> Result<Deployed, RunError> {
    let members = members_of(flow);
    let (ports, pgm) = session(site, flow, planned.header_bytes)?;
    let source = le_sbcc_source(site, flow, planned, pgm);
    let source = site.source(flow, source, ports);
    let feedback = site.ports_beside(flow, "feedback", ports);
    for node in &flow.routers {
        let name = format!("{}/aggregator/{}", flow.name, site.node_name(*node));
        site.router(*node, &name, NakAggregator::new(), [ports.flow, feedback.flow]);
    }
    let config = receiver_config(planned, pgm);
    let receivers = members.iter().map(|member| {
        let back_off = site.stream(&format!("{}/back-off/{}", flow.name, site.node_name(member.node)));
        site.member(flow, member, Hosted::new(PgmReceiverMachine::new(config, Forget, back_off), feedback))
    });
    let receivers = receivers.collect();
    let ends = LeSbccEnds { payload_bytes: planned.payload_bytes.into(), source };
    Ok(Deployed::new(ports.flow, receivers, members, groups_of(flow, ports), ends))
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

/// Groups of a flow, if the receivers form a multicast group.
pub(super) fn groups_of(flow: &Flow, ports: Ports) -> Option<crate::network::Session> {
    matches!(flow.to, Receivers::Group(_)).then_some(ports.session)
}

/// Creates a flow with its group, and the PGM session.
fn session(site: &mut Site<'_>, flow: &Flow, header_bytes: u32) -> Result<(Ports, PgmSession), RunError> {
    let session = site.network.session(&flow.name, site.nodes[flow.from], 1);
    let ports = Ports { flow: site.network.flow(&flow.name), session, header_bytes };
    let group = session.group(ChannelId::BASE).ok_or_else(|| RunError::flow(flow, &"it has no group"))?;
    let pgm = PgmSession {
        gsi: Gsi([0, 0, 0, 0, 0, 1]),
        source_port: SOURCE_PORT,
        destination_port: DESTINATION_PORT,
        group: group.address().into(),
    };
    Ok((ports, pgm))
}

fn receiver_config(planned: &LeSbcc, session: PgmSession) -> PgmReceiverConfig {
    let config = PgmReceiverConfig::new(session.destination_port, session.group)
        .with_payload_bytes(planned.payload_bytes)
        .with_window_packets(planned.receiver_window())
        .with_back_off(planned.back_off)
        .with_path_request(planned.chain.estimator() == Estimator::Sawtooth);
    match planned.repairs {
        true => config,
        false => config.with_waits(NO_WAIT, NO_WAIT).with_retries(0, 0),
    }
}

fn le_sbcc_source(site: &Site<'_>, flow: &Flow, planned: &LeSbcc, session: PgmSession) -> GreedySource {
    let (node, start) = (site.nodes[flow.from], Instant::ZERO + flow.start);
    let chain = Chain::new(planned.chain, site.stream(&format!("{}/le-sbcc", flow.name)), start);
    let config = SourceConfig::new(session, site.network.host(node), planned.payload_bytes)
        .with_mode(planned.mode)
        .with_window_packets(planned.window_packets)
        .with_answers(if planned.repairs { Answers::Repairs } else { Answers::Nothing });
    let source = PgmSource::new(config, SourceControl::LeSbcc(Box::new(chain)), start);
    let source = GreedySource::new(source, planned.payload_bytes);
    match planned.packets {
        Some(packets) => source.with_packets_max(packets),
        None => source,
    }
}

/// Deploys a flow under TFMCC or PGMCC in the network.
pub(super) fn deploy_baseline(
    site: &mut Site<'_>,
    flow: &Flow,
    planned: &Baseline,
) -> Result<Deployed, RunError> {
    let members = members_of(flow);
    let (ports, pgm) = session(site, flow, planned.header_bytes)?;
    let source = match planned.control {
        BaselineControl::Tfmcc { rtt, max_rate } => {
            let config = tfmcc::TfmccSenderConfig::new(planned.packet_bytes).with_rtt(rtt);
            let config = max_rate.map_or(config, |rate| config.with_max_rate(rate));
            site.source(flow, tfmcc::TfmccSender::new(config, Instant::ZERO + flow.start), ports)
        }
        BaselineControl::Pgmcc { threshold, switch_losses, .. } => {
            let config = pgmcc::PgmccSenderConfig::new(pgm, planned.packet_bytes).with_threshold(threshold);
            let config = config.with_switch_losses(switch_losses);
            site.source(flow, pgmcc::PgmccSender::new(config), ports)
        }
    };
    let feedback = site.ports_beside(flow, "feedback", ports);
    let receivers = members.iter().map(|member| {
        let mut draw = site.stream(&format!("{}/back-off/{}", flow.name, site.node_name(member.node)));
        match planned.control {
            BaselineControl::Tfmcc { .. } => {
                let receiver = tfmcc::TfmccReceiver::new(Seed(draw.next_u64()));
                site.member(flow, member, Hosted::new(receiver, feedback))
            }
            BaselineControl::Pgmcc { back_off, loss_weight, .. } => {
                let address = site.network.host(site.nodes[member.node]);
                let config = pgmcc::PgmccReceiverConfig::new(pgm.destination_port, pgm.group, address);
                let config = config.with_back_off(back_off).with_loss_weight(loss_weight);
                site.member(flow, member, Hosted::new(pgmcc::PgmccReceiver::new(config, draw), feedback))
            }
        }
    });
    let receivers = receivers.collect();
    Ok(Deployed::new(ports.flow, receivers, members, groups_of(flow, ports), BaselineEnds(source)))
}
