//! The receiver: decides when to join the next channel.

use headwater_wire::Cci;
use headwater_wire::cci::WebrcCci;
use headwater_wire::extensions::Levels;

use super::config::ReceiverConfig;
use super::session::{Limits, Session, SessionTime};
use crate::control::{self, Arrival, LevelNeed, Membership, ReceiverControl, Reception, Wishes};
use crate::layering::clock::{Clock, Place, YOUNG, shifted};
use crate::layering::{DynamicChannels, DynamicConfig, DynamicConfigError, Slot};
use crate::machine::{ChannelId, Datagram, Ecn, Transmit};
use crate::measure::Holes;
use crate::rate::Rate;
use crate::rtt::Prober;
use crate::time::{Duration, Instant};

/// Restart condition of the receiver: at least this many base packets in a row, over at least this time,
/// arrive half a slot off the schedule.
const ASTRAY: u32 = 3;
const ASTRAY_TIME: Duration = Duration::from_secs(2);

/// Growth of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At the beginning: join while the path carries the joined channels.
    FastStart,
    /// Growth by one packet per received packet.
    SlowStart,
    /// Growth by one packet per window of packets.
    CongestionAvoidance,
}

/// Status of a receiver, for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// Growth of the window.
    pub mode: Mode,
    /// Subscribed dynamic levels.
    pub levels: u16,
    /// Packets per second over the last half second.
    pub rate: f64,
    /// Fair rate: packets per second that the window allows.
    pub fair_rate: f64,
    /// The control's round-trip time in seconds, queueing included.
    pub rtt: f64,
    /// Mean join latency in seconds; `None` before the first join.
    pub join_latency: Option<f64>,
    /// Recent loss events per packet; `None` before the first loss event.
    pub loss_event_rate: Option<f64>,
}

/// Receiving control of M2C (Lucas et al. 2009, 2010; our choices: `docs/errata/layering.md`).
///
/// Memory: 80 bytes per subscribed channel, 7 KiB of measurements.
#[derive(Clone, Debug)]
pub struct Receiver {
    layers: DynamicConfig,
    limits: Limits,
    held: bool,
    wishes: Wishes,
    base: Holes,
    /// Levels that the sender sends: as announced first, before this receiver's reports, and last.
    first_announced: Option<Levels>,
    announced: Option<Levels>,
    session: Option<Session>,
    /// Arrival of the first packet of the session.
    began: Option<Instant>,
    reception: Reception,
    prober: Option<Prober>,
    /// Number of successive base packets at implausible times, and the time of the first.
    astray: u32,
    astray_since: Instant,
}

impl Receiver {
    /// Returns a receiver of a session with these layers.
    ///
    /// # Errors
    /// Returns an error if the parameters of the layers are inconsistent.
    pub fn new(layers: DynamicConfig, config: ReceiverConfig) -> Result<Self, DynamicConfigError> {
        DynamicChannels::new(layers, Instant::ZERO)?;
        let limits = Limits {
            rate_max: config.max_rate.map_or(f64::INFINITY, |rate| layers.packets(rate)),
            hint: config.rtt_hint.map(Duration::as_secs_f64),
            rules: config.rules,
        };
        Ok(Self {
            limits,
            layers,
            held: false,
            wishes: Wishes::default(),
            base: Holes::default(),
            first_announced: None,
            announced: None,
            session: None,
            began: None,
            reception: Reception::default(),
            prober: config.prober.map(Prober::new),
            astray: 0,
            astray_since: Instant::ZERO,
        })
    }

    /// Returns the status; `None` until a packet of the base channel has arrived.
    pub fn status(&self, now: Instant) -> Option<Status> {
        self.session.as_ref().map(|session| session.status(session.time.at(now)))
    }

