//! Search for the highest rate that receivers sustain, from their reports of packets received and lost.
//!
//! For dedicated networks: the rate takes what is left of the path, and does not give way to TCP.
//!
//! The rate rises by factors of [`STEP_FIRST`] until receivers or the driver miss packets. Then the rate
//! falls to [`SETTLED`] of the rate that arrives, which is the rate of the bottleneck. Later the search
//! probes by [`STEP_PROBE`], then just above the rate that arrived, and then by the square of each step that
//! succeeds, so that capacity that comes back is found within seconds. A failed probe doubles the time until
//! the next one.
//!
//! A receiver's report counts the packets since the receiver's report before. Only intervals that begin after
//! a change of the rate has taken effect are judged. A share of losses that a fall of the rate does not cure
//! is chance, and is no reason to fall again, up to [`CHANCE_MAX`].
//!
//! The rate follows the slowest receiver, without a tenth of the receivers ([`SPARED`]): of fewer than ten,
//! all count. No receiver takes the rate below the least rate of the configuration.

use core::mem;
use std::collections::BTreeMap;

use headwater_wire::roster::PacketCounts;

use crate::control::ReceptionReport;
use crate::pacing::{DriverLoad, ROOMY, scaled};
use crate::rate::Rate;
use crate::roster::ROWS_MAX;
use crate::time::{Duration, Instant};

/// Factor of rate of each step before the first fall.
const STEP_FIRST: f64 = 4.0;
/// Factor of the first step after a fall: from [`SETTLED`] to just below the bottleneck.
const STEP_PROBE: f64 = 1.04;
/// Part of the rate that arrives to which the rate falls.
const SETTLED: f64 = 0.95;
/// Least part of the packets, in excess of losses by chance, from which a receiver misses packets.
const MARGIN: f64 = 0.02;
/// Standard deviations of a share of losses that chance explains, of thousands of shares.
const DEVIATIONS: f64 = 4.0;
/// Share of losses that a probe above the bottleneck is to show, over the least share that chance does not
/// explain.
const SHOWN: f64 = 1.25;
/// Largest part of losses that counts as chance.
const CHANCE_MAX: f64 = 0.1;
/// Weight of a new share of losses in the share by chance.
const CHANCE_GAIN: f64 = 0.125;
/// Fewest packets of a share.
const PACKETS_MIN: u32 = 250;
/// Time after which an interval is judged by fewer packets, if the rate makes [`PACKETS_MIN`] in this time.
const INTERVAL_MAX: Duration = Duration::from_secs(3);
/// Bytes of a full packet.
const PACKET_BYTES: u64 = 1_440;
/// Intervals of [`INTERVAL_MAX`] without a packet after which a receiver does not count.
const IDLE_MAX: u32 = 2;
/// One of so many receivers does not count.
const SPARED: usize = 10;
/// Time from a change of the rate until reports show the change alone: planned packets of a signed session
/// ([`DEMAND_LEAD_MAX`](crate::auth)), a round trip, and the queues of the path.
const SETTLING: Duration = Duration::from_secs(1);
/// Time from the first report to the first step: a receiver whose path the step overloads gets no cookie.
const GATHERING: Duration = Duration::from_secs(1);
/// First and longest time from a fall to the next probe.
const WAIT: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(64);
/// Steps in a row that succeed, from which the capacity has changed: the next fall does not double the wait.
const PROVEN: u32 = 4;
/// Intervals, and time in addition, without a report after which a receiver does not count.
const SILENT_INTERVALS: u64 = 3;
const SILENT_MARGIN: Duration = Duration::from_secs(2);

/// Bounds of the search for a rate, in bit/s of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSearchConfig {
    /// Rate at the start, and while no receiver reports.
    pub start: Rate,
    /// Rate below which no receiver takes the session. At least 960 kbit/s, unless the start is below.
    pub least: Rate,
    /// Rate above which the session is never sent.
    pub most: Rate,
}

/// Packets lost of the packets sent in an interval.
#[derive(Clone, Copy, Debug)]
struct Losses {
    lost: u32,
    sent: u32,
}

