//! TFMCC receiver (RFC 4654, section 4).
//!
//! Loss events of a receiver (RFC 4654, section 5).

use core::convert::Infallible;
use core::net::SocketAddr;

use headwater_proto::machine::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output, Transmit};
use headwater_proto::measure::{Holes, LossIntervals, throughput};
use headwater_proto::rng;
use headwater_proto::rng::{Seed, Stream};
use headwater_proto::time::{Duration, Instant};
use rand::Rng;

use super::{Data, NO_SUPPRESSION, ROUND, TfmccMessage, TfmccReport};
use crate::{clock_us, later_us, since_us};

/// N: number of receivers that the feedback timers are designed for.
const RECEIVERS: f64 = 10_000.0;
/// Before the first loss, the fair rate is this multiple of the receive rate.
const START_FACTOR: f64 = 2.0;
/// Minimum of times and rates.
const LEAST: f64 = 1e-6;

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TfmccReceiverCounters {
    /// Packets received, without duplicates.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// Loss events.
    pub events: u64,
    /// Reports sent.
    pub reports: u64,
    /// Datagrams that are not TFMCC data.
    pub malformed: u64,
    /// Data of senders other than the first sender heard.
    pub foreign: u64,
}

/// Last data packet.
#[derive(Clone, Copy, Debug)]
struct Last {
    data: Data,
    at: Instant,
}

/// Membership state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    New,
    Joined,
    Leaving,
    Left,
}

/// Receives packets, and reports the fair rate of the path.
#[derive(Clone, Debug)]
pub struct TfmccReceiver {
    id: u32,
    draw: Stream,
    sender: Option<SocketAddr>,
    standing: Standing,
    last: Option<Last>,
    /// Size of a packet in bits.
    packet_bits: f64,
    losses: Losses,
    rate: ReceiveRate,
    rtt: RoundTrip,
    /// Round-trip time assumed at the first loss event, if not measured then.
    first_rtt: Option<f64>,
    is_clr: bool,
    /// Time of the next report by the round's feedback timer.
    timer: Option<Instant>,
    /// `X_r` at the start of the round.
    rate_at_round: f64,
    reported: Option<Instant>,
    /// Whether no echo of the last report has arrived.
    is_unanswered: bool,
    is_due: bool,
    counters: TfmccReceiverCounters,
}

impl TfmccReceiver {
    /// Creates a receiver. The identifier and the report times are drawn from `seed`.
    pub fn new(seed: Seed) -> Self {
        let mut draw = seed.stream("tfmcc/receiver", 0);
        Self {
            id: draw.next_u32(),
            draw,
            sender: None,
            standing: Standing::New,
            last: None,
            packet_bits: 0.0,
            losses: Losses::default(),
            rate: ReceiveRate::default(),
            rtt: RoundTrip::default(),
            first_rtt: None,
            is_clr: false,
            timer: None,
            rate_at_round: f64::INFINITY,
            reported: None,
            is_unanswered: false,
            is_due: false,
            counters: TfmccReceiverCounters::default(),
        }
    }

    /// Returns the receiver's identifier.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Whether this receiver is the current limiting receiver.
    pub const fn is_clr(&self) -> bool {
        self.is_clr
    }

    /// Returns the round-trip time in seconds, once measured.
    pub const fn rtt(&self) -> Option<f64> {
        self.rtt.mean()
    }

    /// Returns p, loss events per packet; `None` before the first event.
    pub fn loss_event_rate(&self) -> Option<f64> {
        self.losses.rate()
    }

    /// Returns the receiver's counters.
    pub const fn counters(&self) -> TfmccReceiverCounters {
        TfmccReceiverCounters { lost: self.losses.lost(), events: self.losses.events(), ..self.counters }
    }

    /// Returns `X_r` in bit/s: the equation's rate, or before the first loss twice the receive rate. `None`
    /// before two packets.
    pub fn fair_rate(&self, now: Instant) -> Option<f64> {
        let last = self.last?;
        Some(match self.losses.rate() {
            Some(loss) => self.packet_bits * throughput(self.rtt_or(&last.data), loss),
            None => START_FACTOR * 8.0 * self.rate.rate(now)?,
        })
    }

