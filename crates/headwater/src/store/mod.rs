//! Content on disk at a receiver. A separate thread writes symbols to their places or to slots of their
//! block, worker threads finish blocks, whole files get their final names.
//!
//! A file in progress is kept in a working folder inside its destination folder: one file for its content, at
//! full length but sparse, and one file for the slots of its blocks: repair symbols, and source symbols that
//! arrive scattered. A journal records the received symbols, so that an interrupted session can resume. The
//! working folder stays until all files are in place, however the session ends. Disk space: the content, the
//! slots of the blocks in progress (at most as much again), and a journal. The journal takes 4 MiB and twice
//! the record of the symbols present, at most 21 bytes for each 64: 0.05 % of the content. During compaction
//! a second journal exists.
//!
//! The next receiver of the folder removes an abandoned working folder 14 days after the last write, unless
//! another receiver uses the folder.

mod base;
#[cfg(test)]
mod base_tests;
mod bundle_cache;
#[cfg(test)]
mod compact_tests;
mod compare;
#[cfg(test)]
mod compare_tests;
mod decode;
#[cfg(test)]
mod decode_tests;
mod finish;
mod folder;
mod gather;
mod journal;
mod kept;
mod ledger;
mod metadata;
mod name_set;
mod names;
#[cfg(test)]
mod names_tests;
mod place;
mod remove;
#[cfg(test)]
mod resume_tests;
mod room;
#[cfg(test)]
mod scattered_tests;
mod selection;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod unpack;
#[cfg(test)]
mod unpack_tests;
mod work;
mod write_log;
mod writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use headwater_proto::auth::PublicKey;
use headwater_proto::delivery::{
    BlockJob, BlockVerdict, ContentCoding, Description, Digest, FileIndex, FileSpec, HeldBlock, HeldFile,
    MetadataFault, ObjectIndex, ObjectSpec, RelativePath, SessionMetadata, ShortDigest, Store, StoreError,
    StoreReport, StoredRepair, StreamPart,
};
use tracing::warn;

use self::base::{BASE_BYTES_MIN, Base};
use self::bundle_cache::BundleCache;
use self::compare::{Comparison, FoundBlock, IndexedObject};
use self::decode::ContentComparison;
use self::finish::{Job, Outcome};
use self::folder::Folder;
use self::gather::{Gather, Key};
use self::journal::Stamp;
use self::kept::ResumedBlock;
use self::ledger::StoreIndex;
pub(crate) use self::metadata::{ApplyOptions, MadeName, MadeNames};
pub use self::name_set::NameSet;
use self::name_set::Names;
use self::place::{FilePlace, ObjectPlace, Places};
pub use self::remove::{ReceivedKind, remove_received};
pub use self::selection::{PatternError, Selection};
use self::stream::JoinedStream;
pub use self::target::Target;
use self::unpack::Unpacking;
pub(crate) use self::unpack::{BundleDirectory, UnpackedBundle, UnpackedBundles, UnpackedMember};
use self::work::Workers;
use self::writer::{Write, Writer};
use crate::net::Waker;

/// Options of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreOptions {
    /// Place of the content of the session's single file.
    pub(crate) target: Option<Arc<Target>>,
    /// Files that are wanted.
    pub(crate) selection: Selection,
    /// Folder for the directories of bundles.
    pub(crate) bundle_cache: Option<PathBuf>,
    /// Metadata that is applied.
    pub(crate) apply: ApplyOptions,
    /// File or folder to take blocks from.
    pub(crate) base: Option<PathBuf>,
    /// Set once the session is to end.
    pub(crate) stop: Option<Arc<AtomicBool>>,
}

