//! The chain of all stages, and the resulting rate.

use core::net::IpAddr;

use super::dismissal::Dismissals;
use super::receivers::RoundTrip;
use super::receivers::{Receivers, UNPROVEN};
use super::{Epoch, Estimator, LeSbccConfig, Module, Samples};
use crate::control::Value;
use crate::measure::throughput_with_timeout;
use crate::rate::Rate;
use crate::rng::{Stream, unit};
use crate::time::{Duration, Instant};

/// Number of round trips between two fadings of the counts (Thapliyal et al., pseudo-code).
const FADING_ROUND_TRIPS: f64 = 100.0;
/// Maximum rate of the TFRC module before the first loss event, in packets per second (Thapliyal et al., TFRC
/// module).
const START_PACKETS_PER_SEC: f64 = 1_000.0;
/// Floor of the rate with dismissal: this part of the maximum rate, or [`FLOOR_MAX`] if lower.
const FLOOR_SHARE: u64 = 50;
const FLOOR_MAX: Rate = Rate::from_kilobits(200);
/// The rate is at the floor below this multiple of the floor: between two reductions the rate grows.
const AT_FLOOR: f64 = 2.0;
/// NAKs of unproven addresses hold the rate below this share of the maximum rate for as long as a receiver
/// holds the rate at the floor. By short round trips, forged NAKs keep the rate far above the floor and far
/// below the path's.
const UNPROVEN_SHARE: f64 = 0.25;
/// beta of the binomial modules. With alpha = 1, the throughput is TCP's sqrt(3 / (2 p)) packets per round
/// trip: alpha / beta = 3/2.
const BINOMIAL_DECREASE: f64 = 2.0 / 3.0;
/// Number of halvings in the search for a loss event rate: precise to a part in 10^12.
const SEARCH_STEPS: u32 = 48;

/// A receiver's indication that a packet is missing.
#[derive(Clone, Copy, Debug)]
pub struct Indication {
    /// Source address of the NAK; [`UNPROVEN`] if the address is unproven where addresses have to be.
    pub receiver: IpAddr,
    /// Time of the packet's last transmission; time of the first transmission while a repair is under way
    /// that cannot be missing yet.
    pub sent: Instant,
    /// Transmission time of the following packet, by which a receiver notices the loss. `None` if the time
    /// since then is no round trip, because a packet was retransmitted or requested again.
    pub noticed: Option<Instant>,
}

/// Last stage that an indication reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The indication belongs to a loss event already counted (LI2LE).
    Indication,
    /// The indication is a loss event, of a receiver other than the worst (Max-LPRF).
    Event,
    /// The loss event passed Max-LPRF, but the epoch already had a reduction (ATF).
    Passed,
    /// The indication reduced the rate.
    Reduction,
}

/// Counters of a chain since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainCounters {
    /// Indications taken.
    pub indications: u64,
    /// Indications that gave a sample of the round-trip time.
    pub samples: u64,
    /// Sum of the samples, each at most [`LeSbccConfig::with_rtt_max`].
    pub sampled: Duration,
    /// Loss events: the output of LI2LE.
    pub events: u64,
    /// Loss events that passed Max-LPRF.
    pub passed: u64,
    /// Output of ATF: reductions of the rate, or new intervals of TFRC.
    pub reductions: u64,
    /// Receivers dismissed.
    pub dismissed: u64,
}

/// Chain of stages from loss indications to a rate.
///
/// The driver reports sent packets ([`Chain::sent`]), indications ([`Chain::indication`]) and time
/// ([`Chain::timeout`]), paces at [`Chain::rate`], and sends nothing before [`Chain::silent_until`].
#[derive(Clone, Debug)]
pub struct Chain {
    config: LeSbccConfig,
    rtt: RoundTrip,
    receivers: Receivers,
    draw: Stream,
    /// Rate in bytes per second.
    rate: f64,
    silence_end: Instant,
    epoch_end: Instant,
    start: Start,
    next_increase: Instant,
    next_fading: Instant,
    intervals: Intervals,
    dismissals: Dismissals,
    /// Reductions before the last start.
    reductions_before: u64,
    /// Whether a departure found nothing to send since the last increase.
    is_idle: bool,
    counters: ChainCounters,
}

