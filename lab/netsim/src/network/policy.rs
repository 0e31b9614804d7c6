//! A link's queueing discipline with its random stream. Drop tail, by far the most frequent discipline, has
//! neither.

use headwater_proto::queue::{
    Discipline, GroupAddress, Limit, Occupancy, Offered, ParameterError, QueueConfig, Verdict,
};
use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Instant, Rate};

use super::codel::{Codel, CodelConfig, Head};
use super::policer::{Policer, PolicerConfig};

/// Queue of a link, with parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkQueue {
    /// Discipline that relays have, too.
    Shared(QueueConfig),
    /// Token-bucket policer, without a queue of its own.
    Policer(PolicerConfig),
    /// `CoDel` (RFC 8289), with ECN; decides when packets leave.
    Codel(CodelConfig),
}

impl From<QueueConfig> for LinkQueue {
    fn from(queue: QueueConfig) -> Self {
        Self::Shared(queue)
    }
}

impl LinkQueue {
    /// Checks the parameters for a link of this rate and one-way delay.
    ///
    /// # Errors
    /// A parameter is invalid; see [`ParameterError`].
    pub fn check(self, rate: Rate, delay: Duration) -> Result<(), ParameterError> {
        match self {
            Self::Shared(queue) => queue.discipline(rate, delay).map(|_| ()),
            Self::Policer(_) => Ok(()),
            Self::Codel(config) => Codel::new(config).map(|_| ()),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Policy {
    DropTail(Limit),
    Random(Box<(Discipline, Stream)>),
    Policer(Box<Policer>),
    Codel(Box<Codel>),
}

impl Policy {
    /// Creates the policy of a queue for a link of this rate and one-way delay; `stream` creates a random
    /// stream if the discipline needs randomness.
    pub(crate) fn new(
        queue: LinkQueue,
        rate: Rate,
        delay: Duration,
        stream: impl FnOnce() -> Stream,
    ) -> Result<Self, ParameterError> {
        Ok(match queue {
            LinkQueue::Shared(queue) => match queue.discipline(rate, delay)? {
                Discipline::DropTail(limit) => Self::DropTail(limit),
                random => Self::Random(Box::new((random, stream()))),
            },
            LinkQueue::Policer(config) => Self::Policer(Box::new(Policer::new(config))),
            LinkQueue::Codel(config) => Self::Codel(Box::new(Codel::new(config)?)),
        })
    }

    pub(crate) fn admit(&mut self, now: Instant, occupancy: Occupancy, offered: Offered) -> Verdict {
        match self {
            Self::DropTail(limit) => limit.admit(occupancy, offered),
            Self::Random(random) => {
                let (discipline, stream) = &mut **random;
                discipline.admit(now, occupancy, offered, stream)
            }
            Self::Policer(policer) => policer.admit(now, occupancy, offered),
            Self::Codel(codel) => codel.limit().admit(occupancy, offered),
        }
    }

    /// Decides on a packet whose transmission is to begin at `now`. Only `CoDel` drops or marks here.
    pub(crate) fn dequeue(&mut self, now: Instant, head: Head) -> Verdict {
        match self {
            Self::Codel(codel) => codel.dequeue(now, head),
            _ => Verdict::Enqueue,
        }
    }

    pub(crate) fn membership(&mut self, group: GroupAddress, is_forwarded: bool) {
        if let Self::Random(random) = self {
            random.0.membership(group, is_forwarded);
        }
    }

    pub(crate) fn set_rate(&mut self, rate: Rate) {
        if let Self::Random(random) = self {
            random.0.set_rate(rate);
        }
    }
}
