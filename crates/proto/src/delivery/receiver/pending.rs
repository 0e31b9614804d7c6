//! Packets of objects that no FDT has described yet.

use headwater_wire::PayloadId;

/// What a packet costs beside its payload, in bytes.
const ENTRY_BYTES: usize = 64;

/// A packet of an object not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingPacket {
    pub toi: u128,
    pub codepoint: u8,
    pub id: PayloadId,
}

/// Packets kept until the FDT comes, oldest first. Bound: `bytes_max`, payloads and entries together.
#[derive(Debug)]
pub struct Pending {
    entries: Vec<(PendingPacket, usize)>,
    payloads: Vec<u8>,
    bytes_max: usize,
}

impl Pending {
    pub fn new(bytes_max: usize) -> Self {
        Self { entries: Vec::new(), payloads: Vec::new(), bytes_max }
    }

    /// Keeps a packet; false when there is no room.
    pub fn push(&mut self, packet: PendingPacket, payload: &[u8]) -> bool {
        let bytes = self.payloads.len() + payload.len() + (self.entries.len() + 1) * ENTRY_BYTES;
        let fits = bytes <= self.bytes_max;
        if fits {
            self.entries.push((packet, payload.len()));
            self.payloads.extend_from_slice(payload);
        }
        fits
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes all packets out; those still wanted may be pushed to what is left.
    pub fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new(self.bytes_max))
    }

    /// The packets in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (PendingPacket, &[u8])> {
        let mut start = 0;
        self.entries.iter().map(move |(packet, bytes)| {
            let payload = &self.payloads[start..start + bytes];
            start += bytes;
            (*packet, payload)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_for_empty_payloads_too() {
        let mut pending = Pending::new(1_000);
        let packet = PendingPacket { toi: 1, codepoint: 0, id: PayloadId { sbn: 0, esi: 0 } };
        let kept = (0..100).filter(|_| pending.push(packet, &[])).count();
        assert_eq!(kept, 1_000 / ENTRY_BYTES);
        let taken = pending.take();
        assert_eq!((taken.iter().count(), pending.is_empty()), (kept, true));
    }
}