impl Chain {
    /// Begins at `now`, with random numbers from `draw`.
    pub fn new(config: LeSbccConfig, mut draw: Stream, now: Instant) -> Self {
        let mut rtt = RoundTrip::new(config.rtt, config.srtt_gain, config.rtt_max);
        rtt = rtt.with_estimator(config.estimator);
        if config.rtt_is_assumed {
            rtt = rtt.assumed();
        }
        let segment = f64::from(config.segment_bytes);
        let initial = config.initial_rate.map_or(segment / rtt.srtt(), bytes_per_second);
        let receivers = Receivers::new(config.receivers_max, &mut draw);
        let mut chain = Self {
            start: Start::default(),
            next_increase: now,
            next_fading: now + Duration::from_secs_f64(FADING_ROUND_TRIPS * rtt.srtt()),
            config,
            rtt,
            receivers,
            draw,
            rate: initial,
            silence_end: now,
            epoch_end: now,
            intervals: Intervals::default(),
            dismissals: Dismissals::default(),
            reductions_before: 0,
            is_idle: false,
            counters: ChainCounters::default(),
        };
        chain.set_rate(initial);
        chain.record(now);
        chain.next_increase = now + chain.increase_period();
        chain
    }

    /// Returns the sending rate.
    pub fn rate(&self) -> Rate {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates when cast"
        )]
        let bits = libm::round(self.rate * 8.0) as u64;
        Rate::from_bits(bits).unwrap_or_else(|| Rate::from_kilobits(1))
    }

    /// Returns the configured maximum rate, if any.
    pub const fn max_rate(&self) -> Option<Rate> {
        self.config.max_rate
    }

    /// Returns the estimator of the round-trip time.
    pub const fn estimator(&self) -> Estimator {
        self.config.estimator
    }

    /// Whether receivers can be dismissed.
    pub const fn dismisses(&self) -> bool {
        self.config.dismisses
    }

    /// Whether the NAKs of a receiver set no rate.
    pub fn is_dismissed(&self, now: Instant, receiver: IpAddr) -> bool {
        self.config.dismisses && self.dismissals.contains(now, receiver)
    }

    /// Returns the configured minimum rate; with dismissal, at least the lesser of 200 kbit/s and a fiftieth
    /// of the maximum rate.
    pub fn least_rate(&self) -> Option<Rate> {
        let floor = || {
            let share = self.config.max_rate.map(|rate| rate.as_bits() / FLOOR_SHARE);
            share.and_then(Rate::from_bits).map_or(FLOOR_MAX, |share| share.min(FLOOR_MAX))
        };
        self.config.min_rate.or_else(|| self.config.dismisses.then(floor))
    }

    /// Returns the end of the pause after a reduction, before which nothing may be sent.
    pub const fn silent_until(&self) -> Instant {
        self.silence_end
    }

    /// Returns the estimate of the round-trip time.
    pub const fn round_trip(&self) -> &RoundTrip {
        &self.rtt
    }

    /// Returns the state of the receivers.
    pub const fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &ChainCounters {
        &self.counters
    }

    /// Visits the round-trip time, the counters of the stages, and the receiver with most loss events.
    pub fn visit_counters(&self, visit: &mut dyn FnMut(&'static str, Value)) {
        let ChainCounters { indications, events, passed, reductions, .. } = self.counters;
        visit("rtt", Value::Time(Duration::from_secs_f64(self.rtt.srtt())));
        visit("rtt_deviation", Value::Time(Duration::from_secs_f64(self.rtt.sigma())));
        visit("loss_indications", Value::Count(indications));
        visit("loss_events", Value::Count(events));
        visit("passed", Value::Count(passed));
        visit("reductions", Value::Count(reductions));
        if self.config.dismisses {
            visit("dismissed", Value::Count(self.counters.dismissed));
        }
        visit("receivers", Value::Count(self.receivers.len() as u64));
        if let Some((address, share)) = self.receivers.worst() {
            visit("worst", Value::Address(address));
            visit("worst_share", Value::Share(share));
        }
    }

    /// p of the TFRC module, in loss events per packet; `None` before the first loss event, and with AIMD.
    pub fn loss_event_rate(&self) -> Option<f64> {
        self.intervals.rate()
    }

    /// Records a sent packet, including repairs.
    pub fn sent(&mut self) {
        if self.config.module == Module::Tfrc {
            self.intervals.sent();
        }
    }

    /// Records a receiver's answer, a time `answer` after the first packet. The receiver need not miss any
    /// packet, and may have heard a later packet first. The receiver's host knows the path to the source, so
    /// the receiver's NAKs will not be late.
    pub fn heard(&mut self, answer: Duration) {
        if let Some(answer) = self.start.heard(answer) {
            self.rtt.heard(answer);
        }
    }

    /// Records a round-trip time that a receiver measured.
    pub fn measured(&mut self, now: Instant, round_trip: Duration) {
        self.start.heard(round_trip);
        self.rtt.measured(round_trip);
        self.next_increase = self.next_increase.min(now + self.increase_period());
    }

    /// Records that a departure was due without data to send, which suppresses the next increase of the rate.
    pub const fn idle(&mut self) {
        self.is_idle = true;
    }

    /// Handles a loss indication, and returns the last stage that the indication reached.
    pub fn indication(&mut self, now: Instant, indication: &Indication) -> Stage {
        self.counters.indications += 1;
        let began = match self.config.samples {
            Samples::Noticed => indication.noticed,
            Samples::Sent => Some(indication.sent),
        };
        // An unproven address may forge the sample.
        let began = began.filter(|_| indication.receiver != UNPROVEN);
        let sample = began.map(|began| now.since(began).min(self.config.rtt_max));
        let sample = sample.filter(|sample| self.is_round_trip(indication, *sample));
        let sample = sample.filter(|_| self.is_worst(indication.receiver));
        if let Some(sample) = sample.filter(|sample| self.rtt.sample(*sample)) {
            self.counters.samples += 1;
            self.counters.sampled = self.counters.sampled + sample;
        }
        let stage = self.filter(now, indication);
        self.counters.events += u64::from(stage >= Stage::Event);
        self.counters.passed += u64::from(stage >= Stage::Passed);
        self.counters.reductions += u64::from(stage >= Stage::Reduction);
        let is_reduction = stage == Stage::Reduction;
        if is_reduction {
            self.pause(now);
        }
        let most = if is_reduction { self.rate } else { 2.0 * self.rate };
        match self.start.lost(now, indication.sent).filter(|rate| *rate < most) {
            Some(rate) => self.fall_back(rate),
            None if is_reduction => self.reduce(),
            None => {}
        }
        stage
    }

    /// Whether samples of a receiver count: the rate is that of a TCP connection to the worst receiver.
    fn is_worst(&self, receiver: IpAddr) -> bool {
        self.config.estimator == Estimator::Published
            || self.receivers.worst().is_none_or(|(worst, _)| worst == receiver.to_canonical())
    }

    fn is_round_trip(&self, indication: &Indication, sample: Duration) -> bool {
        let is_short = sample.as_secs_f64() <= self.rtt.srtt();
        match self.receivers.knows_the_way(indication.receiver, indication.sent) {
            _ if !self.config.rtt_is_assumed => true,
            // Short samples alone would bring the mean down.
            Some(knows) => knows || is_short && self.rtt.is_assumed(),
            None => is_short,
        }
    }

    fn filter(&mut self, now: Instant, indication: &Indication) -> Stage {
        let stages = self.config.stages;
        let receiver = indication.receiver;
        if stages.li2le && !self.receivers.is_event(receiver, now, indication.sent, self.rtt.spacing()) {
            return Stage::Indication;
        }
        // The event is counted before the draw, so that with a single receiver each event passes.
        let share = self.receivers.event(receiver, now);
        if stages.max_lprf && unit(&mut self.draw) >= share {
            return Stage::Event;
        }
        if stages.atf && now < self.epoch_end {
            return Stage::Passed;
        }
        Stage::Reduction
    }

    /// Starts the pause of a reduction, if any, and an epoch.
    fn pause(&mut self, now: Instant) {
        let timeout = self.rtt.timeout();
        let pause = match (self.config.stages.atf, self.config.module) {
            (true, Module::Aimd) if self.may_pause() => 0.5 * timeout,
            // The rates of the other modules are smooth, without a pause.
            _ => 0.0,
        };
        let epoch = match self.config.epoch {
            Epoch::Code => 1.5 * timeout,
            Epoch::Text => timeout,
        };
        self.silence_end = self.silence_end.max(now + Duration::from_secs_f64(pause));
        if self.config.stages.atf {
            self.epoch_end = now + Duration::from_secs_f64(epoch);
        }
    }

    fn reduce(&mut self) {
        match self.config.module {
            Module::Tfrc => self.close_interval(),
            Module::Sqrt | Module::Iiad if !self.is_first_reduction() => self.binomial_decrease(),
            // The start overshoots by up to twice the path's rate, whatever the module.
            Module::Aimd | Module::Sqrt | Module::Iiad => self.set_rate(self.rate / 2.0),
        }
    }

    /// Handles a loss of a packet sent at `rate` at the start: sets the rate as if the loss had been known at
    /// once.
    fn fall_back(&mut self, rate: f64) {
        self.rate = rate;
        self.intervals = Intervals::default();
        match self.config.module {
            Module::Tfrc => self.close_interval(),
            Module::Aimd | Module::Sqrt | Module::Iiad => self.set_rate(rate / 2.0),
        }
    }

    /// Whether pauses keep the average rate above the configured minimum rate. Pauses take up to half of the
    /// time, after a reduction by half.
    fn may_pause(&self) -> bool {
        self.least_rate().is_none_or(|least| self.rate >= 4.0 * bytes_per_second(least))
    }

    fn close_interval(&mut self) {
        if self.intervals.mean().is_none() {
            // RFC 5348, section 6.3.1: as if losses had always occurred as often as at half the rate.
            let loss = self.loss_of(self.rate / 2.0);
            self.intervals = Intervals::default();
            self.intervals.close(1.0 / loss);
        } else {
            self.intervals.event();
        }
        if let Some(mean) = self.intervals.mean() {
            self.set_rate(self.equation(1.0 / mean.max(1.0)));
        }
    }

    /// Returns the throughput of TCP at a loss event rate, in bytes per second.
    fn equation(&self, loss: f64) -> f64 {
        f64::from(self.config.segment_bytes)
            * throughput_with_timeout(self.rtt.srtt(), self.rtt.timeout(), loss)
    }

    /// Returns the loss event rate, in 10^-8..1, at which the throughput equation yields `rate`.
    fn loss_of(&self, rate: f64) -> f64 {
        let (mut low, mut high) = (1e-8_f64, 1.0_f64);
        for _ in 0..SEARCH_STEPS {
            let middle = libm::sqrt(low * high);
            match self.equation(middle) > rate {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }

    /// Returns the time of the next call of [`Chain::timeout`].
    pub fn poll_timeout(&self) -> Instant {
        self.next_increase.min(self.next_fading)
    }

    /// Advances the chain to `now`.
    pub fn timeout(&mut self, now: Instant) {
        if self.next_fading <= now {
            self.receivers.fade();
            self.next_fading = now + Duration::from_secs_f64(FADING_ROUND_TRIPS * self.rtt.srtt());
        }
        if self.config.dismisses {
            self.watch_floor(now);
        }
        if self.next_increase <= now {
            self.increase(now);
            self.is_idle = false;
            self.next_increase = now + self.increase_period();
        }
    }

    /// Dismisses the worst receiver if that receiver has long held the rate at the floor, and starts again.
    fn watch_floor(&mut self, now: Instant) {
        let floor = self.least_rate().map_or(0.0, bytes_per_second);
        let share = self.config.max_rate.map_or(0.0, |most| UNPROVEN_SHARE * bytes_per_second(most));
        let held = if self.receivers.is_worst(UNPROVEN) { share } else { 0.0 };
        let is_at_floor = self.rate <= held.max(AT_FLOOR * floor);
        if !self.dismissals.is_due(now, is_at_floor, self.counters.reductions) {
            return;
        }
        let Some(worst) = self.receivers.forget_worst() else { return };
        self.dismissals.dismiss(now, worst);
        self.counters.dismissed += 1;
        self.reductions_before = self.counters.reductions;
        self.start = Start::heard_already();
        (self.silence_end, self.epoch_end) = (now, now);
        self.intervals = Intervals::default();
        self.record(now);
    }

    fn increase(&mut self, now: Instant) {
        if now < self.epoch_end && self.config.module != Module::Tfrc || self.is_idle {
            return;
        }
        let segment = f64::from(self.config.segment_bytes);
        let growth = if self.is_starting() { self.start.growth(&self.config, &self.rtt) } else { 2.0 };
        let rate = match (self.config.module, self.intervals.rate()) {
            (Module::Tfrc, Some(loss)) => self.equation(loss),
            (Module::Tfrc, None) => {
                (self.rate * growth).min((segment * START_PACKETS_PER_SEC).max(self.rate))
            }
            _ if self.is_starting() => self.rate * growth,
            _ => self.binomial_increase(),
        };
        self.set_rate(rate);
        self.record(now);
    }

    /// Whether the last reduction was the first, after which the rate no longer doubles.
    fn is_first_reduction(&self) -> bool {
        self.config.doubles_at_start && self.counters.reductions == self.reductions_before + 1
    }

    /// Packets in a period of increases.
    fn window(&self) -> f64 {
        (self.rate * self.rtt.period() / f64::from(self.config.segment_bytes)).max(1.0)
    }

    /// Bansal, Balakrishnan 2001: W + 1 / W^k.
    fn binomial_increase(&self) -> f64 {
        let (k, _) = self.config.module.exponents();
        self.rate + f64::from(self.config.segment_bytes) / self.rtt.period() / libm::pow(self.window(), k)
    }

    /// Bansal, Balakrishnan 2001: W - beta W^l, but not below half, as AIMD.
    fn binomial_decrease(&mut self) {
        let (_, l) = self.config.module.exponents();
        let part = BINOMIAL_DECREASE * libm::pow(self.window(), l - 1.0);
        self.set_rate(self.rate * (1.0 - part.min(0.5)));
    }

    /// Whether the rate doubles.
    fn is_starting(&self) -> bool {
        self.config.doubles_at_start && self.counters.reductions == self.reductions_before
    }

    fn record(&mut self, now: Instant) {
        if self.is_starting() {
            self.start.rate(now, self.rate);
        }
    }

    /// Returns the time between increases: a round-trip time for TFRC; a round-trip time with twice the
    /// deviation for AIMD and at the start.
    fn increase_period(&self) -> Duration {
        Duration::from_secs_f64(match self.config.module {
            Module::Tfrc if !self.is_starting() => self.rtt.srtt(),
            _ if self.is_starting() => self.rtt.doubling(),
            _ => self.rtt.period(),
        })
    }

    /// Sets the rate, within the configured bounds and not below the floor: a packet per SRTT + 4 sigma, or
    /// per second if slower.
    fn set_rate(&mut self, rate: f64) {
        let floor = f64::from(self.config.segment_bytes) / self.rtt.timeout().max(1.0);
        let floor = self.least_rate().map_or(floor, |least| floor.max(bytes_per_second(least)));
        let most = self.config.max_rate.map_or(f64::MAX, bytes_per_second);
        self.rate = rate.max(floor).min(most);
    }
}

fn bytes_per_second(rate: Rate) -> f64 {
    rate.as_bits() as f64 / 8.0
}

/// Maximum answer time that gives the distance of a receiver. A longer answer comes from a receiver that
/// heard a later packet first, or sends a repeated SPMR.
const ANSWER_MAX: Duration = Duration::from_millis(600);
/// Maximum number of rates remembered, 16 bytes each: 50 doublings in steps of a fifth, more than possible.
const RATES_MAX: usize = 256;
/// Maximum delay of the report of a loss at the start: hosts try three times to resolve the path, a second
/// apart, and start again once or twice.
const MEMORY: Duration = Duration::from_secs(10);

/// Rates of the start, in which the rate doubles before any feedback.
///
/// Feedback about losses alone does not distinguish silence from success. A receiver that never sent a packet
/// may need seconds until the first NAK is out: the receiver's host must resolve the path to the source (ARP,
/// neighbour discovery), and the answer passes the queue, which is full by then. So the rate doubles no
/// faster than a heard receiver can answer. While no receiver has been heard, the rate doubles slowly or not
/// at all. A loss counts for the rate at which the lost packet was sent, however late the report. Nothing is
/// stored while the rate does not double.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    /// Rates in bytes per second, with the time since which each rate holds; each rate is higher than the
    /// previous rate.
    rates: Vec<(Instant, f64)>,
    /// Time since which the rate was at a level with known losses. Setting this time ends the start.
    end: Option<Instant>,
    /// Whether a receiver was heard.
    is_heard: bool,
}

impl Start {
    /// Records that the rate is `rate` from `now` on.
    pub(super) fn rate(&mut self, now: Instant, rate: f64) {
        let is_higher = self.rates.last().is_none_or(|(_, last)| rate > *last);
        if self.end.is_none() && is_higher && self.rates.len() < RATES_MAX {
            self.rates.push((now, rate));
        }
    }

    /// Start of a session that receivers have answered.
    pub(super) fn heard_already() -> Self {
        Self { is_heard: true, ..Self::default() }
    }

    /// Records a receiver's answer to the first packet. Returns the answer time that applies to the
    /// round-trip time, if any.
    pub(super) fn heard(&mut self, answer: Duration) -> Option<Duration> {
        let is_first = !core::mem::replace(&mut self.is_heard, true);
        (is_first || answer <= ANSWER_MAX).then(|| answer.min(ANSWER_MAX))
    }

    /// Returns the growth factor of the rate per SRTT + 2 sigma: up to 2.
    pub(super) fn growth(&self, config: &LeSbccConfig, rtt: &RoundTrip) -> f64 {
        match config.blind_doubling {
            _ if self.is_heard => 2.0,
            Some(least) => libm::exp2((rtt.spacing() / least.as_secs_f64()).min(1.0)),
            None => 1.0,
        }
    }

    /// Handles a loss of a packet sent at `sent`. Returns the rate at `sent`, unless a loss at the same or a
    /// lower rate was already reported.
    pub(super) fn lost(&mut self, now: Instant, sent: Instant) -> Option<f64> {
        if now.since(sent) > MEMORY || self.end.is_some_and(|end| sent >= end) {
            return None;
        }
        let place = self.rates.partition_point(|(since, _)| *since <= sent).checked_sub(1)?;
        let (since, rate) = self.rates[place];
        self.rates.truncate(place);
        self.end = Some(since);
        Some(rate)
    }
}

/// Number of intervals of full weight.
const FULL: usize = 8;
/// Weight of an interval of the tail, relative to the next newer interval.
const ALPHA: f64 = 0.95;

/// Loss intervals of the TFRC module (Thapliyal et al.), in packets: the open interval, the last eight closed
/// intervals, and the weighted sum of all older intervals. Constant time for each event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Intervals {
    open: f64,
    /// Closed intervals, the newest first.
    closed: [f64; FULL],
    count: usize,
    tail: f64,
    tail_weight: f64,
}

