//! What is said of a link, a session, and of what changes on the way.

use headwater_proto::queue::{Loss, LossConfig, QueueConfig};
use headwater_proto::{ChannelId, Duration, Rate};

use super::{AgentId, GroupId, Impairments, LinkId, LossFilter};

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bits on the wire per second.
    pub rate: Rate,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// What holds back packets that find the link busy; by default drop tail with 50 packets.
    pub queue: QueueConfig,
    /// What the wire loses, behind the queue; by default nothing.
    pub loss: LossConfig,
    /// Which packets [`Self::loss`] looks at; by default all.
    pub loss_filter: LossFilter,
    /// Other faults of the wire; by default none.
    pub impairments: Impairments,
    /// What a membership message that crosses this direction takes beside the delay; by default what
    /// [`super::Builder::graft_delay`] says.
    pub graft_delay: Option<Duration>,
}

impl LinkConfig {
    /// A direction with this rate and delay, all else by default.
    pub const fn new(rate: Rate, delay: Duration) -> Self {
        Self {
            rate,
            delay,
            queue: QueueConfig::drop_tail(50),
            loss: LossConfig::None,
            loss_filter: LossFilter::All,
            impairments: Impairments::NONE,
            graft_delay: None,
        }
    }

    /// With this queue.
    #[must_use]
    pub fn with_queue(self, queue: QueueConfig) -> Self {
        Self { queue, ..self }
    }

    /// With this loss of all packets.
    #[must_use]
    pub fn with_loss(self, loss: LossConfig) -> Self {
        Self { loss, ..self }
    }

    /// With this graft delay.
    #[must_use]
    pub fn with_graft_delay(self, delay: Duration) -> Self {
        Self { graft_delay: Some(delay), ..self }
    }

    /// With these faults.
    #[must_use]
    pub fn with_impairments(self, impairments: Impairments) -> Self {
        Self { impairments, ..self }
    }
}

/// The groups of a session: one source-specific group for each channel.
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

    /// The groups of all channels, in their order.
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
    /// A direction of a link gets another rate. A packet that is being sent keeps the old one.
    Rate(LinkId, Rate),
    /// A direction of a link is mended.
    Up(LinkId),
    /// A direction of a link is cut: what waits or is being sent is lost, and what comes until it is mended.
    /// Routes and group memberships stay as they are.
    Down(LinkId),
    /// A direction of a link gets another loss model. Its random stream goes on.
    Loss(LinkId, LossConfig, LossFilter),
    /// An agent is taken out for good. It leaves its groups.
    Stop(AgentId),
    /// An agent stands still: it gets no packets, which are lost to it, and its timers wait.
    Pause(AgentId),
    /// A paused agent goes on; timers that came meanwhile are late.
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
