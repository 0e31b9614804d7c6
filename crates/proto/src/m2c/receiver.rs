//! The receiver: when to join the next channel.

use std::collections::VecDeque;

use headwater_wire::cci::WebrcCci;

use super::config::ReceiverConfig;
use crate::control::{Arrival, Membership, ReceiverControl, Reception, Wishes};
use crate::layering::clock::{Clock, Place, delay, shifted, unshifted};
use crate::layering::held::{Held, Joining};
use crate::layering::{DynamicChannels, DynamicConfig, DynamicConfigError, Layering, Slot};
use crate::machine::{ChannelId, Datagram, Ecn, Transmit};
use crate::measure::{Holes, JoinLatency, LossIntervals, OneWayDelay, RateMeter, throughput};
use crate::rtt::Prober;
use crate::time::{Duration, Instant};

/// Least time between the first packet of a channel and the next join.
const JOIN_SPACING: Duration = Duration::from_millis(50);
/// Least time that a join is waited for.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// EL: WEBRC's epoch, the window of the rate.
const EPOCH: Duration = RateMeter::WINDOW;
/// What a loss event leaves of the window: AIMD(1, 1/2).
const DECREASE: f64 = 0.5;
/// Over how many sub-slots the window, and what packets wait, are averaged.
const AVERAGED: f64 = 0.5;
/// A window grows no further than this beyond what the next level needs.
const WINDOW_ROOM: f64 = 1.02;
/// Fast start goes on while the next level is at most so many times what came of late.
const FAST_FACTOR: f64 = 4.0;
/// In fast start a level that brings less than this part of its rate has met the bottleneck.
const FAST_SHARE: f64 = 0.9;
/// A receiver whose base channel brings so many packets in a row, over this time, that are half a slot off begins anew.
const ASTRAY: u32 = 3;
const ASTRAY_TIME: Duration = Duration::from_secs(2);
/// Round-trip time before any was measured, in seconds.
const RTT_INITIAL: f64 = 0.1;

/// How the window grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At the beginning: join while the path brings what was joined.
    FastStart,
    /// One packet for each packet.
    SlowStart,
    /// One packet for each window of packets.
    CongestionAvoidance,
}

/// What a receiver shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// How the window grows.
    pub mode: Mode,
    /// Dynamic levels held.
    pub levels: u16,
    /// Packets per second over the last half second.
    pub rate: f64,
    /// Packets per second that the window allows: what is fair.
    pub fair_rate: f64,
    /// The control's round-trip time in seconds, queueing included.
    pub rtt: f64,
    /// Mean join latency in seconds, once there was a join.
    pub join_latency: Option<f64>,
    /// Loss events per packet of late, once there was one.
    pub loss_event_rate: Option<f64>,
}

/// The receiving control of M2C: m2c-webrc.md 2.4 and 2.5.
///
/// Memory: 80 bytes for each channel held, 2 KiB of measurements.
#[derive(Clone, Debug)]
pub struct Receiver {
    layers: DynamicConfig,
    limits: Limits,
    held: bool,
    wishes: Wishes,
    base: Holes,
    session: Option<Session>,
    reception: Reception,
    prober: Option<Prober>,
}

/// What is known once a packet of the base channel has come.
#[derive(Clone, Debug)]
struct Session {
    clock: Clock,
    limits: Limits,
    slot: Slot,
    /// Waves held, from the lowest level up; the last one may be silent still.
    waves: VecDeque<Held>,
    joining: Option<Joining>,
    mode: Mode,
    window: f64,
    /// The window's mean of late, and up to when.
    mean: f64,
    averaged: Instant,
    threshold: f64,
    /// First packet of the last channel joined.
    first: Instant,
    lost: Instant,
    meter: RateMeter,
    delay: OneWayDelay,
    joins: JoinLatency,
    /// Least round-trip time that the sender's answers took.
    asked: Option<f64>,
    /// What the join before took, for fast start.
    last_join: Option<f64>,
    intervals: LossIntervals,
    /// Packets of the base channel in a row that came at no time of theirs, and since when.
    astray: u32,
    astray_since: Instant,
}

/// What the receiver was told.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Most packets per second.
    rate_max: f64,
    /// Round-trip time in seconds without queueing.
    hint: Option<f64>,
}

impl Receiver {
    /// A receiver of a session with these layers.
    ///
    /// # Errors
    /// When the numbers of the layers do not fit together.
    pub fn new(layers: DynamicConfig, config: ReceiverConfig) -> Result<Self, DynamicConfigError> {
        DynamicChannels::new(layers, Instant::ZERO)?;
        let limits = Limits {
            rate_max: config.max_rate.map_or(f64::INFINITY, |rate| layers.packets(rate)),
            hint: config.rtt_hint.map(Duration::as_secs_f64),
        };
        Ok(Self {
            limits,
            layers,
            held: false,
            wishes: Wishes::default(),
            base: Holes::default(),
            session: None,
            reception: Reception::default(),
            prober: config.prober.map(Prober::new),
        })
    }

