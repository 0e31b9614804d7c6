//! Subscribes to channels that other receivers behind the same bottleneck already receive; unsubscribes if
//! the bottleneck does not carry them after all.

use super::Session;
use super::joining::FAST_FACTOR;
use super::shadow::Shadow;
use crate::control::Wishes;
use crate::m2c::receiver::Mode;
use crate::measure::Tally;
use crate::time::{Duration, Instant};

/// Minimum time and packets before followed levels are judged.
const JUDGED_TIME: Duration = Duration::from_millis(400);
const JUDGED_PACKETS: u32 = 32;
/// Minimum arrival share after the join, relative to the share before. Levels that the bottleneck carried
/// before change nothing for other flows, and the arrival share falls to 0.84 only by chance. A level not
/// carried before, on a link filled by the session and one flow as large, lowers the arrival share to 0.8.
const WORSE: f64 = 0.84;
/// Minimum arrival share for following. A lower share means overload, by whichever receiver: the cause may be
/// another receiver's trial, which a router forwards for seconds.
const LEAST: f64 = WORSE;
/// Tolerated increase of the queueing delay by chance, in seconds.
const LONGER: f64 = 0.004;
/// Tolerated increase of the queueing delay, as a part of the growth caused by levels new to a full link. The
/// factor matches the test of the rate, which also uses one half.
const OWN_GROWTH: f64 = 0.5;
/// Initial pause after a failed follow; doubles with each successive failure.
const MISLED: Duration = Duration::from_secs(2);
const MISLED_MAX: u32 = 6;
/// Maximum rate factor of a join: initially this factor, with a further power every two joins, up to fast
/// start's factor. A single level is always allowed. Slightly more than two fine levels, or than one level of
/// RFC 3738.
const STEP: f64 = 1.34;

/// Knowledge about other receivers' levels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Follow {
    shadow: Shadow,
    joined: Option<Joined>,
    /// One above the highest wave that the bottleneck seems to carry, until a later measurement changes the
    /// estimate.
    goal: u64,
    /// Successive joins that were carried, and successive joins that were not.
    carried: u32,
    misled: u32,
    /// Arrival share before the first of the successful joins: losses do not accumulate from join to join.
    part: f64,
    /// Earliest time of the next follow.
    next: Instant,
    /// Current half epoch, and the tallies at the start of the current and the two previous half epochs.
    half: u64,
    tallies: [Tally; 3],
    /// All packets of the session.
    pub(super) tally: Tally,
}

/// Levels joined because other receivers have them, on trial until the bottleneck is known to carry them.
#[derive(Clone, Copy, Debug)]
struct Joined {
    levels: u16,
    /// Packets per second before the join, and the expected rate after the join.
    before: f64,
    hoped: f64,
    /// Arrival share before the join.
    part: f64,
    /// Recent peak of the queueing delay before the join, in seconds.
    peak: f64,
    /// Trial data: arrival of the first packet of the joined levels, the tally at that time, and the packets
    /// since.
    since: Instant,
    tally: Tally,
    packets: u32,
}

impl Follow {
    /// Ends following after a join on the receiver's own account.
    pub(super) fn end(&mut self) {
        self.joined = None;
        self.goal = 0;
        self.carried = 0;
    }

    /// Discards measurements after levels were left, because their packets may arrive for a while.
    pub(super) fn forget(&mut self) {
        self.goal = 0;
        self.shadow.forget();
    }

    /// Handles a cancelled join. A cancelled follow counts as failed.
    pub(super) fn unanswered(&mut self, now: Instant) {
        if self.joined.is_some() {
            self.fail(now);
        } else {
            self.end();
        }
    }

    fn fail(&mut self, now: Instant) {
        self.end();
        self.next = now + MISLED.saturating_mul(1 << self.misled);
        self.misled = (self.misled + 1).min(MISLED_MAX);
        self.shadow.forget();
    }

