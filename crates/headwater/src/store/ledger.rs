//! Keeps the journal of a session: what of it may be resumed, when it is written, when it is made safe on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use headwater_proto::delivery::{BlockVerdict, Digest, FileSpec, FileVersion, HeldFile, StoreError};
use tracing::warn;

use super::change::{Change, Key, Stamp};
use super::description;
use super::finish::Job;
use super::folder::is_recent;
use super::journal::{self, Journal};
use super::kept::{BLOCKS_BYTES_MAX, Kept, KeptBlock, KeptFile};
use super::place::{FilePlace, ObjectPlace, Places, content_name, key_of, repair_name};

pub(super) const JOURNAL: &str = "journal";
/// A journal being made anew.
pub(super) const JOURNAL_NEW: &str = "journal.new";
/// A journal may grow to twice its length when it was made, and so many bytes, before it is made anew while the session
/// goes on: one that is new has at most 21 bytes for each 64 symbols.
const GROWTH_BYTES: u64 = 4 << 20;
/// Files of earlier sessions that are remembered; of more the first ones are forgotten.
const FILES_MAX: usize = 1 << 16;
/// Most content whose changes are not in the journal, in bytes: what a process that is killed loses.
const UNWRITTEN_BYTES_MAX: u64 = 256 << 10;
/// Content after which all is made safe on disk, in bytes: what a machine that loses power loses, and as much again while
/// that goes on.
pub(super) const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// What of a working folder is worth keeping.
///
/// Memory: some 300 bytes for each file and object of the session and of those left by earlier ones, and what
/// [`Kept`] takes.
#[derive(Debug)]
pub(super) struct Ledger {
    places: Arc<Places>,
    journal: Journal,
    /// How long the journal may become before it is made anew.
    pub(super) compact_at: u64,
    /// What earlier sessions left of blocks, a part at a time.
    kept: Kept,
    /// Files that earlier sessions left, as far as this one has not taken them over.
    files: BTreeMap<Key, (u32, KeptFile)>,
    /// Their objects, and those of files taken over, by file and identity.
    objects: BTreeMap<(u32, Digest), u32>,
    /// All files of the journal, by its numbers.
    states: BTreeMap<u32, State>,
    next_file: u32,
    next_object: u32,
    unwritten_bytes: u64,
    pub(super) unsynced_bytes: u64,
    /// Files written to since they were made safe on disk, by index: at most those of the session.
    dirty: BTreeMap<usize, Arc<FilePlace>>,
    is_syncing: bool,
}

#[derive(Clone, Copy, Debug)]
struct State {
    key: Key,
    bytes: u64,
    version: FileVersion,
    /// Whether some of its content came.
    is_begun: bool,
    is_placed: bool,
}

impl Ledger {
    /// Reads what earlier sessions left, and begins a journal that tells no more than that.
    pub(super) fn open(places: Arc<Places>) -> Result<Self, StoreError> {
        let folder = &places.folder;
        let failed = |error: io::Error| folder.failed("write the journal", error);
        folder.discard(JOURNAL_NEW)?;
        let old = folder.find_work(JOURNAL);
        let end = old.as_ref().and_then(journal::trusted_end);
        let new = folder.open_work(JOURNAL_NEW, Some(0))?;
        let (journal, kept) = match (old, end) {
            (Some(old), Some(end)) => {
                let lost = lost_files(&places, &journal::read(&old, end, (0, 0), 0).files);
                journal::compact(&old, end, new, BLOCKS_BYTES_MAX, |file| lost.contains(&file))
                    .map_err(failed)?
            }
            _ => (Journal::create(new).map_err(failed)?, Kept::default()),
        };
        for file in kept.files.values().filter(|file| file.placed.is_none()) {
            for name in [content_name(&file.key), repair_name(&file.key)] {
                folder.find_work(&name).map_or(Ok(()), |file| file.sync_data()).map_err(failed)?;
            }
        }
        let (file, end) = journal.written();
        journal::sync(&file, end).map_err(failed)?;
        folder.rename_work(JOURNAL_NEW, JOURNAL)?;
        let state = |file: &KeptFile| {
            let KeptFile { key, bytes, version, placed } = *file;
            State { key, bytes, version, is_begun: true, is_placed: placed.is_some() }
        };
        let object =
            |(number, object): (&u32, &super::kept::KeptObject)| ((object.file, object.identity), *number);
        let mut ledger = Self {
            compact_at: 2 * end + GROWTH_BYTES,
            journal,
            states: kept.files.iter().map(|(number, file)| (*number, state(file))).collect(),
            files: kept.files.iter().map(|(number, file)| (file.key, (*number, *file))).collect(),
            objects: kept.objects.iter().map(object).collect(),
            next_file: kept.files.keys().next_back().map_or(0, |last| last.saturating_add(1)),
            next_object: kept.objects.keys().next_back().map_or(0, |last| last.saturating_add(1)),
            kept,
            unwritten_bytes: 0,
            unsynced_bytes: 0,
            dirty: BTreeMap::new(),
            is_syncing: false,
            places,
        };
        ledger.clean();
        Ok(ledger)
    }

