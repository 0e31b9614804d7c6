//! What a source keeps: packets that were sent and may be asked for again, and behind them those that wait to
//! be sent.

use headwater_wire::pgm::Fragment;

use super::ahead;
use crate::time::Instant;

/// What is known of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    len: u16,
    pub(super) fragment: Option<Fragment>,
    /// When it was last sent.
    pub(super) sent: Instant,
    /// When it was first sent.
    pub(super) first: Instant,
    pub(super) is_repair: bool,
    /// It waits to be sent again.
    pub(super) is_wanted: bool,
    /// When it was first asked for since.
    pub(super) asked: Option<Instant>,
    /// When a NAK for it was last confirmed; zero before that.
    pub(super) confirmed: Instant,
}

const _: () = assert!(size_of::<Slot>() <= 64, "what users are told that a packet takes");

/// A ring of packets by sequence number: trail..next were sent, next..end wait. Of fixed size; a new packet
/// takes the place of the oldest sent.
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
        // A power of two, so that places go on where numbers wrap.
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

    /// First sequence number that may still be asked for.
    pub(super) const fn trail(&self) -> u32 {
        self.trail
    }

    /// Sequence number of the last packet sent; the one before the first when none was.
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

    /// Packets that wait.
    pub(super) const fn waiting(&self) -> u32 {
        self.end.wrapping_sub(self.next)
    }

    /// Packets for which there is room: half of the window is kept for repairs.
    pub(super) fn room(&self) -> u32 {
        u32::try_from(self.slots.len() / 2).unwrap_or(u32::MAX).saturating_sub(self.waiting())
    }

    /// Drops what waits, but so many packets.
    pub(super) fn cut(&mut self, kept: u32) {
        self.end = self.next.wrapping_add(self.waiting().min(kept));
    }

    pub(super) const fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Adds a packet of at most `payload_bytes`. The caller has asked for room.
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

    /// The next packet that waits; it counts as sent.
    pub(super) fn take_next(&mut self) -> Option<u32> {
        let sequence = self.next;
        (self.waiting() > 0).then(|| {
            self.next = sequence.wrapping_add(1);
            sequence
        })
    }

    /// A packet that was sent and is still kept.
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
