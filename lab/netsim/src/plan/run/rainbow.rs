//! Rainbow in a plan: source and receivers, and breadcrumb routers at nodes.

use headwater_proto::bcfs::{BreadcrumbRouter, ReplyTo, RouterConfig};
use headwater_proto::control::Reception;
use headwater_proto::rainbow::{
    Numbers, Receiver, ReceiverConfig, SessionLabels, Source, SourceConfig, SourceCounters, Tally,
    WindowCounters,
};
use headwater_proto::{ChannelId, Instant, InterfaceId};
use headwater_wire::bcfs::HEADER_BYTES_IPV4;

use super::RunError;
use super::assemble::Site;
use super::le_sbcc::members_of;
use super::outcome::{RainbowOutcome, SessionOutcome, Shared};
use super::session::MemberCounted;
use crate::agent::{Hosted, Ports, RouterNode};
use crate::engine::Run;
use crate::network::AgentId;
use crate::plan::flow::{Flow, Member, Rainbow};

type SourceAgent = Hosted<Source<Numbers>>;
type ReceiverAgent = Hosted<Receiver<Tally>>;

/// Labels of the source; the flow is its only session.
const LABELS: SessionLabels = SessionLabels::new(0);
/// Breadcrumb capacity of a simulated router, which serves a single session.
const ENTRIES: usize = 8_192;

/// Agents of a flow, from which counters are read.
pub(super) struct RainbowEndpoints {
    flow: Rainbow,
    source: AgentId,
    members: Vec<Member>,
}

/// Counters of the source and all receivers at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    source: SourceCounters,
    window: WindowCounters,
    /// Different symbols that receivers received.
    received: u64,
    receivers: usize,
}

impl Standing {
    /// Counters since `before`.
    pub fn since(&self, before: &Self) -> RainbowOutcome {
        let sent = self.source.symbols - before.source.symbols;
        let received = self.received - before.received;
        let of = |count: fn(&WindowCounters) -> u64| count(&self.window) - count(&before.window);
        RainbowOutcome {
            symbols: sent,
            requests: self.source.requests - before.source.requests,
            raised: self.source.raised - before.source.raised,
            nulls: self.source.nulls - before.source.nulls,
            overhead: (received > 0).then(|| (self.receivers as u64 * sent) as f64 / received as f64 - 1.0),
            asked: of(|window| window.asked),
            unasked: of(|window| window.unasked),
            cuts: of(|window| window.cuts),
            overtaken: of(|window| window.overtaken),
            late: of(|window| window.late),
            collapses: of(|window| window.collapses),
        }
    }
}

impl RainbowEndpoints {
    /// The receivers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Counters of all ends.
    pub fn standing(&self, run: &Run, receivers: &[AgentId]) -> Option<Standing> {
        let source = *run.agent::<SourceAgent>(self.source)?.machine().counters();
        let mut standing = Standing { source, receivers: receivers.len(), ..Standing::default() };
        let WindowCounters { asked, answered, unasked, overtaken, late, cuts, collapses } =
            &mut standing.window;
        for machine in receivers.iter().filter_map(|receiver| machine(run, *receiver)) {
            let counters = machine.window().counters();
            *asked += counters.asked;
            *answered += counters.answered;
            *unasked += counters.unasked;
            *overtaken += counters.overtaken;
            *late += counters.late;
            *cuts += counters.cuts;
            *collapses += counters.collapses;
            standing.received += machine.basin().count();
        }
        Some(standing)
    }

    /// Bytes of symbols, each counted once at each receiver.
    pub fn good_bytes(&self, run: &Run, receivers: &[AgentId]) -> u64 {
        receivers
            .iter()
            .filter_map(|receiver| machine(run, *receiver))
            .map(|machine| self.good(machine))
            .sum()
    }

    fn good(&self, receiver: &Receiver<Tally>) -> u64 {
        let symbol = u64::from(self.flow.packet_bytes) - HEADER_BYTES_IPV4 as u64;
        receiver.basin().count() * symbol
    }

    /// Counters of each receiver; empty above [`MEMBERS_MAX`](super::outcome::MEMBERS_MAX) receivers.
    pub fn count(&self, run: &Run, receivers: &[AgentId]) -> Vec<MemberCounted> {
        if receivers.len() > super::outcome::MEMBERS_MAX {
            return Vec::new();
        }
        let count = |(receiver, member): (&AgentId, &Member)| {
            let agent = run.agent_counters(*receiver);
            let Some(machine) = machine(run, *receiver) else { return MemberCounted::default() };
            let window = machine.window().counters();
            MemberCounted {
                wire_bytes: agent.received_wire_bytes,
                good_bytes: self.good(machine),
                reception: Reception {
                    packets: machine.basin().count(),
                    lost: window.overtaken + window.late,
                    ..Reception::default()
                },
                joins: agent.joins,
                leaves: agent.leaves,
                duplicates: machine.basin().duplicates(),
                completion: completion(machine, member),
                ..MemberCounted::default()
            }
        };
        receivers.iter().zip(&self.members).map(count).collect()
    }

    /// Symbols that each receiver shared with the rest of the group, while the rest was receiving.
    pub fn shared(&self, run: &Run, receivers: &[AgentId]) -> Vec<Shared> {
        let none = [].as_slice();
        let words: Vec<&[u64]> = receivers
            .iter()
            .map(|receiver| machine(run, *receiver).map_or(none, |machine| machine.basin().words()))
            .collect();
        (0..words.len()).map(|one| shared(&words, one)).collect()
    }

