//! The receiver: RFC 3738, sections 4.2 to 4.11, with the names of the RFC.

use std::collections::VecDeque;

use headwater_wire::Cci;
use headwater_wire::cci::WebrcCci;
use headwater_wire::extensions::Levels;

use super::{LossEstimator, equation, loss_for};
use crate::auth::WAITING_TIME;
use crate::control::{self, Arrival, LevelNeed, Membership, ReceiverControl, Reception, Rules, Wishes};
use crate::layering::clock::{Clock, Place, YOUNG, shifted, unshifted};
use crate::layering::demand::{REPORT_TIME, STEP, with_room};
use crate::layering::held::{Held, Joining};
use crate::layering::{DynamicChannels, DynamicConfig, DynamicConfigError, Layering, Shape, Slot};
use crate::machine::ChannelId;
use crate::measure::{Holes, Overload};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Epochs in a slot: EL = TSD/20.
const EPOCHS: u64 = 20;
/// Alpha: smoothing of the multicast round-trip time.
const ALPHA: f64 = 0.25;
/// Silence after which a session is given up, or a slot if longer.
const SILENCE: Duration = Duration::from_secs(10);
/// Time without a new slot after which a session is given up, or two slots if longer.
const STANDSTILL: Duration = Duration::from_secs(20);

/// Part kept of the rate that arrived at an overload: others may have had a part of the bottleneck.
const KEPT: f64 = 0.5;

/// Configuration of a [`WebrcReceiver`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WebrcReceiverConfig {
    max_rate: Option<Rate>,
    rules: Rules,
}

impl WebrcReceiverConfig {
    /// Returns the defaults: no rate cap.
    pub fn new() -> Self {
        Self::default()
    }

    /// `MRR`: sets the maximum rate of the receiver, in bit/s of UDP payload. Default: limited by the path
    /// only.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }

    /// Sets the rules. Default: [`Rules::Revised`], by which an overloaded receiver leaves waves at once.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }
}

/// Status of a receiver, for display; rates in packets per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WebrcStatus {
    /// `NWC`: subscribed waves.
    pub waves: u16,
    /// `TRR`: received rate.
    pub rate: f64,
    /// `TRATE`: rate allowed by the equation, or by start-up.
    pub target: f64,
    /// `ARTT` in seconds.
    pub rtt: f64,
    /// `LOSSP`.
    pub loss: f64,
    /// Whether the receiver is in start-up.
    pub is_starting: bool,
}

/// The receiving control of WEBRC.
///
/// Memory: 80 bytes per subscribed channel.
#[derive(Clone, Debug)]
pub struct WebrcReceiver {
    layers: DynamicConfig,
    /// `MRR_P`: the minimum of the receiver's and the session's maximum rates.
    rate_max: f64,
    rules: Rules,
    joined_base: Option<Instant>,
    /// Arrival of the first packet of the session.
    began: Option<Instant>,
    wishes: Wishes,
    base: Holes,
    /// Levels that the sender sends, as announced last on the base channel.
    announced: Option<Levels>,
    session: Option<Session>,
    /// `ARTT` of a session that was given up.
    artt: Option<f64>,
    reception: Reception,
}

/// State of a session, created by the first packet of the base channel. Names are the RFC's.
#[derive(Clone, Debug)]
struct Session {
    clock: Clock,
    rate_max: f64,
    /// Highest level that the sender sends.
    top: u16,
    /// End of the time in which a report may raise the highest level.
    waits_until: Instant,
    slot: Slot,
    /// Start of the slot, and arrival of the newest packet.
    turned: Instant,
    heard: Instant,
    waves: VecDeque<Held>,
    joining: Option<Joining>,
    /// Arrival of the first packet of the last wave, and the wave's First-Join.
    first: Instant,
    first_join: Option<f64>,
    epoch_ends: Instant,
    received: u64,
    lost: u64,
    loss: LossEstimator,
    loss_event_ends: Option<Instant>,
    artt: f64,
    v: f64,
    /// Number of `artt` samples.
    samples: f64,
    trr: f64,
    arr: f64,
    rr_max: f64,
    /// `SSR_P`; `None` in start-up.
    ssr: Option<f64>,
    /// Detector of overload, unless the published rules apply.
    overload: Option<Overload>,
}