    /// Leaves the group permanently, and reports the leave to the sender.
    pub fn leave(&mut self) {
        self.standing = if self.standing == Standing::Joined { Standing::Leaving } else { Standing::Left };
        (self.timer, self.is_due) = (None, self.standing == Standing::Leaving);
    }

    /// Returns the round-trip time, or `R_max` if not measured.
    fn rtt_or(&self, data: &Data) -> f64 {
        self.rtt.mean().unwrap_or_else(|| rtt_max(data))
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Ok(TfmccMessage::Data(data)) = TfmccMessage::parse(datagram.payload) else {
            self.counters.malformed += 1;
            return;
        };
        if *self.sender.get_or_insert(datagram.source) != datagram.source || datagram.channel.is_none() {
            self.counters.foreign += 1;
            return;
        }
        let is_new_round = self.last.is_none_or(|last| last.data.round != data.round);
        self.packet_bits = 8.0 * datagram.payload.len() as f64;
        self.count(now, &data);
        self.last = Some(Last { data, at: now });
        self.measure(now, &data);
        if is_new_round {
            self.begin_round(now, &data);
        }
        // The CLR reports once a round trip without a timer.
        let rtt = self.rtt_or(&data);
        let is_late = self.reported.is_none_or(|reported| now.since(reported).as_secs_f64() >= rtt);
        self.is_due |= self.is_clr && is_late;
    }

    fn count(&mut self, now: Instant, data: &Data) {
        let rtt = self.rtt_or(data);
        let received = 8.0 * self.rate.rate(now).unwrap_or(LEAST);
        // Interval at which the simple equation gives the receive rate (section 5.6).
        let packets_in_rtt = received * rtt / self.packet_bits;
        let path = Path {
            rtt,
            spacing: (self.packet_bits / received.max(LEAST)).max(LEAST),
            first_interval: (packets_in_rtt * packets_in_rtt / 1.5).max(1.0),
        };
        let events = self.losses.events();
        #[expect(clippy::cast_possible_truncation, reason = "holes are told by 16 bits")]
        if self.losses.arrived(now, data.sequence as u16, &path) {
            self.counters.packets += 1;
            self.rate.record(now, self.packet_bits / 8.0, rtt);
        }
        if events == 0 && self.losses.events() > 0 && self.rtt.mean().is_none() {
            self.first_rtt = Some(rtt);
        }
    }

    /// Updates the round-trip time, by an echo of the last report or by the change of the one-way delay.
    fn measure(&mut self, now: Instant, data: &Data) {
        if let Some(echo) = data.echo.filter(|echo| echo.is_clr) {
            self.is_clr = echo.receiver == self.id;
            if self.is_clr {
                self.timer = None;
            }
        }
        match data.echo.filter(|echo| echo.receiver == self.id && self.is_unanswered) {
            Some(echo) => {
                self.is_unanswered = false;
                let is_first = self.rtt.measure(now, data.timestamp_us, echo.timestamp_us, self.is_clr);
                if let (true, Some(before), Some(rtt)) = (is_first, self.first_rtt, self.rtt.mean()) {
                    self.losses.rescale_first((rtt / before) * (rtt / before));
                }
            }
            None if !self.is_clr => self.rtt.one_way(now, data.timestamp_us),
            None => {}
        }
    }

    /// Draws the time of the report: few receivers draw an early time, and their reports suppress later
    /// reports.
    fn begin_round(&mut self, now: Instant, data: &Data) {
        self.rate_at_round = self.fair_rate(now).unwrap_or(f64::INFINITY);
        let drawn = rng::unit_above_zero(&mut self.draw);
        let part = (1.0 + libm::log(drawn) / libm::log(RECEIVERS)).max(0.0);
        let wait = Duration::from_secs_f64(ROUND * rtt_max(data) * part);
        self.timer = (!self.is_clr).then_some(now + wait);
    }

    /// Whether a report has new information for the sender: a rate below the suppression rate, or a round
    /// trip above `R_max`.
    fn is_wanted(&self, now: Instant) -> bool {
        let (Some(last), Some(rate)) = (self.last, self.fair_rate(now)) else { return false };
        #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
        let suppression = match last.data.suppression {
            NO_SUPPRESSION => f64::INFINITY,
            rate => rate as f64,
        };
        let is_long = self.rtt.mean().is_some_and(|rtt| rtt > rtt_max(&last.data));
        rate < suppression && self.rate_at_round <= suppression || is_long
    }

