//! The sending end: requests feedback, adjusts group rates, and sends on the groups.

use headwater_wire::fdt;
use headwater_wire::sim::{Data, Holding, SimReport};

use super::collector::Collector;
use super::collector::Tally;
use super::rates::Rates;
use super::schedule::Lane;
use super::schedule::clock;
use super::{RTT_KEPT, SimConfig};
use crate::admission::AdmissionKey;
use crate::control::{Departure, Overload, SenderControl};
use crate::layering::Layering;
use crate::layering::spacing::{HEADROOM, Spacing};
use crate::machine::{ChannelId, Datagram, Ecn, InterfaceId};
use crate::pacing::RateCap;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Number of consecutive unanswered requests from which on the maximum round-trip time doubles.
const SILENT: u16 = 2;

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimSenderCounters {
    /// Requests made.
    pub requests: u64,
    /// Reports taken.
    pub reports: u64,
    /// Maximum number of reports taken for a single request.
    pub reports_peak: u64,
    /// Datagrams that are not feedback of SIM.
    pub malformed: u64,
    /// Reports refused: see [`Refused`](super::Refused).
    pub refused: u64,
}

/// Sender on groups. Group rates follow receivers' reports, at most once per request.
#[derive(Clone, Debug)]
pub struct SimSender {
    config: SimConfig,
    description: Option<fdt::ControlAttributes>,
    rates: Rates,
    lanes: Vec<Lane>,
    sequences: Vec<u32>,
    spacing: Spacing,
    /// Limiter of the maximum rate, if configured.
    cap: Option<RateCap>,
    collector: Collector,
    /// Maximum round-trip time in seconds.
    rtt_max: f64,
    /// Longest round-trip time reported since the request, in seconds.
    peak: Option<f64>,
    /// Number of consecutive requests without an answer.
    silent: u16,
    request: u16,
    interval: Duration,
    next_request: Instant,
    reports: u64,
    counters: SimSenderCounters,
}

impl SimSender {
    /// Begins at `now`, with only the bottom group open.
    pub fn new(config: SimConfig, now: Instant) -> Self {
        let groups = usize::from(config.groups);
        let mut sender = Self {
            rates: Rates::new(&config),
            lanes: vec![Lane::new(8 * u64::from(config.packet_bytes)); groups],
            sequences: vec![0; groups],
            spacing: Spacing::default(),
            cap: config.max_rate.map(|rate| RateCap::new(rate).with_headroom(HEADROOM).with_small_probes()),
            collector: Collector::new(config.session, config.groups),
            rtt_max: config.rtt.as_secs_f64(),
            peak: None,
            silent: 0,
            request: u16::MAX,
            interval: Duration::ZERO,
            next_request: now,
            reports: 0,
            counters: SimSenderCounters::default(),
            description: None,
            config,
        };
        sender.ask(now);
        sender
    }

    /// Sets the description of this control in the session's description. Default: no description.
    #[must_use]
    pub fn with_description(mut self, description: Option<fdt::ControlAttributes>) -> Self {
        self.description = description;
        self
    }

    /// Maximum round-trip time, in seconds.
    pub const fn rtt_max(&self) -> f64 {
        self.rtt_max
    }

    /// C: total rate of the groups up to a rank, in bit/s of UDP payload.
    pub fn cumulative(&self, rank: u16) -> f64 {
        self.rates.cumulative(rank.into())
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &SimSenderCounters {
        &self.counters
    }

    fn report(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Some(report) = SimReport::parse(datagram.payload).ok().filter(|_| datagram.channel.is_none())
        else {
            // Announcements of subscribed groups are for relays alone.
            self.counters.malformed += u64::from(Holding::parse(datagram.payload).is_err());
            return;
        };
        let is_router = self.config.trust.holds(datagram.source.ip());
        let taken = self.collector.take(now, (InterfaceId(0), datagram.source), is_router, &report);
        match taken {
            Ok(()) => {
                self.reports += 1;
                self.counters.reports += 1;
                if let Some(rtt) = Tally::of(&report, clock(now)).rtt() {
                    self.see_rtt(rtt);
                }
            }
            Err(_) => self.counters.refused += 1,
        }
    }

    fn see_rtt(&mut self, rtt: f64) {
        let rtt = rtt.min(self.config.rtt_cap.as_secs_f64());
        self.peak = Some(self.peak.map_or(rtt, |peak| peak.max(rtt)));
    }

    /// Updates the maximum round-trip time after a request. Without any answer the time doubles, because
    /// requests in close succession overtake all reports at the routers. A doubled time is a guess, which the
    /// first answer replaces. While a previously reported group has no report, the time does not shrink: the
    /// missing receivers may be the farthest.
    fn follow_rtt(&mut self, is_missed: bool) {
        let Some(peak) = self.peak.take() else {
            self.silent = self.silent.saturating_add(1);
            if self.silent >= SILENT {
                self.rtt_max *= 2.0;
            }
            return;
        };
        let kept = match self.silent {
            SILENT.. => 0.0,
            _ if is_missed => self.rtt_max,
            _ => RTT_KEPT * self.rtt_max,
        };
        (self.rtt_max, self.silent) = (peak.min(2.0 * self.rtt_max).max(kept), 0);
    }

    /// Applies the reports on the request, and makes the next request.
    fn conclude(&mut self, now: Instant) {
        let tallies = self.collector.tallies();
        self.follow_rtt(self.rates.misses(&tallies));
        let (least, cap) = (self.config.rtt_least.as_secs_f64(), self.config.rtt_cap.as_secs_f64());
        self.rtt_max = self.rtt_max.clamp(least, cap);
        let interval = self.interval.as_secs_f64();
        self.rates.request(&tallies, interval, self.rtt_max);
        self.counters.reports_peak = self.counters.reports_peak.max(self.reports);
        self.ask(now);
    }

    fn ask(&mut self, now: Instant) {
        self.request = self.request.wrapping_add(1);
        self.reports = 0;
        self.counters.requests += 1;
        self.interval = Duration::from_secs_f64(2.0 * self.rtt_max);
        self.next_request = now + self.interval;
        // A packet may leave with a timestamp shortly before the request, because due packets wait for a
        // turn.
        self.collector.begin(now, self.request, clock(now));
        for (rank, lane) in self.lanes.iter_mut().enumerate() {
            lane.set_rate(now, rate(self.rates.own(rank)));
        }
    }

    /// Returns the group of the next packet, and the packet's departure time.
    fn next(&self) -> Option<(usize, Instant)> {
        let due = self.lanes.iter().enumerate().filter_map(|(rank, lane)| Some((lane.due()?, rank)));
        due.min().map(|(at, rank)| (rank, at))
    }

    fn packets_per_second(&self, level: u16) -> f64 {
        let lanes = self.lanes.iter().take(usize::from(level) + 1);
        lanes
            .filter_map(Lane::rate)
            .map(|rate| rate.packets_per_second(self.config.packet_bytes.into()))
            .sum()
    }

    fn give_up(&mut self, now: Instant) {
        let before = Spacing::given_up_before(now);
        for lane in &mut self.lanes {
            if lane.due().is_some_and(|due| due < before) {
                lane.give_up(before);
            }
        }
    }
}

impl SenderControl for SimSender {
    fn set_admission_key(&mut self, _key: AdmissionKey) {
        self.collector.limit_networks();
    }

