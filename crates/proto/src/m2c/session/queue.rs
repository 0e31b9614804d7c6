//! Whose the queue is: whether the session has its bottleneck for itself, and whether others of the session
//! just joined.
//!
//! A session that has its bottleneck to itself overshoots with each join, loses for seconds on end, which no
//! TCP beside it would survive, and then leaves the queue empty for seconds.

use super::Session;
use super::joining::ROOM;
use crate::time::{Duration, Instant};

/// A queue of less than this, in seconds, or of a packet, is none.
const EMPTY: f64 = 0.004;
/// Losses in each epoch for so long are the session's own doing: a TCP makes room within round trips.
const CROWDED: Duration = Duration::from_secs(3);
/// When others of the session seem to have joined, so much more than the window allows may be joined as well.
const LED: f64 = 1.2;
/// After a join a queue that grows is its own for so many epochs.
const OWN: u64 = 4;

/// What is remembered of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    /// When it was last seen empty, and a packet lost.
    empty: Instant,
    lost: Instant,
    /// Since when each epoch had losses.
    lossy: Instant,
    /// Until when the bottleneck is taken for the session's own.
    crowded: Instant,
}

impl Queue {
    pub(super) fn new(now: Instant) -> Self {
        Self { lossy: now, ..Self::default() }
    }
}

impl Session {
    /// A packet came, and showed that `lost` others never will.
    pub(super) fn watch(&mut self, now: Instant, lost: u64) {
        let packet = 1.0 / self.rate_of(self.level(), now);
        if self.delay.queueing_last() <= EMPTY.max(packet) {
            self.queue.empty = now;
        }
        if lost > 0 {
            self.queue.lost = now;
        }
    }

    /// For a sub-slot the bottleneck is taken for the session's own.
    pub(super) fn remember_crowd(&mut self, now: Instant) {
        self.queue.crowded = now + Duration::from_secs_f64(self.clock.channels.sub_slot_seconds());
    }

    /// Whether the packet that left at `left` is the first of an epoch.
    pub(super) fn turn_epoch(&mut self, now: Instant, left: Instant) -> bool {
        let epoch = self.clock.channels.epoch_at(left);
        if epoch <= self.epoch {
            // One that claimed to be far ahead does not stop the rest.
            if epoch + 1 < self.epoch {
                self.epoch = epoch;
            }
            return false;
        }
        self.epoch = epoch;
        if now.since(self.queue.lost) > self.epochs(1) {
            self.queue.lossy = now;
        } else if now.since(self.queue.lossy) >= CROWDED {
            self.remember_crowd(now);
        }
        true
    }

    /// Whether a queue that only this session makes was empty within the last two epochs: if it fills, it is
    /// by other receivers.
    pub(super) fn was_empty(&self, now: Instant) -> bool {
        now < self.queue.crowded
            && self.shows_queues()
            && now.since(self.queue.empty) <= self.epochs(2)
            && now.since(self.first) > self.epochs(OWN)
    }

    /// Whether the queue was empty within the last epoch, and since the start ended or something was lost.
    pub(super) fn is_empty_of_late(&self, now: Instant) -> bool {
        self.shows_queues() && self.queue.empty > self.lost && now.since(self.queue.empty) < self.epochs(1)
    }

    /// Whether there was a queue of late. Behind a policer, or where packets are lost by chance, none is ever
    /// seen, and an empty one says nothing.
    fn shows_queues(&self) -> bool {
        self.delay.queueing_peak() > 2.0 * EMPTY
    }

    /// By how much more than the window allows may be joined: others of the session joined just now, if a
    /// queue that was empty fills although this receiver did nothing.
    pub(super) fn lead(&self, now: Instant) -> f64 {
        let is_filling = now.since(self.queue.lost) <= self.epochs(1)
            || self.delay.queueing_last() > ROOM * self.delay.queueing_peak();
        if self.was_empty(now) && is_filling { LED } else { 1.0 }
    }

    fn epochs(&self, count: u64) -> Duration {
        self.clock.channels.epoch().saturating_mul(count)
    }
}
