//! Attribution of the queue: whether the session has its bottleneck to itself, and whether other receivers of
//! the session have just joined.
//!
//! A session that has its bottleneck to itself overshoots with each join, loses packets for seconds on end (a
//! TCP beside the session would not survive such losses), and then leaves the queue empty for seconds.

use super::Session;
use super::joining::ROOM;
use crate::time::{Duration, Instant};

/// A queueing delay below this, in seconds, or below a packet's time counts as an empty queue.
const EMPTY: f64 = 0.004;
/// Losses in each epoch for this long are caused by the session itself: a TCP makes room within round trips.
const CROWDED: Duration = Duration::from_secs(3);
/// Factor by which joins may exceed the window if other receivers of the session seem to have joined.
const LED: f64 = 1.2;
/// Number of epochs after a join in which a growing queue is attributed to the receiver's own join.
const OWN: u64 = 4;

/// Recent observations of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    /// Time of the last empty queue, and of the last loss.
    empty: Instant,
    lost: Instant,
    /// Start of the current run of epochs with losses.
    lossy: Instant,
    /// Time until which the bottleneck is assumed to be the session's own.
    crowded: Instant,
}

impl Queue {
    pub(super) fn new(now: Instant) -> Self {
        Self { lossy: now, ..Self::default() }
    }
}

impl Session {
    /// Records a packet that revealed `lost` losses.
    pub(super) fn watch(&mut self, now: Instant, lost: u64) {
        let packet = 1.0 / self.held_rate(now);
        if self.path.delay.queueing_last() <= EMPTY.max(packet) {
            self.queue.empty = now;
        }
        if lost > 0 {
            self.queue.lost = now;
        }
    }

    /// Assumes for a sub-slot that the bottleneck is the session's own.
    pub(super) fn remember_crowd(&mut self, now: Instant) {
        self.queue.crowded = now + Duration::from_secs_f64(self.clock.channels.sub_slot_seconds());
    }

    /// Returns whether the packet that left at `left` is the first of an epoch.
    pub(super) fn turn_epoch(&mut self, now: Instant, left: Instant) -> bool {
        let epoch = self.clock.channels.epoch_at(left);
        if epoch <= self.decisions.epoch {
            // A packet with an epoch far ahead must not block later packets.
            if epoch + 1 < self.decisions.epoch {
                self.decisions.epoch = epoch;
            }
            return false;
        }
        self.decisions.epoch = epoch;
        if now.since(self.queue.lost) > self.epochs(1) {
            self.queue.lossy = now;
        } else if now.since(self.queue.lossy) >= CROWDED {
            self.remember_crowd(now);
        }
        true
    }

    /// Returns whether a queue made by this session alone was empty within the last two epochs: if such a
    /// queue fills, the cause is other receivers.
    pub(super) fn was_empty(&self, now: Instant) -> bool {
        now < self.queue.crowded
            && self.shows_queues()
            && now.since(self.queue.empty) <= self.epochs(2)
            && now.since(self.levels.first) > self.epochs(OWN)
    }

    /// Returns whether the queue was empty within the last epoch, after the end of the start and after the
    /// last loss.
    pub(super) fn is_empty_of_late(&self, now: Instant) -> bool {
        self.shows_queues()
            && self.queue.empty > self.losses.last
            && now.since(self.queue.empty) < self.epochs(1)
    }

    /// Whether a queue was observed recently. Behind a policer, or with random losses, no queue ever appears,
    /// and an empty queue is no evidence.
    fn shows_queues(&self) -> bool {
        self.path.delay.queueing_peak() > 2.0 * EMPTY
    }

    /// Returns the factor by which joins may exceed the window. If an empty queue fills although this
    /// receiver did nothing, other receivers of the session have just joined.
    pub(super) fn lead(&self, now: Instant) -> f64 {
        let is_filling = now.since(self.queue.lost) <= self.epochs(1)
            || self.path.delay.queueing_last() > ROOM * self.path.delay.queueing_peak();
        if self.was_empty(now) && is_filling { LED } else { 1.0 }
    }

    fn epochs(&self, count: u64) -> Duration {
        self.clock.channels.epoch().saturating_mul(count)
    }
}
