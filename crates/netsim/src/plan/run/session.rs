//! Headwater's own sessions in a plan: a sender and its receivers, the machines that run on sockets.

use std::rc::Rc;

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    End, FileToSend, MemorySource, MemoryStore, PlanConfig, Receiver, ReceiverConfig, ReceiverEvent,
    ReceiverStats, RelativePath, Sender, SenderConfig, SessionPlan, Store,
};
use headwater_proto::{Instant, fixed};
use rand::Rng;

use super::RunError;
use super::assemble::Site;
use super::outcome::SessionOutcome;
use crate::agent::{Hosted, KnownStore, Originals, Ports, Told};
use crate::engine::Run;
use crate::network::AgentId;
use crate::plan::flow::{Code, FixedSession, Flow, Member, Receivers};

/// Name of the one file of a session.
const FILE: &str = "content";

type Fixed<S> = Hosted<Receiver<fixed::Receiver, S>>;

/// Where a session's counters are.
pub(super) struct Ends {
    symbol_bytes: u64,
    decodes: bool,
    joins: Vec<Instant>,
}

/// What a receiver stands at.
struct Standing {
    stats: ReceiverStats,
    completed_at: Option<Instant>,
}

impl Ends {
    /// Bytes of symbols that receivers needed.
    pub fn good_bytes(&self, run: &Run, receivers: &[AgentId]) -> u64 {
        receivers
            .iter()
            .filter_map(|receiver| self.standing(run, *receiver))
            .map(|standing| self.useful(&standing))
            .sum()
    }

    /// Symbols that receivers had already.
    pub fn duplicates(&self, run: &Run, receivers: &[AgentId]) -> u64 {
        let standings = receivers.iter().filter_map(|receiver| self.standing(run, *receiver));
        standings.map(|standing| standing.stats.duplicates).sum()
    }

    /// What is said of the session as a whole.
    pub fn outcome(&self, run: &Run, receivers: &[AgentId], mut outcome: SessionOutcome) -> SessionOutcome {
        let (mut sum, mut longest, mut complete, mut duplicates) = (0.0, 0.0_f64, 0, 0);
        for (receiver, join) in receivers.iter().zip(&self.joins) {
            let Some(standing) = self.standing(run, *receiver) else { continue };
            duplicates += standing.stats.duplicates;
            if let Some(at) = standing.completed_at {
                let took = at.since(*join).as_secs_f64();
                (sum, longest, complete) = (sum + took, longest.max(took), complete + 1);
            }
        }
        outcome.complete = Some(complete);
        outcome.duplicates = Some(duplicates);
        outcome.mean_completion = (complete > 0).then(|| sum / complete as f64);
        outcome.longest_completion = (complete > 0).then_some(longest);
        outcome
    }

    fn useful(&self, standing: &Standing) -> u64 {
        standing.stats.useful * self.symbol_bytes
    }

    fn standing(&self, run: &Run, receiver: AgentId) -> Option<Standing> {
        if self.decodes {
            run.agent::<Fixed<MemoryStore>>(receiver).map(stand)
        } else {
            run.agent::<Fixed<KnownStore>>(receiver).map(stand)
        }
    }
}

fn stand<S: Store + 'static>(hosted: &Fixed<S>) -> Standing {
    Standing { stats: hosted.machine().stats(), completed_at: completed_at(hosted.told()) }
}

/// When the last file was whole, if all are.
fn completed_at(told: &Told<ReceiverEvent>) -> Option<Instant> {
    let completed = |event: &ReceiverEvent| matches!(event, ReceiverEvent::SessionCompleted { refused: 0 });
    told.iter().rev().find(|(_, event)| completed(event)).map(|(at, _)| *at)
}

/// Puts a session into the network.
pub(super) fn deploy(
    site: &mut Site<'_>,
    flow: &Flow,
    fixed: &FixedSession,
) -> Result<(Ports, Vec<AgentId>, Ends), RunError> {
    let Receivers::Group(members) = &flow.to else { return Err(RunError::flow(flow, &"it has no group")) };
    let content = content(site, flow, fixed);
    let sender = sender(flow, fixed, &content).map_err(|reason| RunError::flow(flow, &reason))?;
    let id = site.network.flow(&flow.name);
    let session = site.network.session(&flow.name, site.nodes[flow.from], 1);
    let ports = Ports { flow: id, session, header_bytes: fixed.header_bytes };
    let source = site.network.agent(
        &format!("{}/source", flow.name),
        site.nodes[flow.from],
        Hosted::new(sender, ports),
    );
    site.add(flow.from, source);
    site.runs(source, flow);
    let originals = (!fixed.decodes).then(|| Originals::new([(FILE.to_owned(), content)]));
    let receivers =
        members.iter().map(|member| receive(site, flow, member, ports, originals.as_ref(), fixed.size));
    let receivers = receivers.collect();
    let joins = members.iter().map(|member| Instant::ZERO + member.join).collect();
    let ends = Ends { symbol_bytes: fixed.symbol_bytes.into(), decodes: fixed.decodes, joins };
    Ok((ports, receivers, ends))
}

fn receive(
    site: &mut Site<'_>,
    flow: &Flow,
    member: &Member,
    ports: Ports,
    originals: Option<&Rc<Originals>>,
    size: u64,
) -> AgentId {
    let at = Instant::ZERO + member.join;
    let config = ReceiverConfig::default();
    match originals {
        Some(originals) => {
            let store = KnownStore::new(originals);
            let machine = Receiver::new(config, fixed::Receiver::new(), store, at);
            site.member(flow, member, Hosted::new(machine, ports))
        }
        None => {
            let machine = Receiver::new(config, fixed::Receiver::new(), MemoryStore::new(size), at);
            site.member(flow, member, Hosted::new(machine, ports))
        }
    }
}

fn content(site: &Site<'_>, flow: &Flow, fixed: &FixedSession) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(fixed.size).unwrap_or(usize::MAX)];
    site.stream(&format!("{}/content", flow.name)).fill_bytes(&mut content);
    content
}

fn sender(
    flow: &Flow,
    fixed: &FixedSession,
    content: &[u8],
) -> Result<Sender<fixed::Sender, MemorySource>, String> {
    let path = RelativePath::new(FILE).map_err(|error| error.to_string())?;
    let scheme = match fixed.code {
        Code::None => Scheme::NoCode,
        Code::ReedSolomon => Scheme::ReedSolomon,
        Code::RaptorQ => Scheme::RaptorQ,
    };
    let order = Order::Spread { rate: fixed.rate.as_bits() };
    let config = PlanConfig { scheme, symbol_size: fixed.symbol_bytes, order };
    let file = FileToSend { path, bytes: fixed.size, mode: None };
    let plan = SessionPlan::new(vec![file], config).map_err(|error| error.to_string())?;
    let source = MemorySource::new(&plan, &[content]);
    let digests = source.digests();
    let end = fixed.passes.map_or(End::Never, End::Passes);
    let control = fixed::Sender::new(fixed.rate, Instant::ZERO + flow.start);
    Sender::new(SenderConfig::new(1).with_end(end), &plan, &digests, control, source)
        .map_err(|error| error.to_string())
}
