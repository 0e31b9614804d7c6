//! Pacing: departure times without loss of fractions of a nanosecond.

use headwater_wire::extensions::Lateness;

use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Longest time for which a late driver may send faster than its rate to catch up.
///
/// 10 ms is a few ticks of a coarse system timer, and below a hundred packets up to 100 Mbit/s.
pub const BURST: Duration = Duration::from_millis(10);

/// Returns the lateness of a packet that leaves at `now`, scheduled at `at`.
pub(crate) fn lateness(now: Instant, at: Instant) -> Lateness {
    Lateness::of_micros(now.since(at).as_nanos() / 1_000)
}

/// Part of the configured rate that a sender's driver sustains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overload {
    /// Sent rate as a part of the configured rate.
    pub share: f64,
    /// Highest level that is sent, if there are several levels.
    pub ceiling: Option<u16>,
}

const BIT_NANOS_PER_SEC: u128 = 8_000_000_000;

/// A schedule of departures at a rate.
///
/// Packet k leaves when the sending time of packets 0..k has passed. A late driver catches up by at most
/// `burst`. Lost time beyond `burst` is given up, so that a pause is never followed by a flood.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Rate,
    burst: Duration,
    next: Instant,
    /// Fraction of a nanosecond that `next` leaves out, in units of 1 ns / `rate`: below `rate`.
    remainder: u64,
}

impl Pacer {
    /// Returns a schedule whose first packet is due at `start`.
    pub fn new(rate: Rate, burst: Duration, start: Instant) -> Self {
        Self { rate, burst, next: start, remainder: 0 }
    }

    /// Returns the due time of the next packet.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Current rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate at `now`. The rest of the wait for the next packet is rescaled to the new rate, so
    /// that a low earlier rate does not delay the next packet.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        if now < self.next {
            let left = u128::from(self.next.since(now).as_nanos());
            let left = left * u128::from(self.rate.as_bits()) / u128::from(rate.as_bits());
            self.next = now + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        }
        self.rate = rate;
        self.remainder = 0;
    }

    /// Sets the time by which a late driver catches up.
    pub(crate) fn set_burst(&mut self, burst: Duration) {
        self.burst = burst;
    }

    /// Whether a packet is due at `now`.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Gives up the time until `now`, in which there was nothing to send.
    pub fn pause(&mut self, now: Instant) {
        if self.next < now {
            (self.next, self.remainder) = (now, 0);
        }
    }

    /// Records that the due packet, of `bytes`, leaves at `now`. Returns the time that is given up.
    pub fn sent(&mut self, now: Instant, bytes: usize) -> Duration {
        let earliest = now - self.burst;
        let given_up = earliest.since(self.next);
        if self.next < earliest {
            self.next = earliest;
            self.remainder = 0;
        }
        let rate = u128::from(self.rate.as_bits());
        let work = bytes as u128 * BIT_NANOS_PER_SEC + u128::from(self.remainder);
        self.next += Duration::from_nanos(u64::try_from(work / rate).unwrap_or(u64::MAX));
        self.remainder = u64::try_from(work % rate).expect("a remainder is below the rate, a u64");
        given_up
    }
}

/// Measurement window of a driver's load: some ten turns of a driver that sends for at least [`BURST`] per
/// turn.
const LOAD_WINDOW: Duration = Duration::from_millis(500);

/// Initial and least time without overload before an end probes a higher rate.
const HOLD: Duration = Duration::from_secs(1);
/// Overload within this time after a probe is attributed to the probe.
const TRIED: Duration = Duration::from_secs(10);

/// Rules of the probes of an end.
#[derive(Clone, Copy, Debug)]
struct RetryRules {
    /// Maximum time without overload before a probe.
    hold_max: Duration,
    /// Successful probes in a row after which the host's capacity is assumed to have changed.
    proven: u8,
    /// Divisor of the hold time for each further probe.
    divisor: u64,
}

/// Probes by a level of several.
const BY_LEVEL: RetryRules = RetryRules { hold_max: Duration::from_secs(64), proven: 4, divisor: 2 };
/// Probes of a higher rate. A failed probe costs a second of uneven packets; a successful probe shows that
/// the capacity has changed.
const BY_RATE: RetryRules = RetryRules { hold_max: Duration::from_secs(16), proven: 1, divisor: 16 };

