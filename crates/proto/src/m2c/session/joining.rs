//! Rules 3 and 5: joining levels, and undoing joins.

use headwater_wire::extensions::Levels;

use super::Session;
use crate::control::{LevelNeed, Membership, Wishes};
use crate::layering::Layering;
use crate::layering::clock::{Place, shifted};
use crate::layering::demand::{REPORT_TIME, STEPS_OF_START, with_room};
use crate::layering::held::{Held, Joining};
use crate::m2c::receiver::Mode;
use crate::m2c::start::Verdict;
use crate::measure::{Holes, interval_at};
use crate::time::{Duration, Instant};

/// Minimum time between the first packet of a channel and the next join, after fast start.
const JOIN_SPACING: Duration = Duration::from_millis(50);
/// Minimum timeout of a join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Rate that fast start joins in the first step: RFC 3390's four packets in an assumed round trip.
const FIRST_RATE: f64 = 4.0 / super::path::RTT_INITIAL;
/// Maximum rate factor of each later step of fast start; a single level is always allowed.
pub(super) const FAST_FACTOR: f64 = 2.4;
/// Part kept of the rate at which fast start ended: the resulting queue drains before the next receivers
/// start.
const START_ROOM: f64 = 0.9;
/// Maximum queueing delay for a join in congestion avoidance, as a part of the recent peak.
pub(super) const ROOM: f64 = 0.5;
/// Maximum time in which losses are attributed to channels that were left and still arrive. A router queries
/// other members twice, a second each, and may have to notify an upstream router.
pub(super) const LEAVE_TIME: Duration = Duration::from_secs(3);

impl Session {
    /// Decides on joins and leaves after a packet of a subscribed channel.
    pub(in crate::m2c) fn decide(&mut self, now: Instant, place: &Place, wishes: &mut Wishes) {
        let opens = self.turn_epoch(now, place.left);
        self.try_more(now);
        if self.descend(now, wishes) {
            return;
        }
        if self.mode == Mode::SlowStart
            && let Some(rate) = self.own_rate()
        {
            self.settle(now, rate, wishes);
        }
        if self.follow(now, wishes) {
            return;
        }
        if opens
            && self.decisions.resumes
            && now.since(self.losses.last).saturating_mul(2) >= self.clock.channels.epoch()
        {
            self.resume(now);
        }
        let may_join = match self.mode {
            // Without holders there is nobody to agree with.
            Mode::FastStart if self.is_first() => opens || self.is_unused,
            Mode::FastStart => self.judge(now, place, wishes),
            Mode::SlowStart => self.judge(now, place, wishes) && self.may_join(now),
            Mode::CongestionAvoidance => self.may_avoid(now, opens),
        };
        if !may_join || self.levels.joining.is_some() {
            return;
        }
        let (level, target) = (self.levels.count(), self.target(now));
        if level == target {
            self.decisions.wished = None;
            // A sender that follows demand sends more after a report, unless the sender cannot.
            let since = self.levels.top_changed.max(self.levels.first);
            let waits =
                self.levels.is_top_by_demand && level >= self.levels.top && now.since(since) < REPORT_TIME;
            if self.mode == Mode::FastStart && !waits {
                self.settle(now, self.rate_of(level, now), wishes);
            }
        } else if self.mode != Mode::CongestionAvoidance || self.is_room(now) {
            self.join(now, target, wishes);
        }
    }

    /// Rule 5: returns whether to continue fast start, or slow start, which also reacts to queues.
    fn judge(&mut self, now: Instant, place: &Place, wishes: &mut Wishes) -> bool {
        let held = self.held_rate(now);
        let verdict = self.start.judge(now, place.delay, held, self.path.rtt());
        if let Verdict::Settle(rate) = verdict {
            self.settle(now, rate, wishes);
        } else if self.start.doubts() {
            self.abandon(now, wishes);
        }
        verdict == Verdict::Join || (self.mode == Mode::FastStart && self.is_first())
    }

    /// Whether nothing was joined yet: no measurement is available.
    fn is_first(&self) -> bool {
        self.levels.count() == 0 && self.path.joins.mean().is_none() && !self.start.doubts()
    }

