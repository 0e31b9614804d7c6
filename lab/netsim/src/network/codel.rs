//! `CoDel` (RFC 8289): drops or marks packets as they leave the queue, once packets have waited longer than a
//! target for a whole interval.
//!
//! The decision on a packet is taken when its transmission is to begin ([`Codel::dequeue`]). Names of state
//! variables are those of RFC 8289, section 5.

use headwater_proto::queue::{DropReason, Limit, ParameterError, Verdict};
use headwater_proto::{Duration, Ecn, Instant};

use super::loss::require;

/// Drops of an earlier dropping state count if less time than this number of intervals has passed (RFC 8289,
/// section 5.5: "recently").
const RECENT_INTERVALS: u64 = 16;

/// Parameters of `CoDel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// Room of the queue. A packet that finds the queue full is dropped on arrival.
    pub limit: Limit,
    /// Acceptable waiting time: TARGET, by default 5 ms.
    pub target: Duration,
    /// Time for which packets wait longer before the first drop: INTERVAL, by default 100 ms.
    pub interval: Duration,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub ecn: bool,
}

impl CodelConfig {
    /// Returns the parameters of RFC 8289, sections 4.3 and 4.4, with a limit in packets and without ECN.
    pub const fn new(packets: u32) -> Self {
        Self {
            limit: Limit::Packets(packets),
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ecn: false,
        }
    }
}

/// The next step of a dequeue that has just dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterDrop {
    /// The packet behind the first drop of a dropping state leaves in any case.
    Leaves,
    /// The packet behind a further drop may be dropped, too.
    IsJudged,
}

/// A packet about to leave the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Time from the packet's arrival: the sojourn time.
    pub waited: Duration,
    /// Bytes of the packet on the wire.
    pub bytes: u32,
    /// ECN field of the packet.
    pub ecn: Ecn,
    /// Bytes that wait behind the packet.
    pub bytes_behind: u64,
}

/// State of `CoDel`.
#[derive(Clone, Debug)]
pub struct Codel {
    config: CodelConfig,
    /// Instant from which a packet that waited longer than the target may be dropped; `None` while below.
    first_above_time: Option<Instant>,
    /// Instant of the next drop in the dropping state.
    drop_next: Instant,
    /// Drops since the dropping state was entered.
    count: u64,
    /// `count` when the dropping state was last entered.
    lastcount: u64,
    dropping: bool,
    after_drop: Option<AfterDrop>,
    /// Largest packet so far: MAXPACKET.
    bytes_max: u32,
}

impl Codel {
    /// Creates the state.
    ///
    /// # Errors
    ///
    /// If the interval is 0.
    pub fn new(config: CodelConfig) -> Result<Self, ParameterError> {
        let interval = config.interval.as_secs_f64();
        require(config.interval > Duration::ZERO, "interval", interval, "longer than 0")?;
        Ok(Self {
            config,
            first_above_time: None,
            drop_next: Instant::ZERO,
            count: 0,
            lastcount: 0,
            dropping: false,
            after_drop: None,
            bytes_max: 0,
        })
    }

    /// Limit of the queue.
    pub const fn limit(&self) -> Limit {
        self.config.limit
    }

    /// Decides on the packet that leaves at `now`. After a drop, the next call is for the next packet, at the
    /// same instant.
    pub fn dequeue(&mut self, now: Instant, head: Head) -> Verdict {
        let ok_to_drop = self.ok_to_drop(now, head);
        let after_drop = self.after_drop.take();
        if after_drop == Some(AfterDrop::Leaves) {
            return Verdict::Enqueue;
        }
        if self.dropping {
            self.dropping = ok_to_drop;
            if after_drop.is_some() && ok_to_drop {
                self.drop_next = self.control_law(self.drop_next);
            }
            if !self.dropping || now < self.drop_next {
                return Verdict::Enqueue;
            }
            self.count += 1;
            return self.act(head, AfterDrop::IsJudged);
        }
        if !ok_to_drop {
            return Verdict::Enqueue;
        }
        self.enter(now);
        self.act(head, AfterDrop::Leaves)
    }

    /// `dodequeue` of RFC 8289, section 5.6.
    fn ok_to_drop(&mut self, now: Instant, head: Head) -> bool {
        self.bytes_max = self.bytes_max.max(head.bytes);
        if head.waited < self.config.target || head.bytes_behind <= u64::from(self.bytes_max) {
            self.first_above_time = None;
            return false;
        }
        let first = *self.first_above_time.get_or_insert(now + self.config.interval);
        now >= first
    }