/// Schedule of probes for a higher rate, for an end that was slowed down by its host. A failed probe
/// doubles the time until the next probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    rules: RetryRules,
    /// Start of the current period without overload or rate change.
    calm: Instant,
    hold: Duration,
    /// Time of the last probe.
    tried: Option<Instant>,
    /// Whether the rate was reduced soon after the last probe.
    has_failed: bool,
    /// Successful probes in a row.
    tries: u8,
}

impl Default for Retry {
    fn default() -> Self {
        Self::new(BY_LEVEL)
    }
}

impl Retry {
    /// Returns the schedule of an end that was not slowed down yet.
    const fn new(rules: RetryRules) -> Self {
        Self { rules, calm: Instant::ZERO, hold: HOLD, tried: None, has_failed: false, tries: 0 }
    }

    /// Records that the end reduced its rate.
    pub(crate) fn settle(&mut self, now: Instant) {
        let is_tried = self.tried.is_some_and(|at| now < at + TRIED);
        // The first reduction takes the probe back; a further one belongs to the same overload.
        self.hold = match (is_tried, self.has_failed) {
            (true, false) => self.hold.saturating_mul(2).min(self.rules.hold_max),
            (true, true) => self.hold,
            (false, _) => HOLD,
        };
        self.has_failed = is_tried;
        self.tries = 0;
        self.calm = now;
    }

    /// Records that the host has no spare capacity.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.calm = now;
    }

    /// Whether no overload and no rate change occurred for longer than between any two probes.
    pub(crate) fn is_calm(&self, now: Instant) -> bool {
        now >= self.calm + self.rules.hold_max
    }

    /// Records that the host has spare capacity. Returns whether to probe a higher rate now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.calm + self.hold;
        if is_due {
            (self.tried, self.has_failed, self.calm) = (Some(now), false, now);
            if self.tries >= self.rules.proven {
                self.hold = Duration::from_nanos(self.hold.as_nanos() / self.rules.divisor).max(HOLD);
            }
            self.tries = self.tries.saturating_add(1);
        }
        is_due
    }
}

/// Measures, per window, whether a driver comes too late to send the due packets.
///
/// A driver that keeps up gives up no time, except when its host pauses. The longest stretch given up in a
/// window does not count: a single pause, however long, is no overload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverLoad {
    /// Start of the window, once a packet has left.
    since: Option<Instant>,
    packets: u32,
    /// Time given up: in total, and the longest single stretch.
    given_up: Duration,
    longest: Duration,
    /// Share before the first of the reductions since the driver was on time, and their product.
    reduced: Option<(f64, f64)>,
    /// Windows in a row in which the driver was on time.
    on_time: u8,
}

/// Load of a driver over one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadSample {
    /// Part of the window's time that the driver did not give up, in 0..=1.
    pub(crate) share: f64,
    /// Packets sent per second.
    pub(crate) rate: f64,
}

impl DriverLoad {
    /// Records a packet that left at `now`, for which `given_up` was given up. Returns the sample of the
    /// window, if the window has ended.
    pub(crate) fn record(&mut self, now: Instant, given_up: Duration) -> Option<LoadSample> {
        let Some(since) = self.since else {
            // Time before the first packet belongs to no window.
            *self = Self { since: Some(now), ..Self::default() };
            return None;
        };
        self.packets += 1;
        self.given_up = self.given_up + given_up;
        self.longest = self.longest.max(given_up);
        if now < since + LOAD_WINDOW {
            return None;
        }
        let without =
            |time: Duration| Duration::from_nanos(time.as_nanos().saturating_sub(self.longest.as_nanos()));
        let time = without(now.since(since));
        let lost = without(self.given_up).min(time);
        let seconds = time.as_secs_f64().max(1e-9);
        let sample =
            LoadSample { share: 1.0 - lost.as_secs_f64() / seconds, rate: f64::from(self.packets) / seconds };
        let on_time = if sample.share < BUSY { 0 } else { self.on_time.saturating_add(1) };
        let reduced = self.reduced.filter(|_| on_time < ON_TIME);
        *self = Self { since: Some(now), reduced, on_time, ..Self::default() };
        Some(sample)
    }

    /// Records that the driver is to send more: a reduction takes that back, and helps.
    pub(crate) fn raise(&mut self) {
        self.reduced = None;
    }

