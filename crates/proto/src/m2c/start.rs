//! Fast start: how far to go before the path shows what it carries.
//!
//! As HyStart++ (RFC 9406) it ends when delays have grown by a threshold, and goes on when they fall again. A
//! receiver is better off than a TCP: the schedule tells when each packet left, so each tells its one-way
//! delay; and the first packet of a channel tells since when the path carries it.

use crate::time::{Duration, Instant};

/// Packets after which a level is judged, and whose least delay is taken: a burst that falls together delays
/// fewer.
const JUDGED: usize = 4;
/// Least time after which it is: hosts take packets together that came within a millisecond or two.
const JUDGED_TIME: Duration = Duration::from_millis(20);
/// Bounds of the growth of delays that means a queue, in seconds, between which it is an eighth of the round
/// trip (RFC 9406, section 4.3).
const GROWTH: (f64, f64) = (0.004, 0.016);
/// Packets and time in doubt by which a rate is measured: what came while a host slept is taken by then.
/// Packets after which a doubt ends.
const MEASURED: u32 = 8;
const MEASURED_TIME: Duration = Duration::from_millis(10);
const DOUBTED: u32 = 32;
/// A level that brings less than this part of its rate has met the bottleneck, where that is not by the last
/// packets alone.
const SHARE: f64 = 0.9;
const CHANCE: f64 = 2.0;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The path carries what is held.
    Join,
    /// That is not known yet.
    Wait,
    /// The path carries so many packets per second, and no more.
    Settle(f64),
}

/// Why the path may have met its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doubt {
    None,
    /// Delays have grown by so many seconds.
    Delay(f64, Instant),
    Loss(Instant),
}

/// What the packets since the last channels came have shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastStart {
    /// The first packet of those channels.
    since: Instant,
    /// When the first packet of the first ones left, once there were any.
    left: Option<Instant>,
    packets: u32,
    /// Delays in nanoseconds from an unknown zero: the least before that packet, or the last one before the
    /// first join; the least since, and the last ones.
    before: Option<i64>,
    least: i64,
    recent: [i64; JUDGED],
    doubt: Doubt,
}

