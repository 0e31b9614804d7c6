//! Gateway of AMT: finds the relay, requests queries, and reports memberships.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use headwater_wire::amt::demand::RelayedReport;
use headwater_wire::amt::membership::{
    Query, RECORD_BYTES_MAX, REPORT_HEADER_BYTES_MAX, RecordKind, emit_report,
};
use headwater_wire::amt::roster::{RELAYED_BYTES_MAX, RelayedRosterReport};
use headwater_wire::amt::{Mac, Message, UPDATE_HEADER_BYTES};
use headwater_wire::rtt::Demand;
use rand::Rng;

use super::{GROUPS_MAX, Membership, QUERY_INTERVAL, ROBUSTNESS};
use crate::machine::{Destination, Ecn, Input, Machine, Output, Transmit};
use crate::rng::{Seed, Stream, unit};
use crate::time::{Duration, Instant};

/// First wait for an answer; each further wait is twice as long.
const RETRY_FIRST: Duration = Duration::from_millis(500);
/// Longest wait for an answer: a relay that comes back is found within 5 s.
const RETRY_MAX: Duration = Duration::from_secs(4);
/// Discoveries without an answer after which a request goes to the address as given: some relays at a
/// configured address answer requests alone.
const DISCOVERIES_MAX: u32 = 3;
/// Requests without an answer after which the relay is looked for anew.
const REQUESTS_MAX: u32 = 4;
/// The same for an advertised address that never answered: relays behind address translators advertise
/// addresses that cannot be reached.
const UNTRIED_REQUESTS_MAX: u32 = 2;
/// Time without data after which a gateway that got data requests a query: a restarted relay knows no
/// gateway.
const SILENCE: Duration = Duration::from_secs(2);
/// Time between two reports of the same change.
const REPEAT: Duration = Duration::from_millis(250);
/// Longest time between queries that a relay may ask for.
const INTERVAL_MAX: Duration = Duration::from_secs(125);
const INTERVAL_MIN: Duration = Duration::from_secs(5);
/// Wait after a relay that takes no new gateways.
const LIMITED: Duration = Duration::from_secs(10);
/// Most changes that wait to be reported; a relay forgets a group whose leave was not reported by itself.
const CHANGES_MAX: usize = 2 * GROUPS_MAX;
/// Most records of an update, so that an update fits 1 280 bytes with the headers of IPv6.
const RECORDS_MAX: usize = 30;
const UPDATE_BYTES_MAX: usize =
    UPDATE_HEADER_BYTES + REPORT_HEADER_BYTES_MAX + RECORDS_MAX * RECORD_BYTES_MAX;
const _: () = assert!(UPDATE_BYTES_MAX + 48 <= 1_280);

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    relay: SocketAddr,
    is_ipv6: bool,
    seed: Seed,
}

impl GatewayConfig {
    /// Creates a configuration for a relay, or for an address at which relays answer discoveries. `is_ipv6`
    /// is whether the groups are IPv6 groups; the relay's address may be of the other version.
    pub const fn new(relay: SocketAddr, is_ipv6: bool, seed: Seed) -> Self {
        Self { relay, is_ipv6, seed }
    }
}

/// News of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayEvent {
    /// The relay answered for the first time, or after a silence.
    Connected {
        /// Address of the relay.
        relay: SocketAddr,
    },
    /// The relay does not answer; the gateway continues to ask.
    Silent {
        /// Address of the relay.
        relay: SocketAddr,
    },
    /// The relay takes no new gateways; the gateway continues to ask.
    Limited {
        /// Address of the relay.
        relay: SocketAddr,
    },
}

/// Gateway for the groups of one IP version. Memory: at most 256 groups, 512 changes, and the messages of a
/// report: 64 kB.
#[derive(Debug)]
pub struct Gateway {
    config: GatewayConfig,
    chance: Stream,
    /// Destination of requests, and only source of queries and data.
    relay: SocketAddr,
    /// Whether the relay's advertised address did not answer, so that the configured address is asked.
    is_advertised_bad: bool,
    memberships: BTreeMap<IpAddr, Option<IpAddr>>,
    /// Changes that were not reported often enough.
    changes: BTreeMap<Membership, Change>,
    waiting: Option<Waiting>,
    /// Waits since the last answer.
    waits: u32,
    proof: Option<Proof>,
    refresh_at: Option<Instant>,
    report_at: Option<Instant>,
    /// Time of the last data, and the silence after which a query is requested.
    data: Option<(Instant, Duration)>,
    is_connected: bool,
    outputs: VecDeque<Output<GatewayEvent>>,
    messages: VecDeque<(SocketAddr, Vec<u8>)>,
}

