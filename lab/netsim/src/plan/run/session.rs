//! Headwater's own sessions in a plan: a sender and its receivers, with the machines that also run on
//! sockets.

use std::rc::Rc;

use headwater_fec::{Order, Scheme};
use headwater_proto::auth::{PublicKey, Signing, SigningConfig, StandIn, VerifyingConfig};
use headwater_proto::control::{ReceiverControl, Reception, SenderControl};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, End, FileToSend,
    MemorySource, MemoryStore, PlanConfig, ReceiverEvent, ReceiverStats, RelativePath, SessionPlan, Source,
    Store, Verifying,
};
use headwater_proto::queue::RANK_BITS_DEFAULT;
use headwater_proto::roster::{ReporterConfig, RosterConfig, RosterReporter, RosterSender};
use headwater_proto::{Instant, InterfaceId, Machine, Seed, sim};
use rand::Rng;

use super::RunError;
use super::Site;
use super::deploy::{Deployed, FlowEnds, MemberCounted};
use super::outcome::Criteria;
use crate::agent::{
    ControlReceiver, ControlSender, Hosted, KnownStore, MachineEvents, Originals, Ports, ZeroSource,
};
use crate::engine::Run;
use crate::network::{AgentId, NodeId};
use crate::plan::control::{ChosenReceiver, ChosenSender, ControlView, described_receiver};
use crate::plan::flow::{Code, Content, File, Flow, Member, Receivers, Session};

/// Name of a session's only file.
const FILE: &str = "content";
/// Identifier of each session: sessions differ by their groups.
const TSI: u32 = 1;
/// Key, start and secret of each signed session.
const KEY: PublicKey = [1; 32];
const STARTED: u32 = 1;
const SECRET: [u8; 32] = [2; 32];

type FileReceiver<S> = Hosted<DeliveryReceiver<ChosenReceiver, S>>;
type PacketReceiver = Hosted<ControlReceiver<ChosenReceiver>>;

/// Ends of a session.
struct SessionEnds {
    session: Session,
    /// Source symbols of the file.
    symbols: u64,
}

/// State of a receiver at an instant.
struct ReceiverState {
    /// Statistics of file delivery.
    stats: Option<ReceiverStats>,
    completed_at: Option<Instant>,
    reception: Reception,
    join_latency: Option<f64>,
    view: ControlView,
}

impl FlowEnds for SessionEnds {
    /// Bytes of symbols that receivers needed; `None` for a session without a file.
    fn good_bytes(&self, run: &Run, receivers: &[AgentId]) -> Option<u64> {
        self.session.file?;
        Some(self.stats(run, receivers).map(|stats| self.useful(&stats)).sum())
    }

    fn duplicates(&self, run: &Run, receivers: &[AgentId]) -> Option<u64> {
        self.session.file?;
        Some(self.stats(run, receivers).map(|stats| stats.duplicates).sum())
    }

    fn read_member(&self, run: &Run, receiver: AgentId, _: &Member, counted: &mut MemberCounted) {
        let Some(state) = self.receiver(run, receiver) else { return };
        if let Some(stats) = state.stats {
            counted.good_bytes = self.useful(&stats);
            counted.duplicates = stats.duplicates;
        }
        counted.reception = state.reception;
        counted.join_latency = state.join_latency;
        counted.view = state.view;
    }

    fn is_finite(&self) -> bool {
        self.session.file.is_some()
    }

    fn completion(&self, run: &Run, receiver: AgentId, member: &Member) -> Option<f64> {
        let at = self.receiver(run, receiver)?.completed_at?;
        Some(at.since(Instant::ZERO + member.join).as_secs_f64())
    }

    /// The criteria of the sequencer's paper, means over the receivers that have all.
    fn criteria(&self, run: &Run, receivers: &[AgentId], members: &[Member]) -> Option<Criteria> {
        let file = self.session.file?;
        let of = |(receiver, member): (&AgentId, &Member)| {
            let time = self.completion(run, *receiver, member)?;
            let link_bytes = run.agent_counters(*receiver).received_wire_bytes;
            self.criteria_of(&self.receiver(run, *receiver)?, file, time, link_bytes)
        };
        let each: Vec<Criteria> = receivers.iter().zip(members).filter_map(of).collect();
        Criteria::mean(&each)
    }