impl FastStart {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            left: None,
            packets: 0,
            before: None,
            least: i64::MAX,
            recent: [0; JUDGED],
            doubt: Doubt::None,
        }
    }

    /// Channels were joined, of which the first packet left at `left`.
    pub(super) fn joined(&mut self, now: Instant, left: Instant) {
        self.begin(now);
        self.left.get_or_insert(left);
    }

    /// More is to be judged than before.
    pub(super) fn begin(&mut self, now: Instant) {
        self.renew(now, self.before_next());
    }

    /// What was feared did not come: judges anew.
    fn renew(&mut self, now: Instant, before: Option<i64>) {
        *self = Self { before, left: self.left, ..Self::new(now) };
    }

    /// What a delay grows from, once more is joined.
    fn before_next(&self) -> Option<i64> {
        match self.before {
            _ if self.packets == 0 => self.before,
            // What the base's packets waited before the first join is others' doing; they are far apart, so
            // the last one tells most of it.
            None => Some(self.recent[(self.packets as usize - 1) % JUDGED]),
            Some(_) => Some(self.least),
        }
    }

    /// A packet came.
    pub(super) fn record(&mut self, delay: i64) {
        self.least = self.least.min(delay);
        self.recent[self.packets as usize % JUDGED] = delay;
        self.packets = self.packets.saturating_add(1);
    }

    /// Whether a packet that left then says nothing of what was joined: it left before. A slow channel tells
    /// late of what others' starts made it lose.
    fn precedes(&self, left: Instant) -> bool {
        self.left.is_none_or(|first| left < first)
    }

    /// Packets were lost, or marked, of which the last left at `left`.
    pub(super) fn lost(&mut self, now: Instant, left: Instant) {
        if !self.precedes(left) && !matches!(self.doubt, Doubt::Loss(_)) {
            self.doubt = Doubt::Loss(now);
        }
    }

    /// Whether the path may have met its limit.
    pub(super) fn doubts(&self) -> bool {
        self.doubt != Doubt::None
    }

    /// Judges by the last packet, at a level of `rate` packets per second and a round-trip time in seconds.
    pub(super) fn judge(&mut self, now: Instant, delay: i64, rate: f64, rtt: f64) -> Verdict {
        if (self.packets as usize) < JUDGED {
            return Verdict::Wait;
        }
        let gap = 1.0 / rate;
        let slack = (rtt / 8.0).clamp(GROWTH.0, GROWTH.1);
        let standing = self.recent.iter().copied().min().unwrap_or(delay);
        let growth = self.growth(standing);
        match self.doubt {
            Doubt::Loss(since) if self.is_measured(now, since) => Verdict::Settle(self.measured(now)),
            Doubt::Loss(_) => Verdict::Wait,
            Doubt::Delay(found, since) => self.reconsider(now, growth, (found, since), rate),
            // A queue of two packets is chance: channels send when they will.
            Doubt::None if growth >= slack + 2.0 * gap => {
                self.doubt = Doubt::Delay(growth, now);
                Verdict::Wait
            }
            Doubt::None => {
                // A queue that neither grows nor goes is someone else's.
                let is_free = self.growth(delay) < slack + gap || self.packets >= DOUBTED;
                if is_free && now.since(self.since) >= JUDGED_TIME { Verdict::Join } else { Verdict::Wait }
            }
        }
    }

    /// Delays had grown by so much then.
    fn reconsider(&mut self, now: Instant, growth: f64, found: (f64, Instant), rate: f64) -> Verdict {
        if growth < found.0 / 2.0 {
            // A burst of others', or this host slept.
            self.renew(now, self.before);
            return Verdict::Wait;
        }
        let came = f64::from(self.packets) - 1.0;
        let is_short = came + CHANCE <= SHARE * rate * now.since(self.since).as_secs_f64();
        let is_certain = is_short || (self.packets >= DOUBTED && growth > found.0);
        if self.is_measured(now, found.1) && is_certain {
            return Verdict::Settle(self.measured(now));
        }
        if self.packets >= DOUBTED && !is_certain {
            // The queue stands: it is not this session that fills it.
            self.begin(now);
        }
        Verdict::Wait
    }

    fn is_measured(&self, now: Instant, since: Instant) -> bool {
        self.packets >= MEASURED && now.since(since) >= MEASURED_TIME
    }

    /// By how many seconds a delay exceeds what it was before.
    fn growth(&self, delay: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
        let nanos = delay.saturating_sub(self.before.unwrap_or(self.least)) as f64;
        nanos / 1e9
    }

    /// Packets per second since the first one.
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
            Self { start: FastStart::new(now), now }
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
                self.start.record(delay);
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
    fn a_queue_that_others_fill_is_borne() {
        let mut level = Level::new();
        level.hold(400.0, 100, |_, _| 0.0);
        // A burst of 60 ms that the bottleneck works off, then 20 ms that stay.
        let burst = |_, left: f64| (60.0 - left).max(20.0);
        assert_eq!(level.hold(400.0, 400, burst), Some(Verdict::Join));
    }

    #[test]
    fn a_queue_that_was_there_before_the_first_join_is_borne() {
        let mut start = FastStart::new(Instant::ZERO);
        let ms = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        // The base's packets found the queue empty, until another receiver's start filled it by 60 ms.
        for late in [0, 0, 60_000_000] {
            start.record(late);
        }
        start.joined(ms(300), ms(240));
        let verdicts: Vec<Verdict> = (0..12)
            .map(|i| {
                start.record(60_000_000);
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
            level.start.record(0);
            assert_eq!(level.start.judge(level.now, 0, 1_000.0, 0.02), Verdict::Wait);
            level.now += Duration::from_millis(2);
        }
        level.start.record(0);
        let found = level.start.judge(level.now, 0, 1_000.0, 0.02);
        assert_eq!(found, Verdict::Settle(500.0), "seven packets in 14 ms after the first");
    }

    #[test]
    fn only_what_left_after_the_first_join_ends_it() {
        let ms = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let mut start = FastStart::new(ms(0));
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
