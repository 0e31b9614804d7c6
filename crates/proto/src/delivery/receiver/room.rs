//! How much memory a receiver's blocks take, and where that ends.

use crate::delivery::store::ObjectIndex;

/// A block of a session.
pub type BlockId = (ObjectIndex, u32);

/// Memory for the state of blocks. Bound: `bytes_max`, and what one block takes beside it.
///
/// When it is used up one block at a time gets on without any, so that blocks end and give back what they
/// had: whatever comes, something goes on.
#[derive(Debug)]
pub struct Room {
    bytes: usize,
    bytes_max: usize,
    /// Of them those that the store takes to decode the longest block, beyond its own.
    lent: usize,
    /// The block that gets on without room.
    favoured: Option<BlockId>,
}

impl Room {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max, lent: 0, favoured: None }
    }

    /// Whether so many bytes are left.
    pub fn has(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= self.bytes_max
    }

    /// Takes bytes that are there for as long as the session lasts.
    pub fn take_for_good(&mut self, bytes: usize) {
        debug_assert!(self.has(bytes), "asked for before");
        self.bytes += bytes;
    }

    /// Whether so many bytes are left when the store has `lent` of them, for blocks that are decoded one at a
    /// time.
    pub fn has_beside(&self, bytes: usize, lent: usize) -> bool {
        self.has(bytes.saturating_add(lent.saturating_sub(self.lent)))
    }

    /// Leaves so many bytes to the store, for as long as the session lasts.
    pub fn lend(&mut self, lent: usize) {
        self.take_for_good(lent.saturating_sub(self.lent));
        self.lent = self.lent.max(lent);
    }

    /// Takes memory for a block; false when there is none for it now.
    pub fn take(&mut self, block: BlockId, bytes: usize) -> bool {
        let is_granted = bytes == 0 || self.has(bytes) || *self.favoured.get_or_insert(block) == block;
        if is_granted {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        is_granted
    }

    /// Gives back what was taken.
    pub fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Gives back what a block had taken that has ended.
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