impl WebrcReceiver {
    /// Returns a receiver of a session with these layers.
    ///
    /// # Errors
    /// Returns an error if the parameters of the layers are inconsistent.
    pub fn new(layers: DynamicConfig, config: WebrcReceiverConfig) -> Result<Self, DynamicConfigError> {
        let layers = layers.with_shape(Shape::Webrc);
        DynamicChannels::new(layers, Instant::ZERO)?;
        let session = layers.packets(layers.max_rate());
        Ok(Self {
            rate_max: config.max_rate.map_or(session, |rate| layers.packets(rate).min(session)),
            layers,
            rules: config.rules,
            joined_base: None,
            began: None,
            wishes: Wishes::default(),
            base: Holes::default(),
            announced: None,
            session: None,
            artt: None,
            reception: Reception::default(),
        })
    }

    /// Returns the status; `None` until a packet of the base channel has arrived.
    pub fn status(&self) -> Option<WebrcStatus> {
        let session = self.session.as_ref()?;
        Some(WebrcStatus {
            waves: session.nwc(),
            rate: session.trr,
            target: session.target(),
            rtt: session.artt,
            loss: session.loss.rate(),
            is_starting: session.ssr.is_none(),
        })
    }

    /// Handles a packet, which waited if `is_late`.
    fn take(&mut self, now: Instant, arrival: &Arrival<'_>, is_late: bool) {
        self.reception.count(arrival.ecn);
        let (Ok(cci), Some(joined)) = (arrival.cci.webrc(), self.joined_base) else { return };
        let at = shifted(now);
        let mut place = self.place(at, cci);
        let is_in_time = arrival.channel == ChannelId::BASE && !is_late;
        let is_young = self.began.is_some_and(|began| at < began + YOUNG);
        if self.session.is_none() {
            self.began = Some(at);
        } else if is_in_time && is_young && place.is_none_or(|place| place.is_early()) {
            self.give_up_session();
        }
        if self.session.is_none() {
            // The configuration was validated when the receiver was created.
            let Ok(Some(clock)) = Clock::start(self.layers, at, cci) else { return };
            let artt = self.artt.unwrap_or_else(|| at.since(joined).as_secs_f64().max(1e-3));
            let overload = (self.rules == Rules::Revised).then(Overload::default);
            let session = Session::new(clock, self.rate_max, artt, at, cci.sequence);
            self.session = Some(Session { overload, ..session });
            self.limit();
            place = self.place(at, cci);
        }
        if let Some(place) = place {
            self.arrive(at, place, is_late);
        }
    }

    /// Returns the place in the schedule of a packet that arrived at `at`.
    fn place(&mut self, at: Instant, cci: WebrcCci) -> Option<Place> {
        let session = self.session.as_mut()?;
        Some(session.clock.place(session.slot, cci)?.arrived(at, Duration::ZERO))
    }

    fn arrive(&mut self, now: Instant, place: Place, is_late: bool) {
        let Some(session) = self.session.as_mut() else { return };
        session.heard = now;
        for (channel, lost) in session.turn(now, place.slot) {
            self.reception.lost += lost;
            session.count_lost(now, lost);
            self.wishes.push(Membership::Leave(channel));
        }
        let held = match place.wave {
            None => Some(&mut self.base),
            Some(wave) => {
                session.joined(now, wave.number);
                session.waves.iter_mut().find(|held| held.number == wave.number).map(|held| &mut held.holes)
            }
        };
        let Some(holes) = held else { return };
        let found = if is_late { holes.record_late(place.sequence) } else { holes.record(place.sequence) };
        self.reception.lost += found.lost;
        session.clock.record(now, place.left);
        session.count(now, found.lost);
        for channel in session.relieve(now, found.lost) {
            self.wishes.push(Membership::Leave(channel));
        }
    }

    /// Handles the passage of time: the end of an epoch, an unanswered join.
    fn tick(&mut self, now: Instant) {
        if self.session.as_ref().is_some_and(|session| session.is_over(now)) {
            self.artt = self.session.as_ref().map(|session| session.artt);
            self.give_up_session();
        }
        let Some(session) = self.session.as_mut() else { return };
        if let Some(channel) = session.give_up_join(now) {
            self.wishes.push(Membership::Leave(channel));
        }
        let Some(session) = self.session.as_mut() else { return };
        // A driver that slept through several epochs ends them together: the packets belong to all of them.
        if now < session.epoch_ends {
            return;
        }
        let rr = session.end_epoch(now);
        if session.may_join(now) {
            if session.has_decayed(rr) {
                let channel = session.join(now);
                self.wishes.push(Membership::Join(channel));
            } else {
                session.hold_back();
            }
        }
    }

