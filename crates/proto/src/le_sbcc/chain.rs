//! All stages in a row, and the rate that they make.

use core::net::IpAddr;

use super::config::{Config, Epoch, Module, Samples};
use super::receivers::Receivers;
use super::round_trip::RoundTrip;
use super::start::Start;
use super::tfrc::Intervals;
use crate::control::Value;
use crate::measure::throughput_with_timeout;
use crate::rate::Rate;
use crate::rng::{Stream, unit};
use crate::time::{Duration, Instant};

/// Counts fade once in so many round trips (Thapliyal et al., pseudo-code).
const FADING_ROUND_TRIPS: f64 = 100.0;
/// Most that the TFRC module sends before its first loss event, in packets per second (Thapliyal et al., TFRC
/// module).
const START_PACKETS_PER_SEC: f64 = 1_000.0;
/// Halvings in search of a loss event rate: below a part in 10^12.
const SEARCH_STEPS: u32 = 48;

/// That a receiver misses a packet.
#[derive(Clone, Copy, Debug)]
pub struct Indication {
    /// Who says so: the address that its NAK came from.
    pub receiver: IpAddr,
    /// When the packet was last sent; first sent, where a repair is under way that cannot be missed yet.
    pub sent: Instant,
    /// When the packet behind it was sent, by which a receiver notices. `None` where the time since then is
    /// no round trip: something was sent again, or asked for again.
    pub noticed: Option<Instant>,
}

/// How far an indication got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It belongs to a loss event already counted (LI2LE).
    Indication,
    /// It is a loss event, of a receiver that is not the worst (Max-LPRF).
    Event,
    /// It passed, and its round trip had a reduction already (ATF).
    Passed,
    /// It reduced the rate.
    Reduction,
}

/// What a chain counts, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Indications taken.
    pub indications: u64,
    /// Samples of the round-trip time among them.
    pub samples: u64,
    /// Their sum, each at most [`Config::with_rtt_max`].
    pub sampled: Duration,
    /// Loss events: what leaves LI2LE.
    pub events: u64,
    /// What leaves Max-LPRF.
    pub passed: u64,
    /// What leaves ATF: reductions of the rate, or new intervals of TFRC.
    pub reductions: u64,
}

/// From loss indications to a rate.
///
/// The driver tells of packets sent ([`Chain::sent`]), of indications ([`Chain::indication`]) and of time
/// ([`Chain::timeout`]), paces at [`Chain::rate`], and sends nothing before [`Chain::silent_until`].
#[derive(Clone, Debug)]
pub struct Chain {
    config: Config,
    rtt: RoundTrip,
    receivers: Receivers,
    draw: Stream,
    /// Bytes per second.
    rate: f64,
    silence_end: Instant,
    epoch_end: Instant,
    start: Start,
    next_increase: Instant,
    next_fading: Instant,
    intervals: Intervals,
    /// Nothing was there to send since the last increase.
    is_idle: bool,
    counters: Counters,
}

