//! SIM's router on a host: what one interface hears of a session's groups goes out by others, through queues
//! that mark, and reports are merged on the way back.
//!
//! Whoever hears a relay takes it for the sender: reports, and what receivers tell of the groups that they
//! hold, go to where data comes from, so each hop ends what is below it, and knows nothing of what is beyond
//! the next. A link is sent the bottom group always, so that who comes hears the session, and further groups
//! while somebody below tells of them.
//!
//! | what strangers on a link may try | what becomes of it |
//! |---|---|
//! | forged, late, repeated, oversized reports | as at any router: see [`crate::sim`] |
//! | tell of groups that nobody holds | they are sent on that link, as by a forged join, for 7 s or as long as they tell, and marked there in place of those that are held |
//! | tell of more and of fewer in turn | who tells of more is followed at once, who tells of fewer four times a second |
//! | tell from ever other addresses | [`MEMBERS_MAX`] are known, [`PORTS_MAX`] at one address; those that are keep their groups |
//! | send on the groups themselves | while the session is sent, only who was heard first is forwarded |
//!
//! At most [`SESSIONS_MAX`] blocks of groups, [`LINKS_MAX`] links and [`crate::bcfs::relay::WAITING_MAX`]
//! packets that wait.

mod config;
mod members;
mod session;

use core::convert::Infallible;
use core::net::IpAddr;
use std::collections::VecDeque;

use headwater_wire::lct;
use headwater_wire::sim::{Data, Holding, Report};
use serde::Serialize;

pub use self::config::RelayConfig;
use self::members::Members;
pub use self::members::{MEMBERS_MAX, PORTS_MAX};
use self::session::Session;
pub use crate::egress::Shape;
use crate::egress::{Egress, EgressCounters, WAITING_MAX};
use crate::machine::{ChannelId, Datagram, Destination, Input, InterfaceId, Router, RouterOutput, Transmit};
use crate::queue::{ParameterError, PriorityConfig, QueueConfig};
use crate::time::{Duration, Instant};

/// Blocks of groups that a relay forwards.
pub const SESSIONS_MAX: usize = 16;
/// Links below a relay.
pub const LINKS_MAX: usize = 64;
/// The interface that sessions come by.
pub const UPSTREAM: InterfaceId = InterfaceId(0);
/// Bits of a channel's number that are the rank; the rest is the block of groups.
const RANK_BITS: u8 = 6;
/// Time between two looks for members that fell silent, and for groups that nobody holds any more.
const SWEEP: Duration = Duration::from_millis(250);

/// The interface of a link below, counted from 0.
#[expect(clippy::cast_possible_truncation, reason = "there are at most `LINKS_MAX`")]
pub const fn below(link: usize) -> InterfaceId {
    InterfaceId(1 + link as u32)
}

/// The channel of a rank in a block of groups, as a relay's driver numbers them.
#[expect(clippy::cast_possible_truncation, reason = "there are at most `SESSIONS_MAX`")]
pub const fn channel(block: usize, rank: u16) -> ChannelId {
    ChannelId((block as u16) << RANK_BITS | rank)
}

/// The block of groups of a channel, and the rank in it.
pub const fn place(channel: ChannelId) -> (usize, u16) {
    ((channel.0 >> RANK_BITS) as usize, channel.0 & ((1 << RANK_BITS) - 1))
}

/// Queues tell groups apart by their channels here, whatever their addresses are.
fn ranked(shape: Shape) -> Shape {
    match shape.queue {
        QueueConfig::Priority(config) => {
            let config = PriorityConfig { rank_bits: RANK_BITS, ..config };
            Shape { queue: QueueConfig::Priority(config), ..shape }
        }
        _ => shape,
    }
}