impl Losses {
    fn share(self) -> f64 {
        f64::from(self.lost) / f64::from(self.sent)
    }

    /// Part of the packets by which the share differs from its mean by chance.
    fn margin(self) -> f64 {
        let share = self.share();
        MARGIN.max(DEVIATIONS * libm::sqrt(share * (1.0 - share) / f64::from(self.sent)))
    }
}

/// Last change of the rate.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// Time from which intervals show the rate alone.
    settled: Instant,
    is_fall: bool,
    /// Time after which an interval is judged by fewer packets than [`PACKETS_MIN`].
    interval_max: Duration,
}

impl Change {
    fn new(settled: Instant, is_fall: bool, rate: Rate) -> Self {
        let packets = rate.time_of(u64::from(PACKETS_MIN) * PACKET_BYTES);
        Self { settled, is_fall, interval_max: packets.max(INTERVAL_MAX) }
    }
}

/// Receiver that reports.
#[derive(Clone, Copy, Debug)]
struct ReportingReceiver {
    last: Instant,
    /// Time without a report after which the receiver does not count.
    patience: Duration,
    /// Beginning of the interval under way, and the counts then.
    from: Instant,
    base: PacketCounts,
    /// Losses at the current rate, once judged.
    judged: Option<Losses>,
    /// Part lost before the last fall, if the receiver missed packets.
    before: Option<f64>,
    /// Part lost by chance.
    chance: f64,
    /// Intervals in a row without a packet.
    idle: u32,
}

impl ReportingReceiver {
    fn new(now: Instant, base: PacketCounts) -> Self {
        let patience = Duration::ZERO;
        Self { last: now, patience, from: now, base, judged: None, before: None, chance: 0.0, idle: 0 }
    }

    /// Records the counts of a report. Intervals from before the change has settled are not judged.
    fn record(&mut self, now: Instant, change: Change, counts: PacketCounts) {
        self.last = now;
        let since = |count: u32, base: u32| count.wrapping_sub(base).cast_signed();
        let received = since(counts.received, self.base.received);
        // Packets that overtook each other were lost in the interval before.
        let lost = since(counts.lost, self.base.lost).max(0).cast_unsigned();
        let Ok(received) = u32::try_from(received) else {
            // The receiver has started again.
            return self.begin(now, counts);
        };
        let losses = Losses { lost, sent: received.saturating_add(lost) };
        if self.from < change.settled {
            if change.is_fall && losses.sent >= PACKETS_MIN && self.misses(losses) {
                self.before.get_or_insert(losses.share());
            }
            return self.begin(now, counts);
        }
        if losses.sent < PACKETS_MIN && now.since(self.from) < change.interval_max {
            return;
        }
        self.begin(now, counts);
        if losses.sent == 0 {
            self.idle = self.idle.saturating_add(1);
        } else {
            self.idle = 0;
            self.judge(losses);
        }
    }

    const fn counts(&self) -> bool {
        self.idle < IDLE_MAX
    }

    /// Whether chance does not explain losses.
    fn misses(&self, losses: Losses) -> bool {
        losses.share() > self.chance + losses.margin()
    }

    fn begin(&mut self, now: Instant, counts: PacketCounts) {
        (self.from, self.base) = (now, counts);
    }

    fn judge(&mut self, losses: Losses) {
        let share = losses.share();
        let is_uncured = self.before.take().is_some_and(|before| share >= before / 2.0);
        if is_uncured && share <= CHANCE_MAX + losses.margin() {
            self.chance = share.min(CHANCE_MAX);
        } else if !self.misses(losses) {
            self.chance = (self.chance + CHANCE_GAIN * (share - self.chance)).min(CHANCE_MAX);
        }
        self.judged = Some(losses);
    }

    /// Returns the part of the rate that the receiver's path carries, if the receiver misses packets.
    fn carried(&self) -> Option<f64> {
        let losses = self.judged.filter(|losses| self.misses(*losses))?;
        Some((1.0 - losses.share()) / (1.0 - self.chance))
    }

    fn is_silent(&self, now: Instant) -> bool {
        now.since(self.last) > self.patience
    }
}

