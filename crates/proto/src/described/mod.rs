//! Receiver that learns its congestion control from the session's FDT, so that receivers need no options.
//!
//! A sender's control writes a [`Description`] into the FDT; a [`DescribedReceiver`] holds the base channel
//! until the FDT is there, then runs the control that the FDT names. Without the attribute a session has one
//! channel at a rate of its sender's choice.

mod reporter;
#[cfg(test)]
mod tests;

use core::fmt;
use core::net::SocketAddr;

use headwater_wire::extensions::Levels;
use headwater_wire::{Cci, fdt};

use self::reporter::Reporter;
use crate::control::{
    Arrival, DescribedControl, LevelNeed, Membership, ReceiverControl, ReceiverEnvelope, Reception,
    Requester, Rules, Status,
};
pub use crate::controls::{Description, DescriptionError};
use crate::controls::{Network, ReceiverEnd, ReceiverOptions};
use crate::machine::{ChannelId, Datagram, Ecn, Transmit};
use crate::pgm::carrier;
use crate::rate::Rate;
use crate::rng::Seed;
use crate::rtt::ProberConfig;
use crate::time::{Duration, Instant};
use crate::{controls, fixed};

/// Receiver options that the session does not describe.
#[derive(Clone, Copy, Debug, Default)]
pub struct DescribedReceiverConfig {
    options: ReceiverOptions,
    reports: Option<Seed>,
    naks: Option<carrier::PgmCarrierReceiverConfig>,
}

impl DescribedReceiverConfig {
    /// Defaults: no cap, no hint.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maximum receive rate in a multi-rate session, in bit/s of UDP payload; the base channel stays
    /// subscribed in any case. Default: the capacity of the path.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Option<Rate>) -> Self {
        self.options.max_rate = rate;
        self
    }

    /// Known round-trip time to the sender without queueing;
    /// [`crate::m2c::ReceiverConfig::with_rtt_hint`]. Default: the shortest join.
    #[must_use]
    pub fn with_rtt_hint(mut self, rtt: Option<Duration>) -> Self {
        self.options.rtt_hint = rtt;
        self
    }

    /// Rules by which the control changes its rate, if it has several sets. Default: all rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.options.rules = rules;
        self
    }

    /// Probes the round-trip time to the sender by unicast if the control uses that time. Default: no.
    #[must_use]
    pub fn with_prober(mut self, prober: Option<ProberConfig>) -> Self {
        self.options.prober = prober;
        self
    }

    /// Reports the levels that the receiver needs to a sender that sends no others, at times drawn from this
    /// seed. Default: no; such a sender then sends little.
    #[must_use]
    pub fn with_reports(mut self, seed: Option<Seed>) -> Self {
        self.reports = seed;
        self
    }

    /// Seed of the random receiver identifier in reports. Default: the seed 0.
    #[must_use]
    pub fn with_seed(mut self, seed: Seed) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// Reports missing packets to the sender by NAK if PGM carries the session. Default: no.
    #[must_use]
    pub fn with_naks(mut self, naks: Option<carrier::PgmCarrierReceiverConfig>) -> Self {
        self.naks = naks;
        self
    }
}

/// Subscribes to the base channel until the FDT describes the session, then runs the control that the FDT
/// names. If PGM carries the session and NAKs are configured, NAKs start with the first packet.
///
/// The control starts with the last packet before the description, so that no time is lost. The first
/// description of a session counts; later descriptions are ignored. Memory: as the control.
#[derive(Debug)]
pub struct DescribedReceiver {
    config: DescribedReceiverConfig,
    control: Control,
    /// Opens PGM packets until the control opens packets.
    opener: carrier::Opener,
    /// Whether a packet of the session arrived in a PGM packet.
    is_carried: bool,
    /// Reception before the control started.
    before: Reception,
    started: Instant,
    /// Time from the join of the base channel to the first packet.
    first_join: Option<Duration>,
    last: Option<Last>,
    /// Levels that the sender sends: as announced first, before this receiver's reports, and last.
    first_levels: Option<Levels>,
    levels: Option<Levels>,
    /// Whether an announcement or a first packet of a level waits for the reporter.
    has_news: bool,
    reporter: Option<Reporter>,
    channels: Channels,
}

