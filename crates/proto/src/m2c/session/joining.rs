//! Rules 3 and 5: when levels are joined, and taken back.

use super::{AVERAGED, Session};
use crate::control::{Membership, Wishes};
use crate::layering::Layering;
use crate::layering::clock::delay;
use crate::layering::held::{Held, Joining};
use crate::m2c::receiver::Mode;
use crate::m2c::start::Verdict;
use crate::measure::{Holes, interval_at};
use crate::time::{Duration, Instant};

/// Least time between the first packet of a channel and the next join, after fast start.
const JOIN_SPACING: Duration = Duration::from_millis(50);
/// Least time that a join is waited for.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Fast start joins up to this rate at once: RFC 3390's four packets in an assumed round trip.
const FIRST_RATE: f64 = 4.0 / super::RTT_INITIAL;
/// And then up to so many times what it holds at a time, or a level.
pub(super) const FAST_FACTOR: f64 = 2.4;
/// What is kept of the rate at which fast start ended: so the queue that it made drains before the next
/// receivers start.
const START_ROOM: f64 = 0.9;
/// In congestion avoidance a level is joined when the queue is down to this part of its longest.
pub(super) const ROOM: f64 = 0.5;
/// For at most so long what is lost while channels that were left still come was lost by them.
/// A router asks twice, a second each, who else is there, and then it may have to tell the one above.
const LEAVE_TIME: Duration = Duration::from_secs(3);

impl Session {
    /// After a packet of a held channel that left at `left`: joins and leaves.
    pub(in crate::m2c) fn decide(&mut self, now: Instant, left: Instant, wishes: &mut Wishes) {
        let opens = self.turn_epoch(now, left);
        self.try_more(now);
        if self.follow(now, wishes) {
            return;
        }
        if opens && self.resumes && now.since(self.lost).saturating_mul(2) >= self.clock.channels.epoch() {
            self.resume(now);
        }
        let may_join = match self.mode {
            Mode::FastStart if self.is_first() => opens,
            Mode::FastStart => self.judge(now, left, wishes),
            Mode::SlowStart => self.judge(now, left, wishes) && self.may_join(now),
            Mode::CongestionAvoidance => self.may_avoid(now, opens),
        };
        if !may_join || self.joining.is_some() {
            return;
        }
        let (level, target) = (self.level(), self.target(now));
        if level == target {
            self.wished = None;
            if self.mode == Mode::FastStart {
                self.settle(now, self.rate_of(level, now), wishes);
            }
        } else if self.mode != Mode::CongestionAvoidance || self.was_empty(now) || self.has_room(now) {
            self.join(now, target, wishes);
        }
    }

    /// Rule 5: whether fast start goes on, or slow start, which is to be told of queues as well.
    fn judge(&mut self, now: Instant, left: Instant, wishes: &mut Wishes) -> bool {
        let held = self.rate_of(self.level(), now);
        let verdict = self.start.judge(now, delay(now, left), held, self.rtt());
        if let Verdict::Settle(rate) = verdict {
            self.settle(now, rate, wishes);
        } else if self.start.doubts() {
            self.abandon(now, wishes);
        }
        verdict == Verdict::Join || (self.mode == Mode::FastStart && self.is_first())
    }

    /// Whether nothing was joined yet: there is nothing to be seen.
    fn is_first(&self) -> bool {
        self.level() == 0 && self.joins.mean().is_none() && !self.start.doubts()
    }

    /// The path carries `rate` packets per second. What exceeds that is left.
    pub(super) fn settle(&mut self, now: Instant, rate: f64, wishes: &mut Wishes) {
        self.abandon(now, wishes);
        self.delay.settle();
        let rtt = self.rtt();
        self.window = (rate * rtt).max(self.clock.channels.base_rate() * rtt);
        self.mean = self.window;
        self.threshold = self.window;
        let is_start = self.mode == Mode::FastStart;
        // Where it ends at the receiver's or the sender's limit there is no queue to drain.
        let most = if is_start && self.start.doubts() { START_ROOM * rate } else { self.sustained(rtt) };
        self.mode = Mode::CongestionAvoidance;
        self.lost = now;
        self.hold = now + self.clock.channels.epoch().saturating_mul(2);
        self.resumes = is_start && self.start.doubts();
        if is_start {
            self.remember_crowd(now);
        }
        self.intervals.reset(interval_at(rtt, rate));
        while self.level() > 0 && self.rate_of(self.level(), now) > most {
            self.leave_highest(now, wishes);
        }
    }

    /// Where the queue is empty half an epoch later and more, slow start goes on where fast start ended:
    /// there was no such limit.
    fn resume(&mut self, now: Instant) {
        self.resumes = false;
        if self.mode == Mode::CongestionAvoidance && self.is_empty_of_late(now) {
            self.threshold = f64::INFINITY;
            self.mode = Mode::SlowStart;
            self.start.begin(now);
        }
    }

