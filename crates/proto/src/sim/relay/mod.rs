//! SIM's router on a host: forwards a session's groups from the upstream interface to downstream links,
//! through queues that mark, and merges reports on the way back.
//!
//! Downstream ends take the relay for the sender. Reports and announcements of subscribed groups go to the
//! source address of data, so each hop terminates the feedback from downstream, and knows nothing beyond the
//! next hop. A link always carries the bottom group, so that new receivers hear the session. A link carries
//! further groups while a downstream member announces a subscription. Reports to a roster are passed on as
//! they are, and the replies back (`roster/relay.rs`).
//!
//! | attempt by a stranger on a link | effect |
//! |---|---|
//! | forged, late, repeated, oversized reports | as at any router: see [`crate::sim`] |
//! | groups announced without subscribers | as by a forged join: sent for 7 s or while announced |
//! | announcing more and fewer groups in turn | more: followed at once; fewer: four times a second |
//! | announcing from ever new addresses | at most [`MEMBERS_MAX`] members, [`PORTS_MAX`] at an address |
//! | announcing more than the link carries | top groups are pruned: [`RelayConfig::with_pruning`] |
//! | sending on the groups | while the session is sent, only the first source is forwarded |
//!
//! On the link of a forged announcement, the groups without subscribers are marked in place of subscribed
//! groups. Known members keep the subscribed groups when new addresses are refused.
//!
//! At most [`SESSIONS_MAX`] blocks of groups, [`LINKS_MAX`] links and [`crate::bcfs::relay::WAITING_MAX`]
//! queued packets.

use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use headwater_wire::lct;
use headwater_wire::roster::is_roster;
use headwater_wire::sim::{Data, Holding, SimReport};
use serde::Serialize;

pub use crate::egress::EgressShape;

use super::selection::{EVERY, Teller};
use super::{AggregationRouter, GROUPS_MAX, RouterConfig, Trust};
use crate::egress::overload::{self, LOOK, Overload, PRUNED};
use crate::egress::{Egress, EgressCounters, WAITING_MAX};
use crate::machine::{
    ChannelId, Datagram, Destination, Input, InterfaceId, Machine, Output, RouterOutput, Transmit,
};
use crate::queue::{ParameterError, PriorityConfig, QueueConfig};
use crate::rng::Seed;
use crate::roster::relay::RelayedReports;
use crate::time::{Duration, Instant};

/// Maximum number of blocks of groups that a relay forwards.
pub const SESSIONS_MAX: usize = 16;
/// Maximum number of links downstream of a relay.
pub const LINKS_MAX: usize = 64;
/// The interface that receives sessions.
pub const UPSTREAM: InterfaceId = InterfaceId(0);
/// Number of bits of a channel's number that hold the rank; the remaining bits hold the block of groups.
const RANK_BITS: u8 = 6;
/// Time between two sweeps for silent members and for groups without subscribers.
const SWEEP: Duration = Duration::from_millis(250);

/// Returns the interface of a downstream link, counted from 0.
#[expect(clippy::cast_possible_truncation, reason = "there are at most `LINKS_MAX`")]
pub const fn below(link: usize) -> InterfaceId {
    InterfaceId(1 + link as u32)
}

/// Returns the channel of a rank in a block of groups, as numbered by a relay's driver.
#[expect(clippy::cast_possible_truncation, reason = "there are at most `SESSIONS_MAX`")]
pub const fn channel(block: usize, rank: u16) -> ChannelId {
    ChannelId((block as u16) << RANK_BITS | rank)
}

/// Returns a channel's block of groups, and the rank in the block.
pub const fn place(channel: ChannelId) -> (usize, u16) {
    ((channel.0 >> RANK_BITS) as usize, channel.0 & ((1 << RANK_BITS) - 1))
}

/// Makes a priority queue tell groups apart by the relay's channels, regardless of the groups' addresses.
fn ranked(shape: EgressShape) -> EgressShape {
    match shape.queue {
        QueueConfig::Priority(config) => {
            let config = PriorityConfig { rank_bits: RANK_BITS, ..config };
            EgressShape { queue: QueueConfig::Priority(config), ..shape }
        }
        _ => shape,
    }
}

