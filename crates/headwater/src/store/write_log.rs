//! Journal of a session with its syncs: when the journal is written, when the journal and its content are
//! synced to disk, when the journal is compacted, and when slots of whole blocks are freed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_proto::delivery::{BlockVerdict, FileIndex, StoreError};
use tracing::warn;

use super::finish::Job;
use super::journal::{self, Change, Journal, Stamp};
use super::ledger::{JOURNAL, JOURNAL_NEW};
use super::place::{FilePlace, ObjectPlace, Places};

/// Growth of a journal before compaction during a session, in bytes, beyond twice its initial length. A new
/// journal has at most 21 bytes for each 64 symbols.
const GROWTH_BYTES: u64 = 4 << 20;
/// Most content whose changes are not in the journal, in bytes: the loss of a killed process beside its
/// queued writes.
const UNWRITTEN_BYTES_MAX: u64 = 256 << 10;
/// Content between two syncs to disk: this many bytes, and what arrives in [`SYNC_TIME`]. A power failure
/// costs this content and the content of two syncs; a killed process loses nothing that was written.
///
/// Blocks fill in any order, so that each sync of a fast session writes most pages of the file again: syncs
/// of each 32 MiB took a fifth of a receiver's processor time at 1 Gbit/s.
pub(super) const UNSYNCED_BYTES_MIN: u64 = 32 << 20;
/// Shortest time from the end of a sync to the next sync, except that of a journal due for compaction.
pub(super) const SYNC_TIME: Duration = Duration::from_secs(5);

/// Most content of whole blocks whose slots wait for a sync, in bytes: room that the disk has to have beside
/// the content.
const WHOLE_BYTES_MAX: u64 = 64 << 20;

/// Whole blocks, verified or not, whose slots are not free yet. Until the content of a block is synced, the
/// slots hold what an earlier sync has made safe from a power failure.
///
/// Memory: 16 bytes for each block of [`WHOLE_BYTES_MAX`].
#[derive(Debug, Default)]
struct WholeBlocks {
    blocks: Vec<(Arc<ObjectPlace>, u32)>,
    bytes: u64,
}

impl WholeBlocks {
    fn push(&mut self, object: Arc<ObjectPlace>, sbn: u32) {
        self.bytes += object.block(sbn).bytes;
        self.blocks.push((object, sbn));
    }

    fn append(&mut self, mut other: Self) {
        self.bytes += other.bytes;
        self.blocks.append(&mut other.blocks);
    }

    /// Forgets the blocks of a file, whose slots go with the file.
    fn forget(&mut self, file: FileIndex) {
        self.retain(|(object, _)| object.file.index != file);
    }

    fn retain(&mut self, keeps: impl Fn(&(Arc<ObjectPlace>, u32)) -> bool) {
        self.blocks.retain(keeps);
        self.bytes = self.blocks.iter().map(|(object, sbn)| object.block(*sbn).bytes).sum();
    }

    /// Frees the slots of all blocks.
    fn free(self, places: &Places) {
        for (object, sbn) in self.blocks.iter().filter(|(object, _)| !object.file.is_over()) {
            places.free_slots(object, &object.block(*sbn));
        }
    }
}

/// The journal of a session, with the state that is not yet written or not yet synced to disk.
#[derive(Debug)]
pub(super) struct WriteLog {
    places: Arc<Places>,
    journal: Journal,
    /// Length of the journal at which compaction starts.
    pub(super) compact_at: u64,
    unwritten_bytes: u64,
    pub(super) unsynced_bytes: u64,
    /// Files written to since the last sync, by index: at most the files of the session.
    dirty: BTreeMap<usize, Arc<FilePlace>>,
    pub(super) is_syncing: bool,
    /// End of the last sync.
    pub(super) synced_at: Instant,
    /// Files of the sync under way.
    syncing_files: Vec<Arc<FilePlace>>,
    /// [`WHOLE_BYTES_MAX`]; tests set less.
    pub(super) whole_bytes_max: u64,
    /// Blocks that became whole since the start of the last sync.
    whole: WholeBlocks,
    /// Blocks that the sync under way makes safe.
    syncing: WholeBlocks,
}

