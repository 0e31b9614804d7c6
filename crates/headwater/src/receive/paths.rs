//! Paths to a session beside multicast: the choice between them while the session runs.
//!
//! Packets come by multicast or, if the groups are silent for [`SILENT`], through an AMT relay or from a
//! source on request ([`PacketPath`]); a machine of its own receives each, and the folder keeps the content
//! between two machines. HTTP runs beside each ([`super::repair`]). While packets come by another path, the
//! base channel stays joined natively: the first packet leads back to multicast.
//!
//! Multicast that comes badly is compared with the AMT relay ([`super::comparison`]).
//!
//! The AMT relay is taken once a packet of the session has come through the tunnel, the source on request
//! once the source has answered. The relay has a lead of [`TUNNEL_LEAD`]: receivers behind relays cost the
//! sender nothing.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use headwater_proto::control::{Membership, ReceiverControl};
use headwater_proto::delivery::{DeliveryReceiver, ReceiverEvent};
use headwater_proto::rainbow::carrier;
use headwater_proto::{ChannelId, Instant};
use headwater_wire::bcfs::{Header, Kind, Label, Level, WORDED_BODY_BYTES_MIN};
use headwater_wire::lct;

use super::comparison::{PathComparison, PathCounters};
use super::session::ContentPort;
use super::tunnel::TunnelPath;
use super::watch::Watch;
use crate::driver::{Application, Port};
use crate::net::{LinkChange, ReceiverSocket, RecvBatch};
use crate::store::DiskStore;

/// Time without a packet after which other paths are tried.
pub(super) const SILENT: Duration = Duration::from_secs(3);
/// Time for which a source on request waits for a packet through the AMT relay.
const TUNNEL_LEAD: Duration = Duration::from_millis(500);
/// Time between two turns while the AMT relay is tried.
const TUNNEL_TURN: Duration = Duration::from_millis(50);
/// Time between two questions to a source on request.
const QUESTION_TIME: Duration = Duration::from_millis(500);
/// Time for which a source that brought nothing is not tried again.
const SOURCE_PAUSE: Duration = Duration::from_secs(30);
/// Bounds of the time for which packets on the groups are not believed after none was of the session: anybody
/// on the network can send there.
const GROUP_PAUSE_MIN: Duration = Duration::from_secs(6);
const GROUP_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Batches of the base channel that are read in a turn.
const BATCHES_PER_TURN: usize = 4;

/// Path by which content comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentPath {
    /// Packets of the groups.
    Multicast,
    /// Packets of the groups, through an AMT relay.
    Amt,
    /// Packets on request, from a source or a relay.
    Rainbow,
    /// Byte ranges from an HTTP server.
    Http,
}

impl ContentPath {
    /// Returns the name of the path in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Multicast => "multicast",
            Self::Amt => "amt",
            Self::Rainbow => carrier::NAME,
            Self::Http => "http",
        }
    }
}

/// Bytes by the path that they came by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesByPath {
    /// UDP payload of packets to the groups.
    pub multicast: u64,
    /// UDP payload of packets to the groups that came through an AMT relay.
    pub amt: u64,
    /// UDP payload of packets on request.
    pub rainbow: u64,
    /// Content from HTTP servers.
    pub http: u64,
}

impl BytesByPath {
    /// Adds the bytes of a machine whose packets came by `path`.
    pub(super) fn plus(mut self, path: ContentPath, packets: u64, http: u64) -> Self {
        match path {
            ContentPath::Multicast => self.multicast += packets,
            ContentPath::Amt => self.amt += packets,
            ContentPath::Rainbow => self.rainbow += packets,
            ContentPath::Http => {}
        }
        self.http += http;
        self
    }

    /// Returns the path of most bytes as in reports to a sender that keeps a roster.
    pub(super) fn roster_path(self) -> u8 {
        let by_code = [(self.multicast, 0), (self.amt, 1), (self.rainbow, 2), (self.http, 3)];
        by_code.into_iter().rev().max_by_key(|(bytes, _)| *bytes).map_or(0, |(_, code)| code)
    }
}

/// Path by which most of the needed content came in the last second.
#[derive(Debug, Default)]
pub(super) struct PathMeter {
    next: Instant,
    /// Needed symbols of packets and of servers at the last look.
    last: (u64, u64),
    path: Option<ContentPath>,
}

impl PathMeter {
    /// Time between two looks.
    const TIME: headwater_proto::Duration = headwater_proto::Duration::from_secs(1);

