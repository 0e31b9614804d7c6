//! What happened, for those who want to know: a digest of it all, or an observer that writes a trace. Nothing
//! is spent on it when nobody watches, and watching changes nothing: observers draw no chance and schedule
//! nothing.

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

/// What happens to a packet on one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The queue took it.
    Taken,
    /// The queue marked it, and took it.
    Marked,
    /// It ended here.
    Dropped(Drop),
    /// It reached the far end.
    Delivered,
}

/// A packet on one direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct OnLink<'a> {
    /// Where.
    pub link: LinkId,
    /// What happens.
    pub event: LinkEvent,
    /// To which packet.
    pub packet: &'a Packet,
    /// Its payload, if it is a datagram.
    pub payload: &'a [u8],
    /// What its header says of congestion.
    pub ecn: Ecn,
}

/// What happens at an agent.
#[derive(Clone, Copy, Debug)]
pub enum AgentEvent<'a> {
    /// It got a packet.
    Received(&'a Packet, Ecn),
    /// It joined a group.
    Joined(GroupId),
    /// It left a group.
    Left(GroupId),
}

/// Who wants to know all that happens, in the order of the simulation. One that [`Run::take_observers`] gave
/// back is found again by its type, `(observer as Box<dyn Any>).downcast()`.
///
/// [`Run::take_observers`]: crate::engine::Run::take_observers
pub trait Observer: Any {
    /// Something happened to a packet on a link.
    fn on_link(&mut self, at: Instant, what: &OnLink<'_>);

    /// Something happened at an agent.
    fn on_agent(&mut self, at: Instant, agent: AgentId, event: AgentEvent<'_>);
}

/// Everyone who watches a run.
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

    /// All, the digest first.
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
