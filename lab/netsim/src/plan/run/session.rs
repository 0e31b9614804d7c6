//! Headwater's own sessions in a plan: a sender and its receivers, with the machines that also run on
//! sockets.

use std::rc::Rc;

use headwater_fec::{Order, Scheme};
use headwater_proto::control::{ReceiverControl, Reception, SenderControl};
use headwater_proto::delivery::{
    End, FileToSend, MemorySource, MemoryStore, PlanConfig, Receiver, ReceiverConfig, ReceiverEvent,
    ReceiverStats, RelativePath, Sender, SenderConfig, SessionPlan, Source, Store,
};
use headwater_proto::queue::RANK_BITS_DEFAULT;
use headwater_proto::{Instant, InterfaceId, Machine, Seed, sim};
use rand::Rng;

use super::RunError;
use super::assemble::Site;
use super::outcome::{Criteria, SessionOutcome};
use crate::agent::{
    ControlReceiver, ControlSender, Hosted, KnownStore, Originals, Ports, RouterNode, Told, ZeroSource,
};
use crate::engine::Run;
use crate::network::AgentId;
use crate::plan::control::{ChosenReceiver, ChosenSender, View};
use crate::plan::flow::{Code, Content, File, Flow, Member, Receivers, Session};

/// Name of a session's only file.
const FILE: &str = "content";

type FileReceiver<S> = Hosted<Receiver<ChosenReceiver, S>>;
type PacketReceiver = Hosted<ControlReceiver<ChosenReceiver>>;

/// Agents of a session, from which counters are read.
pub(super) struct SessionEndpoints {
    session: Session,
    /// Source symbols of the file.
    symbols: u64,
    members: Vec<Member>,
}

/// State of a receiver at an instant.
struct Standing {
    /// Statistics of file delivery.
    stats: Option<ReceiverStats>,
    completed_at: Option<Instant>,
    reception: Reception,
    join_latency: Option<f64>,
    view: View,
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
    pub view: View,
}

