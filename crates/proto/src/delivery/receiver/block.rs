//! What a receiver knows of one block: which symbols it holds.

use crate::delivery::store::{HeldBlock, StoredRepair};

/// Repair symbols taken while a block is being decoded, in case it turns out that those at hand were not enough.
const SPARE_SYMBOLS: u32 = 2;

/// A block under way. Memory: one bit per source symbol, 8 bytes per repair symbol held.
#[derive(Clone, Debug)]
pub struct BlockState {
    symbols: u32,
    source: Box<[u64]>,
    source_count: u32,
    /// Ascending by ESI.
    repairs: Vec<StoredRepair>,
    /// Symbols needed before the next attempt: K, then one more than the last attempt had.
    needed: u32,
    tried: u32,
    phase: Phase,
    /// Times that the decoded bytes were not what the sender promised.
    strikes: u8,
    /// Whether some of it comes from an earlier session, and has not been verified.
    is_resumed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receiving,
    Finishing,
}

/// A block of an object, from its announcement to its end.
#[derive(Clone, Debug)]
pub enum Block {
    /// No symbol of it came yet.
    Unseen,
    /// Under way.
    Open(Box<BlockState>),
    /// Whole and verified, or given up: nothing else is remembered.
    Ended,
}

impl Block {
    /// The block under way, begun if it was unseen; `None` once it has ended.
    pub fn open(&mut self, symbols: u32) -> Option<&mut BlockState> {
        if matches!(self, Self::Unseen) {
            *self = Self::Open(Box::new(BlockState::new(symbols)));
        }
        self.under_way()
    }

    /// The block under way, if it is.
    pub fn under_way(&mut self) -> Option<&mut BlockState> {
        match self {
            Self::Open(state) => Some(state),
            Self::Unseen | Self::Ended => None,
        }
    }

    /// Ends the block and gives back the slots that it held.
    pub fn end(&mut self) -> Vec<StoredRepair> {
        match core::mem::replace(self, Self::Ended) {
            Self::Open(state) => state.repairs,
            Self::Unseen | Self::Ended => Vec::new(),
        }
    }
}

/// What a symbol is to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// Wanted.
    Needed,
    /// Held already.
    Duplicate,
    /// The block has enough.
    Surplus,
}

impl BlockState {
    pub fn new(symbols: u32) -> Self {
        let words = (symbols as usize).div_ceil(64);
        Self {
            symbols,
            source: vec![0; words].into_boxed_slice(),
            source_count: 0,
            repairs: Vec::new(),
            needed: symbols,
            tried: 0,
            phase: Phase::Receiving,
            strikes: 0,
            is_resumed: false,
        }
    }

    /// A block of K = `symbols` source symbols, with what an earlier session left of it. Symbols from `esi_end` on do
    /// not exist.
    pub fn resumed(symbols: u32, esi_end: u32, held: &HeldBlock) -> Self {
        let mut block = Self::new(symbols);
        block.is_resumed = true;
        for esi in (0..symbols).filter(|esi| held.holds_source(*esi)) {
            block.add_source(esi);
        }
        let repairs = held.repairs.iter().filter(|repair| (symbols..esi_end).contains(&repair.esi));
        for repair in repairs.filter(|_| !held.is_whole) {
            if block.count() < symbols + SPARE_SYMBOLS && !block.holds(repair.esi) {
                block.add_repair(*repair);
            }
        }
        block
    }

    pub fn worth(&self, esi: u32) -> Worth {
        if self.holds(esi) {
            return Worth::Duplicate;
        }
        // While the store decodes, the places of source symbols are its own.
        let spare = match self.phase {
            // With all of them there it cannot turn out that more are needed.
            Phase::Finishing if esi < self.symbols || self.source_count == self.symbols => {
                return Worth::Surplus;
            }
            Phase::Finishing => SPARE_SYMBOLS,
            _ => 0,
        };
        if self.count() < self.needed + spare { Worth::Needed } else { Worth::Surplus }
    }

