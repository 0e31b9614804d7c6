//! Processing of FDT instances.

use headwater_wire::extensions::FDT_INSTANCE_ID_MAX;
use headwater_wire::fdt::{FdtError, File, Headwater, Instance, Withdrawal};
use headwater_wire::{Fti, PayloadId, alc};

use super::block::{Block, BlockState};
use super::catalogue::{Admitted, Announced, FileOutcome, Refusal};
use super::{DeliveryReceiver, ReceiverEvent, SessionEvent};
use crate::control::ReceiverControl;
use crate::delivery::encoding::{ContentCoding, Encoding, EncodingError};
use crate::delivery::fdt::FdtOutcome;
use crate::delivery::metadata::SessionMetadata;
use crate::delivery::name::RelativePath;
use crate::delivery::repair::RepairServers;
use crate::delivery::store::{Description, HeldBlock, ObjectIndex, Store};
use crate::time::Instant;

/// Maximum number of instances that a session is assumed to send after the kept instance: prefaces, and
/// instances that announce changes. The instance numbers of a restarted session follow the time in seconds.
const INSTANCES_OF_SESSION: u32 = 32;

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    pub(super) fn on_fdt(&mut self, now: Instant, header: &alc::Repr, id: PayloadId, payload: &[u8]) {
        let heard = self.hearing.hear(header, id, payload);
        self.stats.fdt_packets += u64::from(!matches!(heard, FdtOutcome::Bad));
        match heard {
            FdtOutcome::Nothing => {}
            FdtOutcome::Part => self.stats.last_progress = now,
            FdtOutcome::Whole { instance_id, instance, xml } => {
                self.stats.last_progress = now;
                // While only the preface of a long FDT has arrived, the kept FDT still helps.
                self.may_recall &= !instance.complete;
                self.front.announce_next_key(instance.next_key);
                self.keep(instance_id, &instance, xml);
                // A recalled FDT names no servers: another sender may have signed the FDT.
                self.repair_servers = RepairServers::of(&instance).or(self.repair_servers.take());
                self.on_instance(now, &instance);
            }
            FdtOutcome::Bad => self.stats.dropped.bad_fdt += 1,
        }
        if self.has_other_content && !self.ended {
            self.make_way_for_restarted(now);
        }
    }

    /// Ends the session if the first sender is silent and another address sends other content under the same
    /// identifier: mostly, the sender restarted. Returns whether the session has ended.
    fn make_way_for_restarted(&mut self, now: Instant) -> bool {
        let Some((source, (_, tsi))) = self.front.listening.restarted_at(now).zip(self.session()) else {
            return false;
        };
        // Symbols since the restart were taken for those of the earlier content. The next receiver takes no
        // blocks of another version.
        self.end(SessionEvent::Superseded { tsi, source }.into());
        true
    }

    /// Keeps a complete instance for a receiver that restarts, if the files can be resumed.
    fn keep(&mut self, instance_id: u32, instance: &Instance, xml: Vec<u8>) {
        let Some((source, tsi)) = self.session() else { return };
        let may_be_resumed =
            |entry: &File| entry.headwater.digest.is_some() || entry.headwater.modified.is_some();
        if instance.complete && instance.files.iter().all(may_be_resumed) {
            self.store.keep_description(&Description { source, tsi, instance_id, xml });
        }
    }

    /// Continues with the session's FDT that an earlier receiver kept, until the FDT arrives again. The kept
    /// FDT is not used if another session's instance is arriving. If the control requests the FDT, the kept
    /// FDT is used only after a packet of the FDT: without a request, no FDT would ever replace the kept FDT.
    pub(super) fn recall(&mut self, now: Instant) {
        self.may_recall = false;
        let (session, heard) = (self.session(), self.hearing.last());
        let may_be_unseen = self.front.control.requester().is_none();
        let is_this = |kept: &Description| {
            let is_of_session =
                |id: u32| (id.wrapping_sub(kept.instance_id) & FDT_INSTANCE_ID_MAX) <= INSTANCES_OF_SESSION;
            session == Some((kept.source, kept.tsi)) && heard.map_or(may_be_unseen, is_of_session)
        };
        let kept = self.store.kept_description().filter(is_this);
        if let Some(instance) = kept.and_then(|kept| Instance::parse(&kept.xml).ok()) {
            self.on_instance(now, &instance);
            self.recalled = Some(instance.control);
        }
    }

    /// Takes an FDT that came by another way than packets, before the session's FDT arrives; the caller has
    /// verified the sender. The session's FDT takes its place as it takes the place of a kept FDT. Returns
    /// false if a part of the session's FDT has arrived, or the control requests the FDT.
    ///
    /// # Errors
    /// If the bytes are no FDT.
    pub fn put_description(&mut self, now: Instant, xml: &[u8]) -> Result<bool, FdtError> {
        let instance = Instance::parse(xml)?;
        if self.hearing.last().is_some() || self.ended || self.front.control.requester().is_some() {
            return Ok(false);
        }
        (self.may_recall, self.recalled) = (false, None);
        self.on_instance(now, &instance);
        self.recalled = Some(instance.control);
        self.settle(now);
        Ok(true)
    }

    /// Whether the FDT is known and complete: all files are announced, with all digests.
    pub fn is_described(&self) -> bool {
        self.complete && !self.catalogue.is_awaiting_fti()
    }

    /// Whether an instance agrees with the recalled FDT. Different or fewer entries belong to another
    /// session.
    fn is_recalled(&self, instance: &Instance) -> bool {
        let agrees = |entry: &File| self.catalogue.agrees(entry, instance.fti(entry).ok());
        let is_all = !instance.complete || self.catalogue.is_described_by(&instance.files);
        is_all && instance.files.iter().all(agrees)
    }

    /// Whether a whole FDT describes other files than the FDT so far. Parts that the sender of a stream has
    /// released leave the FDT.
    fn is_other_content(&self, instance: &Instance) -> bool {
        let agrees = |entry: &File| self.catalogue.agrees(entry, instance.fti(entry).ok());
        let is_all = self.stream.is_some() || self.catalogue.is_described_by(&instance.files);
        instance.complete && !(is_all && instance.files.iter().all(agrees))
    }

    fn on_instance(&mut self, now: Instant, instance: &Instance) {
        let recalled = self.recalled.take();
        if recalled
            .as_ref()
            .is_some_and(|control| *control != instance.control || !self.is_recalled(instance))
        {
            // Symbols written since the recall may be in the wrong place; verification of the digests finds
            // the error. The next receiver uses the new instance.
            if let (Some(source), Some((_, tsi))) = (self.front.listening.sender(), self.session()) {
                self.end(SessionEvent::Superseded { tsi, source }.into());
            }
            return;
        }
        self.has_other_content |= self.is_other_content(instance);
        if self.has_other_content && self.make_way_for_restarted(now) {
            return;
        }
        // A preface describes only a few files.
        self.recalled = recalled.filter(|_| !instance.complete);
        if let Err(reason) = self.front.describe(now, instance.control.as_ref()) {
            self.end(ReceiverEvent::ControlRefused { reason });
            return;
        }
        self.describe_metadata(instance);
        for entry in &instance.files {
            let fti = instance.fti(entry);
            if !self.catalogue.agrees(entry, fti.clone().ok()) {
                self.stats.contradictions += 1;
                continue;
            }
            let known = self.catalogue.look_up(entry.toi).cloned();
            let announced = match (known, entry.headwater.withdrawn) {
                (None, _) if self.catalogue.is_full() => {
                    self.refuse_beyond(entry);
                    Ok(())
                }
                // The withdrawal of a file of several segments is reported once.
                (None, Some(_)) if entry.headwater.segment.as_ref().is_some_and(|part| part.index > 0) => {
                    self.catalogue.refuse(entry.toi);
                    self.stats.dropped.refused += self.pending.take(entry.toi).packets();
                    Ok(())
                }
                (None | Some(Announced::AwaitsFti(_)), Some(why)) => Err(Refusal::Withdrawn(why)),
                (Some(Announced::Object(object)), Some(why)) => {
                    self.withdraw(object, why);
                    Ok(())
                }
                (Some(Announced::AwaitsFti(_)), None) if fti.is_err() => Ok(()),
                (None | Some(Announced::AwaitsFti(_)), None) => {
                    self.announce(now, entry, instance.content_encoding(entry), fti)
                }
                (Some(Announced::Object(_)), None) => Ok(()),
                (Some(Announced::Refused), _) => Ok(()),
            };
            if let Err(refusal) = announced {
                self.refuse(entry, refusal.to_string());
            } else if let Some(&Announced::Object(object)) = self.catalogue.look_up(entry.toi) {
                self.catalogue.learn_location(object, entry);
                self.learn(object, &entry.headwater);
            }
        }
        // The digests of all blocks are known now, as far as this instance has the digests.
        for file in core::mem::take(&mut self.described) {
            self.compare_file_if_present(file);
        }
        self.drop_released_parts(&instance.files);
        self.make_folders(instance);
        if instance.complete && !core::mem::replace(&mut self.complete, true) {
            self.request_place();
        }
        if self.complete {
            // No more files will be announced.
            if !self.catalogue.is_awaiting_fti() {
                let kept = |toi| self.catalogue.awaits_comparison(toi);
                self.stats.dropped.unknown_object += self.pending.retain(kept);
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

    /// Adds new digests of an entry to an object, and verifies the blocks that waited for a digest.
    fn learn(&mut self, object: ObjectIndex, told: &Headwater) {
        let file = self.catalogue.objects[object.0].file;
        if !self.catalogue.is_open(file) {
            return;
        }
        let waits_for_digest = self.catalogue.files[file.0].left == 0;
        let lacked_digests = self.catalogue.objects[object.0].digests_follow;
        let (known_before, digest) = self.catalogue.learn(object, told);
        if lacked_digests && !self.catalogue.objects[object.0].digests_follow {
            self.described.insert(file);
        }
        if let Some(digest) = digest {
            match self.store.learn_digest(file, digest) {
                Ok(held) if held.is_whole => return self.end_file(file, FileOutcome::Done),
                Ok(held) => {
                    self.catalogue.files[file.0].is_present |= held.is_present;
                    self.described.insert(file);
                }
                Err(error) => return self.fail(error),
            }
        }
        let known = self.catalogue.objects[object.0].promised.len();
        for sbn in known_before..known {
            let sbn = u32::try_from(sbn).expect("an object has below 2^32 blocks");
            if self.unproven.remove(&(object, sbn)) {
                self.verify_block(object, sbn);
            }
        }
        // Otherwise the file's last block finishes the file.
        if digest.is_some() && waits_for_digest {
            self.finish_file_if_whole(file);
        }
    }

    /// Ends a file that the sender withdrew. A whole file is kept, since the store may be renaming the file
    /// already.
    fn withdraw(&mut self, object: ObjectIndex, why: Withdrawal) {
        let file = self.catalogue.objects[object.0].file;
        let state = &self.catalogue.files[file.0];
        let is_whole = state.left == 0 && !state.digest_follows;
        if self.catalogue.is_open(file) && !is_whole {
            self.refused += 1;
            let location = self.catalogue.files[file.0].spec.path.to_string();
            let reason = Refusal::Withdrawn(why).to_string();
            self.front.event(ReceiverEvent::FileRefused { location, reason });
            self.end_file(file, FileOutcome::Refused);
        }
    }

    /// Creates the folders without files from the first instance that has any: later instances repeat the
    /// same folders.
    fn make_folders(&mut self, instance: &Instance) {
        if instance.folders.is_empty() || core::mem::replace(&mut self.has_folders, true) {
            return;
        }
        for location in &instance.folders {
            let made = RelativePath::from_content_location(location)
                .map_err(|error| error.to_string())
                .and_then(|path| self.store.create_folder(&path).map_err(|error| error.to_string()));
            if let Err(reason) = made {
                self.refused += 1;
                self.front.event(ReceiverEvent::FileRefused { location: location.clone(), reason });
            }
        }
    }

    /// Passes on the metadata of the first instance that has any: later instances repeat the same metadata.
    fn describe_metadata(&mut self, instance: &Instance) {
        if SessionMetadata::is_in(instance) && !core::mem::replace(&mut self.has_metadata, true) {
            let (metadata, faults) = SessionMetadata::of(instance);
            self.store.describe_metadata(metadata, faults);
        }
    }

    /// Refuses an entry beyond the maximum number of objects. The event is reported once; each entry is
    /// counted.
    fn refuse_beyond(&mut self, entry: &File) {
        self.stats.entries_beyond += 1;
        if !core::mem::replace(&mut self.overflowed, true) {
            self.refused += 1;
            let location = entry.content_location.clone();
            let reason = Refusal::TooManyObjects.to_string();
            self.front.event(ReceiverEvent::FileRefused { location, reason });
        }
    }

    /// Finds a coding that the store decodes.
    fn coding(&self, name: &str) -> Result<ContentCoding, EncodingError> {
        let coding = ContentCoding::of_name(name).filter(|coding| self.store.decodes(*coding));
        coding.ok_or_else(|| EncodingError::Unknown(name.to_owned()))
    }

    /// Adds the object of a new entry, or of an entry whose coding is known now.
    fn announce(
        &mut self,
        now: Instant,
        entry: &File,
        content_encoding: Option<&str>,
        fti: Result<Fti, FdtError>,
    ) -> Result<(), Refusal> {
        self.catalogue.take_names(entry)?;
        let coding = content_encoding.map(|name| self.coding(name)).transpose()?;
        match (fti, self.pending.fti(entry.toi)) {
            (Ok(fti), _) | (Err(FdtError::Missing(_)), Some(fti)) => {
                self.admit(now, entry, fti, content_encoding)
            }
            // EXT_FTI of the object's packets will state the coding.
            (Err(FdtError::Missing(_)), None) => self.catalogue.await_fti(entry, coding),
            (Err(error), _) => Err(error.into()),
        }
    }

    pub(super) fn admit(
        &mut self,
        now: Instant,
        entry: &File,
        fti: Fti,
        content_encoding: Option<&str>,
    ) -> Result<(), Refusal> {
        let encoding = Encoding::of(entry, content_encoding, fti.transfer_length())?;
        encoding.map(|encoding| self.coding(encoding.coding.name())).transpose()?;
        let admitted = self.catalogue.admit(entry, fti, encoding, &mut self.room)?;
        let Admitted { object, object_spec, new_file } = admitted;
        let file = object_spec.file;
        if let Some(file) = new_file {
            let part = self.catalogue.files[file.0].part.clone();
            if let Err(refusal) = self.continue_stream(file) {
                self.catalogue.forget(object, &mut self.room);
                return Err(refusal);
            }
            let spec = &self.catalogue.files[file.0].spec;
            let (path, bytes) = (spec.path.clone(), spec.content_bytes());
            let encoding = spec.encoding.map(|encoding| (encoding.coding, spec.bytes));
            let event = ReceiverEvent::FileAnnounced { file, path, bytes, encoding };
            let created = match &part {
                Some(part) => self.store.create_part(file, spec, part),
                None if self.catalogue.files[file.0].is_bundle => self.store.create_bundle(file, spec),
                None => self.store.create_file(file, spec),
            };
            let held = match created {
                Ok(held) => held,
                Err(error) => {
                    self.catalogue.forget(object, &mut self.room);
                    return Err(Refusal::Store(error));
                }
            };
            self.open_files += 1;
            if let Some(part) = part {
                self.front.event(ReceiverEvent::PartAnnounced { file, stream: part.stream });
            }
            self.front.event(event);
            if held.is_whole || held.is_unwanted {
                // The file's blocks count as waiting until the objects end, below.
                self.open_blocks += u64::from(object_spec.partition.blocks());
                let outcome = if held.is_unwanted { FileOutcome::Unwanted } else { FileOutcome::Present };
                self.end_file(file, outcome);
            }
            self.catalogue.files[file.0].is_present = held.is_present;
        }
        if self.catalogue.is_open(file) {
            self.open_blocks += u64::from(object_spec.partition.blocks());
            for held in self.store.create_object(object, &object_spec) {
                self.resume_block(object, &held);
            }
            self.compare_file_if_present(file);
            self.finish_file_if_whole(file);
        } else {
            let _never_counted = self.catalogue.end_object(object, &mut self.room);
        }
        if !self.catalogue.files[file.0].awaits_comparison() {
            self.put_pending(now, object);
        }
        Ok(())
    }

    /// Processes the packets of an object that waited for the FDT or for the comparison of the file.
    pub(super) fn put_pending(&mut self, now: Instant, object: ObjectIndex) {
        let toi = self.catalogue.objects[object.0].toi;
        for (packet, payload) in self.pending.take(toi).iter() {
            self.put_packet(now, object, packet, payload);
        }
    }

    /// Resumes a block of an earlier session.
    fn resume_block(&mut self, index: ObjectIndex, held: &HeldBlock) {
        let object = &mut self.catalogue.objects[index.0];
        let Some(spec) = object.partition.block(held.sbn) else { return };
        let (k, codec) = (spec.symbols, &object.codec);
        let block = BlockState::resumed(k, codec.esi_end(k), held).with_first_try(codec.symbols_to_try(k));
        if !self.room.take((index, held.sbn), block.bytes()) {
            // The block is received again once memory is free.
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
        let segment = entry.headwater.segment.as_ref();
        let location = segment.map_or(&entry.content_location, |segment| &segment.file).clone();
        self.front.event(ReceiverEvent::FileRefused { location, reason });
    }
}