    /// Returns the place of a packet in the schedule, if plausible at this time for a sender with this lag.
    fn place(&mut self, now: Instant, lag: Duration, cci: WebrcCci) -> Option<Place> {
        let session = self.session.as_mut()?;
        let place = session.clock.place(session.levels.slot, cci)?.arrived(shifted(now), lag);
        let is_timely = session.clock.is_timely(shifted(now) - lag, &place);
        if is_timely {
            self.astray = 0;
        }
        is_timely.then_some(place)
    }

    /// Handles a base packet at an implausible time. Forged and late packets are mixed with plausible
    /// packets. If plausible packets are missing, the sender restarted, or this end's clock jumped: the
    /// receiver restarts, too.
    fn astray(&mut self, now: Instant) {
        if self.astray == 0 {
            self.astray_since = now;
        }
        self.astray += 1;
        if self.astray >= ASTRAY && now.since(self.astray_since) >= ASTRAY_TIME {
            self.forget();
        }
    }

    /// Leaves all channels except the base; the next base packet restarts the clock.
    fn forget(&mut self) {
        let Some(session) = self.session.take() else { return };
        for channel in session.levels.channels(&session.clock.channels) {
            self.wishes.push(Membership::Leave(channel));
        }
        self.base = Holes::default();
        self.astray = 0;
    }

    /// Starts the clock with a base packet.
    fn start_clock(&mut self, now: Instant, arrival: &Arrival<'_>, cci: WebrcCci) -> Option<()> {
        // The configuration was validated when the receiver was created.
        let time = SessionTime::new(now, arrival.lateness);
        let at = time.at(now);
        let Ok(Some(clock)) = Clock::start(self.layers, at, cci) else { return None };
        let asked = self.prober.as_ref().and_then(Prober::rtt);
        let session = self.session.insert(Session::new(clock, self.limits, asked, time, at));
        session.is_unused = self.first_announced.is_some_and(|levels| session.shows_no_holder(at, levels));
        session.limit(at, self.announced, &mut self.wishes);
        self.began = Some(now);
        Some(())
    }

    /// Handles a packet of the schedule, which waited if `is_late`. A mark counts as a loss event. Returns
    /// whether the packet counts.
    fn arrive(&mut self, now: Instant, place: Place, is_marked: bool, is_late: bool) -> bool {
        self.turn(place.slot);
        let Some(session) = self.session.as_mut() else { return false };
        let held = match place.wave {
            None => Some(&mut self.base),
            Some(wave) => session.holes(now, &place, wave.number),
        };
        // A packet of a channel being left is ignored.
        let Some(holes) = held else { return false };
        let found = if is_late { holes.record_late(place.sequence) } else { holes.record(place.sequence) };
        self.reception.lost += found.lost;
        session.clock.record(now, place.left);
        session.record(now, &place, found);
        if is_marked {
            session.loss(now, place.left);
        }
        true
    }

    /// Counts a packet. Returns the place of the packet, and the session's time, if the packet is of the
    /// schedule.
    fn count(&mut self, now: Instant, arrival: &Arrival<'_>, is_late: bool) -> Option<(Place, Instant)> {
        self.reception.packets += 1;
        let Ok(cci) = arrival.cci.webrc() else { return None };
        if !self.held {
            return None;
        }
        self.prober.iter_mut().for_each(|prober| prober.heard(now, arrival.source));
        if self.session.is_none() {
            self.start_clock(now, arrival, cci)?;
        }
        let time = &self.session.as_ref()?.time;
        let lag = time.lag_of(arrival.lateness);
        let is_recent = is_late || time.is_recent(now, lag);
        let mut place = if is_recent { self.place(now, lag, cci) } else { None };
        let may_begin = arrival.channel == ChannelId::BASE && is_recent && !is_late;
        let is_young = self.began.is_some_and(|began| now < began + YOUNG);
        if may_begin && is_young && place.is_none_or(|place| place.is_early()) {
            let began = self.began;
            self.forget();
            self.start_clock(now, arrival, cci)?;
            self.began = began;
            place = self.place(now, lag, cci);
        }
        let Some(place) = place else {
            if arrival.channel == ChannelId::BASE {
                self.astray(now);
            }
            return None;
        };
        let is_marked = arrival.ecn == Ecn::CongestionExperienced;
        self.reception.marked += u64::from(is_marked);
        let session = self.session.as_mut()?;
        let at = match is_late {
            true => shifted(now) - place.lateness,
            false => session.time.record(now, place.lateness),
        };
        self.arrive(at, place, is_marked, is_late).then_some((place, at))
    }