    /// Whether every receiver has all wanted symbols.
    pub fn is_complete(&self, run: &Run, receivers: &[AgentId]) -> bool {
        let is_done = |receiver: &AgentId| {
            machine(run, *receiver).is_some_and(|machine| machine.basin().completed_at().is_some())
        };
        receivers.iter().all(is_done)
    }

    /// Outcome of the group.
    pub fn outcome(&self, run: &Run, receivers: &[AgentId], outcome: SessionOutcome) -> SessionOutcome {
        if self.flow.packets.is_none() {
            return outcome;
        }
        let machines = receivers
            .iter()
            .zip(&self.members)
            .filter_map(|(receiver, member)| completion(machine(run, *receiver)?, member));
        let times: Vec<f64> = machines.collect();
        let (count, sum) = (times.len(), times.iter().sum::<f64>());
        SessionOutcome {
            complete: Some(count),
            mean_completion: (count > 0).then(|| sum / count as f64),
            longest_completion: times.into_iter().reduce(f64::max),
            ..outcome
        }
    }
}

fn machine(run: &Run, receiver: AgentId) -> Option<&Receiver<Tally>> {
    run.agent::<ReceiverAgent>(receiver).map(Hosted::machine)
}

fn completion(machine: &Receiver<Tally>, member: &Member) -> Option<f64> {
    machine.basin().completed_at().map(|at| at.since(Instant::ZERO + member.join).as_secs_f64())
}

/// Counts the numbers that receiver `one` received, up to the highest number at any other receiver, and how
/// many of the numbers any other receiver received too.
fn shared(words: &[&[u64]], one: usize) -> Shared {
    let others = || words.iter().enumerate().filter(|(other, _)| *other != one).map(|(_, words)| *words);
    let highest = others().filter_map(highest).max();
    let Some(highest) = highest else { return Shared::default() };
    let mut counted = Shared::default();
    for (index, word) in words[one].iter().enumerate() {
        let limit = (highest + 1).saturating_sub(index as u64 * 64);
        let mask = if limit >= 64 { u64::MAX } else { (1 << limit) - 1 };
        let any = others().filter_map(|words| words.get(index)).fold(0, |any, word| any | word);
        counted.packets += u64::from((word & mask).count_ones());
        counted.shared += u64::from((word & mask & any).count_ones());
    }
    counted
}

/// Highest number received.
fn highest(words: &[u64]) -> Option<u64> {
    let (index, word) = words.iter().enumerate().rfind(|(_, word)| **word != 0)?;
    Some(index as u64 * 64 + u64::from(word.ilog2()))
}

/// Deploys a flow in the network.
pub(super) fn deploy(
    site: &mut Site<'_>,
    flow: &Flow,
    planned: &Rainbow,
) -> Result<(Ports, Vec<AgentId>, RainbowEndpoints), RunError> {
    let members = members_of(flow);
    let node = site.nodes[flow.from];
    let session = site.network.session(&flow.name, node, 1);
    let ports = Ports { flow: site.network.flow(&flow.name), session, header_bytes: planned.header_bytes };
    // Requests are no part of the flow's rate.
    let requests = Ports { flow: site.network.flow(&format!("{}/requests", flow.name)), ..ports };
    // Replies go to a group; routers intercept replies on the way.
    let config = SourceConfig::new(LABELS).with_reply_to(ReplyTo::Channel(ChannelId::BASE));
    let symbol = usize::from(planned.packet_bytes) - HEADER_BYTES_IPV4;
    let source = site.source(flow, Source::new(config, Numbers::new(symbol)), ports);
    let address =
        site.network.address(source).ok_or_else(|| RunError::flow(flow, &"too many agents at its source"))?;
    for router in &flow.routers {
        site.breadcrumb_router(flow, *router, planned, [ports, requests])?;
    }
    let receivers = members.iter().map(|member| {
        let config = ReceiverConfig::new(address, address, LABELS)
            .with_channel(ChannelId::BASE)
            .with_window(planned.window);
        let receiver = Receiver::new(config, Tally::new(planned.packets));
        site.member(flow, member, Hosted::new(receiver, requests))
    });
    let receivers = receivers.collect();
    Ok((ports, receivers, RainbowEndpoints { flow: *planned, source, members }))
}

impl Site<'_> {
    /// A router of breadcrumbs at a node, towards the flow's source.
    fn breadcrumb_router(
        &mut self,
        flow: &Flow,
        node: usize,
        planned: &Rainbow,
        ports: [Ports; 2],
    ) -> Result<(), RunError> {
        let here = self.nodes[node];
        let upstream: InterfaceId = self
            .network
            .interface(here, self.nodes[flow.from])
            .ok_or_else(|| RunError::flow(flow, &"its source needs no router"))?;
        let router = BreadcrumbRouter::new(
            RouterConfig::default().with_entries(ENTRIES).with_recent(planned.kept),
            upstream,
        );
        let name = format!("{}/router/{}", flow.name, self.network.names().nodes[here.index()]);
        let [replies, requests] = ports;
        let agent =
            self.network.agent(&name, here, RouterNode::new(router, requests).with_channels(replies.flow));
        self.add(node, agent);
        self.network.route(agent, replies.flow);
        self.network.route(agent, requests.flow);
        Ok(())
    }
}
