//! The receiving end: subscription to groups, and reports.

use core::net::SocketAddr;

use headwater_wire::sim::{Data, Group as GroupName, SimReport};
use rand::Rng;

use super::schedule::{duration, tenths};
use super::selection::Measured;
use super::selection::Teller;
use super::selection::{Choice, Selection};
use super::{ANEW, is_later};
use super::{STEP, SimConfig};
use crate::control::{Arrival, Membership, ReceiverControl, Reception, Status, Wishes};
use crate::machine::{ChannelId, Destination, Ecn, Transmit};
use crate::measure::Holes;
use crate::rate::Rate;
use crate::rng::Seed;
use crate::time::Instant;

/// Weight of a new interval in the received rate.
const GAIN: f64 = 0.25;
/// Number of selection intervals without a packet after which a newly joined group is left again, because
/// some router or relay does not carry the group. `BARRED` is the number of selection intervals during which
/// the receiver does not join the group again.
const UNHEARD: u16 = 2;
const BARRED: u16 = 32;
/// Number of consecutive requests with heavy loss after which the receiver leaves the top group.
const SWAMPED: u16 = 2;
/// Number of requests after a leave in which the receiver reports no congestion, because queued packets still
/// belong to the group that was left. A report of congestion would count against the group below, and
/// uncongested receivers of the group below would take the resulting decrease for room above.
const RELIEF: u16 = 2;

/// Counters of a receiver, in addition to [`Reception`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimReceiverCounters {
    /// Reports made.
    pub reports: u64,
    /// Reports of a congested top group.
    pub congested: u64,
    /// Changes of the subscription, without the first join.
    pub changes: u64,
    /// Changes that left a group because no packet of the group arrived.
    pub unheard: u64,
    /// Packets that are not SIM's, or that arrived on another group than the packet names.
    pub malformed: u64,
}

/// Reception state of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    holes: Holes,
    sent: Measured,
}

/// Measurements since the last request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    request: u16,
    began: Instant,
    /// Timestamp of the packet that carried the request.
    stamp: u32,
    bytes: u64,
    /// Packets received, and packets known to be lost.
    packets: (u64, u64),
    is_congested: bool,
}

/// Receiver that subscribes to groups 0 up to some rank, and answers each request of the sender once.
#[derive(Clone, Debug)]
pub struct SimReceiver {
    config: SimConfig,
    id: u32,
    /// All groups; the first [`Receiver::held`] are subscribed.
    groups: Vec<Group>,
    held: u16,
    /// Number of requests since the join of the top group without any packet of the top group.
    unheard: u16,
    /// Number of consecutive requests with more loss than the decreases of an interval could end.
    swamped: u16,
    /// Number of requests until congestion counts again.
    relief: u16,
    /// Group that is not carried, and the number of requests during which the receiver does not join the
    /// group.
    barred: (u16, u16),
    wishes: Wishes,
    asked: Option<Asked>,
    /// Received rate of all groups together, in bit/s.
    rate: Option<f64>,
    selection: Selection,
    report: Option<(SocketAddr, SimReport, Instant)>,
    /// Announcer of the subscription to relays, if configured.
    teller: Option<Teller>,
    reception: Reception,
    counters: SimReceiverCounters,
}

impl SimReceiver {
    /// Creates a receiver without a subscription. The receiver's identifier in reports is drawn from `seed`.
    pub fn new(config: SimConfig, seed: Seed) -> Self {
        Self {
            id: seed.stream("sim/receiver", 0).next_u32(),
            groups: vec![Group::default(); config.groups.into()],
            held: 0,
            unheard: 0,
            swamped: 0,
            relief: 0,
            barred: (0, 0),
            wishes: Wishes::default(),
            asked: None,
            rate: None,
            selection: Selection::new(config.selection, config.decrease),
            report: None,
            teller: config.tells_holdings.then(|| Teller::new(config.session)),
            reception: Reception::default(),
            counters: SimReceiverCounters::default(),
            config,
        }
    }

    /// Number of groups subscribed, including groups being joined.
    pub const fn held(&self) -> u16 {
        self.held
    }

