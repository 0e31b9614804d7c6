//! Names of blocks in the requests of a receiver, once some blocks are whole, or many symbols came twice.
//!
//! All blocks take turns, and blocks miss different packets: requests of any symbol bring symbols of all
//! blocks until the last block is whole, and of a code without repair symbols the whole cycle.

use core::num::NonZeroU32;

use headwater_fec::Scheme;

use super::DeliveryReceiver;
use super::block::Block;
use super::catalogue::Catalogue;
use super::pending::BlockId;
use crate::control::{BlockName, ReceiverControl};
use crate::delivery::store::{ObjectIndex, Store};

/// Number of symbols received twice from which requests name blocks: the first names ask for symbols under
/// way, a window's worth, once more.
const DUPLICATES: u64 = 64;

/// Number of blocks without turns that each request may search again for lacking symbols, in the mean.
const SEARCHED: usize = 64;

/// Turns of the blocks in requests: as many turns as a block lacks symbols, then all over again.
///
/// Memory: up to 32 bytes a block. Time per turn: constant in the mean; without a code up to a bit for each
/// symbol of a block.
#[derive(Debug, Default)]
pub struct BlockNames {
    /// Blocks that were not whole: first those with turns left.
    blocks: Vec<Turns>,
    /// Number of blocks with turns left.
    active: usize,
    /// Block of the next turn.
    next: usize,
    /// Requests until blocks are searched again.
    rest: usize,
}

#[derive(Debug)]
struct Turns {
    object: u32,
    sbn: u32,
    left: u32,
    /// Source symbol behind the last named symbol.
    after: u32,
}

impl BlockNames {
    /// Returns the next name; `None` if no block is known to lack symbols.
    fn next(&mut self, catalogue: &Catalogue) -> Option<BlockName> {
        if self.active == 0 {
            self.renew(catalogue);
        }
        while self.active > 0 {
            if self.next >= self.active {
                self.next = 0;
            }
            let turns = &mut self.blocks[self.next];
            let lacked = catalogue.lacked(turns.block());
            turns.left = if lacked > 0 { turns.left - 1 } else { 0 };
            let name = (lacked > 0).then(|| catalogue.name(turns));
            if turns.left > 0 {
                self.next += 1;
            } else {
                self.active -= 1;
                self.blocks.swap(self.next, self.active);
            }
            if name.is_some() {
                return name.flatten();
            }
        }
        None
    }

    /// Gives turns to all blocks that lack symbols.
    fn renew(&mut self, catalogue: &Catalogue) {
        self.rest = self.rest.saturating_sub(1);
        if self.rest > 0 {
            return;
        }
        self.blocks.retain(|turns| catalogue.may_lack(turns.block()));
        let mut searched = self.blocks.len();
        if self.blocks.is_empty() {
            searched = catalogue.objects.iter().map(|object| 1 + object.blocks.len()).sum();
            for (object, state) in (0..).zip(&catalogue.objects) {
                let all = (0..).zip(&state.blocks);
                let all = all.map(|(sbn, _)| Turns { object, sbn, left: 0, after: 0 });
                self.blocks.extend(all.filter(|turns| catalogue.may_lack(turns.block())));
            }
        }
        for turns in &mut self.blocks {
            (turns.left, turns.after) = (catalogue.lacked(turns.block()), 0);
        }
        self.blocks.sort_by_key(|turns| turns.left == 0);
        self.active = self.blocks.partition_point(|turns| turns.left > 0);
        self.rest = (searched - self.active) / SEARCHED;
    }
}

impl Turns {
    const fn block(&self) -> BlockId {
        (ObjectIndex(self.object as usize), self.sbn)
    }
}

impl Catalogue {
    /// Whether a block may lack symbols now or later, and has a name.
    fn may_lack(&self, (object, sbn): BlockId) -> bool {
        let object = &self.objects[object.0];
        let file = &self.files[object.file.0];
        let is_ended = matches!(object.blocks.get(sbn as usize), None | Some(Block::Ended));
        file.outcome.is_none() && !is_ended && u32::try_from(object.toi).is_ok_and(|toi| toi > 0)
    }

    /// Returns the number of symbols that a block lacks.
    fn lacked(&self, (object, sbn): BlockId) -> u32 {
        let state = &self.objects[object.0];
        if !self.may_lack((object, sbn)) || self.files[state.file.0].awaits_comparison() {
            return 0;
        }
        match &state.blocks[sbn as usize] {
            Block::Unseen => state.partition.block(sbn).map_or(0, |block| block.symbols),
            Block::Open(block) if !block.is_finishing() => block.symbols_wanted(),
            Block::Open(_) | Block::Ended => 0,
        }
    }

    /// Returns the name of a block. Without a code, of the next symbol from `turns.after` on that is not
    /// held.
    fn name(&self, turns: &mut Turns) -> Option<BlockName> {
        let (object, sbn) = turns.block();
        let state = &self.objects[object.0];
        let symbols = state.partition.block(sbn)?.symbols;
        let missing = || match &state.blocks[sbn as usize] {
            Block::Open(block) => block.next_missing_source(turns.after),
            _ => Some(turns.after % symbols),
        };
        let esi = if state.codec.scheme() == Scheme::NoCode { missing() } else { None };
        turns.after = esi.map_or(0, |esi| esi + 1);
        Some(BlockName { toi: NonZeroU32::new(u32::try_from(state.toi).ok()?)?, sbn, esi })
    }
}

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    /// Names the block of the next request, if the control requests packets.
    pub(super) fn name_block(&mut self) {
        let is_uneven = self.open_blocks < self.catalogue.blocks || self.stats.duplicates > DUPLICATES;
        if self.complete
            && is_uneven
            && let Some(requester) = self.front.control.requester()
        {
            requester.name_block(self.names.next(&self.catalogue));
        }
    }
}