    fn poll_report(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if self.timer.is_some_and(|timer| timer <= now) {
            self.timer = None;
            self.is_due |= self.is_wanted(now);
        }
        if !core::mem::take(&mut self.is_due) {
            return None;
        }
        let (last, to) = (self.last?, self.sender?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let rate = self.fair_rate(now).unwrap_or(0.0) as u64;
        let report = TfmccReport {
            receiver: self.id,
            timestamp_us: clock_us(now),
            echo_us: later_us(last.data.timestamp_us, last.at, now),
            rate: rate.max(1),
            round: last.data.round,
            has_rtt: self.rtt.mean().is_some(),
            has_loss: self.losses.rate().is_some(),
            leaves: self.standing == Standing::Leaving,
        };
        let bytes = report.emit();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        (self.reported, self.is_unanswered) = (Some(now), true);
        self.counters.reports += 1;
        let destination = Destination::Unicast(to);
        Some(Transmit { destination, bytes: bytes.len(), ecn: Ecn::NotCapable })
    }
}

fn rtt_max(data: &Data) -> f64 {
    (f64::from(data.rtt_max_us) / 1e6).max(LEAST)
}

impl Machine for TfmccReceiver {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Datagram(datagram) = input
            && matches!(self.standing, Standing::New | Standing::Joined)
        {
            self.datagram(now, &datagram);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        if self.standing == Standing::New {
            self.standing = Standing::Joined;
            return Some(Output::Join(ChannelId::BASE));
        }
        if let Some(transmit) = self.poll_report(now, buffer) {
            return Some(Output::Transmit(transmit));
        }
        if self.standing == Standing::Leaving {
            self.standing = Standing::Left;
            return Some(Output::Leave(ChannelId::BASE));
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }
}

/// Maximum number of events in a run of losses; more events would not change the eight intervals.
const EVENTS_MAX: f64 = 16.0;
/// Number of intervals in the mean.
const INTERVALS: u64 = 8;

/// State of the path at a packet's arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Round-trip time in seconds.
    pub rtt: f64,
    /// Seconds between packets.
    pub spacing: f64,
    /// Length of the interval before the first loss event, in packets: the length at which the equation gives
    /// the current receive rate.
    pub first_interval: f64,
}

/// Holes, and the intervals between loss events.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    holes: Holes,
    intervals: LossIntervals,
    /// Start of the last event.
    began: Option<Instant>,
    events: u64,
    lost: u64,
}

impl Losses {
    /// Processes a packet; returns whether it is not a duplicate. A hole counts as a loss once three later
    /// packets have arrived, and as lost at that time: the delay is equal for all holes.
    pub fn arrived(&mut self, now: Instant, sequence: u16, path: &Path) -> bool {
        let found = self.holes.record(sequence);
        if found.lost > 0 {
            self.lose(now, found.lost, path);
        }
        self.intervals.advance(u64::from(found.is_new));
        found.is_new
    }

    fn lose(&mut self, now: Instant, lost: u64, path: &Path) {
        self.lost += lost;
        let per_event = libm::floor(path.rtt / path.spacing) + 1.0;
        #[expect(clippy::cast_precision_loss, reason = "below 2^16")]
        let mut left = (lost as f64).min(per_event * EVENTS_MAX);
        // The losses follow each other at the packet spacing, the last loss now.
        let mut at = now - Duration::from_secs_f64((left - 1.0) * path.spacing);
        while left > 0.0 {
            let mut since = self.began.map(|began| at.since(began).as_secs_f64());
            if since.is_none_or(|since| since > path.rtt) {
                self.begin(at, path);
                since = None;
            }
            let rest = path.rtt - since.unwrap_or(0.0);
            let within = (libm::floor(rest / path.spacing) + 1.0).min(left);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 2^16")]
            self.intervals.advance(within as u64);
            at += Duration::from_secs_f64(within * path.spacing);
            left -= within;
        }
    }