    /// Returns the path if it has changed. `packets` is the path of packets, `useful` the needed symbols of
    /// packets and of servers. A last look does not wait for its time.
    pub(super) fn look(
        &mut self,
        packets: ContentPath,
        useful: (u64, u64),
        (now, is_last): (Instant, bool),
    ) -> Option<ContentPath> {
        let (by_packets, by_servers) = (useful.0 - self.last.0, useful.1 - self.last.1);
        if by_packets + by_servers == 0 || (now < self.next && !is_last) {
            return None;
        }
        (self.next, self.last) = (now + Self::TIME, useful);
        let path = if by_packets >= by_servers { packets } else { ContentPath::Http };
        (self.path != Some(path)).then(|| *self.path.insert(path))
    }

    /// Begins with another machine, whose counters begin at 0.
    pub(super) fn restart(&mut self) {
        self.last = (0, 0);
    }
}

/// Path of packets, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketPath {
    Multicast,
    Amt,
    Rainbow,
    /// No packets: HTTP alone.
    Nothing,
}

impl PacketPath {
    pub(super) fn content(self) -> ContentPath {
        match self {
            Self::Multicast => ContentPath::Multicast,
            Self::Amt => ContentPath::Amt,
            Self::Rainbow => ContentPath::Rainbow,
            Self::Nothing => ContentPath::Http,
        }
    }
}

/// Choice of the path of packets.
#[derive(Debug)]
pub(super) struct PathSwitch {
    /// Path while neither the AMT relay nor the source on request is in use.
    home: PacketPath,
    current: PacketPath,
    /// Beginning of the current path.
    since: Instant,
    source: Option<SourceProbe>,
    source_not_before: Instant,
    /// Identifier of the session on the groups.
    tsi: Option<u64>,
    /// Whether a packet on the base channel led back to multicast, and none of the session has come since.
    is_doubtful: bool,
    group_pause: Duration,
    group_not_before: Instant,
    comparison: PathComparison,
    batch: RecvBatch,
    next: Option<PacketPath>,
}

impl PathSwitch {
    pub(super) fn new(home: PacketPath, source: Option<SourceProbe>, tsi: Option<u64>, now: Instant) -> Self {
        Self {
            home,
            current: home,
            since: now,
            source,
            source_not_before: now,
            tsi,
            is_doubtful: false,
            group_pause: Duration::ZERO,
            group_not_before: now,
            comparison: PathComparison::new(false),
            batch: RecvBatch::new(),
            next: None,
        }
    }

    /// Sets whether the groups are received on a wireless interface.
    pub(super) fn on_wireless(mut self, is_wireless: bool) -> Self {
        self.comparison = PathComparison::new(is_wireless);
        self
    }

    /// Returns the current path of packets.
    pub(super) fn current(&self) -> PacketPath {
        self.current
    }

    /// Goes to the next path, if there is one.
    pub(super) fn take_next(&mut self, now: Instant) -> Option<PacketPath> {
        let next = self.next.take()?;
        (self.current, self.since) = (next, now);
        Some(next)
    }

    /// Decides on the path. `heard` is the arrival of the session's last packet, `is_idle` whether nothing is
    /// expected.
    fn on_turn(
        &mut self,
        (heard, counters): (Option<Instant>, PathCounters),
        is_idle: bool,
        beside: OtherPaths<'_>,
        now: Instant,
    ) {
        let silent_at = heard.unwrap_or(self.since).max(self.since) + SILENT.into();
        let is_silent = !is_idle && now >= silent_at;
        if heard.is_some_and(|at| at >= self.since) && self.current == PacketPath::Multicast {
            (self.is_doubtful, self.group_pause) = (false, Duration::ZERO);
        }
        if self.current != self.home {
            let is_group_heard = beside
                .groups
                .is_some_and(|groups| self.hears(|batch| groups.recv(batch).is_ok_and(|n| n > 0)));
            let is_amt = self.current == PacketPath::Amt;
            if is_amt && self.comparison.returns(counters, now) {
                self.next = Some(self.home);
            } else if is_amt && self.comparison.holds_tunnel() && !is_silent {
                // The groups are heard all the time.
            } else if is_group_heard && now >= self.group_not_before {
                self.is_doubtful = true;
                self.next = Some(self.home);
            } else if is_silent {
                if self.current == PacketPath::Rainbow {
                    self.source_not_before = now + SOURCE_PAUSE.into();
                }
                self.next = Some(self.home);
            }
        } else if is_silent {
            self.try_others(silent_at, beside.tunnel, now);
        } else if let Some(tunnel) = beside.tunnel.filter(|_| !is_idle) {
            self.compare(tunnel, counters, now);
        }
    }