/// Change of a membership that is still to be reported.
#[derive(Clone, Copy, Debug)]
struct Change {
    is_join: bool,
    times: u8,
}

/// Message whose answer is awaited.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    is_discovery: bool,
    nonce: u32,
    tries: u32,
    at: Instant,
}

/// Answer of the relay that updates refer to.
#[derive(Clone, Copy, Debug)]
struct Proof {
    mac: Mac,
    nonce: u32,
    at: Instant,
    interval: Duration,
    /// Number of reports of a change that the relay asks for.
    robustness: u8,
    /// Address of the gateway as the relay sees it, if told.
    gateway: Option<SocketAddr>,
}

impl Gateway {
    /// Creates a gateway without memberships, which sends nothing.
    pub fn new(config: GatewayConfig) -> Self {
        Self {
            chance: config.seed.stream("amt/gateway", 0),
            relay: config.relay,
            is_advertised_bad: false,
            memberships: BTreeMap::new(),
            changes: BTreeMap::new(),
            waiting: None,
            waits: 0,
            proof: None,
            refresh_at: None,
            report_at: None,
            data: None,
            is_connected: false,
            outputs: VecDeque::new(),
            messages: VecDeque::new(),
            config,
        }
    }

    /// Returns the address that queries and data are accepted from.
    pub const fn relay(&self) -> SocketAddr {
        self.relay
    }

    /// Joins a group, from one source or from any. Returns false if the gateway has [`GROUPS_MAX`] groups.
    pub fn join(&mut self, now: Instant, group: IpAddr, source: Option<IpAddr>) -> bool {
        if self.memberships.get(&group) == Some(&source) {
            return true;
        }
        self.leave(now, group);
        if self.memberships.len() >= GROUPS_MAX {
            return false;
        }
        self.memberships.insert(group, source);
        self.change(now, (group, source), true);
        true
    }

    /// Leaves a group.
    pub fn leave(&mut self, now: Instant, group: IpAddr) {
        if let Some(source) = self.memberships.remove(&group) {
            self.change(now, (group, source), false);
        }
        if self.memberships.is_empty() {
            (self.refresh_at, self.data) = (None, None);
        }
    }

    /// Leaves all groups and reports the leaves at once, for a gateway that ends.
    pub fn close(&mut self, now: Instant) {
        for group in self.memberships.keys().copied().collect::<Vec<_>>() {
            self.leave(now, group);
        }
        self.waiting = None;
        // No later report repeats these.
        self.report_changes(now);
        self.report_changes(now);
        self.changes.clear();
        self.report_at = None;
    }

    /// Sends a report of a receiver's levels through the relay to the sender of a session. Before the first
    /// answer of the relay, nothing is sent: the receiver repeats a report without effect.
    pub fn report_demand(&mut self, sender: SocketAddr, demand: Demand) {
        if let Some(Proof { mac, nonce, .. }) = self.proof {
            let report = RelayedReport { demand, mac, nonce, sender };
            self.messages.push_back((self.relay, report.emit().to_vec()));
        }
    }

    /// Sends a report to a roster through the relay to the sender of a session. Before the first answer of
    /// the relay, nothing is sent: the receiver repeats a report without a reply.
    pub fn report_roster(&mut self, sender: SocketAddr, report: &[u8]) {
        if let Some(Proof { mac, nonce, .. }) = self.proof {
            let mut message = [0; RELAYED_BYTES_MAX];
            let length = RelayedRosterReport { report, mac, nonce, sender }.emit(&mut message);
            self.messages.extend(length.map(|length| (self.relay, message[..length].to_vec())));
        }
    }

    /// Notes that a data message of the relay has arrived.
    pub const fn on_data(&mut self, now: Instant) {
        self.data = Some((now, SILENCE));
    }

    fn change(&mut self, now: Instant, membership: Membership, is_join: bool) {
        if self.changes.len() >= CHANGES_MAX && !self.changes.contains_key(&membership) {
            let leave = self.changes.iter().find(|(_, change)| !change.is_join).map(|(key, _)| *key);
            leave.map(|key| self.changes.remove(&key));
        }
        let times = self.proof.map_or(ROBUSTNESS, |proof| proof.robustness);
        self.changes.insert(membership, Change { is_join, times });
        match self.proof.filter(|proof| now.since(proof.at) <= proof.interval) {
            Some(_) => self.report_at = Some(now),
            // An update with an old code would be ignored: the report follows the query.
            None if self.waiting.is_none() && is_join => self.begin(now),
            None => {}
        }
    }

