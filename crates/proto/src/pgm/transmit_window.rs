//! Packets kept by a source: sent packets that receivers may still NAK, followed by packets that wait to be
//! sent.

use headwater_wire::pgm::Fragment;

use super::ahead;
use crate::time::Instant;

/// State of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    len: u16,
    pub(super) fragment: Option<Fragment>,
    /// Time of the last transmission.
    pub(super) sent: Instant,
    /// Time of the first transmission.
    pub(super) first: Instant,
    pub(super) is_repair: bool,
    /// Whether an SPM left between the previous packet and the first transmission.
    pub(super) follows_spm: bool,
    /// Whether the packet waits to be retransmitted.
    pub(super) is_wanted: bool,
    /// Time of the first NAK since the last transmission.
    pub(super) asked: Option<Instant>,
    /// Time of the last confirmation of a NAK; zero before the first.
    pub(super) confirmed: Instant,
}

const _: () = assert!(size_of::<Slot>() <= 64, "what users are told that a packet takes");

/// A ring of packets by sequence number: trail..next were sent, next..end wait. The size is fixed; a new
/// packet replaces the oldest sent packet.
#[derive(Clone, Debug)]
pub(super) struct TransmitWindow {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    payload_bytes: usize,
    trail: u32,
    next: u32,
    end: u32,
}

impl TransmitWindow {
    pub(super) fn new(packets: u32, payload_bytes: u16, first: u32) -> Self {
        let payload_bytes = usize::from(payload_bytes);
        // A power of two, so that ring indices stay consecutive when sequence numbers wrap.
        let slots = packets.next_power_of_two() as usize;
        Self {
            slots: vec![Slot::default(); slots],
            bytes: vec![0; slots * payload_bytes],
            payload_bytes,
            trail: first,
            next: first,
            end: first,
        }
    }

    /// First sequence number that receivers may still NAK.
    pub(super) const fn trail(&self) -> u32 {
        self.trail
    }

    /// Sequence number of the last packet sent; the number before the first packet if no packet was sent.
    pub(super) const fn lead(&self) -> u32 {
        self.next.wrapping_sub(1)
    }

    /// Sequence number of the next packet that [`Self::push`] takes.
    pub(super) const fn end(&self) -> u32 {
        self.end
    }

    /// Sequence number of the next packet to be sent for the first time.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Number of packets that wait.
    pub(super) const fn waiting(&self) -> u32 {
        self.end.wrapping_sub(self.next)
    }

    /// Number of packets that there is room for: half of the window is kept for repairs.
    pub(super) fn room(&self) -> u32 {
        u32::try_from(self.slots.len() / 2).unwrap_or(u32::MAX).saturating_sub(self.waiting())
    }

    /// Drops all waiting packets except the first `kept`.
    pub(super) fn cut(&mut self, kept: u32) {
        self.end = self.next.wrapping_add(self.waiting().min(kept));
    }

    pub(super) const fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Adds a packet of at most `payload_bytes`. The caller has checked the room.
    pub(super) fn push(&mut self, data: &[u8], fragment: Option<Fragment>) {
        if self.end.wrapping_sub(self.trail) as usize == self.slots.len() {
            self.trail = self.trail.wrapping_add(1);
        }
        let index = self.index(self.end);
        let len = u16::try_from(data.len()).unwrap_or(u16::MAX);
        self.slots[index] = Slot { len, fragment, ..Slot::default() };
        self.bytes[index * self.payload_bytes..][..data.len()].copy_from_slice(data);
        self.end = self.end.wrapping_add(1);
    }

    /// Takes the next waiting packet, which then counts as sent.
    pub(super) fn take_next(&mut self) -> Option<u32> {
        let sequence = self.next;
        (self.waiting() > 0).then(|| {
            self.next = sequence.wrapping_add(1);
            sequence
        })
    }

    /// Returns the slot of a packet that was sent and is still kept.
    pub(super) fn sent(&mut self, sequence: u32) -> Option<&mut Slot> {
        let is_kept = ahead(sequence, self.trail) >= 0 && ahead(sequence, self.next) < 0;
        let index = self.index(sequence);
        is_kept.then(|| &mut self.slots[index])
    }

    pub(super) fn data(&self, sequence: u32) -> &[u8] {
        let index = self.index(sequence);
        &self.bytes[index * self.payload_bytes..][..usize::from(self.slots[index].len)]
    }

    fn index(&self, sequence: u32) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }
}
