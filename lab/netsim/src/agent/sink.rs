//! An agent that only listens.

use headwater_proto::Instant;

use super::{Agent, Arrival, Outbox};
use crate::network::GroupId;

/// Counts arriving packets, and joins its groups at the start. The counts are in the agent's counters.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    groups: Vec<GroupId>,
}

impl Sink {
    /// Creates a sink for unicast packets.
    #[must_use]
    pub const fn new() -> Self {
        Self { groups: Vec::new() }
    }

    /// Creates a sink that joins `groups`.
    #[must_use]
    pub const fn of_groups(groups: Vec<GroupId>) -> Self {
        Self { groups }
    }
}

impl Agent for Sink {
    fn start(&mut self, outbox: &mut Outbox<'_>) {
        self.groups.iter().for_each(|group| outbox.join(*group));
    }

    fn receive(&mut self, _arrival: Arrival<'_>, _outbox: &mut Outbox<'_>) {}

    fn timeout(&mut self, _outbox: &mut Outbox<'_>) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}
