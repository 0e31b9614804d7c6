//! Queues of a link, shared by simulated links and the relay: what becomes of a packet that arrives.
//!
//! A [`Discipline`] is a policy. It holds no packets: it is told how many wait and what arrives, and answers
//! with a [`Verdict`]. So a simulated link that knows its departures in advance and a relay's real queue
//! share one code. A link counts what *waits*; the packet being sent is not counted, and an idle link takes
//! any packet, so that a limit of 0 packets is legal.
//!
//! | discipline | source |
//! |---|---|
//! | [`QueueConfig::DropTail`] | drops what arrives at a full queue; a limit in packets or in bytes |
//! | [`QueueConfig::Red`] | Floyd and Jacobson 1993 as in ns-2, with ECN (RFC 3168) |
//! | [`QueueConfig::Priority`] | marks a session's top group only: SIM (Gorinsky et al. 2008) |
//!
//! [`loss`] has the models of random and scripted loss, which sit behind the queue.

pub mod loss;
mod priority;
mod red;
#[cfg(test)]
mod statistics;

use rand::Rng;

use crate::Ecn;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

pub use loss::{GilbertElliott, Loss, LossConfig};
pub use priority::{Marking, Priority, PriorityConfig, RANK_BITS_DEFAULT, SESSIONS_MAX, THRESHOLD_DEFAULT};
pub use red::{Red, RedConfig, Thresholds, Weight};

/// What a link holds when a packet arrives, that packet not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Packets that wait; the one being sent is not among them.
    pub packets: u32,
    /// Bytes on the wire of the packets that wait.
    pub bytes: u64,
    /// Since when the link has had nothing to send; `None` while it sends.
    pub idle_since: Option<Instant>,
}

/// A packet that arrives at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Bytes on the wire, headers included.
    pub bytes: u32,
    /// Its ECN field.
    pub ecn: Ecn,
    /// The multicast group that it goes to, if it goes to one.
    pub group: Option<GroupAddress>,
}

/// The address of a multicast group as a number: of IPv4 its 32 bits, of IPv6 its 128.
pub type GroupAddress = u128;

/// What becomes of a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It joins the queue.
    Enqueue,
    /// It joins the queue with congestion experienced in its ECN field.
    Mark,
    /// It is dropped.
    Drop(DropReason),
}

/// Why a queue dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The queue is at its limit.
    Full,
    /// RED drew it, at an average between the thresholds (or up to twice the upper one, if gentle).
    Early,
    /// RED's average is beyond all draws.
    Forced,
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This many packets; 0 keeps only the packet being sent.
    Packets(u32),
    /// This many bytes on the wire; a packet that would lead beyond is refused whole.
    Bytes(u64),
}

impl Limit {
    /// Whether a packet finds no room. An idle link has room for any.
    pub fn refuses(self, occupancy: Occupancy, offered: Offered) -> bool {
        occupancy.idle_since.is_none()
            && match self {
                Self::Packets(limit) => occupancy.packets >= limit,
                Self::Bytes(limit) => occupancy.bytes.saturating_add(offered.bytes.into()) > limit,
            }
    }
}

/// Which discipline a queue follows, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueConfig {
    /// Drop what arrives at a full queue.
    DropTail(Limit),
    /// Random early detection.
    Red(RedConfig),
    /// Priority marking.
    Priority(PriorityConfig),
}

impl QueueConfig {
    /// Drop tail with room for `packets` waiting packets.
    pub const fn drop_tail(packets: u32) -> Self {
        Self::DropTail(Limit::Packets(packets))
    }

    /// The discipline for a link of this rate and one-way delay, which some parameters of RED depend on.
    ///
    /// # Errors
    ///
    /// A parameter makes no sense; see [`ParameterError`].
    pub fn discipline(self, rate: Rate, delay: Duration) -> Result<Discipline, ParameterError> {
        match self {
            Self::DropTail(limit) => Ok(Discipline::DropTail(limit)),
            Self::Red(config) => Red::new(config, rate, delay).map(Discipline::Red),
            Self::Priority(config) => {
                Priority::new(config, rate, delay).map(|policy| Discipline::Priority(Box::new(policy)))
            }
        }
    }
}

