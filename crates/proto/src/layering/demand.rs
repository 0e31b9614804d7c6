//! Levels that receivers need, by their reports: a sender of layers sends no level that nobody holds.
//!
//! Levels are cumulative, so that demand is one number, the highest level held. Receivers report the number
//! by unicast ([`crate::described`]) and the base channel echoes the maximum, which keeps receivers of lower
//! levels silent. The sender keeps nothing about a receiver; a forged report makes the sender send at most
//! its configured levels.
//!
//! A round lasts [`ROUND`]. Reports of the last two rounds count, so that a level stops 10 to 20 s after its
//! last receiver has left, and a lost report costs nothing. The levels above the idle level stop at once if
//! the roster knows that no receiver needs packets ([`Demand::set_packets_needed`]).
//!
//! Receivers that lose most packets do not obey the overload rule, or the sender's own link is too slow.
//! Their reports count apart: if such receivers alone hold the highest levels for two rounds, the sender
//! sends them what the best of them received (`SafetyLimit`). Levels of all other receivers stay.

use headwater_wire::extensions::DemandEcho;
use headwater_wire::rtt::{Demand as Report, LossClass};

use crate::rtt::Reported;
use crate::time::{Duration, Instant};

/// Length of a round: each receiver that holds more than the echo reports once a round.
pub const ROUND: Duration = Duration::from_secs(10);
/// Time after the last report of a starting receiver during which the sender leaves room for starts.
const OPEN: Duration = Duration::from_secs(3);
/// The same time if many receivers start: they report their levels within 6 s.
const OPEN_TO_MANY: Duration = Duration::from_secs(8);
/// Time after a report of a starting receiver in which its next report is likely.
const STEP_TIME: Duration = Duration::from_millis(500);
/// Time after a report of a starting receiver in which the roster may not know the receiver yet.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// Time after the end of the demand in which a report of a held level comes from a receiver missing from the
/// roster.
const UNLISTED_TIME: Duration = Duration::from_secs(2);
/// Number of reports of starting receivers within [`CROWD_TIME`] from which many receivers start. A report of
/// a higher level than those before does not count.
const CROWD: u32 = 5;
const CROWD_TIME: Duration = Duration::from_millis(100);
/// Factor of rate of a step of a receiver's start.
pub const STEP: f64 = 2.4;
/// Factor of rate above the level held that a starting receiver asks for: three of the receiver's steps, so
/// that a report travels while the receiver takes the first two.
pub const STEPS_OF_START: f64 = STEP * STEP * STEP;
/// Time for which the start of a receiver waits for the effect of reports: three reports.
pub const REPORT_TIME: Duration = Duration::from_secs(4);
/// Factor of rate above the reported level that the sender leaves for a starting receiver: four steps.
const ROOM_OF_START: f64 = STEP * STEPS_OF_START;
/// The same factor otherwise, and at least a level: receivers join one level at a time.
const ROOM: f64 = 1.4;
/// Time for which the highest reported level bounds the room for starts.
const KNOWN_TIME: Duration = Duration::from_secs(3_600);

/// Reports of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Reports {
    /// Of receivers that lose less than half of the packets.
    sound: Reported,
    /// Of receivers that lose more.
    lossy: Reported,
}

/// Receivers that start.
#[derive(Clone, Copy, Debug)]
struct Starts {
    /// Highest level reported.
    level: u16,
    until: Instant,
    /// Whether many receivers start.
    is_crowd: bool,
    /// Packets per second up to which the sender's own link has room.
    most: f64,
}

/// Bound of the levels that only receivers hold that lose most packets, in packets per second.
#[derive(Clone, Copy, Debug)]
struct SafetyLimit {
    rate: f64,
    /// Rounds before the bound rises.
    holds: u8,
}