    fn channels(&self) -> u16 {
        self.config.groups
    }

    fn levels(&self) -> u16 {
        self.config.groups
    }

    fn description(&self) -> Option<fdt::ControlAttributes> {
        self.description.clone()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(self)
    }

    fn next_departure(&self) -> Option<Instant> {
        self.next().map(|(_, at)| self.spacing.due(at))
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        let (rank, at) = self.next()?;
        if self.spacing.due(at) > now {
            return None;
        }
        let level = u16::try_from(rank).ok()?;
        let data = Data {
            rank: u8::try_from(rank).ok()?,
            request: self.request,
            // The scheduled time, so that receivers measure rates exactly.
            timestamp: clock(at.max(self.next_request - self.interval)),
            sequence: self.sequences[rank],
        };
        Some(Departure {
            channel: ChannelId(level),
            level,
            at,
            cci: data.to_cci(),
            ecn: Ecn::Capable0,
            levels: None,
            tells_levels: false,
            lateness: None,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        let Some((rank, at)) = self.next() else { return };
        self.collector.passes(self.request, clock(now));
        let late = now.since(self.spacing.due(at));
        self.spacing.sent(now, at, self.packets_per_second(self.config.groups));
        let sent = rate(self.rates.cumulative(self.lanes.len() - 1));
        if let (Some(cap), Some(sent)) = (&mut self.cap, sent)
            && cap.departed(now, sent, late)
        {
            self.rates.limit(cap.rate());
            self.spacing.set_burst(cap.burst());
        }
        self.lanes[rank].sent();
        self.sequences[rank] = self.sequences[rank].wrapping_add(1);
        self.give_up(now);
    }

    fn overload(&self) -> Option<Overload> {
        self.cap.as_ref().and_then(RateCap::overload)
    }

    fn feedback(&mut self, now: Instant, datagram: &Datagram<'_>) {
        self.report(now, datagram);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next_request)
    }

    fn timeout(&mut self, now: Instant) {
        if self.next_request <= now {
            self.conclude(now);
            self.give_up(now);
        }
    }
}

/// Departures of the groups at the present rates. Rates change with each request, so a sequencer must query
/// anew for each buffer.
impl Layering for SimSender {
    fn levels(&self) -> u16 {
        self.config.groups
    }

    fn next_boundary(&self, after: Instant) -> Option<Instant> {
        let beyond = after.since(self.next_request).as_nanos() / self.interval.as_nanos().max(1);
        let passed = if after < self.next_request { 0 } else { beyond + 1 };
        Some(self.next_request + self.interval.saturating_mul(passed))
    }

    fn channel(&self, level: u16, _at: Instant) -> ChannelId {
        ChannelId(level)
    }

    fn packets(&self, level: u16, from: Instant, to: Instant) -> u64 {
        let lane = &self.lanes[usize::from(level)];
        lane.before(to).saturating_sub(lane.before(from))
    }

    fn departure(&self, level: u16, from: Instant, n: u64) -> Instant {
        let lane = &self.lanes[usize::from(level)];
        lane.nth(lane.before(from).saturating_add(n)).unwrap_or(Instant::from_nanos(u64::MAX))
    }

    fn cumulative_rate(&self, level: u16, _at: Instant) -> f64 {
        self.packets_per_second(level)
    }

    fn cumulative_rate_before(&self, level: u16, _at: Instant) -> f64 {
        self.packets_per_second(level)
    }

    fn most_packets(&self, _interval: Duration) -> Option<f64> {
        None
    }
}

/// Returns a group's own rate; `None` below 1 bit/s.
fn rate(bits: f64) -> Option<Rate> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    Rate::from_bits(libm::round(bits) as u64)
}