    /// Requests a query, from a relay to be found first if none is known.
    fn begin(&mut self, now: Instant) {
        if self.is_connected { self.ask(now, false) } else { self.ask(now, !self.is_advertised_bad) }
    }

    fn ask(&mut self, now: Instant, is_discovery: bool) {
        if is_discovery {
            self.relay = self.config.relay;
        }
        let nonce = self.chance.next_u32();
        let at = now + self.wait();
        self.waiting = Some(Waiting { is_discovery, nonce, tries: 1, at });
        self.send_waiting();
    }

    fn send_waiting(&mut self) {
        let Some(Waiting { is_discovery, nonce, .. }) = self.waiting else { return };
        self.send(&match is_discovery {
            true => Message::Discovery { nonce },
            false => Message::Request { nonce, is_mld: self.config.is_ipv6 },
        });
    }

    /// Returns the wait for the next answer, up to a quarter longer by chance: gateways of a restarted relay
    /// do not ask at the same time.
    fn wait(&mut self) -> Duration {
        let wait = RETRY_FIRST.saturating_mul(1 << self.waits.min(8)).min(RETRY_MAX);
        self.waits += 1;
        wait + self.part_of(Duration::from_nanos(wait.as_nanos() / 4))
    }

    fn part_of(&mut self, time: Duration) -> Duration {
        Duration::from_secs_f64(time.as_secs_f64() * unit(&mut self.chance))
    }

    fn tick(&mut self, now: Instant) {
        if self.waiting.is_some_and(|waiting| waiting.at <= now) {
            self.on_silence(now);
        }
        let is_quiet = self.data.is_some_and(|(last, silence)| now.since(last) >= silence);
        let is_due = self.refresh_at.is_some_and(|at| at <= now);
        if self.waiting.is_none() && (is_quiet || is_due) {
            let longest = self.proof.map_or(QUERY_INTERVAL, |proof| proof.interval);
            if let Some((last, silence)) = self.data.filter(|_| is_quiet) {
                let longer = silence.saturating_mul(2);
                self.data = (longer < longest).then_some((last, longer));
            }
            self.refresh_at = None;
            self.waits = 0;
            self.begin(now);
        }
        if self.report_at.is_some_and(|at| at <= now) {
            self.report_changes(now);
        }
    }

    /// Handles the end of a wait for an answer.
    fn on_silence(&mut self, now: Instant) {
        let Some(waiting) = self.waiting else { return };
        if self.memberships.is_empty() {
            self.waiting = None;
            return;
        }
        let is_untried = !self.is_connected && self.relay != self.config.relay;
        let tries_max = match waiting.is_discovery {
            true => DISCOVERIES_MAX,
            false if is_untried => UNTRIED_REQUESTS_MAX,
            false => REQUESTS_MAX,
        };
        if waiting.tries < tries_max {
            let at = now + self.wait();
            self.waiting = Some(Waiting { tries: waiting.tries + 1, at, ..waiting });
            return self.send_waiting();
        }
        if waiting.is_discovery {
            self.outputs.push_back(Output::Event(GatewayEvent::Silent { relay: self.relay }));
            return self.ask(now, false);
        }
        self.is_advertised_bad = self.relay != self.config.relay;
        self.outputs.push_back(Output::Event(GatewayEvent::Silent { relay: self.relay }));
        self.is_connected = false;
        self.proof = None;
        self.relay = self.config.relay;
        self.ask(now, !self.is_advertised_bad);
    }

    fn on_message(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let Ok(message) = Message::parse(datagram) else { return };
        let Some(waiting) = self.waiting else { return };
        match message {
            Message::Advertisement { nonce, relay } if waiting.is_discovery && nonce == waiting.nonce => {
                self.waits = 0;
                self.relay = self.advertised(relay);
                self.ask(now, false);
            }
            Message::Query { nonce, mac, query, is_limited, gateway }
                if !waiting.is_discovery && nonce == waiting.nonce && from == self.relay =>
            {
                self.waits = 0;
                if is_limited {
                    self.outputs.push_back(Output::Event(GatewayEvent::Limited { relay: self.relay }));
                    self.waiting = Some(Waiting { at: now + LIMITED, ..waiting });
                    return;
                }
                self.waiting = None;
                self.on_query(now, mac, nonce, query, gateway);
            }
            _ => {}
        }
    }

    /// Returns the address of an advertised relay, or the configured address if the advertised address is no
    /// address for this gateway.
    fn advertised(&self, relay: IpAddr) -> SocketAddr {
        let asked = self.config.relay;
        let is_host = !relay.is_unspecified() && !relay.is_multicast();
        let is_of_kind =
            relay.is_ipv4() == asked.is_ipv4() && relay.is_loopback() == asked.ip().is_loopback();
        if is_host && is_of_kind { SocketAddr::new(relay, asked.port()) } else { asked }
    }