    fn holds(&self, esi: u32) -> bool {
        if esi < self.symbols {
            self.source[(esi / 64) as usize] & 1 << (esi % 64) != 0
        } else {
            self.position(esi).is_ok()
        }
    }

    /// Repair symbols mostly come in ascending order: look at the end first.
    fn position(&self, esi: u32) -> Result<usize, usize> {
        match self.repairs.last() {
            Some(last) if last.esi >= esi => self.repairs.binary_search_by_key(&esi, |repair| repair.esi),
            _ => Err(self.repairs.len()),
        }
    }

    /// Symbols held.
    pub fn count(&self) -> u32 {
        self.source_count + u32::try_from(self.repairs.len()).expect("at most K + 2 are held")
    }

    pub fn add_source(&mut self, esi: u32) {
        self.source[(esi / 64) as usize] |= 1 << (esi % 64);
        self.source_count += 1;
    }

    pub fn add_repair(&mut self, repair: StoredRepair) {
        if let Err(position) = self.position(repair.esi) {
            self.repairs.insert(position, repair);
        }
    }

    /// Whether it is time to hand the block to the store.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Receiving && self.count() >= self.needed
    }

    /// Hands the block over: the source symbols that are missing and the repair symbols held.
    pub fn start_finishing(&mut self) -> (Vec<u32>, Vec<StoredRepair>) {
        self.phase = Phase::Finishing;
        self.tried = self.count();
        let missing = (0..self.symbols).filter(|esi| !self.holds(*esi)).collect();
        (missing, self.repairs.clone())
    }

    /// The symbols did not determine the block: one more is needed than it was tried with.
    pub fn needs_more(&mut self) {
        self.phase = Phase::Receiving;
        self.needed = self.tried + 1;
    }

    /// Whether the store is at work on it.
    pub fn is_finishing(&self) -> bool {
        self.phase == Phase::Finishing
    }

    /// Times that it was whole and wrong.
    pub fn strikes(&self) -> u8 {
        self.strikes
    }

    /// The block is whole and wrong: some symbol was corrupt. At first the repair symbols are dropped, then all; what
    /// came from an earlier session is dropped at once, and is no strike: the disk may have lost it.
    /// Gives back the slots and the number of symbols dropped.
    pub fn mismatched(&mut self) -> (Vec<StoredRepair>, u32) {
        let before = self.count();
        let repairs = core::mem::take(&mut self.repairs);
        self.phase = Phase::Receiving;
        self.needed = self.symbols;
        let is_resumed = core::mem::take(&mut self.is_resumed);
        if is_resumed || self.strikes > 0 || self.source_count == self.symbols {
            self.source.fill(0);
            self.source_count = 0;
        }
        self.strikes = self.strikes.saturating_add(u8::from(!is_resumed));
        (repairs, before - self.count())
    }
}

impl HeldBlock {
    fn holds_source(&self, esi: u32) -> bool {
        let word = self.source.get((esi / 64) as usize).copied().unwrap_or_default();
        self.is_whole || word & 1 << (esi % 64) != 0
    }
}

/// Slots for repair symbols of one file: the lowest free one first, so that the side file stays short.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    next: u32,
    free: std::collections::BinaryHeap<core::cmp::Reverse<u32>>,
}

impl Slots {
    /// Slots of which those below `next` are not given out before they are given back.
    pub fn from(next: u32) -> Self {
        Self { next, ..Self::default() }
    }

    pub fn take(&mut self) -> u32 {
        if let Some(core::cmp::Reverse(slot)) = self.free.pop() {
            return slot;
        }
        let slot = self.next;
        self.next += 1;
        slot
    }

