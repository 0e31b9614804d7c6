//! An agent that only listens.

use headwater_proto::Instant;

use super::{Agent, Arrival, Outbox};
use crate::network::GroupId;

/// Takes what comes, and joins groups when it starts. What it got is in its counters.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    groups: Vec<GroupId>,
}

impl Sink {
    /// One that is sent to.
    #[must_use]
    pub const fn new() -> Self {
        Self { groups: Vec::new() }
    }

    /// One that joins groups.
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