    fn on_query(&mut self, now: Instant, mac: Mac, nonce: u32, query: &[u8], gateway: Option<SocketAddr>) {
        let query = Query::parse(query).ok();
        let interval = query.map_or(INTERVAL_MAX, |query| Duration::from_secs(query.interval_s.into()));
        let interval = interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        let robustness = query.map_or(ROBUSTNESS, |query| query.robustness.min(ROBUSTNESS));
        if !self.is_connected {
            self.is_connected = true;
            self.outputs.push_back(Output::Event(GatewayEvent::Connected { relay: self.relay }));
        }
        let former = self.proof.replace(Proof { mac, nonce, at: now, interval, robustness, gateway });
        if let Some(Proof { mac, nonce, gateway: Some(former), .. }) = former
            && gateway.is_some_and(|gateway| gateway != former)
        {
            // An address translator has chosen another port: the tunnel to the former port ends.
            self.send(&Message::Teardown { mac, nonce, gateway: former });
        }
        let early = self.part_of(Duration::from_nanos(interval.as_nanos() / 10));
        self.refresh_at = Some(now + interval - early);
        self.report_all(now);
    }

    /// Reports all memberships, and changes that were not reported often enough.
    fn report_all(&mut self, now: Instant) {
        let record = |(group, source): (&IpAddr, &Option<IpAddr>)| {
            let kind = if source.is_some() { RecordKind::IsInclude } else { RecordKind::IsExclude };
            (kind, *group, *source)
        };
        let records = self.memberships.iter().map(record).collect::<Vec<_>>();
        self.send_reports(&records);
        if self.changes.is_empty() { self.report_at = None } else { self.report_changes(now) }
    }

    fn report_changes(&mut self, now: Instant) {
        let record = |(&(group, source), change): (&Membership, &Change)| {
            let kind = match (change.is_join, source) {
                (true, Some(_)) => RecordKind::Allow,
                (false, Some(_)) => RecordKind::Block,
                (true, None) => RecordKind::ToExclude,
                (false, None) => RecordKind::ToInclude,
            };
            (kind, group, source)
        };
        let records = self.changes.iter().map(record).collect::<Vec<_>>();
        self.send_reports(&records);
        self.changes.retain(|_, change| {
            change.times = change.times.saturating_sub(1);
            change.times > 0
        });
        self.report_at = (!self.changes.is_empty()).then(|| now + REPEAT);
    }

    fn send_reports(&mut self, records: &[(RecordKind, IpAddr, Option<IpAddr>)]) {
        let Some(Proof { mac, nonce, .. }) = self.proof else { return };
        // Hosts without an address report from 0.0.0.0 (RFC 3376, section 4.2.13); MLDv2 needs a link-local
        // address.
        let source: IpAddr = match self.config.is_ipv6 {
            false => Ipv4Addr::UNSPECIFIED.into(),
            true => Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 2).into(),
        };
        for records in records.chunks(RECORDS_MAX) {
            let mut packet = [0; UPDATE_BYTES_MAX];
            if let Some(bytes) = emit_report(source, records, &mut packet) {
                self.send(&Message::Update { mac, nonce, report: &packet[..bytes] });
            }
        }
    }

    fn send(&mut self, message: &Message<'_>) {
        let mut buffer = [0; UPDATE_BYTES_MAX];
        if let Some(bytes) = message.emit(&mut buffer) {
            self.messages.push_back((self.relay, buffer[..bytes].to_vec()));
        }
    }
}

/// The caller passes all datagrams of the relay but data messages, and reads the data messages itself.
impl Machine for Gateway {
    type Event = GatewayEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Datagram(datagram) = input {
            self.on_message(now, datagram.source, datagram.payload);
        }
        self.tick(now);
    }

    fn poll_output(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<Output<GatewayEvent>> {
        if let Some((to, message)) = self.messages.pop_front() {
            let bytes = message.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&message[..bytes]);
            let destination = Destination::Unicast(to);
            return Some(Output::Transmit(Transmit { destination, bytes, ecn: Ecn::NotCapable }));
        }
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.waiting.map(|waiting| waiting.at);
        let silence = self.data.filter(|_| waiting.is_none()).map(|(last, silence)| last + silence);
        let refresh = self.refresh_at.filter(|_| waiting.is_none());
        [waiting, silence, refresh, self.report_at].into_iter().flatten().min()
    }
}