    /// What to show; `None` until a packet of the base channel has come.
    pub fn status(&self, now: Instant) -> Option<Status> {
        let session = self.session.as_ref()?;
        let mut meter = session.meter;
        let rtt = session.rtt();
        Some(Status {
            mode: session.mode,
            levels: session.level(),
            rate: meter.rate(shifted(now)),
            fair_rate: session.window / rtt,
            rtt,
            join_latency: session.joins.mean(),
            loss_event_rate: session.intervals.rate(),
        })
    }

    /// Where a packet belongs, if it belongs anywhere at this time.
    fn place(&mut self, now: Instant, cci: WebrcCci) -> Option<Place> {
        let session = self.session.as_mut()?;
        let place = session.clock.place(session.slot, cci)?;
        let is_timely = session.clock.is_timely(now, &place);
        if is_timely {
            session.astray = 0;
        }
        is_timely.then_some(place)
    }

    /// A packet of the base channel came at a time that is not its own. Forged and late ones come among others; when there are no
    /// others, the sender began again, or this end's clock jumped: so does the receiver.
    fn astray(&mut self, now: Instant) {
        let Some(session) = self.session.as_mut() else { return };
        if session.astray == 0 {
            session.astray_since = now;
        }
        session.astray += 1;
        if session.astray >= ASTRAY && now.since(session.astray_since) >= ASTRAY_TIME {
            self.forget();
        }
    }

    /// Leaves all but the base channel; its next packet starts the clock anew.
    fn forget(&mut self) {
        let Some(session) = self.session.take() else { return };
        for wave in &session.waves {
            self.wishes.push(Membership::Leave(session.clock.channels.channel_of(wave.number)));
        }
        self.base = Holes::default();
    }

    /// A packet of the schedule came.
    fn arrive(&mut self, now: Instant, place: Place) {
        self.turn(place.slot);
        let Some(session) = self.session.as_mut() else { return };
        let held = match place.wave {
            None => Some(&mut self.base),
            Some(wave) => {
                session.joined(now, &place, wave.number);
                session.waves.iter_mut().find(|held| held.number == wave.number).map(|held| &mut held.holes)
            }
        };
        // A packet of a channel that is being left: it came, and means nothing.
        let Some(holes) = held else { return };
        let found = holes.record(place.sequence);
        self.reception.lost += found.lost;
        session.delay.record(now, delay(now, place.left));
        session.meter.record(now, 1);
        session.intervals.advance(1 + found.lost);
        session.grow(now);
        if found.lost > 0 {
            session.loss(now);
        }
        self.consider(now);
    }

    /// A new slot: the lowest channels are silent now, and are left.
    fn turn(&mut self, slot: Slot) {
        let Some(session) = self.session.as_mut().filter(|session| slot > session.slot) else { return };
        session.slot = slot;
        let first = slot * session.clock.channels.channels_per_slot();
        let mut left = Vec::new();
        while session.waves.front().is_some_and(|wave| wave.number < first) {
            let Some(mut wave) = session.waves.pop_front() else { break };
            self.reception.lost += wave.holes.close();
            left.push(session.clock.channels.channel_of(wave.number));
        }
        if session.waves.is_empty() {
            session.joining = None;
        }
        for channel in left {
            self.wishes.push(Membership::Leave(channel));
        }
    }

    /// Joins the next channel if all conditions of rule 3 hold.
    fn consider(&mut self, now: Instant) {
        let Some(session) = self.session.as_mut() else { return };
        session.end_fast_start(now);
        if session.may_join(now) {
            let channel = session.join(now);
            self.wishes.push(Membership::Join(channel));
        }
    }

    fn give_up_join(&mut self, now: Instant) {
        let Some(session) = self.session.as_mut() else { return };
        if session.joining.is_some_and(|joining| joining.until <= now) {
            session.joining = None;
            if let Some(wave) = session.waves.pop_back() {
                let channel = session.clock.channels.channel_of(wave.number);
                self.wishes.push(Membership::Leave(channel));
            }
        }
    }
}

impl Session {
    fn new(clock: Clock, limits: Limits, now: Instant) -> Self {
        Self {
            slot: clock.channels.slot_at(now),
            delay: OneWayDelay::new(AVERAGED * clock.channels.sub_slot_seconds()),
            clock,
            limits,
            waves: VecDeque::new(),
            joining: None,
            mode: Mode::FastStart,
            window: 2.0,
            mean: 2.0,
            averaged: now,
            threshold: f64::INFINITY,
            first: now,
            lost: Instant::ZERO,
            meter: RateMeter::new(now),
            joins: JoinLatency::default(),
            asked: None,
            last_join: None,
            intervals: LossIntervals::default(),
            astray: 0,
            astray_since: now,
        }
    }

