//! Relay of AMT: answers gateways, receives their groups natively, and sends each gateway a copy.
//!
//! Until an update with a right code, the relay keeps nothing of a gateway. A code is keyed BLAKE3 of the
//! gateway's address and port, the nonce and the minute, and is right in that minute and the next. Answers
//! without a code are limited to 20 a second for each network (/24 of IPv4, /56 of IPv6), with bursts of 256,
//! and to [`ANSWERS_PER_SECOND`] for all.
//!
//! A group without an update for 45 s is forgotten. If the queue of a gateway drops more than a quarter of
//! the packets for 3 s, the gateway loses, for 30 s, the groups joined last that the link does not carry. The
//! detector is that of SIM's relays. SIM's relays prune by the rank of a group in a session, which a relay of
//! AMT does not know: receivers join the groups of a session in order, so the last joined group is the top.
//!
//! A record that excludes sources is taken as a join of the group from any source. Reports of IGMPv1, IGMPv2
//! and MLDv1 are refused.
//!
//! Receivers behind gateways report the levels that they need through the relay as well
//! ([`headwater_wire::amt::demand`]), for networks without a unicast route to the sender. The relay sends
//! each sender the maximum. Reports to a roster are passed on as they are, and the replies back to gateways
//! ([`headwater_wire::amt::roster`], `roster/relay.rs`).
//!
//! Memory: [`super::GATEWAYS_MAX`] gateways of [`super::GROUPS_MAX`] memberships of some 200 bytes, 50 MB,
//! [`crate::bcfs::relay::WAITING_MAX`] packets in queues, 12 MB at 1 500 bytes a packet, and 2^22 copies of
//! packets, 100 MB; fewer packets wait if each has more copies.

mod demand;
mod table;

use core::convert::Infallible;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use headwater_wire::amt::demand::RelayedReport;
use headwater_wire::amt::inner::InnerDatagram;
use headwater_wire::amt::membership::{QUERY_BYTES_MAX, Query, Report};
use headwater_wire::amt::roster::RelayedRosterReport;
use headwater_wire::amt::{DATA_HEADER_BYTES, Mac, Message, put_data_header};
use serde::Serialize;

pub use table::NativeMembership;

use self::demand::RelayedDemand;
use self::table::{GatewayTable, TableCounters};
use super::{QUERY_INTERVAL, ROBUSTNESS};
use crate::admission::{AdmissionKey, Limit, ReplyQueue, Words};
use crate::egress::overload::LOOK;
use crate::egress::{Egress, EgressCounters, EgressShape, WAITING_MAX};
use crate::machine::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, InterfaceId, Machine, Output,
    RouterOutput, Transmit,
};
use crate::queue::ParameterError;
use crate::rng::Seed;
use crate::roster::relay::RelayedReports;
use crate::time::{Duration, Instant};

/// Answers a second to all addresses that have not proven to receive: 1.7 Mbit/s of UDP payload.
pub const ANSWERS_PER_SECOND: u32 = 2_000;
/// Most UDP ports of groups that a relay receives.
pub const NATIVE_PORTS_MAX: usize = 16;
/// Most addresses that a relay listens at.
pub const ADDRESSES_MAX: usize = 64;
/// Most copies of packets that wait.
const COPIES_MAX: usize = 1 << 22;
/// Lifetime of a key.
const KEY_TIME: Duration = Duration::from_secs(60);
/// Time between two sweeps for expired memberships.
const SWEEP: Duration = Duration::from_secs(1);

/// Returns the interface of a UDP port of groups, counted from 0.
#[expect(clippy::cast_possible_truncation, reason = "there are at most `NATIVE_PORTS_MAX`")]
pub const fn native(port: usize) -> InterfaceId {
    InterfaceId(port as u32)
}

/// Returns the interface of the gateways that have reached the relay at an address, counted from 0.
#[expect(clippy::cast_possible_truncation, reason = "there are at most `ADDRESSES_MAX`")]
pub const fn tunnel(address: usize) -> InterfaceId {
    InterfaceId((NATIVE_PORTS_MAX + address) as u32)
}

