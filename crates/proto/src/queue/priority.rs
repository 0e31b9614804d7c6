//! Priority marking (Gorinsky, Ramakrishnan, Vin 2008): of a layered session, only packets of the top group
//! subscribed below the link may be marked, so that marks reach receivers that can react.
//!
//! Groups of a session have contiguous addresses: the last bits are the group's rank, and the bits in front
//! identify the session. A router keeps a rank per session and outgoing link, derived only from joins and
//! leaves.

use rand::Rng;

use super::{
    GroupAddress, Limit, Occupancy, Offered, ParameterError, Red, RedConfig, Thresholds, Verdict, Weight,
};
use crate::Ecn;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Default number of rank bits in a group's address: sessions of 8 groups.
pub const RANK_BITS_DEFAULT: u8 = 3;
/// Maximum number of sessions with a rank on a link; all packets of further sessions may be marked, as with
/// unknown ranks.
pub const SESSIONS_MAX: usize = 4_096;

/// Default threshold of [`Marking::Threshold`], in packets.
pub const THRESHOLD_DEFAULT: f64 = 5.0;

/// Selection of packets to mark among the eligible packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Marking {
    /// Marks all eligible packets while both the average and the current queue exceed this threshold, in
    /// packets; if the queue already drains, earlier marks have taken effect. For links without other
    /// traffic: beside flows without ECN, which are subject to RED's test, marked sessions keep little of the
    /// link.
    Threshold(f64),
    /// Marks packets drawn by RED, with a separate average and RED's parameters.
    Red,
}

/// Parameters of priority marking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriorityConfig {
    /// RED parameters. The limit and the average apply to the queue, packets without ECN are tested by RED,
    /// and with [`Marking::Red`] RED draws the marks.
    pub red: RedConfig,
    /// Selection of packets to mark among the eligible packets.
    pub marking: Marking,
    /// Whether only top groups may be marked; otherwise all ECN-capable packets, as with plain ECN.
    pub is_priority: bool,
    /// Number of rank bits in a group's address, 1 to 8.
    pub rank_bits: u8,
}

impl PriorityConfig {
    /// Creates gentle RED between 5 and 15 packets, with an average over 0.12 s, three round-trip times of
    /// SIM's experiments. RED marks eligible packets at the rate at which packets without ECN are dropped, so
    /// that both keep their shares of a link.
    pub const fn new(limit_packets: u32) -> Self {
        let red = RedConfig {
            limit: Limit::Packets(limit_packets),
            thresholds: Thresholds::Fixed { min: 5.0, max: 15.0 },
            weight: Weight::Over(Duration::from_millis(120)),
            gentle: true,
            packet_bytes_mean: 1_000,
            ecn: true,
            mark_p: 1.0,
            hard_drop: false,
            ..RedConfig::ns1999(limit_packets)
        };
        Self { red, marking: Marking::Red, is_priority: true, rank_bits: RANK_BITS_DEFAULT }
    }
}

/// Priority marking, with state.
#[derive(Clone, Debug)]
pub struct Priority {
    config: PriorityConfig,
    /// RED test of packets without ECN.
    drops: Red,
    /// RED draws of marks, with a count of the eligible packets.
    marks: Red,
    /// Sessions with members below the link, sorted, and the rank of each session's top group.
    tops: Vec<(u128, u8)>,
}

impl Priority {
    /// Creates the policy of a link of this rate and one-way delay, without members below.
    ///
    /// # Errors
    ///
    /// A parameter is invalid: the error names the parameter and the requirement.
    pub fn new(config: PriorityConfig, rate: Rate, delay: Duration) -> Result<Self, ParameterError> {
        let threshold = match config.marking {
            Marking::Threshold(threshold) => threshold,
            Marking::Red => 0.0,
        };
        super::require(threshold >= 0.0, "threshold", threshold, "0 or more packets")?;
        let bits = config.rank_bits;
        super::require((1..=8).contains(&bits), "rank_bits", bits.into(), "from 1 to 8")?;
        let red = Red::new(config.red, rate, delay)?;
        Ok(Self { config, drops: red.clone(), marks: red, tops: Vec::new() })
    }

    /// Returns the average queue in packets.
    pub fn average(&self) -> f64 {
        self.drops.average()
    }

