//! Reception state of a block: the set of symbols held.

use headwater_wire::{PayloadId, alc};

use super::DeliveryReceiver;
use super::catalogue::Announced;
use super::pending::BlockId;
use super::pending::PendingPacket;
use crate::control::ReceiverControl;
use crate::delivery::store::{HeldBlock, ObjectIndex, Store, StoreError, StoredRepair, repair_slots};
use crate::time::Instant;

/// Symbols accepted beyond the needed symbols until the block is decoded, in case the decoder needs more: K
/// symbols of RaptorQ fail once in a hundred, K + 2 once in a million (RFC 6330, section 1).
const SPARE_SYMBOLS: u32 = 2;

/// State of a block in progress. Memory: the structure, one bit per source symbol, and the set of repair
/// ESIs.
#[derive(Clone, Debug)]
pub struct BlockState {
    symbols: u32,
    source: Box<[u64]>,
    source_count: u32,
    /// Number of repair symbols held, in the slots below this number.
    repairs: u32,
    repair_esis: EsiSet,
    /// Number of symbols needed before the first attempt to decode: K, or more if the code usually needs
    /// more.
    first_try: u32,
    /// Number of symbols needed before the next attempt: at first `first_try`, later more than the last
    /// attempt had.
    needed: u32,
    tried: u32,
    phase: Phase,
    /// Number of times that symbols were dropped as corrupt, except with symbols of an earlier session.
    strikes: u8,
    /// Whether some symbols come from an earlier session and have not been verified.
    is_resumed: bool,
    /// Source symbols of repair servers; empty without any.
    repaired: Box<[u64]>,
    /// Number of the server that these symbols came from; `None` for several servers.
    repaired_by: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receiving,
    /// The block has enough symbols and waits for the store.
    Waiting,
    Finishing,
}

/// State of a block from the announcement to the end.
#[derive(Clone, Debug)]
pub enum Block {
    /// No symbol has arrived.
    Unseen,
    /// In progress.
    Open(Box<BlockState>),
    /// Whole and verified, or given up: no other state is kept.
    Ended,
}

impl Block {
    /// Returns the state of a block in progress.
    pub fn under_way(&mut self) -> Option<&mut BlockState> {
        match self {
            Self::Open(state) => Some(state),
            Self::Unseen | Self::Ended => None,
        }
    }

    /// Whether the block needs symbols.
    pub fn is_waiting(&self) -> bool {
        match self {
            Self::Unseen => true,
            Self::Open(state) => !state.is_finishing(),
            Self::Ended => false,
        }
    }

    /// Ends the block and returns the number of bytes released.
    pub fn end(&mut self) -> usize {
        match core::mem::replace(self, Self::Ended) {
            Self::Open(state) => state.bytes(),
            Self::Unseen | Self::Ended => 0,
        }
    }
}