/// Configuration of a relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
    shape: Option<EgressShape>,
    is_loopback: bool,
    key: AdmissionKey,
    seed: Seed,
}

impl RelayConfig {
    /// Creates a configuration for groups with these UDP ports, at most [`NATIVE_PORTS_MAX`]. Nobody may
    /// guess the key.
    pub fn new(mut ports: Vec<u16>, key: AdmissionKey, seed: Seed) -> Self {
        ports.truncate(NATIVE_PORTS_MAX);
        Self { addresses: Vec::new(), ports, shape: None, is_loopback: false, key, seed }
    }

    /// Sets the unicast addresses that the relay listens at, at most [`ADDRESSES_MAX`]. A discovery is
    /// answered with the address of its arrival. Default: no address.
    #[must_use]
    pub fn with_addresses(mut self, mut addresses: Vec<IpAddr>) -> Self {
        addresses.truncate(ADDRESSES_MAX);
        self.addresses = addresses;
        self
    }

    /// Sets whether groups are received on a loopback interface, where sources have loopback addresses.
    /// Default: no.
    #[must_use]
    pub const fn on_loopback(mut self, is_loopback: bool) -> Self {
        self.is_loopback = is_loopback;
        self
    }

    /// Sets the rate and queue of each gateway. Default: packets are sent at once.
    #[must_use]
    pub const fn with_shape(mut self, shape: Option<EgressShape>) -> Self {
        self.shape = shape;
        self
    }
}

/// Counters of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RelayCounters {
    /// Packets received from groups.
    pub packets: u64,
    /// Packets that no gateway has joined.
    pub unwanted: u64,
    /// Counters of the gateways' queues.
    pub egress: EgressCounters,
    /// Discoveries and requests answered.
    pub answers: u64,
    /// Discoveries and requests above the limits.
    pub unanswered: u64,
    /// Updates accepted.
    pub updates: u64,
    /// Reports of receivers' levels accepted.
    pub reports: u64,
    /// Reports of receivers' levels sent to senders.
    pub reports_sent: u64,
    /// Reports to a roster, and replies, passed on.
    pub passed: u64,
    /// Messages refused.
    pub refused: RelayRefused,
    /// Memberships and senders that the tables had no room for.
    pub crowded: u64,
    /// Memberships pruned because a gateway's queue dropped too much.
    pub pruned: u64,
    /// Number of gateways.
    pub gateways: usize,
    /// Number of groups received natively; a group of several named sources counts for each.
    pub memberships: usize,
}

/// Messages refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RelayRefused {
    /// Not a message that gateways send.
    pub malformed: u64,
    /// Updates, teardowns and reports without a right code.
    pub forged: u64,
    /// Updates without a checked report of IGMPv3 or MLDv2.
    pub reports: u64,
}

/// Relay of AMT; see the top of the module.
#[derive(Debug)]
pub struct Relay {
    config: RelayConfig,
    words: Words,
    answers: ReplyQueue<Answer>,
    table: GatewayTable,
    demand: RelayedDemand,
    roster: RelayedReports,
    egress: Egress,
    next_sweep: Instant,
    next_look: Instant,
    counters: RelayCounters,
    /// Buffer of a data message.
    room: Box<[u8]>,
}

/// Answer to a message of an address that has not proven to receive.
#[derive(Clone, Copy, Debug)]
struct Answer {
    to: SocketAddr,
    /// Interface of the question.
    tunnel: InterfaceId,
    nonce: u32,
    kind: AnswerKind,
}

#[derive(Clone, Copy, Debug)]
enum AnswerKind {
    Advertisement { relay: IpAddr },
    Query { is_mld: bool, is_limited: bool },
}