    /// Leaves the waves that the sender does not send; their missing packets are not losses.
    fn limit(&mut self) {
        let Some(session) = self.session.as_mut() else { return };
        let highest = session.clock.channels.levels() - 1;
        let before = session.top;
        session.top = self.announced.map_or(highest, |levels| highest.min(levels.ceiling.into()));
        let follows_demand = self.announced.is_some_and(|levels| levels.demand.is_some());
        if follows_demand && session.top < highest && session.top != before {
            session.waits_until = session.heard + REPORT_TIME;
        }
        // A sender that follows demand sends the levels again after a report.
        if follows_demand {
            let silent = usize::from(before.min(session.top));
            session.waves.iter_mut().skip(silent).for_each(|held| held.holes = Holes::default());
            return;
        }
        while session.nwc() > session.top {
            let Some(channel) = session.leave_highest() else { return };
            self.wishes.push(Membership::Leave(channel));
        }
    }

    /// Leaves all waves. The next packet of the base channel begins a session.
    fn give_up_session(&mut self) {
        let session = self.session.take();
        for (session, wave) in
            session.iter().flat_map(|session| session.waves.iter().map(move |wave| (session, wave)))
        {
            self.wishes.push(Membership::Leave(session.clock.channels.channel_of(wave.number)));
        }
        self.base = Holes::default();
    }
}

impl Session {
    /// Creates the state; `artt` is initially the join time of the base channel.
    fn new(clock: Clock, rate_max: f64, artt: f64, now: Instant, sequence: u32) -> Self {
        let channels = &clock.channels;
        let log = libm::log(channels.ratio());
        let k = u64::from(sequence) % channels.base_per_slot();
        #[expect(clippy::cast_precision_loss, reason = "below 2^16")]
        let start = channels.base_rate() + k as f64 * log / channels.sub_slot_seconds();
        let epoch = Duration::from_nanos(channels.half_slot().as_nanos() * 2 / EPOCHS);
        Self {
            rate_max,
            top: channels.levels() - 1,
            waits_until: now,
            slot: channels.slot_at(now),
            turned: now,
            heard: now,
            waves: VecDeque::new(),
            joining: None,
            first: now,
            first_join: None,
            epoch_ends: now + epoch,
            received: 0,
            lost: 0,
            loss: LossEstimator::new(loss_for(artt, start)),
            loss_event_ends: None,
            artt,
            v: artt * artt,
            samples: 0.0,
            trr: start,
            arr: start,
            rr_max: 0.0,
            ssr: None,
            overload: None,
            clock,
        }
    }

    /// `NWC`, the wave being joined included.
    fn nwc(&self) -> u16 {
        u16::try_from(self.waves.len()).unwrap_or(u16::MAX)
    }

    fn epoch(&self) -> Duration {
        Duration::from_nanos(self.clock.channels.half_slot().as_nanos() * 2 / EPOCHS)
    }

    fn epoch_seconds(&self) -> f64 {
        self.epoch().as_secs_f64()
    }

    /// `((1/P)^n - 1)`.
    fn power(&self, n: u16) -> f64 {
        libm::pow(self.clock.channels.ratio(), -f64::from(n)) - 1.0
    }

    fn ssmin(&self) -> f64 {
        let inverse = 1.0 / self.clock.channels.ratio();
        self.clock.channels.base_rate() * (1.0 + inverse + inverse * inverse)
    }

    /// `TRATE`.
    fn target(&self) -> f64 {
        let target = match self.ssr {
            None => 4.0 * self.trr,
            Some(ssr) => ssr.max(equation(self.artt, self.loss.rate())),
        };
        target.min(self.rate_max)
    }

    /// Whether the session ended without notice, or was replaced.
    fn is_over(&self, now: Instant) -> bool {
        let slot = self.clock.channels.half_slot().saturating_mul(2);
        now.since(self.heard) >= SILENCE.max(slot)
            || now.since(self.turned) >= STANDSTILL.max(slot.saturating_mul(2))
    }

    /// Records a received packet, and `lost` losses.
    fn count(&mut self, now: Instant, lost: u64) {
        self.received += 1;
        self.loss.packets(1);
        self.count_lost(now, lost);
    }

    fn count_lost(&mut self, now: Instant, lost: u64) {
        self.lost += lost;
        self.loss.packets(lost);
        if lost > 0 {
            self.lose(now);
        }
    }