    pub fn give_back(&mut self, repairs: &[StoredRepair]) {
        self.free.extend(repairs.iter().map(|repair| core::cmp::Reverse(repair.slot)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair(esi: u32) -> StoredRepair {
        StoredRepair { esi, slot: esi }
    }

    #[test]
    fn symbols_count_once_in_any_order() {
        let mut block = BlockState::new(70);
        block.add_source(69);
        for esi in [90, 71, 80, 100] {
            assert_eq!(block.worth(esi), Worth::Needed);
            block.add_repair(repair(esi));
        }
        for esi in [69, 71, 80, 90, 100] {
            assert_eq!(block.worth(esi), Worth::Duplicate, "{esi}");
        }
        assert_eq!(block.count(), 5);
        let (missing, repairs) = block.start_finishing();
        assert_eq!(missing, (0..69).collect::<Vec<_>>());
        assert_eq!(repairs.iter().map(|repair| repair.esi).collect::<Vec<_>>(), [71, 80, 90, 100]);
    }

    #[test]
    fn a_block_takes_a_little_more_while_it_is_decoded() {
        let mut block = BlockState::new(2);
        block.add_source(0);
        block.add_repair(repair(5));
        assert!(block.is_ready());
        block.start_finishing();
        assert!(!block.is_ready());
        for esi in [6, 7] {
            assert_eq!(block.worth(esi), Worth::Needed);
            block.add_repair(repair(esi));
        }
        assert_eq!(block.worth(8), Worth::Surplus);
        block.needs_more();
        assert!(block.is_ready(), "the spare symbols allow another attempt at once");
    }

    #[test]
    fn corruption_drops_repairs_first_then_all() {
        let mut block = BlockState::new(2);
        block.add_source(0);
        block.add_repair(repair(9));
        block.start_finishing();
        assert_eq!(block.mismatched(), (vec![repair(9)], 1));
        assert_eq!(block.worth(0), Worth::Duplicate);
        block.add_repair(repair(10));
        block.start_finishing();
        assert_eq!(block.mismatched(), (vec![repair(10)], 2));
        assert_eq!(block.worth(0), Worth::Needed);
    }

    #[test]
    fn a_corrupt_block_always_wants_symbols_again() {
        // All source symbols, and a spare one that came while they were hashed.
        let mut block = BlockState::new(2);
        block.add_source(0);
        block.add_source(1);
        block.start_finishing();
        block.add_repair(repair(2));
        assert_eq!(block.mismatched(), (vec![repair(2)], 3));
        assert_eq!(block.worth(0), Worth::Needed);
    }

    #[test]
    fn a_resumed_block_goes_on_where_it_was_and_holds_nothing_out_of_range() {
        let repairs = [9, 70, 71, 71, 200].map(repair).to_vec();
        let held = HeldBlock { sbn: 0, is_whole: false, source: vec![1, 0xff], repairs };
        let mut block = BlockState::resumed(70, 200, &held);
        assert_eq!(
            block.count(),
            1 + 6 + 2,
            "source symbol 0, the 6 that exist beyond 63, two of the repair symbols"
        );
        assert_eq!(
            (block.worth(64), block.worth(70), block.worth(1)),
            (Worth::Duplicate, Worth::Duplicate, Worth::Needed)
        );
        block.start_finishing();
        assert_eq!(block.mismatched().1, 9, "the disk is not trusted twice");
        assert_eq!((block.count(), block.strikes()), (0, 0));
    }

    #[test]
    fn a_block_resumed_whole_needs_nothing_but_the_proof() {
        let held = HeldBlock { is_whole: true, ..HeldBlock::default() };
        let mut block = BlockState::resumed(70, 200, &held);
        assert!(block.is_ready());
        assert_eq!(block.start_finishing(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn slots_are_used_again() {
        let mut slots = Slots::default();
        assert_eq!([slots.take(), slots.take(), slots.take()], [0, 1, 2]);
        slots.give_back(&[StoredRepair { esi: 0, slot: 2 }, StoredRepair { esi: 0, slot: 0 }]);
        assert_eq!([slots.take(), slots.take(), slots.take()], [0, 2, 3]);
    }
}