    /// The number of a file, if it may be resumed, and what is there of it. What is there of another content under the
    /// same name is removed.
    pub(super) fn take_file(&mut self, spec: &FileSpec) -> Result<(Option<u32>, HeldFile), StoreError> {
        let key = key_of(&spec.path);
        if let Some((number, file)) = self.files.remove(&key) {
            let is_same = spec.bytes == file.bytes && file.version.is_same(&spec.version());
            let is_whole = spec.digest.is_some()
                && file.version.digest == spec.digest
                && file.placed.is_some()
                && file.placed == self.places.folder.stamp(&spec.path);
            if is_same && is_whole == file.placed.is_some() {
                self.note_version(number, spec.version())?;
                return Ok((Some(number), HeldFile { is_whole, is_present: false }));
            }
            self.note(&Change::Dropped { file: number })?;
            self.write()?;
            self.states.remove(&number);
        }
        self.places.folder.discard(&content_name(&key))?;
        self.places.folder.discard(&repair_name(&key))?;
        let version = spec.version();
        if !version.is_known() {
            return Ok((None, HeldFile::default()));
        }
        let file = self.next_file;
        self.next_file += 1;
        self.note(&Change::File { file, key, bytes: spec.bytes, version })?;
        let state = State { key, bytes: spec.bytes, version, is_begun: false, is_placed: false };
        self.states.insert(file, state);
        Ok((Some(file), HeldFile::default()))
    }

    /// Notes the digest of a file under way.
    pub(super) fn learn_digest(&mut self, file: u32, digest: Digest) -> Result<(), StoreError> {
        self.note_version(file, FileVersion { digest: Some(digest), modified: None })
    }

    /// Notes what the sender tells of a file's version; what it does not tell stays as it was.
    fn note_version(&mut self, file: u32, told: FileVersion) -> Result<(), StoreError> {
        let Some(state) = self.states.get_mut(&file) else { return Ok(()) };
        let known = state.version;
        let version =
            FileVersion { digest: told.digest.or(known.digest), modified: told.modified.or(known.modified) };
        if version == known {
            return Ok(());
        }
        state.version = version;
        let State { key, bytes, .. } = *state;
        self.note(&Change::File { file, key, bytes, version })
    }

    /// The number of an object of a file that may be resumed, and the blocks that are there.
    pub(super) fn take_object(
        &mut self,
        file: u32,
        identity: Digest,
    ) -> Result<(u32, BTreeMap<u32, KeptBlock>), StoreError> {
        if let Some(number) = self.objects.remove(&(file, identity)) {
            let mut blocks = self.take_blocks(number);
            if !self.has_content(file) {
                self.lose_content(number, &mut blocks)?;
            }
            return Ok((number, blocks));
        }
        let object = self.next_object;
        self.next_object += 1;
        // Written with the first symbol: what goes wrong then is told then.
        self.journal.defer(&Change::Object { object, file, identity });
        Ok((object, BTreeMap::new()))
    }

    fn has_content(&self, file: u32) -> bool {
        let key = self.states.get(&file).map(|state| state.key);
        key.is_some_and(|key| self.places.folder.find_work(&content_name(&key)).is_some())
    }

