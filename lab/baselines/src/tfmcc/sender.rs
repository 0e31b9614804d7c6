//! TFMCC sender (RFC 4654, section 3).
//!
//! Queue of reports to echo, from which receivers measure round-trip times (RFC 4654, section 3.5).

use core::convert::Infallible;
use core::net::SocketAddr;

use headwater_proto::machine::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output, Transmit};
use headwater_proto::pacing::{BURST, Pacer};
use headwater_proto::rate::Rate;
use headwater_proto::time::{Duration, Instant};

use super::{
    DATA_BYTES, Data, Echo, FLOOR_PERIOD, NO_SUPPRESSION, ROUND, TfmccMessage, TfmccReport, TfmccSenderConfig,
};
use crate::{clock_us, later_us, since_us};

/// Timer granularity in seconds: a part of the minimum `R_max` (section 3.2).
const GRANULARITY: f64 = 0.001;
/// Margin of `R_max` above the longest round-trip time, equal to the effect of the RFC's rounding up to 8
/// bits. Without a margin, all receivers slightly above `R_max` would report.
const RTT_MAX_MARGIN: f64 = 1.08;
/// Maximum round-trip time that counts, in seconds: bounds the effect of a receiver that delays reports.
const RTT_CAP: f64 = 2.0;
/// Minimum fraction of `R_max` kept after a round.
const RTT_MAX_KEPT: f64 = 0.9;
/// g: reports of rates within this fraction below a reported rate are suppressed.
const CLOSE: f64 = 0.1;
/// Weight of the old mean of the CLR's round-trip time at a sample.
const RTT_KEPT: f64 = 0.9;
/// Minimum round trip of the CLR for increases, as a fraction of `R_max`, because a CLR can fake any round
/// trip.
const RTT_PART: f64 = 0.125;
/// Round trips without a report after which the rate is halved, and after which the CLR is removed.
const SILENT: f64 = 4.0;
const GONE: f64 = 10.0;
/// Minimum silence in packet intervals: two missing packets (as RFC 5348, section 4.3) and half an interval
/// for jitter. The CLR is removed after three times that silence.
const SILENT_PACKETS: f64 = 2.5;
const GONE_PACKETS: f64 = 3.0 * SILENT_PACKETS;

/// Current limiting receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clr {
    /// Identifier of the receiver.
    pub id: u32,
    /// Source address of the receiver's reports.
    pub address: SocketAddr,
    /// Round-trip time in seconds, as measured by the sender.
    pub rtt: f64,
    /// `X_r` of the last report, in bit/s.
    pub rate: f64,
    /// Time of the election.
    pub since: Instant,
    heard: Instant,
    timestamp_us: u32,
    /// Whether the receivers do not know this CLR yet.
    is_new: bool,
}

impl Clr {
    const fn who(&self) -> ReceiverIdentity {
        ReceiverIdentity { id: self.id, address: self.address }
    }

    /// Returns the last report, for an echo to the CLR.
    const fn pending(&self) -> Pending {
        let who = self.who();
        Pending { who, timestamp_us: self.timestamp_us, at: self.heard, has_rtt: true, rate: self.rate }
    }
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TfmccSenderCounters {
    /// Packets sent.
    pub packets: u64,
    /// Reports accepted.
    pub reports: u64,
    /// Accepted reports of receivers other than the CLR.
    pub others: u64,
    /// Feedback rounds.
    pub rounds: u64,
    /// Changes of the CLR to another receiver.
    pub switches: u64,
    /// Halvings of the rate because the CLR was silent, or there was no CLR.
    pub halvings: u64,
    /// Datagrams that are not TFMCC reports.
    pub malformed: u64,
    /// Reports of old rounds, and reports of the CLR not newer than its last.
    pub stale: u64,
    /// Reports with an echo from the future, or a rate of 0.
    pub absurd: u64,
}

/// Feedback round.
#[derive(Clone, Copy, Debug)]
struct Round {
    number: u16,
    began: Instant,
    /// Longest round-trip time reported in the round, with margin, in seconds.
    peak: f64,
    has_feedback: bool,
}

/// Sends packets of zeros at the fair rate of the receiver with the worst path.
#[derive(Clone, Debug)]
pub struct TfmccSender {
    config: TfmccSenderConfig,
    pacer: Pacer,
    /// X, in bit/s.
    rate: f64,
    is_starting: bool,
    /// Maximum of the receivers' round-trip times in seconds; lower bound of `R_max`.
    rtt_max: f64,
    round: Round,
    /// `X_supp`, in bit/s.
    suppression: f64,
    clr: Option<Clr>,
    /// No increase before this time, after the loss of a CLR.
    held_until: Instant,
    raised: Instant,
    /// Time at which missing reports halve the rate.
    starves: Instant,
    /// Time at which missing reports remove the CLR. Set at the CLR's last report; halvings do not defer it.
    gone: Instant,
    echoes: Echoes,
    sequence: u32,
    counters: TfmccSenderCounters,
}

impl TfmccSender {
    /// Creates a sender that starts at `now` with one packet in `R_max`.
    pub fn new(config: TfmccSenderConfig, now: Instant) -> Self {
        let rtt_max = config.rtt.as_secs_f64();
        let rate = 8.0 * f64::from(config.packet_bytes) / rtt_max;
        let mut sender = Self {
            pacer: Pacer::new(bits(rate), BURST, now),
            config,
            rate,
            is_starting: true,
            rtt_max,
            round: Round { number: 0, began: now, peak: 0.0, has_feedback: false },
            suppression: f64::INFINITY,
            clr: None,
            held_until: now,
            raised: now,
            starves: now,
            gone: now,
            echoes: Echoes::default(),
            sequence: 0,
            counters: TfmccSenderCounters::default(),
        };
        sender.set_rate(now, rate);
        sender.starves = now + seconds(GONE * sender.rtt_max());
        sender
    }

