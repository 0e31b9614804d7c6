//! Observation of a run's events: a digest of all events, or an observer that writes a trace. Without
//! observers, tracing costs nothing. Observation changes nothing: observers draw no random numbers and
//! schedule no events.

mod digest;
mod event_log;
mod pcap;

use std::any::Any;
use std::fmt;

use headwater_proto::{Ecn, Instant};

use crate::engine::Packet;
use crate::network::{AgentId, Drop, GroupId, LinkId};

pub(crate) use digest::Digest;
pub use event_log::EventLog;
pub use pcap::Pcap;

/// Event of a packet on a direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The queue accepted the packet.
    Taken,
    /// The queue marked and accepted the packet.
    Marked,
    /// The packet was dropped or lost.
    Dropped(Drop),
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