    /// Enters the dropping state, at the drop rate of the last dropping state if that was recent.
    fn enter(&mut self, now: Instant) {
        self.dropping = true;
        let delta = self.count - self.lastcount;
        let recent = self.config.interval.saturating_mul(RECENT_INTERVALS);
        self.count = if delta > 1 && now.since(self.drop_next) < recent { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.lastcount = self.count;
    }

    /// Marks the packet if permitted, else drops the packet.
    fn act(&mut self, head: Head, after_drop: AfterDrop) -> Verdict {
        if self.config.ecn && head.ecn != Ecn::NotCapable {
            if after_drop == AfterDrop::IsJudged {
                self.drop_next = self.control_law(self.drop_next);
            }
            return Verdict::Mark;
        }
        self.after_drop = Some(after_drop);
        Verdict::Drop(DropReason::Early)
    }

    /// t + INTERVAL / sqrt(count), rounded down to a nanosecond.
    fn control_law(&self, time: Instant) -> Instant {
        let interval = u128::from(self.config.interval.as_nanos());
        let gap = (interval * interval / u128::from(self.count.max(1))).isqrt();
        time + Duration::from_nanos(u64::try_from(gap).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codel(ecn: bool) -> Codel {
        Codel::new(CodelConfig { ecn, ..CodelConfig::new(1_000) }).unwrap()
    }

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    fn head(waited_millis: u64) -> Head {
        let waited = Duration::from_millis(waited_millis);
        Head { waited, bytes: 1_000, ecn: Ecn::Capable0, bytes_behind: 50_000 }
    }

    /// Instants of drops, in microseconds, while every packet has waited for 20 ms; a packet leaves each
    /// millisecond from 0.
    fn drops(codel: &mut Codel, millis: core::ops::Range<u64>) -> Vec<u64> {
        let mut drops = Vec::new();
        for milli in millis {
            while matches!(codel.dequeue(at(milli * 1_000), head(20)), Verdict::Drop(_)) {
                drops.push(milli);
            }
        }
        drops
    }

    /// RFC 8289, section 5.3: the first drop after an interval above the target, then drops spaced by
    /// interval / sqrt(count).
    #[test]
    fn drops_follow_the_control_law() {
        // 100, then 100 + 100 (1/sqrt(1) + .. + 1/sqrt(n)) ms, at the first packet from then on.
        let expected = [100, 200, 271, 329, 379, 424, 464, 502, 538, 571, 603];
        assert_eq!(drops(&mut codel(false), 0..620), expected);
    }

    #[test]
    fn a_short_wait_or_a_last_packet_ends_the_dropping_state() {
        for calm in [head(4), Head { bytes_behind: 1_000, ..head(20) }] {
            let mut codel = codel(false);
            assert_eq!(drops(&mut codel, 0..150), [100]);
            assert_eq!(codel.dequeue(at(150_000), calm), Verdict::Enqueue);
            // A whole interval above the target must pass again.
            assert!(drops(&mut codel, 151..251).is_empty());
            assert_eq!(drops(&mut codel, 251..252), [251]);
        }
    }

    /// RFC 8289, section 5.5: a dropping state that follows soon continues at the former rate.
    #[test]
    fn a_dropping_state_that_follows_soon_begins_at_the_former_rate() {
        let mut codel = codel(false);
        assert_eq!(drops(&mut codel, 0..600).len(), 10);
        assert_eq!(codel.dequeue(at(600_000), head(0)), Verdict::Enqueue);
        // `count` was 1 on entry, so that nine drops count: 100 / sqrt(9) ms.
        assert_eq!(drops(&mut codel, 601..740), [701, 735]);
        // After 16 intervals of calm the rate is forgotten.
        assert_eq!(codel.dequeue(at(4_000_000), head(0)), Verdict::Enqueue);
        assert_eq!(drops(&mut codel, 4_001..4_300)[..2], [4_101, 4_201]);
    }

    /// Marks come at the instants of drops, and a marked packet leaves.
    #[test]
    fn with_ecn_capable_packets_are_marked_at_the_instants_of_drops() {
        let mut marking = codel(true);
        let marks: Vec<u64> = (0..3_000)
            .filter(|milli| marking.dequeue(at(milli * 1_000), head(20)) == Verdict::Mark)
            .collect();
        assert_eq!(marks, drops(&mut codel(false), 0..3_000));
        let incapable = Head { ecn: Ecn::NotCapable, ..head(20) };
        let mut codel = codel(true);
        assert_eq!(codel.dequeue(at(0), incapable), Verdict::Enqueue);
        assert_eq!(codel.dequeue(at(100_000), incapable), Verdict::Drop(DropReason::Early));
    }

    #[test]
    fn an_interval_of_0_is_refused() {
        let config = CodelConfig { interval: Duration::ZERO, ..CodelConfig::new(1) };
        assert_eq!(Codel::new(config).unwrap_err().parameter, "interval");
    }
}