    /// Returns the sending rate.
    pub fn rate(&self) -> Rate {
        self.pacer.rate()
    }

    /// Returns `R_max` in seconds.
    pub fn rtt_max(&self) -> f64 {
        self.rtt_max.max(self.packet_bits() / self.rate + GRANULARITY)
    }

    /// Whether no receiver has reported a loss yet.
    pub const fn is_starting(&self) -> bool {
        self.is_starting
    }

    /// Returns the current limiting receiver, if any.
    pub const fn clr(&self) -> Option<&Clr> {
        self.clr.as_ref()
    }

    /// Returns the sender's counters.
    pub const fn counters(&self) -> &TfmccSenderCounters {
        &self.counters
    }

    fn packet_bits(&self) -> f64 {
        8.0 * f64::from(self.config.packet_bytes)
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        match TfmccMessage::parse(datagram.payload) {
            Ok(TfmccMessage::Report(report)) if datagram.channel.is_none() => {
                self.report(now, datagram.source, &report);
            }
            _ => self.counters.malformed += 1,
        }
    }

    fn report(&mut self, now: Instant, address: SocketAddr, report: &TfmccReport) {
        let who = ReceiverIdentity { id: report.receiver, address };
        let clr = self.clr.filter(|clr| clr.who() == who);
        let is_stale = match clr {
            Some(clr) => report.timestamp_us.wrapping_sub(clr.timestamp_us).cast_signed() <= 0,
            None => self.round.number.wrapping_sub(report.round) > 1,
        };
        let took_us = since_us(now, report.echo_us);
        if is_stale {
            self.counters.stale += 1;
            return;
        }
        if took_us < 0 || report.rate == 0 {
            self.counters.absurd += 1;
            return;
        }
        self.counters.reports += 1;
        self.counters.others += u64::from(clr.is_none());
        if report.leaves {
            if clr.is_some() {
                self.lose_clr(now);
            }
            return;
        }
        let rtt = (f64::from(took_us) / 1e6).clamp(GRANULARITY / 10.0, RTT_CAP);
        self.take(now, who, report, rtt);
    }

    /// Processes an accepted report, `rtt` seconds after the packet in its echo.
    fn take(&mut self, now: Instant, who: ReceiverIdentity, report: &TfmccReport, rtt: f64) {
        // A receiver without a measurement used R_max in the equation.
        let scale = if report.has_rtt || !report.has_loss { 1.0 } else { (self.rtt_max() / rtt).max(1.0) };
        #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
        let rate = report.rate as f64 * scale;
        self.round.peak = self.round.peak.max(RTT_MAX_MARGIN * rtt);
        self.rtt_max = self.rtt_max.max(self.round.peak);
        self.is_starting &= !report.has_loss;
        let pending =
            Pending { who, timestamp_us: report.timestamp_us, at: now, has_rtt: report.has_rtt, rate };
        match self.clr {
            Some(clr) if clr.who() == who => self.clr_reported(now, &pending, rtt),
            _ => {
                // Receivers compare the suppression rate with unscaled rates.
                self.suppression = self.suppression.min((1.0 - CLOSE) * rate / scale);
                self.other_reported(now, pending, rtt);
            }
        }
    }