/// Counters of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RelayCounters {
    /// Packets received from the sessions.
    pub packets: u64,
    /// Packets on the groups that are not SIM's, or that arrived on another group than the packet names.
    pub malformed: u64,
    /// Packets on the groups from other sessions or other senders.
    pub strangers: u64,
    /// Counters of the links.
    pub egress: EgressCounters,
    /// Reports taken from links.
    pub reports: u64,
    /// Merged reports sent upstream.
    pub merged: u64,
    /// Reports refused, and other datagrams that are not reports: see [`crate::sim::Refused`].
    pub refused: u64,
    /// Announcements of subscribed groups by members.
    pub holdings: u64,
    /// Announcements by members that the table had no room for.
    pub crowded: u64,
    /// Announcements of more groups than the relay carries of a session: the relay should carry as many
    /// groups as the sender has.
    pub beyond: u64,
    /// Groups pruned from links whose queues dropped too much.
    pub pruned: u64,
    /// Reports to a roster, and replies, passed on.
    pub passed: u64,
    /// Number of downstream members.
    pub members: usize,
    /// Maximum number of groups of a session with downstream subscribers.
    pub groups: u16,
}

/// A relay of SIM; see the top of the module.
#[derive(Debug)]
pub struct Relay {
    config: RelayConfig,
    sessions: Vec<SimRelaySession>,
    members: Members,
    roster: RelayedReports,
    /// Number of groups that links carry, by link and session.
    tops: Vec<Vec<u16>>,
    egress: Egress,
    /// Pending joins and leaves: between two sweeps each group is joined at most once, and left at most once.
    changes: VecDeque<Output<Infallible>>,
    next_sweep: Instant,
    /// By link.
    pruning: Vec<Pruning>,
    next_look: Instant,
    counters: RelayCounters,
}

/// State of a link whose members may announce more groups than the link carries.
#[derive(Clone, Debug, Default)]
struct Pruning {
    overload: Overload,
    /// Packets offered to the link since the last look, by session and rank.
    offered: Vec<Vec<u64>>,
    /// Maximum number of groups, by session, until an instant.
    limits: BTreeMap<usize, (u16, Instant)>,
}

impl Pruning {
    fn new(config: &RelayConfig) -> Self {
        Self { offered: vec![vec![0; config.groups.into()]; config.sessions], ..Self::default() }
    }

    /// Returns the number of groups of a session that the link carries of `wanted` groups.
    fn limited(&self, now: Instant, block: usize, wanted: u16) -> u16 {
        match self.limits.get(&block) {
            Some((most, until)) if *until > now => wanted.min(*most),
            _ => wanted,
        }
    }
}

impl Relay {
    /// Creates a relay that joins the bottom group of each block.
    ///
    /// # Errors
    /// A queue with an invalid parameter.
    pub fn new(config: RelayConfig, now: Instant) -> Result<Self, ParameterError> {
        let mut egress = Egress::new(None, config.seed)?;
        for (link, shape) in config.links.iter().enumerate() {
            egress.set_shape(below(link), shape.map(ranked))?;
        }
        let session = |_| SimRelaySession::new(&config);
        let mut relay = Self {
            sessions: (0..config.sessions).map(session).collect(),
            members: Members::default(),
            roster: RelayedReports::new(),
            tops: vec![vec![0; config.sessions]; config.links.len()],
            egress,
            changes: VecDeque::new(),
            next_sweep: now + SWEEP,
            pruning: vec![Pruning::new(&config); config.links.len()],
            next_look: now + LOOK,
            counters: RelayCounters::default(),
            config,
        };
        (0..relay.sessions.len()).for_each(|block| relay.follow(now, block, true));
        Ok(relay)
    }

    /// Returns the counters.
    pub fn counters(&self) -> RelayCounters {
        let routers = self.sessions.iter().map(|session| *session.router.counters());
        let (merged, late) =
            routers.fold((0, 0), |(sent, refused), of| (sent + of.sent, refused + of.refused));
        RelayCounters {
            egress: *self.egress.counters(),
            merged,
            refused: self.counters.refused + late,
            passed: self.roster.passed(),
            members: self.members.len(),
            groups: self.sessions.iter().map(|session| session.held).max().unwrap_or(0),
            ..self.counters
        }
    }

    /// Returns the source of a block's session, once a packet has arrived.
    pub fn source(&self, block: usize) -> Option<IpAddr> {
        self.sessions.get(block)?.source()
    }

    /// Returns the number of a block's groups that a link carries.
    pub fn top(&self, link: usize, block: usize) -> u16 {
        self.tops.get(link).and_then(|tops| tops.get(block)).copied().unwrap_or(0)
    }

