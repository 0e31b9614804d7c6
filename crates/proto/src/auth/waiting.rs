//! Packets that no verified manifest lists yet, in order of arrival.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::VecDeque;
use std::ops::Range;

use headwater_wire::auth::Tag;

use crate::machine::{ChannelId, Ecn};
use crate::time::{Duration, Instant};

/// Most bytes of waiting packets, with what describes them.
pub const WAITING_BYTES_MAX: usize = 2 << 20;
/// Longest wait: a manifest follows a packet within 0.2 s, because a group is at most 0.4 of the packets that
/// a sender plans ahead, for at most 0.5 s.
pub const WAITING_TIME: Duration = Duration::from_millis(500);

/// Time for which unsigned packets wait before a receiver takes an unsigned session.
pub const UNSIGNED_TIME: Duration = Duration::from_secs(1);

/// Bytes of a packet are counted as at least so many: bounds the number of packets.
const PACKET_BYTES_MIN: usize = 256;
const PACKETS_MAX: usize = WAITING_BYTES_MAX / (PACKET_BYTES_MIN + size_of::<WaitingPacket>()) + 1;
const RING_BYTES: usize = WAITING_BYTES_MAX - PACKETS_MAX * size_of::<WaitingPacket>();

/// Description of the datagram that a packet came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Address of the sender.
    pub source: SocketAddr,
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// Bytes of UDP payload.
    pub bytes: usize,
}

impl Default for Origin {
    /// No address.
    fn default() -> Self {
        let source = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into();
        Self { source, ecn: Ecn::NotCapable, bytes: 0 }
    }
}

/// State of a waiting packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitingState {
    Waiting,
    /// A manifest lists the packet; the packet has not been taken yet.
    Verified,
    Done,
}

/// Waiting packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingPacket {
    pub(crate) channel: ChannelId,
    pub(crate) arrived: Instant,
    pub(crate) origin: Origin,
    /// Whether the packet is signed, with a key that is not known yet.
    pub(crate) is_signed: bool,
    /// `None` until the session's key is known.
    pub(crate) tag: Option<Tag>,
    pub(crate) state: WaitingState,
    start: usize,
    len: usize,
}

impl WaitingPacket {
    fn counted(&self) -> usize {
        self.len.max(PACKET_BYTES_MIN)
    }

    fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// Packets that were dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    /// Packets that no manifest listed.
    pub(crate) unlisted: u64,
    /// Signed packets: the key did not become known.
    pub(crate) untrusted: u64,
}

impl Dropped {
    fn of(is_signed: bool) -> Self {
        Self { unlisted: u64::from(!is_signed), untrusted: u64::from(is_signed) }
    }

    fn add(&mut self, other: Self) {
        self.unlisted += other.unlisted;
        self.untrusted += other.untrusted;
    }
}

/// Ring of waiting packets. The oldest packet makes way for a new one: as long as a flood does not fill the
/// ring between two manifests, the flood displaces no genuine packet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    packets: VecDeque<WaitingPacket>,
    /// Bytes of packets; allocated at the first wait.
    ring: Vec<u8>,
    /// Verified packets that have not been taken.
    verified: usize,
    /// Place of the first of these packets, or an earlier place.
    first_verified: usize,
}

impl Waiting {
    /// Stores a packet. Returns the packets that were dropped for lack of room.
    pub(crate) fn push(
        &mut self,
        channel: ChannelId,
        arrived: Instant,
        origin: Origin,
        tag: Option<Tag>,
        is_signed: bool,
        bytes: &[u8],
    ) -> Dropped {
        if self.ring.is_empty() {
            self.ring.resize(RING_BYTES, 0);
            self.packets.reserve_exact(PACKETS_MAX);
        }
        let len = bytes.len();
        let counted = len.max(PACKET_BYTES_MIN);
        if counted > RING_BYTES {
            return Dropped::of(is_signed);
        }
        let mut dropped = Dropped::default();
        let start = loop {
            if let Some(start) = self.room(counted) {
                break start;
            }
            dropped.add(self.pop());
        };
        let state = WaitingState::Waiting;
        self.ring[start..start + len].copy_from_slice(bytes);
        self.packets.push_back(WaitingPacket { channel, arrived, origin, is_signed, tag, state, start, len });
        dropped
    }