/// Use of a symbol for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// The block needs the symbol.
    Needed,
    /// The block already has the symbol.
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
            repaired: Box::default(),
            repaired_by: None,
        }
    }

    /// Sets the number of symbols before the first attempt to decode, unless all source symbols arrive
    /// earlier.
    pub fn with_first_try(mut self, symbols: u32) -> Self {
        self.first_try = symbols.max(self.symbols);
        self.needed = self.first_try;
        self
    }

    /// Memory of [`BlockState::new`], in bytes.
    pub fn bytes_of_new(symbols: u32) -> usize {
        size_of::<Self>() + 8 * words(symbols)
    }

    /// Memory of the state, in bytes.
    pub fn bytes(&self) -> usize {
        Self::bytes_of_new(self.symbols) + self.repair_esis.bytes() + 8 * self.repaired.len()
    }

    /// Additional memory for a source symbol of a repair server, in bytes.
    pub fn bytes_for_repaired(&self) -> usize {
        if self.repaired.is_empty() { 8 * words(self.symbols) } else { 0 }
    }

    /// Adds a source symbol of a repair server.
    pub fn add_repaired(&mut self, esi: u32, server: u32) {
        if self.repaired.is_empty() {
            self.repaired = vec![0; words(self.symbols)].into_boxed_slice();
            self.repaired_by = Some(server);
        }
        self.repaired_by = self.repaired_by.filter(|by| *by == server);
        self.repaired[(esi / 64) as usize] |= 1 << (esi % 64);
        self.add_source(esi);
    }

    /// Whether the block holds symbols of a repair server.
    pub fn has_repaired(&self) -> bool {
        !self.repaired.is_empty()
    }

    /// Returns the server to blame if the block does not match the digest: the only server of symbols of the
    /// block, beside verified packets. Symbols of an earlier session may be wrong, too.
    pub fn suspect(&self) -> Option<u32> {
        self.repaired_by.filter(|_| self.has_repaired() && !self.is_resumed)
    }

    /// Returns the first source symbol from `from` on that is not held; without one the first of all.
    pub fn next_missing_source(&self, from: u32) -> Option<u32> {
        let mut missing = (from..self.symbols).chain(0..from.min(self.symbols));
        missing.find(|esi| !self.holds(*esi))
    }

    /// Returns the source symbols that are not held, in ascending order.
    pub fn missing_source(&self) -> Vec<u32> {
        (0..self.symbols).filter(|esi| !self.holds(*esi)).collect()
    }

    /// Number of symbols until the next attempt to decode.
    pub fn symbols_wanted(&self) -> u32 {
        self.needed.saturating_sub(self.count()).max(1)
    }

    /// Additional memory for a repair symbol, in bytes.
    pub fn bytes_for_repair(&self, esi: u32) -> usize {
        self.repair_esis.bytes_to_insert(esi)
    }

    /// Creates the state of a block with K = `symbols` source symbols from the symbols of an earlier session.
    /// ESIs from `esi_end` on are invalid.
    pub fn resumed(symbols: u32, esi_end: u32, held: &HeldBlock) -> Self {
        let mut block = Self::new(symbols);
        block.is_resumed = true;
        for esi in (0..symbols).filter(|esi| held.holds_source(*esi)) {
            block.add_source(esi);
        }
        for esi in held.repairs.iter().filter(|_| !held.is_whole).take(repair_slots(symbols) as usize) {
            // The first invalid ESI ends the list of valid slots.
            if !(symbols..esi_end).contains(esi) || !block.repair_esis.insert(*esi) {
                break;
            }
            block.repairs += 1;
        }
        block
    }

    #[inline]
    pub fn worth(&self, esi: u32) -> Worth {
        if self.holds(esi) {
            return Worth::Duplicate;
        }
        let spare = match self.phase {
            Phase::Receiving => 0,
            // With all source symbols present, no more symbols can be needed.
            _ if self.source_count == self.symbols => return Worth::Surplus,
            // During decoding, the store writes the places of source symbols.
            Phase::Finishing if esi < self.symbols => return Worth::Surplus,
            // An attempt that is likely to fail takes long; symbols that arrive meanwhile serve the next
            // attempt.
            Phase::Waiting | Phase::Finishing => SPARE_SYMBOLS + 4 * (self.first_try - self.symbols),
        };
        let has_room = esi < self.symbols || self.repairs < repair_slots(self.symbols);
        if has_room && self.count() < self.needed + spare { Worth::Needed } else { Worth::Surplus }
    }

    /// Number of source symbols.
    pub fn symbols(&self) -> u32 {
        self.symbols
    }

    /// Whether the block holds a symbol.
    #[inline]
    pub fn holds(&self, esi: u32) -> bool {
        if esi < self.symbols {
            self.source[(esi / 64) as usize] & 1 << (esi % 64) != 0
        } else {
            self.repair_esis.contains(esi)
        }
    }

    /// Number of symbols held.
    pub fn count(&self) -> u32 {
        self.source_count + self.repairs
    }

    #[inline]
    pub fn add_source(&mut self, esi: u32) {
        self.source[(esi / 64) as usize] |= 1 << (esi % 64);
        self.source_count += 1;
    }

    /// Adds a repair symbol and returns the slot of the symbol.
    pub fn add_repair(&mut self, esi: u32) -> StoredRepair {
        self.repair_esis.insert(esi);
        self.repairs += 1;
        StoredRepair { esi, slot: self.repairs - 1 }
    }

    /// Whether the block should be handed to the store.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Receiving && (self.count() >= self.needed || self.source_count == self.symbols)
    }

    /// Whether the block has K symbols that no attempt has had: nothing more comes, and they may suffice.
    pub fn may_suffice(&self) -> bool {
        self.phase == Phase::Receiving && self.count() >= self.symbols && self.count() > self.tried
    }

    /// Whether the attempt to decode that the block waits for, or that is at work, may fail, and no spare
    /// symbol is there for the next attempt.
    pub fn lacks_spare(&self) -> bool {
        self.is_finishing()
            && self.count() <= self.needed
            && self.source_count < self.symbols
            && self.repairs < repair_slots(self.symbols)
    }

    /// Marks the block as waiting for the store.
    pub fn wait(&mut self) {
        self.phase = Phase::Waiting;
    }

    /// Starts decoding. Returns the missing source symbols and the number of repair symbols.
    pub fn start_finishing(&mut self) -> (Vec<u32>, u32) {
        self.phase = Phase::Finishing;
        self.tried = self.count();
        (self.missing_source(), self.repairs)
    }

    /// Records that the symbols did not determine the block: `more` symbols are needed in addition to the
    /// symbols of the last attempt. Returns false if no slot is left for more symbols.
    #[must_use]
    pub fn needs_more(&mut self, more: u32) -> bool {
        self.phase = Phase::Receiving;
        self.needed = self.tried.saturating_add(more.max(1));
        self.count() >= self.needed || self.repairs < repair_slots(self.symbols)
    }

    /// Whether the block has enough symbols, and the store is decoding the block or will be.
    pub fn is_finishing(&self) -> bool {
        self.phase != Phase::Receiving
    }

    /// Returns the number of times that symbols were dropped as corrupt, except with symbols of an earlier
    /// session.
    pub fn strikes(&self) -> u8 {
        self.strikes
    }

    /// Drops symbols of a block that does not match the announced digest or cannot be decoded, since a symbol
    /// is corrupt. If a source symbol is missing, the first strike drops only the repair symbols; otherwise
    /// all symbols are dropped. A block with symbols of an earlier session drops all symbols at once, without
    /// a strike: the disk may have lost data. Another block with symbols of a repair server drops those and
    /// the repair symbols, without a strike. Returns the number of symbols dropped and of bytes released.
    pub fn mismatched(&mut self) -> (u32, usize) {
        let (symbols, bytes) = (self.count(), self.bytes());
        self.repairs = 0;
        self.repair_esis = EsiSet::default();
        self.phase = Phase::Receiving;
        self.needed = self.first_try;
        let repaired = core::mem::take(&mut self.repaired);
        let is_resumed = core::mem::take(&mut self.is_resumed);
        if !repaired.is_empty() && !is_resumed {
            for (source, repaired) in self.source.iter_mut().zip(repaired) {
                self.source_count -= (*source & repaired).count_ones();
                *source &= !repaired;
            }
            return (symbols - self.count(), bytes - self.bytes());
        }
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

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    pub(super) fn on_symbol(
        &mut self,
        now: Instant,
        toi: u128,
        header: &alc::Repr,
        id: PayloadId,
        payload: &[u8],
    ) {
        if self.may_recall {
            self.recall(now);
        }
        let fti = header.extensions.fti;
        if let Some(fti) = fti
            && let Some(Announced::AwaitsFti(entry)) = self.catalogue.look_up(toi)
        {
            let entry = entry.clone();
            if let Err(refusal) = self.admit(now, &entry, fti, None) {
                self.refuse(&entry, refusal.to_string());
            }
        }
        let packet = PendingPacket { toi, codepoint: header.codepoint, id };
        match self.catalogue.look_up(toi) {
            Some(Announced::Object(object)) => self.put_packet(now, *object, packet, payload),
            Some(Announced::Refused) => self.stats.dropped.refused += 1,
            Some(Announced::AwaitsFti(_)) | None => {
                let awaited = !self.complete || self.catalogue.is_awaiting_fti();
                if !awaited || !self.pending.push(packet, fti, payload) {
                    self.stats.dropped.unknown_object += 1;
                }
            }
        }
    }

    pub(super) fn put_packet(
        &mut self,
        now: Instant,
        object: ObjectIndex,
        packet: PendingPacket,
        payload: &[u8],
    ) {
        let state = &self.catalogue.objects[object.0];
        let outcome = self.catalogue.files[state.file.0].outcome;
        if outcome.is_some_and(|outcome| !outcome.is_done()) {
            self.stats.dropped.refused += 1;
        } else if self.catalogue.files[state.file.0].awaits_comparison() {
            // If no memory is left, the packet is dropped: the carousel sends the symbol again if the symbol
            // is still needed.
            if !self.pending.push(packet, None, payload) {
                self.stats.surplus += 1;
            }
        } else if state.fti.encoding_id().codepoint() == packet.codepoint {
            self.put_symbol(now, object, packet.id, payload);
        } else {
            self.stats.dropped.bad_symbol += 1;
        }
    }

    fn put_symbol(&mut self, now: Instant, index: ObjectIndex, id: PayloadId, payload: &[u8]) {
        let object = &mut self.catalogue.objects[index.0];
        let Some(spec) = object.block_of(id, payload.len()) else {
            self.stats.dropped.bad_symbol += 1;
            return;
        };
        let block = &mut object.blocks[id.sbn as usize];
        if matches!(block, Block::Unseen) {
            if !self.room.take((index, id.sbn), BlockState::bytes_of_new(spec.symbols)) {
                self.stats.dropped.no_room += 1;
                return;
            }
            let first_try = object.codec.symbols_to_try(spec.symbols);
            *block = Block::Open(Box::new(BlockState::new(spec.symbols).with_first_try(first_try)));
        }
        let Some(block) = block.under_way() else {
            self.stats.surplus += 1;
            return;
        };
        match block.worth(id.esi) {
            Worth::Duplicate => self.stats.duplicates += 1,
            Worth::Surplus => self.stats.surplus += 1,
            Worth::Needed if id.esi < spec.symbols => {
                block.add_source(id.esi);
                let is_ready = block.is_ready();
                let written = self.store.write_source(index, id.sbn, id.esi, payload);
                self.stats.useful += 1;
                self.count_symbol(now, (index, id.sbn), written, is_ready);
            }
            Worth::Needed if self.room.take((index, id.sbn), block.bytes_for_repair(id.esi)) => {
                let repair = block.add_repair(id.esi);
                let is_ready = block.is_ready();
                let written = self.store.write_repair(index, id.sbn, repair, payload);
                self.stats.useful += 1;
                self.count_symbol(now, (index, id.sbn), written, is_ready);
            }
            Worth::Needed => self.stats.dropped.no_room += 1,
        }
    }

    /// Counts a needed symbol that was handed to the store, and queues the block if ready.
    pub(super) fn count_symbol(
        &mut self,
        now: Instant,
        block: BlockId,
        written: Result<(), StoreError>,
        is_ready: bool,
    ) {
        let file = self.catalogue.objects[block.0.0].file;
        self.catalogue.files[file.0].symbols_held += 1;
        self.stats.last_progress = now;
        match written {
            Err(error) => self.fail(error),
            Ok(()) if is_ready => self.queue_block(block),
            Ok(()) => {}
        }
    }
}