    /// Returns the number of a block's groups that are joined upstream.
    pub fn held(&self, block: usize) -> u16 {
        self.sessions.get(block).map_or(0, |session| session.held)
    }

    /// Handles a packet on the groups.
    fn data(&mut self, now: Instant, datagram: &Datagram<'_>, channel: ChannelId) {
        let (block, rank) = place(channel);
        let Some(session) = self.sessions.get_mut(block) else { return };
        let Some(tsi) = tsi_of(datagram.payload, rank).filter(|_| rank < self.config.groups) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(is_new) = session.takes(now, &self.config, datagram.source, tsi) else {
            self.counters.strangers += 1;
            return;
        };
        self.counters.packets += 1;
        session.router.handle(now, Input::Routed(UPSTREAM, *datagram));
        if is_new {
            self.members.forget_session(block);
            self.follow(now, block, true);
        }
        self.forward(now, datagram, channel);
    }

    fn forward(&mut self, now: Instant, datagram: &Datagram<'_>, channel: ChannelId) {
        let (block, rank) = place(channel);
        if self.tops.iter().all(|tops| tops[block] <= rank) {
            return;
        }
        let Some(packet) = self.egress.hold(datagram.payload, WAITING_MAX) else { return };
        for (link, tops) in self.tops.iter().enumerate() {
            if rank < tops[block] {
                self.pruning[link].offered[block][usize::from(rank)] += 1;
                self.egress.send_to(now, packet, below(link), datagram.ecn, Some(channel));
            }
        }
        self.egress.release(packet);
    }

    /// Handles a datagram from a downstream link.
    fn feedback(&mut self, now: Instant, link: usize, datagram: &Datagram<'_>) {
        if is_roster(datagram.payload) {
            let is_passed = self.sender_of(link, datagram.source).is_some_and(|sender| {
                self.roster.on_report(
                    now,
                    (below(link), datagram.source),
                    (UPSTREAM, sender),
                    datagram.payload,
                )
            });
            self.counters.refused += u64::from(!is_passed);
        } else if let Ok(report) = SimReport::parse(datagram.payload) {
            self.report(now, link, datagram, &report);
        } else if let Ok(holding) = Holding::parse(datagram.payload) {
            self.holding(now, link, datagram, holding);
        } else {
            self.counters.refused += 1;
        }
    }

    fn report(&mut self, now: Instant, link: usize, datagram: &Datagram<'_>, report: &SimReport) {
        let Some(block) = self.block_of(report.group.session) else {
            self.counters.refused += 1;
            return;
        };
        let router = &mut self.sessions[block].router;
        let before = router.counters().taken;
        router.handle(now, Input::Routed(below(link), *datagram));
        self.counters.reports += router.counters().taken - before;
    }

    fn holding(&mut self, now: Instant, link: usize, datagram: &Datagram<'_>, holding: Holding) {
        let Some(block) = self.block_of(holding.session) else {
            self.counters.refused += 1;
            return;
        };
        self.counters.holdings += 1;
        let most = u8::try_from(self.config.groups).unwrap_or(u8::MAX);
        self.counters.beyond += u64::from(holding.groups > most);
        let place = (link, block);
        if !self.members.tell(now, place, datagram.source, holding.groups.min(most)) {
            self.counters.crowded += 1;
        } else if self.members.top(place) > self.tops[link][block] {
            // Groups without subscribers are left at the next sweep, so alternating announcements of more and
            // fewer groups cause at most a single join per sweep interval.
            self.follow(now, block, false);
        }
    }

    /// Returns the sender of the session of a member, or of the only session: reports to a roster name none.
    fn sender_of(&self, link: usize, member: SocketAddr) -> Option<SocketAddr> {
        let of_member = (0..self.sessions.len()).find(|block| self.members.is_known((link, *block), member));
        match of_member {
            Some(block) => self.sessions[block].sender(),
            None => {
                let mut senders = self.sessions.iter().filter_map(SimRelaySession::sender);
                senders.next().filter(|_| senders.next().is_none())
            }
        }
    }

    fn block_of(&self, number: u32) -> Option<usize> {
        self.sessions.iter().position(|session| session.number() == Some(number))
    }