    /// Received rate, in bit/s of UDP payload.
    pub const fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &SimReceiverCounters {
        &self.counters
    }

    fn data(&mut self, now: Instant, arrival: &Arrival<'_>, data: &Data) {
        if self.asked.is_none_or(|asked| {
            is_later(data.request, asked.request)
                || data.request != asked.request && now.since(asked.began) > ANEW
        }) {
            self.answer(now, arrival, data);
        }
        let group = &mut self.groups[usize::from(data.rank)];
        #[expect(clippy::cast_possible_truncation, reason = "holes are told by 16 bits")]
        let found = group.holes.record(data.sequence as u16);
        group.sent.record(data.sequence, data.timestamp);
        let is_marked = self.reception.count(arrival.ecn);
        self.reception.lost += found.lost;
        if let Some(asked) = &mut self.asked {
            asked.bytes += arrival.bytes as u64;
            asked.packets.0 += 1;
            asked.packets.1 += found.lost;
            let is_top = u16::from(data.rank) + 1 == self.held;
            // A full queue drops packets of any group; the top group may have too few packets to show the
            // loss.
            asked.is_congested |= is_top && is_marked || found.lost > 0;
        }
    }

    /// Handles a new request: reports on the time since the previous request, and decides on the
    /// subscription.
    fn answer(&mut self, now: Instant, arrival: &Arrival<'_>, data: &Data) {
        let begun = Asked {
            request: data.request,
            began: now,
            stamp: data.timestamp,
            bytes: 0,
            packets: (0, 0),
            is_congested: false,
        };
        let Some(asked) = self.asked.replace(begun) else { return self.settle(data.timestamp) };
        let seconds = now.since(asked.began).as_secs_f64();
        let received = 8.0 * asked.bytes as f64 / seconds.max(1e-4);
        let rate = self.rate.map_or(received, |rate| rate + GAIN * (received - rate));
        self.rate = Some(rate);
        let sent = self.sent_rate(data.timestamp);
        let is_swamped = self.is_swamped(asked.packets);
        // Heavy loss is reported even after a leave.
        let is_told = asked.is_congested && (self.relief == 0 || self.swamped > 0);
        self.relief = self.relief.saturating_sub(1);
        self.prepare(now, arrival.source, data, is_told, rate);
        let requests = data.request.wrapping_sub(asked.request).max(1);
        let interval = duration(data.timestamp.wrapping_sub(asked.stamp)).as_secs_f64() / f64::from(requests);
        let usual = STEP * self.config.packet_bits() / interval.max(1e-3);
        let step = self.config.step.map_or(usual, |step| step.as_bits() as f64);
        let choice = self.selection.report(asked.is_congested, sent, step);
        let choice = if is_swamped { Choice::Leave } else { choice };
        self.choose(choice);
        self.tell(now);
    }

    /// Whether waiting for the end of the interval is useless: in consecutive requests, more was lost than
    /// all decreases within an interval could end.
    fn is_swamped(&mut self, (received, lost): (u64, u64)) -> bool {
        let decreases = f64::from(self.config.selection) / f64::from(self.config.hold_off + 1);
        let remaining = libm::pow(self.config.decrease, decreases);
        let is_beyond = (received as f64) < remaining * (received + lost) as f64;
        self.swamped = if is_beyond { self.swamped.saturating_add(1) } else { 0 };
        self.swamped >= SWAMPED
    }

    /// Changes the subscription, at most once per request.
    fn choose(&mut self, choice: Choice) {
        let top = self.held.saturating_sub(1);
        let is_heard = self.groups[usize::from(top)].sent.is_heard();
        self.unheard = if is_heard { 0 } else { self.unheard.saturating_add(1) };
        self.barred.1 = self.barred.1.saturating_sub(1);
        let most = if self.barred.1 > 0 { self.barred.0 } else { self.config.groups };
        if top > 0 && self.unheard > UNHEARD.saturating_mul(self.config.selection) {
            self.barred = (top, BARRED.saturating_mul(self.config.selection));
            self.counters.unheard += 1;
            return self.hold(top);
        }
        match choice {
            Choice::Join if self.held < most => self.hold(self.held + 1),
            Choice::Leave if top > 0 => self.hold(top),
            _ => {}
        }
    }