impl Relay {
    /// Creates a relay without gateways.
    ///
    /// # Errors
    /// A queue with an invalid parameter.
    pub fn new(config: RelayConfig) -> Result<Self, ParameterError> {
        let limit = Limit::new(ANSWERS_PER_SECOND, ANSWERS_PER_SECOND / 4);
        Ok(Self {
            words: Words::lasting(config.key, KEY_TIME),
            answers: ReplyQueue::new(config.key, limit),
            table: GatewayTable::new(config.is_loopback),
            demand: RelayedDemand::default(),
            roster: RelayedReports::new(),
            egress: Egress::new(config.shape, config.seed)?,
            next_sweep: Instant::ZERO,
            next_look: Instant::ZERO,
            counters: RelayCounters::default(),
            room: vec![0; DATAGRAM_BYTES_MAX].into(),
            config,
        })
    }

    /// Returns the counters.
    pub fn counters(&self) -> RelayCounters {
        let TableCounters { crowded, pruned } = self.table.counters();
        RelayCounters {
            egress: *self.egress.counters(),
            gateways: self.table.gateways(),
            memberships: self.table.memberships(),
            passed: self.roster.passed(),
            crowded: crowded + self.counters.crowded,
            pruned,
            ..self.counters
        }
    }

    /// Returns the next change of the native memberships, to be made before the relay is drained.
    pub fn poll_native(&mut self) -> Option<NativeMembership> {
        self.table.poll_native()
    }

    fn message(&mut self, now: Instant, tunnel: InterfaceId, relay: IpAddr, datagram: &Datagram<'_>) {
        let from = datagram.source;
        if RelayedReport::is_one(datagram.payload) {
            return self.on_report(now, from, datagram.payload);
        }
        if RelayedRosterReport::is_one(datagram.payload) {
            return self.on_roster(now, tunnel, datagram);
        }
        match Message::parse(datagram.payload) {
            Ok(Message::Discovery { nonce }) => {
                let kind = AnswerKind::Advertisement { relay };
                self.answer(now, Answer { to: from, tunnel, nonce, kind });
            }
            Ok(Message::Request { nonce, is_mld }) => {
                let kind = AnswerKind::Query { is_mld, is_limited: !self.table.has_room(from) };
                self.answer(now, Answer { to: from, tunnel, nonce, kind });
            }
            Ok(Message::Update { mac, nonce, report }) => {
                if !self.is_proven(now, from, nonce, mac) {
                    self.counters.refused.forged += 1;
                } else if let Ok(report) = Report::parse(report) {
                    self.counters.updates += 1;
                    self.table.update(now, (from, tunnel), report.records());
                    self.remove_gone();
                } else {
                    self.counters.refused.reports += 1;
                }
            }
            Ok(Message::Teardown { mac, nonce, gateway }) => {
                if self.is_proven(now, gateway, nonce, mac) {
                    self.table.remove(gateway);
                    self.remove_gone();
                } else {
                    self.counters.refused.forged += 1;
                }
            }
            Ok(Message::Advertisement { .. } | Message::Query { .. } | Message::Data { .. }) | Err(_) => {
                self.counters.refused.malformed += 1;
            }
        }
    }

    /// Records the levels that a gateway's receiver reports to a sender.
    fn on_report(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let Ok(RelayedReport { demand, mac, nonce, sender }) = RelayedReport::parse(datagram) else {
            self.counters.refused.malformed += 1;
            return;
        };
        if !self.is_proven(now, from, nonce, mac) || !self.table.receives(from, sender.ip()) {
            self.counters.refused.forged += 1;
        } else if self.demand.record(now, sender, demand) {
            self.counters.reports += 1;
        } else {
            self.counters.crowded += 1;
        }
    }