    /// If most of what is subscribed does not arrive, leaves waves until the rest fits into half of the rate
    /// that arrived. The RFC leaves waves at their end only. Returns the channels of the waves.
    fn relieve(&mut self, now: Instant, lost: u64) -> Vec<ChannelId> {
        let held = |session: &Self| {
            let pending = u16::from(session.joining.is_some());
            session.clock.channels.cumulative_rate(session.nwc().saturating_sub(pending), now)
        };
        let (rate, artt) = (held(self), self.artt);
        // Before start-up has ended, its tests find the path's limit.
        let overload = self.overload.as_mut().filter(|_| self.ssr.is_some());
        let Some(came) = overload.and_then(|overload| overload.record(now, lost, rate, artt)) else {
            return Vec::new();
        };
        let rate = KEPT * came;
        let mut left = Vec::new();
        while !self.waves.is_empty() && held(self) > rate {
            left.extend(self.leave_highest());
        }
        (self.trr, self.ssr) = (rate, Some(self.ssmin().max(rate)));
        self.loss = LossEstimator::new(loss_for(artt, self.trr));
        self.overload.iter_mut().for_each(|overload| overload.relieve(now, left.len() as u64));
        left
    }

    /// Losses within `ARTT` form a single event.
    fn lose(&mut self, now: Instant) {
        if self.loss_event_ends.is_some_and(|end| now < end) {
            return;
        }
        self.loss_event_ends = Some(now + Duration::from_secs_f64(self.artt));
        self.loss.event();
        let ssr = self.ssmin().max(self.clock.channels.ratio() * self.trr);
        if self.ssr.is_none() {
            self.end_start_up(ssr);
        } else {
            self.ssr = Some(ssr);
        }
    }

    fn end_start_up(&mut self, ssr: f64) {
        self.ssr = Some(ssr);
        self.loss = LossEstimator::new(loss_for(self.artt, self.trr));
    }

    /// Advances to a new slot and leaves the waves that ended. Returns their channels, and the number of
    /// packets lost at the end of each.
    fn turn(&mut self, now: Instant, slot: Slot) -> Vec<(ChannelId, u64)> {
        let mut left = Vec::new();
        if slot > self.slot {
            self.turned = now;
        }
        while self.slot < slot {
            self.slot += 1;
            if self.waves.front().is_none_or(|wave| wave.number >= self.slot) {
                continue;
            }
            let Some(mut wave) = self.waves.pop_front() else { continue };
            let lost = wave.holes.close();
            left.push((self.clock.channels.channel_of(wave.number), lost));
            let base = self.clock.channels.base_rate();
            self.arr =
                (self.arr - self.clock.channels.ratio() * base).max(base * self.clock.channels.ratio());
            if self.waves.is_empty() {
                self.joining = None;
            }
        }
        left
    }

    /// Ends the join if this is the first packet of the wave being joined, and takes a sample of the
    /// multicast round-trip time.
    fn joined(&mut self, now: Instant, wave: u64) {
        let is_joining = self.waves.back().is_some_and(|last| last.number == wave);
        let Some(joining) = self.joining.filter(|_| is_joining) else { return };
        self.joining = None;
        self.first = now;
        let channels = &self.clock.channels;
        let (ratio, log) = (channels.ratio(), -libm::log(channels.ratio()));
        let first_join = now.since(joining.since).as_secs_f64();
        let waiting =
            log / (2.0 * (1.0 - ratio) * channels.base_rate()) * libm::pow(ratio, self.nwc().into());
        let sample = first_join - waiting;
        self.samples += 1.0;
        // A sample of zero would make V zero.
        let omega = (ALPHA * self.artt * self.artt / self.v).min(1.0);
        let rho = (omega / (1.0 - libm::pow(1.0 - omega, self.samples + 1.0))).clamp(0.0, 1.0);
        self.v = (1.0 - rho) * self.v + rho * sample * sample;
        self.artt = (ratio * self.artt).max((1.0 - rho) * self.artt + rho * sample);
        // End of start-up, test (b): a queue grows.
        let slack = (1.0 - libm::pow(ratio, f64::from(self.nwc()) + 1.0)) / (ratio * log) / self.arr;
        let has_grown = self.first_join.is_some_and(|before| first_join > before + slack);
        self.first_join = Some(first_join);
        if self.ssr.is_none() && has_grown {
            let ssr = self.ssmin().max(ratio * self.trr);
            self.end_start_up(ssr);
        }
    }