    /// Returns the rank of the top group with members below the link; `None` for a session without members,
    /// or an unknown session.
    pub fn top(&self, group: GroupAddress) -> Option<u8> {
        let (session, _) = self.split(group);
        self.find(session).ok().map(|index| self.tops[index].1)
    }

    /// Changes the link's rate.
    pub fn set_rate(&mut self, rate: Rate) {
        self.drops.set_rate(rate);
        self.marks.set_rate(rate);
    }

    /// Records that the link starts or stops forwarding a group. Groups are cumulative, so a session without
    /// members of a rank has no members above that rank.
    pub fn membership(&mut self, group: GroupAddress, is_forwarded: bool) {
        let (session, rank) = self.split(group);
        match (self.find(session), is_forwarded) {
            (Ok(index), true) => self.tops[index].1 = self.tops[index].1.max(rank),
            (Err(index), true) if self.tops.len() < SESSIONS_MAX => self.tops.insert(index, (session, rank)),
            (Ok(index), false) => match rank.checked_sub(1) {
                Some(below) => self.tops[index].1 = self.tops[index].1.min(below),
                None => drop(self.tops.remove(index)),
            },
            (Err(_), _) => {}
        }
    }

    /// Decides on an arriving packet.
    pub fn admit(
        &mut self,
        now: Instant,
        occupancy: Occupancy,
        offered: Offered,
        draw: &mut impl Rng,
    ) -> Verdict {
        self.drops.observe(now, occupancy);
        self.marks.observe(now, occupancy);
        if offered.ecn == Ecn::NotCapable {
            return self.drops.judge(occupancy, offered, draw);
        }
        if self.config.red.limit.refuses(occupancy, offered) {
            return Verdict::Drop(super::DropReason::Full);
        }
        if !self.is_eligible(offered) {
            return Verdict::Enqueue;
        }
        match self.config.marking {
            Marking::Threshold(threshold)
                if self.average() > threshold && f64::from(occupancy.packets) > threshold =>
            {
                Verdict::Mark
            }
            Marking::Threshold(_) => Verdict::Enqueue,
            Marking::Red => self.marks.judge(occupancy, offered, draw),
        }
    }

    /// Whether an ECN-capable packet may be marked: in a known session, only packets of the top group.
    fn is_eligible(&self, offered: Offered) -> bool {
        let Some(group) = offered.group.filter(|_| self.config.is_priority) else { return true };
        let (_, rank) = self.split(group);
        self.top(group).is_none_or(|top| top == rank)
    }

    fn split(&self, group: GroupAddress) -> (u128, u8) {
        let bits = self.config.rank_bits;
        let rank = group & ((1 << bits) - 1);
        (group >> bits, u8::try_from(rank).unwrap_or(u8::MAX))
    }