    /// Returns the maximum rate factor of the next join.
    fn step(&self) -> f64 {
        libm::pow(STEP, f64::from(1 + self.carried / 2)).min(FAST_FACTOR)
    }

    fn succeed(&mut self) {
        self.joined = None;
        self.misled = 0;
        self.carried += 1;
    }
}

impl Joined {
    /// Records a packet that waited `queueing` seconds. Once the trial is complete, returns whether it
    /// succeeded: the levels brought at least half of the expected increase, losses did not grow, and the
    /// queueing delay did not grow much. Levels carried before lengthen no queue.
    fn record(&mut self, now: Instant, tally: Tally, queueing: f64) -> Option<bool> {
        if self.packets == 0 {
            (self.since, self.tally) = (now, tally);
        }
        self.packets += 1;
        let time = now.since(self.since);
        if time < JUDGED_TIME || self.packets < JUDGED_PACKETS {
            return None;
        }
        let rate = f64::from(self.packets - 1) / time.as_secs_f64();
        let is_more = rate >= f64::midpoint(self.before, self.hoped);
        // Levels new to a full link are the only cause of such fast growth of a queue.
        let added = (1.0 - self.before / self.hoped) * JUDGED_TIME.as_secs_f64();
        let is_free = queueing <= self.peak + LONGER.max(OWN_GROWTH * added)
            && tally.part_since(self.tally) >= WORSE * self.part;
        Some(is_more && is_free)
    }
}

impl Session {
    /// Searches the delays of a subscribed level for traces of the levels above.
    pub(super) fn look(&mut self, now: Instant, left: Instant, delay: i64) {
        let half = self.clock.channels.half_epoch_at(left);
        if half != self.follow.half {
            let [last, before, _] = self.follow.tallies;
            self.follow.half = half;
            self.follow.tallies = [self.follow.tally, last, before];
        }
        let level = self.levels.count();
        // Packets of levels left a moment ago may still pass, and say nothing about other receivers.
        let is_idle =
            self.levels.joining.is_none() && self.follow.joined.is_none() && now >= self.levels.leaving;
        if self.mode != Mode::CongestionAvoidance || !is_idle || level >= self.levels.top {
            return;
        }
        let above =
            (self.clock.channels.wave_at(level + 1, self.levels.slot).number, self.levels.top - level);
        let rate = self.rate_of(level, now);
        self.follow.shadow.record(&self.clock.channels, above, rate, (left, delay));
    }

    /// Joins levels that other receivers have, and leaves levels that prove not to be carried. Called after
    /// each packet. Returns whether a follow is in progress.
    pub(super) fn follow(&mut self, now: Instant, wishes: &mut Wishes) -> bool {
        if self.mode != Mode::CongestionAvoidance || self.levels.joining.is_some() {
            return false;
        }
        let queueing = self.path.delay.queueing_last();
        if let Some(joined) = &mut self.follow.joined {
            let levels = joined.levels;
            match joined.record(now, self.follow.tally, queueing) {
                None => return true,
                Some(true) => self.follow.succeed(),
                Some(false) => {
                    self.follow.fail(now);
                    (0..levels).for_each(|_| self.leave_highest(now, wishes));
                    return true;
                }
            }
        }
        self.join_carried(now, wishes)
    }

