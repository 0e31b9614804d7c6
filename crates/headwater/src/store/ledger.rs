//! Keeps the journal of a session: what of it may be resumed, when it is written, when it is made safe on disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use headwater_proto::delivery::{BlockVerdict, Digest, FileSpec, HeldFile, StoreError};
use tracing::warn;

use super::change::{Change, Key, Stamp};
use super::finish::Job;
use super::journal::{self, Journal};
use super::kept::{Kept, KeptBlock};
use super::place::{FilePlace, ObjectPlace, Places, content_name, key_of, repair_name};

const JOURNAL: &str = "journal";
/// A journal being made anew.
const JOURNAL_NEW: &str = "journal.new";
/// Most content whose changes are not in the journal, in bytes: what a process that is killed loses.
const UNWRITTEN_BYTES_MAX: u64 = 256 << 10;
/// Content after which all is made safe on disk, in bytes: what a machine that loses power loses, and as much again while
/// that goes on.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// What of a working folder is worth keeping.
#[derive(Debug)]
pub(super) struct Ledger {
    places: Arc<Places>,
    journal: Journal,
    /// What earlier sessions left, as far as this one has not taken it over.
    kept: Kept,
    /// All files of the journal, by its numbers.
    states: BTreeMap<u32, State>,
    next_file: u32,
    next_object: u32,
    unwritten_bytes: u64,
    unsynced_bytes: u64,
    /// Files written to since they were made safe on disk, by index: at most those of the session.
    dirty: BTreeMap<usize, Arc<FilePlace>>,
    is_syncing: bool,
}

#[derive(Clone, Copy, Debug)]
struct State {
    key: Key,
    /// Whether some of its content came.
    is_begun: bool,
    is_placed: bool,
}

impl Ledger {
    /// Reads what earlier sessions left, and begins a journal that tells no more than that.
    pub(super) fn open(places: Arc<Places>) -> Result<Self, StoreError> {
        let mut kept =
            places.folder.find_work(JOURNAL).map_or_else(Kept::default, |file| journal::read(&file));
        let folder = &places.folder;
        let is_there = |key: &Key| folder.find_work(&content_name(key)).is_some();
        let lost = kept.files.iter().filter(|(_, file)| file.placed.is_none() && !is_there(&file.key));
        for file in lost.map(|(number, _)| *number).collect::<Vec<_>>() {
            kept.forget(file);
        }
        let failed = |error: io::Error| folder.failed("write the journal", error);
        folder.discard(JOURNAL_NEW)?;
        let mut journal = Journal::create(folder.open_work(JOURNAL_NEW, Some(0))?).map_err(failed)?;
        for change in kept.changes() {
            journal.note(&change).map_err(failed)?;
        }
        journal.flush().map_err(failed)?;
        for file in kept.files.values().filter(|file| file.placed.is_none()) {
            for name in [content_name(&file.key), repair_name(&file.key)] {
                folder.find_work(&name).map_or(Ok(()), |file| file.sync_data()).map_err(failed)?;
            }
        }
        let (file, end) = journal.written();
        journal::sync(&file, end).map_err(failed)?;
        folder.rename_work(JOURNAL_NEW, JOURNAL)?;
        let state = |file: &super::kept::KeptFile| State {
            key: file.key,
            is_begun: true,
            is_placed: file.placed.is_some(),
        };
        let mut ledger = Self {
            journal,
            states: kept.files.iter().map(|(number, file)| (*number, state(file))).collect(),
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
        let known = self.kept.files.iter().find(|(_, file)| file.key == key).map(|(number, _)| *number);
        if let Some(number) = known {
            let file = &self.kept.files[&number];
            let is_same = spec.digest == Some(file.digest) && spec.bytes == file.bytes;
            let is_placed = file.placed.is_some();
            let is_whole = is_placed && file.placed == self.places.folder.stamp(&spec.path);
            if is_same && is_whole == is_placed {
                return Ok((Some(number), HeldFile { is_whole }));
            }
            self.note(&Change::Dropped { file: number })?;
            self.write()?;
            self.kept.forget(number);
            self.states.remove(&number);
        }
        self.places.folder.discard(&content_name(&key))?;
        self.places.folder.discard(&repair_name(&key))?;
        let Some(digest) = spec.digest else { return Ok((None, HeldFile::default())) };
        let file = self.next_file;
        self.next_file += 1;
        self.note(&Change::File { file, key, bytes: spec.bytes, digest })?;
        self.states.insert(file, State { key, is_begun: false, is_placed: false });
        Ok((Some(file), HeldFile::default()))
    }

    /// The number of an object of a file that may be resumed, and the blocks that are there.
    pub(super) fn take_object(&mut self, file: u32, identity: Digest) -> (u32, BTreeMap<u32, KeptBlock>) {
        let is_same = |object: &super::kept::KeptObject| object.file == file && object.identity == identity;
        let known = self.kept.objects.iter().find(|(_, object)| is_same(object)).map(|(number, _)| *number);
        if let Some(number) = known {
            let blocks = self.kept.objects.remove(&number).map(|object| object.blocks).unwrap_or_default();
            return (number, blocks);
        }
        let object = self.next_object;
        self.next_object += 1;
        // Written with the first symbol: what goes wrong then is told then.
        self.journal.defer(&Change::Object { object, file, identity });
        (object, BTreeMap::new())
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
        Ok(Some(Job::Sync(std::mem::take(&mut self.dirty).into_values().collect(), journal, end)))
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
        if let Some(state) = self.states.get_mut(&file) {
            (state.is_begun, state.is_placed) = (true, true);
        }
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
        names.push(JOURNAL.to_owned());
        names.sort_unstable();
        if let Err(error) =
            self.places.folder.clean(|name| names.binary_search_by(|known| known.as_str().cmp(name)).is_ok())
        {
            warn!(%error, "the working folder could not be cleaned");
        }
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
