//! Queues of a link, for simulated links and the relay: policies for arriving packets.
//!
//! A [`Discipline`] is a policy without packets: the caller reports the occupancy and the arriving packet,
//! and the discipline returns a [`Verdict`]. A simulated link with departures known in advance and a relay's
//! real queue therefore share the same code. The occupancy counts *waiting* packets, without the packet being
//! sent. An idle link accepts any packet, so a limit of 0 packets is valid.
//!
//! | discipline | source |
//! |---|---|
//! | [`QueueConfig::DropTail`] | drops packets that arrive at a full queue; a limit in packets or in bytes |
//! | [`QueueConfig::Red`] | Floyd and Jacobson 1993 as in ns-2, with ECN (RFC 3168) |
//! | [`QueueConfig::Priority`] | marks a session's top group only: SIM (Gorinsky et al. 2008) |

mod priority;
mod red;
#[cfg(test)]
#[path = "tests/statistics.rs"]
mod statistics;

use rand::Rng;

use crate::Ecn;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

pub use priority::{Marking, Priority, PriorityConfig, RANK_BITS_DEFAULT, SESSIONS_MAX, THRESHOLD_DEFAULT};
pub use red::{Red, RedConfig, Thresholds, Weight};

/// Occupancy of a link at a packet's arrival, without the arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Number of waiting packets, without the packet being sent.
    pub packets: u32,
    /// Bytes on the wire of the waiting packets.
    pub bytes: u64,
    /// Time since when the link is idle; `None` while the link sends.
    pub idle_since: Option<Instant>,
}

/// Packet that arrives at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Bytes on the wire, headers included.
    pub bytes: u32,
    /// ECN field of the packet.
    pub ecn: Ecn,
    /// Multicast group that the packet is sent to, if any.
    pub group: Option<GroupAddress>,
}

/// Address of a multicast group as a number: 32 bits for IPv4, 128 bits for IPv6.
pub type GroupAddress = u128;

/// Decision on an arriving packet, or on a packet about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Keep the packet: queue an arriving packet, send a leaving packet.
    Enqueue,
    /// Keep the packet with congestion experienced in the ECN field.
    Mark,
    /// Drop the packet.
    Drop(DropReason),
}

/// Reason of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The queue is at its limit, or the bucket of a policer lacks tokens.
    Full,
    /// RED drew the packet, at an average between the thresholds (or up to twice the upper threshold, if
    /// gentle); or `CoDel` dropped the packet after a long wait.
    Early,
    /// RED's average is above the range of draws.
    Forced,
}

/// Limit of the waiting packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Number of packets; 0 permits only the packet being sent.
    Packets(u32),
    /// Bytes on the wire; a packet that would exceed the limit is refused entirely.
    Bytes(u64),
}

impl Limit {
    /// Whether the queue has no room for a packet. An idle link has room for any packet.
    pub fn refuses(self, occupancy: Occupancy, offered: Offered) -> bool {
        occupancy.idle_since.is_none()
            && match self {
                Self::Packets(limit) => occupancy.packets >= limit,
                Self::Bytes(limit) => occupancy.bytes.saturating_add(offered.bytes.into()) > limit,
            }
    }

    /// Decision of drop tail.
    pub fn admit(self, occupancy: Occupancy, offered: Offered) -> Verdict {
        if self.refuses(occupancy, offered) { Verdict::Drop(DropReason::Full) } else { Verdict::Enqueue }
    }
}

/// Discipline of a queue, with parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueConfig {
    /// Drops packets that arrive at a full queue.
    DropTail(Limit),
    /// Random early detection.
    Red(RedConfig),
    /// Priority marking.
    Priority(PriorityConfig),
}

impl QueueConfig {
    /// Returns drop tail with room for `packets` waiting packets.
    pub const fn drop_tail(packets: u32) -> Self {
        Self::DropTail(Limit::Packets(packets))
    }

    /// Creates the discipline for a link of this rate and one-way delay; some parameters of RED depend on
    /// both.
    ///
    /// # Errors
    ///
    /// A parameter is invalid; see [`ParameterError`].
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

/// Policy of a queue, with state.
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
    /// Decides on the packet `offered` at `now`; `now` never decreases. Random numbers are taken from `draw`,
    /// the queue's own random stream.
    pub fn admit(
        &mut self,
        now: Instant,
        occupancy: Occupancy,
        offered: Offered,
        draw: &mut impl Rng,
    ) -> Verdict {
        match self {
            Self::DropTail(limit) => limit.admit(occupancy, offered),
            Self::Red(red) => red.admit(now, occupancy, offered, draw),
            Self::Priority(policy) => policy.admit(now, occupancy, offered, draw),
        }
    }

    /// Records that the link starts or stops forwarding a group.
    pub fn membership(&mut self, group: GroupAddress, is_forwarded: bool) {
        if let Self::Priority(policy) = self {
            policy.membership(group, is_forwarded);
        }
    }

    /// Changes the link's rate, which RED's idle correction depends on.
    pub fn set_rate(&mut self, rate: Rate) {
        match self {
            Self::DropTail(_) => {}
            Self::Red(red) => red.set_rate(rate),
            Self::Priority(policy) => policy.set_rate(rate),
        }
    }
}

/// Invalid parameter of a queue or of a loss model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{parameter} is {value}; it must be {requirement}")]
pub struct ParameterError {
    /// Name of the parameter in its configuration.
    pub parameter: &'static str,
    /// Invalid value.
    pub value: f64,
    /// Requirement, as in "above 0".
    pub requirement: &'static str,
}

/// Returns an error for `value` (also if not a number) unless `holds`.
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