    /// Makes links and upstream carry the groups of a block that members are subscribed to. Unless
    /// `may_fall`, links also keep the groups already carried.
    fn follow(&mut self, now: Instant, block: usize, may_fall: bool) {
        let mut most = 1;
        for link in 0..self.tops.len() {
            let before = self.tops[link][block];
            let least = if may_fall { 1 } else { before };
            let top = self.members.top((link, block)).max(least);
            let top = self.pruning[link].limited(now, block, top);
            most = most.max(top);
            self.tops[link][block] = top;
            for (rank, is_more) in steps(before, top) {
                self.egress.membership(now, below(link), channel(block, rank), is_more);
            }
        }
        let session = &mut self.sessions[block];
        let before = core::mem::replace(&mut session.held, most);
        for (rank, is_more) in steps(before, most) {
            self.changes.push_back(match is_more {
                true => Output::Join(channel(block, rank)),
                false => Output::Leave(channel(block, rank)),
            });
        }
        session.teller.hold(now, most);
    }

    /// Looks at the drops of a link's queue. If the queue has dropped too much for some looks in a row,
    /// prunes the top groups of each session that the link does not carry.
    fn look(&mut self, now: Instant, link: usize) {
        let (offered, dropped) = self.egress.take_drops(below(link));
        let pruning = &mut self.pruning[link];
        let is_due = pruning.overload.look(offered, dropped);
        for (block, (ranks, top)) in pruning.offered.iter_mut().zip(&self.tops[link]).enumerate() {
            // A link always carries the bottom group.
            let carried = overload::carried(ranks.iter().copied(), offered - dropped, offered).max(1);
            let carried = u16::try_from(carried).unwrap_or(u16::MAX);
            if is_due && carried < *top {
                pruning.limits.insert(block, (carried, now + PRUNED));
                self.counters.pruned += u64::from(top - carried);
            }
            ranks.fill(0);
        }
        if is_due {
            (0..self.sessions.len()).for_each(|block| self.follow(now, block, true));
        }
    }

    fn tick(&mut self, now: Instant) {
        for session in &mut self.sessions {
            if session.router.poll_timeout().is_some_and(|at| at <= now) {
                session.router.handle(now, Input::Timeout);
            }
        }
        if self.config.prunes && self.next_look <= now {
            self.next_look = now + LOOK;
            (0..self.tops.len()).for_each(|link| self.look(now, link));
        }
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP;
            self.members.sweep(now);
            (0..self.sessions.len()).for_each(|block| self.follow(now, block, true));
        }
    }
}

/// Returns the steps from `before` to `after` groups: ranks to join upwards, or to leave downwards.
fn steps(before: u16, after: u16) -> impl Iterator<Item = (u16, bool)> {
    let left = (after..before).rev().map(|rank| (rank, false));
    (before..after).map(|rank| (rank, true)).chain(left)
}

/// Returns the TSI of a packet on the group of `rank`; `None` for a packet that is not SIM's, or is of
/// another rank.
fn tsi_of(payload: &[u8], rank: u16) -> Option<u64> {
    let packet = lct::Packet::new_checked(payload).ok()?;
    let data = Data::parse(packet.cci()).ok()?;
    packet.tsi().filter(|_| u16::from(data.rank) == rank)
}

