//! Configuration of links, sessions and scheduled changes.

use headwater_proto::queue::{Loss, LossConfig, QueueConfig};
use headwater_proto::{ChannelId, Duration, Rate};

use super::{AgentId, GroupId, Impairments, LinkId, LossFilter};

/// Configuration of a direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bits on the wire per second.
    pub rate: Rate,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Queue for packets that find the link busy; default drop tail with 50 packets.
    pub queue: QueueConfig,
    /// Loss model of the wire, behind the queue; default no loss.
    pub loss: LossConfig,
    /// Packets subject to [`Self::loss`]; default all.
    pub loss_filter: LossFilter,
    /// Further faults of the wire; default no faults.
    pub impairments: Impairments,
    /// Delay of a membership message that crosses this direction, in addition to the propagation delay;
    /// default [`super::Builder::graft_delay`].
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

    /// Sets the queue.
    #[must_use]
    pub fn with_queue(self, queue: QueueConfig) -> Self {
        Self { queue, ..self }
    }

    /// Sets the loss model, for all packets.
    #[must_use]
    pub fn with_loss(self, loss: LossConfig) -> Self {
        Self { loss, ..self }
    }

    /// Sets the graft delay.
    #[must_use]
    pub fn with_graft_delay(self, delay: Duration) -> Self {
        Self { graft_delay: Some(delay), ..self }
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
