//! Spacing of departures of many layers, so that packets leave apart, not together: the same rules for every
//! sender of layers.

use crate::pacing::BURST;
use crate::time::{Duration, Instant};

/// Factor by which a sender may exceed the total rate of its layers when packets of several layers coincide:
/// the margin that smooths such bursts.
pub(crate) const HEADROOM: f64 = 1.25;
/// Lag beyond which a sender skips missed packets.
const LAG_MAX: Duration = Duration::from_secs(1);
/// Lag up to which a driver counts as on time: a turn or two of the driver.
const CALM: Duration = Duration::from_millis(5);

/// Spaces packets at 1.25 times the total rate at most. A late driver catches up for a burst at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spacing {
    /// Time by which a late driver catches up.
    burst: Duration,
    /// Earliest time of the next packet.
    earliest: Instant,
    /// Whether the driver gave up time and has not caught up with the schedule since.
    is_behind: bool,
    /// Time by which the schedule leaves later than planned.
    slip: Duration,
    /// Whether time that is given up moves the rest of the schedule.
    slips: bool,
}

impl Default for Spacing {
    fn default() -> Self {
        Self { burst: BURST, earliest: Instant::ZERO, is_behind: false, slip: Duration::ZERO, slips: false }
    }
}

impl Spacing {
    /// Sets the time by which a late driver catches up. Default: [`BURST`].
    pub(crate) fn set_burst(&mut self, burst: Duration) {
        self.burst = burst;
    }

    /// Returns the earliest departure time of a packet scheduled at `at`.
    pub(crate) fn due(&self, at: Instant) -> Instant {
        (at + self.slip).max(self.earliest)
    }

    /// Lets the schedule slip by the time that a late driver gives up.
    pub(crate) fn slip(&mut self) {
        self.slips = true;
    }

    /// Whether the schedule slips.
    pub(crate) fn slips(&self) -> bool {
        self.slips
    }

    /// Returns the time in the schedule.
    pub(crate) fn schedule_time(&self, now: Instant) -> Instant {
        now - self.slip
    }

    /// Records the departure of a packet scheduled at `at`, while all layers together send `rate` packets per
    /// second. Returns the time that is given up.
    pub(crate) fn sent(&mut self, now: Instant, at: Instant, rate: f64) -> Duration {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let gap = (1e9 / (HEADROOM * rate)) as u64;
        let (due, earliest) = (self.due(at), now - self.burst);
        self.earliest = due.max(earliest) + Duration::from_nanos(gap);
        let given_up = earliest.since(due);
        if self.slips {
            self.slip = self.slip + given_up;
        } else {
            self.is_behind |= given_up > Duration::ZERO;
        }
        given_up
    }

    /// Returns the lag of a late driver behind a schedule whose earliest packet is due at `at`. Zero for a
    /// driver that gave up no time: at slow rates, packets that wait for earlier packets are late because of
    /// the spacing. `None` for a schedule that slips.
    pub(crate) fn backlog(&mut self, now: Instant, at: Instant) -> Option<Duration> {
        let late = now.since(at);
        self.is_behind &= late > CALM;
        (!self.slips).then_some(if self.is_behind { late } else { Duration::ZERO })
    }

    /// Returns the limit of the lag: packets scheduled before this time are skipped.
    pub(crate) fn given_up_before(now: Instant) -> Instant {
        now - LAG_MAX
    }
}
