//! The flows of a plan: TCP, constant and on-off traffic, short connections, sessions of Headwater's
//! protocols, single rates.
//!
//! A new kind is a variant of [`FlowKind`], a line of `KINDS`, and a reader; `run/deploy.rs` deploys each
//! kind.

mod rainbow;
mod session;
mod single_rate;
mod tcp;
mod udp;

use std::collections::BTreeSet;

use headwater_proto::{Duration, controls};

pub use rainbow::Rainbow;
pub use session::{Code, Content, File, MOVERS, Session, TOOLS, Transfer, is_by_unicast};
pub use single_rate::{Baseline, BaselineControl, LeSbcc};
pub(crate) use tcp::check_common as check_tcp;
pub use tcp::{ShortTcp, Tcp};
pub use udp::{Cbr, OnOff, Period};

use super::control::{LIMITS, Limits, PlanControl};
use super::problem::Span;
use super::run::MEMBERS_MAX;
use super::section::Section;
use super::topology::{Topology, named};
use super::tree::{Entry, Node, Value};
use super::value::FromNode;
use super::{problem, topology};
use crate::engine::core::Core;
use crate::tcp::Data;

/// Maximum number of flows of a plan, each instance counted.
pub const FLOWS_MAX: u64 = 100_000;

/// Keys that every flow has.
const COMMON_KEYS: &[&str] =
    &["kind", "from", "to", "receivers", "count", "start", "stop", "join", "leave", "member"];
/// Key for nodes whose routers aggregate NAKs or reports; only some kinds have this key.
const AGGREGATE: &str = "aggregate";
/// Key for nodes whose routers follow breadcrumbs; only some kinds have this key.
const ROUTERS: &str = "routers";

/// A kind's name, its keys beside the common keys, and its reader.
type Kind = (&'static str, &'static [&'static [&'static str]], ReadKind);

/// Reads a flow from the plan (for `[tcp]`) and the flow's own table.
type ReadKind = fn(&Section<'_>, &Section<'_>) -> Option<FlowKind>;

/// Kind of a session, which has the keys of all controls, too.
const SESSION: &str = "session";

const KINDS: &[Kind] = &[
    ("tcp", &[tcp::SWITCHES, tcp::KEYS], tcp::read),
    ("short-tcp", &[tcp::SWITCHES, tcp::SHORT_KEYS], tcp::read_short),
    ("cbr", &[udp::CBR_KEYS], udp::read_cbr),
    ("on-off", &[udp::CBR_KEYS, udp::ON_OFF_KEYS], udp::read_on_off),
    (controls::FIXED.name, &[session::FILE_KEYS, session::FIXED_KEYS], session::read_fixed),
    (SESSION, &[session::FILE_KEYS, session::KEYS, LIMITS], session::read),
    (single_rate::CONTROL.name, &[single_rate::KEYS], single_rate::read),
    ("tfmcc", &[single_rate::TFMCC_KEYS], single_rate::read_tfmcc),
    ("pgmcc", &[single_rate::PGMCC_KEYS], single_rate::read_pgmcc),
    (controls::RAINBOW.name, &[rainbow::KEYS], rainbow::read),
    ("transfer", &[session::TRANSFER_KEYS], session::read_transfer),
];

/// A flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name in results: the name in the plan, with `-1`, `-2`.. appended if the plan asks for several.
    pub name: String,
    /// Name in the plan: results sum up the flows of a group.
    pub group: String,
    /// Kind of flow.
    pub kind: FlowKind,
    /// The node that sends, an index into the scenario's nodes.
    pub from: usize,
    /// Receivers of the flow.
    pub to: Receivers,
    /// Start of the flow.
    pub start: Duration,
    /// Stop of the flow, if before the end of the run.
    pub stop: Option<Duration>,
    /// Nodes with routers that serve the flow: the routers forward only the first NAK for each packet, merge
    /// reports of SIM, or follow breadcrumbs.
    pub routers: Vec<usize>,
}

impl Flow {
    /// Number of receivers that are read individually for a series.
    pub(crate) fn members_read(&self) -> usize {
        match (&self.kind, &self.to) {
            (FlowKind::Session(_), Receivers::Group(members)) if members.len() <= MEMBERS_MAX => {
                members.len()
            }
            _ => 0,
        }
    }
}