/// Receives into a folder. Unfinished content is kept on drop if the session can be resumed.
#[derive(Debug)]
pub(crate) struct DiskStore {
    workers: Workers,
    writer: Writer,
    ledger: StoreIndex,
    places: Arc<Places>,
    /// By index; `None` for refused files.
    files: Vec<Option<Arc<FilePlace>>>,
    objects: Vec<Option<Arc<ObjectPlace>>>,
    /// Objects of files that may be on disk, by file, until the comparison starts.
    present: BTreeMap<FileIndex, Vec<IndexedObject>>,
    /// Reports of a comparison that the receiver has not read: at most the blocks of a part of a file.
    found: VecDeque<StoreReport>,
    names: Names,
    gather: Gather,
    /// Time at which all gathered symbols were written.
    written_at: Instant,
    /// Bytes of the accepted files that are not in place.
    announced_bytes: u64,
    /// Bytes of `announced_bytes` for sparse files whose holes are known.
    sparse_room: BTreeMap<FileIndex, u64>,
    /// The first file refused for want of space.
    out_of_space: Option<StoreError>,
    /// Number of accepted files neither in place nor given up.
    open_files: usize,
    /// Accepted files in place or given up.
    ended: BTreeSet<FileIndex>,
    /// Files in place.
    in_place: BTreeSet<FileIndex>,
    /// Folders without files.
    folders: Vec<RelativePath>,
    stream: Option<JoinedStream>,
}

impl DiskStore {
    /// Opens the folder, created if need be. `waker` is used for every new report.
    pub(crate) fn open(folder: &Path, options: StoreOptions, waker: Waker) -> Result<Self, StoreError> {
        let StoreOptions { target, selection, bundle_cache, apply, base, stop } = options;
        let cache = bundle_cache.map(BundleCache::new);
        let unpacking = Unpacking::new(cache, selection);
        let places = Places::new(Folder::open(folder, apply)?, target, unpacking);
        let places = places.with_base(base.as_deref().map(Base::open).transpose()?).with_stop(stop);
        let places = Arc::new(places);
        let (ledger, log) = StoreIndex::open(Arc::clone(&places))?;
        let workers = Workers::start(Arc::clone(&places), waker)?;
        let gather = Gather::new();
        let jobs = workers.jobs().clone();
        Ok(Self {
            writer: Writer::start(Arc::clone(&places), log, jobs, gather.queue_bytes_max())?,
            ledger,
            workers,
            places,
            files: Vec::new(),
            objects: Vec::new(),
            present: BTreeMap::new(),
            found: VecDeque::new(),
            names: Names::default(),
            gather,
            written_at: Instant::now(),
            announced_bytes: 0,
            sparse_room: BTreeMap::new(),
            out_of_space: None,
            open_files: 0,
            ended: BTreeSet::new(),
            in_place: BTreeSet::new(),
            folders: Vec::new(),
            stream: None,
        })
    }

    /// Returns the members of bundles that are in place, for the session's user.
    pub(crate) fn unpacked(&self) -> UnpackedBundles {
        self.places.unpacking.unpacked.clone()
    }

    /// Returns the names made at the end of the session, for the session's user.
    pub(crate) fn made_names(&self) -> MadeNames {
        self.places.folder.rules.made.clone()
    }

    /// Whether work is under way or waits to be done.
    pub(crate) fn is_busy(&self) -> bool {
        // In this order: a job leaves the writer for the workers.
        self.writer.has_jobs() || self.workers.pending() > 0
    }

    /// Returns the session's folders without files.
    pub(crate) fn folders(&self) -> &[RelativePath] {
        &self.folders
    }

    /// Returns the error of the first file refused for want of space.
    pub(crate) fn out_of_space(&self) -> Option<&StoreError> {
        self.out_of_space.as_ref()
    }

    /// Returns the working folder if a receiver that starts now would resume from the content there.
    pub(crate) fn resumable(&self) -> Option<PathBuf> {
        self.ledger.is_resumable(self.open_files > 0).then(|| self.places.folder.work_path())
    }

    /// Keeps the keys of the session's sender with the unfinished files.
    pub(crate) fn pin(&self, keys: &[PublicKey]) {
        if let Err(error) = ledger::write_sender(&self.places.folder, keys) {
            warn!("{error}; the next receiver of the folder takes any sender");
        }
    }

    /// Returns the identifier of the receiver of this working folder: `new`, unless an earlier receiver of
    /// the folder has kept one.
    pub(crate) fn receiver_id(&self, new: u64) -> u64 {
        ledger::receiver_id(&self.places.folder, new)
    }

    /// Returns the keys of the sender of the unfinished files that an earlier receiver left; empty if files
    /// of any sender may be received.
    pub(crate) fn pinned(&self) -> Vec<PublicKey> {
        if self.ledger.has_unfinished() { ledger::read_sender(&self.places.folder) } else { Vec::new() }
    }

