//! TFMCC receiver (RFC 4654, section 4).

use core::convert::Infallible;
use core::net::SocketAddr;

use crate::tfmcc::message::{Data, Message, NO_SUPPRESSION, Report};
use rand::Rng;

use super::ROUND;
use super::losses::{Losses, Path};
use super::receive_rate::ReceiveRate;
use super::round_trip::RoundTrip;
use crate::stamp::{clock_us, later_us};
use headwater_proto::machine::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output, Transmit};
use headwater_proto::measure::throughput;
use headwater_proto::rng::{self, Seed, Stream};
use headwater_proto::time::{Duration, Instant};

/// N: number of receivers that the feedback timers are designed for.
const RECEIVERS: f64 = 10_000.0;
/// Before the first loss, the fair rate is this multiple of the receive rate.
const START_FACTOR: f64 = 2.0;
/// Minimum of times and rates.
const LEAST: f64 = 1e-6;

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
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
pub struct Receiver {
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
    counters: ReceiverCounters,
}

impl Receiver {
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
            counters: ReceiverCounters::default(),
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
    pub const fn counters(&self) -> ReceiverCounters {
        ReceiverCounters { lost: self.losses.lost(), events: self.losses.events(), ..self.counters }
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
        let Ok(Message::Data(data)) = Message::parse(datagram.payload) else {
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
        let report = Report {
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

impl Machine for Receiver {
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
