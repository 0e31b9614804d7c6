//! Request window: time and level of each label's requests (Yano and McCanne 1999, Rainbow receiver).

use std::collections::VecDeque;

use super::packets::Labels;
use super::{Overtaking, WindowConfig};
use crate::measure::RoundTrip;
use crate::rng::{Stream, unit};
use crate::time::{Duration, Instant};

/// Minimum slow-start threshold after a collapse, otherwise half the previous window (RFC 5681).
const THRESHOLD_LEAST: u16 = 2;
/// Minimum margin of the timeout above the mean round-trip time, in seconds: a clock tick of the TCPs of 1999
/// (RFC 6298's G).
const TIMEOUT_MARGIN: f64 = 0.1;
/// Maximum fraction by which the longest round-trip time decays towards a shorter sample.
const FADING: f64 = 1.0 / 64.0;
/// Minimum time in seconds of a full decay. Replies from a relay's cache arrive at once, any number between
/// two replies from the source, and must not hasten the decay.
const FADING_SECONDS: f64 = 10.0;
/// Margin above the longest round-trip time before an overtaken request counts as lost, in seconds.
const OVERTAKEN_MARGIN: f64 = 0.01;
/// Maximum number of doublings of the timeout.
const BACK_OFF_MAX: u32 = 6;
/// Windows below this spread their requests. Otherwise equal small windows repeat the same order of packets
/// at a short queue, and always the same flow loses (phase effects; Floyd and Jacobson 1992).
const SPREAD_BELOW: u16 = 8;
/// Maximum delay of a request, as a fraction of the mean time between two requests.
const SPREAD: f64 = 0.5;

/// Request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Label, from 1 to the window.
    pub label: u16,
    /// Level: 1, or the last unanswered level plus 1.
    pub level: u16,
}

/// Phase of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Slow start: the window grows by 1 with each reply.
    SlowStart,
    /// Congestion avoidance: the window grows by 1 once every label is answered.
    Avoid,
    /// Recovery after a cut: labels wait until enough outstanding requests are answered or lost.
    Recover,
}

/// Counters of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounters {
    /// Requests.
    pub asked: u64,
    /// Replies to outstanding requests.
    pub answered: u64,
    /// Replies without an outstanding request: late, merged by another receiver's higher level, or forged.
    pub unasked: u64,
    /// Requests counted as lost because later requests were answered.
    pub overtaken: u64,
    /// Requests counted as lost after a timeout.
    pub late: u64,
    /// Cuts of the window, including cuts for losses of other receivers on the shared path.
    pub cuts: u64,
    /// Restarts from a window of 1 after a timeout.
    pub collapses: u64,
}

/// State of a label.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Level of the next request.
    level: u16,
    /// Level of the last request; 0 before the first.
    asked: u16,
    /// Time and sequence number of the last request.
    sent: Instant,
    order: u64,
    /// Number of later requests answered since.
    passed: u8,
    is_waiting: bool,
    /// Whether no earlier request had this level, so that a reply of this level answers the last request.
    is_fresh: bool,
}

const UNUSED: Slot =
    Slot { level: 1, asked: 0, sent: Instant::ZERO, order: 0, passed: 0, is_waiting: false, is_fresh: false };

/// Receiver's window over labels.
///
/// Between calls each label of the window waits for a reply or, in recovery, for a request. The window makes
/// no request while the number of outstanding requests equals the window; until recovery ends, outstanding
/// requests include labels that a cut has excluded from the window. Memory: 24 bytes for each possible label.
/// Time per call: O(labels).
#[derive(Clone, Debug)]
pub struct RainbowWindow {
    config: WindowConfig,
    size: u16,
    mode: Mode,
    /// Slow-start threshold.
    threshold: u16,
    /// State by label, less 1.
    slots: Box<[Slot]>,
    /// Labels with an outstanding request, in the order of the requests.
    waiting: Vec<u16>,
    /// Labels whose request is delayed.
    ready: Labels,
    /// Labels answered in this round, to requests since the last cut. A round starts with an increase, or
    /// with the end of recovery or slow start.
    round: Labels,
    /// Requests not sent yet, with their times, in order; each label at most once.
    asks: VecDeque<(Instant, Ask)>,
    /// Time of the last request, sent or not.
    last_ask: Instant,
    /// Least time between two requests.
    spacing: Duration,
    /// Random delays of requests.
    spread: Option<Stream>,
    /// Sequence number of the next request.
    order: u64,
    cut: Cut,
    round_trip: RoundTrip,
    /// Longest recent round-trip time, in seconds.
    longest: f64,
    /// Time of the last round-trip measurement.
    measured: Instant,
    /// Doublings of the timeout since the last sample.
    doublings: u32,
    counters: WindowCounters,
}

/// Last cut of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    at: Instant,
    /// First request after the cut.
    order: u64,
    /// Window before the cut.
    from: u16,
    /// Whether no request has been answered since.
    is_unanswered: bool,
}

