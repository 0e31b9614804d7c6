//! Writer thread: writes content first, then the journal entries for the content, in the order in which the
//! store queues them.
//!
//! A disk slower than the session stalls its writer for tenths of a second at a time. The thread that reads
//! the socket must not stall, since the socket's buffer overflows meanwhile: each stall would be a burst of
//! loss. So the receiving thread queues writes and continues. The queue is bounded: if the disk stays slow,
//! the store waits, one write at a time, so that symbols are lost evenly rather than in bursts.
//!
//! A job on a block or a file waits behind the writes that the job needs, then goes to the worker threads.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use headwater_proto::delivery::{BlockVerdict, StoreError, StoreReport};

use super::finish::{Job, Outcome};
use super::gather::{self, BlockDigests, SymbolRun};
use super::journal::{Change, Journal, Key, Stamp};
use super::place::{FilePlace, ObjectPlace, Places};
use super::work::JobQueue;
use super::write_log::WriteLog;

/// Maximum number of buffers kept for reuse by the store.
const SPARE_MAX: usize = 8;
/// Bound on the memory of a write beside its buffers, in bytes.
const WRITE_BYTES: usize = 256;

/// A write, or an action that waits for the writes before it.
#[derive(Debug)]
pub(super) enum Write {
    /// Symbols gathered of a block.
    Symbols(Arc<ObjectPlace>, gather::Key, SymbolRun),
    /// A change for the next batch of the journal.
    Note(Change),
    /// The end of a batch of the journal.
    Flush,
    /// The end of a job that has written a whole block, before the verdict.
    Decoded(Arc<ObjectPlace>, u32),
    /// The verdict on a block, whose repair symbols are no longer needed.
    Verdict(Arc<ObjectPlace>, u32, BlockVerdict),
    /// A file that has its final name.
    Placed(Arc<FilePlace>, Stamp),
    /// A file that was given up.
    GivenUp(Arc<FilePlace>),
    /// The removal of a file's working files.
    Discard(Key),
    /// Clears the content of a part of a stream that was given up.
    ClearPart(Arc<FilePlace>),
    /// A job for the worker threads.
    Job(Job),
    /// The end of a job that synced the journal to disk.
    Synced,
    /// A journal compacted from the old journal up to this length, or the error.
    Compacted(io::Result<Journal>, u64),
}

impl Write {
    /// Returns the memory of the write until completion, in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Symbols(_, _, gathered) => WRITE_BYTES + gathered.capacity(),
            _ => WRITE_BYTES,
        }
    }

    fn is_job(&self) -> bool {
        matches!(self, Self::Job(_))
    }
}

/// The queue of writes and the writer thread.
///
/// Memory: the limit of [`Writer::set_bytes_max`], or a single larger write; and [`SPARE_MAX`] buffers.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Signals a queued write.
    news: Condvar,
    /// Signals a completed write.
    room: Condvar,
    /// Locked during a write.
    disk: Mutex<Disk>,
}

#[derive(Debug)]
struct Queue {
    writes: VecDeque<Write>,
    /// Memory of the queued writes and of the write in progress.
    bytes: usize,
    bytes_max: usize,
    /// Jobs among the writes.
    jobs: usize,
    spare: Vec<SymbolRun>,
    /// Whether the thread ends once all is written.
    is_closed: bool,
    /// Whether the thread has ended.
    is_over: bool,
}

/// State of the writer thread.
#[derive(Debug)]
pub(super) struct Disk {
    places: Arc<Places>,
    jobs: JobQueue,
    log: WriteLog,
    hashing: BlockDigests,
    /// Empty buffer to sort symbols into.
    sorting: Vec<u8>,
    /// Whether a write failed. No further write is done, since the journal would record missing content.
    has_failed: bool,
}

