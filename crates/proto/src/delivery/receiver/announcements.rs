//! What the FDT says, and what is made of it.

use headwater_wire::fdt::{FdtError, File, Instance};
use headwater_wire::{Fti, PayloadId, alc};

use super::block::{Block, BlockState};
use super::catalogue::{Admitted, Announced, FileOutcome, Refusal};
use super::{Receiver, ReceiverEvent, SessionEvent};
use crate::control::ReceiverControl;
use crate::delivery::fdt::Heard;
use crate::delivery::store::{Description, HeldBlock, ObjectIndex, Store};
use crate::time::Instant;

impl<C: ReceiverControl, S: Store> Receiver<C, S> {
    pub(super) fn on_fdt(&mut self, now: Instant, header: &alc::Repr, id: PayloadId, payload: &[u8]) {
        let heard = self.hearing.hear(header, id, payload);
        self.stats.fdt_packets += u64::from(!matches!(heard, Heard::Bad));
        match heard {
            Heard::Nothing => {}
            Heard::Part => self.stats.last_progress = now,
            Heard::Whole { instance_id, instance, xml } => {
                self.stats.last_progress = now;
                self.may_recall = false;
                self.keep(instance_id, &instance, xml);
                self.on_instance(now, &instance);
            }
            Heard::Bad => self.stats.dropped.bad_fdt += 1,
        }
    }

    /// Keeps an instance for a receiver that is started again, where its files could be resumed.
    fn keep(&mut self, instance_id: u32, instance: &Instance, xml: Vec<u8>) {
        let Some((source, tsi)) = self.session() else { return };
        if instance.files.iter().all(|entry| entry.headwater.digest.is_some()) {
            self.store.keep_description(&Description { source, tsi, instance_id, xml });
        }
    }

    /// Goes on with what an earlier receiver kept of the session's FDT, until it comes again; unless another instance is
    /// coming, or nobody sends it before it is asked for: then this one would stay.
    pub(super) fn recall(&mut self, now: Instant) {
        self.may_recall = false;
        let (session, heard) = (self.session(), self.hearing.last());
        let may_be_unseen = !self.front.control.asks_for_description();
        let is_this = |kept: &Description| {
            session == Some((kept.source, kept.tsi))
                && heard.map_or(may_be_unseen, |id| id == kept.instance_id)
        };
        let kept = self.store.kept_description().filter(is_this);
        if let Some(instance) = kept.and_then(|kept| Instance::parse(&kept.xml).ok()) {
            self.on_instance(now, &instance);
            self.recalled = Some(instance.control);
        }
    }

    /// Whether an instance describes what was recalled: other entries, or fewer, are another session's.
    fn is_recalled(&self, instance: &Instance) -> bool {
        let agrees = |entry: &File| self.catalogue.agrees(entry, instance.fti(entry).ok());
        let is_all = !instance.complete || self.catalogue.is_described_by(&instance.files);
        is_all && instance.files.iter().all(agrees)
    }

    fn on_instance(&mut self, now: Instant, instance: &Instance) {
        let recalled = self.recalled.take();
        if recalled.is_some_and(|control| control != instance.control || !self.is_recalled(instance)) {
            // What has come since may be in the wrong place, where its digest will tell. The next receiver knows better.
            if let (Some(source), Some((_, tsi))) = (self.front.listening.sender(), self.session()) {
                self.end(SessionEvent::Superseded { tsi, source }.into());
            }
            return;
        }
        if let Err(error) = self.front.control.describe(now, instance.control.as_ref()) {
            self.end(ReceiverEvent::ControlRefused { reason: error.to_string() });
            return;
        }
        for entry in &instance.files {
            let fti = instance.fti(entry);
            if !self.catalogue.agrees(entry, fti.clone().ok()) {
                self.stats.contradictions += 1;
                continue;
            }
            let tells_something = match self.catalogue.look_up(entry.toi) {
                None if self.catalogue.is_full() => {
                    self.refuse_beyond(entry);
                    false
                }
                None => true,
                Some(Announced::AwaitsFti(_)) => fti.is_ok(),
                Some(Announced::Object(_) | Announced::Refused) => false,
            };
            if tells_something
                && let Err(refusal) = self.announce(now, entry, instance.content_encoding(entry), fti)
            {
                self.refuse(entry, refusal.to_string());
            }
        }
        self.complete |= instance.complete;
        if self.complete {
            // Nothing more will be described.
            if !self.catalogue.is_awaiting_fti() {
                self.stats.dropped.unknown_object += self.pending.clear();
            }
            for file in self.catalogue.with_holes() {
                self.refused += 1;
                let location = self.catalogue.files[file.0].spec.path.to_string();
                let reason = "not all of its segments are described".to_owned();
                self.front.event(ReceiverEvent::FileRefused { location, reason });
                self.end_file(file, FileOutcome::Refused);
            }
        }
    }