    /// Passes on a report to a roster, of a gateway's receiver, or a sender's reply.
    fn on_roster(&mut self, now: Instant, tunnel: InterfaceId, datagram: &Datagram<'_>) {
        let from = datagram.source;
        let Ok(RelayedRosterReport { report, mac, nonce, sender }) =
            RelayedRosterReport::parse(datagram.payload)
        else {
            self.counters.refused.malformed += u64::from(!self.roster.on_reply(now, datagram));
            return;
        };
        if !self.is_proven(now, from, nonce, mac) || !self.table.receives(from, sender.ip()) {
            self.counters.refused.forged += 1;
        } else if let Some(upstream) = self.tunnel_to(sender).filter(|_| self.demand.hears(now, sender)) {
            let is_passed = self.roster.on_report(now, (tunnel, from), (upstream, sender), report);
            self.counters.crowded += u64::from(!is_passed);
        }
    }

    /// Returns the interface whose socket sends to a host.
    fn tunnel_to(&self, host: SocketAddr) -> Option<InterfaceId> {
        let own = self.config.addresses.iter();
        own.enumerate().find(|(_, own)| own.is_ipv4() == host.is_ipv4()).map(|(index, _)| tunnel(index))
    }

    fn answer(&mut self, now: Instant, answer: Answer) {
        if self.answers.admits(now, answer.to.ip()) {
            self.counters.answers += 1;
            self.answers.push(answer);
        } else {
            self.counters.unanswered += 1;
        }
    }

    /// Whether a code was made for an address and a nonce in this minute or in the minute before.
    fn is_proven(&self, now: Instant, from: SocketAddr, nonce: u32, mac: Mac) -> bool {
        let before = now.as_nanos().checked_sub(KEY_TIME.as_nanos());
        let before = before.map(|nanos| Instant::ZERO + Duration::from_nanos(nanos));
        [Some(now), before].into_iter().flatten().any(|at| self.mac(at, from, nonce) == mac)
    }

    fn mac(&self, now: Instant, of: SocketAddr, nonce: u32) -> Mac {
        let word = self.words.word_of(now, of, nonce.into());
        *word.first_chunk().expect("a word has 8 bytes")
    }

    /// Forwards a packet of a group to each gateway that has joined the group.
    fn data(&mut self, now: Instant, port: u16, channel: ChannelId, datagram: &Datagram<'_>) {
        self.counters.packets += 1;
        self.demand.on_packet(now, datagram.source);
        let Some(group) = self.table.group(channel) else {
            self.counters.unwanted += 1;
            return;
        };
        let inner = InnerDatagram {
            source: datagram.source,
            destination: SocketAddr::new(group, port),
            ecn: datagram.ecn as u8,
            payload: datagram.payload,
        };
        let Some(bytes) = inner.emit(&mut self.room[DATA_HEADER_BYTES..]) else { return };
        put_data_header(&mut self.room);
        let packets_max = (COPIES_MAX / self.table.gateways().max(1)).min(WAITING_MAX);
        let message = &self.room[..DATA_HEADER_BYTES + bytes];
        let Some(packet) = self.egress.hold(message, packets_max) else { return };
        let (egress, mut copies) = (&mut self.egress, 0);
        self.table.forward(now, group, datagram.source.ip(), |gateway| {
            copies += 1;
            egress.send(now, packet, gateway, datagram.ecn);
        });
        self.egress.release(packet);
        self.counters.unwanted += u64::from(copies == 0);
    }