/// Number of ESIs per entry.
const RUN: u32 = 256;
/// Number of 64-bit words per entry.
const WORDS: usize = (RUN / 64) as usize;

/// Set of ESIs. Memory: 40 bytes for each run of 256 ESIs with a member, and up to a quarter of spare
/// capacity. Senders count up, so a run holds all of 256 except the lost symbols.
#[derive(Clone, Debug, Default)]
pub struct EsiSet(Vec<(u32, [u64; WORDS])>);

impl EsiSet {
    /// Memory of the first ESI, in bytes.
    #[cfg(test)]
    pub const BYTES_OF_ONE: usize = size_of::<(u32, [u64; WORDS])>();

    pub fn contains(&self, esi: u32) -> bool {
        let (word, bit) = place(esi);
        self.find(esi).is_ok_and(|index| self.0[index].1[word] & bit != 0)
    }

    /// Adds an ESI. Returns false if the set already has the ESI.
    pub fn insert(&mut self, esi: u32) -> bool {
        let (word, bit) = place(esi);
        let index = self.find(esi).unwrap_or_else(|index| {
            if self.0.len() == self.0.capacity() {
                self.0.reserve_exact(self.growth());
            }
            self.0.insert(index, (esi / RUN, [0; WORDS]));
            index
        });
        let word = &mut self.0[index].1[word];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Memory of the set, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u32, [u64; WORDS])>()
    }

    /// Additional memory for an ESI, in bytes.
    pub fn bytes_to_insert(&self, esi: u32) -> usize {
        let is_full = self.0.len() == self.0.capacity();
        if is_full && self.find(esi).is_err() { self.growth() * size_of::<(u32, [u64; WORDS])>() } else { 0 }
    }

    fn growth(&self) -> usize {
        1 + self.0.len() / 4
    }

    /// Finds the entry of an ESI. ESIs mostly arrive in ascending order, so the last entry is checked first.
    fn find(&self, esi: u32) -> Result<usize, usize> {
        let run = esi / RUN;
        match self.0.last() {
            Some((last, _)) if *last == run => Ok(self.0.len() - 1),
            Some((last, _)) if *last > run => self.0.binary_search_by_key(&run, |(run, _)| *run),
            _ => Err(self.0.len()),
        }
    }
}

