//! Packets that arrived before earlier packets.

use headwater_wire::pgm::Fragment;

use super::ahead;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Length and place in a message; `None` while the packet is missing.
    held: Option<(u16, Option<Fragment>)>,
}

/// A ring of packets by sequence number, from the next packet to deliver. The size is fixed.
#[derive(Clone, Debug)]
pub(super) struct ReceiveWindow {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    payload_bytes: usize,
    /// Sequence number of the next packet to deliver.
    next: u32,
    /// Sequence number after the last known packet.
    end: u32,
}

impl ReceiveWindow {
    pub(super) fn new(packets: u32, payload_bytes: u16, first: u32) -> Self {
        let slots = packets.next_power_of_two() as usize;
        let payload_bytes = usize::from(payload_bytes);
        Self {
            slots: vec![Slot::default(); slots],
            bytes: vec![0; slots * payload_bytes],
            payload_bytes,
            next: first,
            end: first,
        }
    }

    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    pub(super) const fn end(&self) -> u32 {
        self.end
    }

    /// Whether a sequence number has a place: neither delivered nor too far ahead.
    pub(super) fn holds(&self, sequence: u32) -> bool {
        usize::try_from(ahead(sequence, self.next)).is_ok_and(|place| place < self.slots.len())
    }

    /// Marks all packets up to `sequence`, which has a place, as known.
    pub(super) fn extend(&mut self, sequence: u32) {
        let end = sequence.wrapping_add(1);
        if ahead(end, self.end) > 0 {
            self.end = end;
        }
    }

    /// Number of packets that the window has places for.
    pub(super) const fn packets(&self) -> usize {
        self.slots.len()
    }

    /// Stores a packet that has a place. Returns false if the packet is already present, or too long.
    pub(super) fn put(&mut self, sequence: u32, data: &[u8], fragment: Option<Fragment>) -> bool {
        let index = self.index(sequence);
        let Some(len) = u16::try_from(data.len()).ok().filter(|_| data.len() <= self.payload_bytes) else {
            return false;
        };
        if self.slots[index].held.is_some() {
            return false;
        }
        self.slots[index].held = Some((len, fragment));
        self.bytes[index * self.payload_bytes..][..data.len()].copy_from_slice(data);
        true
    }

    /// Takes the next packet, if present.
    pub(super) fn take(&mut self) -> Option<(&[u8], Option<Fragment>)> {
        let index = self.index(self.next);
        let (len, fragment) = self.slots[index].held.take()?;
        self.next = self.next.wrapping_add(1);
        Some((&self.bytes[index * self.payload_bytes..][..usize::from(len)], fragment))
    }

    /// Gives up the next packet, which is known.
    pub(super) fn skip(&mut self) {
        let index = self.index(self.next);
        self.slots[index].held = None;
        self.next = self.next.wrapping_add(1);
    }

    /// Gives up all packets before `sequence`, which is beyond the end.
    pub(super) fn restart(&mut self, sequence: u32) {
        self.slots.fill(Slot::default());
        (self.next, self.end) = (sequence, sequence);
    }

    fn index(&self, sequence: u32) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }
}