/// Kind of a flow, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// A TCP connection.
    Tcp(Tcp),
    /// Short TCP connections that come at random.
    ShortTcp(ShortTcp),
    /// Packets at a constant rate.
    Cbr(Cbr),
    /// Packets at a constant rate, in bursts.
    OnOff(OnOff),
    /// A session of Headwater's own protocols.
    Session(Session),
    /// PGM under LE-SBCC.
    LeSbcc(LeSbcc),
    /// TFMCC or PGMCC.
    Baseline(Baseline),
    /// Rainbow.
    Rainbow(Rainbow),
    /// A file by a program of a testbed.
    Transfer(Transfer),
}

impl FlowKind {
    /// Name in plans and results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::ShortTcp(_) => "short-tcp",
            Self::Cbr(_) => "cbr",
            Self::OnOff(_) => "on-off",
            Self::Session(session) => session.control.name,
            Self::LeSbcc(_) => single_rate::CONTROL.name,
            Self::Baseline(flow) => flow.control.name(),
            Self::Rainbow(_) => controls::RAINBOW.name,
            Self::Transfer(transfer) => transfer.by,
        }
    }

    /// Whether the transfer is finite.
    pub(crate) fn ends(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.data != Data::Greedy,
            Self::Session(session) => session.file.is_some(),
            Self::LeSbcc(flow) => flow.packets.is_some(),
            Self::Rainbow(flow) => flow.packets.is_some(),
            Self::Transfer(_) => true,
            Self::ShortTcp(_) | Self::Cbr(_) | Self::OnOff(_) | Self::Baseline(_) => false,
        }
    }

    /// Whether the kind allows a group of receivers, and whether the kind requires a group.
    fn casts(&self) -> (bool, bool) {
        match self {
            Self::Tcp(_) | Self::ShortTcp(_) => (false, false),
            Self::Cbr(_) | Self::OnOff(_) | Self::LeSbcc(_) | Self::Baseline(_) | Self::Rainbow(_) => {
                (true, false)
            }
            Self::Session(_) | Self::Transfer(_) => (true, true),
        }
    }
}

/// Receivers of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Receivers {
    /// A single node.
    Node(usize),
    /// A multicast group.
    Group(Vec<Member>),
}

/// A receiver of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Node of the receiver.
    pub node: usize,
    /// Time at which the receiver joins.
    pub join: Duration,
    /// Time at which the receiver leaves, if before the end.
    pub leave: Option<Duration>,
    /// Limits given to the receiver's congestion control.
    pub limits: Limits,
}

/// Reads `[flow.*]`; `[tcp]` holds defaults for all TCP flows.
pub(crate) fn read(plan: &Section<'_>, topology: &Topology) -> Vec<Flow> {
    let reader = Reader { plan, topology };
    let mut flows: Vec<Flow> = Vec::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut room = Room::new(topology);
    for (group, entry) in named(plan, "flow") {
        for flow in reader.group(group, entry, FLOWS_MAX.saturating_sub(flows.len() as u64)) {
            if taken.insert(flow.name.clone()) {
                if let Err(message) = room.take(&flow) {
                    plan.problem(&entry.key, message);
                }
                flows.push(flow);
            } else {
                let message = format!("two flows would be called '{}'; choose another name", flow.name);
                plan.problem(&entry.key, message);
            }
        }
    }
    if flows.is_empty() && plan.context.problems.is_empty() {
        plan.problem(&plan.span, "the plan has no flows: give it [flow.NAME] tables");
    }
    flows
}

struct Reader<'a, 'b> {
    plan: &'a Section<'b>,
    topology: &'a Topology,
}

