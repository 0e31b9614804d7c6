//! Memory budget of a receiver's blocks.

use crate::delivery::store::ObjectIndex;

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