impl Writer {
    /// Starts the thread. Jobs go to `jobs`, and so does the error that ends the store.
    pub(super) fn start(
        places: Arc<Places>,
        log: WriteLog,
        jobs: JobQueue,
        bytes_max: usize,
    ) -> Result<Self, StoreError> {
        let queue = Queue {
            writes: VecDeque::new(),
            bytes: 0,
            bytes_max,
            jobs: 0,
            spare: Vec::new(),
            is_closed: false,
            is_over: false,
        };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            news: Condvar::new(),
            room: Condvar::new(),
            disk: Mutex::new(Disk {
                places,
                jobs,
                log,
                hashing: BlockDigests::default(),
                sorting: Vec::new(),
                has_failed: false,
            }),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("headwater-write".into()).spawn(move || own.run());
        let cannot = |error| StoreError(format!("cannot start a thread to write with: {error}"));
        Ok(Self { shared, thread: Some(thread.map_err(cannot)?) })
    }

    /// Sets the maximum memory of the queued writes.
    pub(super) fn set_bytes_max(&self, bytes_max: usize) {
        self.shared.lock().bytes_max = bytes_max;
    }

    /// Queues a write; waits while the queue has no room.
    pub(super) fn push(&self, write: Write) {
        let bytes = write.bytes();
        let mut queue = self.shared.lock();
        while queue.bytes > 0 && queue.bytes + bytes > queue.bytes_max && !queue.is_over {
            queue = self.shared.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        // After a panic of the thread the store has failed, and the failure was reported.
        if !queue.is_over {
            queue.bytes += bytes;
            queue.jobs += usize::from(write.is_job());
            queue.writes.push_back(write);
            // Waking the thread for each write would cost a system call each.
            if queue.writes.len() == 1 {
                self.shared.news.notify_one();
            }
        }
    }

    /// Returns a written buffer for reuse.
    pub(super) fn spare(&self) -> Option<SymbolRun> {
        self.shared.lock().spare.pop()
    }

    /// Queues a change for the next batch of the journal.
    pub(super) fn note(&self, change: Change) {
        self.push(Write::Note(change));
    }

    /// Ends a batch of the journal.
    pub(super) fn flush(&self) {
        self.push(Write::Flush);
    }

    /// Whether a job waits for the writes before it.
    pub(super) fn has_jobs(&self) -> bool {
        self.shared.lock().jobs > 0
    }

    /// Writes the queue to the end and stops the thread.
    pub(super) fn finish(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported already.
            let _panicked = thread.join();
        }
    }

    /// Waits until nothing is queued.
    #[cfg(test)]
    pub(super) fn wait(&self) {
        let queue = self.shared.lock();
        let _idle = self.shared.room.wait_while(queue, |queue| queue.bytes > 0).unwrap();
    }

    /// Locks the state of the writer thread between two writes: the lock stalls the thread.
    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.shared.disk()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    /// Nothing under the lock can panic half-way.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a panic nothing is written any more.
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let _end = EndGuard(self);
        while let Some(write) = self.next() {
            let (bytes, is_job) = (write.bytes(), write.is_job());
            let spare = self.disk().perform(write);
            let mut queue = self.lock();
            queue.bytes -= bytes;
            queue.jobs -= usize::from(is_job);
            if let Some(spare) = spare
                && queue.spare.len() < SPARE_MAX
            {
                queue.spare.push(spare);
            }
            drop(queue);
            self.room.notify_one();
        }
    }

    /// Waits for the next write; `None` when all is written and the queue is closed.
    fn next(&self) -> Option<Write> {
        let mut queue = self.lock();
        loop {
            if let Some(write) = queue.writes.pop_front() {
                return Some(write);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Releases all waiting threads when the writer thread ends.
struct EndGuard<'a>(&'a Shared);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut disk = self.0.disk();
            disk.fail(StoreError("writing content failed unexpectedly".into()));
        }
        let mut queue = self.0.lock();
        queue.is_over = true;
        queue.writes.clear();
        queue.bytes = 0;
        drop(queue);
        self.0.room.notify_one();
    }
}