    /// Forgets the source symbols of blocks whose content is not there: without that, what is written to new content later
    /// would count beside symbols that are lost.
    fn lose_content(&mut self, object: u32, blocks: &mut BTreeMap<u32, KeptBlock>) -> Result<(), StoreError> {
        for (&sbn, block) in blocks.iter_mut().filter(|(_, block)| block.has_source()) {
            let slots = block.slots;
            *block = KeptBlock { slots, ..KeptBlock::default() };
            self.note(&Change::AllDropped { object, sbn })?;
            if slots > 0 {
                self.note(&Change::Repairs { object, sbn, slots })?;
            }
        }
        blocks.retain(|_, block| block.slots > 0);
        self.write()
    }

    /// What an earlier session left of an object. It was not noted anew in this one, so the journal still tells it.
    fn take_blocks(&mut self, object: u32) -> BTreeMap<u32, KeptBlock> {
        let (journal, end) = self.journal.written();
        if !self.kept.has_blocks_of(object) {
            self.kept = journal::read(&journal, end, (object, 0), BLOCKS_BYTES_MAX);
        }
        let mut blocks = self.kept.take_blocks(object);
        while let Some(from) = self.kept.until.filter(|until| until.0 == object) {
            self.kept = journal::read(&journal, end, from, BLOCKS_BYTES_MAX);
            blocks.extend(self.kept.take_blocks(object));
        }
        blocks
    }

    /// Notes symbols that were written. Returns a job when it is time to make all safe on disk.
    pub(super) fn wrote(
        &mut self,
        place: &ObjectPlace,
        bytes: usize,
        change: impl FnOnce(u32) -> Change,
    ) -> Result<Option<Job>, StoreError> {
        let Some(object) = place.number else { return Ok(None) };
        self.note(&change(object))?;
        if let Some(state) = place.file.number.and_then(|file| self.states.get_mut(&file)) {
            state.is_begun = true;
        }
        self.touch(place, bytes as u64);
        if self.unwritten_bytes >= UNWRITTEN_BYTES_MAX {
            self.write()?;
        }
        if self.unsynced_bytes < UNSYNCED_BYTES_MAX || self.is_syncing {
            return Ok(None);
        }
        self.write()?;
        (self.is_syncing, self.unsynced_bytes) = (true, 0);
        let (journal, end) = self.journal.written();
        let files = std::mem::take(&mut self.dirty).into_values().collect();
        Ok(Some(if end < self.compact_at {
            Job::Sync(files, journal, end)
        } else {
            Job::Compact(files, journal, end)
        }))
    }

    /// Goes on in the journal made anew of the old one up to `from`; with the old one where that is not possible.
    pub(super) fn compacted(&mut self, new: io::Result<Journal>, from: u64) -> Result<(), StoreError> {
        self.is_syncing = false;
        self.write()?;
        let replaced = new.and_then(|new| self.journal.go_on_in(new, from));
        match replaced {
            Ok(()) => {
                let (_, end) = self.journal.written();
                self.compact_at = 2 * end + GROWTH_BYTES;
                // Safe on disk with what is made safe next.
                self.places.folder.rename_unsafe(JOURNAL_NEW, JOURNAL)
            }
            Err(error) => {
                // Mostly for want of space, and there is a journal.
                warn!(%error, "the journal could not be made anew; it goes on growing");
                self.compact_at = self.compact_at.saturating_mul(2);
                self.places.folder.discard(JOURNAL_NEW)
            }
        }
    }

    /// Notes what became of a block, before its slots are used again.
    pub(super) fn judged(
        &mut self,
        place: &ObjectPlace,
        sbn: u32,
        verdict: BlockVerdict,
    ) -> Result<(), StoreError> {
        let Some(object) = place.number else { return Ok(()) };
        self.touch(place, 0);
        self.note(&match verdict {
            BlockVerdict::Right => Change::Whole { object, sbn },
            BlockVerdict::RepairsDropped => Change::RepairsDropped { object, sbn },
            BlockVerdict::AllDropped => Change::AllDropped { object, sbn },
        })?;
        self.write()
    }

