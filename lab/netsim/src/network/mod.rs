//! Elements of a network, and their declaration.
//!
//! ```
//! use headwater_netsim::agent::{Cbr, Sink};
//! use headwater_netsim::network::{Builder, LinkConfig};
//! use headwater_proto::queue::QueueConfig;
//! use headwater_proto::{Duration, Instant, Rate, Seed};
//!
//! let mut network = Builder::new();
//! let a = network.node("a");
//! let b = network.node("b");
//! let there = LinkConfig::new(Rate::from_kilobits(1_000), Duration::from_millis(10))
//!     .with_queue(QueueConfig::drop_tail(25));
//! let link = network.link("a-b", a, b, there.clone(), there);
//! let flow = network.flow("cbr");
//! let sink = network.agent("sink", b, Sink::new());
//! let to = network.destination(sink);
//! network.agent("source", a, Cbr::new(flow, to, Rate::from_kilobits(500), 1_000, 28));
//!
//! let mut run = network.build(Seed(1), 0)?;
//! run.run_until(Instant::from_nanos(1_000_000_000));
//! assert_eq!(run.flow_counters(flow).delivered_packets, 62);
//! assert_eq!(run.link_counters(link).dropped_full, 0);
//! # Ok::<(), headwater_netsim::network::BuildError>(())
//! ```

mod builder;
mod codel;
pub(crate) mod host;
mod line;
pub(crate) mod link;
mod loss;
mod policer;
pub(crate) mod policy;
pub(crate) mod routing;
#[cfg(test)]
#[path = "../../../../crates/proto/src/queue/tests/statistics.rs"]
mod statistics;
pub(crate) mod wire;

use std::net::Ipv4Addr;

use headwater_proto::queue::{DropReason, GroupAddress, QueueConfig};
use headwater_proto::{ChannelId, Duration, Rate};

pub(crate) use builder::Routers;
pub use builder::{BuildError, Builder, Names};
pub use codel::CodelConfig;
pub use host::{Delay, HostConfig, Pause};
pub use line::{Line, LineArrival};
pub use link::DropCause;
pub use loss::{GilbertElliott, Loss, LossConfig};
pub use policer::PolicerConfig;
pub use policy::LinkQueue;
pub use wire::{Impairments, LossFilter};

/// 232.0.0.1, the address of group 0.
const FIRST_GROUP: u32 = 0xE800_0001;

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// A direction of a link. [`LinkId::reverse`] is the opposite direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// The direction back.
    #[must_use]
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// A flow, under which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

/// A source-specific multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) u32);

/// Something at a node that sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub(crate) u32);

macro_rules! index {
    ($($id:ident),*) => {$(
        impl $id {
            /// Position in the order of declaration, from 0.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

impl GroupId {
    /// Multicast address of the group (source-specific, RFC 4607), as captures and machines see the group.
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_GROUP + self.0)
    }

    /// Multicast address as a number, for queues.
    pub(crate) const fn number(self) -> GroupAddress {
        (FIRST_GROUP + self.0) as GroupAddress
    }
}

index!(NodeId, LinkId, FlowId, GroupId, AgentId);

/// Configuration of a direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bits on the wire per second.
    pub rate: Rate,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Queue for packets that find the link busy; default drop tail with 50 packets.
    pub queue: LinkQueue,
    /// Loss model of the wire, behind the queue; default no loss.
    pub loss: LossConfig,
    /// Packets subject to [`Self::loss`]; default all.
    pub loss_filter: LossFilter,
    /// Further faults of the wire; default no faults.
    pub impairments: Impairments,
    /// Delay of a membership message that crosses this direction, in addition to the propagation delay;
    /// default [`Builder::graft_delay`].
    pub graft_delay: Option<Duration>,
}

impl LinkConfig {
    /// A direction with this rate and delay, all else by default.
    pub const fn new(rate: Rate, delay: Duration) -> Self {
        Self {
            rate,
            delay,
            queue: LinkQueue::Shared(QueueConfig::drop_tail(50)),
            loss: LossConfig::None,
            loss_filter: LossFilter::All,
            impairments: Impairments::NONE,
            graft_delay: None,
        }
    }

    /// Sets the queue.
    #[must_use]
    pub fn with_queue(self, queue: impl Into<LinkQueue>) -> Self {
        Self { queue: queue.into(), ..self }
    }

    /// Sets the loss model, for all packets.
    #[must_use]
    pub fn with_loss(self, loss: LossConfig) -> Self {
        Self { loss, ..self }
    }

    /// Sets the faults.
    #[must_use]
    pub fn with_impairments(self, impairments: Impairments) -> Self {
        Self { impairments, ..self }
    }
}

/// The groups of a session: a source-specific group for each channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub(crate) first: u32,
    pub(crate) channels: u16,
}

impl Session {
    /// The group of a channel; `None` beyond the session's channels.
    pub const fn group(self, channel: ChannelId) -> Option<GroupId> {
        if channel.0 < self.channels { Some(GroupId(self.first + channel.0 as u32)) } else { None }
    }

    /// Groups of all channels, in order.
    pub fn groups(self) -> impl Iterator<Item = GroupId> {
        (self.first..self.first + u32::from(self.channels)).map(GroupId)
    }

