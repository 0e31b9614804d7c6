//! Delivery of symbols to their blocks.

use headwater_wire::{PayloadId, alc};

use super::Receiver;
use super::block::{Block, BlockState, Worth};
use super::catalogue::Announced;
use super::pending::PendingPacket;
use super::room::BlockId;
use crate::control::ReceiverControl;
use crate::delivery::store::{ObjectIndex, Store, StoreError};
use crate::time::Instant;

impl<C: ReceiverControl, S: Store> Receiver<C, S> {
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
            if let Err(refusal) = self.admit(now, &entry, fti) {
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
        } else if self.catalogue.files[state.file.0].is_compared {
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
                self.put(now, (index, id.sbn), written, is_ready);
            }
            Worth::Needed if self.room.take((index, id.sbn), block.bytes_for_repair(id.esi)) => {
                let repair = block.add_repair(id.esi);
                let is_ready = block.is_ready();
                let written = self.store.write_repair(index, id.sbn, repair, payload);
                self.put(now, (index, id.sbn), written, is_ready);
            }
            Worth::Needed => self.stats.dropped.no_room += 1,
        }
    }

    /// Counts a needed symbol that was handed to the store, and queues the block if ready.
    fn put(&mut self, now: Instant, block: BlockId, written: Result<(), StoreError>, is_ready: bool) {
        let file = self.catalogue.objects[block.0.0].file;
        self.catalogue.files[file.0].symbols_held += 1;
        self.stats.useful += 1;
        self.stats.last_progress = now;
        match written {
            Err(error) => self.fail(error),
            Ok(()) if is_ready => self.queue_block(block),
            Ok(()) => {}
        }
    }
}