    fn join_carried(&mut self, now: Instant, wishes: &mut Wishes) -> bool {
        if now < self.follow.next || now < self.decisions.hold {
            return false;
        }
        let level = self.levels.count();
        let next = self.clock.channels.wave_at(level + 1, self.levels.slot).number;
        let found = self.follow.shadow.carried();
        if found > 0 {
            self.follow.goal = next + found as u64;
        }
        let part = self.follow.tally.part_since(self.follow.tallies[2]);
        if self.follow.goal <= next || part < LEAST {
            return false;
        }
        let ahead = u16::try_from(self.follow.goal - next).unwrap_or(u16::MAX);
        let highest = level.saturating_add(ahead).min(self.levels.top);
        let most = self.follow.step() * self.rate_of(level, now);
        let is_within = |target: &u16| *target == level + 1 || self.rate_of(*target, now) <= most;
        let target = (level + 1..=highest).take_while(is_within).last().unwrap_or(level);
        let (held, hoped) = (self.rate_of(level, now), self.rate_of(target, now));
        if target == level || hoped > self.rate_max() {
            self.follow.end();
            return false;
        }
        let part = if self.follow.carried > 0 { self.follow.part } else { part };
        let before = self.path.meter.rate(now);
        let joined = Joined {
            levels: target - level,
            before,
            hoped: before * hoped / held,
            part,
            peak: self.path.delay.queueing_peak(),
            since: now,
            tally: self.follow.tally,
            packets: 0,
        };
        let follow = Follow { joined: Some(joined), part, ..self.follow };
        self.join(now, target, wishes);
        self.follow = follow;
        self.follow.shadow.forget();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// What becomes of a level that was to raise 100 packets per second, of which `part` came, to 133, when
    /// `rate` come and of `lost_each` one more is lost.
    fn judged(part: f64, rate: u64, lost_each: u64) -> Option<bool> {
        judged_waiting(part, rate, lost_each, 0.01)
    }

    /// The same, where packets waited 10 ms at most before, and wait `queueing` seconds.
    fn judged_waiting(part: f64, rate: u64, lost_each: u64, queueing: f64) -> Option<bool> {
        let mut tally = Tally { came: 1_000, lost: 50 };
        let mut joined = Joined {
            levels: 1,
            before: 100.0,
            hoped: 133.0,
            part,
            peak: 0.01,
            since: at(0),
            tally: Tally::default(),
            packets: 0,
        };
        (0..rate).find_map(|i| {
            let found = joined.record(at(10_000 + 1_000 * i / rate), tally, queueing);
            tally.add(u64::from(lost_each > 0 && i % lost_each == 0));
            found
        })
    }

    #[test]
    fn a_level_that_brings_what_it_should_is_kept() {
        assert_eq!(judged(1.0, 133, 0), Some(true));
        assert_eq!(judged(0.9, 125, 10), Some(true), "as much is lost as before");
        assert_eq!(
            judged_waiting(1.0, 133, 0, 0.05),
            Some(true),
            "others' queue grows slower than it would by these levels"
        );
        assert_eq!(judged(1.0, 20, 0), None, "nothing is known yet");
    }

    #[test]
    fn a_level_that_brings_little_or_loses_is_not() {
        assert_eq!(judged(1.0, 105, 0), Some(false));
        assert_eq!(judged(1.0, 133, 4), Some(false), "it takes from others");
        assert_eq!(judged_waiting(1.0, 133, 0, 0.07), Some(false), "it fills a queue that was not full");
    }

    #[test]
    fn two_fine_levels_are_a_step() {
        let two = libm::pow(
            crate::layering::DynamicConfig::fine(1_000, crate::rate::Rate::from_kilobits(1)).ratio(),
            -2.0,
        );
        let step = |carried| Follow { carried, ..Follow::default() }.step();
        assert!(step(0) >= two && step(0) < two * 1.15, "two levels, not three");
        assert!(step(2) >= two * two, "four after two that were carried");
    }

    #[test]
    fn who_was_misled_waits_twice_as_long_each_time() {
        let mut follow = Follow::default();
        let waits: Vec<u64> = (0..9)
            .map(|_| {
                follow.fail(at(0));
                follow.next.since(at(0)).as_nanos() / 1_000_000_000
            })
            .collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 128, 128]);
        follow.succeed();
        follow.fail(at(0));
        assert_eq!(follow.next, at(2_000));
        follow.unanswered(at(2_000));
        assert_eq!(follow.next, at(2_000), "nothing was followed");
    }
}