impl Intervals {
    /// Records a sent packet.
    pub fn sent(&mut self) {
        self.open += 1.0;
    }

    /// Ends the open interval by a loss event.
    pub fn event(&mut self) {
        let interval = self.open.max(1.0);
        self.open = 0.0;
        self.close(interval);
    }

    /// Adds a closed interval: the synthetic interval before the first event.
    pub fn close(&mut self, interval: f64) {
        if self.count == FULL {
            self.tail = ALPHA * (self.tail + self.closed[FULL - 1]);
            self.tail_weight = ALPHA * (self.tail_weight + 1.0);
        }
        self.closed.copy_within(..FULL - 1, 1);
        self.closed[0] = interval;
        self.count = (self.count + 1).min(FULL);
    }

    /// Mean of the closed intervals, `s_hat_1`; `None` before the first.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.closed[..self.count].iter().sum();
        (self.count > 0).then(|| (sum + self.tail) / (self.count as f64 + self.tail_weight))
    }

    /// Mean of the open interval and the closed intervals, `s_hat_0`.
    pub fn mean_with_open(&self) -> f64 {
        let full = self.count.min(FULL - 1);
        let sum: f64 = self.open + self.closed[..full].iter().sum::<f64>();
        let (tail, tail_weight) = match self.count {
            FULL => (ALPHA * (self.tail + self.closed[FULL - 1]), ALPHA * (self.tail_weight + 1.0)),
            _ => (0.0, 0.0),
        };
        (sum + tail) / (full as f64 + 1.0 + tail_weight)
    }

    /// p, in loss events per packet. The open interval counts if p is then smaller. `None` before the first
    /// event.
    pub fn rate(&self) -> Option<f64> {
        Some(1.0 / self.mean()?.max(self.mean_with_open()).max(1.0))
    }
}
