//! Fast start: increases the rate until the path shows its capacity.
//!
//! As HyStart++ (RFC 9406), fast start ends when delays have grown by a threshold, and resumes when delays
//! fall again. A receiver knows more than a TCP sender: the schedule gives the departure time of each packet,
//! so each packet yields a one-way delay; and the first packet of a channel marks the time since when the
//! path carries the channel.

use crate::control::Rules;
use crate::time::{Duration, Instant};

/// Number of runs of packets before a level is judged, and number of runs whose minimum delay is the standing
/// queue: a burst of coinciding packets delays fewer packets.
const JUDGED: usize = 4;
/// Packets that arrive within this time are a run: a host that is late sends or delivers together what was
/// due meanwhile, and the last of these packets waited for no queue. For the published rules each packet is a
/// run.
const RUN: Duration = Duration::from_millis(2);
/// Minimum time before a level is judged.
const JUDGED_TIME: Duration = Duration::from_millis(20);
/// Bounds in seconds of the delay growth that indicates a queue. Between the bounds, the threshold is an
/// eighth of the round-trip time (RFC 9406, section 4.3).
const GROWTH: (f64, f64) = (0.004, 0.016);
/// Minimum packets and minimum time in doubt to measure a rate: packets that waited for a sleeping host are
/// read by then. DOUBTED is the number of packets after which a doubt ends.
const MEASURED: u32 = 8;
const MEASURED_TIME: Duration = Duration::from_millis(10);
const DOUBTED: u32 = 32;
/// Time after which a queue ends a start that measures less than the path carried before: a host or a path
/// that stands still for a moment makes a queue, too.
const PATIENCE: Duration = Duration::from_millis(250);
/// A level that brings less than this share of its rate is limited by the bottleneck, unless CHANCE packets
/// explain the difference.
const SHARE: f64 = 0.9;
const CHANCE: f64 = 2.0;

/// Action to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Join more: the path carries the subscribed levels.
    Join,
    /// Wait: the capacity is not known yet.
    Wait,
    /// Settle at the measured capacity of the path, in packets per second.
    Settle(f64),
}

/// Suspected reason for the path's limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doubt {
    None,
    /// Delay growth in seconds: at the detection, and the maximum since; and the time of detection.
    Delay {
        found: f64,
        peak: f64,
        since: Instant,
    },
    Loss(Instant),
}

/// Measurements since the last join took effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastStart {
    /// Arrival of the first packet of the last joined channels.
    since: Instant,
    /// Departure time of the first packet of the first joined channels, once received.
    left: Option<Instant>,
    packets: u32,
    /// By the revised rules, a stall may be the cause of a queue.
    rules: Rules,
    /// Number of runs, and start of the last run.
    runs: usize,
    run: Instant,
    /// Whether the last packet began a run: at the end of a run, all packets that waited for a sleeping host
    /// are counted.
    begins_run: bool,
    /// One-way delays in nanoseconds from an unknown zero: the minimum before the first packet (or of the
    /// last run before the first join), the minimum since, and the minimum of each recent run.
    before: Option<i64>,
    least: i64,
    recent: [i64; JUDGED],
    doubt: Doubt,
    /// Packets per second that the path carried before the last joins; zero for the published rules.
    carried: f64,
}

impl FastStart {
    pub(super) fn new(now: Instant, rules: Rules) -> Self {
        Self {
            since: now,
            left: None,
            packets: 0,
            rules,
            runs: 0,
            run: now,
            begins_run: false,
            before: None,
            least: i64::MAX,
            recent: [0; JUDGED],
            doubt: Doubt::None,
            carried: 0.0,
        }
    }

    /// Records that a join took effect, with a first packet that left at `left`.
    pub(super) fn joined(&mut self, now: Instant, left: Instant) {
        self.begin(now);
        self.left.get_or_insert(left);
    }

    /// Starts anew at a level of `rate` packets per second, which the path carries.
    pub(super) fn resume(&mut self, now: Instant, rate: f64) {
        self.record_carried(rate);
        self.begin(now);
    }

    /// Starts a new measurement after the rate was raised.
    fn begin(&mut self, now: Instant) {
        self.renew(now, self.before_next());
    }

    /// Restarts the measurement after a doubt proved wrong.
    fn renew(&mut self, now: Instant, before: Option<i64>) {
        *self =
            Self { since: now, packets: 0, runs: 0, before, least: i64::MAX, doubt: Doubt::None, ..*self };
    }