    /// n: dynamic levels held, the one being joined not among them.
    fn level(&self) -> u16 {
        let held = self.waves.len() - usize::from(self.joining.is_some());
        u16::try_from(held).unwrap_or(u16::MAX)
    }

    /// `c_n(t)`, packets per second.
    fn rate_of(&self, level: u16, now: Instant) -> f64 {
        let top = self.clock.channels.levels() - 1;
        self.clock.channels.cumulative_rate(level.min(top), now)
    }

    /// `RTTc`: the floor, and what packets waited of late on average, as a TCP sees it.
    fn rtt(&self) -> f64 {
        let told = [self.limits.hint, self.asked].into_iter().flatten().reduce(f64::min);
        let floor = self.joins.floor(told.unwrap_or(RTT_INITIAL));
        told.map_or(floor, |told| told.min(floor)) + self.delay.queueing_mean()
    }

    /// If this is the first packet of the channel being joined, the join is over.
    fn joined(&mut self, now: Instant, place: &Place, wave: u64) {
        let Some(joining) =
            self.joining.filter(|_| self.waves.back().is_some_and(|last| last.number == wave))
        else {
            return;
        };
        self.joining = None;
        self.first = now;
        let latency = now.since(joining.since).as_secs_f64();
        let level = self.level();
        let rate = self.rate_of(level, now) - self.rate_of(level - 1, now);
        let queueing = self.delay.queueing(delay(now, place.left));
        self.joins.record(latency, queueing, 1.0 / rate);
        // WEBRC's test (b): First-Join grew, so a queue does.
        let log = -libm::log(self.clock.channels.ratio());
        let ratio = self.clock.channels.ratio();
        let slack =
            (1.0 - libm::pow(ratio, f64::from(level) + 1.0)) / (ratio * log) / self.rate_of(level, now);
        if self.mode == Mode::FastStart && self.last_join.is_some_and(|last| latency > last + slack) {
            self.settle(now);
        }
        self.last_join = Some(latency);
    }

    /// Rule 2.
    fn grow(&mut self, now: Instant) {
        let rtt = self.rtt();
        self.average(now);
        if self.mode != Mode::FastStart {
            // What comes while a rate decays is more than the window, and would open it faster than a TCP's.
            let round = self.window.max(self.rate_of(self.level(), now) * rtt);
            self.window += if self.window < self.threshold { self.window / round } else { 1.0 / round };
            if self.mode == Mode::SlowStart && self.window >= self.threshold {
                self.mean = self.window;
                self.mode = Mode::CongestionAvoidance;
            }
            self.reactivate(now, rtt);
        }
        let most = WINDOW_ROOM * self.rate_of(self.level() + 1, now) * rtt;
        self.window = self.window.min(most).max(self.clock.channels.base_rate() * rtt);
    }

    /// Follows the window's mean over about half a sub-slot.
    fn average(&mut self, now: Instant) {
        let time = now.since(self.averaged).as_secs_f64();
        let period = AVERAGED * self.clock.channels.sub_slot_seconds();
        self.mean += (self.window - self.mean) * (1.0 - libm::exp(-time / period));
        self.averaged = now;
    }

    /// Rule 6: slow start again, when the fair rate has risen far above the window.
    fn reactivate(&mut self, now: Instant, rtt: f64) {
        let quiet = now.since(self.lost).as_secs_f64() >= 4.0 * rtt;
        let Some(mean) = self.intervals.mean().filter(|_| quiet) else { return };
        let fair = throughput(rtt, self.intervals.rate().unwrap_or(0.0));
        if self.intervals.open() > 2.0 * mean && fair > 2.0 * self.window / rtt {
            self.threshold = fair * rtt / 2.0;
            self.mode = Mode::SlowStart;
        }
    }

    /// Rule 4: at most one loss event in a round-trip time.
    fn loss(&mut self, now: Instant) {
        let rtt = self.rtt();
        if now.since(self.lost).as_secs_f64() < rtt {
            return;
        }
        self.lost = now;
        self.intervals.event();
        let held = self.rate_of(self.level(), now) * rtt;
        let window = match self.mode {
            Mode::FastStart => self.clock.channels.ratio() * held,
            _ => DECREASE * self.window.min(held),
        };
        self.window = window.max(self.clock.channels.base_rate() * rtt);
        if self.mode != Mode::CongestionAvoidance {
            self.mean = self.window;
        }
        self.threshold = self.window;
        self.mode = Mode::CongestionAvoidance;
    }

