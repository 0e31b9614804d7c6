//! Digests of all blocks, made by worker threads: before the session starts for at most half a second, then
//! in parallel with sending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_proto::delivery::{Digest, SourceError};

use super::content::Content;
use crate::threads::{worker_count, yield_to_session};

/// Time between two progress reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of blocks that workers may begin ahead of the next block to be returned.
const AHEAD: usize = 64;
/// Time between two checks of a worker that is too far ahead.
const PAUSE: Duration = Duration::from_millis(1);

/// Digest of a block, or the error of hashing the block.
type HashResult = Result<Digest, SourceError>;

/// Threads that hash the blocks of a session in order, and their results.
///
/// Memory: [`AHEAD`] results.
#[derive(Debug)]
pub(super) struct HashingThreads {
    blocks: Arc<[(usize, u32)]>,
    content: Arc<Content>,
    results: Receiver<(usize, HashResult)>,
    /// Results of blocks after the next block, by index.
    early: BTreeMap<usize, HashResult>,
    /// Next block to be returned.
    next: usize,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// State shared by the threads and the consumer of the results.
#[derive(Debug, Default)]
struct Shared {
    /// Number of blocks begun.
    begun: AtomicUsize,
    /// Number of blocks returned.
    told: AtomicUsize,
    is_cancelled: AtomicBool,
}

impl HashingThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(content: &Arc<Content>) -> Result<Self, SourceError> {
        let workers = worker_count();
        let (sender, results) = channel();
        let mut hashing = Self {
            blocks: content.blocks().collect(),
            content: Arc::clone(content),
            results,
            early: BTreeMap::new(),
            next: 0,
            shared: Arc::default(),
            workers: Vec::new(),
        };
        for _ in 0..workers {
            let worker = Worker {
                blocks: Arc::clone(&hashing.blocks),
                content: Arc::clone(content),
                shared: Arc::clone(&hashing.shared),
                results: sender.clone(),
            };
            let thread = thread::Builder::new().name("headwater-hash".into()).spawn(move || worker.work());
            let cannot =
                |error| SourceError::Session(format!("cannot start a thread to hash content: {error}"));
            hashing.workers.push(thread.map_err(cannot)?);
        }
        Ok(hashing)
    }

    /// Passes results with their objects to `take`, for at most `patience`, until all blocks are hashed or
    /// `is_stopped` returns true. `progress` receives the bytes done, about ten times a second.
    pub(super) fn wait(
        &mut self,
        patience: Duration,
        is_stopped: impl Fn() -> bool,
        mut progress: impl FnMut(u64),
        mut take: impl FnMut(usize, HashResult),
    ) {
        let end = Instant::now() + patience;
        let (mut bytes, mut report_at) = (0, Instant::now() + REPORT_INTERVAL);
        while !self.is_done() && !is_stopped() {
            let now = Instant::now();
            if now >= end {
                return;
            }
            if now >= report_at {
                report_at = now + REPORT_INTERVAL;
                progress(bytes);
            }
            match self.results.recv_timeout(end.min(report_at) - now) {
                Ok((index, hashed)) => drop(self.early.insert(index, hashed)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.fail(),
            }
            while let Some((object, hashed)) = self.next_in_order(&mut bytes) {
                take(object, hashed);
            }
        }
    }

    /// Returns object and digest of the next block in order, if hashed.
    pub(super) fn poll(&mut self) -> Option<(usize, HashResult)> {
        loop {
            if let Some(next) = self.next_in_order(&mut 0) {
                return Some(next);
            }
            if self.is_done() {
                return None;
            }
            match self.results.try_recv() {
                Ok((index, hashed)) => drop(self.early.insert(index, hashed)),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => self.fail(),
            }
        }
    }

    /// Whether all blocks were returned.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.blocks.len()
    }

    fn next_in_order(&mut self, bytes: &mut u64) -> Option<(usize, HashResult)> {
        let hashed = self.early.remove(&self.next)?;
        let (object, sbn) = self.blocks[self.next];
        self.next += 1;
        self.shared.told.store(self.next, Ordering::Relaxed);
        *bytes += self.content.object(object).block(sbn).bytes;
        Some((object, hashed))
    }

    /// Records an error: all threads ended before all blocks were hashed, because a thread panicked.
    fn fail(&mut self) {
        let error = SourceError::Session("hashing the content failed unexpectedly".into());
        self.early.insert(self.next, Err(error));
    }
}

impl Drop for HashingThreads {
    fn drop(&mut self) {
        self.shared.is_cancelled.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            // A panicking worker has already printed a message.
            let _panicked = worker.join();
        }
    }
}

struct Worker {
    blocks: Arc<[(usize, u32)]>,
    content: Arc<Content>,
    shared: Arc<Shared>,
    results: Sender<(usize, HashResult)>,
}

impl Worker {
    fn work(self) {
        yield_to_session();
        let mut room = Vec::new();
        let is_cancelled = || self.shared.is_cancelled.load(Ordering::Relaxed);
        loop {
            let index = self.shared.begun.fetch_add(1, Ordering::Relaxed);
            let Some((object, sbn)) = self.blocks.get(index) else { return };
            while !is_cancelled() && index >= self.shared.told.load(Ordering::Relaxed) + AHEAD {
                thread::sleep(PAUSE);
            }
            let hashed = match self.content.hash_block(*object, *sbn, &mut room, is_cancelled) {
                Ok(None) => return,
                Ok(Some(digest)) => Ok(digest),
                Err(error) => Err(error),
            };
            if self.results.send((index, hashed)).is_err() {
                return;
            }
        }
    }
}
