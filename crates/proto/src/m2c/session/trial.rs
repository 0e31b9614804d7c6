//! Together: how receivers behind one bottleneck come to hold the same levels.
//!
//! A level that another receiver behind the same bottleneck holds costs nothing, but no receiver is told so: all that it sees of the
//! others is what they all lose. So each tries. A session that has its bottleneck to itself overshoots with each join, loses for
//! seconds on end, which no TCP beside it would survive, and then leaves the queue empty for seconds. In that pause a receiver joins a
//! level: if the queue begins to grow, the level is left again at once and nothing else changes; if not, it is kept, and the window is
//! scaled to it. Receivers of different levels try in different epochs, so that one's overshoot is not taken for the other's.

use super::Session;
use super::joining::ROOM;
use crate::control::Wishes;
use crate::layering::clock::delay;
use crate::m2c::receiver::Mode;
use crate::m2c::start::Verdict;
use crate::time::{Duration, Instant};

/// A queue of less than this, in seconds, or of a packet, is none.
const EMPTY: f64 = 0.004;
/// Losses in so many epochs in a row are the session's own doing: a TCP makes room within round trips.
const CROWDED: u32 = 6;
/// Epochs for which that is remembered: a sub-slot.
const REMEMBERED: u32 = 20;
/// Epochs in which levels take turns to be tried.
const TURNS: u64 = 3;
/// Epochs until the next trial, after one whose first level was not carried.
const WAIT: u64 = 10;
/// Levels that a trial joins at a time grow by one each two joins, up to this: 2.4 times the rate, as in fast start.
const STEP_MAX: u16 = 3;
/// A level that was tried is kept after this time and so many packets: a fifth too much shows by then.
const JUDGED_TIME: Duration = Duration::from_millis(100);
const JUDGED_PACKETS: f64 = 16.0;
/// When others of the session seem to have joined, so much more than the window allows may be joined as well.
const LED: f64 = 1.2;
/// Epochs after a join in which a queue that grows is its own.
const OWN: u64 = 4;

/// What is remembered of the queue, and of trials.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    /// When the queue was last seen empty, and a packet lost.
    empty: Instant,
    lost: Instant,
    /// Epochs in a row with losses.
    lossy: u32,
    /// For so many epochs more the bottleneck is taken for the session's own.
    crowded: u32,
    is_on: bool,
    /// Levels joined last, which are not known to be carried yet.
    pending: u16,
    /// Joins of this trial.
    joins: u16,
    /// First epoch of the next trial.
    next: u64,
}

impl Trial {
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// A start ended: what others found in the same time, this receiver may have missed.
    pub(super) fn remember(&mut self) {
        self.crowded = REMEMBERED;
    }

    /// Ends the trial under way, if there is one; what it joined is not its any more.
    pub(super) fn end(&mut self) {
        self.is_on = false;
        self.pending = 0;
    }

    /// The trial met the limit, or another's. Levels that are to be left.
    fn fail(&mut self, epoch: u64) -> u16 {
        self.next = epoch + if self.joins == 1 { WAIT } else { 1 };
        self.is_on = false;
        core::mem::take(&mut self.pending)
    }
}

impl Session {
    /// A packet came, and showed that `lost` others never will.
    pub(super) fn watch(&mut self, now: Instant, lost: u64) {
        let packet = 1.0 / self.rate_of(self.level(), now);
        if self.delay.queueing_last() <= EMPTY.max(packet) {
            self.trial.empty = now;
        }
        if lost > 0 {
            self.trial.lost = now;
        }
    }

    /// Whether a queue that only this session makes was empty within the last two epochs: if it fills, it is by other receivers.
    pub(super) fn was_empty(&self, now: Instant) -> bool {
        self.trial.crowded > 0
            && self.shows_queues()
            && now.since(self.trial.empty) <= self.epochs(2)
            && now.since(self.first) > self.epochs(OWN)
    }

    /// Whether there was a queue of late. Behind a policer, or where packets are lost by chance, none is ever seen, and an empty one says
    /// nothing.
    fn shows_queues(&self) -> bool {
        self.delay.queueing_peak() > 2.0 * EMPTY
    }

    fn epochs(&self, count: u64) -> Duration {
        self.clock.channels.epoch().saturating_mul(count)
    }

    /// By how much more than the window allows may be joined: others of the session joined just now, if a queue that was empty fills although
    /// this receiver did nothing.
    pub(super) fn lead(&self, now: Instant) -> f64 {
        let is_filling = now.since(self.trial.lost) <= self.epochs(1)
            || self.delay.queueing_last() > ROOM * self.delay.queueing_peak();
        if self.was_empty(now) && is_filling { LED } else { 1.0 }
    }

    /// Whether the packet that left at `left` is the first of an epoch. If so, a trial may begin.
    pub(super) fn turn_epoch(&mut self, now: Instant, left: Instant) -> bool {
        let epoch = self.clock.channels.epoch_at(left);
        if epoch <= self.epoch {
            return false;
        }
        self.epoch = epoch;
        let is_lossy = now.since(self.trial.lost) <= self.epochs(1);
        let trial = &mut self.trial;
        trial.lossy = if is_lossy { trial.lossy + 1 } else { 0 };
        trial.crowded = if trial.lossy >= CROWDED { REMEMBERED } else { trial.crowded.saturating_sub(1) };
        if !is_lossy && self.may_try(now) {
            self.trial = Trial { is_on: true, pending: 0, joins: 0, ..self.trial };
            self.start.begin(now);
        }
        true
    }

    /// Whether the queue is empty, and it is this level's turn.
    fn may_try(&self, now: Instant) -> bool {
        let next = self.clock.channels.wave_at(self.level() + 1, self.slot).number;
        self.mode == Mode::CongestionAvoidance
            && self.joining.is_none()
            && !self.trial.is_on
            && self.trial.crowded > 0
            && self.shows_queues()
            && self.epoch >= self.trial.next
            && (next + self.epoch).is_multiple_of(TURNS)
            && now.since(self.trial.empty) < self.epochs(1)
    }

    /// Goes on with a trial, after a packet that left at `left`.
    pub(super) fn attempt(&mut self, now: Instant, left: Instant, wishes: &mut Wishes) {
        let held = self.rate_of(self.level(), now);
        let verdict = self.start.judge(now, delay(now, left), held, self.rtt());
        if self.start.doubts() {
            self.joining = None;
            for _ in 0..self.trial.fail(self.epoch) {
                self.leave_highest(now, wishes);
            }
            return;
        }
        let judged = JUDGED_TIME + Duration::from_secs_f64(JUDGED_PACKETS / held);
        let is_judged = self.trial.pending == 0 || now.since(self.first) >= judged;
        if verdict != Verdict::Join || self.joining.is_some() || !is_judged {
            return;
        }
        self.keep_tried(now);
        let level = self.level();
        self.trial.joins += 1;
        let target = (level + self.trial.joins.div_ceil(2).min(STEP_MAX)).min(self.top());
        if target == level || self.rate_of(target, now) > self.limits.rate_max {
            self.trial.fail(self.epoch);
            return;
        }
        self.trial.pending = target - level;
        self.join(now, target, wishes);
    }

    /// What was joined last is carried: the window is scaled, as if it had been held all along.
    fn keep_tried(&mut self, now: Instant) {
        let level = self.level();
        let before = level.saturating_sub(core::mem::take(&mut self.trial.pending));
        let factor = self.rate_of(level, now) / self.rate_of(before, now);
        self.window *= factor;
        self.mean *= factor;
    }
}
