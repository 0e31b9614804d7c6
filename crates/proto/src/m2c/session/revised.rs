//! Rules that the published control lacks (`docs/design/control.md`): state, and place in the
//! receiver's steps.

use super::Session;
use super::bottleneck::Bottleneck;
use super::chance::Chance;
use super::joining::LEAVE_TIME;
use crate::control::Wishes;
use crate::layering::clock::Place;
use crate::m2c::receiver::Mode;
use crate::measure::{DelayStep, Overload, Waits};
use crate::time::{Duration, Instant};

/// Number of remembered loss events.
const EVENTS: usize = 8;
/// Minimum window for three duplicate acknowledgements: a TCP with less waits for a timeout.
const TIMEOUT_WINDOW: f64 = 4.0;
/// Minimum timeout in seconds (Linux), and timeout in round-trip times.
const TIMEOUT: f64 = 0.2;
const TIMEOUT_ROUNDS: f64 = 2.0;
/// Target of the queue of a session alone, in seconds, and as a part of the queue's depth.
const QUEUE: f64 = 0.025;
const QUEUE_PART: f64 = 0.4;
/// Minimum of the longest wait at which a session alone joins: seconds, and packets.
const JOIN_WAIT: f64 = 0.004;
const JOIN_PACKETS: f64 = 1.5;
/// Time after a join in which a queue is expected, in seconds; minimum expected queue in seconds, and
/// minimum rate sent, as a multiple of the estimate; part of the expected queue below which the
/// bottleneck carries more than estimated.
const EXPECTED_TIME: f64 = 2.5;
const EXPECTED: f64 = 0.008;
const MORE: f64 = 1.015;
const MISSING: f64 = 0.25;
/// Packets that waited less met a short queue: part of the recent longest wait, mean gaps, seconds.
const SHORT_PART: f64 = 0.1;
const GAPS: f64 = 2.0;
const SHORT: f64 = 0.003;
/// Part kept of the rate that arrived at an overload: alone, and beside other traffic.
const KEPT_ALONE: f64 = 0.9;
const KEPT_BESIDE: f64 = 0.5;
/// Factor over the sustained rate, and time at more than this rate, after which a level is left.
const ABOVE: f64 = 1.5;
const ABOVE_TIME: Duration = Duration::from_millis(2_500);

/// State of the rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Revised {
    step: DelayStep,
    waits: Waits,
    pub(super) bottleneck: Bottleneck,
    pub(super) chance: Chance,
    pub(super) overload: Overload,
    /// Departures of the last loss events.
    events: [Instant; EVENTS],
    next_event: usize,
    /// End of the current recovery, and of the current timeout.
    recovery: Instant,
    timeout: Instant,
    /// End of fast start.
    started: Option<Instant>,
    /// Last join, while a queue is expected.
    expected: Option<Join>,
    /// Start of the time with a rate far above the sustained rate.
    above: Option<Instant>,
    /// Rate that arrived, if the receiver is overloaded.
    overloaded: Option<f64>,
    /// Rate that arrived at the last overload: the path's rate, until the next estimate.
    pub(super) carried: Option<f64>,
}

/// A join that took effect.
#[derive(Clone, Copy, Debug)]
struct Join {
    /// Arrival of the first packet, of the session's time and real.
    began: Instant,
    came: Instant,
    /// Packets per second from then on.
    rate: f64,
}

impl Revised {
    /// Whether a loss at `left` is within a round-trip time of an earlier event.
    fn is_same_event(&self, left: Instant, rtt: f64) -> bool {
        self.events.iter().any(|event| left.since(*event).max(event.since(left)).as_secs_f64() < rtt)
    }

    fn own_rate(&self) -> Option<f64> {
        self.bottleneck.own_rate(self.chance.part())
    }
}

