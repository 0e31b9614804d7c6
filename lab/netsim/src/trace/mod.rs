//! Observation of a run's events: a digest of all events, or an observer that writes a trace. Without
//! observers, tracing costs nothing. Observation changes nothing: observers draw no random numbers and
//! schedule no events.
//!
//! Digest of a run: equal for equal traces, on every machine and in every build.
//!
//! Every link and every agent has a running hash of its events. The digest is BLAKE3 over these hashes, each
//! with the element's name, in the order of names. So the digest does not depend on the order in which
//! independent elements were declared.

mod pcap;

use std::any::Any;
use std::io::Write;
use std::{fmt, io};

use headwater_proto::eventlog::{Event, write_header, write_record};
use headwater_proto::queue::DropReason;
use headwater_proto::{Ecn, Instant};

pub use pcap::Pcap;

use crate::engine::{Packet, Run};
use crate::network::{AgentId, DropCause, GroupId, LinkId, Names};

/// Event of a packet on a direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The queue accepted the packet.
    Taken,
    /// The queue marked and accepted the packet.
    Marked,
    /// The packet was dropped or lost.
    Dropped(DropCause),
    /// The packet reached the far end.
    Delivered,
}

/// A packet on a direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct OnLink<'a> {
    /// Direction of the link.
    pub link: LinkId,
    /// Event of the packet.
    pub event: LinkEvent,
    /// Packet of the event.
    pub packet: &'a Packet,
    /// Payload of the packet, if a datagram.
    pub payload: &'a [u8],
    /// ECN field of the packet.
    pub ecn: Ecn,
}

/// Event of an agent.
#[derive(Clone, Copy, Debug)]
pub enum AgentEvent<'a> {
    /// The agent received a packet.
    Received(&'a Packet, Ecn),
    /// The agent joined a group.
    Joined(GroupId),
    /// The agent left a group.
    Left(GroupId),
}

/// Observer of all events, in the order of the simulation. An observer returned by [`Run::take_observers`] is
/// recovered by its type, `(observer as Box<dyn Any>).downcast()`.
///
/// [`Run::take_observers`]: crate::engine::Run::take_observers
pub trait Observer: Any {
    /// Something happened to a packet on a link.
    fn on_link(&mut self, at: Instant, what: &OnLink<'_>);

    /// Something happened at an agent.
    fn on_agent(&mut self, at: Instant, agent: AgentId, event: AgentEvent<'_>);
}

/// All observers of a run.
#[derive(Default)]
pub(crate) struct Watchers {
    pub(crate) digest: Option<Box<Digest>>,
    pub(crate) observers: Vec<Box<dyn Observer>>,
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers")
            .field("digest", &self.digest)
            .field("observers", &self.observers.len())
            .finish()
    }
}

impl Watchers {
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.digest.is_some() || !self.observers.is_empty()
    }

    /// All observers, the digest first.
    fn all(&mut self) -> impl Iterator<Item = &mut dyn Observer> {
        let digest = self.digest.as_deref_mut().map(|digest| digest as &mut dyn Observer);
        digest.into_iter().chain(self.observers.iter_mut().map(|observer| &mut **observer))
    }

    pub(crate) fn on_link(&mut self, at: Instant, what: &OnLink<'_>) {
        self.all().for_each(|observer| observer.on_link(at, what));
    }

    pub(crate) fn on_agent(&mut self, at: Instant, agent: AgentId, event: AgentEvent<'_>) {
        self.all().for_each(|observer| observer.on_agent(at, agent, event));
    }
}

#[derive(Debug)]
pub(crate) struct Digest {
    links: Vec<u64>,
    agents: Vec<u64>,
    /// Hashes of the names of flows and groups, used in place of indices.
    flows: Vec<u64>,
    groups: Vec<u64>,
}

impl Digest {
    pub(crate) fn new(names: &Names) -> Self {
        let hash =
            |name: &str| mix(0, u64::from_le_bytes(first_bytes(blake3::hash(name.as_bytes()).as_bytes())));
        Self {
            links: vec![0; names.links.len()],
            agents: vec![0; names.agents.len()],
            flows: names.flows.iter().map(|name| hash(name)).collect(),
            groups: names.groups.iter().map(|name| hash(name)).collect(),
        }
    }

