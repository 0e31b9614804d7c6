//! A link's queueing discipline with its random stream. Drop tail, by far the most frequent discipline, has
//! neither.

use headwater_proto::queue::{Discipline, GroupAddress, Head, Limit, Occupancy, Offered, Verdict};
use headwater_proto::rng::Stream;
use headwater_proto::{Instant, Rate};

#[derive(Debug)]
pub(crate) enum Policy {
    DropTail(Limit),
    Random(Box<(Discipline, Stream)>),
}

impl Policy {
    /// Creates the policy of a discipline; `stream` creates a random stream if the discipline needs
    /// randomness.
    pub(crate) fn new(discipline: Discipline, stream: impl FnOnce() -> Stream) -> Self {
        match discipline {
            Discipline::DropTail(limit) => Self::DropTail(limit),
            random => Self::Random(Box::new((random, stream()))),
        }
    }

    pub(crate) fn admit(&mut self, now: Instant, occupancy: Occupancy, offered: Offered) -> Verdict {
        match self {
            Self::DropTail(limit) => limit.admit(occupancy, offered),
            Self::Random(random) => {
                let (discipline, stream) = &mut **random;
                discipline.admit(now, occupancy, offered, stream)
            }
        }
    }

    /// Decides on a packet whose transmission is to begin at `now`.
    pub(crate) fn dequeue(&mut self, now: Instant, head: Head) -> Verdict {
        match self {
            Self::DropTail(_) => Verdict::Enqueue,
            Self::Random(random) => random.0.dequeue(now, head),
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
