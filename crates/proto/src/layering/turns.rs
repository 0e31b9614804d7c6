//! Levels with a schedule of their own each, sent one packet after the other.

use super::ceiling::Ceiling;
use super::spacing::Spacing;
use crate::time::{Duration, Instant};

/// When the packets of levels leave, each level's counted from 0 and in order.
pub trait Schedule {
    /// Levels, at least one.
    fn level_count(&self) -> u16;

    /// When a level's packet leaves.
    fn nth(&self, level: u16, number: u64) -> Instant;

    /// Packets of a level that leave before an instant.
    fn before(&self, level: u16, at: Instant) -> u64;

    /// Packets per second that levels 0..=`level` send together, at the most.
    fn rate_most(&self, level: u16) -> f64;
}

/// The packets of all levels up to a [`Ceiling`] in the order of a schedule, never faster than 1.25 times
/// their highest rate. Time per packet: O(levels).
#[derive(Clone, Debug)]
pub struct Turns<S> {
    schedule: S,
    /// The next packet of each level.
    next: Vec<Next>,
    /// The level whose packet is the next of all.
    level: u16,
    /// When the earliest packet of all leaves, which is that one unless the driver is late.
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
    /// Sends the levels of a schedule from its start on.
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

    /// The highest level that is sent.
    pub fn ceiling(&self) -> &Ceiling {
        &self.ceiling
    }

    /// The level of the next packet.
    pub const fn level(&self) -> u16 {
        self.level
    }

    /// Its number in the level.
    pub fn number(&self) -> u64 {
        self.next[usize::from(self.level)].number
    }

    /// When the schedule has it leave.
    pub fn at(&self) -> Instant {
        self.next[usize::from(self.level)].at
    }

    /// When it may leave.
    pub fn due(&self) -> Instant {
        self.spacing.due(self.earliest)
    }

    /// It left.
    pub fn departed(&mut self, now: Instant) {
        let given_up = self.spacing.sent(now, self.earliest, self.schedule.rate_most(self.ceiling.level()));
        let level = self.level;
        self.advance(level, self.number() + 1);
        self.choose();
        self.give_up(now);
        let before = self.ceiling.level();
        let backlog = self.spacing.backlog(now, self.earliest);
        let rate = |level| self.schedule.rate_most(level);
        if let Some(level) = self.ceiling.departed(now, given_up, backlog, rate) {
            // A level that comes back goes on where it would be by now.
            for back in before + 1..=level {
                self.advance(back, self.schedule.before(back, now));
            }
            self.choose();
        }
        self.prefer_lowest(now);
    }

    /// A late driver sends what is due of the lowest level first.
    fn prefer_lowest(&mut self, now: Instant) {
        if self.spacing.backlog(now, self.earliest) > Duration::ZERO {
            let lowest = (0..=self.ceiling.level()).zip(&self.next).find(|(_, next)| next.at <= now);
            self.level = lowest.map_or(self.level, |(level, _)| level);
        }
    }

    /// Gives up what should have left long ago.
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

    /// Goes on with a level's packet of this number.
    fn advance(&mut self, level: u16, number: u64) {
        self.next[usize::from(level)] = Next { number, at: self.schedule.nth(level, number) };
    }
}