impl Reader<'_, '_> {
    /// Reads the flows of a `[flow.NAME]` table.
    fn group(&self, group: &str, entry: &Entry, room: u64) -> Vec<Flow> {
        let Some((keys, read)) = self.kind(group, entry) else { return Vec::new() };
        let section = |name: &str| {
            Section::of_node(self.plan.context, &entry.node, &entry.key, format!("flow.{name}"), &keys)
        };
        let Some(first) = section(group) else { return Vec::new() };
        let count = match first.node("count") {
            None => return self.flow(&first, group, group, None, read).into_iter().collect(),
            Some(_) => first.within("count", &(1..=FLOWS_MAX)).unwrap_or(0),
        };
        if count > room {
            first.problem_at("count", format!("a plan has at most {FLOWS_MAX} flows"));
            return Vec::new();
        }
        let instance = |number: u64| {
            let name = format!("{group}-{number}");
            self.flow(&section(&name)?, &name, group, Some(number), read)
        };
        (1..=count).filter_map(instance).collect()
    }

    fn kind(&self, group: &str, entry: &Entry) -> Option<(Vec<&'static str>, ReadKind)> {
        let Value::Table(table) = &entry.node.value else {
            let kind = entry.node.value.kind();
            self.plan.problem(&entry.node.span, format!("'flow.{group}' must be a table, not {kind}"));
            return None;
        };
        let names = || KINDS.iter().map(|(name, ..)| *name);
        let Some(written) = table.entries.get("kind") else {
            let message =
                format!("'kind' is missing; it is one of {}", names().collect::<Vec<_>>().join(", "));
            self.plan.problem(&entry.key, message);
            return None;
        };
        let word = match &written.node.value {
            Value::Text(word) => word.as_str(),
            _ => "",
        };
        let Some((name, keys, read)) = KINDS.iter().find(|(name, ..)| *name == word) else {
            let hint = problem::hint(word, names());
            self.plan.problem(&written.node.span, format!("'{word}' is no kind of flow{hint}"));
            return None;
        };
        let of_controls = if *name == SESSION { PlanControl::all_keys() } else { Vec::new() };
        Some(([COMMON_KEYS, &keys.concat(), &of_controls].concat(), *read))
    }

    fn flow(
        &self,
        section: &Section<'_>,
        name: &str,
        group: &str,
        number: Option<u64>,
        read: ReadKind,
    ) -> Option<Flow> {
        let kind = read(self.plan, section);
        let start = section.or("start", Duration::ZERO);
        let stop: Option<Duration> = section.get("stop");
        if stop.is_some_and(|stop| stop <= start) {
            section.problem_at("stop", "a flow must stop after it starts");
        }
        section.need::<String>("from")?;
        let from = self.end(section, "from", number);
        let kind = kind?;
        let to = self.receivers(section, &kind, number);
        let (from, to) = (from?, to?);
        self.check_ends(section, from, &to);
        let routers = match kind {
            FlowKind::LeSbcc(_) | FlowKind::Session(_) if section.knows(AGGREGATE) => {
                self.nodes(section, AGGREGATE, number)?.0
            }
            FlowKind::Rainbow(_) => self.nodes(section, ROUTERS, number)?.0,
            _ => Vec::new(),
        };
        if matches!(kind, FlowKind::Rainbow(_)) && routers.contains(&from) {
            section.problem_at(ROUTERS, "the node that sends needs no router");
        }
        Some(Flow { name: name.into(), group: group.into(), kind, from, to, start, stop, routers })
    }

    /// The node under `key`, in which `{i}` stands for the number of the instance.
    fn end(&self, section: &Section<'_>, key: &'static str, number: Option<u64>) -> Option<usize> {
        let (written, span) = section.texts(key).into_iter().next()?;
        match number {
            Some(number) => {
                let name = written.replace("{i}", &number.to_string());
                topology::node(section.context, self.topology, &name, &span)
            }
            None if written.contains("{i}") => {
                section.problem(&span, "'{i}' numbers the flows of a count; write count = 1 or leave it out");
                None
            }
            None => topology::node(section.context, self.topology, written, &span),
        }
    }