    /// All that the last job was to make safe is.
    pub(super) fn synced(&mut self) {
        self.is_syncing = false;
    }

    /// Notes that a file has its final name.
    pub(super) fn placed(&mut self, place: &FilePlace, stamp: Stamp) -> Result<(), StoreError> {
        self.dirty.remove(&place.index.0);
        let Some(file) = place.number else { return Ok(()) };
        // It may have been given up meanwhile.
        let Some(state) = self.states.get_mut(&file) else { return Ok(()) };
        (state.is_begun, state.is_placed) = (true, true);
        self.note(&Change::Placed { file, stamp })?;
        self.write()
    }

    /// Notes that a file was given up.
    pub(super) fn dropped(&mut self, place: &FilePlace) -> Result<(), StoreError> {
        self.dirty.remove(&place.index.0);
        let Some(file) = place.number else { return Ok(()) };
        self.states.remove(&file);
        self.note(&Change::Dropped { file })?;
        self.write()
    }

    /// Whether something is worth keeping: content of a file that is not in place, or files in place while others of
    /// the session (`is_open`) are not.
    pub(super) fn is_resumable(&self, is_open: bool) -> bool {
        self.states.values().any(|state| state.is_begun && (is_open || !state.is_placed))
    }

    /// Leaves the working folder as another session is to find it, or no working folder at all.
    pub(super) fn close(&mut self, is_open: bool) {
        if !self.is_resumable(is_open) {
            self.places.folder.remove_work();
            return;
        }
        let dirty = std::mem::take(&mut self.dirty);
        let synced = self.write().and_then(|()| dirty.values().try_for_each(|file| self.places.sync(file)));
        let (journal, end) = self.journal.written();
        let synced = synced.and_then(|()| {
            journal::sync(&journal, end)
                .map_err(|error| self.places.folder.failed("write the journal", error))
        });
        if let Err(error) = synced {
            warn!("{error}; what came last may have to be received again");
        }
        self.clean();
    }

    /// Removes what the journal does not speak of.
    fn clean(&mut self) {
        let under_way = self.states.values().filter(|state| !state.is_placed);
        let mut names: Vec<_> =
            under_way.flat_map(|state| [content_name(&state.key), repair_name(&state.key)]).collect();
        names.extend([JOURNAL, description::NAME].map(str::to_owned));
        names.sort_unstable();
        if let Err(error) =
            self.places.folder.clean(|name| names.binary_search_by(|known| known.as_str().cmp(name)).is_ok())
        {
            warn!(%error, "the working folder could not be cleaned");
        }
    }

    /// How long the journal is.
    #[cfg(test)]
    pub(super) fn journal_bytes(&self) -> u64 {
        self.journal.written().1
    }

    fn touch(&mut self, place: &ObjectPlace, bytes: u64) {
        self.unwritten_bytes += bytes;
        self.unsynced_bytes += bytes;
        self.dirty.entry(place.file.index.0).or_insert_with(|| Arc::clone(&place.file));
    }

    fn note(&mut self, change: &Change) -> Result<(), StoreError> {
        self.journal.note(change).map_err(|error| self.places.folder.failed("write the journal", error))
    }

    /// Writes what was noted.
    pub(super) fn write(&mut self) -> Result<(), StoreError> {
        self.unwritten_bytes = 0;
        self.journal.flush().map_err(|error| self.places.folder.failed("write the journal", error))
    }
}

/// The files of a journal of which nothing is there any more, or that are not worth keeping: too old, or too many. A file
/// may consist of repair symbols alone, or of source symbols alone.
fn lost_files(places: &Places, files: &BTreeMap<u32, KeptFile>) -> BTreeSet<u32> {
    let is_kept = |file: &KeptFile| match file.placed {
        Some(stamp) => is_recent(stamp.time()),
        None => [content_name(&file.key), repair_name(&file.key)]
            .iter()
            .any(|name| places.folder.changed(name).is_some_and(is_recent)),
    };
    let beyond = files.len().saturating_sub(FILES_MAX);
    files
        .iter()
        .enumerate()
        .filter(|(place, (_, file))| *place < beyond || !is_kept(file))
        .map(|(_, (number, _))| *number)
        .collect()
}