impl Session {
    /// Records a packet for the rules. Returns whether the revealed losses, the last of which left at
    /// `lost_left`, are chance.
    pub(super) fn observe(&mut self, now: Instant, place: &Place, lost: u64, lost_left: Instant) -> bool {
        let left = place.left;
        let rate = self.held_rate(now);
        let Some(revised) = &mut self.revised else { return false };
        if let Some(height) = revised.step.record(now, self.path.delay.queueing_last(), 1.0 / rate) {
            self.path.delay.raise(height);
            (revised.waits, revised.bottleneck) = (Waits::default(), Bottleneck::default());
        }
        let rtt = self.path.rtt();
        let (wait, peak) = (self.path.delay.queueing_last(), self.path.delay.queueing_peak());
        revised.waits.record(left, wait);
        // The levels that a start left may still fill the path: their queue and losses are no overload.
        let is_settled =
            now >= self.levels.leaving || revised.started.is_some_and(|at| now >= at + LEAVE_TIME);
        if is_settled {
            let (departed, arrived) = place.real();
            revised.bottleneck.record(arrived, departed, wait, rate);
        }
        let short = (SHORT_PART * peak).max(GAPS / rate).max(SHORT);
        let waited = |waits: &Waits, left| waits.longest(left, GAPS / rate).unwrap_or(wait);
        if wait < short && waited(&revised.waits, left) < short {
            revised.chance.arrived(now, rate);
        }
        revised.chance.earn();
        if self.mode != Mode::FastStart && is_settled {
            revised.overloaded = revised.overload.record(now, lost, rate, rtt).or(revised.overloaded);
        }
        if lost == 0 {
            return false;
        }
        let is_short = waited(&revised.waits, lost_left) < short;
        if is_short {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53 packets")]
            revised.chance.lost(rate, lost as f64);
        }
        let is_alone = revised.bottleneck.is_lonely(revised.chance.part());
        revised.chance.explains(lost, is_short, is_alone)
    }

    /// Rules 1, 2 and 4: returns whether a loss of a packet that left at `left` is a new event, and whether
    /// it cuts the window.
    pub(super) fn on_event(&mut self, now: Instant, left: Instant, rtt: f64) -> Option<bool> {
        let rate = self.held_rate(now);
        let wait = self.path.delay.queueing_last();
        let (window, sub_slot) = (self.window.size, self.clock.channels.sub_slot_seconds());
        let Some(revised) = &mut self.revised else { return Some(true) };
        if revised.is_same_event(left, rtt) {
            return None;
        }
        revised.events[revised.next_event] = left;
        revised.next_event = (revised.next_event + 1) % EVENTS;
        revised.bottleneck.on_event(revised.waits.longest(left, GAPS / rate).unwrap_or(wait));
        revised.recovery = now + Duration::from_secs_f64(rtt);
        let is_started = revised.started.is_some_and(|at| now.since(at).as_secs_f64() >= sub_slot);
        if window < TIMEOUT_WINDOW && is_started {
            revised.timeout = now + Duration::from_secs_f64(TIMEOUT.max(TIMEOUT_ROUNDS * rtt));
        }
        Some(revised.own_rate().is_none())
    }

    /// Whether a recovery or a timeout is under way, so that the window does not grow.
    pub(super) fn is_recovering(&self, now: Instant) -> bool {
        self.revised.as_ref().is_some_and(|revised| now < revised.recovery.max(revised.timeout))
    }

    /// Whether a timeout is under way.
    pub(super) fn is_timed_out(&self, now: Instant) -> bool {
        self.revised.as_ref().is_some_and(|revised| now < revised.timeout)
    }

    /// Returns the rate of the bottleneck, if the session is alone.
    pub(super) fn own_rate(&self) -> Option<f64> {
        self.revised.as_ref().filter(|_| self.mode != Mode::FastStart).and_then(Revised::own_rate)
    }

    /// Q: target of the queue of a session alone, in seconds.
    fn target_queue(revised: &Revised) -> f64 {
        QUEUE.min(QUEUE_PART * revised.bottleneck.depth())
    }

    /// Rule 4: returns the maximum rate to join, if the bottleneck's rate is known. A level at (1 + o) mu
    /// makes a queue of o^2 / 2 r seconds until it has decayed.
    pub(super) fn bottleneck_bound(&self, now: Instant) -> Option<f64> {
        let revised = self.revised.as_ref()?;
        let rate = revised.bottleneck.bound(self.time.real(now), revised.chance.part())?;
        Some(rate * (1.0 + libm::sqrt(2.0 * self.clock.channels.decay() * Self::target_queue(revised))))
    }

