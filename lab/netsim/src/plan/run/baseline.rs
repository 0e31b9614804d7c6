//! TFMCC and PGMCC in a plan.

use std::net::IpAddr;

use headwater_baselines::{pgmcc, tfmcc};
use headwater_proto::control::Reception;
use headwater_proto::{Instant, Machine, Seed};
use rand::Rng;

use super::RunError;
use super::assemble::Site;
use super::le_sbcc::{members_of, session};
use super::outcome::BaselineOutcome;
use super::session::MemberCounted;
use crate::agent::{Hosted, Ports};
use crate::engine::Run;
use crate::network::AgentId;
use crate::plan::flow::{Baseline, BaselineControl, Flow, Member};

/// Agents of a flow, from which counters are read.
pub(super) struct BaselineEndpoints {
    source: AgentId,
    members: Vec<Member>,
}

/// Counters of `after` minus those of `before`.
pub(super) fn since(after: &BaselineOutcome, before: &BaselineOutcome) -> BaselineOutcome {
    let of = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
    BaselineOutcome {
        packets: after.packets - before.packets,
        feedback: after.feedback - before.feedback,
        switches: after.switches - before.switches,
        halvings: after.halvings - before.halvings,
        rounds: of(after.rounds, before.rounds),
        timeouts: of(after.timeouts, before.timeouts),
    }
}

impl BaselineEndpoints {
    /// The receivers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Counters of the source since its start.
    pub fn standing(&self, run: &Run) -> Option<BaselineOutcome> {
        let feedback = run.agent_counters(self.source).received_packets;
        if let Some(hosted) = run.agent::<Hosted<tfmcc::Sender>>(self.source) {
            let counters = hosted.machine().counters();
            return Some(BaselineOutcome {
                packets: counters.packets,
                feedback,
                switches: counters.switches,
                halvings: counters.halvings,
                rounds: Some(counters.rounds),
                timeouts: None,
            });
        }
        let counters = run.agent::<Hosted<pgmcc::Sender>>(self.source)?.machine().counters();
        Some(BaselineOutcome {
            packets: counters.packets,
            feedback,
            switches: counters.elections,
            halvings: counters.halvings,
            rounds: None,
            timeouts: Some(counters.timeouts),
        })
    }

    /// Counters of each receiver; empty above [`MEMBERS_MAX`](super::outcome::MEMBERS_MAX) receivers.
    pub fn count(&self, run: &Run, receivers: &[AgentId]) -> Vec<MemberCounted> {
        if receivers.len() > super::outcome::MEMBERS_MAX {
            return Vec::new();
        }
        let count = |receiver: &AgentId| {
            let agent = run.agent_counters(*receiver);
            MemberCounted {
                wire_bytes: agent.received_wire_bytes,
                good_bytes: agent.received_payload_bytes,
                reception: reception(run, *receiver),
                joins: agent.joins,
                leaves: agent.leaves,
                ..MemberCounted::default()
            }
        };
        receivers.iter().map(count).collect()
    }
}

fn reception(run: &Run, receiver: AgentId) -> Reception {
    let tfmcc = run.agent::<Hosted<tfmcc::Receiver>>(receiver).map(|hosted| {
        let counters = hosted.machine().counters();
        (counters.packets, counters.lost)
    });
    let pgmcc = || {
        let counters = run.agent::<Hosted<pgmcc::Receiver>>(receiver)?.machine().counters();
        Some((counters.packets, counters.lost))
    };
    let (packets, lost) = tfmcc.or_else(pgmcc).unwrap_or_default();
    Reception { packets, lost, ..Reception::default() }
}

/// Deploys a flow in the network.
pub(super) fn deploy(
    site: &mut Site<'_>,
    flow: &Flow,
    planned: &Baseline,
) -> Result<(Ports, Vec<AgentId>, BaselineEndpoints), RunError> {
    let members = members_of(flow);
    let (ports, pgm) = session(site, flow, planned.header_bytes)?;
    let start = Instant::ZERO + flow.start;
    let source = match planned.control {
        BaselineControl::Tfmcc { rtt, max_rate } => {
            let config = tfmcc::SenderConfig::new(planned.packet_bytes).with_rtt(rtt);
            let config = max_rate.map_or(config, |rate| config.with_max_rate(rate));
            site.source(flow, tfmcc::Sender::new(config, start), ports)
        }
        BaselineControl::Pgmcc { threshold, switch_losses, .. } => {
            let config = pgmcc::SenderConfig::new(pgm, planned.packet_bytes).with_threshold(threshold);
            let config = config.with_switch_losses(switch_losses);
            site.source(flow, pgmcc::Sender::new(config), ports)
        }
    };
    // Feedback of receivers is not part of the flow's rate.
    let feedback = Ports { flow: site.network.flow(&format!("{}/feedback", flow.name)), ..ports };
    let receivers = members.iter().map(|member| {
        let node = site.nodes[member.node];
        let name = format!("{}/back-off/{}", flow.name, site.network.names().nodes[node.index()]);
        let mut draw = site.stream(&name);
        match planned.control {
            BaselineControl::Tfmcc { .. } => {
                let receiver = tfmcc::Receiver::new(Seed(draw.next_u64()));
                site.member(flow, member, Hosted::new(receiver, feedback))
            }
            BaselineControl::Pgmcc { back_off, loss_weight, .. } => {
                let address: IpAddr = site.network.host(node);
                let config = pgmcc::ReceiverConfig::new(pgm.destination_port, pgm.group, address);
                let config = config.with_back_off(back_off).with_loss_weight(loss_weight);
                let receiver = pgmcc::Receiver::new(config, draw);
                site.member(flow, member, Hosted::new(receiver, feedback))
            }
        }
    });
    let receivers = receivers.collect();
    Ok((ports, receivers, BaselineEndpoints { source, members }))
}

impl Site<'_> {
    /// Puts the source of a flow at its node.
    pub fn source<M>(&mut self, flow: &Flow, machine: M, ports: Ports) -> AgentId
    where
        M: Machine<Event: 'static> + 'static,
    {
        let node = self.nodes[flow.from];
        let source = self.network.agent(&format!("{}/source", flow.name), node, Hosted::new(machine, ports));
        self.add(flow.from, source);
        self.runs(source, flow);
        source
    }
}