    /// Gives up what is being joined.
    pub(in crate::m2c) fn abandon(&mut self, now: Instant, wishes: &mut Wishes) {
        self.follow.unanswered(now);
        let Some(joining) = self.joining.take() else { return };
        for _ in 0..joining.levels {
            self.leave_highest(now, wishes);
        }
    }

    /// The sender sends levels up to `ceiling` only, or all of them. Leaves those above, of which nothing is
    /// lost.
    pub(in crate::m2c) fn limit(&mut self, now: Instant, ceiling: Option<u16>, wishes: &mut Wishes) {
        let highest = self.clock.channels.levels() - 1;
        self.top = ceiling.map_or(highest, |ceiling| ceiling.min(highest));
        if self.waves.len() > self.top.into() {
            self.follow.end();
        }
        while self.waves.len() > self.top.into() {
            self.joining = self
                .joining
                .map(|joining| Joining { levels: joining.levels - 1, ..joining })
                .filter(|joining| joining.levels > 0);
            self.leave_highest(now, wishes);
        }
    }

    pub(super) fn leave_highest(&mut self, now: Instant, wishes: &mut Wishes) {
        let Some(wave) = self.waves.pop_back() else { return };
        wishes.push(Membership::Leave(self.clock.channels.channel_of(wave.number)));
        self.follow.forget();
        self.leaving = now + LEAVE_TIME;
        self.stray = now;
    }

    /// The highest rate that the window allows: a level decays by P until the next may be joined, and over
    /// that time it brings what the window does.
    fn sustained(&self, rtt: f64) -> f64 {
        self.mean / rtt / self.clock.channels.mean_of_decay()
    }

    /// Rule 3: the highest level that may be joined now, or the one held.
    fn target(&self, now: Instant) -> u16 {
        let level = self.level();
        let rtt = self.rtt();
        let allowed = match self.mode {
            Mode::FastStart if self.is_first() => FIRST_RATE,
            Mode::FastStart => FAST_FACTOR * self.rate_of(level, now),
            Mode::SlowStart => self.window / rtt,
            Mode::CongestionAvoidance => self.lead(now) * self.sustained(rtt),
        };
        let is_allowed = |next: u16| {
            let rate = self.rate_of(next, now);
            let is_single = next == level + 1;
            let is_within = rate <= allowed && (is_single || self.mode == Mode::FastStart);
            let is_step = is_single && self.mode == Mode::FastStart;
            rate <= self.rate_max() && (is_within || is_step)
        };
        (level + 1..=self.top()).take_while(|next| is_allowed(*next)).last().unwrap_or(level)
    }

    /// Rule 3, after fast start: what was joined or lost is given time to show.
    fn may_join(&self, now: Instant) -> bool {
        let rtt = self.rtt();
        let spacing = rtt.max(JOIN_SPACING.as_secs_f64());
        let has_shown = self.was_empty(now) || now.since(self.lost).as_secs_f64() >= rtt;
        now.since(self.first).as_secs_f64() >= spacing && has_shown
    }

    /// In congestion avoidance receivers of a session wish at the same packets, and so join together; who
    /// then waits for room joins when there is some.
    fn may_avoid(&self, now: Instant, opens: bool) -> bool {
        (opens || self.wished.is_some()) && now >= self.hold && self.may_join(now)
    }

    /// Whether a level more finds the queue at most half as long as it was of late: it would fill what is
    /// left of it at once. Where many flows keep it full, half a sub-slot's patience will do.
    fn has_room(&mut self, now: Instant) -> bool {
        let wished = *self.wished.get_or_insert(now);
        let patience = AVERAGED * self.clock.channels.sub_slot_seconds();
        let has_room = self.delay.queueing_last() <= ROOM * self.delay.queueing_peak();
        has_room || now.since(wished).as_secs_f64() >= patience
    }

    /// Joins all levels up to `target`.
    pub(super) fn join(&mut self, now: Instant, target: u16, wishes: &mut Wishes) {
        self.wished = None;
        self.follow.end();
        let channels = &self.clock.channels;
        let level = self.level();
        // Channels may be nearly silent: their next packet is waited for as well.
        let packet = channels.departure(target, now, 0);
        let patience = JOIN_TIMEOUT.max(Duration::from_secs_f64(self.joins.bound().unwrap_or(0.0)));
        let until = packet.max(now) + patience;
        self.joining = Some(Joining { since: now, until, levels: usize::from(target - level) });
        for next in level + 1..=target {
            let wave = channels.wave_at(next, self.slot);
            self.waves.push_back(Held { number: wave.number, holes: Holes::default() });
            wishes.push(Membership::Join(channels.channel_of(wave.number)));
        }
    }
}