    /// Rule 4: returns whether the queue is short enough for a join, of a session with a bottleneck of its
    /// own.
    pub(super) fn is_queue_short(&self, now: Instant) -> bool {
        let Some(revised) = &self.revised else { return false };
        let most = (Self::target_queue(revised) / 2.0).max(JOIN_WAIT);
        self.path.delay.queueing_last() <= most.max(JOIN_PACKETS / self.held_rate(now))
    }

    /// Records that levels were left: the queue of the last join is no longer expected.
    pub(super) fn expect_no_queue(&mut self) {
        if let Some(revised) = &mut self.revised {
            revised.expected = None;
        }
    }

    /// Records that a join took effect with this packet.
    pub(super) fn expect_queue(&mut self, now: Instant, place: &Place) {
        let rate = self.held_rate(now);
        if let Some(revised) = &mut self.revised {
            revised.expected = Some(Join { began: now, came: place.real().1, rate });
        }
    }

    /// Rule 4: if the queue of a join is missing, the bottleneck carries more than estimated: searches again.
    /// A sender that slips behind its schedule fills no queue.
    pub(super) fn search_missing_queue(&mut self, now: Instant, place: &Place) {
        let wait = self.path.delay.queueing_last();
        let Some(revised) = &mut self.revised else { return };
        let Some(Join { began, came, rate }) = revised.expected else { return };
        let (time, passed) = (now.since(began).as_secs_f64(), place.real().1.since(came).as_secs_f64());
        let Some(found) = revised.bottleneck.estimate().filter(|_| time <= EXPECTED_TIME) else {
            revised.expected = None;
            return;
        };
        // Time that the bottleneck takes for the packets sent since the join, as the rate decays.
        let needed = rate / found.rate * time * (1.0 - self.clock.channels.decay() * time / 2.0);
        let queue = needed - passed;
        if queue < EXPECTED || needed < MORE * passed || wait >= MISSING * queue {
            return;
        }
        revised.expected = None;
        revised.bottleneck.forget();
        self.path.delay.settle();
        self.window.threshold = f64::INFINITY;
        if self.mode == Mode::CongestionAvoidance {
            self.start.resume(now, self.held_rate(now));
        }
        self.started(now);
        self.mode = Mode::SlowStart;
    }

    /// Rules 6 and 7: leaves levels that the path does not carry. Returns whether levels were left.
    pub(super) fn descend(&mut self, now: Instant, wishes: &mut Wishes) -> bool {
        let is_alone = self.own_rate().is_some();
        let (held, rtt) = (self.held_rate(now), self.path.rtt());
        let is_above = self.mode == Mode::CongestionAvoidance
            && !is_alone
            && self.levels.joining.is_none()
            && held > ABOVE * self.sustained(rtt);
        let Some(revised) = &mut self.revised else { return false };
        if let Some(came) = revised.overloaded.take() {
            let kept = if is_alone { KEPT_ALONE } else { KEPT_BESIDE };
            revised.bottleneck.forget();
            (revised.carried, revised.above) = (Some(came), None);
            self.fall_to(now, kept * came, wishes);
            return true;
        }
        if !is_above {
            revised.above = None;
        } else if now.since(*revised.above.get_or_insert(now)) >= ABOVE_TIME && self.levels.count() > 0 {
            revised.above = None;
            self.leave_highest(now, wishes);
            return true;
        }
        false
    }

    fn fall_to(&mut self, now: Instant, rate: f64, wishes: &mut Wishes) {
        self.abandon(now, wishes);
        let before = self.levels.count();
        while self.levels.count() > 0 && self.held_rate(now) > rate {
            self.leave_highest(now, wishes);
        }
        let left = u64::from(before - self.levels.count());
        let rtt = self.path.rtt();
        self.window.settle((rate * rtt).max(self.clock.channels.base_rate() * rtt));
        self.mode = Mode::CongestionAvoidance;
        self.decisions.resumes = false;
        self.losses.intervals.reset(crate::measure::interval_at(rtt, rate));
        if let Some(revised) = &mut self.revised {
            revised.overload.relieve(now, left);
        }
    }

    /// Records the end of fast start.
    pub(super) fn started(&mut self, now: Instant) {
        if let Some(revised) = &mut self.revised {
            revised.started.get_or_insert(now);
        }
    }
}