/// Returns the time without a report after which a receiver does not count.
fn patience(interval: Duration) -> Duration {
    interval.saturating_mul(SILENT_INTERVALS) + SILENT_MARGIN
}

/// Returns the rate above the bottleneck's whose losses show within a second: a higher rate would lose more,
/// and show no more.
fn shown_above(bottleneck: Rate) -> Rate {
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let packets = bottleneck.as_bits() as f64 / (8 * PACKET_BYTES) as f64;
    scaled(bottleneck, STEP_PROBE.max(1.0 + SHOWN * DEVIATIONS * DEVIATIONS / packets))
}

/// Search for the rate of a session. Memory: [`ROWS_MAX`] receivers of a hundred bytes.
#[derive(Clone, Debug)]
pub(super) struct RateSearch {
    config: RateSearchConfig,
    rate: Rate,
    load: DriverLoad,
    /// Share of the rate that the driver sent in the last window, if too low.
    late: Option<f64>,
    receivers: BTreeMap<u64, ReportingReceiver>,
    /// Receivers that count no packets, and the time until which they are under way without a report.
    uncounted: BTreeMap<u64, Instant>,
    change: Change,
    /// Factor of the next step.
    step: f64,
    /// Steps since the last fall.
    steps: u32,
    /// Time from the last fall to the probe after the fall; `None` before the first fall.
    wait: Option<Duration>,
    /// Rate of the bottleneck, the slowest path or the driver, measured at the last fall.
    bottleneck: Option<Rate>,
    /// Time of the next step at the earliest; `None` before the first report.
    step_due: Option<Instant>,
    reductions: u64,
}

impl RateSearch {
    pub(super) fn new(config: RateSearchConfig) -> Self {
        let RateSearchConfig { start, least, most } = config;
        let start = start.min(most);
        let shown = u64::from(PACKETS_MIN) * PACKET_BYTES * 8 / (INTERVAL_MAX.as_millis() / 1_000);
        let least = Rate::from_bits(shown).map_or(least, |shown| least.max(shown));
        Self {
            config: RateSearchConfig { start, least: least.min(start), most },
            rate: start,
            load: DriverLoad::default(),
            late: None,
            receivers: BTreeMap::new(),
            uncounted: BTreeMap::new(),
            change: Change::new(Instant::ZERO, false, start),
            step: STEP_FIRST,
            steps: 0,
            wait: None,
            bottleneck: None,
            step_due: None,
            reductions: 0,
        }
    }

    pub(super) const fn config(&self) -> RateSearchConfig {
        self.config
    }

    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Number of receivers whose reports count.
    pub(super) fn receivers(&self) -> usize {
        self.receivers.len()
    }

    /// Number of falls of the rate.
    pub(super) const fn reductions(&self) -> u64 {
        self.reductions
    }

    /// Handles a receiver's report.
    pub(super) fn report(&mut self, now: Instant, report: &ReceptionReport) {
        match report.packets {
            Some(packets) => self.record(now, report, packets),
            None => {
                self.retain(now, |receiver, _| *receiver != report.receiver);
                self.record_uncounted(now, report);
            }
        }
        self.retain(now, |_, receiver| !receiver.is_silent(now));
        self.uncounted.retain(|_, until| *until > now);
        self.decide(now);
    }

    /// Keeps the receivers of a kind. If none is left, the search begins anew at the rate of the start.
    fn retain(&mut self, now: Instant, is_kept: impl Fn(&u64, &ReportingReceiver) -> bool) {
        if self.receivers.is_empty() {
            return;
        }
        self.receivers.retain(|id, receiver| is_kept(id, receiver));
        if self.receivers.is_empty() {
            let (load, reductions, uncounted) = (self.load, self.reductions, mem::take(&mut self.uncounted));
            *self = Self { load, reductions, uncounted, ..Self::new(self.config) };
            self.settle(now, false);
        }
    }

    /// Records a receiver without counts, as of an earlier version, or the receiver's end.
    fn record_uncounted(&mut self, now: Instant, report: &ReceptionReport) {
        if !report.is_under_way {
            self.uncounted.remove(&report.receiver);
        } else if self.uncounted.len() < ROWS_MAX || self.uncounted.contains_key(&report.receiver) {
            self.uncounted.insert(report.receiver, now + patience(report.interval));
        }
    }