impl RainbowWindow {
    /// Creates a window without requests.
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
            last_ask: Instant::ZERO,
            spacing: Duration::ZERO,
            spread: config.spread.map(|seed| seed.stream("rainbow/spread", 0)),
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

    /// Returns the window: the maximum number of outstanding requests.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// Returns the phase.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the number of outstanding requests.
    pub fn outstanding(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the mean round-trip time, once measured. A request merged with another receiver's earlier
    /// request has a short round-trip time.
    pub fn srtt(&self) -> Option<Duration> {
        self.round_trip.mean().map(Duration::from_secs_f64)
    }

    /// Returns the window's counters.
    pub const fn counters(&self) -> &WindowCounters {
        &self.counters
    }

    /// Sets the least time between two requests, for a receiver that bounds its rate. Default: zero.
    pub const fn set_spacing(&mut self, spacing: Duration) {
        self.spacing = spacing;
    }

    /// Requests the first symbol. To be called once only.
    pub fn start(&mut self, now: Instant) {
        self.ask(now, 1);
    }

    /// Stops all requests; outstanding replies may still arrive.
    pub fn stop(&mut self) {
        self.waiting.clear();
        self.ready.clear();
        self.asks.clear();
        self.slots.fill(UNUSED);
    }

    /// Returns the next request to send by now.
    pub fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        let is_due = self.asks.front().is_some_and(|(at, _)| *at <= now);
        is_due.then(|| self.asks.pop_front()).flatten().map(|(_, ask)| ask)
    }

