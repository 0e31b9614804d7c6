//! Rainbow in a plan: source and receivers, and breadcrumb routers at nodes.

use headwater_proto::bcfs::{BreadcrumbRouter, ReplyTo, RouterConfig};
use headwater_proto::rainbow::{
    Numbers, RainbowReceiver, RainbowReceiverConfig, RainbowSource, SessionLabels, SourceConfig, Tally,
    WindowCounters,
};
use headwater_proto::{ChannelId, Instant, Seed};
use headwater_wire::bcfs::HEADER_BYTES_IPV4;
use rand::Rng;

use super::RunError;
use super::Site;
use super::deploy::{Deployed, FlowEnds, MemberCounted};
use super::outcome::{Counter, MEMBERS_MAX, Shared};
use super::pgm::{groups_of, members_of};
use crate::agent::{Hosted, Ports};
use crate::engine::Run;
use crate::network::AgentId;
use crate::plan::flow::{Flow, Member, Rainbow};

type SourceAgent = Hosted<RainbowSource<Numbers>>;
type ReceiverAgent = Hosted<RainbowReceiver<Tally>>;

/// Labels of the source; the flow is its only session.
const LABELS: SessionLabels = SessionLabels::new(0);
/// Breadcrumb capacity of a simulated router, which serves a single session.
const ENTRIES: usize = 8_192;

/// Ends of a flow.
struct RainbowEnds {
    /// Bytes of a symbol.
    symbol_bytes: u64,
    is_finite: bool,
    source: AgentId,
}

impl FlowEnds for RainbowEnds {
    /// Bytes of symbols, each counted once at each receiver.
    fn good_bytes(&self, run: &Run, receivers: &[AgentId]) -> Option<u64> {
        let machines = receivers.iter().filter_map(|receiver| machine(run, *receiver));
        Some(machines.map(|machine| machine.basin().count() * self.symbol_bytes).sum())
    }

    /// Counters of the source, and sums over all receivers.
    fn counters(&self, run: &Run, receivers: &[AgentId]) -> Vec<(&'static str, Counter)> {
        let Some(hosted) = run.agent::<SourceAgent>(self.source) else { return Vec::new() };
        let source = hosted.machine().counters();
        let machines = || receivers.iter().filter_map(|receiver| machine(run, *receiver));
        let received = machines().map(|machine| machine.basin().count()).sum();
        let of = |count: fn(&WindowCounters) -> u64| {
            Counter::Count(machines().map(|machine| count(machine.window().counters())).sum())
        };
        vec![
            ("symbols", Counter::Count(source.symbols)),
            ("requests", Counter::Count(source.requests)),
            ("raised", Counter::Count(source.raised)),
            ("nulls", Counter::Count(source.nulls)),
            ("overhead", Counter::Excess((receivers.len() as u64 * source.symbols) as f64, received)),
            ("asked", of(|window| window.asked)),
            ("unasked", of(|window| window.unasked)),
            ("cuts", of(|window| window.cuts)),
            ("overtaken", of(|window| window.overtaken)),
            ("late", of(|window| window.late)),
            ("collapses", of(|window| window.collapses)),
        ]
    }

    fn read_member(&self, run: &Run, receiver: AgentId, _: &Member, counted: &mut MemberCounted) {
        let Some(machine) = machine(run, receiver) else { return };
        let window = machine.window().counters();
        counted.good_bytes = machine.basin().count() * self.symbol_bytes;
        counted.reception.packets = machine.basin().count();
        counted.reception.lost = window.overtaken + window.late;
        counted.duplicates = machine.basin().duplicates();
    }

    fn is_finite(&self) -> bool {
        self.is_finite
    }

    fn completion(&self, run: &Run, receiver: AgentId, member: &Member) -> Option<f64> {
        let at = machine(run, receiver)?.basin().completed_at()?;
        Some(at.since(Instant::ZERO + member.join).as_secs_f64())
    }

    /// Symbols that each receiver shared with the rest of the group, while the rest was receiving.
    fn shared(&self, run: &Run, receivers: &[AgentId]) -> Vec<Shared> {
        if receivers.len() > MEMBERS_MAX {
            return Vec::new();
        }
        let none = [].as_slice();
        let words: Vec<&[u64]> = receivers
            .iter()
            .map(|receiver| machine(run, *receiver).map_or(none, |machine| machine.basin().words()))
            .collect();
        (0..words.len()).map(|one| shared(&words, one)).collect()
    }
}

fn machine(run: &Run, receiver: AgentId) -> Option<&RainbowReceiver<Tally>> {
    run.agent::<ReceiverAgent>(receiver).map(Hosted::machine)
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
pub(super) fn deploy(site: &mut Site<'_>, flow: &Flow, planned: &Rainbow) -> Result<Deployed, RunError> {
    let members = members_of(flow);
    let session = site.network.session(&flow.name, site.nodes[flow.from], 1);
    let ports = Ports { flow: site.network.flow(&flow.name), session, header_bytes: planned.header_bytes };
    let requests = site.ports_beside(flow, "requests", ports);
    // Replies go to a group; routers intercept replies on the way.
    let config = SourceConfig::new(LABELS).with_reply_to(ReplyTo::Channel(ChannelId::BASE));
    let symbol = usize::from(planned.packet_bytes) - HEADER_BYTES_IPV4;
    let source = site.source(flow, RainbowSource::new(config, Numbers::new(symbol)), ports);
    let address =
        site.network.address(source).ok_or_else(|| RunError::flow(flow, &"too many agents at its source"))?;
    for node in &flow.routers {
        let upstream = site
            .network
            .interface(site.nodes[*node], site.nodes[flow.from])
            .ok_or_else(|| RunError::flow(flow, &"its source needs no router"))?;
        let config = RouterConfig::default().with_entries(ENTRIES).with_recent(planned.kept);
        let router =
            Hosted::router(BreadcrumbRouter::new(config, upstream), requests).with_channels(ports.flow);
        let name = format!("{}/router/{}", flow.name, site.node_name(*node));
        site.router(*node, &name, router, [ports.flow, requests.flow]);
    }
    let receivers = members.iter().map(|member| {
        let name = format!("{}/window/{}", flow.name, site.node_name(member.node));
        let seed = Seed(site.stream(&name).next_u64());
        let config = RainbowReceiverConfig::new(address, address, LABELS)
            .with_channel(ChannelId::BASE)
            .with_window(planned.window.with_spread(Some(seed)));
        let receiver = RainbowReceiver::new(config, Tally::new(planned.packets));
        site.member(flow, member, Hosted::new(receiver, requests))
    });
    let receivers = receivers.collect();
    let ends = RainbowEnds { symbol_bytes: symbol as u64, is_finite: planned.packets.is_some(), source };
    Ok(Deployed::new(ports.flow, receivers, members, groups_of(flow, ports), ends))
}
