//! Traffic on a bed: sessions of Headwater, the kernel's TCP, other tools.

pub(crate) mod content;
mod events;
mod session;
mod short;
mod tcp;
mod tools;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headwater_netsim::plan::Scenario;
use headwater_netsim::plan::flow::{Flow, FlowKind, Receivers, TOOLS};
use headwater_netsim::plan::run::{EndResults, FlowOutcome};

use crate::Error;
use crate::bed::Bed;
use crate::program::Program;
use crate::routing;

/// Ethernet and IPv4 headers of a frame; TCP and UDP headers are added.
pub(crate) const FRAME_HEADER_BYTES: u64 = 14 + 20;
/// Difference between the headers of IPv6 and of IPv4.
const IPV6_MORE_BYTES: u64 = 20;
/// UDP header.
pub(crate) const UDP_HEADER_BYTES: u64 = 8;

/// Context in which flows run.
pub(crate) struct Site<'a> {
    pub bed: &'a Bed,
    pub scenario: &'a Scenario,
    /// The program `headwater`.
    pub program: PathBuf,
    /// Driver program of NORM, if installed.
    pub norm: Option<PathBuf>,
    /// Start of the run.
    pub began: Instant,
    /// Command prefix that gives a program scheduling priority; empty if the kernel refuses priority.
    pub urgent: Vec<String>,
}

impl Site<'_> {
    /// Since the start of the run.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn node_name(&self, node: usize) -> &str {
        &self.scenario.topology.nodes[node]
    }

    pub fn address(&self, host: usize) -> std::net::Ipv4Addr {
        routing::address(self.bed.routing, &self.bed.shape, host)
    }

    /// Returns a host's address as the source of groups.
    pub fn group_source(&self, host: usize) -> IpAddr {
        routing::group_source(self.bed.routing, &self.bed.shape, host)
    }

    /// Returns the base group of a flow; channels are the next addresses, up to a thousand. IPv4 groups are
    /// source-specific; MLDv1 knows any-source groups alone.
    pub fn group(&self, number: usize) -> IpAddr {
        let offset = u32::try_from(number).unwrap_or(0) * 1_024;
        match self.bed.routing.protocol() {
            protocol if protocol.is_ipv6() => {
                let first = u128::from(std::net::Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0x4872, 1));
                std::net::Ipv6Addr::from(first + u128::from(offset)).into()
            }
            _ => {
                let first = u32::from(std::net::Ipv4Addr::new(232, 72, 0, 1));
                std::net::Ipv4Addr::from(first + offset).into()
            }
        }
    }

    /// Returns the bytes on the wire of a multicast packet's headers below UDP's payload.
    pub fn group_header_bytes(&self) -> u64 {
        let more = if self.bed.routing.protocol().is_ipv6() { IPV6_MORE_BYTES } else { 0 };
        FRAME_HEADER_BYTES + UDP_HEADER_BYTES + more
    }

    /// Starts a program on a host, with scheduling priority if allowed.
    pub fn start(&self, host: usize, name: &str, words: Vec<String>, input: bool) -> Result<Program, Error> {
        let words: Vec<String> = self.urgent.iter().cloned().chain(words).collect();
        let name = format!("{name}@{}", self.node_name(host));
        Program::start(&self.bed.network.namespace(host), &name, &self.bed.folder, &words, input)
    }

    /// Returns a folder of the bed, created if necessary.
    pub fn folder(&self, name: &str) -> Result<PathBuf, Error> {
        use crate::Tried;
        let folder = self.bed.folder.join(name);
        std::fs::create_dir_all(&folder).tried(|| format!("make the folder '{}'", folder.display()))?;
        Ok(folder)
    }

    /// The least rate of the links on a way, bit/s.
    pub fn bottleneck(&self, from: usize, to: usize) -> u64 {
        let rate = |link: &usize| {
            let link = &self.scenario.topology.links[*link];
            link.forward.rate.as_bits().min(link.back.rate.as_bits())
        };
        self.bed.shape.path(from, to).iter().map(rate).min().unwrap_or(u64::MAX)
    }
}

/// The window of a run that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub from: Duration,
    pub to: Duration,
}

/// A flow at work.
pub(crate) trait Traffic {
    /// Performs due work. Called every few milliseconds.
    ///
    /// # Errors
    ///
    /// If the flow cannot continue.
    fn tick(&mut self, site: &Site<'_>) -> Result<(), Error>;

    /// Whether the whole transfer has arrived.
    fn is_complete(&self) -> bool;

    /// Ends the flow. [`Self::outcome`] afterwards returns the results.
    fn stop(&mut self, site: &Site<'_>);

    /// Results of the flow.
    fn outcome(&mut self, site: &Site<'_>, window: Window) -> Result<FlowOutcome, Error>;

    /// Programs of the flow, whose resource usage is reported.
    fn programs(&mut self) -> Vec<&mut Program>;
}

/// Creates a flow of a plan on a bed. `number` is the flow's position in the plan.
pub(crate) fn of(site: &Site<'_>, number: usize, flow: &Flow) -> Result<Box<dyn Traffic>, Error> {
    let cannot = |why: &str| Err(Error::plan(format!("flow '{}' cannot run on a testbed: {why}", flow.name)));
    let is_left =
        matches!(&flow.to, Receivers::Group(members) if members.iter().any(|member| member.leave.is_some()));
    match &flow.kind {
        FlowKind::Tcp(tcp) => Ok(Box::new(tcp::TcpFlow::new(site, number, flow, tcp)?)),
        FlowKind::ShortTcp(short) => Ok(Box::new(short::ShortFlow::new(site, number, flow, short)?)),
        FlowKind::Session(planned) => Ok(Box::new(session::SessionFlow::of_session(number, flow, planned)?)),
        FlowKind::LeSbcc(planned) => Ok(Box::new(session::SessionFlow::of_messages(number, flow, planned)?)),
        FlowKind::Transfer(transfer) => match transfer.by {
            by if (by == "tcp" || TOOLS.contains(&by)) && (is_left || flow.stop.is_some()) => cannot(
                "only controls of 'headwater send' stop, or have receivers that leave, before the file is there",
            ),
            by if TOOLS.contains(&by) => Ok(Box::new(tools::ToolFlow::new(site, number, flow, *transfer)?)),
            "tcp" => Ok(Box::new(tcp::TcpFlow::to_each(site, number, flow, *transfer)?)),
            _ => Ok(Box::new(session::SessionFlow::of_transfer(number, flow, *transfer))),
        },
        FlowKind::Cbr(_) | FlowKind::OnOff(_) => cannot("constant and on-off traffic is the simulator's"),
        FlowKind::Baseline(_) => cannot("the baselines have no sockets"),
        FlowKind::Rainbow(_) => cannot(
            "numbered packets are the simulator's; a file by Rainbow is kind = \"transfer\", by = \"rainbow\"",
        ),
    }
}

/// Ports of sessions.
pub(crate) fn port(number: usize) -> u16 {
    7_300 + u16::try_from(number * 4).unwrap_or(0)
}

/// An outcome with only the flow's name, group and kind.
pub(crate) fn blank(flow: &Flow) -> FlowOutcome {
    FlowOutcome {
        name: flow.name.clone(),
        group: flow.group.clone(),
        kind: flow.kind.name(),
        send_rate: 0.0,
        throughput: 0.0,
        goodput: 0.0,
        loss: None,
        variation: None,
        ends: EndResults::default(),
        session: None,
        criteria: None,
        members: Vec::new(),
    }
}
