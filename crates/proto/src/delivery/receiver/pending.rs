//! Packets of objects that the FDT has not described.

use std::collections::BTreeMap;

use headwater_wire::{Fti, PayloadId};

use crate::delivery::store::ObjectIndex;

/// Memory per packet in addition to the payload, in bytes.
const ENTRY_BYTES: usize = size_of::<(PendingPacket, usize)>();
/// Memory per object in addition to the packets: the structure, the map entry, and the initial capacity of
/// the vectors.
const OBJECT_BYTES: usize = 2 * (size_of::<PendingObject>() + size_of::<u128>()) + 4 * ENTRY_BYTES + 8;

/// Packet of an object that is not yet known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingPacket {
    pub toi: u128,
    pub codepoint: u8,
    pub id: PayloadId,
}

/// Packets kept by object until the FDT describes the object. Bound: `bytes_max` for payloads and bookkeeping
/// together, plus a quarter of spare capacity.
#[derive(Debug)]
pub struct Pending {
    objects: BTreeMap<u128, PendingObject>,
    packets: u64,
    bytes: usize,
    bytes_max: usize,
}

/// The packets of one object, oldest first.
#[derive(Debug, Default)]
pub struct PendingObject {
    /// FTI of the first packet with EXT_FTI.
    fti: Option<Fti>,
    entries: Vec<(PendingPacket, usize)>,
    payloads: Vec<u8>,
    bytes: usize,
}

impl Pending {
    pub fn new(bytes_max: usize) -> Self {
        Self { objects: BTreeMap::new(), packets: 0, bytes: 0, bytes_max }
    }

    /// Keeps a packet. Returns false if no memory is left.
    pub fn push(&mut self, packet: PendingPacket, fti: Option<Fti>, payload: &[u8]) -> bool {
        let new_object = if self.objects.contains_key(&packet.toi) { 0 } else { OBJECT_BYTES };
        let bytes = payload.len() + ENTRY_BYTES + new_object;
        let fits = self.bytes + bytes <= self.bytes_max;
        if fits {
            self.bytes += bytes;
            self.packets += 1;
            let object = self.objects.entry(packet.toi).or_default();
            object.bytes += bytes;
            object.fti = object.fti.or(fti);
            make_room(&mut object.entries, 1);
            object.entries.push((packet, payload.len()));
            make_room(&mut object.payloads, payload.len());
            object.payloads.extend_from_slice(payload);
        }
        fits
    }

    /// Number of packets kept.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the FTI from an object's EXT_FTI.
    pub fn fti(&self, toi: u128) -> Option<Fti> {
        self.objects.get(&toi)?.fti
    }

    /// Removes and returns the packets of an object.
    pub fn take(&mut self, toi: u128) -> PendingObject {
        let object = self.objects.remove(&toi).unwrap_or_default();
        self.bytes -= object.bytes;
        self.packets -= object.packets();
        object
    }

    /// Drops the packets of objects that `keeps` rejects, and returns the number of packets dropped.
    pub fn retain(&mut self, keeps: impl Fn(u128) -> bool) -> u64 {
        let before = self.packets;
        self.objects.retain(|toi, _| keeps(*toi));
        self.bytes = self.objects.values().map(|object| object.bytes).sum();
        self.packets = self.objects.values().map(PendingObject::packets).sum();
        before - self.packets
    }
}

/// Reserves room for `more` items, or for a quarter of the current length if larger: a vector would otherwise
/// double.
fn make_room<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more.max(items.len() / 4));
    }
}

impl PendingObject {
    /// Number of packets.
    pub fn packets(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns the packets in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (PendingPacket, &[u8])> {
        let mut start = 0;
        self.entries.iter().map(move |(packet, bytes)| {
            let payload = &self.payloads[start..start + bytes];
            start += bytes;
            (*packet, payload)
        })
    }
}

/// Identifier of a block in a session: object and block number.
pub type BlockId = (ObjectIndex, u32);

/// Memory budget for the state of blocks. Bound: `bytes_max` plus the memory of one block.
///
/// When the budget is exhausted, one block at a time may exceed the budget, so that blocks end and release
/// memory: reception always progresses.
#[derive(Debug)]
pub struct Room {
    bytes: usize,
    bytes_max: usize,
    /// Bytes that the store borrows from this budget to decode the longest block, in excess of
    /// [`DECODING_BYTES`](super::DECODING_BYTES).
    lent: usize,
    /// Block that may exceed the budget.
    favoured: Option<BlockId>,
}

impl Room {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max, lent: 0, favoured: None }
    }

    /// Whether `bytes` bytes are left.
    pub fn has(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= self.bytes_max
    }

    /// Takes available bytes for the rest of the session.
    pub fn take_for_good(&mut self, bytes: usize) {
        debug_assert!(self.has(bytes), "asked for before");
        self.bytes += bytes;
    }

    /// Whether `bytes` bytes are left if the store borrows `lent` bytes. Blocks that need the loan are
    /// decoded one at a time, so loans do not add up.
    pub fn has_beside(&self, bytes: usize, lent: usize) -> bool {
        self.has(bytes.saturating_add(lent.saturating_sub(self.lent)))
    }

    /// Lends bytes to the store for the rest of the session.
    pub fn lend(&mut self, lent: usize) {
        self.take_for_good(lent.saturating_sub(self.lent));
        self.lent = self.lent.max(lent);
    }

    /// Takes memory for a block. Returns false if no memory is left.
    pub fn take(&mut self, block: BlockId, bytes: usize) -> bool {
        let is_granted = bytes == 0 || self.has(bytes) || *self.favoured.get_or_insert(block) == block;
        if is_granted {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        is_granted
    }

    /// Releases memory.
    pub fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Releases the memory of a block that has ended.
    pub fn ended(&mut self, block: BlockId, bytes: usize) {
        self.give_back(bytes);
        if self.favoured == Some(block) {
            self.favoured = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_for_empty_payloads_too_and_room_comes_back() {
        let mut pending = Pending::new(OBJECT_BYTES + 12 * ENTRY_BYTES);
        let packet = |toi| PendingPacket { toi, codepoint: 0, id: PayloadId { sbn: 0, esi: 0 } };
        assert_eq!((0..100).filter(|_| pending.push(packet(1), None, &[])).count(), 12);
        assert!(!pending.push(packet(2), None, &[]));
        assert_eq!(pending.take(1).iter().count(), 12);
        assert_eq!(pending.bytes, 0);
        assert!(pending.push(packet(2), None, &vec![0; 11 * ENTRY_BYTES]));
    }

    #[test]
    fn the_store_is_lent_what_its_longest_block_takes() {
        let mut room = Room::new(100);
        room.lend(30);
        room.lend(20);
        assert!(room.has(70) && !room.has(71));
        assert!(room.has_beside(60, 40) && !room.has_beside(60, 41) && room.has_beside(70, 10));
        room.lend(40);
        assert!(room.has(60) && !room.has(61));
    }

    #[test]
    fn one_block_at_a_time_gets_on_without_room() {
        let mut room = Room::new(100);
        let [one, two, three] = [0, 1, 2].map(|sbn| (ObjectIndex(0), sbn));
        room.take_for_good(40);
        assert!(room.has(60) && !room.has(61));
        assert!(room.take(one, 60) && room.take(two, 10) && room.take(two, 10));
        assert!(!room.take(one, 1) && !room.take(three, 1) && room.take(three, 0));
        room.ended(two, 20);
        assert!(room.take(three, 1) && !room.take(two, 1));
        room.ended(one, 60);
        assert!(room.take(two, 59));
    }
}