    fn admit(&mut self, file: FileIndex, spec: &FileSpec, kind: FileKind<'_>) -> Result<(), StoreError> {
        self.names.check(&spec.path)?;
        let part = kind.part();
        match kind {
            FileKind::Bundle => {
                self.places.target.as_ref().map_or(Ok(()), |target| Err(target.refuse_bundle()))?;
            }
            FileKind::File | FileKind::Part(_) => self.places.folder.check_place(&spec.path)?,
        }
        if let Some(part) = part {
            self.names.check(&part.stream)?;
            self.places.folder.check_place(&part.stream)?;
        }
        if let (Some(target), Some(encoding)) = (&self.places.target, spec.encoding) {
            return Err(target.refuse_encoded(encoding.coding));
        }
        self.places.target.as_ref().map_or(Ok(()), |target| target.take(spec, part))?;
        let announced = self.check_room(spec, self.room_for(spec, kind.is_bundle()))?;
        if matches!(kind, FileKind::File) {
            self.places.unpacking.claim(&spec.path, file)?;
        }
        self.names.take(&spec.path);
        self.open_files += 1;
        self.take_room(announced);
        Ok(())
    }

    /// Ends a file that is in place or given up. Returns false if the file had ended before.
    fn end(&mut self, file: FileIndex, spec: &FileSpec) -> bool {
        if !self.ended.insert(file) {
            return false;
        }
        self.open_files = self.open_files.saturating_sub(1);
        let is_bundle = self.files.get(file.0).and_then(Option::as_ref).is_some_and(|file| file.is_bundle);
        let room = self.sparse_room.remove(&file).unwrap_or_else(|| self.room_for(spec, is_bundle));
        self.announced_bytes = self.announced_bytes.saturating_sub(room);
        true
    }

    fn object(&self, object: ObjectIndex) -> Arc<ObjectPlace> {
        let known = self.objects.get(object.0).and_then(Option::as_ref);
        Arc::clone(known.expect("the receiver announces objects before it uses them"))
    }

    /// Queues the gathered symbols of a block for writing.
    fn write_block(&mut self, key: Key) {
        let Some(gathered) = self.gather.take(key) else { return };
        let place = self.object(ObjectIndex(key.0));
        self.ledger.began(&place.file);
        self.writer.push(Write::Symbols(place, key, gathered));
        if let Some(spare) = self.writer.spare() {
            self.gather.recycle(spare);
        }
    }

    /// Queues all gathered symbols for writing.
    fn write_all(&mut self) {
        while let Some(key) = self.gather.first() {
            self.write_block(key);
        }
        self.writer.flush();
    }

    /// Queues all gathered symbols once these are due, so that a killed process loses little.
    fn write_when_due(&mut self) {
        let now = Instant::now();
        if self.gather.is_due(now - self.written_at) {
            self.written_at = now;
            self.write_all();
        }
    }

    /// Discards the gathered symbols of a block.
    fn forget_block(&mut self, key: Key) {
        if let Some(gathered) = self.gather.take(key) {
            self.gather.recycle(gathered);
        }
    }

    /// Discards the gathered symbols of a file: nothing more of the file may be noted after its end.
    fn forget_file(&mut self, file: FileIndex) {
        let objects = &self.objects;
        self.gather.retain(|object| objects[object].as_ref().is_some_and(|object| object.spec.file != file));
    }

    /// Returns the symbols of a block left by an earlier session; none in slots if their numbers are
    /// unreadable.
    fn held_block(&self, place: &ObjectPlace, sbn: u32, kept: ResumedBlock) -> Option<HeldBlock> {
        let ResumedBlock { is_whole, mut source, slots } = kept;
        let block = place.spec.partition.block(sbn)?;
        if is_whole && place.slots(sbn).is_some() {
            // All that an earlier session left was synced when the journal was opened.
            self.places.free_slots(place, &block);
        }
        let numbers = match slots {
            0 => Vec::new(),
            // If the numbers are lost, the source symbols in their places still count.
            _ => self.places.read_slot_numbers(place, &block, slots).unwrap_or_default(),
        };
        if place.slots(sbn).is_none() {
            return Some(HeldBlock { sbn, is_whole, source, repairs: numbers });
        }
        place.set_slots(sbn, u32::try_from(numbers.len()).expect("at most the slots of a block"));
        let mut repairs = Vec::new();
        for (_, esi) in place.stored_symbols(&block, &numbers) {
            if esi >= block.symbols {
                repairs.push(esi);
                continue;
            }
            let word = (esi / 64) as usize;
            source.resize(source.len().max(word + 1), 0);
            source[word] |= 1 << (esi % 64);
        }
        Some(HeldBlock { sbn, is_whole, source, repairs })
    }