    pub(crate) fn finish(&self, names: &Names) -> [u8; 32] {
        let of = |kind: u8, names: &[Box<str>], hashes: &[u64]| -> Vec<(u8, Box<str>, u64)> {
            names.iter().zip(hashes).map(|(name, hash)| (kind, name.clone(), *hash)).collect()
        };
        let mut elements = of(0, &names.links, &self.links);
        elements.extend(of(1, &names.agents, &self.agents));
        elements.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        for (kind, name, hash) in elements {
            hasher.update(&[kind]);
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&hash.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

impl Observer for Digest {
    fn on_link(&mut self, at: Instant, what: &OnLink<'_>) {
        let OnLink { link, event, packet, payload, ecn } = *what;
        let code = match event {
            LinkEvent::Taken => 1,
            LinkEvent::Marked => 2,
            LinkEvent::Delivered => 3,
            LinkEvent::Dropped(drop) => 16 + drop_code(drop),
        };
        // The payload is hashed once per packet.
        let content = if event == LinkEvent::Taken { fold(payload) } else { 0 };
        let hash = &mut self.links[link.index()];
        *hash = mix(*hash, at.as_nanos());
        *hash = mix(*hash, self.flows[packet.flow.index()] ^ packet.sequence);
        *hash = mix(*hash, code << 8 | ecn as u64);
        *hash = mix(*hash, u64::from(packet.wire_bytes) ^ content);
    }

    fn on_agent(&mut self, at: Instant, agent: AgentId, event: AgentEvent<'_>) {
        let (what, whom) = match event {
            AgentEvent::Received(packet, ecn) => {
                (4 << 8 | ecn as u64, self.flows[packet.flow.index()] ^ packet.sequence)
            }
            AgentEvent::Joined(group) => (5 << 8, self.groups[group.index()]),
            AgentEvent::Left(group) => (6 << 8, self.groups[group.index()]),
        };
        let hash = &mut self.agents[agent.index()];
        *hash = mix(*hash, at.as_nanos());
        *hash = mix(*hash, what);
        *hash = mix(*hash, whom);
    }
}

const fn drop_code(drop: DropCause) -> u64 {
    use headwater_proto::queue::DropReason;
    match drop {
        DropCause::Queue(DropReason::Full) => 0,
        DropCause::Queue(DropReason::Early) => 1,
        DropCause::Queue(DropReason::Forced) => 2,
        DropCause::Lost => 3,
        DropCause::Corrupted => 4,
        DropCause::Down => 5,
    }
}

/// A step of the running hash: the finalizer of SplitMix64 over state and value.
const fn mix(state: u64, value: u64) -> u64 {
    let mut z = state.rotate_left(23) ^ value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn fold(payload: &[u8]) -> u64 {
    payload.chunks(8).fold(0, |hash, chunk| mix(hash, u64::from_le_bytes(first_bytes(chunk))))
}

/// The first 8 bytes, zeros behind.
fn first_bytes(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(bytes) {
        *to = *from;
    }
    first
}

/// Writes JSON text sequences in qlog's main schema, see [`headwater_proto::eventlog`]. The end of a join or
/// leave is the agent; a drop or mark has no end. A failed write ends the log; see [`EventLog::finish`].
pub struct EventLog<W: Write> {
    names: Names,
    buffer: Vec<u8>,
    out: io::Result<W>,
}

impl<W: Write> fmt::Debug for EventLog<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").finish_non_exhaustive()
    }
}

impl<W: Write> EventLog<W> {
    /// Creates a log of `run` called `title`; the header is written at once.
    pub fn new(run: &Run, title: &str, out: W) -> Self {
        let mut log = Self { names: run.names().clone(), buffer: Vec::new(), out: Ok(out) };
        write_header(&mut log.buffer, title, None);
        log.flush();
        log
    }

    /// Ends the log and returns the writer.
    ///
    /// # Errors
    ///
    /// The first write that failed.
    pub fn finish(self) -> io::Result<W> {
        self.out
    }

    fn flush(&mut self) {
        if let Ok(out) = &mut self.out
            && let Err(error) = out.write_all(&self.buffer)
        {
            self.out = Err(error);
        }
        self.buffer.clear();
    }

    /// Returns a session's name and channel, from `<session>/<channel>`.
    fn group(&self, group: GroupId) -> (String, u16) {
        let name = &*self.names.groups[group.index()];
        let (session, channel) = name.rsplit_once('/').unwrap_or((name, "0"));
        (session.to_owned(), channel.parse().unwrap_or_default())
    }
}

const fn reason(drop: DropCause) -> &'static str {
    match drop {
        DropCause::Queue(DropReason::Full) => "full",
        DropCause::Queue(DropReason::Early) => "early",
        DropCause::Queue(DropReason::Forced) => "forced",
        DropCause::Lost => "lost",
        DropCause::Corrupted => "corrupted",
        DropCause::Down => "down",
    }
}

impl<W: Write + 'static> Observer for EventLog<W> {
    fn on_link(&mut self, at: Instant, what: &OnLink<'_>) {
        let OnLink { link, event, packet, .. } = *what;
        let (link, flow) = (&*self.names.links[link.index()], &*self.names.flows[packet.flow.index()]);
        let sequence = packet.sequence;
        let event = match event {
            LinkEvent::Dropped(drop) => Event::PacketDropped { link, flow, sequence, reason: reason(drop) },
            LinkEvent::Marked => Event::PacketMarked { link, flow, sequence },
            LinkEvent::Taken | LinkEvent::Delivered => return,
        };
        write_record(&mut self.buffer, at, None, &event);
        self.flush();
    }

    fn on_agent(&mut self, at: Instant, agent: AgentId, event: AgentEvent<'_>) {
        let event = match event {
            AgentEvent::Joined(group) => {
                let (group, channel) = self.group(group);
                Event::ChannelJoined { channel, group }
            }
            AgentEvent::Left(group) => Event::ChannelLeft { channel: self.group(group).1 },
            AgentEvent::Received(..) => return,
        };
        write_record(&mut self.buffer, at, Some(&self.names.agents[agent.index()]), &event);
        self.flush();
    }
}