    fn receivers(&self, section: &Section<'_>, kind: &FlowKind, number: Option<u64>) -> Option<Receivers> {
        let (may_cast, must_cast) = kind.casts();
        match (section.node("to"), section.node("receivers")) {
            (Some(_), None) if !must_cast => {
                for key in ["join", "leave", "member"] {
                    if section.node(key).is_some() {
                        section.problem_at(key, format!("'{key}' is for flows with 'receivers'"));
                    }
                }
                self.end(section, "to", number).map(Receivers::Node)
            }
            (None, Some(_)) if may_cast => Some(Receivers::Group(self.members(section, kind, number)?)),
            _ => {
                let wanted = match (may_cast, must_cast) {
                    (false, _) => "one node in 'to'",
                    (true, true) => "nodes in 'receivers', such as [\"leaf-*\"]",
                    (true, false) => "either one node in 'to' or a multicast group in 'receivers'",
                };
                section.problem(&section.span, format!("a flow of kind {} has {wanted}", kind.name()));
                None
            }
        }
    }

    fn members(&self, section: &Section<'_>, kind: &FlowKind, number: Option<u64>) -> Option<Vec<Member>> {
        let (nodes, seen) = self.nodes(section, "receivers", number)?;
        if nodes.is_empty() {
            section.problem_at("receivers", "a group needs a receiver");
        }
        if let Some(own) = section.node("member") {
            self.check_members(section, own, &seen);
        }
        let keys = match kind {
            FlowKind::Session(session) => session.control.limits,
            _ => &[],
        };
        nodes.into_iter().map(|node| self.member(section, node, keys)).collect()
    }

    /// Returns the nodes under `key`, without duplicates: as written, and in order. `{i}` stands for the
    /// number of the instance.
    fn nodes(
        &self,
        section: &Section<'_>,
        key: &'static str,
        number: Option<u64>,
    ) -> Option<(Vec<usize>, BTreeSet<usize>)> {
        let mut nodes: Vec<usize> = Vec::new();
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        for (written, span) in section.texts(key) {
            let pattern = number.map(|number| written.replace("{i}", &number.to_string()));
            let found = self.matching(section, pattern.as_deref().unwrap_or(written), &span)?;
            nodes.extend(found.into_iter().filter(|node| seen.insert(*node)));
        }
        Some((nodes, seen))
    }

    /// The nodes of a pattern, or of two names with `..` between, in the order of the topology.
    fn matching(&self, section: &Section<'_>, pattern: &str, span: &Span) -> Option<Vec<usize>> {
        let named = |name: &str| topology::node(section.context, self.topology, name, span);
        if let Some((first, last)) = pattern.split_once("..") {
            let (first, last) = (named(first)?, named(last)?);
            if first > last {
                section.problem(span, format!("'{pattern}' is backwards"));
            }
            return Some((first..=last).collect());
        }
        if !pattern.contains('*') {
            return named(pattern).map(|node| vec![node]);
        }
        let nodes = self.topology.nodes.iter().enumerate();
        let found: Vec<usize> =
            nodes.filter(|(_, name)| problem::matches(pattern, name)).map(|(node, _)| node).collect();
        if found.is_empty() {
            section.problem(span, format!("no node is called like '{pattern}'"));
        }
        Some(found)
    }

    /// Reads a receiver's join and leave from `[flow.NAME.member.NODE]`, with the flow's values as defaults.
    /// `limits` are the further keys.
    fn member(&self, section: &Section<'_>, node: usize, limits: &[&'static str]) -> Option<Member> {
        let name = &self.topology.nodes[node];
        let path = format!("{}.member.{name}", section.path);
        let own = match section.node("member").map(|own| &own.value) {
            Some(Value::Table(table)) => table.entries.get(name.as_str()),
            _ => None,
        };
        let keys = [&["join", "leave"], limits].concat();
        // Under the receiver's own path, so that a random value common to all receivers is drawn for each.
        let common = section.under(&path);
        let own = match own {
            Some(entry) => Some(Section::of_node(section.context, &entry.node, &entry.key, &*path, &keys)?),
            None => None,
        };
        let time = |key| own.as_ref().and_then(|own| own.get(key)).or_else(|| common.get::<Duration>(key));
        let (join, leave) = (time("join").unwrap_or(Duration::ZERO), time("leave"));
        if leave.is_some_and(|leave| leave <= join) {
            own.as_ref()
                .unwrap_or(section)
                .problem_at("leave", format!("'{name}' must leave after it joins"));
        }
        let limits = Limits {
            max_rate: limit(&own, &common, limits, "cap"),
            rtt_hint: limit(&own, &common, limits, "rtt-hint"),
            rules: limit(&own, &common, limits, "rules"),
            cycle: limit(&own, &common, limits, "cycle"),
        };
        Some(Member { node, join, leave, limits })
    }

    fn check_members(&self, section: &Section<'_>, own: &Node, members: &BTreeSet<usize>) {
        let Value::Table(table) = &own.value else {
            section.problem(&own.span, format!("write [{}.member.NODE] for each", section.path));
            return;
        };
        for (name, entry) in table.in_order() {
            if !self.topology.node(name).is_some_and(|node| members.contains(&node)) {
                let receivers = members.iter().map(|node| self.topology.nodes[*node].as_str());
                let hint = problem::hint(name, receivers);
                section.problem(&entry.key, format!("'{name}' is no receiver of this flow{hint}"));
            }
        }
    }

    fn check_ends(&self, section: &Section<'_>, from: usize, to: &Receivers) {
        let is_sender = match to {
            Receivers::Node(node) => *node == from,
            Receivers::Group(members) => members.iter().any(|member| member.node == from),
        };
        if is_sender {
            section.problem_at("from", format!("'{}' would send to itself", self.topology.nodes[from]));
        }
    }
}