    fn file(&self, file: FileIndex) -> Arc<FilePlace> {
        let known = self.files.get(file.0).and_then(Option::as_ref);
        Arc::clone(known.expect("the receiver names files that were taken only"))
    }

    /// Creates a file, and adopts what an earlier session left of it.
    fn create(
        &mut self,
        file: FileIndex,
        spec: &FileSpec,
        kind: FileKind<'_>,
    ) -> Result<HeldFile, StoreError> {
        self.files.resize_with(file.0 + 1, || None);
        if matches!(kind, FileKind::File) && !self.places.unpacking.selection.wants(&spec.path) {
            return Ok(HeldFile { is_unwanted: true, ..HeldFile::default() });
        }
        self.admit(file, spec, kind)?;
        let part = kind.part();
        // A stream frees the content that its reader has.
        let is_freed = part.is_some() && self.places.target.is_some() && self.places.device().is_none();
        let (number, mut held) = match is_freed {
            true => (None, HeldFile::default()),
            false => self.ledger.take_file(&self.writer, spec),
        };
        if held.is_whole {
            self.places.folder.rules.note_resumed(spec);
            self.in_place.insert(file);
            self.end(file, spec);
        } else if kind.is_bundle() {
            held.is_present = self.is_bundle_known(file, spec.digest);
        } else if part.is_none() && self.may_be_on_disk(spec) {
            held.is_present = true;
            self.present.insert(file, Vec::new());
        }
        let place = FilePlace::new(file, spec.clone(), number).with_part(part.cloned());
        let place = place.with_bundle(kind.is_bundle());
        self.files[file.0] = Some(Arc::new(place));
        Ok(held)
    }

    /// Whether blocks of a file may be on disk: as holes, in an older file of the same name, or in a file
    /// that the user names. The older file is used without a request: reading costs less than receiving
    /// nearly everywhere, and a follower of an image takes the changed blocks alone.
    fn may_be_on_disk(&self, spec: &FileSpec) -> bool {
        let is_long = |bytes: u64| bytes >= BASE_BYTES_MIN;
        let old = self.places.folder.stamp(&spec.path).filter(|_| self.places.target.is_none());
        if let Some(encoding) = spec.encoding {
            // Blocks of encoded content are in no other file.
            return encoding.digest.is_some() && old.is_some_and(|old| old.bytes == encoding.bytes);
        }
        let has_old = |old: Stamp| old.bytes == spec.bytes || (is_long(old.bytes) && is_long(spec.bytes));
        let base = self.places.base.as_ref().filter(|_| is_long(spec.bytes));
        spec.is_sparse || old.is_some_and(has_old) || base.is_some_and(|base| base.find(&spec.path).is_some())
    }

    /// Takes the result of a part of a comparison.
    fn take_found(&mut self, found: Vec<FoundBlock>) {
        for (object, sbn, digest) in found {
            let place = self.object(object);
            self.ledger.began(&place.file);
            self.found.push_back(StoreReport::BlockFound { object, sbn, digest });
        }
    }

    /// Whether the directory of a bundle with this digest is known, so that the members in place can be
    /// compared.
    fn is_bundle_known(&mut self, file: FileIndex, digest: Option<Digest>) -> bool {
        let cache = self.places.unpacking.cache.as_ref();
        let is_known = cache.zip(digest).is_some_and(|(cache, digest)| cache.has(&digest));
        if is_known {
            self.present.entry(file).or_default();
        }
        is_known
    }

    /// Notes that a file is in place.
    fn placed(&mut self, file: FileIndex, stamp: Stamp) {
        let place = self.file(file);
        // The file may have been given up while a thread was at work on the file.
        if self.end(file, &place.spec) {
            self.forget_file(file);
            self.in_place.insert(file);
            if let Some(part) = &place.part {
                return self.part_ended(part, true);
            }
            self.ledger.placed(&place);
            self.writer.push(Write::Placed(place, stamp));
        }
    }
}