    /// Returns the reference delay for the next join.
    fn before_next(&self) -> Option<i64> {
        match self.before {
            _ if self.packets == 0 => self.before,
            // Other flows cause the delays of base packets before the first join. Base packets are far apart,
            // so the last delay is the best estimate.
            None => Some(self.recent[(self.runs - 1) % JUDGED]),
            Some(_) => Some(self.least),
        }
    }

    /// Records a packet.
    pub(super) fn record(&mut self, now: Instant, delay: i64) {
        self.least = self.least.min(delay);
        self.packets = self.packets.saturating_add(1);
        self.begins_run = self.runs == 0 || now.since(self.run) >= self.length();
        if self.begins_run {
            self.recent[self.runs % JUDGED] = delay;
            (self.run, self.runs) = (now, self.runs + 1);
        } else {
            let least = &mut self.recent[(self.runs - 1) % JUDGED];
            *least = delay.min(*least);
        }
    }

    /// Returns whether a packet that left at `left` precedes the first joined channels, and therefore says
    /// nothing about the join. A slow channel reports losses late that other receivers' starts caused.
    fn precedes(&self, left: Instant) -> bool {
        self.left.is_none_or(|first| left < first)
    }

    /// Records lost or marked packets, the last of which left at `left`.
    pub(super) fn lost(&mut self, now: Instant, left: Instant) {
        if !self.precedes(left) && !matches!(self.doubt, Doubt::Loss(_)) {
            self.doubt = Doubt::Loss(now);
        }
    }

    /// Whether the path's limit is suspected.
    pub(super) fn doubts(&self) -> bool {
        self.doubt != Doubt::None
    }

    /// Evaluates the last packet, at a level of `rate` packets per second and a round-trip time in seconds.
    pub(super) fn judge(&mut self, now: Instant, delay: i64, rate: f64, rtt: f64) -> Verdict {
        if self.runs < JUDGED {
            return Verdict::Wait;
        }
        let gap = 1.0 / rate;
        let slack = (rtt / 8.0).clamp(GROWTH.0, GROWTH.1);
        let standing = self.recent.iter().copied().min().unwrap_or(delay);
        let growth = self.growth(standing);
        match self.doubt {
            Doubt::Loss(since) if self.is_measured(now, since) => Verdict::Settle(self.measured(now)),
            Doubt::Loss(_) => Verdict::Wait,
            Doubt::Delay { found, peak, since } => {
                let peak = if self.rules == Rules::Revised { peak.max(growth) } else { peak };
                self.doubt = Doubt::Delay { found, peak, since };
                self.reconsider(now, growth, (found, peak, since), rate)
            }
            // A queue of two packets is chance, because channels send independently.
            Doubt::None if growth >= slack + 2.0 * gap => {
                self.doubt = Doubt::Delay { found: growth, peak: growth, since: now };
                Verdict::Wait
            }
            Doubt::None => {
                // A queue that neither grows nor shrinks belongs to other traffic.
                let is_free = self.growth(delay) < slack + gap || self.packets >= DOUBTED;
                if is_free && now.since(self.since) >= JUDGED_TIME {
                    self.join_next(now)
                } else {
                    Verdict::Wait
                }
            }
        }
    }

    /// Length of a run.
    fn length(&self) -> Duration {
        match self.rules {
            Rules::Published => Duration::ZERO,
            Rules::Revised => RUN,
        }
    }

    /// Ends the measurement of a level that the path carries.
    fn join_next(&mut self, now: Instant) -> Verdict {
        self.record_carried(self.measured(now).max(self.carried));
        Verdict::Join
    }

    /// Records that the path carries so many packets per second.
    fn record_carried(&mut self, rate: f64) {
        if self.rules == Rules::Revised {
            self.carried = rate;
        }
    }

    /// Re-evaluates an earlier delay growth: `found` at first, `peak` at most, `since` this time.
    fn reconsider(
        &mut self,
        now: Instant,
        growth: f64,
        (found, peak, since): (f64, f64, Instant),
        rate: f64,
    ) -> Verdict {
        if growth < peak / 2.0 {
            // The cause was a burst of other traffic, or a sleep of this host.
            self.renew(now, self.before);
            return Verdict::Wait;
        }
        let came = f64::from(self.packets) - 1.0;
        let is_short = came + CHANCE <= SHARE * rate * now.since(self.since).as_secs_f64();
        let is_plausible = self.measured(now) >= SHARE * self.carried || now.since(since) >= PATIENCE;
        let is_at_peak = growth >= peak || self.rules == Rules::Published || now.since(since) >= PATIENCE;
        // A queue before a level that comes whole is of another link, and grows for other reasons.
        let is_whole = self.rules == Rules::Revised && self.measured(now) >= rate;
        let grows = is_short || (self.packets >= DOUBTED && growth > found && !is_whole);
        if self.begins_run && self.is_measured(now, since) && is_plausible && is_at_peak && grows {
            return Verdict::Settle(self.measured(now));
        }
        // Growth shows in the next run.
        if self.packets >= DOUBTED && !grows && now.since(since) >= self.length() {
            // The queue is constant: other traffic fills the queue, not this session.
            self.begin(now);
        }
        Verdict::Wait
    }