    fn session(&self) -> Option<&Session> {
        Some(&self.session)
    }
}

impl SessionEnds {
    /// Statistics of the receivers of a file.
    fn stats(&self, run: &Run, receivers: &[AgentId]) -> impl Iterator<Item = ReceiverStats> {
        receivers.iter().filter_map(|receiver| self.receiver(run, *receiver)?.stats)
    }

    fn criteria_of(&self, state: &ReceiverState, file: File, time: f64, link_bytes: u64) -> Option<Criteria> {
        let stats = state.stats?;
        let Reception { packets, lost, .. } = state.reception;
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

    fn receiver(&self, run: &Run, receiver: AgentId) -> Option<ReceiverState> {
        let now = run.now();
        match self.session.file {
            None => run.agent::<PacketReceiver>(receiver).map(|hosted| {
                let control = hosted.machine().control();
                let (reception, view) = (control.reception(), control.view(now));
                let join_latency = hosted.mean_join_latency();
                ReceiverState { stats: None, completed_at: None, reception, join_latency, view }
            }),
            Some(file) if file.decodes => {
                run.agent::<FileReceiver<MemoryStore>>(receiver).map(|hosted| receiver_state(hosted, now))
            }
            Some(_) => {
                run.agent::<FileReceiver<KnownStore>>(receiver).map(|hosted| receiver_state(hosted, now))
            }
        }
    }
}

fn receiver_state<S: Store + 'static>(hosted: &FileReceiver<S>, now: Instant) -> ReceiverState {
    let machine = hosted.machine();
    ReceiverState {
        stats: Some(machine.stats()),
        completed_at: completed_at(hosted.events()),
        reception: machine.reception(),
        join_latency: hosted.mean_join_latency(),
        view: machine.control().view(now),
    }
}

/// Instant at which the last file was complete, if all files are.
fn completed_at(events: &MachineEvents<ReceiverEvent>) -> Option<Instant> {
    let completed = |event: &ReceiverEvent| matches!(event, ReceiverEvent::SessionCompleted { refused: 0 });
    events.iter().rev().find(|(_, event)| completed(event)).map(|(at, _)| *at)
}

/// Deploys a session in the network.
pub(super) fn deploy(site: &mut Site<'_>, flow: &Flow, session: &Session) -> Result<Deployed, RunError> {
    let Receivers::Group(members) = &flow.to else { return Err(RunError::flow(flow, &"it has no group")) };
    let wrong = |reason: String| RunError::flow(flow, &reason);
    let start = Instant::ZERO + flow.start;
    let control = match session.reports {
        None => session.control.sender(&session.parameters, start),
        Some(follows) => session.control.described_sender(&session.parameters, start, follows),
    };
    let control = control.map_err(wrong)?;
    let id = site.network.flow(&flow.name);
    let (node, channels) = (site.nodes[flow.from], control.channels());
    let groups = match session.control.has_reports {
        true => site.network.aligned_session(&flow.name, node, channels, RANK_BITS_DEFAULT),
        false => site.network.session(&flow.name, node, channels),
    };
    let ports = Ports { flow: id, session: groups, header_bytes: session.header_bytes };
    let feedback = match session.control.has_reports || session.reports == Some(true) {
        true => site.ports_beside(flow, "feedback", ports),
        false => ports,
    };
    let mut deployment = Deployment { site, flow, session, channels, ports, feedback };
    deployment.routers();
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
    let ends = SessionEnds { session: *session, symbols };
    Ok(Deployed::new(ports.flow, receivers.map_err(wrong)?, members.clone(), Some(ports.session), ends))
}

/// Deployment of a session in progress.
struct Deployment<'a, 'b> {
    site: &'a mut Site<'b>,
    flow: &'a Flow,
    session: &'a Session,
    channels: u16,
    ports: Ports,
    /// Ports for packets that receivers send.
    feedback: Ports,
}

impl Deployment<'_, '_> {
    fn source<M: Machine<Event: 'static> + 'static>(&mut self, machine: M) {
        self.site.source(self.flow, machine, self.ports);
    }