impl SafetyLimit {
    /// Part of the rate received by the best of the receivers.
    const ROOM: f64 = 1.1;
    const HELD_ROUNDS: u8 = 2;
    /// Growth of the bound in each later round.
    const GROWTH: f64 = 1.34;
}

/// Demand for the levels of a session.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Highest level of the session.
    top: u16,
    /// Highest level that is sent while nobody reports.
    idle: u16,
    /// Packets per second up to which a start is given room while nothing is known.
    start_rate: f64,
    /// Reports of this round and of the round before.
    this: Reports,
    last: Reports,
    starts: Option<Starts>,
    /// Time until which the next step of a single start is likely.
    prompt_until: Instant,
    /// Whether this was so at the last packet, and levels were missing.
    is_prompt: bool,
    /// Reports of starting receivers since an instant.
    burst: (u32, Instant),
    /// Time of the last report of a starting receiver.
    last_start: Instant,
    /// Time at which the roster ended the demand; `None` after a report of a starting receiver.
    ended: Option<Instant>,
    /// Whether a receiver missing from the roster has reported a level.
    has_unlisted: bool,
    /// Highest level reported, and the time of the last such report.
    known: (u16, Instant),
    /// Number of rounds in a row in which the highest levels had lossy receivers only.
    lossy_rounds: u8,
    limit: Option<SafetyLimit>,
    /// Highest level that is sent.
    sent: u16,
    /// Whether reports have come since `sent` was computed.
    is_changed: bool,
    round: u8,
    round_began: Instant,
    has_reports: bool,
}

impl Demand {
    /// Returns the demand of nobody for levels up to `top`: levels up to `idle` are sent. While no report is
    /// known, a start is given room up to `start_rate` packets per second.
    pub fn new(top: u16, idle: u16, start_rate: f64) -> Self {
        Self {
            top,
            idle,
            start_rate,
            this: Reports::default(),
            last: Reports::default(),
            starts: None,
            prompt_until: Instant::ZERO,
            is_prompt: false,
            burst: (0, Instant::ZERO),
            last_start: Instant::ZERO,
            ended: None,
            has_unlisted: false,
            known: (0, Instant::ZERO),
            lossy_rounds: 0,
            limit: None,
            sent: idle,
            is_changed: false,
            round: 1,
            round_began: Instant::ZERO,
            has_reports: false,
        }
    }

    /// Records a report. A level that the session lacks counts as the highest level. Levels 0..=n send at
    /// most `rate(n)` packets per second.
    pub fn report(&mut self, now: Instant, report: Report, rate: impl Fn(u16) -> f64) {
        (self.has_reports, self.is_changed) = (true, true);
        let level = self.top.min(report.level.into());
        if level >= self.known.0 || now >= self.known.1 + KNOWN_TIME {
            self.known = (level, now);
        }
        if report.is_starting {
            (self.last_start, self.ended) = (now, None);
            self.start(now, level);
            return;
        }
        if level > self.idle && self.ended.is_some_and(|at| now < at + UNLISTED_TIME) {
            self.has_unlisted = true;
        }
        let reported = Reported { level, loss: report.loss };
        // Under a bound, a receiver that keeps levels above does not lose most packets, but does not obey.
        let is_lossy = report.loss.is_heavy() || (self.limit.is_some() && level > self.sent);
        let of_kind = if is_lossy { &mut self.this.lossy } else { &mut self.this.sound };
        *of_kind = of_kind.max(reported);
        // A single start ends with a report of the level at which the start ended: at most a step below the
        // highest level of the start.
        let ends = |starts: &mut Starts| !starts.is_crowd && STEP * rate(level) >= rate(starts.level);
        self.starts.take_if(|starts| !is_lossy && ends(starts));
    }