    fn find(&self, session: u128) -> Result<usize, usize> {
        self.tops.binary_search_by_key(&session, |(session, _)| *session)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Seed;
    use crate::queue::DropReason;

    const SESSION: GroupAddress = 0xE800_0100;

    fn policy(config: PriorityConfig) -> Priority {
        Priority::new(config, Rate::from_kilobits(1_000), Duration::from_millis(5)).unwrap()
    }

    fn by_threshold() -> PriorityConfig {
        PriorityConfig { marking: Marking::Threshold(THRESHOLD_DEFAULT), ..PriorityConfig::new(50) }
    }

    /// What becomes of a packet once the queue has held `packets` for long.
    fn verdicts(policy: &mut Priority, packets: u32, offered: Offered, count: usize) -> Vec<Verdict> {
        let mut draw = Seed(7).stream("priority", 0);
        let occupancy = Occupancy { packets, bytes: u64::from(packets) * 1_000, idle_since: None };
        let at = |step: usize| Instant::ZERO + Duration::from_millis(10).saturating_mul(step as u64);
        let all: Vec<_> =
            (0..200 + count).map(|step| policy.admit(at(step), occupancy, offered, &mut draw)).collect();
        all[200..].to_vec()
    }

    fn packet(rank: u128, ecn: Ecn) -> Offered {
        Offered { bytes: 1_000, ecn, group: Some(SESSION + rank) }
    }

    #[test]
    fn only_the_top_group_is_marked_and_only_above_the_threshold() {
        let mut policy = policy(by_threshold());
        for rank in 0..=2 {
            policy.membership(SESSION + rank, true);
        }
        let ect = |rank| packet(rank, Ecn::Capable0);
        assert_eq!(verdicts(&mut policy.clone(), 6, ect(2), 1), [Verdict::Mark]);
        assert_eq!(verdicts(&mut policy.clone(), 6, ect(1), 1), [Verdict::Enqueue], "not the top group");
        assert_eq!(verdicts(&mut policy.clone(), 5, ect(2), 1), [Verdict::Enqueue], "at the threshold");
        policy.membership(SESSION + 2, false);
        assert_eq!(verdicts(&mut policy.clone(), 6, ect(1), 1), [Verdict::Mark], "it is the top now");
        assert_eq!(verdicts(&mut policy, 6, ect(2), 1), [Verdict::Enqueue], "a straggler");
    }

    #[test]
    fn what_is_not_known_is_marked_as_by_plain_ecn() {
        let mut unknown = policy(by_threshold());
        assert_eq!(verdicts(&mut unknown, 6, packet(1, Ecn::Capable0), 1), [Verdict::Mark]);
        let unicast = Offered { group: None, ..packet(0, Ecn::Capable1) };
        assert_eq!(verdicts(&mut unknown, 6, unicast, 1), [Verdict::Mark]);
        let mut plain = policy(PriorityConfig { is_priority: false, ..by_threshold() });
        plain.membership(SESSION + 3, true);
        assert_eq!(verdicts(&mut plain, 6, packet(0, Ecn::Capable0), 1), [Verdict::Mark]);
    }

    #[test]
    fn packets_without_ecn_meet_red_and_a_full_queue_drops_any() {
        let plain = packet(0, Ecn::NotCapable);
        let dropped = |packets: u32| {
            let all = verdicts(&mut policy(PriorityConfig::new(50)), packets, plain, 2_000);
            all.iter().filter(|verdict| **verdict != Verdict::Enqueue).count()
        };
        assert_eq!(dropped(4), 0, "below the lower threshold");
        // p_b = 0.05 at an average of 10; waiting spreads draws over 1/p to 2/p packets.
        assert!((50..=80).contains(&dropped(10)), "{}", dropped(10));
        let mut full = policy(PriorityConfig::new(50));
        let ect = packet(0, Ecn::Capable0);
        assert_eq!(verdicts(&mut full, 50, ect, 1), [Verdict::Drop(DropReason::Full)]);
    }

    #[test]
    fn red_draws_marks_among_eligible_packets_alone() {
        let mut policy = policy(PriorityConfig::new(50));
        policy.membership(SESSION + 1, true);
        let marks = |policy: &mut Priority, rank| {
            let all = verdicts(policy, 10, packet(rank, Ecn::Capable0), 2_000);
            all.iter().filter(|verdict| **verdict == Verdict::Mark).count()
        };
        assert_eq!(marks(&mut policy.clone(), 0), 0);
        assert!((50..=80).contains(&marks(&mut policy, 1)));
    }

    #[test]
    fn sessions_are_bounded() {
        let mut policy = policy(PriorityConfig::new(50));
        for session in 0..2 * SESSIONS_MAX as u128 {
            policy.membership(session << 3 | 1, true);
        }
        assert_eq!(policy.tops.len(), SESSIONS_MAX);
        assert_eq!(policy.top((2 * SESSIONS_MAX as u128) << 3), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Receivers below a link hold cumulative groups; the link forwards what any of them holds. In
        /// whatever order a receiver's joins and leaves pass, the rank kept is that of the highest group
        /// forwarded once they have.
        #[test]
        fn the_top_follows_from_joins_and_leaves(
            moves in prop::collection::vec((0_usize..4, 0_u8..9), 1..60),
            is_descending in any::<bool>(),
        ) {
            let mut policy = policy(PriorityConfig::new(50));
            let mut held = [0_u8; 4];
            let forwarded = |held: &[u8; 4]| -> BTreeSet<u8> { (0..*held.iter().max().unwrap()).collect() };
            for (receiver, groups) in moves {
                let before = forwarded(&held);
                held[receiver] = groups;
                let after = forwarded(&held);
                let mut changes: Vec<u8> = before.symmetric_difference(&after).copied().collect();
                if is_descending {
                    changes.reverse();
                }
                for rank in changes {
                    policy.membership(SESSION + u128::from(rank), after.contains(&rank));
                }
                prop_assert_eq!(policy.top(SESSION), after.last().copied());
            }
        }
    }
}