    /// Ends an epoch and returns the epoch's `RR_P`.
    fn end_epoch(&mut self, now: Instant) -> f64 {
        let epochs = now.since(self.epoch_ends).as_secs_f64() / self.epoch_seconds() + 1.0;
        self.epoch_ends = now + self.epoch();
        self.loss.epoch();
        #[expect(clippy::cast_precision_loss, reason = "packets of an epoch")]
        let per_second = |packets: u64| packets as f64 / (epochs * self.epoch_seconds());
        let (rr, irr) = (per_second(self.received), per_second(self.received + self.lost));
        (self.received, self.lost) = (0, 0);
        self.average(rr, irr);
        self.rr_max = self.rr_max.max(rr);
        if self.loss_event_ends.is_some_and(|end| end <= now) {
            self.loss_event_ends = None;
        }
        if self.ssr.is_none() && self.joining.is_none() {
            self.check_start_up(now);
        }
        rr
    }

    /// Updates `TRR_P` and `ARR_P`.
    fn average(&mut self, rr: f64, irr: f64) {
        let channels = &self.clock.channels;
        let ratio = channels.ratio();
        let (beta, zeta) = if self.ssr.is_none() {
            let root = libm::sqrt(ratio);
            ((1.0 - libm::pow(ratio, 0.25)) / 2.0, root / (1.0 + root))
        } else {
            let slot = channels.sub_slot_seconds();
            let part = self.epoch_seconds() / slot;
            (1.0 - libm::pow(ratio / (1.0 + ratio), part), 2.0 * self.epoch_seconds() / (4.0 + slot))
        };
        self.trr = (1.0 - zeta) * self.trr + zeta * rr;
        let fallen = libm::pow(ratio, self.epoch_seconds() / channels.sub_slot_seconds());
        let most = self.power(self.nwc() + 1) / self.power(1) * channels.base_rate();
        self.arr = (fallen * (1.0 - beta) * self.arr + beta * irr).min(most);
    }

    /// End of start-up, tests (c) and (d).
    fn check_start_up(&mut self, now: Instant) {
        let has_all = self.nwc() >= self.top && now >= self.waits_until;
        let is_top = has_all || self.next_rate() > self.rate_max;
        let is_settled = now.since(self.first) >= self.epoch();
        // Without a wave, no wave can have fallen short of its rate.
        let has_waves = !self.waves.is_empty();
        if is_top || (is_settled && has_waves && self.trr < self.least_of_start_up()) {
            let ssr = self.ssmin().max(self.trr);
            self.end_start_up(ssr);
        }
    }

    /// `c ARR_P - 2/EL`: a lower rate means that a wave did not bring its rate.
    fn least_of_start_up(&self) -> f64 {
        let ratio = self.clock.channels.ratio();
        let root = libm::sqrt(ratio);
        let zeta = root / (1.0 + root);
        let growth = libm::pow(ratio, -self.epoch_seconds() / self.clock.channels.sub_slot_seconds());
        let g = self.power(self.nwc() + 1) / self.power(self.nwc());
        let c = zeta + (1.0 - zeta) * growth * (zeta + (1.0 - zeta) * root * growth) / g;
        c * self.arr - 2.0 / self.epoch_seconds()
    }

    /// Rate with a further wave: the right side of rule 3.
    fn next_rate(&self) -> f64 {
        self.arr * self.power(self.nwc() + 2) / self.power(self.nwc() + 1)
    }

    /// Rules 1 to 3 of section 4.10; [`Session::has_decayed`] is rule 4.
    fn may_join(&self, now: Instant) -> bool {
        let is_settled = now.since(self.first) >= self.epoch();
        let may = self.joining.is_none()
            && self.loss_event_ends.is_none()
            && self.nwc() < self.top
            && (self.ssr.is_some() || is_settled || self.waves.is_empty());
        may && self.target() >= self.next_rate()
    }

    /// Rule 4, recommended in normal operation: the rate of the wave joined last has decayed.
    fn has_decayed(&self, rr: f64) -> bool {
        let most = (self.rr_max - 2.0 / self.epoch_seconds()).max(self.clock.channels.ratio() * self.rr_max);
        self.ssr.is_none() || rr <= most
    }