enum Control {
    /// The session is not described yet, or the receiver has nothing to control (fixed rate, or PGM without
    /// NAKs).
    Fixed {
        receiver: fixed::FixedReceiver,
        is_described: bool,
    },
    Other {
        name: &'static str,
        receiver: ReceiverEnd,
    },
    LeSbcc {
        receiver: Box<carrier::PgmCarrierReceiver>,
        is_described: bool,
    },
}

impl Control {
    fn name(&self) -> &'static str {
        match self {
            Self::Fixed { is_described: false, .. } => "unknown",
            Self::Fixed { .. } => controls::FIXED.name,
            Self::LeSbcc { .. } => carrier::NAME,
            Self::Other { name, .. } => name,
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The newest packet of the base channel.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Instant,
    source: SocketAddr,
    cci: Cci,
    ecn: Ecn,
    bytes: usize,
    lateness: Duration,
}

impl DescribedReceiver {
    /// Returns a receiver of a session that is not described yet.
    pub fn new(config: DescribedReceiverConfig) -> Self {
        Self {
            config,
            control: Control::Fixed { receiver: fixed::FixedReceiver::new(), is_described: false },
            opener: carrier::Opener::default(),
            is_carried: false,
            before: Reception::default(),
            started: Instant::ZERO,
            first_join: None,
            last: None,
            first_levels: None,
            levels: None,
            has_news: false,
            reporter: config.reports.map(Reporter::new),
            channels: Channels::default(),
        }
    }