    /// Whether a sender that announces these levels knows of no holder: levels and starts of others have room
    /// above the levels of a start's first steps.
    pub(in crate::m2c) fn shows_no_holder(&self, now: Instant, levels: Levels) -> bool {
        let channels = &self.clock.channels;
        let sent = channels.cumulative_rate(channels.levels().min(u16::from(levels.ceiling) + 1) - 1, now);
        let is_silent = levels.demand.is_some_and(|echo| echo.level == 0 && !echo.is_open);
        is_silent && sent <= FAST_FACTOR * FAST_FACTOR * FIRST_RATE
    }

    /// Settles at `rate` packets per second, the capacity of the path. Leaves levels above that rate.
    pub(super) fn settle(&mut self, now: Instant, rate: f64, wishes: &mut Wishes) {
        self.abandon(now, wishes);
        self.path.delay.settle();
        let rtt = self.path.rtt();
        self.window.settle((rate * rtt).max(self.clock.channels.base_rate() * rtt));
        let is_start = self.mode == Mode::FastStart;
        // A start that ends at the receiver's or the sender's limit leaves no queue to drain.
        let most = if is_start && self.start.doubts() { START_ROOM * rate } else { self.sustained(rtt) };
        if is_start {
            self.started(now);
        }
        self.mode = Mode::CongestionAvoidance;
        self.losses.last = now;
        self.decisions.hold = now + self.clock.channels.epoch().saturating_mul(2);
        self.decisions.resumes = is_start && self.start.doubts();
        if is_start {
            self.remember_crowd(now);
        }
        self.losses.intervals.reset(interval_at(rtt, rate));
        while self.levels.count() > 0 && self.held_rate(now) > most {
            self.leave_highest(now, wishes);
        }
    }

    /// If the queue is empty half an epoch after the end of fast start, or later, resumes with slow start:
    /// the limit was not real.
    fn resume(&mut self, now: Instant) {
        self.decisions.resumes = false;
        if self.mode == Mode::CongestionAvoidance && self.is_empty_of_late(now) {
            self.window.threshold = f64::INFINITY;
            self.mode = Mode::SlowStart;
            self.start.resume(now, self.held_rate(now));
        }
    }

    /// Cancels the pending joins.
    pub(in crate::m2c) fn abandon(&mut self, now: Instant, wishes: &mut Wishes) {
        self.follow.unanswered(now);
        let Some(joining) = self.levels.joining.take() else { return };
        for _ in 0..joining.levels {
            self.leave_highest(now, wishes);
        }
    }

    /// Applies the sender's ceiling; without, all levels are sent. Leaves the levels above; their missing
    /// packets are not losses. A sender that follows demand sends those levels again after a report.
    pub(in crate::m2c) fn limit(&mut self, now: Instant, announced: Option<Levels>, wishes: &mut Wishes) {
        let highest = self.clock.channels.levels() - 1;
        let before = self.levels.top;
        self.levels.top = announced.map_or(highest, |levels| highest.min(levels.ceiling.into()));
        if self.levels.waves.len() > self.levels.top.into() {
            self.follow.end();
        }
        let follows_demand = announced.is_some_and(|levels| levels.demand.is_some());
        self.levels.is_top_by_demand = follows_demand && self.levels.top < highest;
        if self.levels.top != before {
            self.levels.top_changed = now;
        }
        if follows_demand {
            let silent = usize::from(before.min(self.levels.top));
            self.levels.waves.iter_mut().skip(silent).for_each(|wave| wave.holes = Holes::default());
            return;
        }
        while self.levels.waves.len() > self.levels.top.into() {
            self.levels.keep_joining(|joining| joining.levels - 1);
            self.leave_highest(now, wishes);
        }
    }

    /// Returns the levels that the session needs from its sender.
    pub(in crate::m2c) fn need(&self, now: Instant) -> LevelNeed {
        let channels = &self.clock.channels;
        let is_starting = self.mode == Mode::FastStart;
        // A start joins no level that is not sent, and may yet give up what it joins.
        let joining = u16::try_from(self.levels.waves.len()).unwrap_or(u16::MAX);
        let level = if is_starting { self.levels.count() } else { joining };
        let rate = |level: u16| channels.cumulative_rate(level, now);
        let highest = (level..channels.levels()).take_while(|next| rate(*next) <= self.rate_max()).last();
        let highest = highest.unwrap_or(level);
        let next = if is_starting {
            with_room(level, highest, STEPS_OF_START, rate)
        } else {
            highest.min(level + 1)
        };
        LevelNeed { level, next, is_starting }
    }