    /// Records that a driver that used only `share` of the time is to send `factor` of the rate. Returns
    /// whether that may help. If reductions did not raise the share, the machine pauses the driver at any
    /// rate: no reduction helps until the driver has been on time.
    pub(crate) fn reduce(&mut self, share: f64, factor: f64) -> bool {
        let (first, reduced) = self.reduced.unwrap_or((share, 1.0));
        // A driver that is slow, not paused, would use the expected share.
        let expected = (first / reduced).min(1.0);
        let helps = reduced > TELLING || share > f64::midpoint(first, expected);
        if helps {
            self.reduced = Some((first, reduced * factor));
        }
        helps
    }
}

/// A driver that uses at least this part of the time is on time: the spacing's headroom keeps a backlog from
/// growing.
pub(crate) const BUSY: f64 = 0.9;
/// Windows in a row after which a driver counts as on time: a paused driver has some good windows, too.
const ON_TIME: u8 = 4;
/// Part of the rate from which a reduction tells a slow driver from a paused one.
const TELLING: f64 = 0.75;
/// A driver that sends less than this part of the configured rate is overloaded. A driver that nearly reaches
/// the configured rate keeps that rate.
pub(crate) const OVERLOADED: f64 = 0.75;
/// A driver that sends less than this part of a reduced or probed rate has no spare capacity.
pub(crate) const ROOMY: f64 = 0.95;
/// Part of the driver's measured rate to which the sender reduces its rate.
const SETTLED: f64 = 0.9;
/// Least part of the asked rate to which a sender settles: a machine that stood still for seconds says
/// nothing of the rate that the machine can send.
const LEAST: f64 = 1.0 / 64.0;
/// Factor by which a slowed sender probes. An overloaded driver sends at the same rate by each factor.
const PROBE: f64 = 2.0;
/// Factor by which a sender that follows receivers probes.
const SMALL_PROBE: f64 = 1.1;
/// Part of the turns after which a paused driver is less late, at least. A slow driver is later after each
/// turn, a paused driver only after the turns with pauses.
const GAINS: f64 = 0.25;

/// Highest rate that a sender's driver sustains, up to a configured (fixed or maximum) rate.
///
/// If a slow driver misses the rate in two windows in a row, the cap falls somewhat below the rate that the
/// driver sent. Later probes raise the cap again. The cap does not fall for a driver that catches up between
/// pauses: at a lower rate the pauses would cost as much time.
///
/// A late driver catches up by the bytes of [`BURST`] at the rate before the first reduction
/// ([`Self::burst`]). With the same time at each rate, a driver that is away for a part of each turn would
/// send less at each lower rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateCap {
    asked: Rate,
    rate: Rate,
    /// Rate before the first reduction, while the cap is below the asked rate.
    unreduced: Rate,
    /// Time by which a late driver catches up.
    burst: Duration,
    /// Rate at which a late driver catches up, as a multiple of the sender's rate.
    headroom: f64,
    /// Factor of a probe.
    probe: f64,
    load: DriverLoad,
    turns: Turns,
    /// Share of the rate that was sent in the last window, if too low, and whether the driver was paused.
    short: Option<(f64, bool)>,
    /// Share of the rate that a paused driver sends, if too low.
    paused: Option<f64>,
    retry: Retry,
}

/// Turns of a driver in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    /// Begin of the last turn, and the lateness, without the time given up.
    last: Option<(Instant, Duration)>,
    count: u32,
    gaining: u32,
}

impl Turns {
    /// Records a packet that left at `now`, `late` after it was due, by a driver that catches up by `burst`.
    fn record(&mut self, now: Instant, late: Duration, burst: Duration) {
        let last = self.last;
        // Later packets of a turn were due later.
        if last.is_some_and(|(at, _)| at == now) {
            return;
        }
        self.last = Some((now, late.min(burst)));
        self.count += 1;
        let is_on_time = late.as_nanos() <= burst.as_nanos() / 2;
        self.gaining += u32::from(is_on_time || last.is_some_and(|(_, before)| late < before));
    }

    /// Returns the part of the turns since the last call that were on time, or less late than the turn
    /// before.
    fn take(&mut self) -> f64 {
        let part = f64::from(self.gaining) / f64::from(self.count.max(1));
        (self.count, self.gaining) = (0, 0);
        part
    }
}

impl RateCap {
    /// Returns the cap of a sender that sends up to `asked`.
    pub(crate) fn new(asked: Rate) -> Self {
        Self {
            asked,
            rate: asked,
            unreduced: asked,
            burst: BURST,
            headroom: 1.0,
            probe: PROBE,
            load: DriverLoad::default(),
            turns: Turns::default(),
            short: None,
            paused: None,
            retry: Retry::new(BY_RATE),
        }
    }

