//! Packets that no verified manifest lists yet, in order of arrival.

use std::collections::VecDeque;
use std::ops::Range;

use headwater_wire::auth::Tag;

use crate::machine::ChannelId;
use crate::time::{Duration, Instant};

/// Most bytes of waiting packets, with what describes them.
pub const WAITING_BYTES_MAX: usize = 2 << 20;
/// Longest wait: a manifest follows within 0.25 s on each channel that has manifests.
pub const WAITING_TIME: Duration = Duration::from_millis(250);

/// Bytes of a packet are counted as at least so many: bounds the number of packets.
const PACKET_BYTES_MIN: usize = 256;
const PACKETS_MAX: usize = WAITING_BYTES_MAX / (PACKET_BYTES_MIN + size_of::<WaitingPacket>()) + 1;
const RING_BYTES: usize = WAITING_BYTES_MAX - PACKETS_MAX * size_of::<WaitingPacket>();

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

/// Ring of waiting packets. The oldest packet makes way for a new one: as long as a flood does not fill the
/// ring between two manifests, the flood displaces no genuine packet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    packets: VecDeque<WaitingPacket>,
    /// Bytes of packets; allocated at the first wait.
    ring: Vec<u8>,
    /// Verified packets that have not been taken.
    verified: usize,
}

impl Waiting {
    /// Stores a packet. Returns the number of packets that were dropped for lack of room.
    pub(crate) fn push(
        &mut self,
        channel: ChannelId,
        arrived: Instant,
        tag: Option<Tag>,
        bytes: &[u8],
    ) -> u64 {
        if self.ring.is_empty() {
            self.ring.resize(RING_BYTES, 0);
            self.packets.reserve_exact(PACKETS_MAX);
        }
        let len = bytes.len();
        let counted = len.max(PACKET_BYTES_MIN);
        if counted > RING_BYTES {
            return 1;
        }
        let mut dropped = 0;
        let start = loop {
            if let Some(start) = self.room(counted) {
                break start;
            }
            dropped += self.pop();
        };
        let state = WaitingState::Waiting;
        self.ring[start..start + len].copy_from_slice(bytes);
        self.packets.push_back(WaitingPacket { channel, arrived, tag, state, start, len });
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

    /// Drops the oldest packet. Returns 1 if the packet still waited.
    fn pop(&mut self) -> u64 {
        let packet = self.packets.pop_front();
        self.verified -= usize::from(packet.is_some_and(|packet| packet.state == WaitingState::Verified));
        u64::from(packet.is_some_and(|packet| packet.state != WaitingState::Done))
    }

    /// Drops the packets whose time is up. Returns the number that still waited.
    pub(crate) fn expire(&mut self, now: Instant) -> u64 {
        let mut dropped = 0;
        while let Some(oldest) = self.packets.front() {
            let is_over = oldest.state == WaitingState::Waiting && now.since(oldest.arrived) >= WAITING_TIME;
            if !is_over && oldest.state != WaitingState::Done {
                break;
            }
            dropped += self.pop();
        }
        dropped
    }

    /// Returns when the oldest packet's time is up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.packets.front().map(|oldest| oldest.arrived + WAITING_TIME)
    }

    /// Visits each packet with its bytes, oldest first. The visitor may change the packet's state.
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&mut WaitingPacket, &[u8])) {
        for packet in &mut self.packets {
            let was = packet.state;
            visit(packet, &self.ring[packet.start..packet.start + packet.len]);
            self.verified += usize::from(packet.state == WaitingState::Verified && was != packet.state);
        }
    }

    /// Takes the oldest verified packet.
    pub(crate) fn take(&mut self) -> Option<(WaitingPacket, &[u8])> {
        if self.verified == 0 {
            return None;
        }
        let packet = self.packets.iter_mut().find(|packet| packet.state == WaitingState::Verified)?;
        packet.state = WaitingState::Done;
        self.verified -= 1;
        let packet = *packet;
        Some((packet, &self.ring[packet.range()]))
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring.capacity() + self.packets.capacity() * size_of::<WaitingPacket>()
    }
}