impl WriteLog {
    /// Continues a newly made journal.
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
            synced_at: Instant::now(),
            syncing_files: Vec::new(),
            whole_bytes_max: WHOLE_BYTES_MAX,
            whole: WholeBlocks::default(),
            syncing: WholeBlocks::default(),
        }
    }

    /// Notes written symbols.
    pub(super) fn wrote(
        &mut self,
        place: &ObjectPlace,
        bytes: usize,
        change: impl FnOnce(u32) -> Change,
    ) -> Result<(), StoreError> {
        let Some(object) = place.number else { return Ok(()) };
        self.note(&change(object))?;
        self.touch(place, bytes as u64);
        if self.unwritten_bytes >= UNWRITTEN_BYTES_MAX {
            self.write()?;
        }
        Ok(())
    }

    /// Whether content and journal are to be synced to disk now.
    pub(super) fn is_sync_due(&self) -> bool {
        if self.is_syncing {
            return false;
        }
        let is_long = || self.journal.written().1 >= self.compact_at;
        let is_late = || is_long() || self.synced_at.elapsed() >= SYNC_TIME;
        // Slots of whole blocks take room.
        self.whole.bytes >= self.whole_bytes_max / 2
            || (self.unsynced_bytes >= UNSYNCED_BYTES_MIN && is_late())
    }

    /// Writes the noted changes, and returns the job that syncs content and journal.
    pub(super) fn start_sync(&mut self) -> Result<Job, StoreError> {
        self.write()?;
        (self.is_syncing, self.unsynced_bytes) = (true, 0);
        self.syncing = std::mem::take(&mut self.whole);
        let (journal, end) = self.journal.written();
        let files: Vec<_> = std::mem::take(&mut self.dirty).into_values().collect();
        self.syncing_files.clone_from(&files);
        Ok(if end < self.compact_at {
            Job::Sync(files, journal, end)
        } else {
            Job::Compact(files, journal, end)
        })
    }

    /// Keeps the slots of a block, which are used again.
    pub(super) fn keep_slots(&mut self, object: &ObjectPlace, sbn: u32) {
        let is_other = |(other, block): &(Arc<ObjectPlace>, u32)| {
            *block != sbn || !std::ptr::eq(&raw const **other, &raw const *object)
        };
        self.whole.retain(is_other);
        self.syncing.retain(is_other);
    }

    /// Notes the end of a sync.
    pub(super) fn synced(&mut self) {
        (self.is_syncing, self.synced_at) = (false, Instant::now());
        self.syncing_files.clear();
        std::mem::take(&mut self.syncing).free(&self.places);
    }

    /// Frees the slots of a whole block once the content is synced; at once if the journal does not know the
    /// block. If too many blocks wait already, for a disk that is slower than the decoder, syncs first.
    pub(super) fn free_after_sync(&mut self, object: Arc<ObjectPlace>, sbn: u32) -> Result<(), StoreError> {
        let block = object.block(sbn);
        if object.number.is_none() {
            self.places.free_slots(&object, &block);
            return Ok(());
        }
        if self.whole.bytes + self.syncing.bytes + block.bytes > self.whole_bytes_max {
            self.close()?;
        }
        self.whole.push(object, sbn);
        Ok(())
    }

    /// Continues in the journal compacted from the old journal up to `from`; if that is not possible,
    /// continues in the old journal.
    pub(super) fn compacted(&mut self, new: io::Result<Journal>, from: u64) -> Result<(), StoreError> {
        // A power failure may bring the old journal back.
        self.whole.append(std::mem::take(&mut self.syncing));
        self.synced();
        self.write()?;
        let replaced = new.and_then(|new| self.journal.go_on_in(new, from));
        match replaced {
            Ok(()) => {
                let (_, end) = self.journal.written();
                self.compact_at = 2 * end + GROWTH_BYTES;
                // Synced to disk by the next sync.
                self.places.folder.rename_unsafe(JOURNAL_NEW, JOURNAL)
            }
            Err(error) => {
                // Mostly for want of space; the old journal remains.
                warn!(%error, "the journal could not be made anew; it goes on growing");
                self.compact_at = self.compact_at.saturating_mul(2);
                self.places.folder.discard(JOURNAL_NEW)
            }
        }
    }

    /// Notes the verdict on a block, before its slots are reused.
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

    /// Notes that all source symbols of a block are in place, not verified, and that slots are not needed.
    pub(super) fn decoded(&mut self, place: &ObjectPlace, sbn: u32) -> Result<(), StoreError> {
        let Some(object) = place.number else { return Ok(()) };
        self.touch(place, 0);
        self.note(&Change::Source { object, sbn, esi: 0, count: place.block(sbn).symbols })?;
        self.note(&Change::RepairsDropped { object, sbn })?;
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

    /// Notes a change for the next batch.
    pub(super) fn note(&mut self, change: &Change) -> Result<(), StoreError> {
        self.journal.note(change).map_err(|error| self.places.folder.failed("write the journal", error))
    }

    /// Writes the noted changes.
    pub(super) fn write(&mut self) -> Result<(), StoreError> {
        self.unwritten_bytes = 0;
        self.journal.flush().map_err(|error| self.places.folder.failed("write the journal", error))
    }

    /// Writes the noted changes, and syncs the journal and its content to disk.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.write()?;
        // A job that syncs files may not have run, or may have failed.
        let files = std::mem::take(&mut self.syncing_files).into_iter();
        let files = files.chain(std::mem::take(&mut self.dirty).into_values());
        files.into_iter().try_for_each(|file| self.places.sync(&file))?;
        let (journal, end) = self.journal.written();
        let synced = journal::sync(&journal, end);
        synced.map_err(|error| self.places.folder.failed("write the journal", error))?;
        std::mem::take(&mut self.syncing).free(&self.places);
        std::mem::take(&mut self.whole).free(&self.places);
        (self.unsynced_bytes, self.synced_at) = (0, Instant::now());
        Ok(())
    }

    /// Returns the length of the journal.
    #[cfg(test)]
    pub(super) fn journal_bytes(&self) -> u64 {
        self.journal.written().1
    }

    fn end(&mut self, place: &FilePlace, change: impl FnOnce(u32) -> Change) -> Result<(), StoreError> {
        self.dirty.remove(&place.index.0);
        self.syncing_files.retain(|file| file.index != place.index);
        self.whole.forget(place.index);
        self.syncing.forget(place.index);
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