/// What a relay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RelayCounters {
    /// Packets of the sessions that came.
    pub packets: u64,
    /// Packets on the groups that are none of SIM, or of another group than they came on.
    pub malformed: u64,
    /// Packets of other sessions, or other senders, on the groups.
    pub strangers: u64,
    /// Its links.
    pub egress: EgressCounters,
    /// Reports of links that were taken.
    pub reports: u64,
    /// Reports that were sent on.
    pub merged: u64,
    /// Reports that were refused, and what else came that is no report: see [`crate::sim::Refused`].
    pub refused: u64,
    /// What members told of the groups that they hold.
    pub holdings: u64,
    /// Of those, tellings of members that there was no room for.
    pub crowded: u64,
    /// Of those, tellings of more groups than the relay carries of a session: it should carry as many as the
    /// sender has.
    pub beyond: u64,
    /// Members below.
    pub members: usize,
    /// Most groups of a session that somebody below holds.
    pub groups: u16,
}

/// A relay of SIM; see the top of the module.
#[derive(Debug)]
pub struct Relay {
    config: RelayConfig,
    sessions: Vec<Session>,
    members: Members,
    /// Groups that links are sent, by link and session.
    tops: Vec<Vec<u16>>,
    egress: Egress,
    /// Joins and leaves to come out: between two sweeps each group is joined at most once, and left once.
    changes: VecDeque<RouterOutput<Infallible>>,
    next_sweep: Instant,
    counters: RelayCounters,
}

impl Relay {
    /// A relay that has heard nothing, and holds the bottom group of each block.
    ///
    /// # Errors
    /// A queue of which a parameter makes no sense.
    pub fn new(config: RelayConfig, now: Instant) -> Result<Self, ParameterError> {
        let mut egress = Egress::new(None, config.seed)?;
        for (link, shape) in config.links.iter().enumerate() {
            egress.set_shape(below(link), shape.map(ranked))?;
        }
        let session = |_| Session::new(&config);
        let mut relay = Self {
            sessions: (0..config.sessions).map(session).collect(),
            members: Members::default(),
            tops: vec![vec![0; config.sessions]; config.links.len()],
            egress,
            changes: VecDeque::new(),
            next_sweep: now + SWEEP,
            counters: RelayCounters::default(),
            config,
        };
        (0..relay.sessions.len()).for_each(|block| relay.follow(now, block, true));
        Ok(relay)
    }

    /// What it did.
    pub fn counters(&self) -> RelayCounters {
        let routers = self.sessions.iter().map(|session| *session.router.counters());
        let (merged, late) =
            routers.fold((0, 0), |(sent, refused), of| (sent + of.sent, refused + of.refused));
        RelayCounters {
            egress: *self.egress.counters(),
            merged,
            refused: self.counters.refused + late,
            members: self.members.len(),
            groups: self.sessions.iter().map(|session| session.held).max().unwrap_or(0),
            ..self.counters
        }
    }

    /// Who sends the session of a block, once one is heard.
    pub fn source(&self, block: usize) -> Option<IpAddr> {
        self.sessions.get(block)?.source()
    }

    /// Groups of a block that a link is sent.
    pub fn top(&self, link: usize, block: usize) -> u16 {
        self.tops.get(link).and_then(|tops| tops.get(block)).copied().unwrap_or(0)
    }

    /// Groups of a block that are joined upstream.
    pub fn held(&self, block: usize) -> u16 {
        self.sessions.get(block).map_or(0, |session| session.held)
    }