/// A queue's policy at work.
#[derive(Clone, Debug)]
pub enum Discipline {
    /// Drop tail has no state.
    DropTail(Limit),
    /// RED with its average.
    Red(Red),
    /// Priority marking with the sessions of the link.
    Priority(Box<Priority>),
}

impl Discipline {
    /// What becomes of the packet `offered` at `now`, which never goes back. Chance is drawn from `draw`, the
    /// queue's own random stream.
    pub fn admit(
        &mut self,
        now: Instant,
        occupancy: Occupancy,
        offered: Offered,
        draw: &mut impl Rng,
    ) -> Verdict {
        match self {
            Self::DropTail(limit) if limit.refuses(occupancy, offered) => Verdict::Drop(DropReason::Full),
            Self::DropTail(_) => Verdict::Enqueue,
            Self::Red(red) => red.admit(now, occupancy, offered, draw),
            Self::Priority(policy) => policy.admit(now, occupancy, offered, draw),
        }
    }

    /// The link begins to forward a group, or forwards it no more.
    pub fn membership(&mut self, group: GroupAddress, is_forwarded: bool) {
        if let Self::Priority(policy) = self {
            policy.membership(group, is_forwarded);
        }
    }

    /// The link's rate changed: what RED makes of idle time changes with it.
    pub fn set_rate(&mut self, rate: Rate) {
        match self {
            Self::DropTail(_) => {}
            Self::Red(red) => red.set_rate(rate),
            Self::Priority(policy) => policy.set_rate(rate),
        }
    }
}

/// A parameter of a queue or of a loss model that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{parameter} is {value}; it must be {requirement}")]
pub struct ParameterError {
    /// The parameter's name in its config.
    pub parameter: &'static str,
    /// What was given.
    pub value: f64,
    /// What would be right, as in "above 0".
    pub requirement: &'static str,
}

/// Refuses `value` (also when it is not a number) unless `holds`.
fn require(
    holds: bool,
    parameter: &'static str,
    value: f64,
    requirement: &'static str,
) -> Result<(), ParameterError> {
    if holds { Ok(()) } else { Err(ParameterError { parameter, value, requirement }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    fn verdict(limit: Limit, occupancy: Occupancy, bytes: u32) -> Verdict {
        let offered = Offered { bytes, ecn: Ecn::NotCapable, group: None };
        let mut discipline =
            QueueConfig::DropTail(limit).discipline(Rate::from_kilobits(1), Duration::ZERO).unwrap();
        discipline.admit(Instant::ZERO, occupancy, offered, &mut Seed(1).stream("drop tail", 0))
    }

    const FULL: Verdict = Verdict::Drop(DropReason::Full);

    #[test]
    fn packets_that_wait_are_counted() {
        let waiting = |packets| Occupancy { packets, bytes: 0, idle_since: None };
        assert_eq!(verdict(Limit::Packets(2), waiting(1), 1_500), Verdict::Enqueue);
        assert_eq!(verdict(Limit::Packets(2), waiting(2), 1), FULL);
        assert_eq!(verdict(Limit::Packets(0), waiting(0), 1), FULL);
    }

    #[test]
    fn bytes_that_wait_are_counted_with_those_that_arrive() {
        let waiting = |bytes| Occupancy { packets: 9, bytes, idle_since: None };
        assert_eq!(verdict(Limit::Bytes(3_000), waiting(2_000), 1_000), Verdict::Enqueue);
        assert_eq!(verdict(Limit::Bytes(3_000), waiting(2_000), 1_001), FULL);
        assert_eq!(verdict(Limit::Bytes(3_000), waiting(u64::MAX), 1), FULL);
    }

    #[test]
    fn an_idle_link_takes_any_packet() {
        let idle = Occupancy { packets: 0, bytes: 0, idle_since: Some(Instant::ZERO) };
        assert_eq!(verdict(Limit::Packets(0), idle, 9_000), Verdict::Enqueue);
        assert_eq!(verdict(Limit::Bytes(0), idle, 9_000), Verdict::Enqueue);
    }
}
