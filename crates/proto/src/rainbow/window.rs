//! The window: which label is asked for when, and at which level (Yano and McCanne 1999, Rainbow receiver).

use std::collections::VecDeque;

use super::config::{Overtaking, WindowConfig};
use super::labels::Labels;
use crate::measure::RoundTrip;
use crate::time::{Duration, Instant};

/// After a timeout without any answer the window grows fast up to half of what it was, at least to this (RFC
/// 5681).
const THRESHOLD_LEAST: u16 = 2;
/// By how much the timeout is above the mean round-trip time at least, in seconds: a clock tick of TCPs of
/// the time (RFC 6298's G).
const TIMEOUT_MARGIN: f64 = 0.1;
/// Part of the way down to a shorter sample that the longest round-trip time goes, at the most.
const FADING: f64 = 1.0 / 64.0;
/// In so many seconds it goes all the way, at the least. What a relay had kept comes at once, any number of
/// times between two replies that came from the source.
const FADING_SECONDS: f64 = 10.0;
/// What is waited beyond the longest round-trip time, in seconds.
const OVERTAKEN_MARGIN: f64 = 0.01;
/// Doublings of the timeout.
const BACK_OFF_MAX: u32 = 6;

/// A request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// 1 to the window.
    pub label: u16,
    /// 1, or one above the level that was not answered.
    pub level: u16,
}

/// What a window does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Grows by one with each answer.
    SlowStart,
    /// Grows by one when every label was answered.
    Avoid,
    /// Has been cut: what it may ask for waits until enough of what was under way has come or is lost.
    Recover,
}

/// What a window counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounters {
    /// Requests.
    pub asked: u64,
    /// Replies to requests that waited for one.
    pub answered: u64,
    /// Replies that nothing waited for: late, merged by another receiver's higher level, or forged.
    pub unasked: u64,
    /// Requests held to be lost, because later ones were answered.
    pub overtaken: u64,
    /// Requests held to be lost, because they were not answered in time.
    pub late: u64,
    /// Cuts of the window, also for what others had lost on a way that this receiver's packets came.
    pub cuts: u64,
    /// Beginnings from a window of one, because nothing was answered at all.
    pub collapses: u64,
}

/// What is known of a label.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The level to ask with.
    level: u16,
    /// The level last asked with; 0 for never.
    asked: u16,
    /// When, and as the how manieth request.
    sent: Instant,
    order: u64,
    /// Later requests that were answered since.
    passed: u8,
    is_waiting: bool,
    /// No request before it had its level: the reply of that level is to this one.
    is_fresh: bool,
}

const UNUSED: Slot =
    Slot { level: 1, asked: 0, sent: Instant::ZERO, order: 0, passed: 0, is_waiting: false, is_fresh: false };

/// A receiver's window over labels.
///
/// Between calls each label of the window waits for a reply or, in recovery, for its turn. No request is made
/// while as many as the window wait for replies; labels that a cut has put outside of it are among those
/// until recovery ends. Memory: 24 bytes for each label that can be. Time per call: O(labels).
#[derive(Clone, Debug)]
pub struct Window {
    config: WindowConfig,
    size: u16,
    mode: Mode,
    /// Slow start ends at this.
    threshold: u16,
    /// By label, less 1.
    slots: Box<[Slot]>,
    /// Labels that wait for a reply, in the order of asking.
    waiting: Vec<u16>,
    /// Labels whose request is withheld.
    ready: Labels,
    /// Labels answered in this round, which begins with an increase or with the end of recovery or slow
    /// start, to requests of after the last cut.
    round: Labels,
    /// Requests not sent yet; each label at most once.
    asks: VecDeque<Ask>,
    /// The number of the next request.
    order: u64,
    cut: Cut,
    round_trip: RoundTrip,
    /// The longest round-trip time of late, in seconds.
    longest: f64,
    /// When a round-trip time was measured last.
    measured: Instant,
    /// Doublings of the timeout since the last sample.
    doublings: u32,
    counters: WindowCounters,
}

/// The last cut.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    at: Instant,
    /// Requests before this one belong to it.
    order: u64,
    /// The window before.
    from: u16,
    /// Whether nothing was answered since.
    is_unanswered: bool,
}

impl Window {
    /// A window that has asked for nothing.
    pub fn new(config: WindowConfig) -> Self {
        let most = config.labels_max;
        Self {
            size: 1,
            mode: Mode::SlowStart,
            threshold: most,
            slots: vec![UNUSED; most.into()].into(),
            waiting: Vec::with_capacity(most.into()),
            ready: Labels::new(most),
            round: Labels::new(most),
            asks: VecDeque::with_capacity(most.into()),
            order: 0,
            cut: Cut::default(),
            round_trip: RoundTrip::default(),
            longest: 0.0,
            measured: Instant::ZERO,
            doublings: 0,
            counters: WindowCounters::default(),
            config,
        }
    }

    /// Labels that it asks for at once.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// What it does.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Requests that wait for a reply.
    pub fn outstanding(&self) -> usize {
        self.waiting.len()
    }