    /// Stores a signed packet that is verified.
    pub(crate) fn push_verified(
        &mut self,
        channel: ChannelId,
        arrived: Instant,
        origin: Origin,
        bytes: &[u8],
    ) -> Dropped {
        let dropped = self.push(channel, arrived, origin, None, true, bytes);
        self.settle(self.packets.len() - 1, true);
        dropped
    }

    /// Returns the start of so many free bytes behind the newest packet.
    fn room(&self, bytes: usize) -> Option<usize> {
        let (Some(oldest), Some(newest)) = (self.packets.front(), self.packets.back()) else {
            return Some(0);
        };
        if self.packets.len() == PACKETS_MAX {
            return None;
        }
        let end = newest.start + newest.counted();
        if newest.start < oldest.start {
            return (end + bytes <= oldest.start).then_some(end);
        }
        if end + bytes <= RING_BYTES {
            return Some(end);
        }
        (bytes <= oldest.start).then_some(0)
    }

    /// Drops the oldest packet.
    fn pop(&mut self) -> Dropped {
        let Some(packet) = self.packets.pop_front() else { return Dropped::default() };
        self.first_verified = self.first_verified.saturating_sub(1);
        self.verified -= usize::from(packet.state == WaitingState::Verified);
        if packet.state == WaitingState::Done { Dropped::default() } else { Dropped::of(packet.is_signed) }
    }

    /// Drops the packets that have waited for `time`.
    pub(crate) fn expire(&mut self, now: Instant, time: Duration) -> Dropped {
        let mut dropped = Dropped::default();
        while let Some(oldest) = self.packets.front() {
            let is_over = oldest.state == WaitingState::Waiting && now.since(oldest.arrived) >= time;
            if !is_over && oldest.state != WaitingState::Done {
                break;
            }
            dropped.add(self.pop());
        }
        dropped
    }

    /// Number of packets that wait or have not been taken.
    pub(crate) fn len(&self) -> usize {
        self.packets.iter().filter(|packet| packet.state != WaitingState::Done).count()
    }

    /// Takes the oldest signed packet that waits, to be judged again by [`Waiting::settle`].
    pub(crate) fn signed(&self, from: usize) -> Option<(usize, WaitingPacket, &[u8])> {
        let is_signed = |packet: &WaitingPacket| packet.is_signed && packet.state == WaitingState::Waiting;
        let index = (from..self.packets.len()).find(|index| is_signed(&self.packets[*index]))?;
        let packet = self.packets[index];
        Some((index, packet, &self.ring[packet.range()]))
    }

    /// Sets the state of a signed packet.
    pub(crate) fn settle(&mut self, index: usize, is_verified: bool) {
        self.packets[index].state = if is_verified { WaitingState::Verified } else { WaitingState::Done };
        self.verified += usize::from(is_verified);
        self.first_verified = self.first_verified.min(index);
    }

    /// Returns when the oldest packet has waited for `time`.
    pub(crate) fn deadline(&self, time: Duration) -> Option<Instant> {
        self.packets.front().map(|oldest| oldest.arrived + time)
    }

    /// Visits each packet with its bytes, oldest first. The visitor may change the packet's state.
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&mut WaitingPacket, &[u8])) {
        for packet in &mut self.packets {
            let was = packet.state;
            visit(packet, &self.ring[packet.start..packet.start + packet.len]);
            self.verified += usize::from(packet.state == WaitingState::Verified && was != packet.state);
        }
        self.first_verified = 0;
    }

    /// Takes the oldest verified packet.
    pub(crate) fn take(&mut self) -> Option<(WaitingPacket, &[u8])> {
        if self.verified == 0 {
            return None;
        }
        let is_verified = |index: &usize| self.packets[*index].state == WaitingState::Verified;
        let index = (self.first_verified..self.packets.len()).find(is_verified)?;
        let packet = &mut self.packets[index];
        packet.state = WaitingState::Done;
        self.verified -= 1;
        self.first_verified = index + 1;
        let packet = *packet;
        Some((packet, &self.ring[packet.range()]))
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring.capacity() + self.packets.capacity() * size_of::<WaitingPacket>()
    }
}
