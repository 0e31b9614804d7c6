//! The highest level that a sender of layers sends.
//!
//! A driver that cannot send all levels in time would shed packets of every level alike, and leave no level
//! whole. So the levels above a ceiling are not sent at all, and those below keep their schedule to the
//! packet. Receivers are told of the ceiling on the base channel
//! ([`Departure::ceiling`](crate::control::Departure::ceiling)): they leave what is above it, and do not take
//! its silence for loss.
//!
//! Until the ceiling has fallen, a late driver sends the lowest levels first: to a receiver a backlog would
//! look like a queue of the network.
//!
//! The ceiling falls when the backlog grows while the driver gives up time in two windows in a row, to
//! somewhat less than the driver has been seen to send in the better one: a busy machine's pauses fill one.
//! It rises level by level while there is no backlog (`pacing::Retry`).

use crate::pacing::{DriverLoad, Retry};
use crate::time::{Duration, Instant};

/// Backlog above which a driver may be overloaded. A busy machine keeps a driver from running for a tenth of
/// a second now and then.
const LATE: Duration = Duration::from_millis(250);
/// A backlog that shrinks by less than this in a window does not shrink.
const SHRINKS: Duration = Duration::from_millis(20);
/// Part of the rate that the driver was seen to send at which the ceiling comes to be: the rest works off the
/// backlog.
const ROOM: f64 = 0.8;
/// A driver that spends more than this part of its time on sending with the spacing's headroom has no backlog
/// that grows.
const BUSY: f64 = 0.9;

/// The ceiling of a sender's levels, by what its driver keeps up with.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// The session's highest level.
    top: u16,
    level: u16,
    load: DriverLoad,
    /// The backlog at the last judgement.
    backlog: Duration,
    /// Packets per second of the last window, if the driver was overloaded in it and the ceiling did not
    /// fall.
    overloaded: Option<f64>,
    retry: Retry,
}

impl Ceiling {
    /// A sender that sends all of its levels, up to `top`.
    pub fn new(top: u16) -> Self {
        Self {
            top,
            level: top,
            load: DriverLoad::default(),
            backlog: Duration::ZERO,
            overloaded: None,
            retry: Retry::default(),
        }
    }

    /// The highest level that is sent.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// The same, if it is not the session's highest.
    pub fn lowered(&self) -> Option<u16> {
        (self.level < self.top).then_some(self.level)
    }

    /// Records a packet that left at `now`, for which the spacing gave up `given_up`; the driver's backlog is
    /// `backlog`. Levels 0..=n send `rate(n)` packets per second at the most. Returns the new level when the
    /// ceiling moves.
    pub fn departed(
        &mut self,
        now: Instant,
        given_up: Duration,
        backlog: Duration,
        rate: impl Fn(u16) -> f64,
    ) -> Option<u16> {
        let sample = self.load.record(now, given_up)?;
        let before = core::mem::replace(&mut self.backlog, backlog);
        let before_level = self.level;
        let is_busy = sample.share < BUSY;
        let is_overloaded = is_busy && backlog > LATE && backlog + SHRINKS > before;
        let overloaded = self.overloaded.take().filter(|_| is_overloaded);
        if let Some(rate_before) = overloaded {
            let carried = ROOM * sample.rate.max(rate_before);
            self.level = (0..self.level).rev().find(|level| rate(*level) <= carried).unwrap_or(0);
            self.retry.settle(now);
        } else if is_busy || backlog > Duration::ZERO {
            self.overloaded = is_overloaded.then_some(sample.rate);
            self.retry.wait(now);
        } else if self.level < self.top && self.retry.is_due(now) {
            self.level += 1;
        }
        (self.level != before_level).then_some(self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_windows_decide_and_the_better_one_says_what_the_driver_sends() {
        let mut ceiling = Ceiling::new(19);
        let mut now = Instant::ZERO + Duration::from_secs(1);
        ceiling.departed(now, Duration::ZERO, Duration::ZERO, |_| 0.0);
        // Half of the time is given up, and the backlog is a second.
        let mut window = |packets: u32| {
            let gap = Duration::from_nanos(500_000_000 / u64::from(packets));
            for _ in 0..packets {
                now += gap;
                let given_up = Duration::from_nanos(gap.as_nanos() / 2);
                let backlog = Duration::from_secs(1);
                ceiling.departed(now, given_up, backlog, |level| 100.0 * f64::from(level + 1));
            }
            ceiling.level()
        };
        assert_eq!(window(500), 19, "one window");
        // Level 7 is 800 packets per second.
        assert_eq!(window(100), 7);
        assert_eq!(window(100), 7, "the next one is the first of two again");
    }
}