    /// Mean round-trip time, once measured. A request that merges with another receiver's earlier one has a
    /// short one.
    pub fn srtt(&self) -> Option<Duration> {
        self.round_trip.mean().map(Duration::from_secs_f64)
    }

    /// What was counted.
    pub const fn counters(&self) -> &WindowCounters {
        &self.counters
    }

    /// Asks for the first symbol. Once only.
    pub fn start(&mut self, now: Instant) {
        self.ask(now, 1);
    }

    /// Asks for nothing more; what is under way may come.
    pub fn stop(&mut self) {
        self.waiting.clear();
        self.ready.clear();
        self.asks.clear();
        self.slots.fill(UNUSED);
    }

    /// The next request to send.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// When to call [`Window::timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let oldest = self.waiting.first().map(|label| self.due(*label));
        let resume = (self.mode == Mode::Recover).then(|| self.resume_at());
        oldest.into_iter().chain(resume).min()
    }

    /// What is about to answer a label was kept by a relay, which had got it in place of one that was lost
    /// above: so would have been what this receiver had asked for by itself. What was lost at a time comes
    /// one after the other: that is one cut.
    pub fn share_loss(&mut self, now: Instant, label: u16) {
        let is_label = (1..=self.config.labels_max).contains(&label);
        let Some(slot) = is_label.then(|| *self.slot(label)).filter(|slot| slot.is_waiting) else { return };
        let is_known = self.mode == Mode::Recover || slot.order < self.cut.order;
        if !is_known && self.cut.at + Duration::from_secs_f64(self.longest) <= now {
            self.cut(now);
        }
    }

    /// A reply came; a level of 0 clears nothing, and answers nothing. Whether a request waited for it.
    pub fn reply(&mut self, now: Instant, label: u16, level: u16) -> bool {
        let is_sound = level > 0 && (1..=self.config.labels_max).contains(&label);
        let slot = is_sound.then(|| *self.slot(label)).filter(|slot| slot.asked > 0);
        let Some(slot) = slot else {
            self.counters.unasked += 1;
            return false;
        };
        let clears = level >= slot.asked;
        if clears {
            // No breadcrumb is left that would hold up the next request.
            self.slot_mut(label).level = 1;
        }
        if level == slot.asked && slot.is_fresh {
            // Also when it is late: else a timeout that has become too short would never learn of it.
            self.measure(now, now.since(slot.sent).as_secs_f64());
            self.slot_mut(label).is_fresh = false;
        }
        if !slot.is_waiting {
            self.counters.unasked += 1;
            return false;
        }
        self.counters.answered += 1;
        self.cut.is_unanswered = false;
        let place = self.forget(label);
        if clears {
            // A lower level answers an earlier request of the label's, and says nothing of what was asked
            // after that.
            self.overtake(now, place);
        }
        self.go_on(now, label);
        self.resume(now);
        true
    }

    /// Time has come to `now`.
    pub fn timeout(&mut self, now: Instant) {
        while let Some(label) = self.waiting.first().copied()
            && self.due(label) <= now
        {
            if self.slot(label).sent + self.patience() > now {
                self.counters.overtaken += 1;
                self.lose(now, label);
                continue;
            }
            self.counters.late += 1;
            if self.cut.is_unanswered && self.cut.at + self.patience() <= now {
                return self.collapse(now);
            }
            self.lose(now, label);
        }
        self.resume(now);
    }

    fn measure(&mut self, now: Instant, sample: f64) {
        self.round_trip.sample(sample);
        let time = now.since(core::mem::replace(&mut self.measured, now)).as_secs_f64();
        let fading = FADING.min(time / FADING_SECONDS);
        let shorter = (self.longest - sample).max(0.0);
        self.longest = sample.max(self.longest - fading * shorter);
        self.doublings = 0;
    }

    /// The label's request was answered: what is asked for next.
    fn go_on(&mut self, now: Instant, label: u16) {
        if label > self.size {
            return;
        }
        match self.mode {
            // What was under way counts for no round: the window would grow again within one round-trip time.
            Mode::Recover => self.ready.insert(label),
            Mode::SlowStart => {
                self.ask(now, label);
                self.grow(now);
                if self.size >= self.threshold {
                    self.mode = Mode::Avoid;
                }
            }
            Mode::Avoid => {
                // What was asked for before the cut says nothing of the window after it: TCP's, too, grows
                // again once what it sent since was acknowledged.
                if self.slot(label).order >= self.cut.order {
                    self.round.insert(label);
                }
                self.ask(now, label);
                if self.round.len() >= self.size {
                    self.round.clear();
                    self.grow(now);
                }
            }
        }
    }

    fn grow(&mut self, now: Instant) {
        if self.size < self.config.labels_max {
            self.size += 1;
            self.ask(now, self.size);
        }
    }

    /// The first `place` of those that wait were asked for before one that was answered.
    fn overtake(&mut self, now: Instant, place: usize) {
        for index in 0..place {
            let label = self.waiting[index];
            let slot = self.slot_mut(label);
            slot.passed = slot.passed.saturating_add(1);
        }
        // What was asked for earlier has been passed by at least as many.
        let Overtaking::Count(threshold) = self.config.overtaking else { return };
        while let Some(label) = self.waiting.first().copied()
            && self.slot(label).passed >= threshold.max(1)
        {
            self.counters.overtaken += 1;
            self.lose(now, label);
        }
    }

    /// The label's request, or the reply, was lost.
    fn lose(&mut self, now: Instant, label: u16) {
        self.forget(label);
        let slot = self.slot_mut(label);
        slot.level = slot.asked.saturating_add(1);
        let order = slot.order;
        let is_known = self.mode == Mode::Recover || order < self.cut.order;
        if !is_known {
            self.cut(now);
        }
        if label <= self.size {
            self.ready.insert(label);
        }
    }

    fn cut(&mut self, now: Instant) {
        self.counters.cuts += 1;
        self.cut = Cut { at: now, order: self.order, from: self.size, is_unanswered: true };
        self.size = (self.size / 2).max(1);
        self.mode = Mode::Recover;
        self.round.clear();
        self.ready.truncate(self.size);
    }

    /// Nothing at all was answered since the last cut: begins anew, as TCP does.
    fn collapse(&mut self, now: Instant) {
        self.counters.collapses += 1;
        self.doublings = (self.doublings + 1).min(BACK_OFF_MAX);
        if self.size > 1 || self.cut.from > 1 {
            self.threshold = (self.cut.from / 2).max(THRESHOLD_LEAST).min(self.config.labels_max);
        }
        self.retire(0);
        self.ready.clear();
        self.round.clear();
        (self.size, self.mode) = (1, Mode::SlowStart);
        self.cut = Cut { at: now, order: self.order, from: 1, is_unanswered: true };
        self.ask(now, 1);
    }

    /// In recovery, asks for what the window has room for by now; ends it when there is nothing to hold back
    /// any more.
    fn resume(&mut self, now: Instant) {
        if self.mode == Mode::Recover && self.resume_at() <= now {
            self.leave_recovery();
        }
        while self.waiting.len() < self.size.into()
            && let Some(label) = self.ready.pop_lowest()
        {
            self.ask(now, label);
        }
        if self.mode == Mode::Recover && self.ready.is_empty() && self.waiting.len() <= self.size.into() {
            self.leave_recovery();
        }
    }

    fn leave_recovery(&mut self) {
        self.retire(self.size);
        self.mode = Mode::Avoid;
    }

    /// When recovery ends at the latest.
    fn resume_at(&self) -> Instant {
        let round_trip = self.srtt().unwrap_or(self.config.timeout_first);
        self.cut.at + Duration::from_nanos(round_trip.as_nanos() / 2)
    }

    /// Waits no more for labels above `highest`. What is left of their requests in routers is overcome when
    /// they are used again.
    fn retire(&mut self, highest: u16) {
        let mut waiting = core::mem::take(&mut self.waiting);
        waiting.retain(|label| {
            let stays = *label <= highest;
            if !stays {
                let slot = self.slot_mut(*label);
                slot.is_waiting = false;
                slot.level = slot.asked.saturating_add(1);
            }
            stays
        });
        self.waiting = waiting;
    }

    fn ask(&mut self, now: Instant, label: u16) {
        let order = self.order;
        let slot = self.slot_mut(label);
        let level = slot.level;
        let is_fresh = level == 1 || level > slot.asked;
        *slot = Slot { level, asked: level, sent: now, order, passed: 0, is_waiting: true, is_fresh };
        self.order += 1;
        self.waiting.push(label);
        self.asks.push_back(Ask { label, level });
        self.counters.asked += 1;
    }

    /// Takes a label from those that wait; how many were asked for before it.
    fn forget(&mut self, label: u16) -> usize {
        self.slot_mut(label).is_waiting = false;
        let place = self.waiting.iter().position(|other| *other == label);
        place.inspect(|place| _ = self.waiting.remove(*place)).unwrap_or(0)
    }

    /// When a request that was not answered is lost.
    fn due(&self, label: u16) -> Instant {
        let slot = self.slot(label);
        let patience = match self.config.overtaking {
            Overtaking::Longest if slot.passed > 0 => {
                self.patience().min(Duration::from_secs_f64(self.longest + OVERTAKEN_MARGIN))
            }
            Overtaking::Longest | Overtaking::Count(_) => self.patience(),
        };
        slot.sent + patience
    }

    /// How long a request waits for its reply.
    fn patience(&self) -> Duration {
        let measured = self.round_trip.timeout(TIMEOUT_MARGIN).map(Duration::from_secs_f64);
        let base = measured.unwrap_or(self.config.timeout_first).max(self.config.timeout_least);
        base.saturating_mul(1 << self.doublings).min(self.config.timeout_most)
    }

    /// `label` is 1 to the most that can be.
    fn slot(&self, label: u16) -> &Slot {
        &self.slots[usize::from(label) - 1]
    }

    fn slot_mut(&mut self, label: u16) -> &mut Slot {
        &mut self.slots[usize::from(label) - 1]
    }
}