    fn is_measured(&self, now: Instant, since: Instant) -> bool {
        self.packets >= MEASURED && now.since(since) >= MEASURED_TIME
    }

    /// Returns the excess of a delay over the reference delay, in seconds.
    fn growth(&self, delay: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
        let nanos = delay.saturating_sub(self.before.unwrap_or(self.least)) as f64;
        nanos / 1e9
    }

    /// Packets per second since the first packet.
    fn measured(&self, now: Instant) -> f64 {
        let seconds = now.since(self.since).as_secs_f64().max(1e-6);
        (f64::from(self.packets) - 1.0) / seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of `rate` per second, each late by what `late` says in milliseconds of its number and when it
    /// left; verdicts but the waits.
    struct Level {
        start: FastStart,
        now: Instant,
    }

    impl Level {
        fn new() -> Self {
            let now = Instant::ZERO + Duration::from_secs(1);
            Self { start: FastStart::new(now, Rules::Revised), now }
        }

        fn hold(&mut self, rate: f64, packets: u32, late: impl Fn(u32, f64) -> f64) -> Option<Verdict> {
            let began = self.now;
            let mut last = None;
            for i in 0..packets {
                let left = f64::from(i) / rate;
                let late = late(i, left * 1e3).max(0.0);
                #[expect(clippy::cast_possible_truncation, reason = "minutes of nanoseconds")]
                let (left, delay) = ((left * 1e9) as u64, (late * 1e6) as i64);
                self.now = began + Duration::from_nanos(left + delay.unsigned_abs());
                if i == 0 {
                    self.start.joined(self.now, began);
                }
                self.start.record(self.now, delay);
                match self.start.judge(self.now, delay, rate, 0.02) {
                    Verdict::Wait => (),
                    Verdict::Settle(rate) => return Some(Verdict::Settle(rate)),
                    Verdict::Join => last = Some(Verdict::Join),
                }
            }
            last
        }
    }

    /// As even as can be, in [0, 1).
    fn spread(i: u32) -> f64 {
        (f64::from(i) * 0.618_033_988_75).fract()
    }

    #[test]
    fn a_queue_that_grows_tells_what_the_path_carries() {
        for rate in [30.0, 300.0, 3_000.0, 30_000.0] {
            for carried in [0.5, 0.6, 0.7, 0.8] {
                let mut level = Level::new();
                level.hold(rate * carried, 40, |_, _| 0.0);
                // Each packet waits for those before it.
                let found = level.hold(rate, 2_000, |_, left| left * (1.0 / carried - 1.0));
                let Some(Verdict::Settle(found)) = found else { panic!("{found:?} at {rate}") };
                assert!((found / (rate * carried) - 1.0).abs() < 0.15, "{found} of {}", rate * carried);
            }
        }
    }

    #[test]
    fn hosts_that_take_packets_late_end_nothing() {
        for rate in [50.0, 500.0, 5_000.0, 50_000.0] {
            let mut level = Level::new();
            for _ in 0..5 {
                let found = level.hold(rate, 1_500, |i, _| 2.0 * spread(i));
                assert_eq!(found, Some(Verdict::Join), "jitter of 2 ms at {rate}");
            }
        }
    }

    #[test]
    fn a_sender_that_is_late_at_each_turn_ends_nothing() {
        for (rate, packets) in [(50.0, 100), (500.0, 500), (5_000.0, 2_000), (50_000.0, 20_000)] {
            for period in [5.0, 10.0, 15.0] {
                let mut level = Level::new();
                for _ in 0..5 {
                    // What is due within a period leaves at its end.
                    let found = level.hold(rate, packets, |_, left| period - left % period);
                    assert_eq!(found, Some(Verdict::Join), "turns of {period} ms at {rate}");
                }
            }
        }
    }

    #[test]
    fn a_host_that_slept_once_goes_on() {
        for rate in [100.0, 1_000.0, 10_000.0] {
            let mut level = Level::new();
            level.hold(rate, 2_000, |i, _| spread(i));
            // What came from 10 to 30 ms is taken at 30.
            let asleep = |_, left: f64| if (10.0..30.0).contains(&left) { 30.0 - left } else { 0.0 };
            assert_eq!(level.hold(rate, 2_000, asleep), Some(Verdict::Join), "{rate}");
        }
    }

    #[test]
    fn a_path_that_stalls_for_a_moment_ends_nothing() {
        for rate in [2_000.0, 10_000.0, 40_000.0] {
            for worst in [8.0, 15.0, 25.0] {
                let mut level = Level::new();
                let before = level.hold(rate / 1.33, 1_000, |_, _| 0.0);
                assert_eq!(before, Some(Verdict::Join));
                // From 10 ms on the path carries little, and then works off what waits.
                let stall = |_, left: f64| (0.8 * (left - 10.0)).min(2.25 * worst - (left - 10.0));
                let packets = if rate < 5_000.0 { 400 } else { 4_000 };
                assert_eq!(level.hold(rate, packets, stall), Some(Verdict::Join), "{worst} ms at {rate}");
            }
        }
    }

    #[test]
    fn a_path_that_carries_less_than_before_ends_it_later() {
        let mut level = Level::new();
        level.hold(1_000.0, 100, |_, _| 0.0);
        let began = level.now;
        let found = level.hold(1_330.0, 2_000, |_, left| left * (1_330.0 / 400.0 - 1.0));
        let Some(Verdict::Settle(found)) = found else { panic!("{found:?}") };
        assert!((found / 400.0 - 1.0).abs() < 0.1, "{found}");
        assert!(level.now.since(began) < Duration::from_millis(400));
    }

    #[test]
    fn a_queue_that_others_fill_is_borne() {
        let mut level = Level::new();
        level.hold(400.0, 100, |_, _| 0.0);
        // A burst of 60 ms that the bottleneck works off, then 20 ms that stay.
        let burst = |_, left: f64| (60.0 - left).max(20.0);
        assert_eq!(level.hold(400.0, 400, burst), Some(Verdict::Join));
    }

    #[test]
    fn a_queue_that_grows_before_a_level_that_comes_whole_is_borne() {
        for (rate, packets) in [(1_000.0, 80), (3_000.0, 240), (10_000.0, 800)] {
            let mut level = Level::new();
            level.hold(rate / 2.4, 100, |_, _| 0.0);
            // What the sender's own link sends to others delays the first packets most, and then slowly more.
            let queue = |_, left: f64| (12.0 - left).max(8.0) + 0.04 * left;
            assert_eq!(level.hold(rate, packets, queue), Some(Verdict::Join), "{rate}");
        }
    }

    #[test]
    fn a_queue_that_was_there_before_the_first_join_is_borne() {
        let mut start = FastStart::new(Instant::ZERO, Rules::Revised);
        let ms = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        // The base's packets found the queue empty, until another receiver's start filled it by 60 ms.
        for (at, late) in [(0, 0), (90, 0), (240, 60_000_000)] {
            start.record(ms(at), late);
        }
        start.joined(ms(300), ms(240));
        let verdicts: Vec<Verdict> = (0..12)
            .map(|i| {
                start.record(ms(300 + 25 * i), 60_000_000);
                start.judge(ms(300 + 25 * i), 60_000_000, 40.0, 0.1)
            })
            .collect();
        assert!(verdicts.contains(&Verdict::Join) && !start.doubts(), "{verdicts:?}");
    }

    #[test]
    fn a_loss_ends_it_by_what_came() {
        let mut level = Level::new();
        level.hold(1_000.0, 100, |_, _| 0.0);
        level.start.joined(level.now, level.now);
        level.start.lost(level.now, level.now);
        for _ in 0..7 {
            level.start.record(level.now, 0);
            assert_eq!(level.start.judge(level.now, 0, 1_000.0, 0.02), Verdict::Wait);
            level.now += Duration::from_millis(2);
        }
        level.start.record(level.now, 0);
        let found = level.start.judge(level.now, 0, 1_000.0, 0.02);
        assert_eq!(found, Verdict::Settle(500.0), "seven packets in 14 ms after the first");
    }

    #[test]
    fn only_what_left_after_the_first_join_ends_it() {
        let ms = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let mut start = FastStart::new(ms(0), Rules::Revised);
        start.lost(ms(100), ms(50));
        assert!(!start.doubts(), "nothing was joined");
        start.joined(ms(200), ms(190));
        start.joined(ms(300), ms(290));
        start.lost(ms(310), ms(189));
        assert!(!start.doubts(), "it left before");
        start.lost(ms(310), ms(190));
        assert!(
            start.doubts(),
            "the first join may have been too much, even if that is known after the second"
        );
    }
}