    fn begin(&mut self, at: Instant, path: &Path) {
        match self.events {
            0 => self.intervals.reset(path.first_interval),
            _ => self.intervals.event(),
        }
        self.events += 1;
        self.began = Some(at);
    }

    /// Multiplies the interval before the first event by `factor`, if that interval still counts, after a
    /// correction of [`Path::first_interval`].
    pub fn rescale_first(&mut self, factor: f64) {
        if (1..=INTERVALS).contains(&self.events) {
            self.intervals.rescale_oldest(factor);
        }
    }

    /// Returns loss events per packet; `None` before the first event.
    pub fn rate(&self) -> Option<f64> {
        self.intervals.rate()
    }

    /// Returns the number of packets lost.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of loss events.
    pub const fn events(&self) -> u64 {
        self.events
    }
}

/// Length of a window, in round trips.
const ROUND_TRIPS: f64 = 2.0;

/// Current window, and the previous window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveRate {
    /// Bytes of the previous window, and its duration in seconds.
    before: (f64, f64),
    began: Option<Instant>,
    bytes: f64,
}

impl ReceiveRate {
    /// Counts a packet. The first packet only starts the window, because its interval is unknown.
    pub fn record(&mut self, now: Instant, bytes: f64, rtt: f64) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        let took = now.since(began).as_secs_f64();
        if took >= ROUND_TRIPS * rtt {
            // The window ends with the packet that completes the duration.
            self.before = (self.bytes + bytes, took);
            (self.began, self.bytes) = (Some(now), 0.0);
        } else {
            self.bytes += bytes;
        }
    }

    /// Returns bytes per second; `None` before the second packet.
    pub fn rate(&self, now: Instant) -> Option<f64> {
        let took = now.since(self.began?).as_secs_f64() + self.before.1;
        let bytes = self.bytes + self.before.0;
        (bytes > 0.0 && took >= Duration::from_micros(1).as_secs_f64()).then(|| bytes / took)
    }
}

/// Weight of the old mean at a measurement: for the CLR, which measures every round trip, and for other
/// receivers.
const KEPT_CLR: f64 = 0.9;
const KEPT: f64 = 0.5;
/// Weight of the old mean at a packet that shows only the one-way delay.
const KEPT_ONE_WAY: f64 = 0.95;
/// Limits of a round-trip time, in seconds.
const RTT_LEAST: f64 = 1e-4;
const RTT_MOST: f64 = 60.0;

/// Mean of the round-trip times from echoes, adjusted by changes of the one-way delay between echoes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    mean: Option<f64>,
    /// `D_r`: offset of the sender's clock plus the delay to the sender, in microseconds.
    back_us: u32,
}

impl RoundTrip {
    /// Returns the mean in seconds; `None` before the first measurement.
    pub const fn mean(&self) -> Option<f64> {
        self.mean
    }

    /// Processes an echo: a packet sent at `sent_us` of the sender's clock answers a report of `asked_us` of
    /// the receiver's clock, corrected for the time at the sender. Returns whether this is the first
    /// measurement.
    pub fn measure(&mut self, now: Instant, sent_us: u32, asked_us: u32, is_clr: bool) -> bool {
        let sample = seconds(since_us(now, asked_us));
        self.back_us = sent_us.wrapping_sub(asked_us);
        let kept = if is_clr { KEPT_CLR } else { KEPT };
        let is_first = self.mean.is_none();
        self.mean = Some(self.mean.map_or(sample, |mean| kept * mean + (1.0 - kept) * sample));
        is_first
    }

    /// Adjusts the mean for a packet without an echo, by the change of the one-way delay since the last echo.
    pub fn one_way(&mut self, now: Instant, sent_us: u32) {
        let sample = seconds(clock_us(now).wrapping_sub(sent_us).wrapping_add(self.back_us).cast_signed());
        if let Some(mean) = &mut self.mean {
            *mean = KEPT_ONE_WAY * *mean + (1.0 - KEPT_ONE_WAY) * sample;
        }
    }
}

fn seconds(micros: i32) -> f64 {
    // Negative only if the packet was forged, or a clock stepped.
    (f64::from(micros) / 1e6).clamp(RTT_LEAST, RTT_MOST)
}