fn place(esi: u32) -> (usize, u64) {
    ((esi % RUN / 64) as usize, 1 << (esi % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
    fn a_block_that_waits_for_more_than_k_symbols_may_suffice_once() {
        let mut block = BlockState::new(2).with_first_try(4);
        block.add_source(0);
        assert!(!block.may_suffice());
        block.add_repair(5);
        assert!(!block.is_ready() && block.may_suffice());
        block.start_finishing();
        assert!(!block.may_suffice());
        assert!(block.needs_more(1) && !block.may_suffice());
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

    #[test]
    fn it_is_a_set_that_knows_its_memory() {
        let (mut set, mut model) = (EsiSet::default(), BTreeSet::new());
        for number in 0..3_000_u32 {
            let esi = number.wrapping_mul(0x9E37_79B9) % 5_000;
            let bytes = set.bytes() + set.bytes_to_insert(esi);
            assert_eq!(set.contains(esi), model.contains(&esi));
            assert_eq!(set.insert(esi), model.insert(esi));
            assert_eq!(set.bytes(), bytes);
        }
        assert!((0..5_000).all(|esi| set.contains(esi) == model.contains(&esi)));
        assert!(set.bytes() <= (5_000 / 256 + 1) * 40 * 5 / 4, "{}", set.bytes());
    }
}