impl Chain {
    /// Begins at `now`, with random numbers from `draw`.
    pub fn new(config: Config, mut draw: Stream, now: Instant) -> Self {
        let mut rtt = RoundTrip::new(config.rtt, config.srtt_gain, config.rtt_max);
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
            is_idle: false,
            counters: Counters::default(),
        };
        chain.set_rate(initial);
        chain.record(now);
        chain.next_increase = now + chain.increase_period();
        chain
    }

    /// The rate to send at.
    pub fn rate(&self) -> Rate {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates when cast"
        )]
        let bits = libm::round(self.rate * 8.0) as u64;
        Rate::from_bits(bits).unwrap_or_else(|| Rate::from_kilobits(1))
    }

    /// The most that it sends, if that was configured.
    pub const fn max_rate(&self) -> Option<Rate> {
        self.config.max_rate
    }

    /// Until when nothing may be sent, after a reduction.
    pub const fn silent_until(&self) -> Instant {
        self.silence_end
    }

    /// The round-trip time.
    pub const fn round_trip(&self) -> &RoundTrip {
        &self.rtt
    }

    /// What is known of receivers.
    pub const fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    /// What was counted.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Shows the round-trip time, the stages of loss indications, and the receiver with most loss events.
    pub fn visit_counters(&self, visit: &mut dyn FnMut(&'static str, Value)) {
        let Counters { indications, events, passed, reductions, .. } = self.counters;
        visit("rtt", Value::Time(Duration::from_secs_f64(self.rtt.srtt())));
        visit("rtt_deviation", Value::Time(Duration::from_secs_f64(self.rtt.sigma())));
        visit("loss_indications", Value::Count(indications));
        visit("loss_events", Value::Count(events));
        visit("passed", Value::Count(passed));
        visit("reductions", Value::Count(reductions));
        visit("receivers", Value::Count(self.receivers.len() as u64));
        if let Some((address, share)) = self.receivers.worst() {
            visit("worst", Value::Address(address));
            visit("worst_share", Value::Share(share));
        }
    }

    /// p of the TFRC module, loss events per packet; `None` before the first, and with AIMD.
    pub fn loss_event_rate(&self) -> Option<f64> {
        self.intervals.rate()
    }

    /// A packet was sent, a repair among them.
    pub fn sent(&mut self) {
        if self.config.module == Module::Tfrc {
            self.intervals.sent();
        }
    }

    /// A receiver that needs not miss anything has answered the first packet after so long, or heard another
    /// first: it knows the way to the source, and its NAKs will not be late.
    pub fn heard(&mut self, answer: Duration) {
        if let Some(answer) = self.start.heard(answer) {
            self.rtt.heard(answer);
        }
    }

    /// A departure was due and nothing was there to send: until the next one, the rate does not rise.
    pub const fn idle(&mut self) {
        self.is_idle = true;
    }

    /// A receiver misses a packet; how far that got.
    pub fn indication(&mut self, now: Instant, indication: &Indication) -> Stage {
        self.counters.indications += 1;
        let began = match self.config.samples {
            Samples::Noticed => indication.noticed,
            Samples::Sent => Some(indication.sent),
        };
        let sample = began.map(|began| now.since(began).min(self.config.rtt_max));
        let sample = sample.filter(|sample| self.is_round_trip(indication, *sample));
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

    fn is_round_trip(&self, indication: &Indication, sample: Duration) -> bool {
        let is_short = sample.as_secs_f64() <= self.rtt.srtt();
        match self.receivers.knows_the_way(indication.receiver, indication.sent) {
            _ if !self.config.rtt_is_assumed => true,
            // Short ones alone would bring the mean down.
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
        // Counted first, drawn then: with one receiver each event passes.
        let share = self.receivers.event(receiver, now);
        if stages.max_lprf && unit(&mut self.draw) >= share {
            return Stage::Event;
        }
        if stages.atf && now < self.epoch_end {
            return Stage::Passed;
        }
        Stage::Reduction
    }

    /// Falls silent, and begins an epoch.
    fn pause(&mut self, now: Instant) {
        let timeout = self.rtt.timeout();
        let pause = match (self.config.stages.atf, self.config.module) {
            (true, Module::Aimd) if self.may_pause() => 0.5 * timeout,
            // TFRC's rate is smooth: it makes no pause.
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
            Module::Aimd => self.set_rate(self.rate / 2.0),
            Module::Tfrc => self.close_interval(),
        }
    }

    /// What was sent at `rate` at the start was lost: to where it would be had that been known at once.
    fn fall_back(&mut self, rate: f64) {
        self.rate = rate;
        self.intervals = Intervals::default();
        self.reduce();
    }

    /// Whether the least rate that an operator set is kept in spite of pauses: they take up to half of the
    /// time, behind a halving.
    fn may_pause(&self) -> bool {
        self.config.min_rate.is_none_or(|least| self.rate >= 4.0 * bytes_per_second(least))
    }

    fn close_interval(&mut self) {
        if self.intervals.mean().is_none() {
            // RFC 5348, section 6.3.1: as if losses had always come as they do at half the rate.
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

    /// Bytes per second of TCP at a loss event rate.
    fn equation(&self, loss: f64) -> f64 {
        f64::from(self.config.segment_bytes)
            * throughput_with_timeout(self.rtt.srtt(), self.rtt.timeout(), loss)
    }

    /// The loss event rate at which the equation gives `rate`, in 10^-8..1.
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

    /// When to call [`Chain::timeout`].
    pub fn poll_timeout(&self) -> Instant {
        self.next_increase.min(self.next_fading)
    }

    /// Time has come to `now`.
    pub fn timeout(&mut self, now: Instant) {
        if self.next_fading <= now {
            self.receivers.fade();
            self.next_fading = now + Duration::from_secs_f64(FADING_ROUND_TRIPS * self.rtt.srtt());
        }
        if self.next_increase <= now {
            self.increase(now);
            self.is_idle = false;
            self.next_increase = now + self.increase_period();
        }
    }

    fn increase(&mut self, now: Instant) {
        if now < self.epoch_end && self.config.module == Module::Aimd || self.is_idle {
            return;
        }
        let segment = f64::from(self.config.segment_bytes);
        let growth = if self.is_starting() { self.start.growth(&self.config, &self.rtt) } else { 2.0 };
        let rate = match (self.config.module, self.intervals.rate()) {
            (Module::Aimd, _) if self.is_starting() => self.rate * growth,
            (Module::Aimd, _) => self.rate + segment / self.rtt.spacing(),
            (Module::Tfrc, Some(loss)) => self.equation(loss),
            (Module::Tfrc, None) => {
                (self.rate * growth).min((segment * START_PACKETS_PER_SEC).max(self.rate))
            }
        };
        self.set_rate(rate);
        self.record(now);
    }

    /// Whether the rate doubles.
    fn is_starting(&self) -> bool {
        self.config.doubles_at_start && self.counters.reductions == 0
    }

    fn record(&mut self, now: Instant) {
        if self.is_starting() {
            self.start.rate(now, self.rate);
        }
    }

    /// Of TFRC an RTT, of AIMD and at the start an RTT with its variation.
    fn increase_period(&self) -> Duration {
        Duration::from_secs_f64(match self.config.module {
            Module::Tfrc if !self.is_starting() => self.rtt.srtt(),
            Module::Aimd | Module::Tfrc => self.rtt.spacing(),
        })
    }

    /// The rate, within what was configured and the floor: one packet in SRTT + 4 sigma, or in a second.
    fn set_rate(&mut self, rate: f64) {
        let floor = f64::from(self.config.segment_bytes) / self.rtt.timeout().max(1.0);
        let floor = self.config.min_rate.map_or(floor, |least| floor.max(bytes_per_second(least)));
        let most = self.config.max_rate.map_or(f64::MAX, bytes_per_second);
        self.rate = rate.max(floor).min(most);
    }
}

fn bytes_per_second(rate: Rate) -> f64 {
    rate.as_bits() as f64 / 8.0
}
