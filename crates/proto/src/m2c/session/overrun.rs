//! Capacity of the receiver's own host.
//!
//! Packets dropped by the host because they were not read in time look like losses of a full link, but
//! without a queue before and without a growing round-trip time. Without a countermeasure, a receiver would
//! keep its levels until they decay, and lose most packets meanwhile. Therefore the host reports drops,
//! and the receiver immediately leaves levels above the rate that was read. The first reaction keeps at least
//! half of the current rate; a further reaction can follow a second later.

use super::Session;
use crate::control::Wishes;
use crate::pacing::Retry;
use crate::time::{Duration, Instant};

/// Part of the read rate at which the receiver settles: the rest is left for decoding.
const ROOM: f64 = 0.8;
/// Minimum part of the current rate that is kept: a host that stalled has a low recent read rate, and
/// recovers its earlier rate. A slow host drops packets again, and the receiver leaves as much again.
const KEPT: f64 = 0.5;
/// Drops within this time after the last leave are caused by packets in flight, or waiting to be read.
const LEAVES: Duration = Duration::from_secs(1);

/// Maximum known rate of the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overrun {
    /// Packets per second, once the host has dropped packets.
    rate_max: Option<f64>,
    retry: Retry,
    /// Time of the last leave.
    left: Option<Instant>,
}

impl Session {
    /// Maximum rate to join, in packets per second.
    pub(super) fn rate_max(&self) -> f64 {
        self.overrun.rate_max.unwrap_or(f64::INFINITY).min(self.limits.rate_max)
    }

    /// Handles a report of dropped packets: leaves the levels beyond the host's capacity.
    pub(in crate::m2c) fn overrun(&mut self, now: Instant, wishes: &mut Wishes) {
        self.overrun.retry.wait(now);
        if self.overrun.left.is_some_and(|left| now < left + LEAVES) {
            return;
        }
        let held = self.held_rate(now);
        let read = self.path.meter.rate(now).min(held);
        let most = (ROOM * read).max(KEPT * held).max(self.clock.channels.base_rate());
        self.overrun.rate_max = Some(most);
        self.overrun.retry.settle(now);
        self.overrun.left = Some(now);
        self.settle(now, most, wishes);
        while self.levels.count() > 0 && self.held_rate(now) > most {
            self.leave_highest(now, wishes);
        }
    }

    /// If the host has dropped nothing for long enough, allows a further level.
    pub(super) fn try_more(&mut self, now: Instant) {
        let Some(most) = self.overrun.rate_max else { return };
        if self.overrun.retry.is_due(now) {
            let more = most / self.clock.channels.ratio();
            self.overrun.rate_max = (more < self.rate_of(self.levels.top, now)).then_some(more);
        }
    }
}