    /// If only rule 4 prevents a join, sets the loss estimate so that the equation gives exactly the rate of
    /// the join.
    fn hold_back(&mut self) {
        self.loss = LossEstimator::new(loss_for(self.artt, self.next_rate()));
    }

    fn join(&mut self, now: Instant) -> ChannelId {
        let wave = self.clock.channels.wave_at(self.nwc() + 1, self.slot);
        self.arr *= self.power(self.nwc() + 2) / self.power(self.nwc() + 1);
        self.waves.push_back(Held { number: wave.number, holes: Holes::default() });
        self.rr_max = 0.0;
        self.joining = Some(Joining { since: now, until: now + self.patience(), levels: 1 });
        self.clock.channels.channel_of(wave.number)
    }

    /// Time after which a join without a packet is undone.
    fn patience(&self) -> Duration {
        Duration::from_secs_f64((2.0 * self.v / self.artt).max(10.0 * self.artt))
    }

    /// Extends a join whose first packet waits for its authentication.
    fn extend_join(&mut self, channel: ChannelId) {
        let Some(wave) = self.waves.back() else { return };
        let patience = self.patience() + WAITING_TIME;
        if let Some(joining) = &mut self.joining
            && self.clock.channels.channel_of(wave.number) == channel
        {
            joining.until = joining.since + patience;
        }
    }

    /// Undoes a join that was not answered in time.
    fn give_up_join(&mut self, now: Instant) -> Option<ChannelId> {
        self.joining.filter(|joining| joining.until <= now)?;
        self.leave_highest()
    }

    /// Leaves the highest wave. A wave that is being joined is always the highest.
    fn leave_highest(&mut self) -> Option<ChannelId> {
        self.joining = None;
        let wave = self.waves.pop_back()?;
        self.arr *= self.power(self.nwc() + 1) / self.power(self.nwc() + 2);
        Some(self.clock.channels.channel_of(wave.number))
    }
}

impl ReceiverControl for WebrcReceiver {
    fn start(&mut self, now: Instant) {
        if self.joined_base.is_none() {
            self.joined_base = Some(shifted(now));
            self.wishes.push(Membership::Join(ChannelId::BASE));
        }
    }

    fn stop(&mut self, _now: Instant) {
        if self.joined_base.take().is_none() {
            return;
        }
        self.give_up_session();
        self.artt = None;
        self.wishes.push(Membership::Leave(ChannelId::BASE));
    }

    fn limited(&mut self, _now: Instant, levels: Option<Levels>) {
        if core::mem::replace(&mut self.announced, levels) != levels {
            self.limit();
        }
    }

    fn need(&self, now: Instant) -> Option<LevelNeed> {
        let session = self.session.as_ref()?;
        let (level, channels, is_starting) = (session.nwc(), &session.clock.channels, session.ssr.is_none());
        let rate = |level: u16| channels.cumulative_rate(level, shifted(now));
        let factor = if is_starting { STEP } else { 1.0 };
        Some(LevelNeed { level, next: with_room(level, channels.levels() - 1, factor, rate), is_starting })
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        self.take(now, arrival, false);
        self.tick(shifted(now));
    }

    fn arrived_late(&mut self, at: Instant, arrival: &Arrival<'_>) {
        self.take(at, arrival, true);
    }

    fn is_stale(&self, now: Instant, cci: &Cci) -> bool {
        self.session.as_ref().zip(cci.webrc().ok()).is_some_and(|(session, cci)| {
            let joined = session.joining.map(|joining| joining.since);
            session.clock.is_stale(shifted(now), session.slot, cci, joined)
        })
    }

    fn unverified(&mut self, _now: Instant, channel: ChannelId) {
        if let Some(session) = self.session.as_mut() {
            session.extend_join(channel);
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn reception(&self) -> Reception {
        self.reception
    }

    fn status(&mut self, _now: Instant) -> control::Status {
        let Some(WebrcStatus { target, rtt, loss, .. }) = Self::status(self) else {
            return control::Status::default();
        };
        control::Status {
            fair_rate: Rate::of_packets(target, self.layers.packet_bytes()),
            rtt: Some(Duration::from_secs_f64(rtt)),
            loss_event_rate: Some(loss),
            ..control::Status::default()
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let session = self.session.as_ref()?;
        let joining = session.joining.map(|joining| joining.until);
        Some(unshifted(joining.into_iter().fold(session.epoch_ends, Instant::min)))
    }

    fn timeout(&mut self, now: Instant) {
        self.tick(shifted(now));
    }
}