    /// A packet on the groups.
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
        session.router.handle(now, UPSTREAM, Input::Datagram(*datagram));
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
                self.egress.send_to(now, packet, below(link), datagram.ecn, Some(channel));
            }
        }
        self.egress.release(packet);
    }

    /// What came by a link below.
    fn feedback(&mut self, now: Instant, link: usize, datagram: &Datagram<'_>) {
        if let Ok(report) = Report::parse(datagram.payload) {
            self.report(now, link, datagram, &report);
        } else if let Ok(holding) = Holding::parse(datagram.payload) {
            self.holding(now, link, datagram, holding);
        } else {
            self.counters.refused += 1;
        }
    }

    fn report(&mut self, now: Instant, link: usize, datagram: &Datagram<'_>, report: &Report) {
        let Some(block) = self.block_of(report.group.session) else {
            self.counters.refused += 1;
            return;
        };
        let router = &mut self.sessions[block].router;
        let before = router.counters().taken;
        router.handle(now, below(link), Input::Datagram(*datagram));
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
            // What nobody holds any more goes at the next sweep: who tells of more and less in turn brings
            // one join in that time.
            self.follow(now, block, false);
        }
    }

    fn block_of(&self, number: u32) -> Option<usize> {
        self.sessions.iter().position(|session| session.number() == Some(number))
    }

    /// Has links and the way up carry what members hold of a block; where it may not fall, what is carried
    /// already, too.
    fn follow(&mut self, now: Instant, block: usize, may_fall: bool) {
        let mut most = 1;
        for link in 0..self.tops.len() {
            let before = self.tops[link][block];
            let least = if may_fall { 1 } else { before };
            let top = self.members.top((link, block)).max(least);
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
                true => RouterOutput::Join(UPSTREAM, channel(block, rank)),
                false => RouterOutput::Leave(UPSTREAM, channel(block, rank)),
            });
        }
        session.teller.hold(now, most);
    }

    fn tick(&mut self, now: Instant) {
        for session in &mut self.sessions {
            if session.router.poll_timeout().is_some_and(|at| at <= now) {
                session.router.handle(now, UPSTREAM, Input::Timeout);
            }
        }
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP;
            self.members.sweep(now);
            (0..self.sessions.len()).for_each(|block| self.follow(now, block, true));
        }
    }
}

/// From so many groups to so many: ranks to be joined upwards, or to be left downwards.
fn steps(before: u16, after: u16) -> impl Iterator<Item = (u16, bool)> {
    let left = (after..before).rev().map(|rank| (rank, false));
    (before..after).map(|rank| (rank, true)).chain(left)
}

/// The session of a packet that came on the group of this rank; `None` for what is none of SIM.
fn tsi_of(payload: &[u8], rank: u16) -> Option<u64> {
    let packet = lct::Packet::new_checked(payload).ok()?;
    let data = Data::parse(packet.cci()).ok()?;
    packet.tsi().filter(|_| u16::from(data.rank) == rank)
}

/// Between interfaces: [`UPSTREAM`] and [`below`]. Datagrams on groups come with their [`channel`], by
/// whatever interface; those to this end's own address come with none, by the link.
impl Router for Relay {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, ingress: InterfaceId, input: Input<'_>) {
        self.tick(now);
        let Input::Datagram(datagram) = input else { return };
        match (datagram.channel, (ingress.0 as usize).checked_sub(1)) {
            (Some(channel), None) => self.data(now, &datagram, channel),
            (None, Some(link)) if link < self.tops.len() => self.feedback(now, link, &datagram),
            _ => self.counters.refused += 1,
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<RouterOutput<Infallible>> {
        if let Some(change) = self.changes.pop_front() {
            return Some(change);
        }
        for session in &mut self.sessions {
            // What passes was forwarded already, or is dropped.
            while let Some(output) = session.router.poll_output(now, buffer) {
                if let RouterOutput::Transmit { transmit, .. } = output {
                    return Some(RouterOutput::Transmit { egress: UPSTREAM, transmit });
                }
            }
            if let Some(transmit) = session.teller.poll_transmit(now, buffer) {
                return Some(RouterOutput::Transmit { egress: UPSTREAM, transmit });
            }
        }
        let copy = self.egress.next(now)?;
        let bytes = self.egress.write(&copy, buffer);
        let destination = Destination::Channel(copy.channel.unwrap_or_default());
        let transmit = Transmit { destination, bytes, ecn: copy.ecn };
        Some(RouterOutput::Transmit { egress: copy.egress, transmit })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sessions =
            self.sessions.iter().flat_map(|session| [session.router.poll_timeout(), session.teller.due()]);
        let is_due = self.members.len() > 0 || self.sessions.iter().any(|session| session.held > 1);
        let sweep = is_due.then_some(self.next_sweep);
        sessions.chain([self.egress.due(), sweep]).flatten().min()
    }
}