    /// Refuses an entry beyond those that are kept account of: told once, counted always.
    fn refuse_beyond(&mut self, entry: &File) {
        self.stats.entries_beyond += 1;
        if !core::mem::replace(&mut self.overflowed, true) {
            self.refused += 1;
            let location = entry.content_location.clone();
            let reason = Refusal::TooManyObjects.to_string();
            self.front.event(ReceiverEvent::FileRefused { location, reason });
        }
    }

    /// Takes in an entry that is new, or that tells the coding of one that is not.
    fn announce(
        &mut self,
        now: Instant,
        entry: &File,
        content_encoding: Option<&str>,
        fti: Result<Fti, FdtError>,
    ) -> Result<(), Refusal> {
        self.catalogue.take_names(entry)?;
        if let Some(encoding) = content_encoding {
            return Err(Refusal::ContentEncoding(encoding.to_owned()));
        }
        match (fti, self.pending.fti(entry.toi)) {
            (Ok(fti), _) | (Err(FdtError::Missing(_)), Some(fti)) => self.admit(now, entry, fti),
            // EXT_FTI of its packets will tell.
            (Err(FdtError::Missing(_)), None) => self.catalogue.await_fti(entry),
            (Err(error), _) => Err(error.into()),
        }
    }

    pub(super) fn admit(&mut self, now: Instant, entry: &File, fti: Fti) -> Result<(), Refusal> {
        let Admitted { object, object_spec, new_file } = self.catalogue.admit(entry, fti, &mut self.room)?;
        let file = object_spec.file;
        if let Some(file) = new_file {
            let spec = &self.catalogue.files[file.0].spec;
            let event = ReceiverEvent::FileAnnounced { file, path: spec.path.clone(), bytes: spec.bytes };
            let held = match self.store.create_file(file, spec) {
                Ok(held) => held,
                Err(error) => {
                    self.catalogue.forget(object, &mut self.room);
                    return Err(Refusal::Store(error));
                }
            };
            self.open_files += 1;
            self.front.event(event);
            if held.is_whole {
                // Its blocks count as waiting until its objects end, below.
                self.open_blocks += u64::from(object_spec.partition.blocks());
                self.end_file(file, FileOutcome::Done);
            }
        }
        if self.catalogue.is_open(file) {
            self.open_blocks += u64::from(object_spec.partition.blocks());
            for held in self.store.create_object(object, &object_spec) {
                self.resume_block(object, &held);
            }
            self.finish_file_if_whole(file);
        } else {
            let _never_counted = self.catalogue.end_object(object, &mut self.room);
        }
        // Packets that came before the FDT.
        for (packet, payload) in self.pending.take(entry.toi).iter() {
            self.put_packet(now, object, packet, payload);
        }
        Ok(())
    }

    /// Goes on with a block where an earlier session stopped.
    fn resume_block(&mut self, index: ObjectIndex, held: &HeldBlock) {
        let object = &mut self.catalogue.objects[index.0];
        let Some(spec) = object.partition.block(held.sbn) else { return };
        let (k, codec) = (spec.symbols, &object.codec);
        let block = BlockState::resumed(k, codec.esi_end(k), held).with_first_try(codec.symbols_to_try(k));
        if !self.room.take((index, held.sbn), block.bytes()) {
            // It is received anew when there is room.
            return;
        }
        let (count, is_ready) = (u64::from(block.count()), block.is_ready());
        object.blocks[held.sbn as usize] = Block::Open(Box::new(block));
        self.catalogue.files[object.file.0].symbols_held += count;
        self.stats.resumed += count;
        if is_ready {
            self.queue_block((index, held.sbn));
        }
    }

    pub(super) fn refuse(&mut self, entry: &File, reason: String) {
        self.refused += 1;
        self.catalogue.refuse(entry.toi);
        self.stats.dropped.refused += self.pending.take(entry.toi).packets();
        self.front.event(ReceiverEvent::FileRefused { location: entry.content_location.clone(), reason });
    }
}