impl SessionEndpoints {
    /// Whether counters of each receiver are kept: not of thousands.
    pub fn counts_members(&self) -> bool {
        self.members.len() <= super::outcome::MEMBERS_MAX
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The receivers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Counters of each receiver.
    pub fn count(&self, run: &Run, receivers: &[AgentId]) -> Vec<MemberCounted> {
        let count = |(receiver, member): (&AgentId, &Member)| {
            let agent = run.agent_counters(*receiver);
            let standing = self.standing(run, *receiver);
            let stats = standing.as_ref().and_then(|standing| standing.stats);
            MemberCounted {
                wire_bytes: agent.received_wire_bytes,
                good_bytes: stats.map_or(agent.received_payload_bytes, |stats| self.useful(&stats)),
                reception: standing.as_ref().map(|standing| standing.reception).unwrap_or_default(),
                joins: agent.joins,
                leaves: agent.leaves,
                duplicates: stats.map_or(0, |stats| stats.duplicates),
                completion: standing.as_ref().and_then(|standing| completion(standing, member)),
                join_latency: standing.as_ref().and_then(|standing| standing.join_latency),
                view: standing.map(|standing| standing.view).unwrap_or_default(),
            }
        };
        receivers.iter().zip(&self.members).map(count).collect()
    }

    /// Bytes of symbols that receivers needed; `None` for a session without a file.
    pub fn good_bytes(&self, run: &Run, receivers: &[AgentId]) -> Option<u64> {
        self.session.file?;
        let stats = receivers.iter().filter_map(|receiver| self.standing(run, *receiver)?.stats);
        Some(stats.map(|stats| self.useful(&stats)).sum())
    }

    /// Symbols that receivers had already.
    pub fn duplicates(&self, run: &Run, receivers: &[AgentId]) -> u64 {
        let stats = receivers.iter().filter_map(|receiver| self.standing(run, *receiver)?.stats);
        stats.map(|stats| stats.duplicates).sum()
    }

    /// Whether every receiver has all content.
    pub fn is_complete(&self, run: &Run, receivers: &[AgentId]) -> bool {
        let has_all = |receiver: &AgentId| {
            self.standing(run, *receiver).is_some_and(|standing| standing.completed_at.is_some())
        };
        self.session.file.is_some() && receivers.iter().all(has_all)
    }

    /// Outcome of the session as a whole.
    pub fn outcome(&self, run: &Run, receivers: &[AgentId], mut outcome: SessionOutcome) -> SessionOutcome {
        if self.session.file.is_none() {
            return outcome;
        }
        let (mut sum, mut longest, mut complete, mut duplicates) = (0.0, 0.0_f64, 0, 0);
        for (receiver, member) in receivers.iter().zip(&self.members) {
            let Some(standing) = self.standing(run, *receiver) else { continue };
            duplicates += standing.stats.map_or(0, |stats| stats.duplicates);
            if let Some(took) = completion(&standing, member) {
                (sum, longest, complete) = (sum + took, longest.max(took), complete + 1);
            }
        }
        outcome.complete = Some(complete);
        outcome.duplicates = Some(duplicates);
        outcome.mean_completion = (complete > 0).then(|| sum / complete as f64);
        outcome.longest_completion = (complete > 0).then_some(longest);
        outcome
    }

    /// The criteria of the sequencer's paper, means over the receivers that have all.
    pub fn criteria(&self, run: &Run, receivers: &[AgentId]) -> Option<Criteria> {
        let file = self.session.file?;
        let each: Vec<Criteria> = receivers
            .iter()
            .zip(&self.members)
            .filter_map(|(receiver, member)| {
                let standing = self.standing(run, *receiver)?;
                let time = completion(&standing, member)?;
                let link_bytes = run.agent_counters(*receiver).received_wire_bytes;
                self.criteria_of(&standing, file, time, link_bytes)
            })
            .collect();
        Criteria::mean(&each)
    }

    fn criteria_of(&self, standing: &Standing, file: File, time: f64, link_bytes: u64) -> Option<Criteria> {
        let stats = standing.stats?;
        let Reception { packets, lost, .. } = standing.reception;
        // Symbols of a block beyond the number needed to decode are not duplicates but overhead of the code.
        let fresh = (stats.useful + stats.surplus) as f64;
        let symbol = f64::from(self.session.symbol_bytes);
        let headers = f64::from(self.session.parameters.packet_bytes) - symbol;
        Some(Criteria {
            dup: Some((fresh + stats.duplicates as f64) / fresh - 1.0),
            sym: Some(fresh / self.symbols as f64 - 1.0),
            head: Some((headers + f64::from(self.session.header_bytes)) / symbol),
            ..Criteria::of_transfer(time, file.size, link_bytes, (lost, packets))
        })
    }

    fn useful(&self, stats: &ReceiverStats) -> u64 {
        stats.useful * u64::from(self.session.symbol_bytes)
    }

    fn standing(&self, run: &Run, receiver: AgentId) -> Option<Standing> {
        let now = run.now();
        match self.session.file {
            None => run.agent::<PacketReceiver>(receiver).map(|hosted| {
                let control = hosted.machine().control();
                let (reception, view) = (control.reception(), control.view(now));
                let join_latency = hosted.mean_join_latency();
                Standing { stats: None, completed_at: None, reception, join_latency, view }
            }),
            Some(file) if file.decodes => {
                run.agent::<FileReceiver<MemoryStore>>(receiver).map(|hosted| stand(hosted, now))
            }
            Some(_) => run.agent::<FileReceiver<KnownStore>>(receiver).map(|hosted| stand(hosted, now)),
        }
    }
}

fn stand<S: Store + 'static>(hosted: &FileReceiver<S>, now: Instant) -> Standing {
    let machine = hosted.machine();
    Standing {
        stats: Some(machine.stats()),
        completed_at: completed_at(hosted.told()),
        reception: machine.reception(),
        join_latency: hosted.mean_join_latency(),
        view: machine.control().view(now),
    }
}

