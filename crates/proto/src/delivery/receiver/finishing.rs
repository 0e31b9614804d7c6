//! Completion of blocks and files: hand-over to the store, reports, verification.

use super::block::{Block, BlockState};
use super::catalogue::{Catalogue, FileOutcome};
use super::pending::BlockId;
use super::{DeliveryReceiver, ReceiverEvent};
use crate::control::ReceiverControl;
use crate::delivery::object::{Digest, file_digest, short};
use crate::delivery::store::{
    BlockJob, BlockVerdict, FileIndex, ObjectIndex, Store, StoreError, StoreReport,
};
use crate::time::Instant;

/// Number of strikes of a block after which the file is given up: the announced digest or the sender is
/// wrong.
const STRIKES_MAX: u8 = 8;
/// Maximum number of concurrent store operations: enough for the store's threads. Each block takes 4 bytes
/// per missing symbol.
pub(super) const JOBS_MAX: usize = 8;

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    /// Queues a block that has enough symbols for the store.
    pub(super) fn queue_block(&mut self, block: BlockId) {
        let Some(state) = self.under_way(block) else { return };
        state.wait();
        if !self.is_block_compared(block) {
            self.open_blocks -= 1;
        }
        self.ready.push_back(block);
        self.hand_over();
    }

    /// Queues the blocks that waited for a symbol beyond K, since no more symbols come. Returns whether there
    /// are such blocks.
    pub(super) fn queue_last_blocks(&mut self) -> bool {
        let mut last = Vec::new();
        for (index, object) in self.catalogue.objects.iter().enumerate() {
            let open = (0..).zip(&object.blocks).filter_map(|(sbn, block)| match block {
                Block::Open(state) if state.may_suffice() => Some((ObjectIndex(index), sbn)),
                _ => None,
            });
            last.extend(open);
        }
        last.iter().for_each(|block| self.queue_block(*block));
        self.jobs > 0
    }

    /// Whether a block that is not decoded yet has no symbol to spare. A receiver that leaves the channels
    /// then, and fails to decode the block, has to climb through all levels again.
    pub(super) fn lacks_spare_symbols(&self) -> bool {
        // The blocks queued last have the fewest symbols.
        let mut blocks = self.ready.iter().rev().chain(&self.decoding);
        blocks.any(|(object, sbn)| {
            let block = &self.catalogue.objects[object.0].blocks[*sbn as usize];
            matches!(block, Block::Open(state) if state.lacks_spare())
        })
    }

    /// Hands queued blocks and files to the store, up to [`JOBS_MAX`] at a time: each description of a block
    /// takes memory.
    pub(super) fn hand_over(&mut self) {
        while self.jobs < JOBS_MAX
            && let Some(block) = self.ready.pop_front()
        {
            // The file may have ended meanwhile.
            let Some(state) = self.under_way(block) else { continue };
            let (missing, repairs) = state.start_finishing();
            self.jobs += 1;
            self.decoding.push(block);
            self.store.finish_block(BlockJob { object: block.0, sbn: block.1, missing, repairs });
        }
        while self.jobs < JOBS_MAX
            && let Some(file) = self.to_compare.pop_front()
        {
            // The file may have been refused meanwhile.
            let Some(digest) = self.catalogue.files[file.0].spec.digest else { continue };
            if self.catalogue.is_open(file) {
                self.jobs += 1;
                self.store.compare_file(file, digest, self.catalogue.promised(file));
            }
        }
    }

    /// Starts to compare the file that exists at the destination, once the digest and all objects are known,
    /// with the digests of all blocks: a preface leaves digests out. No block of the file is wanted until the
    /// comparison ends.
    pub(super) fn compare_file_if_present(&mut self, file: FileIndex) {
        let Catalogue { files, objects, .. } = &mut self.catalogue;
        let state = &mut files[file.0];
        let is_known = |object: &Option<ObjectIndex>| object.is_some_and(|at| !objects[at.0].digests_follow);
        let is_described = state.spec.digest.is_some() && state.objects.iter().all(is_known);
        if !state.is_present || !is_described || state.outcome.is_some() {
            return;
        }
        (state.is_present, state.is_compared) = (false, true);
        self.open_blocks -= self.catalogue.waiting_blocks(file);
        self.to_compare.push_back(file);
        self.hand_over();
    }

    fn file_compared(&mut self, now: Instant, file: FileIndex, is_same: bool) {
        if self.catalogue.is_open(file) {
            self.catalogue.files[file.0].is_compared = false;
            self.open_blocks += self.catalogue.waiting_blocks(file);
            if is_same {
                self.end_file(file, FileOutcome::Present);
            }
        }
        let objects = self.catalogue.files[file.0].objects.clone();
        for object in objects.into_iter().flatten() {
            self.put_pending(now, object);
        }
        self.finish_file_if_whole(file);
    }

    /// Ends a block of a file in comparison whose content was found on disk, if the digest is the announced
    /// digest. A block that the store decodes or hashes ends by itself.
    fn block_found(&mut self, object: ObjectIndex, sbn: u32, digest: Digest) {
        let state = &mut self.catalogue.objects[object.0];
        let file = &mut self.catalogue.files[state.file.0];
        let is_right = state.promised.get(sbn as usize) == Some(&short(&digest));
        let Some(block) = state.blocks.get_mut(sbn as usize).filter(|block| block.is_waiting()) else {
            return;
        };
        if !is_right || !file.is_compared || file.outcome.is_some() {
            return;
        }
        let held = block.under_way().map_or(0, |block| block.count());
        let symbols = state.partition.block(sbn).map_or(0, |block| block.symbols);
        let found = u64::from(symbols.saturating_sub(held));
        self.stats.reused += found;
        file.symbols_held += found;
        state.digests[sbn as usize] = digest;
        self.block_done(object, sbn);
    }

    fn is_block_compared(&self, block: BlockId) -> bool {
        self.catalogue.files[self.catalogue.objects[block.0.0].file.0].is_compared
    }

    fn under_way(&mut self, (object, sbn): BlockId) -> Option<&mut BlockState> {
        self.catalogue.objects[object.0].blocks[sbn as usize].under_way()
    }

    pub(super) fn on_report(&mut self, now: Instant, report: StoreReport) {
        self.stats.last_progress = now;
        if let StoreReport::BlockFound { object, sbn, digest } = report {
            return self.block_found(object, sbn, digest);
        }
        self.jobs = self.jobs.saturating_sub(1);
        if let StoreReport::BlockDone { object, sbn, .. } | StoreReport::BlockNeedsMore { object, sbn, .. } =
            report
        {
            self.decoding.retain(|block| *block != (object, sbn));
        }
        match report {
            StoreReport::BlockFound { .. } => {}
            StoreReport::BlockDone { object, sbn, digest } => {
                self.catalogue.objects[object.0].digests[sbn as usize] = digest;
                self.verify_block(object, sbn);
            }
            StoreReport::BlockNeedsMore { object, sbn, more } => self.block_needs_more((object, sbn), more),
            StoreReport::FileDone(file) => self.end_file(file, FileOutcome::Done),
            StoreReport::FileCompared { file, is_same } => self.file_compared(now, file, is_same),
            StoreReport::FileMismatch(file) => self.end_file(file, FileOutcome::Mismatch),
            StoreReport::FileRefused(file, error) => self.file_refused(file, &error),
            StoreReport::Failed(error) => self.fail(error),
        }
        self.hand_over();
    }

    /// Compares a whole block with the announced digest. If the digest is not yet announced, the block waits.
    pub(super) fn verify_block(&mut self, object: ObjectIndex, sbn: u32) {
        let state = &self.catalogue.objects[object.0];
        match state.promised.get(sbn as usize) {
            Some(promised) if *promised != short(&state.digests[sbn as usize]) => {
                self.block_mismatched((object, sbn));
            }
            None if state.digests_follow => {
                if self.catalogue.is_open(state.file) {
                    self.unproven.insert((object, sbn));
                }
            }
            _ => self.block_done(object, sbn),
        }
    }

    fn block_done(&mut self, object: ObjectIndex, sbn: u32) {
        let file = self.catalogue.objects[object.0].file;
        if !self.catalogue.is_open(file) {
            return;
        }
        self.room.ended((object, sbn), self.catalogue.objects[object.0].blocks[sbn as usize].end());
        self.catalogue.files[file.0].left -= 1;
        self.judge_block(object, sbn, BlockVerdict::Right);
        self.finish_file_if_whole(file);
    }

    fn block_needs_more(&mut self, block: BlockId, more: u32) {
        let Some(state) = self.under_way(block) else { return };
        let may_go_on = state.needs_more(more);
        let is_ready = state.is_ready();
        if !self.is_block_compared(block) {
            self.open_blocks += 1;
        }
        if is_ready {
            self.queue_block(block);
        } else if !may_go_on {
            // Only a faulty sender reaches this case.
            self.drop_symbols(block);
        }
    }

    fn block_mismatched(&mut self, block: BlockId) {
        self.stats.blocks_discarded += 1;
        if self.under_way(block).is_some() {
            if !self.is_block_compared(block) {
                self.open_blocks += 1;
            }
            self.drop_symbols(block);
        }
    }

    /// Drops the symbols of a block that may be corrupt, or gives up the file after too many strikes.
    fn drop_symbols(&mut self, block: BlockId) {
        let (object, sbn) = block;
        let Some(state) = self.under_way(block) else { return };
        let (has_repaired, suspect) = (state.has_repaired(), state.suspect());
        let (symbols, bytes) = state.mismatched();
        let strikes = state.strikes();
        let verdict =
            if state.count() == 0 { BlockVerdict::AllDropped } else { BlockVerdict::RepairsDropped };
        self.room.give_back(bytes);
        let file = self.catalogue.objects[object.0].file;
        self.catalogue.files[file.0].symbols_held -= u64::from(symbols);
        self.judge_block(object, sbn, verdict);
        if has_repaired {
            self.on_repair_mismatch(file, suspect);
        }
        if strikes >= STRIKES_MAX {
            self.end_file(file, FileOutcome::Mismatch);
        }
    }

    fn judge_block(&mut self, object: ObjectIndex, sbn: u32, verdict: BlockVerdict) {
        if let Err(error) = self.store.judge_block(object, sbn, verdict) {
            self.fail(error);
        }
    }

    pub(super) fn finish_file_if_whole(&mut self, index: FileIndex) {
        let file = &self.catalogue.files[index.0];
        if file.left > 0 || file.digest_follows || file.is_compared || file.outcome.is_some() {
            return;
        }
        // The part that ends a stream is finished last.
        if self.open_files > 1 && file.part.as_ref().is_some_and(|part| part.end.is_some()) {
            return;
        }
        let matches =
            file.spec.digest.is_none_or(|digest| digest == file_digest(self.catalogue.block_digests(index)));
        if matches {
            self.jobs += 1;
            self.store.finish_file(index);
        } else {
            self.end_file(index, FileOutcome::Mismatch);
        }
    }

    fn file_refused(&mut self, file: FileIndex, error: &StoreError) {
        if !self.catalogue.is_open(file) {
            return;
        }
        self.refused += 1;
        let location = self.catalogue.files[file.0].spec.path.to_string();
        self.front.event(ReceiverEvent::FileRefused { location, reason: error.to_string() });
        self.end_file(file, FileOutcome::Refused);
    }

    pub(super) fn end_file(&mut self, file: FileIndex, outcome: FileOutcome) {
        if !self.catalogue.is_open(file) {
            return;
        }
        let is_compared = core::mem::take(&mut self.catalogue.files[file.0].is_compared);
        let waiting = self.catalogue.end_file(file, outcome, &mut self.room);
        self.open_blocks -= if is_compared { 0 } else { waiting };
        for object in self.catalogue.files[file.0].objects.iter().flatten() {
            self.unproven.extract_if((*object, 0)..=(*object, u32::MAX), |_| true).for_each(drop);
            // Packets that waited for a comparison; of a comparison under way once it has ended.
            if !is_compared && !outcome.is_done() {
                let toi = self.catalogue.objects[object.0].toi;
                self.stats.dropped.refused += self.pending.take(toi).packets();
            }
        }
        self.open_files -= 1;
        if !outcome.is_done()
            && let Err(error) = self.store.discard_file(file)
        {
            self.fail(error);
        }
        match outcome {
            FileOutcome::Done | FileOutcome::Present => {
                let digest = self.catalogue.files[file.0].spec.digest;
                let is_present = outcome == FileOutcome::Present;
                self.front.event(ReceiverEvent::FileCompleted { file, digest, is_present });
            }
            FileOutcome::Unwanted => self.front.event(ReceiverEvent::FileUnwanted { file }),
            FileOutcome::Mismatch => self.front.event(ReceiverEvent::FileMismatch { file }),
            // The refusing code has reported the reason.
            FileOutcome::Refused => {}
        }
        if self.open_files == 1
            && let Some(last) = self.last_part().filter(|last| *last != file)
        {
            self.finish_file_if_whole(last);
        }
        self.report_stream(file, outcome);
    }

    pub(super) fn fail(&mut self, error: StoreError) {
        if !self.ended {
            self.end(ReceiverEvent::StoreFailed(error));
        }
    }
}