    /// Advances to a new slot: leaves the lowest channels, which are silent now.
    fn turn(&mut self, slot: Slot) {
        let Some(session) = self.session.as_mut().filter(|session| slot > session.levels.slot) else {
            return;
        };
        while let Some((channel, lost)) = session.levels.quiescent(&session.clock.channels, slot) {
            self.reception.lost += lost;
            self.wishes.push(Membership::Leave(channel));
        }
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

    fn overrun(&mut self, now: Instant) {
        if let Some(session) = self.session.as_mut() {
            session.overrun(session.time.at(now), &mut self.wishes);
        }
    }

    fn limited(&mut self, now: Instant, levels: Option<Levels>) {
        self.first_announced = self.first_announced.or(levels);
        if core::mem::replace(&mut self.announced, levels) != levels
            && let Some(session) = self.session.as_mut()
        {
            session.limit(session.time.at(now), levels, &mut self.wishes);
        }
    }

    fn need(&self, now: Instant) -> Option<LevelNeed> {
        self.session.as_ref().map(|session| session.need(session.time.at(now)))
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        if let Some((place, at)) = self.count(now, arrival, false)
            && let Some(session) = self.session.as_mut()
        {
            session.decide(at, &place, &mut self.wishes);
        }
    }

    fn arrived_late(&mut self, at: Instant, arrival: &Arrival<'_>) {
        self.count(at, arrival, true);
    }

    fn is_stale(&self, now: Instant, cci: &Cci) -> bool {
        self.session.as_ref().zip(cci.webrc().ok()).is_some_and(|(session, cci)| {
            let joined = session.levels.join_time().map(|joined| session.time.of(joined));
            session.clock.is_stale(session.time.at(now), session.levels.slot, cci, joined)
        })
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn reception(&self) -> Reception {
        self.reception
    }

    fn status(&mut self, now: Instant) -> control::Status {
        let Some(session) = &self.session else { return control::Status::default() };
        let now = session.time.at(now);
        let Status { fair_rate, rtt, loss_event_rate, .. } = session.status(now);
        control::Status {
            fair_rate: Rate::of_packets(fair_rate, self.layers.packet_bytes()),
            rtt: Some(Duration::from_secs_f64(rtt)),
            loss_event_rate,
            path: session.path_status(now, self.layers.packet_bytes()),
            ..control::Status::default()
        }
    }

    fn answered(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        let Some(prober) = self.prober.as_mut() else { return false };
        let queueing = self.session.as_ref().map_or(0.0, |session| session.path.delay.queueing_last());
        let is_answer = prober.answered(now, datagram, queueing);
        if let Some(session) = self.session.as_mut() {
            session.path.asked = prober.rtt();
        }
        is_answer
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.prober.as_mut()?.poll_transmit(now, buffer)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let patience = |session: &Session| session.levels.patience().map(|at| session.time.real(at));
        let joining = self.session.as_ref().and_then(patience);
        let question = self.prober.as_ref().and_then(Prober::poll_timeout);
        joining.into_iter().chain(question).min()
    }

    fn timeout(&mut self, now: Instant) {
        let Some(session) = self.session.as_mut() else { return };
        let now = session.time.at(now);
        if session.levels.patience().is_some_and(|until| until <= now) {
            session.abandon(now, &mut self.wishes);
        }
    }
}