/// Instant at which the last file was complete, if all files are.
fn completed_at(told: &Told<ReceiverEvent>) -> Option<Instant> {
    let completed = |event: &ReceiverEvent| matches!(event, ReceiverEvent::SessionCompleted { refused: 0 });
    told.iter().rev().find(|(_, event)| completed(event)).map(|(at, _)| *at)
}

/// Seconds from a receiver's join until its content was complete.
fn completion(standing: &Standing, member: &Member) -> Option<f64> {
    standing.completed_at.map(|at| at.since(Instant::ZERO + member.join).as_secs_f64())
}

/// Deploys a session in the network.
pub(super) fn deploy(
    site: &mut Site<'_>,
    flow: &Flow,
    session: &Session,
) -> Result<(Ports, Vec<AgentId>, SessionEndpoints), RunError> {
    let Receivers::Group(members) = &flow.to else { return Err(RunError::flow(flow, &"it has no group")) };
    let wrong = |reason: String| RunError::flow(flow, &reason);
    let start = Instant::ZERO + flow.start;
    let control = session.control.sender(&session.parameters, start).map_err(wrong)?;
    let id = site.network.flow(&flow.name);
    let (node, channels) = (site.nodes[flow.from], control.channels());
    let groups = match session.control.has_reports {
        true => site.network.aligned_session(&flow.name, node, channels, RANK_BITS_DEFAULT),
        false => site.network.session(&flow.name, node, channels),
    };
    let ports = Ports { flow: id, session: groups, header_bytes: session.header_bytes };
    // Reports of receivers are not part of the flow's rate.
    let feedback = match session.control.has_reports {
        true => Ports { flow: site.network.flow(&format!("{}/feedback", flow.name)), ..ports },
        false => ports,
    };
    let mut deployment = Deployment { site, flow, session, ports, feedback };
    deployment.routers(channels);
    let symbols;
    let receivers = match session.file {
        None => {
            symbols = 0;
            deployment.source(ControlSender::new(control, session.parameters.packet_bytes));
            members.iter().map(|member| deployment.listen(member)).collect::<Result<_, _>>()
        }
        Some(file) => {
            let plan = plan(session, file).map_err(wrong)?;
            symbols = plan.symbols();
            deployment.files(members, file, &plan, control)
        }
    };
    let ends = SessionEndpoints { session: *session, symbols, members: members.clone() };
    Ok((ports, receivers.map_err(wrong)?, ends))
}

/// Deployment of a session in progress.
struct Deployment<'a, 'b> {
    site: &'a mut Site<'b>,
    flow: &'a Flow,
    session: &'a Session,
    ports: Ports,
    /// Ports for packets that receivers send.
    feedback: Ports,
}

impl Deployment<'_, '_> {
    fn source<M: Machine<Event: 'static> + 'static>(&mut self, machine: M) {
        let node = self.site.nodes[self.flow.from];
        let name = format!("{}/source", self.flow.name);
        let source = self.site.network.agent(&name, node, Hosted::new(machine, self.ports));
        self.site.add(self.flow.from, source);
        self.site.runs(source, self.flow);
    }

    /// Puts routers that merge reports at their nodes.
    fn routers(&mut self, groups: u16) {
        if !self.session.control.has_reports {
            return;
        }
        for node in &self.flow.routers {
            let place = self.site.nodes[*node];
            let name =
                format!("{}/aggregator/{}", self.flow.name, self.site.network.names().nodes[place.index()]);
            let neighbours = self.site.network.neighbours(place);
            let is_router =
                |neighbour| self.flow.routers.iter().any(|node| self.site.nodes[*node] == neighbour);
            let trusted =
                (0..).map(InterfaceId).zip(neighbours).filter(|(_, neighbour)| is_router(*neighbour));
            let config =
                sim::RouterConfig::new(0, groups).with_routers(trusted.map(|(link, _)| link).collect());
            let router = sim::AggregationRouter::new(config, self.seed(&name));
            let agent = self.site.network.agent(&name, place, RouterNode::new(router, self.feedback));
            self.site.add(*node, agent);
            self.site.network.route(agent, self.ports.flow);
            self.site.network.route(agent, self.feedback.flow);
        }
    }

