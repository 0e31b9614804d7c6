//! What a receiver knows of one block: which symbols it holds.

use super::esi_set::EsiSet;
use crate::delivery::store::{HeldBlock, StoredRepair, repair_slots};

/// Repair symbols taken while a block is being decoded, in case it turns out that those at hand were not
/// enough.
const SPARE_SYMBOLS: u32 = 2;

/// A block under way. Memory: itself, one bit per source symbol, and what the numbers of its repair symbols
/// take.
#[derive(Clone, Debug)]
pub struct BlockState {
    symbols: u32,
    source: Box<[u64]>,
    source_count: u32,
    /// Repair symbols held, in the slots below this one.
    repairs: u32,
    repair_esis: EsiSet,
    /// Symbols needed before the first attempt: K, or more where the code mostly takes more.
    first_try: u32,
    /// Symbols needed before the next attempt: at least so many, then more than the last attempt had.
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
    /// It has enough, and waits for the store.
    Waiting,
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
    /// The block under way, if it is.
    pub fn under_way(&mut self) -> Option<&mut BlockState> {
        match self {
            Self::Open(state) => Some(state),
            Self::Unseen | Self::Ended => None,
        }
    }

    /// Whether it needs symbols.
    pub fn is_waiting(&self) -> bool {
        match self {
            Self::Unseen => true,
            Self::Open(state) => !state.is_finishing(),
            Self::Ended => false,
        }
    }

    /// Ends the block and says how much memory comes back.
    pub fn end(&mut self) -> usize {
        match core::mem::replace(self, Self::Ended) {
            Self::Open(state) => state.bytes(),
            Self::Unseen | Self::Ended => 0,
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
        Self {
            symbols,
            source: vec![0; words(symbols)].into_boxed_slice(),
            source_count: 0,
            repairs: 0,
            repair_esis: EsiSet::default(),
            first_try: symbols,
            needed: symbols,
            tried: 0,
            phase: Phase::Receiving,
            strikes: 0,
            is_resumed: false,
        }
    }

    /// A block that is not tried to be decoded before there are so many symbols, unless all source symbols
    /// are there.
    pub fn with_first_try(mut self, symbols: u32) -> Self {
        self.first_try = symbols.max(self.symbols);
        self.needed = self.first_try;
        self
    }

    /// What [`BlockState::new`] takes, in bytes.
    pub fn bytes_of_new(symbols: u32) -> usize {
        size_of::<Self>() + 8 * words(symbols)
    }

    /// What it takes, in bytes.
    pub fn bytes(&self) -> usize {
        Self::bytes_of_new(self.symbols) + self.repair_esis.bytes()
    }

    /// What adding a repair symbol would add to that.
    pub fn bytes_for_repair(&self, esi: u32) -> usize {
        self.repair_esis.bytes_to_insert(esi)
    }

    /// A block of K = `symbols` source symbols, with what an earlier session left of it. Symbols from
    /// `esi_end` on do not exist.
    pub fn resumed(symbols: u32, esi_end: u32, held: &HeldBlock) -> Self {
        let mut block = Self::new(symbols);
        block.is_resumed = true;
        for esi in (0..symbols).filter(|esi| held.holds_source(*esi)) {
            block.add_source(esi);
        }
        for esi in held.repairs.iter().filter(|_| !held.is_whole).take(repair_slots(symbols) as usize) {
            // What stands in a slot that makes no sense ends what counts of them.
            if !(symbols..esi_end).contains(esi) || !block.repair_esis.insert(*esi) {
                break;
            }
            block.repairs += 1;
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
            // An attempt that may well fail takes long, and what came meanwhile serves the next one.
            Phase::Finishing => SPARE_SYMBOLS + 4 * (self.first_try - self.symbols),
            Phase::Receiving | Phase::Waiting => 0,
        };
        let has_room = esi < self.symbols || self.repairs < repair_slots(self.symbols);
        if has_room && self.count() < self.needed + spare { Worth::Needed } else { Worth::Surplus }
    }

    fn holds(&self, esi: u32) -> bool {
        if esi < self.symbols {
            self.source[(esi / 64) as usize] & 1 << (esi % 64) != 0
        } else {
            self.repair_esis.contains(esi)
        }
    }

    /// Symbols held.
    pub fn count(&self) -> u32 {
        self.source_count + self.repairs
    }

    pub fn add_source(&mut self, esi: u32) {
        self.source[(esi / 64) as usize] |= 1 << (esi % 64);
        self.source_count += 1;
    }

    /// Adds a repair symbol, and says which slot is its own.
    pub fn add_repair(&mut self, esi: u32) -> StoredRepair {
        self.repair_esis.insert(esi);
        self.repairs += 1;
        StoredRepair { esi, slot: self.repairs - 1 }
    }

    /// Whether it is time to hand the block to the store.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Receiving && (self.count() >= self.needed || self.source_count == self.symbols)
    }

    /// It has enough, and takes no more.
    pub fn wait(&mut self) {
        self.phase = Phase::Waiting;
    }

    /// Hands the block over: the source symbols that are missing and the number of repair symbols.
    pub fn start_finishing(&mut self) -> (Vec<u32>, u32) {
        self.phase = Phase::Finishing;
        self.tried = self.count();
        let missing = (0..self.symbols).filter(|esi| !self.holds(*esi)).collect();
        (missing, self.repairs)
    }

    /// The symbols did not determine the block: so many more are needed than it was tried with. False when no
    /// slot is left for them.
    #[must_use]
    pub fn needs_more(&mut self, more: u32) -> bool {
        self.phase = Phase::Receiving;
        self.needed = self.tried.saturating_add(more.max(1));
        self.count() >= self.needed || self.repairs < repair_slots(self.symbols)
    }

