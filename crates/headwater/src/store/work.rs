//! Worker threads that decode, verify and finish, while reception goes on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use headwater_proto::delivery::{StoreError, StoreReport};

use super::finish::{Job, Outcome};
use super::place::Places;
use crate::net::Waker;
use crate::workers::worker_count;

/// Memory of the jobs at work, in bytes: two blocks of 5008 symbols of which all were lost, one of 10 017, or any one.
const JOBS_BYTES_MAX: u64 = 88 << 20;

/// Jobs and the threads that do them.
///
/// The queue holds a few blocks, as many as the receiver's machine hands over at a time, and the files that are whole. It
/// never blocks, since symbols that arrive meanwhile would be lost. Memory: [`JOBS_BYTES_MAX`], or one block's.
pub(super) struct Workers {
    shared: Arc<Shared>,
    reports: Receiver<Outcome>,
    threads: Vec<JoinHandle<()>>,
    pending: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
    places: Arc<Places>,
    waker: Waker,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// What the jobs at work take.
    bytes: u64,
    ended: bool,
}

impl Queue {
    /// The next job, if there is memory for it.
    fn take(&mut self) -> Option<(Job, u64)> {
        let bytes = self.jobs.front()?.bytes();
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > JOBS_BYTES_MAX {
            return None;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        Some((self.jobs.pop_front()?, bytes))
    }
}

impl Workers {
    /// Starts the threads; `waker` is used after each report.
    pub(super) fn start(places: Arc<Places>, waker: Waker) -> Result<Self, StoreError> {
        let shared = Shared { queue: Mutex::default(), news: Condvar::new(), places, waker };
        let (sender, reports) = channel();
        let mut workers = Self { shared: Arc::new(shared), reports, threads: Vec::new(), pending: 0 };
        for _ in 0..worker_count() {
            let (shared, sender) = (Arc::clone(&workers.shared), sender.clone());
            let thread =
                thread::Builder::new().name("headwater-store".into()).spawn(move || shared.work(&sender));
            let cannot = |error| StoreError(format!("cannot start a thread to decode blocks: {error}"));
            workers.threads.push(thread.map_err(cannot)?);
        }
        Ok(workers)
    }

    /// Queues a job; it ends in one report.
    pub(super) fn push(&mut self, job: Job) {
        self.pending += 1;
        self.shared.lock().jobs.push_back(job);
        self.shared.news.notify_one();
    }

    /// The next report, if one is there.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        match self.reports.try_recv() {
            Ok(report) => {
                self.pending = self.pending.saturating_sub(1);
                Some(report)
            }
            Err(TryRecvError::Empty) => None,
            // Every thread panicked: say it once.
            Err(TryRecvError::Disconnected) if self.pending > 0 => {
                self.pending = 0;
                Some(failed(StoreError("decoding a block failed unexpectedly".into())))
            }
            Err(TryRecvError::Disconnected) => None,
        }
    }

    /// Jobs that have not been reported.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }
}

impl Workers {
    /// Ends the threads; jobs that none of them has begun are not done.
    pub(super) fn stop(&mut self) {
        {
            let mut queue = self.shared.lock();
            queue.ended = true;
            queue.jobs.clear();
        }
        self.shared.news.notify_all();
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
            if let Some(job) = queue.take() {
                return Some(job);
            }
            queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, reports: &Sender<Outcome>) {
        while let Some((job, bytes)) = self.next() {
            let guard = FailOnPanic { reports, waker: &self.waker };
            let report = job.run(&self.places).unwrap_or_else(failed);
            drop(guard);
            self.lock().bytes -= bytes;
            self.news.notify_one();
            // Nobody listens once the store is dropped.
            if reports.send(report).is_err() {
                return;
            }
            self.waker.wake();
        }
    }
}

fn failed(error: StoreError) -> Outcome {
    Outcome::Report(StoreReport::Failed(error))
}

/// A job that panics fails the store, instead of leaving its block for ever unfinished.
struct FailOnPanic<'a> {
    reports: &'a Sender<Outcome>,
    waker: &'a Waker,
}

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = StoreError("decoding a block failed unexpectedly".into());
            // Nobody listens once the store is dropped.
            let _nobody = self.reports.send(failed(error));
            self.waker.wake();
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("threads", &self.threads.len())
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}
