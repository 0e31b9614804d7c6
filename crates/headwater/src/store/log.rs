//! The journal as the writer keeps it: when it is written, when it is made safe on disk with the content that
//! it tells of, when it is made anew.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use headwater_proto::delivery::{BlockVerdict, StoreError};
use tracing::warn;

use super::change::{Change, Stamp};
use super::finish::Job;
use super::journal::{self, Journal};
use super::ledger::{JOURNAL, JOURNAL_NEW};
use super::place::{FilePlace, ObjectPlace, Places};

/// A journal may grow to twice its length when it was made, and so many bytes, before it is made anew while
/// the session goes on: one that is new has at most 21 bytes for each 64 symbols.
const GROWTH_BYTES: u64 = 4 << 20;
/// Most content whose changes are not in the journal, in bytes: what a process that is killed loses beside
/// what waits to be written.
const UNWRITTEN_BYTES_MAX: u64 = 256 << 10;
/// Content after which all is made safe on disk, in bytes: what a machine that loses power loses, and as much
/// again while that goes on.
pub(super) const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// The journal of a session, and what of the session is not in it or not safe on disk.
#[derive(Debug)]
pub(super) struct WriteLog {
    places: Arc<Places>,
    journal: Journal,
    /// How long the journal may become before it is made anew.
    pub(super) compact_at: u64,
    unwritten_bytes: u64,
    pub(super) unsynced_bytes: u64,
    /// Files written to since they were made safe on disk, by index: at most those of the session.
    dirty: BTreeMap<usize, Arc<FilePlace>>,
    is_syncing: bool,
}

impl WriteLog {
    /// Goes on with a journal that was just made.
    pub(super) fn new(places: Arc<Places>, journal: Journal) -> Self {
        let (_, end) = journal.written();
        Self {
            places,
            journal,
            compact_at: 2 * end + GROWTH_BYTES,
            unwritten_bytes: 0,
            unsynced_bytes: 0,
            dirty: BTreeMap::new(),
            is_syncing: false,
        }
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

    /// All that the last job was to make safe is.
    pub(super) fn synced(&mut self) {
        self.is_syncing = false;
    }

    /// Goes on in the journal made anew of the old one up to `from`; with the old one where that is not
    /// possible.
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

    /// Notes that a file has its final name.
    pub(super) fn placed(&mut self, place: &FilePlace, stamp: Stamp) -> Result<(), StoreError> {
        self.end(place, |file| Change::Placed { file, stamp })
    }

    /// Notes that a file was given up.
    pub(super) fn dropped(&mut self, place: &FilePlace) -> Result<(), StoreError> {
        self.end(place, |file| Change::Dropped { file })
    }

    /// Notes a change, to be written with the next batch.
    pub(super) fn note(&mut self, change: &Change) -> Result<(), StoreError> {
        self.journal.note(change).map_err(|error| self.places.folder.failed("write the journal", error))
    }

    /// Writes what was noted.
    pub(super) fn write(&mut self) -> Result<(), StoreError> {
        self.unwritten_bytes = 0;
        self.journal.flush().map_err(|error| self.places.folder.failed("write the journal", error))
    }

    /// Writes what was noted, and makes it safe on disk with the content that it tells of.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.write()?;
        std::mem::take(&mut self.dirty).values().try_for_each(|file| self.places.sync(file))?;
        let (journal, end) = self.journal.written();
        journal::sync(&journal, end).map_err(|error| self.places.folder.failed("write the journal", error))
    }

    /// How long the journal is.
    #[cfg(test)]
    pub(super) fn journal_bytes(&self) -> u64 {
        self.journal.written().1
    }

    fn end(&mut self, place: &FilePlace, change: impl FnOnce(u32) -> Change) -> Result<(), StoreError> {
        self.dirty.remove(&place.index.0);
        let Some(file) = place.number else { return Ok(()) };
        self.note(&change(file))?;
        self.write()
    }

    fn touch(&mut self, place: &ObjectPlace, bytes: u64) {
        self.unwritten_bytes += bytes;
        self.unsynced_bytes += bytes;
        self.dirty.entry(place.file.index.0).or_insert_with(|| Arc::clone(&place.file));
    }
}