impl Store for DiskStore {
    fn create_file(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError> {
        self.create(file, spec, FileKind::File)
    }

    fn decodes(&self, coding: ContentCoding) -> bool {
        ContentCoding::ALL.contains(&coding)
    }

    fn create_bundle(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError> {
        self.create(file, spec, FileKind::Bundle)
    }

    fn create_part(
        &mut self,
        file: FileIndex,
        spec: &FileSpec,
        part: &StreamPart,
    ) -> Result<HeldFile, StoreError> {
        let held = self.create(file, spec, FileKind::Part(part))?;
        self.join_part(file, spec, part);
        Ok(held)
    }

    fn learn_digest(&mut self, file: FileIndex, digest: Digest) -> Result<HeldFile, StoreError> {
        let place = self.file(file);
        place.learn_digest(digest);
        if let Some(number) = place.number {
            self.ledger.learn_digest(&self.writer, number, digest);
        }
        let is_present = place.is_bundle && self.is_bundle_known(file, Some(digest));
        Ok(HeldFile { is_present, ..HeldFile::default() })
    }

    fn create_folder(&mut self, path: &RelativePath) -> Result<(), StoreError> {
        self.names.check_folder(path)?;
        let is_wanted = self.places.unpacking.selection.wants(path);
        if !is_wanted || !self.places.folder.rules.kinds().empty {
            return Ok(());
        }
        self.places.folder.make_folder(path)?;
        self.folders.push(path.clone());
        Ok(())
    }

    fn describe_metadata(&mut self, metadata: SessionMetadata, faults: Vec<MetadataFault>) {
        self.places.folder.rules.describe(metadata, faults);
    }

    fn finish_metadata(&mut self) -> Vec<(String, String)> {
        match self.places.target {
            Some(_) => Vec::new(),
            None => self.places.finish_metadata(&self.in_place),
        }
    }

    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) -> Vec<HeldBlock> {
        let file = self.file(spec.file);
        let taken = file.number.zip(spec.identity);
        let taken = taken.map(|(file, identity)| self.ledger.take_object(&self.writer, file, identity));
        let (number, kept) = taken.map_or((None, BTreeMap::new()), |(number, kept)| (Some(number), kept));
        if !kept.is_empty() {
            file.note_written();
        }
        if let Some(device) = self.places.device().filter(|_| !kept.is_empty()) {
            device.keep_all();
        }
        // Objects of refused files are never announced.
        self.objects.resize_with(object.0 + 1, || None);
        // A device takes symbols at their places: the folder need not have room for slots. The reader of a
        // stream frees the content behind it.
        let is_in_place = self.places.device().is_some() || file.part.is_some();
        let place = ObjectPlace::new(spec.clone(), file, number);
        let place = Arc::new(if is_in_place { place } else { place.with_source_in_slots() });
        self.objects[object.0] = Some(Arc::clone(&place));
        if let Some(objects) = self.present.get_mut(&spec.file) {
            objects.push((object, Arc::clone(&place)));
        }
        kept.into_iter().filter_map(|(sbn, kept)| self.held_block(&place, sbn, kept)).collect()
    }

    fn write_source(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        let place = self.object(object);
        let length = place.block(sbn).symbol_bytes(esi, place.spec.partition.symbol_size());
        if let Some(due) = self.gather.put_source((object.0, sbn), esi, &symbol[..length.into()]) {
            self.write_block(due);
        }
        Ok(())
    }

    fn write_repair(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        repair: StoredRepair,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        if let Some(due) = self.gather.put_repair((object.0, sbn), repair, symbol) {
            self.write_block(due);
        }
        Ok(())
    }

    fn finish_block(&mut self, job: BlockJob) {
        let key = (job.object.0, job.sbn);
        self.write_block(key);
        let place = self.object(job.object);
        let slots = job.repairs;
        self.writer.push(Write::Job(Job::Block(place, job, slots)));
    }

    fn judge_block(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        verdict: BlockVerdict,
    ) -> Result<(), StoreError> {
        self.forget_block((object.0, sbn));
        let place = self.object(object);
        self.writer.push(Write::Verdict(place, sbn, verdict));
        Ok(())
    }

    fn finish_file(&mut self, file: FileIndex) {
        let place = self.file(file);
        if place.part.as_ref().is_some_and(|part| part.end.is_some()) {
            return self.finish_last_part(place);
        }
        self.writer.push(Write::Job(Job::File(place)));
    }

    fn compare_file(&mut self, file: FileIndex, digest: Digest, promised: Vec<ShortDigest>) {
        let objects = self.present.remove(&file).unwrap_or_default();
        let place = self.file(file);
        if place.is_bundle {
            return self.workers.jobs().push(Job::CompareBundle(place));
        }
        if let Some(digest) = place.spec.encoding.and_then(|encoding| encoding.digest) {
            let comparison = Box::new(ContentComparison::new(place, digest));
            return self.workers.jobs().push(Job::CompareContent(comparison));
        }
        // Symbols on the way to disk must not replace content that is found.
        self.write_all();
        let mut comparison = Comparison::new(place, objects, digest, promised);
        if let Err(error) = self.admit_sparse(&mut comparison) {
            return self.found.push_back(StoreReport::FileRefused(file, error));
        }
        self.writer.push(Write::Job(Job::Compare(Box::new(comparison))));
    }

    fn discard_file(&mut self, file: FileIndex) -> Result<(), StoreError> {
        let place = self.file(file);
        if self.end(file, &place.spec)
            && let Some(part) = &place.part
        {
            self.part_ended(part, false);
        }
        self.forget_file(file);
        self.ledger.dropped(&place);
        self.places.give_up(&place);
        if place.part.is_some() {
            self.writer.push(Write::ClearPart(Arc::clone(&place)));
        }
        let key = place.key();
        self.writer.push(Write::GivenUp(place));
        self.writer.push(Write::Discard(key));
        Ok(())
    }

    fn keep_description(&mut self, description: &Description) {
        if let Err(error) = ledger::write_description(&self.places.folder, description) {
            warn!("{error}; a receiver that goes on with this session waits for its FDT");
        }
    }

    fn kept_description(&mut self) -> Option<Description> {
        ledger::read_description(&self.places.folder)
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        self.write_when_due();
        loop {
            if let Some(report) = self.found.pop_front() {
                return Some(report);
            }
            match self.workers.poll()? {
                Outcome::Report(report) => {
                    if let StoreReport::BlockDone { object, sbn, .. } = report {
                        self.writer.push(Write::Decoded(self.object(object), sbn));
                    }
                    return Some(report);
                }
                Outcome::Placed(file, stamp) => {
                    self.placed(file, stamp);
                    return Some(StoreReport::FileDone(file));
                }
                Outcome::Present(file, stamp) => {
                    self.placed(file, stamp);
                    return Some(StoreReport::FileCompared { file, is_same: true });
                }
                Outcome::Comparing(found, comparison) => {
                    self.take_found(found);
                    self.workers.jobs().push(Job::Compare(comparison));
                }
                Outcome::ComparingContent(comparison) => {
                    self.workers.jobs().push(Job::CompareContent(comparison));
                }
                // The session ends.
                Outcome::Stopped => {}
                Outcome::Compared(found, file) => {
                    self.take_found(found);
                    self.found.push_back(StoreReport::FileCompared { file, is_same: false });
                }
                Outcome::Synced => self.writer.push(Write::Synced),
                Outcome::Compacted(journal, from) => self.writer.push(Write::Compacted(journal, from)),
            }
        }
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        // Nothing may write to the working folder after the drop.
        self.places.close_down();
        self.workers.stop();
        if self.open_files > 0 {
            self.write_all();
        }
        self.writer.finish();
        self.ledger.close(self.writer.disk().log_mut(), self.open_files > 0);
    }
}

/// Kind of a file for the store.
#[derive(Clone, Copy, Debug)]
enum FileKind<'a> {
    File,
    Part(&'a StreamPart),
    Bundle,
}

impl<'a> FileKind<'a> {
    fn part(self) -> Option<&'a StreamPart> {
        if let Self::Part(part) = self { Some(part) } else { None }
    }

    fn is_bundle(self) -> bool {
        matches!(self, Self::Bundle)
    }
}