    fn seed(&self, name: &str) -> Seed {
        Seed(self.site.stream(name).next_u64())
    }

    fn control(&self, member: &Member) -> Result<ChosenReceiver, String> {
        let node = &self.site.network.names().nodes[self.site.nodes[member.node].index()];
        let seed = self.seed(&format!("{}/receiver/{node}", self.flow.name));
        self.session.control.receiver(&self.session.parameters, &member.limits, seed)
    }

    /// A receiver of packets.
    fn listen(&mut self, member: &Member) -> Result<AgentId, String> {
        let machine = ControlReceiver::new(self.control(member)?)
            .with_cci_bytes(self.session.control.cci_bytes)
            .with_cycle(member.limits.cycle);
        Ok(self.site.member(self.flow, member, Hosted::new(machine, self.feedback)))
    }

    /// A sender and receivers of a file.
    fn files(
        &mut self,
        members: &[Member],
        file: File,
        plan: &SessionPlan,
        control: ChosenSender,
    ) -> Result<Vec<AgentId>, String> {
        let originals = match file.content {
            Content::Zeros => {
                self.source(sender(file, plan, &ZeroSource::digests(plan), control, ZeroSource)?);
                Originals::zeros(FILE, file.size)
            }
            Content::Random => {
                let content = self.content(file);
                let source = MemorySource::new(plan, &[&content]);
                let digests = source.digests();
                self.source(sender(file, plan, &digests, control, source)?);
                Originals::new([(FILE.to_owned(), content)])
            }
        };
        members.iter().map(|member| self.receive(member, file, &originals)).collect()
    }

    fn receive(&mut self, member: &Member, file: File, originals: &Rc<Originals>) -> Result<AgentId, String> {
        let at = Instant::ZERO + member.join;
        let config = ReceiverConfig::default();
        let control = self.control(member)?;
        Ok(if file.decodes {
            let machine = Receiver::new(config, control, MemoryStore::new(file.size), at);
            self.site.member(self.flow, member, Hosted::new(machine, self.feedback))
        } else {
            let machine = Receiver::new(config, control, KnownStore::new(originals), at);
            self.site.member(self.flow, member, Hosted::new(machine, self.feedback))
        })
    }

    fn content(&self, file: File) -> Vec<u8> {
        let mut content = vec![0; usize::try_from(file.size).unwrap_or(usize::MAX)];
        self.site.stream(&format!("{}/content", self.flow.name)).fill_bytes(&mut content);
        content
    }
}

fn plan(session: &Session, file: File) -> Result<SessionPlan, String> {
    let path = RelativePath::new(FILE).map_err(|error| error.to_string())?;
    let scheme = match file.code {
        Code::None => Scheme::NoCode,
        Code::ReedSolomon => Scheme::ReedSolomon,
        Code::RaptorQ => Scheme::RaptorQ,
        Code::LdpcStaircase => Scheme::LdpcStaircase,
        Code::LdpcTriangle => Scheme::LdpcTriangle,
    };
    let order = Order::Spread { rate: session.parameters.max_rate.as_bits() };
    let config = PlanConfig { scheme, symbol_size: session.symbol_bytes, order };
    let file = FileToSend { path, bytes: file.size, mode: None, modified: None };
    SessionPlan::new(vec![file], config).map_err(|error| error.to_string())
}

fn sender<S: Source>(
    file: File,
    plan: &SessionPlan,
    digests: &[Vec<headwater_proto::delivery::Digest>],
    control: ChosenSender,
    source: S,
) -> Result<Sender<ChosenSender, S>, String> {
    let end = file.passes.map_or(End::Never, End::Passes);
    Sender::new(SenderConfig::new(1).with_end(end), plan, digests, control, source)
        .map_err(|error| error.to_string())
}