/// Between interfaces: [`UPSTREAM`] and [`below`]. Datagrams on groups carry a [`channel`], and arrive on
/// [`UPSTREAM`]. Datagrams to this end's own address carry no channel, and arrive on the link's interface;
/// replies to reports of a roster arrive on [`UPSTREAM`].
/// All other datagrams are refused.
impl Machine for Relay {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.tick(now);
        let Input::Routed(ingress, datagram) = input else { return };
        match (datagram.channel, (ingress.0 as usize).checked_sub(1)) {
            (Some(channel), None) => self.data(now, &datagram, channel),
            (None, Some(link)) if link < self.tops.len() => self.feedback(now, link, &datagram),
            (None, None) if self.roster.on_reply(now, &datagram) => {}
            _ => self.counters.refused += 1,
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        if let Some(change) = self.changes.pop_front() {
            return Some(change);
        }
        for session in &mut self.sessions {
            // A packet to pass was already forwarded, or is dropped.
            while let Some(output) = session.router.poll_output(now, buffer) {
                if let Output::Router(RouterOutput::Transmit { transmit, .. }) = output {
                    return Some(Output::Router(RouterOutput::Transmit { egress: UPSTREAM, transmit }));
                }
            }
            if let Some(transmit) = session.teller.poll_transmit(now, buffer) {
                return Some(Output::Router(RouterOutput::Transmit { egress: UPSTREAM, transmit }));
            }
        }
        if let Some((egress, transmit)) = self.roster.poll_transmit(buffer) {
            return Some(Output::Router(RouterOutput::Transmit { egress, transmit }));
        }
        let copy = self.egress.next(now)?;
        let bytes = self.egress.write(&copy, buffer);
        let destination = Destination::Channel(copy.channel.unwrap_or_default());
        let transmit = Transmit { destination, bytes, ecn: copy.ecn };
        Some(Output::Router(RouterOutput::Transmit { egress: copy.egress, transmit }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sessions =
            self.sessions.iter().flat_map(|session| [session.router.poll_timeout(), session.teller.due()]);
        let is_due = self.members.len() > 0 || self.sessions.iter().any(|session| session.held > 1);
        let sweep = is_due.then_some(self.next_sweep);
        sessions.chain([self.egress.due(), sweep]).flatten().min()
    }
}

/// Configuration of a `Relay`.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    pub(super) sessions: usize,
    pub(super) groups: u16,
    pub(super) links: Vec<Option<EgressShape>>,
    pub(super) trust: Trust,
    pub(super) seed: Seed,
    pub(super) prunes: bool,
    pub(super) limits_networks: bool,
}

impl RelayConfig {
    /// Creates a configuration for `sessions` blocks of groups, 1 to [`SESSIONS_MAX`], each for a session of
    /// at most `groups` groups, 1 to [`GROUPS_MAX`]. `links` are the downstream links with their shapes, at
    /// most [`LINKS_MAX`]. A link without a shape forwards packets at once.
    pub fn new(sessions: usize, groups: u16, mut links: Vec<Option<EgressShape>>, seed: Seed) -> Self {
        links.truncate(LINKS_MAX);
        Self {
            sessions: sessions.clamp(1, SESSIONS_MAX),
            groups: groups.clamp(1, GROUPS_MAX),
            links,
            trust: Trust::Nobody,
            seed,
            prunes: false,
            limits_networks: false,
        }
    }

    /// Whether a link whose queue drops more than a quarter of the packets for 3 s loses, for 30 s, the top
    /// groups that the link does not carry. Default: no.
    #[must_use]
    pub const fn with_pruning(mut self, prunes: bool) -> Self {
        self.prunes = prunes;
        self
    }

    /// Whether a network has at most 8 writers of reports. Default: no.
    #[must_use]
    pub const fn with_network_limit(mut self, limits: bool) -> Self {
        self.limits_networks = limits;
        self
    }

    /// Sets the downstream relays. Reports of a relay speak for many receivers. Default: no relay; each
    /// report counts as a single receiver.
    #[must_use]
    pub fn with_relays(mut self, relays: Vec<IpAddr>) -> Self {
        self.trust = Trust::Hosts(relays);
        self
    }
}

/// Time without a packet of the session after which another source on the groups is accepted.
const SOURCE_SILENCE: Duration = Duration::from_secs(5);

/// Source and TSI of a session.
#[derive(Clone, Copy, Debug)]
struct SessionSource {
    from: IpAddr,
    tsi: u64,
    at: Instant,
}

#[derive(Debug)]
pub(super) struct SimRelaySession {
    heard: Option<SessionSource>,
    pub router: AggregationRouter,
    pub teller: Teller,
    /// Number of groups joined upstream.
    pub held: u16,
}

impl SimRelaySession {
    pub fn new(config: &RelayConfig) -> Self {
        Self { heard: None, router: aggregation(config, 0), teller: Teller::new(0), held: 0 }
    }

    /// Returns the session's number in feedback, once a packet has arrived.
    pub fn number(&self) -> Option<u32> {
        self.heard.map(|heard| number(heard.tsi))
    }

    pub fn source(&self) -> Option<IpAddr> {
        self.heard.map(|heard| heard.from)
    }

    /// Returns the address that the session's packets come from.
    pub fn sender(&self) -> Option<SocketAddr> {
        self.teller.source()
    }