    /// Returns the time of the next request, or of the next [`RainbowWindow::timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let oldest = self.waiting.first().map(|label| self.due(*label));
        let resume = (self.mode == Mode::Recover).then(|| self.resume_at());
        let ask = self.asks.front().map(|(at, _)| *at);
        oldest.into_iter().chain(resume).chain(ask).min()
    }

    /// Cuts the window for a loss on the shared path. The pending reply to `label` comes from a relay's cache
    /// and had replaced a reply lost above that relay; this receiver's request would have suffered the same
    /// loss. Losses of a burst arrive one after the other and count as one cut.
    pub fn share_loss(&mut self, now: Instant, label: u16) {
        let is_label = (1..=self.config.labels_max).contains(&label);
        if !is_label || !self.slot(label).is_waiting || self.is_known(label) {
            return;
        }
        if self.cut.at + Duration::from_secs_f64(self.longest) <= now {
            self.cut(now);
        }
    }

    /// Processes a reply; returns whether a request was outstanding. A level of 0 clears no breadcrumb and
    /// answers no request.
    pub fn reply(&mut self, now: Instant, label: u16, level: u16) -> bool {
        let is_sound = level > 0 && (1..=self.config.labels_max).contains(&label);
        let slot = is_sound.then(|| *self.slot(label)).filter(|slot| slot.asked > 0);
        let Some(slot) = slot else {
            self.counters.unasked += 1;
            return false;
        };
        if slot.sent > now && self.spacing > Duration::ZERO {
            // A reply to another receiver. The request waits for the rate, and is still to be sent.
            return slot.is_waiting;
        }
        let clears = level >= slot.asked;
        if clears {
            // No breadcrumb is left that could suppress the next request.
            self.slot_mut(label).level = 1;
        }
        if level == slot.asked && slot.is_fresh {
            // Measured for late replies as well; otherwise a too short timeout would never adapt.
            self.measure(now, now.since(slot.sent).as_secs_f64());
            self.slot_mut(label).is_fresh = false;
            // As by Karn's algorithm, the reply to the request after a timeout does not end the backoff.
            if slot.order > self.cut.order {
                self.doublings = 0;
            }
        }
        if !slot.is_waiting {
            self.counters.unasked += 1;
            return false;
        }
        self.counters.answered += 1;
        self.cut.is_unanswered = false;
        let place = self.forget(label);
        if clears {
            // A lower level answers an earlier request of this label, and says nothing about later requests.
            self.overtake(now, place);
        }
        self.go_on(now, label);
        self.resume(now);
        true
    }

    /// Processes timeouts due at `now`.
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
            let is_silent = self.cut.is_unanswered && self.cut.at + self.patience() <= now;
            if is_silent || !self.is_known(label) {
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
    }

    /// Continues after a reply to the label.
    fn go_on(&mut self, now: Instant, label: u16) {
        if label > self.size {
            return;
        }
        match self.mode {
            // Replies in recovery count for no round: otherwise the window would grow again within a
            // round-trip time.
            Mode::Recover => self.ready.insert(label),
            Mode::SlowStart => {
                self.ask(now, label);
                self.grow(now);
                if self.size >= self.threshold {
                    self.mode = Mode::Avoid;
                }
            }
            Mode::Avoid => {
                // Replies to requests before the cut say nothing about the reduced window. TCP also grows
                // again only once data sent after the cut is acknowledged.
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
        // If more than a round trip of requests waits for the rate, a larger window makes more requests wait.
        let is_spaced =
            self.spacing > Duration::ZERO && self.last_ask > now + self.srtt().unwrap_or(self.spacing);
        if self.size < self.config.labels_max && !is_spaced {
            self.size += 1;
            self.ask(now, self.size);
        }
    }

    /// Records that the first `place` outstanding requests were sent before an answered request.
    fn overtake(&mut self, now: Instant, place: usize) {
        for index in 0..place {
            let label = self.waiting[index];
            let slot = self.slot_mut(label);
            slot.passed = slot.passed.saturating_add(1);
        }
        // Earlier requests were passed at least as often.
        let Overtaking::Count(threshold) = self.config.overtaking else { return };
        while let Some(label) = self.waiting.first().copied()
            && self.slot(label).passed >= threshold.max(1)
        {
            self.counters.overtaken += 1;
            self.lose(now, label);
        }
    }

    /// Processes the loss of the label's request or reply.
    fn lose(&mut self, now: Instant, label: u16) {
        self.forget(label);
        let slot = self.slot_mut(label);
        slot.level = slot.asked.saturating_add(1);
        if !self.is_known(label) {
            self.cut(now);
        }
        if label <= self.size {
            self.ready.insert(label);
        }
    }

    /// Whether a loss of the label's last request belongs to the last cut.
    fn is_known(&self, label: u16) -> bool {
        self.mode == Mode::Recover || self.slot(label).order < self.cut.order
    }

    fn cut(&mut self, now: Instant) {
        self.counters.cuts += 1;
        self.cut = Cut { at: now, order: self.order, from: self.size, is_unanswered: true };
        self.size = (self.size / 2).max(1);
        self.mode = Mode::Recover;
        self.round.clear();
        self.ready.truncate(self.size);
    }

    /// Restarts from a window of 1 after a timeout, as TCP does (RFC 5681, section 3.1).
    fn collapse(&mut self, now: Instant) {
        self.counters.collapses += 1;
        self.doublings = (self.doublings + 1).min(BACK_OFF_MAX);
        let from = if self.cut.is_unanswered { self.cut.from } else { self.size };
        if from > 1 {
            self.threshold = (from / 2).max(THRESHOLD_LEAST).min(self.config.labels_max);
        }
        self.retire(0);
        self.asks.clear();
        self.last_ask = self.last_ask.min(now);
        self.ready.clear();
        self.round.clear();
        (self.size, self.mode) = (1, Mode::SlowStart);
        self.cut = Cut { at: now, order: self.order, from: 1, is_unanswered: true };
        self.ask(now, 1);
    }

    /// In recovery, sends the delayed requests that the window now permits, and ends recovery once no request
    /// is delayed and the outstanding requests fit the window.
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

    /// Returns the latest end of recovery.
    fn resume_at(&self) -> Instant {
        let round_trip = self.srtt().unwrap_or(self.config.timeout_first);
        self.cut.at + Duration::from_nanos(round_trip.as_nanos() / 2)
    }

    /// Stops waiting for labels above `highest`. The next request has a higher level than the breadcrumbs
    /// left in routers.
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
        let at = self.next_ask(now);
        let order = self.order;
        let slot = self.slot_mut(label);
        let level = slot.level;
        let is_fresh = level == 1 || level > slot.asked;
        *slot = Slot { level, asked: level, sent: at, order, passed: 0, is_waiting: true, is_fresh };
        self.order += 1;
        self.waiting.push(label);
        self.asks.push_back((at, Ask { label, level }));
        self.counters.asked += 1;
    }

    /// Returns the time of a request that the window permits now: later by a random delay in a small window.
    fn next_ask(&mut self, now: Instant) -> Instant {
        let mut at = now.max(self.last_ask + self.spacing);
        if let Some(spread) = self.spread.as_mut().filter(|_| self.size < SPREAD_BELOW) {
            let between = self.round_trip.mean().unwrap_or(0.0) / f64::from(self.size);
            at += Duration::from_secs_f64(unit(spread) * SPREAD * between);
        }
        self.last_ask = at;
        at
    }

    /// Removes a label from the outstanding requests; returns the number of requests before.
    fn forget(&mut self, label: u16) -> usize {
        self.slot_mut(label).is_waiting = false;
        let place = self.waiting.iter().position(|other| *other == label);
        place.inspect(|place| _ = self.waiting.remove(*place)).unwrap_or(0)
    }

    /// Returns the time at which an unanswered request is lost.
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

    /// Returns the timeout of a request.
    fn patience(&self) -> Duration {
        let measured = self.round_trip.timeout(TIMEOUT_MARGIN).map(Duration::from_secs_f64);
        let base = measured.unwrap_or(self.config.timeout_first).max(self.config.timeout_least);
        base.saturating_mul(1 << self.doublings).min(self.config.timeout_most)
    }

    /// Returns the state of `label`, from 1 to the configured maximum.
    fn slot(&self, label: u16) -> &Slot {
        &self.slots[usize::from(label) - 1]
    }

    fn slot_mut(&mut self, label: u16) -> &mut Slot {
        &mut self.slots[usize::from(label) - 1]
    }
}
