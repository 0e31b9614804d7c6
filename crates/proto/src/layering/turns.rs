//! Levels with independent schedules, sent packet by packet.

use headwater_wire::rtt;

use super::ceiling::Ceiling;
use super::spacing::Spacing;
use crate::control::DemandRates;
use crate::pacing::Overload;
use crate::time::{Duration, Instant};

/// Departure times of the packets of levels. The packets of a level are counted from 0 and leave in order.
pub trait Schedule {
    /// Number of levels, at least 1.
    fn level_count(&self) -> u16;

    /// Returns the departure time of a level's packet.
    fn nth(&self, level: u16, number: u64) -> Instant;

    /// Returns the number of packets of a level that leave before an instant.
    fn before(&self, level: u16, at: Instant) -> u64;

    /// Maximum rate of levels 0..=`level` together, in packets per second.
    fn rate_most(&self, level: u16) -> f64;
}

/// Part of the rate that a driver sustains which the levels use; the rest reduces the backlog.
const ROOM: f64 = 0.8;

/// Packets of all levels up to a [`Ceiling`] in the order of a schedule, at most at 1.25 times their maximum
/// rate. Time per packet: O(levels).
#[derive(Clone, Debug)]
pub struct Turns<S> {
    schedule: S,
    /// Next packet of each level.
    next: Vec<Next>,
    /// Level of the next packet overall.
    level: u16,
    /// Scheduled time of the earliest packet, which is also the next packet unless the driver is late.
    earliest: Instant,
    ceiling: Ceiling,
    spacing: Spacing,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    number: u64,
    at: Instant,
}

impl<S: Schedule> Turns<S> {
    /// Returns the turns of a schedule, from the schedule's start on.
    pub fn new(schedule: S) -> Self {
        let next =
            (0..schedule.level_count()).map(|level| Next { number: 0, at: schedule.nth(level, 0) }).collect();
        let ceiling = Ceiling::new(schedule.level_count() - 1);
        let mut turns =
            Self { schedule, next, level: 0, earliest: Instant::ZERO, ceiling, spacing: Spacing::default() };
        turns.choose();
        turns
    }

    /// The schedule.
    pub const fn schedule(&self) -> &S {
        &self.schedule
    }

    /// Returns the ceiling of the levels.
    pub fn ceiling(&self) -> &Ceiling {
        &self.ceiling
    }

    /// Follows receivers' reports: [`Ceiling::follow_demand`].
    pub fn follow_demand(&mut self, rates: DemandRates) {
        self.ceiling.follow_demand(rates, |level| self.schedule.rate_most(level));
        self.choose();
    }

    /// Records a receiver's report: [`Ceiling::report`].
    pub fn report(&mut self, now: Instant, report: rtt::Demand) {
        self.ceiling.report(now, report, |level| self.schedule.rate_most(level));
    }

    /// Follows the sender's own link: [`Ceiling::on_full_link`].
    pub fn on_full_link(&mut self, packets_per_second: f64) {
        self.ceiling.on_full_link(packets_per_second);
    }

    /// Returns what the driver sustains, if less than all levels.
    pub fn overload(&self) -> Option<Overload> {
        self.ceiling.overload(|level| self.schedule.rate_most(level) / ROOM)
    }

    /// Adapts to a moved ceiling: a restored level resumes at its current place in the schedule.
    fn follow_ceiling(&mut self, now: Instant, before: u16, level: u16) {
        for back in before + 1..=level {
            self.advance(back, self.schedule.before(back, now));
        }
        self.choose();
    }

    /// Level of the next packet.
    pub const fn level(&self) -> u16 {
        self.level
    }

    /// Number of the next packet in its level.
    pub fn number(&self) -> u64 {
        self.next[usize::from(self.level)].number
    }

    /// Scheduled time of the next packet.
    pub fn at(&self) -> Instant {
        self.next[usize::from(self.level)].at
    }

    /// Earliest departure time of the next packet.
    pub fn due(&self) -> Instant {
        self.spacing.due(self.earliest)
    }

    /// Records the departure of the next packet.
    pub fn departed(&mut self, now: Instant) {
        let given_up = self.spacing.sent(now, self.earliest, self.schedule.rate_most(self.ceiling.level()));
        let level = self.level;
        self.advance(level, self.number() + 1);
        self.choose();
        self.give_up(now);
        let before = self.ceiling.level();
        let backlog = self.spacing.backlog(now, self.earliest);
        let rate = |level| self.schedule.rate_most(level);
        if let Some(level) = self.ceiling.departed(now, given_up, backlog, rate, |level| rate(level) / ROOM) {
            self.follow_ceiling(now, before, level);
        }
        self.prefer_lowest(now);
    }

    /// If the driver is late, chooses the lowest level among the due packets.
    fn prefer_lowest(&mut self, now: Instant) {
        if self.spacing.backlog(now, self.earliest).is_some_and(|backlog| backlog > Duration::ZERO) {
            let lowest = (0..=self.ceiling.level()).zip(&self.next).find(|(_, next)| next.at <= now);
            self.level = lowest.map_or(self.level, |(level, _)| level);
        }
    }

    /// Skips packets that are overdue.
    pub fn give_up(&mut self, now: Instant) {
        let before = Spacing::given_up_before(now);
        if self.earliest >= before {
            return;
        }
        for level in 0..=self.ceiling.level() {
            if self.next[usize::from(level)].at < before {
                self.advance(level, self.schedule.before(level, before));
            }
        }
        self.choose();
    }

    fn choose(&mut self) {
        let earliest = (0..=self.ceiling.level()).zip(&self.next).min_by_key(|(_, next)| next.at);
        self.level = earliest.map_or(0, |(level, _)| level);
        self.earliest = self.at();
    }

    /// Moves a level to the packet of this number.
    fn advance(&mut self, level: u16, number: u64) {
        self.next[usize::from(level)] = Next { number, at: self.schedule.nth(level, number) };
    }
}
