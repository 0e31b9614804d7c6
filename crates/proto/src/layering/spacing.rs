//! Packets of many layers leave one after the other, not together: the same rules for every sender of layers.

use crate::pacing::BURST;
use crate::time::{Duration, Instant};

/// By how much a sender may be faster than its layers' rates together, where packets of several layers fall
/// together: the room that smooths them out.
pub(crate) const HEADROOM: f64 = 1.25;
/// A sender that is later than this gives up what it missed.
const LAG_MAX: Duration = Duration::from_secs(1);
/// Up to this late a driver keeps up: some turns of it.
const CALM: Duration = Duration::from_millis(20);

/// Keeps packets apart, at 1.25 times the total rate at most. A late driver catches up for [`BURST`] at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spacing {
    /// No packet leaves before this.
    earliest: Instant,
    /// Whether the driver gave up time and has not caught up with the schedule since.
    is_behind: bool,
}

impl Spacing {
    /// When a packet may leave that the schedule has leave at `at`.
    pub(crate) fn due(&self, at: Instant) -> Instant {
        at.max(self.earliest)
    }

    /// It left, while all layers together send `rate` packets a second. Returns the time that is given up.
    pub(crate) fn sent(&mut self, now: Instant, at: Instant, rate: f64) -> Duration {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let gap = (1e9 / (HEADROOM * rate)) as u64;
        let (due, earliest) = (self.due(at), now - BURST);
        self.earliest = due.max(earliest) + Duration::from_nanos(gap);
        let given_up = earliest.since(due);
        self.is_behind |= given_up > Duration::ZERO;
        given_up
    }

    /// By how much a late driver is behind a schedule that has its earliest packet leave at `at`. Zero for a
    /// driver that gave up no time: packets that wait for those before them, as at slow rates, are late by
    /// the spacing's doing.
    pub(crate) fn backlog(&mut self, now: Instant, at: Instant) -> Duration {
        let late = now.since(at);
        self.is_behind &= late > CALM;
        if self.is_behind { late } else { Duration::ZERO }
    }

    /// What the schedule has leave before this is given up.
    pub(crate) fn given_up_before(now: Instant) -> Instant {
        now - LAG_MAX
    }
}
