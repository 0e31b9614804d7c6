//! Levels with a schedule of their own each, sent one packet after the other.

use super::spacing::Spacing;
use crate::time::Instant;

/// When the packets of levels leave, each level's counted from 0 and in order.
pub(crate) trait Schedule {
    /// Levels, at least one.
    fn level_count(&self) -> u16;

    /// When a level's packet leaves.
    fn nth(&self, level: u16, number: u64) -> Instant;

    /// Packets of a level that leave before an instant.
    fn before(&self, level: u16, at: Instant) -> u64;

    /// Packets per second that all levels send together, at the most.
    fn rate_max(&self) -> f64;
}

/// The packets of all levels in the order of a schedule, never faster than 1.25 times its highest rate. Time per packet: O(levels).
#[derive(Clone, Debug)]
pub(crate) struct Turns<S> {
    schedule: S,
    /// The next packet of each level.
    next: Vec<Next>,
    /// The level whose packet is the next of all.
    level: u16,
    spacing: Spacing,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    number: u64,
    at: Instant,
}

impl<S: Schedule> Turns<S> {
    pub(crate) fn new(schedule: S) -> Self {
        let next =
            (0..schedule.level_count()).map(|level| Next { number: 0, at: schedule.nth(level, 0) }).collect();
        let mut turns = Self { schedule, next, level: 0, spacing: Spacing::default() };
        turns.choose();
        turns
    }

    pub(crate) const fn schedule(&self) -> &S {
        &self.schedule
    }

    /// The level of the next packet.
    pub(crate) const fn level(&self) -> u16 {
        self.level
    }

    /// Its number in the level.
    pub(crate) fn number(&self) -> u64 {
        self.next[usize::from(self.level)].number
    }

    /// When the schedule has it leave.
    pub(crate) fn at(&self) -> Instant {
        self.next[usize::from(self.level)].at
    }

    /// When it may leave.
    pub(crate) fn due(&self) -> Instant {
        self.spacing.due(self.at())
    }

    /// It left.
    pub(crate) fn departed(&mut self, now: Instant) {
        self.spacing.sent(now, self.at(), self.schedule.rate_max());
        let level = self.level;
        self.advance(level, self.number() + 1);
        self.choose();
        self.give_up(now);
    }

    /// Gives up what should have left long ago.
    pub(crate) fn give_up(&mut self, now: Instant) {
        let before = Spacing::given_up_before(now);
        if self.at() >= before {
            return;
        }
        for level in 0..self.schedule.level_count() {
            if self.next[usize::from(level)].at < before {
                self.advance(level, self.schedule.before(level, before));
            }
        }
        self.choose();
    }

    fn choose(&mut self) {
        let earliest = (0..).zip(&self.next).min_by_key(|(_, next)| next.at);
        self.level = earliest.map_or(0, |(level, _)| level);
    }

    /// Goes on with a level's packet of this number.
    fn advance(&mut self, level: u16, number: u64) {
        self.next[usize::from(level)] = Next { number, at: self.schedule.nth(level, number) };
    }
}