    /// Returns whether a packet begins a new session on the block; `None` if the packet is not of the block's
    /// session, which is the first session received.
    pub fn takes(&mut self, now: Instant, config: &RelayConfig, from: SocketAddr, tsi: u64) -> Option<bool> {
        let is_same = self.heard.is_some_and(|heard| (heard.from, heard.tsi) == (from.ip(), tsi));
        if !is_same && self.heard.is_some_and(|heard| now.since(heard.at) < SOURCE_SILENCE) {
            return None;
        }
        self.heard = Some(SessionSource { from: from.ip(), tsi, at: now });
        if !is_same {
            self.router = aggregation(config, number(tsi));
            self.teller = Teller::new(number(tsi));
            self.teller.hold(now, self.held);
        }
        self.teller.heard(now, from);
        Some(!is_same)
    }
}

/// Returns the low 24 bits, as the sender does.
fn number(tsi: u64) -> u32 {
    u32::try_from(tsi & 0x00FF_FFFF).unwrap_or(0)
}

fn aggregation(config: &RelayConfig, number: u32) -> AggregationRouter {
    let router = RouterConfig::new(number, config.groups)
        .with_trust(config.trust.clone())
        .with_network_limit(config.limits_networks);
    AggregationRouter::new(router, config.seed)
}

/// Maximum number of downstream receivers and relays that a relay knows at a time. Further members wait until
/// a known member has left or fallen silent.
pub const MEMBERS_MAX: usize = 1 << 14;
/// Maximum number of members at an address, for a session on a link: programs on a host, or hosts behind an
/// address translator.
pub const PORTS_MAX: usize = 16;
/// Time without an announcement after which a member counts as unsubscribed: three announcements were missed.
const MEMBER_SILENCE: Duration = Duration::from_nanos(7 * EVERY.as_nanos() / 2);

/// A link and a session on the link.
type Place = (usize, usize);

#[derive(Clone, Copy, Debug)]
struct Member {
    groups: u8,
    told: Instant,
}

/// The members of all links and sessions. Memory: [`MEMBERS_MAX`] entries of some 60 bytes, and 260 bytes for
/// each session and link with members.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    table: BTreeMap<(Place, SocketAddr), Member>,
    /// Number of members by number of subscribed groups.
    counts: BTreeMap<Place, [u32; GROUPS_MAX as usize + 1]>,
}

impl Members {
    /// Records an announcement of `groups` subscribed groups, at most [`GROUPS_MAX`]. Returns false if there
    /// is no room for a new member.
    pub fn tell(&mut self, now: Instant, place: Place, who: SocketAddr, groups: u8) -> bool {
        if groups == 0 {
            self.remove((place, who));
            return true;
        }
        let is_known = self.table.contains_key(&(place, who));
        if !is_known && (self.table.len() == MEMBERS_MAX || self.at(place, who.ip()) == PORTS_MAX) {
            return false;
        }
        let before = self.table.insert((place, who), Member { groups, told: now });
        let counts = self.counts.entry(place).or_insert([0; _]);
        counts[usize::from(groups)] += 1;
        if let Some(before) = before {
            counts[usize::from(before.groups)] -= 1;
        }
        true
    }

    /// Whether a member of a place is known.
    pub fn is_known(&self, place: Place, who: SocketAddr) -> bool {
        self.table.contains_key(&(place, who))
    }

    /// Returns the number of members at an address, at most [`PORTS_MAX`].
    fn at(&self, place: Place, host: IpAddr) -> usize {
        let [first, last] = [0, u16::MAX].map(|port| (place, SocketAddr::new(host, port)));
        self.table.range(first..=last).take(PORTS_MAX).count()
    }

    /// Returns the maximum number of groups that any member at `place` is subscribed to.
    pub fn top(&self, place: Place) -> u16 {
        let Some(counts) = self.counts.get(&place) else { return 0 };
        let top = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        u16::try_from(top).unwrap_or(u16::MAX)
    }

    /// Number of known members.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Forgets members that fell silent.
    pub fn sweep(&mut self, now: Instant) {
        self.forget(|_, member| now.since(member.told) >= MEMBER_SILENCE);
    }

    /// Forgets the members of a session.
    pub fn forget_session(&mut self, session: usize) {
        self.forget(|(_, of), _| of == session);
    }

    fn forget(&mut self, is_gone: impl Fn(Place, &Member) -> bool) {
        let gone = self.table.iter().filter(|((place, _), member)| is_gone(*place, member));
        for key in gone.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: (Place, SocketAddr)) {
        let Some(member) = self.table.remove(&key) else { return };
        let Some(counts) = self.counts.get_mut(&key.0) else { return };
        counts[usize::from(member.groups)] -= 1;
        if counts.iter().all(|count| *count == 0) {
            self.counts.remove(&key.0);
        }
    }
}
