//! What the receiver's own machine takes.
//!
//! Packets that the machine drops because they are not read in time are lost like those of a full link, but
//! with no queue before and no round trip that grows: a receiver would hold its levels until they have
//! decayed, and lose most of what comes meanwhile. So the machine says when it drops packets, and the
//! receiver leaves what exceeds the rate that was read: at once, but for half of what it holds, which it may
//! leave a second later.

use super::Session;
use crate::control::Wishes;
use crate::pacing::Retry;
use crate::time::{Duration, Instant};

/// Part of the rate that was read at which the receiver settles: the rest is for decoding what came.
const ROOM: f64 = 0.8;
/// Part of the rate that is held which is kept at least: a machine that stalled has read next to nothing of
/// late, and reads as much as before from now on. One that is slow drops packets again, and the receiver
/// leaves as much again.
const KEPT: f64 = 0.5;
/// Drops so soon after the last leave come of what was under way, or waited to be read.
const LEAVES: Duration = Duration::from_secs(1);

/// The most that the machine is known to take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overrun {
    /// Packets per second, once the machine dropped some.
    rate_max: Option<f64>,
    retry: Retry,
    /// When levels were left last.
    left: Option<Instant>,
}

impl Session {
    /// The most that is joined, in packets per second.
    pub(super) fn rate_max(&self) -> f64 {
        self.overrun.rate_max.unwrap_or(f64::INFINITY).min(self.limits.rate_max)
    }

    /// The machine dropped packets: leaves what it does not take.
    pub(in crate::m2c) fn overrun(&mut self, now: Instant, wishes: &mut Wishes) {
        self.overrun.retry.wait(now);
        if self.overrun.left.is_some_and(|left| now < left + LEAVES) {
            return;
        }
        let held = self.rate_of(self.level(), now);
        let read = self.meter.rate(now).min(held);
        let most = (ROOM * read).max(KEPT * held).max(self.clock.channels.base_rate());
        self.overrun.rate_max = Some(most);
        self.overrun.retry.settle(now);
        self.overrun.left = Some(now);
        self.settle(now, most, wishes);
        while self.level() > 0 && self.rate_of(self.level(), now) > most {
            self.leave_highest(now, wishes);
        }
    }

    /// Where the machine has dropped nothing for long enough, a level more may be joined.
    pub(super) fn try_more(&mut self, now: Instant) {
        let Some(most) = self.overrun.rate_max else { return };
        if self.overrun.retry.is_due(now) {
            let more = most / self.clock.channels.ratio();
            self.overrun.rate_max = (more < self.rate_of(self.top(), now)).then_some(more);
        }
    }
}
