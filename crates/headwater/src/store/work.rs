//! Worker threads that decode, verify and finish files during reception.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use headwater_fec::kept_bytes;
use headwater_proto::delivery::{DECODING_BYTES, StoreError, StoreReport};

use super::finish::{Job, Outcome};
use super::place::Places;
use crate::net::Waker;
use crate::threads::worker_count;

/// Jobs, and the threads that run the jobs.
///
/// The queue holds the few blocks that the receiver's machine passes at a time, and complete files. Queueing
/// never blocks, because symbols that arrive meanwhile would be lost. Memory: [`DECODING_BYTES`], or the
/// memory of a longer block, which the receiver has reserved.
#[derive(Debug)]
pub(super) struct Workers {
    jobs: JobQueue,
    reports: Receiver<Outcome>,
    threads: Vec<JoinHandle<()>>,
}

/// Queue to the threads, and reports to the store.
#[derive(Clone)]
pub(super) struct JobQueue(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
    places: Arc<Places>,
    reports: Sender<Outcome>,
    waker: Waker,
    /// Jobs, and reports that the store has not read.
    pending: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Bytes of memory of the running jobs.
    bytes: u64,
    ended: bool,
}

impl Queue {
    /// Removes the next job, if memory permits beside the running jobs and the `kept` bytes of shared data.
    fn take(&mut self, kept: u64) -> Option<(Job, u64)> {
        let bytes = self.jobs.front()?.bytes();
        if self.bytes > 0 && self.bytes.saturating_add(bytes).saturating_add(kept) > DECODING_BYTES {
            return None;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        Some((self.jobs.pop_front()?, bytes))
    }
}

impl Workers {
    /// Starts the threads, which use `waker` after each report.
    pub(super) fn start(places: Arc<Places>, waker: Waker) -> Result<Self, StoreError> {
        let (sender, reports) = channel();
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            news: Condvar::new(),
            places,
            reports: sender,
            waker,
            pending: AtomicUsize::new(0),
        });
        let mut workers = Self { jobs: JobQueue(shared), reports, threads: Vec::new() };
        for _ in 0..worker_count() {
            let shared = Arc::clone(&workers.jobs.0);
            let thread = thread::Builder::new().name("headwater-store".into()).spawn(move || shared.work());
            let cannot = |error| StoreError(format!("cannot start a thread to decode blocks: {error}"));
            workers.threads.push(thread.map_err(cannot)?);
        }
        Ok(workers)
    }

    /// Returns the queue of the threads.
    pub(super) fn jobs(&self) -> &JobQueue {
        &self.jobs
    }

    /// Returns the next report, if any.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        let outcome = self.reports.try_recv().ok()?;
        self.jobs.0.pending.fetch_sub(1, Ordering::AcqRel);
        Some(outcome)
    }

    /// Returns the number of jobs, and of reports that [`Workers::poll`] has not returned.
    pub(super) fn pending(&self) -> usize {
        self.jobs.0.pending.load(Ordering::Acquire)
    }
}

impl JobQueue {
    /// Queues a job, which ends with one report.
    pub(super) fn push(&self, job: Job) {
        self.0.pending.fetch_add(1, Ordering::AcqRel);
        self.0.lock().jobs.push_back(job);
        self.0.news.notify_one();
    }

    /// Adds a report that needs no job.
    pub(super) fn report(&self, outcome: Outcome) {
        self.0.pending.fetch_add(1, Ordering::AcqRel);
        self.0.report(outcome);
    }
}