    fn inner(&self) -> &dyn ReceiverControl {
        match &self.control {
            Control::Fixed { receiver, .. } => receiver,
            Control::LeSbcc { receiver, .. } => &**receiver,
            Control::Other { receiver, .. } => &**receiver,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn ReceiverControl {
        match &mut self.control {
            Control::Fixed { receiver, .. } => receiver,
            Control::LeSbcc { receiver, .. } => &mut **receiver,
            Control::Other { receiver, .. } => &mut **receiver,
        }
    }

    fn is_described(&self) -> bool {
        !matches!(
            self.control,
            Control::Fixed { is_described: false, .. } | Control::LeSbcc { is_described: false, .. }
        )
    }

    /// Replaces the waiting control by `control`; the base channel stays joined.
    fn begin(&mut self, now: Instant, control: Control) {
        let is_held = self.channels.holds(ChannelId::BASE);
        self.before = self.reception();
        self.control = control;
        if !is_held {
            return;
        }
        let first_join = self.first_join.unwrap_or(Duration::ZERO);
        self.inner_mut().start(now - first_join);
        // The new control joins the base channel only, which is joined already.
        let _base = self.inner_mut().poll_membership();
        if let Some(Last { at, source, cci, ecn, bytes, lateness }) = self.last {
            self.before.packets = self.before.packets.saturating_sub(1);
            self.before.marked -= u64::from(ecn == Ecn::CongestionExperienced).min(self.before.marked);
            let arrival = Arrival { source, channel: ChannelId::BASE, cci: &cci, ecn, bytes, lateness };
            // The control hears the levels as if it had listened from the beginning.
            for levels in [self.first_levels, self.levels] {
                self.inner_mut().limited(at, levels);
            }
            self.inner_mut().arrived(at, &arrival);
        }
    }

    fn begin_le_sbcc(&mut self, now: Instant, naks: carrier::PgmCarrierReceiverConfig, is_described: bool) {
        let receiver = Box::new(carrier::PgmCarrierReceiver::new(naks));
        self.begin(now, Control::LeSbcc { receiver, is_described });
    }

    /// Begins the control that a session's FDT describes. A later description changes nothing.
    ///
    /// # Errors
    /// [`DescriptionError`] if the session cannot be received.
    pub fn describe(
        &mut self,
        now: Instant,
        control: Option<&fdt::ControlAttributes>,
    ) -> Result<(), DescriptionError> {
        if self.is_described() {
            return Ok(());
        }
        let description = Description::from_fdt(control)?;
        match description.control().network {
            Network::Requests => return Err(DescriptionError::OnRequest),
            Network::Group => match &mut self.control {
                Control::Fixed { is_described, .. } => *is_described = true,
                // The session has a fixed rate, even if carried by PGM: no NAKs.
                _ => self
                    .begin(now, Control::Fixed { receiver: fixed::FixedReceiver::new(), is_described: true }),
            },
            Network::GroupAndNaks => match (&mut self.control, self.config.naks) {
                (Control::LeSbcc { is_described, .. }, _) => *is_described = true,
                (_, Some(naks)) => self.begin_le_sbcc(now, naks, true),
                (_, None) => {
                    self.is_carried = true;
                    self.begin(
                        now,
                        Control::Fixed { receiver: fixed::FixedReceiver::new(), is_described: true },
                    );
                }
            },
            Network::Groups | Network::GroupsAndReports => {
                let receiver = description.receiver(&self.config.options)?;
                self.begin(now, Control::Other { name: description.name(), receiver });
            }
        }
        Ok(())
    }
}

impl DescribedControl for DescribedReceiver {
    fn on_description(
        &mut self,
        now: Instant,
        control: Option<&fdt::ControlAttributes>,
    ) -> Result<(), String> {
        self.describe(now, control).map_err(|error| error.to_string())
    }
}

impl DescribedReceiver {
    /// Follows the session until its control is described.
    fn follow(&mut self, now: Instant, arrival: &Arrival<'_>) {
        if let Control::Fixed { is_described, .. } = self.control
            && let Some(carried) = self.opener.take(arrival.cci)
        {
            self.is_carried = true;
            if let Some(naks) = self.config.naks.filter(|_| !is_described) {
                self.begin_le_sbcc(now, naks, false);
                if let Control::LeSbcc { receiver, .. } = &mut self.control {
                    receiver.take_over(carried);
                }
            }
        }
        self.has_news |= self.channels.arrived(now, arrival.channel);
        if !self.is_described() {
            self.first_join.get_or_insert(now.since(self.started));
            let Arrival { source, cci, ecn, bytes, lateness, .. } = *arrival;
            self.last = Some(Last { at: now, source, cci: *cci, ecn, bytes, lateness });
        }
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default body is forwarded, too")]
impl ReceiverControl for DescribedReceiver {
    fn start(&mut self, now: Instant) {
        self.started = now;
        self.channels.now = now;
        self.inner_mut().start(now);
    }

    fn stop(&mut self, now: Instant) {
        self.channels.now = now;
        self.reporter.iter_mut().for_each(Reporter::stop);
        self.inner_mut().stop(now);
    }

    fn overrun(&mut self, now: Instant) {
        self.channels.now = now;
        self.inner_mut().overrun(now);
    }

    fn limited(&mut self, now: Instant, levels: Option<Levels>) {
        self.channels.now = now;
        self.first_levels = self.first_levels.or(levels);
        self.levels = levels;
        self.has_news = true;
        self.inner_mut().limited(now, levels);
    }

    fn need(&self, now: Instant) -> Option<LevelNeed> {
        if self.is_described() {
            return self.inner().need(now);
        }
        // The receiver will start once the session is described.
        let is_open = self.levels.and_then(|levels| levels.demand).is_some_and(|echo| echo.is_open);
        Some(LevelNeed { level: 0, next: if is_open { 0 } else { u16::MAX }, is_starting: true })
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        self.follow(now, arrival);
        self.inner_mut().arrived(now, arrival);
        if core::mem::take(&mut self.has_news)
            && self.reporter.is_some()
            && let Some(need) = self.need(now)
        {
            let (levels, reception) = (self.levels, self.reception());
            if let Some(reporter) = &mut self.reporter {
                reporter.heard(now, arrival.source, levels, need, reception);
            }
        }
    }

    fn arrived_late(&mut self, at: Instant, arrival: &Arrival<'_>) {
        self.follow(at, arrival);
        self.inner_mut().arrived_late(at, arrival);
    }

    fn is_stale(&self, now: Instant, cci: &Cci) -> bool {
        self.inner().is_stale(now, cci)
    }

    fn unverified(&mut self, now: Instant, channel: ChannelId) {
        if !self.is_described() && channel == ChannelId::BASE {
            self.first_join.get_or_insert(now.since(self.started));
        }
        self.inner_mut().unverified(now, channel);
    }

    fn envelope(&mut self) -> Option<&mut dyn ReceiverEnvelope> {
        match &mut self.control {
            Control::LeSbcc { receiver, .. } => Some(&mut **receiver),
            Control::Fixed { is_described, .. } if !*is_described || self.is_carried => {
                Some(&mut self.opener)
            }
            _ => None,
        }
    }

    fn requester(&mut self) -> Option<&mut dyn Requester> {
        self.inner_mut().requester()
    }

    fn described(&mut self) -> Option<&mut dyn DescribedControl> {
        Some(self)
    }

    fn answered(&mut self, now: Instant, datagram: &Datagram<'_>) -> bool {
        self.inner_mut().answered(now, datagram)
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let report = self.reporter.as_mut().and_then(|reporter| reporter.poll_transmit(now, buffer));
        report.or_else(|| self.inner_mut().poll_transmit(now, buffer))
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        let membership = self.inner_mut().poll_membership()?;
        self.channels.changed(membership);
        Some(membership)
    }

    fn reception(&self) -> Reception {
        let Reception { packets, lost, marked } = self.inner().reception();
        Reception {
            packets: self.before.packets + packets,
            lost: self.before.lost + lost,
            marked: self.before.marked + marked,
        }
    }

    fn status(&mut self, now: Instant) -> Status {
        Status {
            name: self.control.name(),
            channels: self.channels.count(),
            join_latency: self.channels.latency,
            join_latency_max: self.channels.latency_max,
            unheard: self.reporter.as_ref().and_then(Reporter::unheard),
            levels: self.levels,
            ..self.inner_mut().status(now)
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let report = self.reporter.as_ref().and_then(Reporter::poll_timeout);
        self.inner().poll_timeout().into_iter().chain(report).min()
    }

    fn timeout(&mut self, now: Instant) {
        self.channels.now = now;
        self.inner_mut().timeout(now);
    }
}

/// Subscribed channels and join latency. Grows to the channels of a session, 256, each once.
#[derive(Clone, Debug, Default)]
struct Channels {
    now: Instant,
    /// Time of the join of a channel; `None` after the first packet of the channel.
    held: Vec<(ChannelId, Option<Instant>)>,
    /// Number of these channels without a packet.
    pending: usize,
    /// Smoothed join latency, with the gain of RFC 6298.
    latency: Option<Duration>,
    latency_max: Option<Duration>,
}

impl Channels {
    fn holds(&self, channel: ChannelId) -> bool {
        self.held.iter().any(|(held, _)| *held == channel)
    }

    fn count(&self) -> u16 {
        u16::try_from(self.held.len()).unwrap_or(u16::MAX)
    }

    fn changed(&mut self, membership: Membership) {
        match membership {
            Membership::Join(channel) if !self.holds(channel) => self.held.push((channel, Some(self.now))),
            Membership::Join(_) => {}
            Membership::Leave(channel) => self.held.retain(|(held, _)| *held != channel),
        }
        self.pending = self.held.iter().filter(|(_, since)| since.is_some()).count();
    }

    /// Returns whether the packet is the first of a channel above the base.
    fn arrived(&mut self, now: Instant, channel: ChannelId) -> bool {
        self.now = now;
        if self.pending == 0 {
            return false;
        }
        let held = self.held.iter_mut().find(|(held, _)| *held == channel);
        let Some(since) = held.and_then(|(_, since)| since.take()) else { return false };
        self.pending -= 1;
        // The first packet of the base channel may arrive late, if the sender has not started yet.
        if channel == ChannelId::BASE {
            return false;
        }
        let latency = now.since(since);
        self.latency_max = self.latency_max.max(Some(latency));
        self.latency = Some(self.latency.map_or(latency, |mean| {
            Duration::from_nanos(mean.as_nanos() - mean.as_nanos() / 8 + latency.as_nanos() / 8)
        }));
        true
    }
}