    /// Rule 5: fast start ends without a loss.
    fn end_fast_start(&mut self, now: Instant) {
        if self.mode != Mode::FastStart || self.joining.is_some() {
            return;
        }
        let level = self.level();
        let is_top =
            level + 1 >= self.clock.channels.levels() || self.rate_of(level + 1, now) > self.limits.rate_max;
        // A full epoch at this level, and the path brought less.
        let is_settled = now.since(self.first) >= EPOCH;
        let expected = FAST_SHARE * self.rate_of(level, now) - 2.0 / EPOCH.as_secs_f64();
        if is_top || (is_settled && self.meter.rate(now) < expected) {
            self.settle(now);
        }
    }

    /// Goes on from the rate that came of late.
    fn settle(&mut self, now: Instant) {
        let rtt = self.rtt();
        self.window = (self.meter.rate(now) * rtt).max(self.clock.channels.base_rate() * rtt);
        self.mean = self.window;
        self.threshold = self.window;
        self.mode = Mode::CongestionAvoidance;
    }

    /// Rule 3.
    fn may_join(&mut self, now: Instant) -> bool {
        let level = self.level();
        if self.joining.is_some() || level + 1 >= self.clock.channels.levels() {
            return false;
        }
        let rtt = self.rtt();
        let spacing = rtt.max(JOIN_SPACING.as_secs_f64());
        if now.since(self.first).as_secs_f64() < spacing || now.since(self.lost).as_secs_f64() < rtt {
            return false;
        }
        let next = self.rate_of(level + 1, now);
        let allowed = match self.mode {
            Mode::FastStart => FAST_FACTOR * self.meter.rate(now).max(self.clock.channels.base_rate()),
            Mode::SlowStart => self.window / rtt,
            // A level decays by P until the next may be joined: over that time it brings what the window does.
            Mode::CongestionAvoidance => self.mean / rtt / self.clock.channels.mean_of_decay(),
        };
        next <= allowed.min(self.limits.rate_max)
    }

    fn join(&mut self, now: Instant) -> ChannelId {
        let channels = &self.clock.channels;
        let level = self.level() + 1;
        let wave = channels.wave_at(level, self.slot);
        // The channel may be nearly silent: its next packet is waited for as well.
        let packet = channels.departure(level, now, 0);
        let patience = JOIN_TIMEOUT.max(Duration::from_secs_f64(self.joins.bound().unwrap_or(0.0)));
        self.joining = Some(Joining { since: now, until: packet.max(now) + patience });
        self.waves.push_back(Held { number: wave.number, holes: Holes::default() });
        channels.channel_of(wave.number)
    }
}

impl ReceiverControl for Receiver {
    fn start(&mut self, _now: Instant) {
        if !self.held {
            self.held = true;
            self.wishes.push(Membership::Join(ChannelId::BASE));
        }
    }

    fn stop(&mut self, _now: Instant) {
        if !core::mem::take(&mut self.held) {
            return;
        }
        self.prober.iter_mut().for_each(Prober::stop);
        self.forget();
        self.wishes.push(Membership::Leave(ChannelId::BASE));
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        self.reception.packets += 1;
        let Ok(cci) = arrival.cci.webrc() else { return };
        if !self.held {
            return;
        }
        let at = shifted(now);
        self.prober.iter_mut().for_each(|prober| prober.heard(now, arrival.source));
        if self.session.is_none() {
            // The configuration was found sound when the receiver was made.
            let Ok(Some(clock)) = Clock::start(self.layers, now, cci) else { return };
            let asked = self.prober.as_ref().and_then(Prober::rtt);
            self.session = Some(Session { asked, ..Session::new(clock, self.limits, at) });
        }
        let Some(place) = self.place(at, cci) else {
            if arrival.channel == ChannelId::BASE {
                self.astray(at);
            }
            return;
        };
        self.arrive(at, place);
        if arrival.ecn == Ecn::CongestionExperienced {
            self.reception.marked += 1;
            if let Some(session) = self.session.as_mut() {
                session.loss(at);
            }
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn reception(&self) -> Reception {
        self.reception
    }

    fn answered(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        let Some(prober) = self.prober.as_mut() else { return false };
        let queueing = self.session.as_ref().map_or(0.0, |session| session.delay.queueing_last());
        let is_answer = prober.answered(now, datagram, queueing);
        if let Some(session) = self.session.as_mut() {
            session.asked = prober.rtt();
        }
        is_answer
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.prober.as_mut()?.poll_transmit(now, buffer)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let joining = self.session.as_ref().and_then(|session| session.joining);
        let question = self.prober.as_ref().and_then(Prober::poll_timeout);
        joining.map(|joining| unshifted(joining.until)).into_iter().chain(question).min()
    }

    fn timeout(&mut self, now: Instant) {
        self.give_up_join(shifted(now));
    }
}