    /// Puts routers that merge reports at their nodes.
    fn routers(&mut self) {
        if !self.session.control.has_reports {
            return;
        }
        let routers: Vec<NodeId> = self.flow.routers.iter().map(|node| self.site.nodes[*node]).collect();
        for (node, place) in self.flow.routers.iter().zip(&routers) {
            let name = format!("{}/aggregator/{}", self.flow.name, self.site.node_name(*node));
            let neighbours = self.site.network.neighbours(*place);
            let trusted =
                (0..).map(InterfaceId).zip(neighbours).filter(|(_, neighbour)| routers.contains(neighbour));
            let config = sim::RouterConfig::new(0, self.channels)
                .with_routers(trusted.map(|(link, _)| link).collect());
            let router = sim::AggregationRouter::new(config, self.seed(&name));
            let router = Hosted::router(router, self.feedback);
            self.site.router(*node, &name, router, [self.ports.flow, self.feedback.flow]);
        }
    }

    fn seed(&self, name: &str) -> Seed {
        Seed(self.site.stream(name).next_u64())
    }

    fn control(&self, member: &Member) -> Result<ChosenReceiver, String> {
        let seed = self.seed(&format!("{}/receiver/{}", self.flow.name, self.site.node_name(member.node)));
        if let Some(reports) = self.session.reports {
            return Ok(described_receiver(&member.limits, reports.then_some(seed)));
        }
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
                self.source(self.sender(file, plan, &ZeroSource::digests(plan), control, ZeroSource)?);
                Originals::zeros(FILE, file.size)
            }
            Content::Random => {
                let content = self.content(file);
                let source = MemorySource::new(plan, &[&content]);
                let digests = source.digests();
                self.source(self.sender(file, plan, &digests, control, source)?);
                Originals::new([(FILE.to_owned(), content)])
            }
        };
        members.iter().map(|member| self.receive(member, file, &originals)).collect()
    }

    fn receive(&mut self, member: &Member, file: File, originals: &Rc<Originals>) -> Result<AgentId, String> {
        let at = Instant::ZERO + member.join;
        let config = DeliveryReceiverConfig::default();
        let control = self.control(member)?;
        Ok(if file.decodes {
            let machine = DeliveryReceiver::new(config, control, MemoryStore::new(file.size), at);
            let machine = machine.with_verifying(self.verifying(member)).with_reporter(self.reporter(member));
            self.site.member(self.flow, member, Hosted::new(machine, self.feedback))
        } else {
            let machine = DeliveryReceiver::new(config, control, KnownStore::new(originals), at);
            let machine = machine.with_verifying(self.verifying(member)).with_reporter(self.reporter(member));
            self.site.member(self.flow, member, Hosted::new(machine, self.feedback))
        })
    }

    /// Returns the check of a receiver that knows the sender's key.
    fn verifying(&self, member: &Member) -> Option<Verifying> {
        let name = format!("{}/verifying/{}", self.flow.name, self.site.node_name(member.node));
        let config = VerifyingConfig::new(vec![KEY], self.channels);
        self.session.is_signed.then(|| Verifying::new(config, Box::new(StandIn(KEY)), self.seed(&name)))
    }

    /// Returns the reports of a receiver to the sender's roster.
    fn reporter(&self, member: &Member) -> Option<RosterReporter> {
        let name = format!("{}/reporter/{}", self.flow.name, self.site.node_name(member.node));
        let mut stream = self.site.stream(&name);
        let config = ReporterConfig::new(stream.next_u64(), Seed(stream.next_u64()));
        (self.session.reports == Some(true)).then(|| RosterReporter::new(config))
    }

    fn sender<S: Source>(
        &self,
        file: File,
        plan: &SessionPlan,
        digests: &[Vec<headwater_proto::delivery::Digest>],
        control: ChosenSender,
        source: S,
    ) -> Result<DeliverySender<ChosenSender, S>, String> {
        let end = file.passes.map_or(End::Never, End::Passes);
        let config = DeliverySenderConfig::new(TSI).with_end(end);
        let signing = || {
            let config = SigningConfig::new(TSI.into(), STARTED, self.channels, SECRET);
            Signing::new(config, Box::new(StandIn(KEY)))
        };
        let sender = DeliverySender::new(config, plan, digests, control, source);
        let sender = sender.map_err(|error| error.to_string())?;
        let has_roster = self.session.reports == Some(true);
        let roster = has_roster.then(|| RosterSender::new(RosterConfig::new(), SECRET));
        Ok(sender.with_signing(self.session.is_signed.then(signing)).with_roster(roster, plan))
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