    fn prepare(&mut self, now: Instant, to: SocketAddr, data: &Data, is_congested: bool, rate: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let rate = (rate / 100.0) as u32;
        let report = SimReport {
            is_last: true,
            request: data.request,
            source: self.id,
            group: GroupName {
                session: self.config.session,
                rank: u8::try_from(self.held.saturating_sub(1)).unwrap_or(u8::MAX),
            },
            reports: 1,
            congested: is_congested.into(),
            population: 1,
            min_rate: rate,
            max_rate: rate,
            echo: data.timestamp,
            hold: 0,
        };
        self.counters.congested += u64::from(is_congested);
        self.report = Some((to, report, now));
    }

    /// Returns the sending rate of the subscribed groups in bit/s, from sequence numbers and timestamps of
    /// packets since the last request; `None` until packets of all groups arrived. `stamp` is the timestamp
    /// of the packet that carries the request. A shorter packet, of the FDT or of the end of a file, occupies
    /// the time of a whole packet and counts as whole. So a short packet just before a request does not look
    /// like a decrease.
    fn sent_rate(&mut self, stamp: u32) -> Option<f64> {
        self.settle(stamp);
        let rates = self.groups.iter().take(self.held.into()).map(|group| group.sent.rate());
        let packets: f64 = rates.sum::<Option<f64>>()?;
        Some(self.config.packet_bits() * packets)
    }

    fn settle(&mut self, stamp: u32) {
        for group in self.groups.iter_mut().take(self.held.into()) {
            group.sent.settle(stamp);
        }
    }

    fn tell(&mut self, now: Instant) {
        if let Some(teller) = &mut self.teller {
            teller.hold(now, self.held);
        }
    }

    /// Changes the subscription to `groups` groups.
    fn hold(&mut self, groups: u16) {
        for rank in self.held..groups {
            self.groups[usize::from(rank)] = Group::default();
            self.wishes.push(Membership::Join(ChannelId(rank)));
        }
        self.relief = if groups < self.held { RELIEF } else { 0 };
        for rank in (groups..self.held).rev() {
            self.reception.lost += self.groups[usize::from(rank)].holes.close();
            self.wishes.push(Membership::Leave(ChannelId(rank)));
        }
        (self.held, self.unheard, self.swamped) = (groups, 0, 0);
        self.counters.changes += 1;
        self.selection.restart();
    }
}

impl ReceiverControl for SimReceiver {
    fn start(&mut self, now: Instant) {
        if self.held == 0 {
            self.hold(1);
            self.counters.changes -= 1;
        }
        self.tell(now);
    }

    fn stop(&mut self, now: Instant) {
        if self.held > 0 {
            self.hold(0);
        }
        self.tell(now);
        (self.asked, self.rate, self.report) = (None, None, None);
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        match Data::parse(arrival.cci.as_bytes()) {
            Ok(data)
                if u16::from(data.rank) == arrival.channel.0 && arrival.channel.0 < self.config.groups =>
            {
                if let Some(teller) = &mut self.teller {
                    teller.heard(now, arrival.source);
                }
                if arrival.channel.0 < self.held {
                    self.data(now, arrival, &data);
                }
            }
            _ => self.counters.malformed += 1,
        }
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let Some((to, report, since)) = self.report.take() else {
            return self.teller.as_mut()?.poll_transmit(now, buffer);
        };
        let bytes = SimReport { hold: tenths(now.since(since)), ..report }.emit();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.counters.reports += 1;
        Some(Transmit { destination: Destination::Unicast(to), bytes: bytes.len(), ecn: Ecn::NotCapable })
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.teller.as_ref()?.due()
    }

    fn reception(&self) -> Reception {
        self.reception
    }

    fn status(&mut self, _now: Instant) -> Status {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let fair_rate = self.rate.and_then(|rate| Rate::from_bits(rate as u64));
        Status { channels: self.held, fair_rate, ..Status::default() }
    }
}
