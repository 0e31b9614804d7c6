//! The highest level that a sender of layers sends.
//!
//! A driver that cannot send all levels in time would shed packets of every level alike, and leave no level whole. So the levels above a ceiling are not
//! sent at all, and those below keep their schedule to the packet. Receivers are told of the ceiling on the base channel
//! ([`Departure::ceiling`](crate::control::Departure::ceiling)): they leave what is above it, and do not take its silence for loss.
//!
//! Until the ceiling has fallen, a late driver sends the lowest levels first: to a receiver a backlog would look like a queue of the network.
//!
//! The ceiling falls when the backlog grows while the driver gives up time, to somewhat less than the driver has been seen to send. It rises level by level
//! while there is no backlog ([`Retry`]).

use crate::pacing::{DriverLoad, Retry};
use crate::time::{Duration, Instant};

/// A driver that is later than this sends the lowest levels first, so that the backlog is one of the highest.
pub(super) const LOWEST_FIRST: Duration = Duration::from_millis(20);
/// Backlog above which a driver may be overloaded. A busy machine keeps a driver from running for a tenth of a second now and then.
const LATE: Duration = Duration::from_millis(250);
/// A backlog that shrinks by less than this in a window does not shrink.
const SHRINKS: Duration = Duration::from_millis(20);
/// Backlog up to which a driver has room: some turns of it.
const CALM: Duration = Duration::from_millis(20);
/// Part of the rate that the driver was seen to send at which the ceiling comes to be: the rest works off the backlog.
const ROOM: f64 = 0.8;
/// A driver that spends more than this part of its time on sending with the spacing's headroom has no backlog that grows.
const BUSY: f64 = 0.9;

/// The ceiling of a sender's levels, by what its driver keeps up with.
#[derive(Clone, Debug)]
pub(crate) struct Ceiling {
    /// The session's highest level.
    top: u16,
    level: u16,
    load: DriverLoad,
    /// The backlog at the last judgement.
    backlog: Duration,
    retry: Retry,
}

impl Ceiling {
    /// A sender that sends all of its levels, up to `top`.
    pub(crate) fn new(top: u16) -> Self {
        Self {
            top,
            level: top,
            load: DriverLoad::default(),
            backlog: Duration::ZERO,
            retry: Retry::default(),
        }
    }

    /// The highest level that is sent.
    pub(crate) fn level(&self) -> u16 {
        self.level
    }

    /// The same, if it is not the session's highest.
    pub(crate) fn lowered(&self) -> Option<u16> {
        (self.level < self.top).then_some(self.level)
    }

    /// Records a packet that left at `now`, for which the spacing gave up `given_up`; the schedule has the next one leave at `next`. Levels 0..=n send
    /// `rate(n)` packets per second at the most. Returns the new level when the ceiling moves.
    pub(crate) fn departed(
        &mut self,
        now: Instant,
        given_up: Duration,
        next: Instant,
        rate: impl Fn(u16) -> f64,
    ) -> Option<u16> {
        let sample = self.load.record(now, given_up)?;
        let backlog = now.since(next);
        let before = core::mem::replace(&mut self.backlog, backlog);
        let before_level = self.level;
        let is_overloaded = sample.share < BUSY;
        if is_overloaded && backlog > LATE && backlog + SHRINKS > before {
            let carried = ROOM * sample.rate;
            self.level = (0..self.level).rev().find(|level| rate(*level) <= carried).unwrap_or(0);
            self.retry.settle(now);
        } else if is_overloaded || backlog > CALM {
            self.retry.wait(now);
        } else if self.level < self.top && self.retry.is_due(now) {
            self.level += 1;
        }
        (self.level != before_level).then_some(self.level)
    }
}