impl Workers {
    /// Whether all jobs that take memory are done, reported or not.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.jobs.0.lock();
        queue.jobs.is_empty() && queue.bytes == 0
    }

    /// Ends the threads; jobs that none of them has begun are not done.
    pub(super) fn stop(&mut self) {
        {
            let mut queue = self.jobs.0.lock();
            queue.ended = true;
            queue.jobs.clear();
        }
        self.jobs.0.news.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _panicked = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Nothing under the lock can panic half-way.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job and what it takes, once there is one that may begin.
    fn next(&self) -> Option<(Job, u64)> {
        let mut queue = self.lock();
        loop {
            if queue.ended {
                return None;
            }
            if let Some(job) = queue.take(kept_bytes()) {
                return Some(job);
            }
            queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        while let Some((job, bytes)) = self.next() {
            let guard = FailOnPanic(self);
            let outcome = job.run(&self.places).unwrap_or_else(failed);
            drop(guard);
            self.lock().bytes -= bytes;
            self.news.notify_one();
            self.report(outcome);
        }
    }

    fn report(&self, outcome: Outcome) {
        // Nobody listens once the store is dropped.
        let _nobody = self.reports.send(outcome);
        self.waker.wake();
    }
}

fn failed(error: StoreError) -> Outcome {
    Outcome::Report(StoreReport::Failed(error))
}

/// A job that panics fails the store, instead of leaving its block for ever unfinished.
struct FailOnPanic<'a>(&'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.report(failed(StoreError("decoding a block failed unexpectedly".into())));
        }
    }
}

impl fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.0.pending.load(Ordering::Relaxed);
        f.debug_struct("JobQueue").field("pending", &pending).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use headwater_fec::{Parameters, Partition, codec};
    use headwater_proto::delivery::{BlockJob, FileIndex, FileSpec, ObjectIndex, ObjectSpec, RelativePath};

    use super::super::place::{FilePlace, ObjectPlace};
    use super::*;

    /// A block of k symbols of which so many are missing.
    fn job(k: u32, missing: u32) -> Job {
        let bytes = u64::from(k) * 1_408;
        let spec = FileSpec::new(RelativePath::new("file").unwrap(), bytes);
        let file = FilePlace::new(FileIndex(0), spec, None);
        let spec = ObjectSpec {
            file: file.index,
            offset: 0,
            partition: Partition::with_blocks(bytes, 1_408, 1).unwrap(),
            codec: codec(Parameters::raptorq(1_408)).unwrap(),
            identity: None,
        };
        let object = ObjectPlace::new(spec, Arc::new(file), None);
        let job =
            BlockJob { object: ObjectIndex(0), sbn: 0, missing: (0..missing).collect(), repairs: missing };
        Job::Block(Arc::new(object), job, missing)
    }

    /// Takes all that may be at work at a time.
    fn taken(queue: &mut Queue, kept: u64) -> usize {
        let mut count = 0;
        while queue.take(kept).is_some() {
            count += 1;
        }
        assert!(count <= 1 || queue.bytes + kept <= DECODING_BYTES);
        count
    }

    #[test]
    fn as_many_blocks_are_decoded_at_a_time_as_memory_allows() {
        // With the equations of two lengths of 5008.
        let kept = 2 << 20;
        for (k, missing, expected) in
            [(5_008, 5_008, 6), (5_008, 50, 6), (10_017, 10_017, 3), (20_152, 20_152, 1)]
        {
            let mut queue = Queue { jobs: (0..8).map(|_| job(k, missing)).collect(), ..Queue::default() };
            assert_eq!(taken(&mut queue, kept), expected, "{k}");
        }
    }

    #[test]
    fn a_block_beyond_the_bound_is_decoded_alone_and_in_its_turn() {
        let jobs = [job(5_008, 1), job(56_403, 56_403), job(5_008, 1), job(5_008, 1)];
        let mut queue = Queue { jobs: jobs.into(), ..Queue::default() };
        let (_, first) = queue.take(0).unwrap();
        assert!(queue.take(0).is_none(), "it waits, and nothing overtakes it");
        queue.bytes -= first;
        let (_, long) = queue.take(0).unwrap();
        assert!(long > DECODING_BYTES && queue.take(0).is_none());
        queue.bytes -= long;
        assert_eq!(taken(&mut queue, 0), 2);
    }
}