    fn tick(&mut self, now: Instant) {
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP;
            self.table.sweep(now);
            self.demand.sweep(now);
            self.remove_gone();
        }
        if self.next_look <= now {
            self.next_look = now + LOOK;
            let egress = &mut self.egress;
            self.table.look(now, |gateway| egress.take_drops(gateway));
        }
    }

    /// Empties the queues of gateways that are gone.
    fn remove_gone(&mut self) {
        while let Some(gateway) = self.table.poll_gone() {
            self.egress.remove(gateway);
        }
    }

    fn write_answer(&self, now: Instant, answer: Answer, buffer: &mut [u8]) -> Option<Transmit> {
        let mut query = [0; QUERY_BYTES_MAX];
        let Answer { to, nonce, kind, .. } = answer;
        let bytes = match kind {
            AnswerKind::Advertisement { relay } => Message::Advertisement { nonce, relay }.emit(buffer)?,
            AnswerKind::Query { is_mld, is_limited } => {
                let interval_s = u16::try_from(QUERY_INTERVAL.as_millis() / 1_000).unwrap_or(u16::MAX);
                let general = Query { is_mld, interval_s, robustness: ROBUSTNESS };
                let bytes = general.emit(self.query_source(is_mld), &mut query)?;
                let (mac, query) = (self.mac(now, to, nonce), &query[..bytes]);
                let gateway = Some(SocketAddr::new(to.ip().to_canonical(), to.port()));
                Message::Query { mac, nonce, is_limited, query, gateway }.emit(buffer)?
            }
        };
        Some(Transmit { destination: Destination::Unicast(to), bytes, ecn: Ecn::NotCapable })
    }

    #[cfg(test)]
    pub(super) fn mac_for_test(&self, now: Instant, of: SocketAddr, nonce: u32) -> Mac {
        self.mac(now, of, nonce)
    }

    fn query_source(&self, is_mld: bool) -> IpAddr {
        let own = self.config.addresses.iter().find(|address| address.is_ipv4());
        match is_mld {
            false => own.copied().unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            true => Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1).into(),
        }
    }
}

/// Between interfaces: [`tunnel`] for messages of gateways, and [`native`] for packets of groups, with the
/// channel of [`NativeMembership`]. Gateways are told apart by their addresses. The relay emits no joins: the
/// driver takes the memberships, which name sources, from [`Relay::poll_native`].
impl Machine for Relay {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.tick(now);
        let Input::Routed(ingress, datagram) = input else { return };
        let index = ingress.0 as usize;
        match (index.checked_sub(NATIVE_PORTS_MAX), datagram.channel) {
            (Some(address), None) => {
                if let Some(relay) = self.config.addresses.get(address) {
                    self.message(now, ingress, *relay, &datagram);
                }
            }
            (None, Some(channel)) => {
                if let Some(port) = self.config.ports.get(index) {
                    self.data(now, *port, channel, &datagram);
                }
            }
            _ => self.counters.refused.malformed += 1,
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        while let Some(answer) = self.answers.pop() {
            if let Some(transmit) = self.write_answer(now, answer, buffer) {
                return Some(Output::Router(RouterOutput::Transmit { egress: answer.tunnel, transmit }));
            }
        }
        while let Some((to, report)) = self.demand.pop(now) {
            // Without an address of the sender's IP version, no route leads there.
            let Some(egress) = self.tunnel_to(to) else { continue };
            let report = report.emit();
            buffer[..report.len()].copy_from_slice(&report);
            self.counters.reports_sent += 1;
            let destination = Destination::Unicast(to);
            let transmit = Transmit { destination, bytes: report.len(), ecn: Ecn::NotCapable };
            return Some(Output::Router(RouterOutput::Transmit { egress, transmit }));
        }
        if let Some((egress, transmit)) = self.roster.poll_transmit(buffer) {
            return Some(Output::Router(RouterOutput::Transmit { egress, transmit }));
        }
        while let Some(copy) = self.egress.next(now) {
            let bytes = self.egress.write(&copy, buffer);
            if let Some((to, egress)) = self.table.address(copy.egress) {
                let transmit = Transmit { destination: Destination::Unicast(to), bytes, ecn: copy.ecn };
                return Some(Output::Router(RouterOutput::Transmit { egress, transmit }));
            }
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sweep = (self.table.gateways() + self.demand.len() > 0).then_some(self.next_sweep);
        [self.egress.due(), self.demand.poll_timeout(), sweep].into_iter().flatten().min()
    }
}

/// Native membership by channel, for the driver.
pub(super) type Natives = VecDeque<NativeMembership>;
/// Channels by group, with the number of memberships of each group.
pub(super) type Channels = BTreeMap<IpAddr, (ChannelId, usize)>;