impl Disk {
    /// Returns the journal, to be closed.
    pub(super) fn log_mut(&mut self) -> &mut WriteLog {
        &mut self.log
    }

    /// Does a write; returns its buffers. After a failed write nothing more is written.
    fn perform(&mut self, write: Write) -> Option<SymbolRun> {
        if self.has_failed {
            return None;
        }
        match self.try_perform(write) {
            Ok(spare) => spare,
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn fail(&mut self, error: StoreError) {
        self.has_failed = true;
        self.jobs.report(Outcome::Report(StoreReport::Failed(error)));
    }

    fn try_perform(&mut self, write: Write) -> Result<Option<SymbolRun>, StoreError> {
        match write {
            Write::Symbols(object, key, mut gathered) => {
                self.write(&object, key, &mut gathered)?;
                gathered.clear();
                return Ok(Some(gathered));
            }
            Write::Note(change) => self.log.note(&change)?,
            Write::Flush => {
                self.log.write()?;
                self.sync_when_due()?;
            }
            Write::Verdict(object, sbn, verdict) => {
                if verdict == BlockVerdict::RepairsDropped {
                    match self.move_to_places(&object, sbn) {
                        Err(_) if object.file.is_over() => {}
                        moved => moved?,
                    }
                }
                let (is_decoded, slots) = (object.is_decoded(sbn), object.slots(sbn));
                object.set_decoded(sbn, false);
                // The journal has all symbols of a decoded block as received.
                let is_lost = is_decoded && verdict == BlockVerdict::RepairsDropped;
                let noted = if is_lost { BlockVerdict::AllDropped } else { verdict };
                self.log.judged(&object, sbn, noted)?;
                let block = object.block(sbn);
                if verdict == BlockVerdict::Right {
                    self.places.whole(&object, &block)?;
                    if slots.is_some_and(|slots| slots > 0) {
                        self.log.free_after_sync(object, sbn)?;
                    } else if !is_decoded {
                        // Of a session that was killed.
                        self.places.free_slots(&object, &block);
                    }
                    self.sync_when_due()?;
                } else {
                    self.log.keep_slots(&object, sbn);
                    self.places.free_slots(&object, &block);
                }
            }
            Write::Decoded(object, sbn) => {
                if object.slots(sbn).is_some_and(|slots| slots > 0) && !object.file.is_over() {
                    // The digest may come later. Content and slots together take twice the room.
                    self.log.decoded(&object, sbn)?;
                    object.set_decoded(sbn, true);
                    self.log.free_after_sync(object, sbn)?;
                    self.sync_when_due()?;
                }
            }
            Write::Placed(file, stamp) => {
                self.hashing.forget(file.index);
                self.log.placed(&file, stamp)?;
            }
            Write::GivenUp(file) => {
                self.hashing.forget(file.index);
                self.log.dropped(&file)?;
            }
            Write::Discard(key) => self.places.discard(&key)?,
            Write::ClearPart(part) => self.places.clear_part(&part)?,
            Write::Job(job) => self.start(job),
            Write::Synced => self.log.synced(),
            Write::Compacted(journal, from) => self.log.compacted(journal, from)?,
        }
        Ok(None)
    }

    /// Reports a block whose digest is known; hands any other job to the workers.
    fn start(&mut self, mut job: Job) {
        if let Job::Block(object, block, slots) = &mut job {
            let (index, sbn) = (block.object, block.sbn);
            if let Some(digest) = self.hashing.take((index.0, sbn), object.block(sbn).symbols) {
                let report = StoreReport::BlockDone { object: index, sbn, digest };
                return self.jobs.report(Outcome::Report(report));
            }
            *slots = object.slots(sbn).unwrap_or(block.repairs);
        }
        self.jobs.push(job);
    }

    /// Writes the gathered symbols of a block.
    fn write(
        &mut self,
        object: &ObjectPlace,
        key: gather::Key,
        gathered: &mut SymbolRun,
    ) -> Result<(), StoreError> {
        match self.write_gathered(object, key, gathered) {
            // The file was given up, or found in its place, since the symbols came.
            Err(_) if object.file.is_over() => Ok(()),
            written => written,
        }
    }

    fn write_gathered(
        &mut self,
        place: &ObjectPlace,
        key: gather::Key,
        gathered: &mut SymbolRun,
    ) -> Result<(), StoreError> {
        let sbn = key.1;
        // What comes after the block was decoded is not needed, and its slots may not be synced yet.
        if place.is_decoded(sbn) {
            return Ok(());
        }
        let block = place.block(sbn);
        gathered.sort_source(block, place.spec.partition.symbol_size(), &mut self.sorting);
        if place.slots(sbn).is_some_and(|slots| gathered.is_scattered(slots)) {
            gathered.move_source_to_slots(block, place.spec.partition.symbol_size());
        }
        for (esi, count, bytes) in gathered.source_runs(block, place.spec.partition.symbol_size()) {
            let start = place.offset(&block) + u64::from(esi) * place.symbol_bytes() as u64;
            self.hashing.write(place.file.index, key, esi, count, bytes);
            self.places.write(&place.file, start, bytes)?;
            self.wrote(place, bytes.len(), |object| Change::Source { object, sbn, esi, count })?;
        }
        let SymbolRun { slot, slot_esis, slot_symbols, .. } = gathered;
        if !slot_esis.is_empty() {
            let count = u32::try_from(slot_esis.len()).expect("no more than the slots of a block");
            let mut first = place.slots(sbn).unwrap_or(*slot);
            if first.saturating_add(count) > Places::slot_count(place, &block) {
                // The receiver had no memory for a block of an earlier session and has begun anew. If the
                // decoder lacks a repair symbol that is overwritten now, the receiver gets another symbol.
                self.move_to_places(place, sbn)?;
                first = 0;
            }
            self.places.write_slots(place, &block, first, slot_esis, slot_symbols)?;
            let slots = first + count;
            place.set_slots(sbn, slots);
            self.wrote(place, slot_symbols.len(), |object| Change::Repairs { object, sbn, slots })?;
        }
        Ok(())
    }

    /// Writes the source symbols in slots of a block to their places.
    fn move_to_places(&mut self, place: &ObjectPlace, sbn: u32) -> Result<(), StoreError> {
        let slots = place.slots(sbn).unwrap_or(0);
        if slots == 0 || place.file.is_over() {
            return Ok(());
        }
        let block = place.block(sbn);
        let numbers = self.places.read_slot_numbers(place, &block, slots)?;
        let mut symbol = vec![0; place.symbol_bytes()];
        for (slot, esi) in place.stored_symbols(&block, &numbers) {
            if esi >= block.symbols {
                continue;
            }
            self.places.read_slot_symbols(place, &block, slot, &mut symbol)?;
            let start = place.offset(&block) + u64::from(esi) * place.symbol_bytes() as u64;
            let bytes = usize::from(block.symbol_bytes(esi, place.spec.partition.symbol_size()));
            self.places.write(&place.file, start, &symbol[..bytes])?;
            self.wrote(place, bytes, |object| Change::Source { object, sbn, esi, count: 1 })?;
        }
        Ok(())
    }

    fn wrote(
        &mut self,
        object: &ObjectPlace,
        bytes: usize,
        change: impl FnOnce(u32) -> Change,
    ) -> Result<(), StoreError> {
        self.log.wrote(object, bytes, change)?;
        self.sync_when_due()
    }

    fn sync_when_due(&mut self) -> Result<(), StoreError> {
        if self.log.is_sync_due() {
            self.jobs.push(self.log.start_sync()?);
        }
        Ok(())
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("queue", &*self.shared.lock()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