/// Value of a key, if the flow's kind has that key: the receiver's own value, else the flow's.
fn limit<T: FromNode>(
    own: &Option<Section<'_>>,
    common: &Section<'_>,
    keys: &[&'static str],
    key: &'static str,
) -> Option<T> {
    if !keys.contains(&key) {
        return None;
    }
    own.as_ref().and_then(|own| own.get(key)).or_else(|| common.get(key))
}

/// Maximum content of all sessions plus windows of all remaining flows in bytes, counted once for the sender
/// and once for each receiver with a copy.
const CONTENT_BYTES_MAX: u64 = 4 << 30;

/// Resources used by the flows so far.
pub(super) struct Room<'a> {
    topology: &'a Topology,
    /// By node: the ends of flows there.
    ends: Vec<usize>,
    content_bytes: u64,
}

impl<'a> Room<'a> {
    pub fn new(topology: &'a Topology) -> Self {
        Self { topology, ends: vec![0; topology.nodes.len()], content_bytes: 0 }
    }

    /// Adds a flow's resources, or returns a message if a limit is exceeded.
    pub fn take(&mut self, flow: &Flow) -> Result<(), String> {
        self.end(flow.from)?;
        match &flow.to {
            Receivers::Node(node) => self.end(*node)?,
            Receivers::Group(members) => members.iter().try_for_each(|member| self.end(member.node))?,
        }
        self.content_bytes = self.content_bytes.saturating_add(content_bytes(flow));
        if self.content_bytes > CONTENT_BYTES_MAX {
            return Err(match flow.kind {
                FlowKind::LeSbcc(_) => format!(
                    "windows take at most {CONTENT_BYTES_MAX} bytes together, once at the source and once at each receiver; \
                     write a smaller 'window' or 'payload-bytes'"
                ),
                _ => format!(
                    "sessions hold at most {CONTENT_BYTES_MAX} bytes of content together, once at the sender and, with \
                     decode = true, once at each receiver"
                ),
            });
        }
        Ok(())
    }

    fn end(&mut self, node: usize) -> Result<(), String> {
        self.ends[node] += 1;
        if self.ends[node] > Core::PORTS {
            let name = &self.topology.nodes[node];
            return Err(format!("more than {} flows begin or end at '{name}'; use more nodes", Core::PORTS));
        }
        Ok(())
    }
}

fn content_bytes(flow: &Flow) -> u64 {
    let receivers = match &flow.to {
        Receivers::Group(members) => members.len() as u64,
        Receivers::Node(_) => 1,
    };
    match &flow.kind {
        FlowKind::Session(Session { file: Some(file), .. }) => {
            let sender = u64::from(file.content == Content::Random);
            file.size.saturating_mul(sender + if file.decodes { receivers } else { 0 })
        }
        FlowKind::LeSbcc(flow) => flow.window_bytes(receivers),
        _ => 0,
    }
}