    /// Sets the rate at which a late driver catches up, as a multiple of the sender's rate. Default: 1, as in
    /// [`Pacer`].
    pub(crate) fn with_headroom(mut self, headroom: f64) -> Self {
        self.headroom = headroom;
        self
    }

    /// Raises the cap in small steps, for a sender that follows receivers.
    pub(crate) fn with_small_probes(mut self) -> Self {
        self.probe = SMALL_PROBE;
        self
    }

    /// Highest rate to send.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Time by which a late driver catches up.
    pub(crate) fn burst(&self) -> Duration {
        self.burst
    }

    /// Sets the cap, and the time in which the bytes of a burst take their place at the rate of the cap.
    fn set(&mut self, rate: Rate) {
        let (bits, unreduced) = (u128::from(rate.as_bits()), u128::from(self.unreduced.as_bits()));
        let burst = u128::from(BURST.as_nanos()) * unreduced / bits.max(1);
        self.burst = Duration::from_nanos(u64::try_from(burst).unwrap_or(u64::MAX)).max(BURST);
        self.rate = rate;
    }

    /// Records a packet that left at `now`, by `late` after it was due, while the sender's rate was `rate`.
    /// Returns whether the cap moved.
    pub(crate) fn departed(&mut self, now: Instant, rate: Rate, late: Duration) -> bool {
        let burst = self.burst;
        let given_up = Duration::from_nanos(late.as_nanos().saturating_sub(burst.as_nanos()));
        self.turns.record(now, late, burst);
        let Some(sample) = self.load.record(now, given_up) else { return false };
        let is_paused = self.turns.take() >= GAINS;
        if rate > self.rate {
            // The sender has not followed the cap yet.
            return false;
        }
        let (share, before) = ((sample.share * self.headroom).min(1.0), self.rate);
        let is_short = share < if self.rate < self.asked { ROOMY } else { OVERLOADED };
        let first = core::mem::replace(&mut self.short, is_short.then_some((share, is_paused)));
        self.paused = (first.is_some() && is_short && is_paused).then_some(share);
        if let (Some((first, false)), true, false) = (first, is_short, is_paused) {
            self.short = None;
            self.retry.settle(now);
            if self.rate == self.asked {
                self.unreduced = rate;
            }
            let settled = scaled(rate, SETTLED * f64::midpoint(first, share));
            self.set(settled.max(scaled(self.asked, LEAST)));
        } else if !is_short || is_paused {
            // A cap that the sender does not use is no evidence of capacity.
            let is_used = rate >= scaled(self.rate, ROOMY);
            if self.rate < self.asked && is_used && self.retry.is_due(now) {
                self.set(scaled(self.rate, self.probe).min(self.asked));
            }
        }
        self.rate != before
    }

    /// Returns the part of the configured rate that the cap allows or that a paused driver sends, if below 1.
    pub(crate) fn overload(&self) -> Option<Overload> {
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = self.rate.as_bits() as f64 / self.asked.as_bits() as f64;
        let share = if self.rate < self.asked { Some(share) } else { self.paused };
        share.map(|share| Overload { share, ceiling: None })
    }
}

