//! PGMCC sender.

use core::convert::Infallible;
use core::net::{IpAddr, Ipv4Addr};

use headwater_wire::pgm::{Body, CongestionData, CongestionFeedback, Options, Packet};

use super::Acker;
use super::PgmccSenderConfig;
use super::window::PgmccWindow;
use crate::{clock_us, since_us};
use headwater_proto::machine::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output, Transmit};
use headwater_proto::measure::RoundTrip;
use headwater_proto::time::{Duration, Instant};

/// Address in place of an acker, if there is none.
pub(super) const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Number of consecutive timeouts after which the acker is removed.
const TIMEOUTS: u32 = 2;
/// Timeout before the first measurement, in seconds (RFC 6298).
const TIMEOUT_FIRST: f64 = 1.0;
/// Minimum and maximum of round-trip times, in seconds.
const RTT_RANGE: (f64, f64) = (1e-4, 8.0);

static ZEROS: [u8; 8_192] = [0; 8_192];

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgmccSenderCounters {
    /// Packets sent.
    pub packets: u64,
    /// Acknowledgements of the acker.
    pub acks: u64,
    /// Packets lost on the way to the acker.
    pub lost: u64,
    /// Halvings of the window.
    pub halvings: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Reports of receivers other than the acker.
    pub reports: u64,
    /// Elections of an acker.
    pub elections: u64,
    /// Datagrams that are not PGM packets, or of a type that a sender does not receive.
    pub malformed: u64,
    /// Packets of another session.
    pub foreign: u64,
    /// Reports of unsent packets, for another address, or without PGMCC's option.
    pub absurd: u64,
}

/// Sends packets of zeros as the acker's acknowledgements permit.
#[derive(Clone, Debug)]
pub struct PgmccSender {
    config: PgmccSenderConfig,
    window: PgmccWindow,
    acker: Option<Acker>,
    /// Previous acker, and the end of the packets that name this acker and may still be acknowledged.
    before: Option<(IpAddr, u32)>,
    /// Round-trip time to the acker.
    round_trip: RoundTrip,
    /// Consecutive timeouts.
    silent: u32,
    /// Time at which the packets in flight are given up.
    timeout: Option<Instant>,
    counters: PgmccSenderCounters,
}

impl PgmccSender {
    /// Creates a sender that has sent no packet.
    pub fn new(config: PgmccSenderConfig) -> Self {
        Self {
            window: PgmccWindow::new(0, config.threshold),
            config,
            acker: None,
            before: None,
            round_trip: RoundTrip::default(),
            silent: 0,
            timeout: None,
            counters: PgmccSenderCounters::default(),
        }
    }

    /// Returns the window and tokens.
    pub const fn window(&self) -> &PgmccWindow {
        &self.window
    }

    /// Returns the acker with its last report.
    pub const fn acker(&self) -> Option<&Acker> {
        self.acker.as_ref()
    }

    /// Returns the mean round-trip time to the acker in seconds, once measured.
    pub fn srtt(&self) -> Option<f64> {
        self.round_trip.mean()
    }

    /// Returns the sender's counters.
    pub const fn counters(&self) -> &PgmccSenderCounters {
        &self.counters
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Ok(packet) = Packet::parse(datagram.payload) else {
            self.counters.malformed += 1;
            return;
        };
        let session = &self.config.session;
        let ports = (session.destination_port, session.source_port);
        if packet.gsi != session.gsi || (packet.source_port, packet.destination_port) != ports {
            self.counters.foreign += 1;
            return;
        }
        let said = packet.options.congestion_feedback.filter(|said| said.receiver == datagram.source.ip());
        let report = said.and_then(|said| report(now, &said));
        match (packet.body, report) {
            (Body::Ack { highest, bitmap }, Some(report)) => self.ack(now, &report, highest, bitmap),
            (Body::Nak(_), Some(report)) => self.report(now, &report),
            (Body::Ack { .. } | Body::Nak(_), None) => self.counters.absurd += 1,
            _ => self.counters.malformed += 1,
        }
    }

    /// Processes a report. Elects the reporting receiver if there is no acker, or if the receiver's
    /// throughput is clearly less.
    fn report(&mut self, now: Instant, report: &Acker) {
        match &mut self.acker {
            Some(acker) if acker.address == report.address => *acker = *report,
            Some(acker) => {
                self.counters.reports += 1;
                if report.is_worse_than(acker) {
                    self.before = Some((acker.address, self.window.next()));
                    self.elect(now, report);
                }
            }
            None => {
                self.counters.reports += 1;
                self.elect(now, report);
            }
        }
    }