    fn clr_reported(&mut self, now: Instant, report: &Pending, rtt: f64) {
        let Some(clr) = &mut self.clr else { return };
        (clr.heard, clr.timestamp_us, clr.rate) = (now, report.timestamp_us, report.rate);
        clr.rtt = RTT_KEPT * clr.rtt + (1.0 - RTT_KEPT) * rtt;
        let round_trip = clr.rtt;
        self.follow(now, report.rate, round_trip);
        self.feed(now, round_trip);
    }

    /// Sets X to the CLR's reported rate, with an increase of at most one packet in `R_max` per round trip,
    /// or doubling per round trip in slow start.
    fn follow(&mut self, now: Instant, reported: f64, rtt: f64) {
        let step = if self.is_starting { self.rate } else { self.packet_bits() / self.rtt_max() };
        let elapsed = now.since(self.raised).as_secs_f64() / rtt.max(RTT_PART * self.rtt_max());
        let most = if now < self.held_until { self.rate } else { self.rate + step * elapsed.min(1.0) };
        self.raised = now;
        self.set_rate(now, reported.min(most));
    }

    fn other_reported(&mut self, now: Instant, report: Pending, rtt: f64) {
        let was_late = now >= self.round_ends();
        self.round.has_feedback = true;
        // While no increase is allowed, any lower rate than the CLR's elects.
        let is_lower = |clr: Clr| report.rate < self.rate || now < self.held_until && report.rate < clr.rate;
        match self.clr {
            Some(clr) if !is_lower(clr) => self.echoes.push(report),
            _ => self.elect(now, &report, rtt),
        }
        if was_late {
            self.end_round(now);
        }
    }

    fn elect(&mut self, now: Instant, report: &Pending, rtt: f64) {
        let ReceiverIdentity { id, address } = report.who;
        self.counters.switches += u64::from(self.clr.is_some());
        let (rate, timestamp_us) = (report.rate, report.timestamp_us);
        self.clr = Some(Clr { id, address, rtt, rate, since: now, heard: now, timestamp_us, is_new: true });
        self.raised = now;
        self.set_rate(now, rate.min(self.rate));
        self.feed(now, rtt);
    }

    fn lose_clr(&mut self, now: Instant) {
        self.clr = None;
        let round = self.rtt_max();
        self.held_until = now + seconds(ROUND * round);
        self.starves = now + seconds(GONE * round);
    }

    /// Restarts the silence timers at a report of the CLR. The timers run for some round trips, or for some
    /// packet intervals if longer.
    fn feed(&mut self, now: Instant, rtt: f64) {
        let packet = self.packet_bits() / self.rate;
        self.starves = now + seconds((SILENT * rtt).max(SILENT_PACKETS * packet));
        self.gone = now + seconds((GONE * rtt).max(GONE_PACKETS * packet));
    }

    /// Handles missing reports.
    fn starve(&mut self, now: Instant) {
        let Some(clr) = self.clr else {
            self.halve(now);
            self.starves = now + seconds(GONE * self.rtt_max());
            return;
        };
        if now >= self.gone {
            self.lose_clr(now);
            return;
        }
        let is_young = now < clr.since + seconds(GONE * clr.rtt);
        if !is_young {
            self.halve(now);
        }
        self.starves = self.gone;
    }

    fn halve(&mut self, now: Instant) {
        self.counters.halvings += 1;
        self.set_rate(now, self.rate / 2.0);
    }

    fn set_rate(&mut self, now: Instant, rate: f64) {
        let floor = self.packet_bits() / FLOOR_PERIOD.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
        let most = self.config.max_rate.map_or(f64::MAX, |most| most.as_bits() as f64);
        self.rate = rate.min(most).max(floor);
        self.pacer.set_rate(now, bits(self.rate));
    }

    /// Returns the end of the round if a receiver other than the CLR has reported.
    fn round_ends(&self) -> Instant {
        self.round.began + seconds(ROUND * self.rtt_max())
    }

    /// Returns the latest end of the round.
    fn round_over(&self) -> Instant {
        let rounds = if self.round.has_feedback { ROUND } else { 2.0 * ROUND };
        self.round.began + seconds(rounds * self.rtt_max())
    }