    /// Compares multicast, which comes, with the AMT relay.
    fn compare(&mut self, tunnel: &mut TunnelPath, counters: PathCounters, now: Instant) {
        let is_multicast = self.current == PacketPath::Multicast;
        if !is_multicast || !tunnel.is_possible(now) || !self.comparison.compares(counters, now) {
            tunnel.close();
        } else if self.hears_tunnel(tunnel, now) {
            self.comparison.begin_trial(now);
            self.next = Some(PacketPath::Amt);
        }
    }

    /// Tries the AMT relay and the source on request, after a silence that was noticed at `silent_at`.
    fn try_others(&mut self, silent_at: Instant, tunnel: Option<&mut TunnelPath>, now: Instant) {
        let tunnel = tunnel.filter(|tunnel| tunnel.is_possible(now));
        let has_lead = tunnel.is_some() && now < silent_at + TUNNEL_LEAD.into();
        let is_tunnel_heard = tunnel.is_some_and(|tunnel| self.hears_tunnel(tunnel, now));
        let may_request = !has_lead && now >= self.source_not_before;
        let next = if is_tunnel_heard {
            PacketPath::Amt
        } else if may_request && self.source.as_mut().is_some_and(|source| source.is_answered(now)) {
            PacketPath::Rainbow
        } else {
            return;
        };
        if core::mem::replace(&mut self.is_doubtful, false) {
            self.group_pause = (self.group_pause * 2).clamp(GROUP_PAUSE_MIN, GROUP_PAUSE_MAX);
            self.group_not_before = now + self.group_pause.into();
        }
        self.next = Some(next);
    }

    /// Listens to the base channel behind the AMT relay. Returns whether a packet of the session arrived.
    fn hears_tunnel(&mut self, tunnel: &mut TunnelPath, now: Instant) -> bool {
        let socket = tunnel.listen(now);
        socket.is_some_and(|socket| self.hears(|batch| socket.recv(batch).is_ok_and(|n| n > 0)))
    }

    /// Reads the base channel by `receive`, which returns whether anything came. Returns whether a packet of
    /// the session's identifier arrived.
    fn hears(&mut self, mut receive: impl FnMut(&mut RecvBatch) -> bool) -> bool {
        let tsi = self.tsi;
        let is_wanted = |packet: &[u8]| {
            let packet = lct::Packet::new_checked(packet).ok();
            packet.is_some_and(|packet| tsi.is_none() || packet.tsi() == tsi)
        };
        let mut is_heard = false;
        for _ in 0..BATCHES_PER_TURN {
            if !receive(&mut self.batch) {
                break;
            }
            is_heard |= self.batch.iter().any(|datagram| is_wanted(datagram.payload));
        }
        is_heard
    }
}

/// Question to a source on request, or its relay, whether it is there: a request without a word, which is
/// answered by a challenge and has no other effect.
#[derive(Debug)]
pub(super) struct SourceProbe {
    socket: UdpSocket,
    source: SocketAddr,
    upstream: SocketAddr,
    due: Instant,
}

impl SourceProbe {
    /// Opens the socket; `None` if the system has no socket of the address's IP version.
    pub(super) fn open(source: SocketAddr, upstream: SocketAddr) -> Option<Self> {
        let any: SocketAddr = match upstream {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Self { socket, source, upstream, due: Instant::ZERO })
    }

    /// Asks, and returns whether an answer has come.
    fn is_answered(&mut self, now: Instant) -> bool {
        if self.due <= now {
            self.due = now + QUESTION_TIME.into();
            let mut question = [0; 64];
            let header = Header::new(Kind::Null, self.source, Label(0), Level::ONE);
            if let Ok(bytes) = header.emit(&mut question) {
                // Asked again later.
                let _refused = self.socket.send_to(&question[..bytes + WORDED_BODY_BYTES_MIN], self.upstream);
            }
        }
        let mut answer = [0; 64];
        let received = self.socket.recv_from(&mut answer);
        received.is_ok_and(|(bytes, from)| {
            let header = Header::parse(&answer[..bytes]).map(|(header, _)| header.kind);
            (from.ip(), from.port()) == (self.upstream.ip(), self.upstream.port())
                && header == Ok(Kind::Challenge)
        })
    }
}

/// Application of a machine on one of several paths.
pub(super) struct OnPath<'w, 'a> {
    pub(super) watch: &'w mut Watch<'a>,
    pub(super) switch: &'w mut PathSwitch,
    pub(super) beside: OtherPaths<'w>,
}

/// Paths beside the path of a machine.
#[derive(Default)]
pub(super) struct OtherPaths<'w> {
    /// Socket of the groups, while packets come by another path.
    pub(super) groups: Option<&'w mut ReceiverSocket>,
    /// AMT relay, while packets do not come through the relay.
    pub(super) tunnel: Option<&'w mut TunnelPath>,
}