    fn elect(&mut self, now: Instant, report: &Acker) {
        self.counters.elections += 1;
        self.acker = Some(*report);
        self.window.switched(!self.config.switch_losses);
        // A new acker has another round-trip time, and therefore another timeout.
        self.round_trip = RoundTrip::of(report.rtt);
        self.silent = 0;
        self.timeout = self.window.is_waiting().then(|| now + self.patience());
    }

    fn ack(&mut self, now: Instant, report: &Acker, highest: u32, bitmap: u32) {
        let had_acker = self.acker.is_some();
        self.report(now, report);
        let is_acker = self.acker.is_some_and(|acker| acker.address == report.address);
        let was_named = |(address, end): (IpAddr, u32)| {
            address == report.address && end.wrapping_sub(highest).cast_signed() > 0
        };
        if !is_acker && !self.before.is_some_and(was_named) {
            return;
        }
        let Some(told) = self.window.acknowledged(highest, bitmap, is_acker) else {
            self.counters.absurd += 1;
            return;
        };
        self.counters.acks += 1;
        self.counters.lost += u64::from(told.lost);
        self.counters.halvings += u64::from(told.is_halved);
        if is_acker && self.before.is_some_and(|(_, end)| end.wrapping_sub(highest).cast_signed() <= 0) {
            self.before = None;
        }
        if is_acker && had_acker {
            self.round_trip.sample(report.rtt);
        }
        if told.new > 0 {
            self.silent = 0;
            self.timeout = self.window.is_waiting().then(|| now + self.patience());
        }
    }

    /// Returns the timeout: TCP's, doubled after each consecutive timeout.
    fn patience(&self) -> Duration {
        let margin = self.config.timeout_margin.as_secs_f64();
        let least = Duration::from_secs_f64(self.round_trip.timeout(margin).unwrap_or(TIMEOUT_FIRST));
        least.saturating_mul(1 << self.silent.min(16)).min(PgmccSenderConfig::TIMEOUT_MAX)
    }

    fn time_out(&mut self) {
        self.timeout = None;
        self.window.timed_out();
        self.before = None;
        self.counters.timeouts += 1;
        self.silent += 1;
        if self.silent >= TIMEOUTS {
            self.acker = None;
        }
    }

    fn poll_data(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.window.is_open() {
            return None;
        }
        let session = &self.config.session;
        let sequence = self.window.next();
        let acker = self.acker.map_or(NOBODY, |acker| acker.address);
        let data = CongestionData { timestamp: clock_us(now), acker };
        let options = Options { congestion_data: Some(data), ..Options::default() };
        let body = Body::Odata { sequence, trail: sequence, data: &[] };
        let packet = Packet::new(session.source_port, session.destination_port, session.gsi, body);
        let packet = Packet { options, ..packet };
        let content = usize::from(self.config.packet_bytes).saturating_sub(packet.buffer_len());
        let body = Body::Odata { sequence, trail: sequence, data: &ZEROS[..content] };
        let bytes = Packet { body, ..packet }.emit(buffer).ok()?;
        self.window.sent();
        self.counters.packets += 1;
        self.timeout = self.timeout.or_else(|| Some(now + self.patience()));
        let destination = Destination::Channel(ChannelId::BASE);
        Some(Transmit { destination, bytes, ecn: Ecn::NotCapable })
    }
}

/// Returns the path in a receiver's feedback; `None` for an echo from the future.
fn report(now: Instant, said: &CongestionFeedback) -> Option<Acker> {
    let took_us = since_us(now, said.timestamp);
    let rtt = (f64::from(took_us) / 1e6).clamp(RTT_RANGE.0, RTT_RANGE.1);
    let loss = f64::from(said.loss_rate) / 65_536.0;
    (took_us >= 0).then_some(Acker { address: said.receiver, rtt, loss })
}

impl Machine for PgmccSender {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.timeout.is_some_and(|timeout| timeout <= now) {
            self.time_out();
        }
        if let Input::Datagram(datagram) = input {
            self.datagram(now, &datagram);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        self.poll_data(now, buffer).map(Output::Transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // A caller drains all permitted packets before asking; the first packet departs at the first call.
        if self.window.is_open() { Some(Instant::ZERO) } else { self.timeout }
    }
}