    /// Highest rate: with a receiver under way that does not count its packets, the rate of the start.
    fn most(&self) -> Rate {
        if self.uncounted.is_empty() { self.config.most } else { self.config.start }
    }

    fn record(&mut self, now: Instant, report: &ReceptionReport, packets: PacketCounts) {
        if self.receivers.len() >= ROWS_MAX && !self.receivers.contains_key(&report.receiver) {
            return;
        }
        self.step_due.get_or_insert(now + GATHERING);
        let new = || ReportingReceiver::new(now, packets);
        let receiver = self.receivers.entry(report.receiver).or_insert_with(new);
        receiver.patience = patience(report.interval);
        receiver.record(now, self.change, packets);
    }

    /// Records a packet that left at `now`, and the time given up for the packet.
    pub(super) fn departed(&mut self, now: Instant, given_up: Duration) {
        let Some(sample) = self.load.record(now, given_up) else { return };
        self.retain(now, |_, receiver| !receiver.is_silent(now));
        if sample.share >= ROOMY {
            self.late = None;
            let is_reduced = self.rate < self.config.start;
            if self.receivers.is_empty() && is_reduced && self.is_step_due(now) {
                self.rise(now, self.config.start);
            }
        } else if let Some(first) = self.late.replace(sample.share) {
            // A single late window may be a pause of the host.
            self.fall(now, f64::midpoint(first, sample.share));
        }
    }

    /// Changes the rate if the receivers' reports call for it.
    fn decide(&mut self, now: Instant) {
        let counted = || self.receivers.values().filter(|receiver| receiver.counts());
        let spared = counted().count() / SPARED;
        let mut carried: Vec<f64> = counted().filter_map(ReportingReceiver::carried).collect();
        carried.sort_unstable_by(f64::total_cmp);
        if let Some(carried) = carried.get(spared) {
            return self.fall(now, *carried);
        }
        let most = self.most();
        if self.rate > most {
            self.rate = most;
            return self.settle(now, true);
        }
        let judged = counted().filter(|receiver| receiver.judged.is_some()).count();
        let are_content = judged > 0 && judged + spared >= counted().count();
        if are_content && self.is_step_due(now) && self.rate < most {
            self.rise(now, most);
        }
    }

    fn is_step_due(&self, now: Instant) -> bool {
        self.step_due.is_some_and(|due| due <= now)
    }

    fn rise(&mut self, now: Instant, most: Rate) {
        let next = scaled(self.rate, self.step);
        let probe = self.bottleneck.filter(|bottleneck| self.rate < *bottleneck).map(shown_above);
        if probe.is_none_or(|probe| next <= probe) {
            self.step = (self.step * self.step).min(STEP_FIRST);
        }
        self.rate = probe.map_or(next, |probe| next.min(probe)).min(most);
        self.steps += 1;
        self.settle(now, false);
    }

    /// Reduces the rate, of which the slowest path or the driver carries a part.
    fn fall(&mut self, now: Instant, carried: f64) {
        for receiver in self.receivers.values_mut() {
            receiver.before = receiver.carried().and(receiver.judged).map(Losses::share);
        }
        self.late = None;
        let bottleneck = scaled(self.rate, carried);
        self.bottleneck = Some(bottleneck);
        self.rate = scaled(bottleneck, SETTLED).max(self.config.least);
        let wait = match (self.wait, self.steps) {
            (Some(wait), 0) => wait,
            (Some(wait), steps) if steps < PROVEN => wait.saturating_mul(2).min(WAIT_MAX),
            _ => WAIT,
        };
        (self.wait, self.step_due) = (Some(wait), Some(now + wait));
        (self.step, self.steps) = (STEP_PROBE, 0);
        self.reductions += 1;
        self.settle(now, true);
    }

    fn settle(&mut self, now: Instant, is_fall: bool) {
        self.change = Change::new(now + SETTLING, is_fall, self.rate);
        self.receivers.values_mut().for_each(|receiver| receiver.judged = None);
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