    /// The channel of a group; `None` for a group of another session.
    pub const fn channel(self, group: GroupId) -> Option<ChannelId> {
        let Some(channel) = group.0.checked_sub(self.first) else { return None };
        if channel >= self.channels as u32 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "less than the number of channels, a u16")]
        Some(ChannelId(channel as u16))
    }
}

/// Something that happens at a set time, before any packet of the same instant.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Changes the rate of a direction of a link. A packet in transmission keeps the old rate.
    Rate(LinkId, Rate),
    /// A direction of a link is mended.
    Up(LinkId),
    /// Cuts a direction of a link: waiting packets and the packet in transmission are lost, as are arrivals
    /// until the link is up again. Routes and group memberships stay.
    Down(LinkId),
    /// Changes the loss model of a direction of a link. The random stream continues.
    Loss(LinkId, LossConfig, LossFilter),
    /// Removes an agent for good. The agent leaves its groups.
    Stop(AgentId),
    /// Suspends an agent: its packets are lost, and its timers wait.
    Pause(AgentId),
    /// Resumes a paused agent; timers that expired meanwhile are late.
    Resume(AgentId),
    /// An agent's clock steps forward.
    StepClock(AgentId, Duration),
}

/// An [`Event`] that was checked.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Rate(LinkId, Rate),
    Up(LinkId),
    Down(LinkId),
    Loss(LinkId, Loss, LossFilter),
    Stop(AgentId),
    Pause(AgentId),
    Resume(AgentId),
    StepClock(AgentId, Duration),
}

/// Counters of a direction of a link since the start. Bytes are on the wire, headers included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that arrived at the queue.
    pub offered_packets: u64,
    /// Bytes that arrived at the queue.
    pub offered_bytes: u64,
    /// Packets with transmission begun.
    pub sent_packets: u64,
    /// Bytes of packets with transmission begun.
    pub sent_bytes: u64,
    /// Packets that reached the far end.
    pub delivered_packets: u64,
    /// Bytes that reached the far end.
    pub delivered_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_full: u64,
    /// Packets that RED drew.
    pub dropped_early: u64,
    /// Packets that RED dropped without drawing.
    pub dropped_forced: u64,
    /// Packets that the wire lost.
    pub lost: u64,
    /// Packets with a changed bit that a checksum noticed.
    pub corrupted: u64,
    /// Packets lost because the link was down.
    pub dropped_down: u64,
    /// Packets that this link marked "congestion experienced".
    pub marked: u64,
    /// Maximum number of waiting packets.
    pub waiting_peak: u64,
    /// Integral of the number of waiting packets over time, in packet nanoseconds.
    pub waiting_packet_nanos: u128,
    /// Integral of the bytes of waiting packets over time, in byte nanoseconds.
    pub waiting_byte_nanos: u128,
}

impl LinkCounters {
    /// Packets that the queue dropped. Loss at a queue is this number over [`Self::offered_packets`].
    pub const fn queue_drops(&self) -> u64 {
        self.dropped_full + self.dropped_early + self.dropped_forced
    }

    pub(crate) const fn count(&mut self, drop: DropCause) {
        let counter = match drop {
            DropCause::Queue(DropReason::Full) => &mut self.dropped_full,
            DropCause::Queue(DropReason::Early) => &mut self.dropped_early,
            DropCause::Queue(DropReason::Forced) => &mut self.dropped_forced,
            DropCause::Lost => &mut self.lost,
            DropCause::Corrupted => &mut self.corrupted,
            DropCause::Down => &mut self.dropped_down,
        };
        *counter += 1;
    }
}

/// Counters of a flow since the start, over all receivers: a multicast packet counts once when sent, and once
/// for each agent that receives a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent, headers included.
    pub sent_wire_bytes: u64,
    /// Payload bytes sent.
    pub sent_payload_bytes: u64,
    /// Packets that reached an agent.
    pub delivered_packets: u64,
    /// Bytes that reached an agent, headers included.
    pub delivered_wire_bytes: u64,
    /// Payload bytes that reached an agent, duplicates included.
    pub delivered_payload_bytes: u64,
    /// Copies that a link dropped or lost.
    pub dropped_packets: u64,
}

impl FlowCounters {
    pub(crate) fn sent(&mut self, wire_bytes: u32, payload_bytes: u32) {
        self.sent_packets += 1;
        self.sent_wire_bytes += u64::from(wire_bytes);
        self.sent_payload_bytes += u64::from(payload_bytes);
    }

    pub(crate) fn delivered(&mut self, wire_bytes: u32, payload_bytes: u32) {
        self.delivered_packets += 1;
        self.delivered_wire_bytes += u64::from(wire_bytes);
        self.delivered_payload_bytes += u64::from(payload_bytes);
    }
}

/// Counters of an agent since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounters {
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received, headers included.
    pub received_wire_bytes: u64,
    /// Payload bytes received, duplicates included.
    pub received_payload_bytes: u64,
    /// Packets that arrived while the agent was paused, stopped or not started.
    pub missed_packets: u64,
    /// Number of group joins.
    pub joins: u64,
    /// Number of group leaves.
    pub leaves: u64,
}