    fn start(&mut self, now: Instant, level: u16) {
        let before = self.starts.filter(|starts| now < starts.until);
        let (count, since) = self.burst;
        // The levels of one start rise from report to report.
        let rises = before.is_none_or(|starts| level > starts.level);
        let counted = u32::from(before.is_none() || !rises);
        self.burst = if now < since + CROWD_TIME { (count + counted, since) } else { (counted, now) };
        let is_crowd = self.burst.0 >= CROWD || before.is_some_and(|starts| starts.is_crowd);
        self.prompt_until = match (is_crowd, rises) {
            (true, _) => now,
            (false, true) => now + STEP_TIME,
            (false, false) => self.prompt_until,
        };
        let until = now + if is_crowd { OPEN_TO_MANY } else { OPEN };
        let level = before.map_or(level, |starts| starts.level.max(level));
        let most = before.map_or(f64::INFINITY, |starts| starts.most);
        self.starts = Some(Starts { level, until, is_crowd, most });
    }

    /// Records that the sender's own link carries `rate` packets per second, and no more. The queue empties
    /// while the rates fall within a slot.
    pub fn bound_starts(&mut self, rate: f64) {
        if let Some(starts) = &mut self.starts {
            starts.most = rate;
            self.is_changed = true;
        }
    }

    /// Sets whether a receiver may need packets, by the roster; if not, the demand ends.
    ///
    /// A receiver that holds more than the idle level, and that is not in the roster yet, then reports its
    /// level within a second. From that report on the demand continues until the roster has a receiver that
    /// needs packets.
    pub fn set_packets_needed(&mut self, now: Instant, are_needed: bool) {
        if are_needed {
            self.has_unlisted = false;
        } else if !self.has_unlisted && !self.has_no_receivers() && now >= self.last_start + HELLO_TIME {
            (self.this, self.last, self.starts) = (Reports::default(), Reports::default(), None);
            (self.ended, self.is_changed) = (Some(now), true);
            // Receivers report again.
            self.begin_round(now);
        }
    }

    fn begin_round(&mut self, now: Instant) {
        self.round = self.round % DemandEcho::ROUND_MAX + 1;
        self.round_began = now;
    }

    /// Ends rounds, and the room for starts.
    fn advance(&mut self, now: Instant, rate: &impl Fn(u16) -> f64) {
        if let Some(starts) = self.starts.take_if(|starts| starts.until <= now)
            && self.this.sound.level.max(self.last.sound.level) == 0
        {
            // The report that ends the start is late or lost.
            self.this.sound.level = starts.level;
        }
        if now < self.round_began + ROUND {
            return;
        }
        let has_skipped = now >= self.round_began + ROUND.saturating_mul(2);
        self.protect(rate);
        self.last = if has_skipped { Reports::default() } else { self.this };
        self.this = Reports::default();
        self.begin_round(now);
    }

    /// Sets the bound for receivers that lose most packets, at the end of a round.
    fn protect(&mut self, rate: &impl Fn(u16) -> f64) {
        let top = self.top;
        let Reports { sound, lossy } = self.this;
        let is_lossy = lossy.loss.is_heavy() && lossy.level > room_of_holders(sound.level, top, rate);
        self.lossy_rounds = if is_lossy { self.lossy_rounds + 1 } else { 0 };
        if self.lossy_rounds == 2 {
            self.lossy_rounds = 0;
            let received = (1.0 - lossy.loss.least()) * rate(lossy.level.min(self.sent));
            let rate = SafetyLimit::ROOM * received;
            self.limit = Some(SafetyLimit { rate, holds: SafetyLimit::HELD_ROUNDS });
        } else if let Some(limit) = self.limit.as_mut().filter(|_| !is_lossy) {
            match limit.holds.checked_sub(1) {
                Some(holds) => limit.holds = holds,
                None => limit.rate *= SafetyLimit::GROWTH,
            }
        }
        self.limit = self.limit.filter(|limit| limit.rate < rate(top));
    }