    fn end_round(&mut self, now: Instant) {
        if self.round.peak > 0.0 {
            self.rtt_max = self.round.peak.max(RTT_MAX_KEPT * self.rtt_max);
        }
        let number = self.round.number.wrapping_add(1);
        self.round = Round { number, began: now, peak: 0.0, has_feedback: false };
        self.suppression = f64::INFINITY;
        self.counters.rounds += 1;
    }

    /// Returns the next packet's echo. Priority: a new CLR, receivers without a round-trip time, other
    /// receivers, the CLR again.
    fn echo(&mut self, now: Instant) -> Option<Echo> {
        if let Some(clr) = self.clr.as_mut().filter(|clr| clr.is_new) {
            clr.is_new = false;
            return Some(clr.pending().echo(now, true));
        }
        match self.echoes.pop() {
            Some(pending) => Some(pending.echo(now, false)),
            None => self.clr.map(|clr| clr.pending().echo(now, true)),
        }
    }

    fn data(&mut self, now: Instant) -> Data {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let (rtt_max_us, suppression) = ((self.rtt_max() * 1e6) as u32, self.suppression as u64);
        Data {
            sequence: self.sequence,
            timestamp_us: clock_us(now),
            rtt_max_us,
            suppression: if self.suppression.is_finite() { suppression } else { NO_SUPPRESSION },
            round: self.round.number,
            echo: self.echo(now),
        }
    }
}

impl Machine for TfmccSender {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.starves <= now {
            self.starve(now);
        }
        if self.round_over() <= now {
            self.end_round(now);
        }
        if let Input::Datagram(datagram) = input {
            self.datagram(now, &datagram);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        if !self.pacer.is_due(now) {
            return None;
        }
        let bytes = usize::from(self.config.packet_bytes);
        let header = self.data(now).emit();
        buffer[..DATA_BYTES].copy_from_slice(&header);
        buffer[DATA_BYTES..bytes].fill(0);
        self.pacer.sent(now, bytes);
        self.sequence = self.sequence.wrapping_add(1);
        self.counters.packets += 1;
        let destination = Destination::Channel(ChannelId::BASE);
        Some(Output::Transmit(Transmit { destination, bytes, ecn: Ecn::NotCapable }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.pacer.next().min(self.starves).min(self.round_over()))
    }
}

fn bits(rate: f64) -> Rate {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let bits = libm::round(rate) as u64;
    Rate::from_bits(bits).unwrap_or_else(|| Rate::from_kilobits(1))
}

const fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Maximum number of queued reports; the least urgent further reports get no echo, and their receivers report
/// again.
pub const ECHOES_MAX: usize = 64;

/// Identity of a receiver; an identifier alone may be drawn, or forged, twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiverIdentity {
    pub id: u32,
    pub address: SocketAddr,
}

/// Report waiting for its echo.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub who: ReceiverIdentity,
    /// Timestamp of the report, by the receiver's clock.
    pub timestamp_us: u32,
    /// Arrival time of the report.
    pub at: Instant,
    /// Whether the receiver has measured its round-trip time.
    pub has_rtt: bool,
    /// Rate in the report.
    pub rate: f64,
}

impl Pending {
    /// Orders receivers without a round-trip time first, then by rate.
    fn is_before(&self, other: &Self) -> bool {
        (self.has_rtt, self.rate) < (other.has_rtt, other.rate)
    }

    pub fn echo(&self, now: Instant, is_clr: bool) -> Echo {
        Echo { receiver: self.who.id, timestamp_us: later_us(self.timestamp_us, self.at, now), is_clr }
    }
}

/// Queue of at most [`ECHOES_MAX`] reports.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes(Vec<Pending>);

impl Echoes {
    pub fn push(&mut self, pending: Pending) {
        self.0.retain(|other| other.who != pending.who);
        if self.0.len() == ECHOES_MAX {
            let last = (0..self.0.len())
                .reduce(|last, one| if self.0[last].is_before(&self.0[one]) { one } else { last });
            match last.filter(|last| pending.is_before(&self.0[*last])) {
                Some(last) => _ = self.0.swap_remove(last),
                None => return,
            }
        }
        self.0.push(pending);
    }

    /// Removes and returns the most urgent report.
    pub fn pop(&mut self) -> Option<Pending> {
        let first = (0..self.0.len())
            .reduce(|first, one| if self.0[one].is_before(&self.0[first]) { one } else { first })?;
        Some(self.0.swap_remove(first))
    }
}