impl OtherPaths<'_> {
    fn reborrow(&mut self) -> OtherPaths<'_> {
        OtherPaths { groups: self.groups.as_deref_mut(), tunnel: self.tunnel.as_deref_mut() }
    }
}

impl<C, P> Application<DeliveryReceiver<C, DiskStore>, P> for OnPath<'_, '_>
where
    C: ReceiverControl,
    P: ContentPort + Port,
{
    fn steer(&mut self, machine: &mut DeliveryReceiver<C, DiskStore>, port: &mut P, now: Instant) {
        self.watch.steer(machine, port, now);
        let is_idle = machine.store().is_busy() || machine.is_ended();
        let counters = PathCounters { bytes: machine.stats().bytes, reception: machine.reception() };
        let heard = (machine.last_heard(), counters);
        self.switch.on_turn(heard, is_idle, self.beside.reborrow(), now);
    }

    fn event(&mut self, event: ReceiverEvent) {
        Application::<DeliveryReceiver<C, DiskStore>, P>::event(self.watch, event);
    }

    fn membership(&mut self, membership: Membership) {
        Application::<DeliveryReceiver<C, DiskStore>, P>::membership(self.watch, membership);
    }

    fn link(&mut self, change: LinkChange) {
        Application::<DeliveryReceiver<C, DiskStore>, P>::link(self.watch, change);
    }

    fn observe(
        &mut self,
        machine: &mut DeliveryReceiver<C, DiskStore>,
        port: &P,
        unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        let next = self.watch.observe(machine, port, unsent, now)?;
        let switches = self.switch.next.is_some() && !self.watch.has_ended();
        if !switches {
            self.switch.next = None;
        }
        let is_trying = self.beside.tunnel.as_ref().is_some_and(|tunnel| tunnel.is_in_use());
        let next = if is_trying { next.min(now + TUNNEL_TURN.into()) } else { next };
        (!switches).then_some(next)
    }
}

/// Joins the base channel, to hear whether multicast comes.
pub(super) fn listen_to_base(groups: &mut ReceiverSocket) {
    if let Err(error) = groups.join(ChannelId::BASE) {
        tracing::debug!(%error, "multicast is not looked for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO + headwater_proto::Duration::from_millis(milliseconds)
    }

    fn heard(at: Option<Instant>) -> (Option<Instant>, PathCounters) {
        (at, PathCounters::default())
    }

    /// A switch whose source answers at once.
    fn switch(relay: &UdpSocket) -> PathSwitch {
        let address = relay.local_addr().unwrap();
        let source = SourceProbe::open(address, address);
        PathSwitch::new(PacketPath::Multicast, source, Some(5), at(0))
    }

    fn answer(relay: &UdpSocket) {
        let mut message = [0; 64];
        let (_, from) = relay.recv_from(&mut message).unwrap();
        let header = Header { kind: Kind::Challenge, ..Header::parse(&message[..36]).unwrap().0 };
        let bytes = header.emit(&mut message).unwrap();
        relay.send_to(&message[..bytes + 8], from).unwrap();
    }

    /// Takes turns until the answer has come.
    fn turns(switch: &mut PathSwitch, relay: &UdpSocket, now: Instant) -> Option<PacketPath> {
        switch.on_turn(heard(None), false, OtherPaths::default(), now);
        answer(relay);
        for _ in 0..100 {
            switch.on_turn(heard(None), false, OtherPaths::default(), now);
            if switch.next.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        switch.take_next(now)
    }

    #[test]
    fn a_source_that_answers_takes_over_after_three_seconds_of_silence_and_loses_its_place_by_silence() {
        let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut switch = switch(&relay);
        switch.on_turn(heard(None), false, OtherPaths::default(), at(2_900));
        switch.on_turn(heard(Some(at(2_950))), false, OtherPaths::default(), at(5_900));
        switch.on_turn(heard(None), true, OtherPaths::default(), at(9_000));
        assert_eq!(switch.take_next(at(9_000)), None, "too early, heard, or nothing is expected");
        assert_eq!(turns(&mut switch, &relay, at(9_100)), Some(PacketPath::Rainbow));
        switch.on_turn(heard(Some(at(10_000))), false, OtherPaths::default(), at(12_000));
        assert_eq!(switch.take_next(at(12_000)), None);
        switch.on_turn(heard(Some(at(10_000))), false, OtherPaths::default(), at(13_000));
        assert_eq!(switch.take_next(at(13_000)), Some(PacketPath::Multicast));
        switch.on_turn(heard(None), false, OtherPaths::default(), at(20_000));
        relay.set_nonblocking(true).unwrap();
        assert!(relay.recv_from(&mut [0; 64]).is_err(), "not asked for half a minute");
    }
}