/// Returns a rate times a factor, at least 1 bit/s.
pub(crate) fn scaled(rate: Rate, factor: f64) -> Rate {
    #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
    let bits = rate.as_bits() as f64 * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let bits = bits as u64;
    Rate::from_bits(bits.max(1)).unwrap_or(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(rate: u64) -> Pacer {
        Pacer::new(Rate::from_bits(rate).unwrap(), Duration::from_millis(10), Instant::ZERO)
    }

    #[test]
    fn a_machine_that_stands_still_does_not_take_the_rate_to_nothing() {
        let asked = Rate::from_bits(200_000_000).unwrap();
        let (mut cap, mut now) = (RateCap::new(asked), Instant::ZERO);
        let mut least = asked;
        for _ in 0..10_000 {
            now += Duration::from_millis(10);
            // Each turn, the driver gives up all but a hundredth of the time.
            cap.departed(now, cap.rate(), cap.burst + Duration::from_micros(9_900));
            least = least.min(cap.rate());
        }
        assert_eq!(least, scaled(asked, LEAST), "a hundredth is less than the least rate");
    }

    #[test]
    fn a_probe_that_is_taken_back_in_two_steps_doubles_the_wait_once() {
        let mut retry = Retry::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        retry.settle(at(0));
        let mut now = 0;
        for wait in [1_000, 2_000, 4_000, 8_000] {
            assert!(!retry.is_due(at(now + wait - 1)), "after {wait} ms");
            assert!(retry.is_due(at(now + wait)));
            retry.settle(at(now + wait + 500));
            retry.settle(at(now + wait + 1_000));
            now += wait + 1_000;
        }
        retry.settle(at(now + 60_000));
        assert!(retry.is_due(at(now + 61_000)), "capacity has fallen: no fault of a probe");
    }

    #[test]
    fn no_fraction_is_lost() {
        // 3 Mbit/s and 1000-byte packets: 2.666.. ms each. 3 000 of them take 8 s to the nanosecond.
        let mut pacer = pacer(3_000_000);
        for _ in 0..3_000 {
            let now = pacer.next();
            pacer.sent(now, 1_000);
        }
        assert_eq!(pacer.next(), Instant::from_nanos(8_000_000_000));
    }

    #[test]
    fn a_late_driver_catches_up_by_no_more_than_the_burst() {
        let mut pacer = pacer(8_000_000); // 1000 bytes each ms
        let now = Instant::ZERO + Duration::from_secs(5);
        let mut sent = 0;
        while pacer.is_due(now) {
            pacer.sent(now, 1_000);
            sent += 1;
        }
        assert_eq!(sent, 11, "10 ms of burst and the packet that is due now");
    }

    #[test]
    fn a_new_rate_holds_for_the_wait_under_way() {
        let mut pacer = pacer(8_000); // 1000 bytes each second
        pacer.sent(Instant::ZERO, 1_000);
        let half = Instant::ZERO + Duration::from_millis(500);
        pacer.set_rate(half, Rate::from_bits(8_000_000).unwrap());
        assert_eq!(pacer.next(), half + Duration::from_micros(500), "half a packet at 1000 times the rate");
        pacer.set_rate(half, Rate::from_bits(8_000).unwrap());
        assert_eq!(pacer.next(), Instant::ZERO + Duration::from_secs(1));
        let late = Instant::ZERO + Duration::from_secs(3);
        pacer.set_rate(late, Rate::from_bits(8).unwrap());
        assert!(pacer.is_due(late), "what was due stays due");
    }

    /// Load samples of a driver that sends `per_turn` packets of 1 ms in turns that take `turn_ms`, but
    /// pauses once for `pause_ms`.
    fn samples(per_turn: u32, turn_ms: u64, pause_ms: u64) -> Vec<LoadSample> {
        let (mut pacer, mut load) = (pacer(8_000_000), DriverLoad::default());
        let (mut now, mut samples) = (Instant::ZERO, Vec::new());
        for turn in 0..3_000 / turn_ms {
            for _ in 0..per_turn {
                if pacer.is_due(now) {
                    let given_up = pacer.sent(now, 1_000);
                    samples.extend(load.record(now, given_up));
                }
            }
            now += Duration::from_millis(if turn == 20 { turn_ms + pause_ms } else { turn_ms });
        }
        samples
    }

    #[test]
    fn a_driver_that_gives_up_time_again_and_again_is_overloaded() {
        // 11 packets, which is a burst, in turns of 25 ms: 0.44 of the rate.
        let found = samples(11, 25, 0);
        assert!(
            found.len() >= 4 && found.iter().all(|sample| (sample.share - 0.44).abs() < 0.05),
            "{found:?}"
        );
        assert!(found.iter().all(|sample| (sample.rate - 440.0).abs() < 30.0), "{found:?}");
    }

    #[test]
    fn a_driver_that_keeps_up_is_not_whether_it_pauses_or_not() {
        for pause in [0, 50, 700, 10_000] {
            let found = samples(11, 5, pause);
            assert!(found.len() >= 4, "{found:?}");
            assert!(found.iter().all(|sample| sample.share > 0.95), "{found:?}");
        }
    }

    #[test]
    fn a_driver_that_is_a_little_late_loses_nothing() {
        let mut pacer = pacer(8_000_000);
        for step in 0..1_000_u64 {
            let now = Instant::from_nanos(step * 3_700_000); // comes each 3.7 ms
            while pacer.is_due(now) {
                pacer.sent(now, 1_000);
            }
        }
        let elapsed_ms = 999 * 37 / 10;
        assert_eq!(pacer.next().as_nanos() / 1_000_000, elapsed_ms + 1);
    }
}