    pub(super) fn leave_highest(&mut self, now: Instant, wishes: &mut Wishes) {
        let Some(wave) = self.levels.waves.pop_back() else { return };
        wishes.push(Membership::Leave(self.clock.channels.channel_of(wave.number)));
        self.follow.forget();
        self.expect_no_queue();
        self.levels.leaving = now + LEAVE_TIME;
        self.levels.stray = now;
    }

    /// Returns the maximum rate that the window allows. A level decays by P until the next join, and its mean
    /// over that time equals the window's rate.
    pub(super) fn sustained(&self, rtt: f64) -> f64 {
        self.window.mean / rtt / self.clock.channels.mean_of_decay()
    }

    /// Rule 3: returns the highest level that may be joined now, or the current level.
    fn target(&self, now: Instant) -> u16 {
        let level = self.levels.count();
        let rtt = self.path.rtt();
        let allowed = match self.mode {
            Mode::FastStart if self.is_first() => FIRST_RATE,
            Mode::FastStart => FAST_FACTOR * self.rate_of(level, now),
            Mode::SlowStart => self.window.size / rtt,
            Mode::CongestionAvoidance if self.own_rate().is_some() => f64::INFINITY,
            Mode::CongestionAvoidance => self.lead(now) * self.sustained(rtt),
        };
        let bound = self.bottleneck_bound(now).filter(|_| self.mode != Mode::FastStart);
        let allowed = allowed.min(bound.unwrap_or(f64::INFINITY));
        let is_allowed = |next: u16| {
            let rate = self.rate_of(next, now);
            let is_single = next == level + 1;
            let is_within = rate <= allowed && (is_single || self.mode == Mode::FastStart);
            let is_step = is_single && self.mode == Mode::FastStart;
            rate <= self.rate_max() && (is_within || is_step)
        };
        (level + 1..=self.levels.top).take_while(|next| is_allowed(*next)).last().unwrap_or(level)
    }

    /// Rule 3, after fast start: returns whether the last join or loss had time to take effect.
    fn may_join(&self, now: Instant) -> bool {
        let rtt = self.path.rtt();
        let spacing = rtt.max(JOIN_SPACING.as_secs_f64());
        let has_shown = self.was_empty(now) || now.since(self.losses.last).as_secs_f64() >= rtt;
        now.since(self.levels.first).as_secs_f64() >= spacing && has_shown
    }

    /// In congestion avoidance, receivers of a session decide at the same packets, and so join together. A
    /// receiver that waits for room joins as soon as there is room.
    fn may_avoid(&self, now: Instant, opens: bool) -> bool {
        (opens || self.decisions.wished.is_some()) && now >= self.decisions.hold && self.may_join(now)
    }

    fn is_room(&mut self, now: Instant) -> bool {
        if self.own_rate().is_some() {
            self.is_queue_short(now)
        } else {
            self.was_empty(now) || self.has_room(now)
        }
    }

    /// Returns whether the queue is at most half as long as its recent peak: a further level would
    /// immediately fill the rest. If many flows keep the queue full, the wait ends after half a sub-slot.
    fn has_room(&mut self, now: Instant) -> bool {
        let wished = *self.decisions.wished.get_or_insert(now);
        let has_room = self.path.delay.queueing_last() <= ROOM * self.path.delay.queueing_peak();
        has_room || now.since(wished).as_secs_f64() >= self.window.period
    }

    /// Joins all levels up to `target`.
    pub(super) fn join(&mut self, now: Instant, target: u16, wishes: &mut Wishes) {
        self.decisions.wished = None;
        self.follow.end();
        let channels = &self.clock.channels;
        let level = self.levels.count();
        // A channel may be nearly silent: the timeout includes the time until its next packet.
        let packet = channels.departure(target, now, 0);
        let patience = JOIN_TIMEOUT.max(Duration::from_secs_f64(self.path.joins.bound().unwrap_or(0.0)));
        let until = packet.max(now) + patience;
        // The latency is of the network: a sender that is away meanwhile does not shorten the time.
        let since = shifted(self.time.real(now));
        self.levels.joining = Some(Joining { since, until, levels: usize::from(target - level) });
        for next in level + 1..=target {
            let wave = channels.wave_at(next, self.levels.slot);
            debug_assert!(self.levels.waves.back().is_none_or(|last| last.number + 1 == wave.number));
            self.levels.waves.push_back(Held { number: wave.number, holes: Holes::default() });
            wishes.push(Membership::Join(channels.channel_of(wave.number)));
        }
    }
}