    /// Whether it has enough, and the store is at work on it or will be.
    pub fn is_finishing(&self) -> bool {
        self.phase != Phase::Receiving
    }

    /// Times that it was whole and wrong.
    pub fn strikes(&self) -> u8 {
        self.strikes
    }

    /// The block is whole and wrong: some symbol was corrupt. At first the repair symbols are dropped, then
    /// all; what came from an earlier session is dropped at once, and is no strike: the disk may have lost
    /// it. Gives back the number of symbols dropped, and of bytes that come free.
    pub fn mismatched(&mut self) -> (u32, usize) {
        let (symbols, bytes) = (self.count(), self.bytes());
        self.repairs = 0;
        self.repair_esis = EsiSet::default();
        self.phase = Phase::Receiving;
        self.needed = self.first_try;
        let is_resumed = core::mem::take(&mut self.is_resumed);
        if is_resumed || self.strikes > 0 || self.source_count == self.symbols {
            self.source.fill(0);
            self.source_count = 0;
        }
        self.strikes = self.strikes.saturating_add(u8::from(!is_resumed));
        (symbols - self.count(), bytes - self.bytes())
    }
}

impl HeldBlock {
    fn holds_source(&self, esi: u32) -> bool {
        let word = self.source.get((esi / 64) as usize).copied().unwrap_or_default();
        self.is_whole || word & 1 << (esi % 64) != 0
    }
}

fn words(symbols: u32) -> usize {
    (symbols as usize).div_ceil(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_count_once_in_any_order() {
        let mut block = BlockState::new(70);
        block.add_source(69);
        for esi in [90, 71, 80, 100] {
            assert_eq!(block.worth(esi), Worth::Needed);
            let slot = block.repairs;
            assert_eq!(block.add_repair(esi), StoredRepair { esi, slot });
        }
        for esi in [69, 71, 80, 90, 100] {
            assert_eq!(block.worth(esi), Worth::Duplicate, "{esi}");
        }
        assert_eq!(block.count(), 5);
        let (missing, repairs) = block.start_finishing();
        assert_eq!(missing, (0..69).collect::<Vec<_>>());
        assert_eq!(repairs, 4);
    }

    #[test]
    fn a_block_takes_a_little_more_while_it_is_decoded() {
        let mut block = BlockState::new(2);
        block.add_source(0);
        block.add_repair(5);
        assert!(block.is_ready());
        block.start_finishing();
        assert!(!block.is_ready());
        for esi in [6, 7] {
            assert_eq!(block.worth(esi), Worth::Needed);
            block.add_repair(esi);
        }
        assert_eq!(block.worth(8), Worth::Surplus);
        assert!(block.needs_more(2));
        assert!(block.is_ready(), "the spare symbols allow another attempt at once");
        block.start_finishing();
        assert!(block.needs_more(3) && !block.is_ready());
        assert_eq!(
            [6, 7, 8].map(|esi| block.worth(esi)),
            [Worth::Duplicate, Worth::Duplicate, Worth::Needed]
        );
    }

    #[test]
    fn corruption_drops_repairs_first_then_all() {
        let mut block = BlockState::new(2);
        block.add_source(0);
        block.add_repair(9);
        block.start_finishing();
        assert_eq!(block.mismatched(), (1, EsiSet::BYTES_OF_ONE));
        assert_eq!(block.worth(0), Worth::Duplicate);
        block.add_repair(10);
        block.start_finishing();
        assert_eq!(block.mismatched(), (2, EsiSet::BYTES_OF_ONE));
        assert_eq!(block.worth(0), Worth::Needed);
    }

    #[test]
    fn a_corrupt_block_always_wants_symbols_again() {
        // All source symbols, and a spare one that came while they were hashed.
        let mut block = BlockState::new(2);
        block.add_source(0);
        block.add_source(1);
        block.start_finishing();
        block.add_repair(2);
        assert_eq!(block.mismatched(), (3, EsiSet::BYTES_OF_ONE));
        assert_eq!(block.worth(0), Worth::Needed);
    }

    #[test]
    fn a_resumed_block_goes_on_where_it_was_and_holds_nothing_out_of_range() {
        let repairs = vec![70, 72, 9, 71];
        let held = HeldBlock { sbn: 0, is_whole: false, source: vec![1, 0xff], repairs };
        let mut block = BlockState::resumed(70, 200, &held);
        assert_eq!(
            block.count(),
            1 + 6 + 2,
            "source symbol 0, the 6 that exist beyond 63, repair symbols up to one that cannot be"
        );
        assert_eq!(
            (block.worth(64), block.worth(70), block.worth(1)),
            (Worth::Duplicate, Worth::Duplicate, Worth::Needed)
        );
        block.start_finishing();
        assert_eq!(block.mismatched().0, 9, "the disk is not trusted twice");
        assert_eq!((block.count(), block.strikes()), (0, 0));
    }

    #[test]
    fn a_block_resumed_whole_needs_nothing_but_the_proof() {
        let held = HeldBlock { is_whole: true, ..HeldBlock::default() };
        let mut block = BlockState::resumed(70, 200, &held);
        assert!(block.is_ready());
        assert_eq!(block.start_finishing(), (Vec::new(), 0));
    }

    #[test]
    fn a_block_has_no_more_repair_symbols_than_slots() {
        let mut block = BlockState::new(2);
        let mut esi = 2;
        while block.needs_more(1) {
            while !block.is_ready() {
                assert_eq!(block.worth(esi), Worth::Needed);
                assert!(block.add_repair(esi).slot < repair_slots(2));
                esi += 1;
            }
            block.start_finishing();
        }
        assert_eq!((block.count(), block.worth(esi)), (4, Worth::Surplus));
    }
}