    /// Returns the highest level that receivers need at `now`. Levels 0..=n send at most `rate(n)` packets
    /// per second. Time: O(levels) after reports and at the end of rounds, otherwise constant.
    pub fn level(&mut self, now: Instant, rate: impl Fn(u16) -> f64) -> u16 {
        let ends_start = self.starts.is_some_and(|starts| starts.until <= now);
        if self.is_changed || ends_start || now >= self.round_began + ROUND {
            self.advance(now, &rate);
            self.sent = self.needed(&rate);
            self.is_changed = false;
        }
        // Where all levels are sent, no step waits for a report, and packets that are signed one by one would
        // exceed the maximum rate.
        self.is_prompt = now < self.prompt_until && self.sent + 1 < self.top;
        self.sent
    }

    fn needed(&self, rate: &impl Fn(u16) -> f64) -> u16 {
        let top = self.top;
        let highest = |bound: f64| (0..=top).take_while(|level| rate(*level) <= bound).last().unwrap_or(0);
        let sound = self.this.sound.level.max(self.last.sound.level);
        let needed = room_of_holders(sound, top, rate);
        let lossy = room_of_holders(self.this.lossy.level.max(self.last.lossy.level), top, rate);
        let lossy = self.limit.map_or(lossy, |limit| lossy.min(highest(limit.rate)));
        let starting = self.starts.map_or(0, |starts| {
            let level = starts.level.max(self.idle);
            let most = self.start_rate.max(STEP * rate(self.known.0)).min(starts.most);
            let room = if starts.is_crowd { top } else { with_room(level, top, ROOM_OF_START, rate) };
            room.min(highest(most)).max(level)
        });
        needed.max(lossy).max(starting).max(self.idle)
    }

    /// Returns the echo for the base channel's packet of a number. Packets of odd numbers echo the lossy
    /// receivers, if these hold more than others.
    pub fn echo(&self, number: u64) -> DemandEcho {
        let Reports { sound, lossy } = self.this;
        let shows_lossy = lossy.level > sound.level && !number.is_multiple_of(2);
        // Other receivers know these reports by the loss.
        let lossy = Reported { loss: lossy.loss.max(LossClass::HEAVY), ..lossy };
        let Reported { level, loss } = if shows_lossy { lossy } else { sound };
        DemandEcho {
            round: self.round,
            is_open: self.starts.is_some_and(|starts| starts.is_crowd),
            level: u8::try_from(level).unwrap_or(u8::MAX),
            loss,
        }
    }

    /// Returns the highest level that receivers reported in this round and the last.
    pub fn held(&self) -> u16 {
        [self.this, self.last]
            .map(|round| round.sound.level.max(round.lossy.level))
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    /// Whether no receiver has reported of late that it starts, or holds a level above the base channel.
    pub fn has_no_receivers(&self) -> bool {
        self.held() == 0 && self.starts.is_none()
    }

    /// Whether the next step of a single start is likely, and needs levels that are not sent. Many receivers
    /// find room for all steps.
    pub fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    /// Returns the highest level that is sent while nobody reports.
    pub fn idle(&self) -> u16 {
        self.idle
    }

    /// Whether a receiver ever reported.
    pub fn has_reports(&self) -> bool {
        self.has_reports
    }

    /// Whether the levels of receivers that lose most packets are bounded.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }
}

/// Returns the highest level that is sent to receivers of a level; 0 to nobody.
fn room_of_holders(level: u16, top: u16, rate: &impl Fn(u16) -> f64) -> u16 {
    if level == 0 { 0 } else { with_room(level, top, ROOM, rate) }
}

/// Returns the highest level, up to `top`, whose rate is within a factor of the rate of `level`, and at
/// least the next level.
pub fn with_room(level: u16, top: u16, factor: f64, rate: impl Fn(u16) -> f64) -> u16 {
    let most = factor * rate(level);
    (level..=top).take_while(|next| *next <= level + 1 || rate(*next) <= most).last().unwrap_or(top)
}

#[cfg(test)]
#[path = "tests/demand.rs"]
mod tests;
