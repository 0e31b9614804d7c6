//! The digests of all blocks, on worker threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use headwater_proto::delivery::{Digest, SourceError, block_digest};

use super::content::Content;
use crate::workers::worker_count;

/// Time between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Results that may wait to be taken, per worker.
const RESULTS_PER_WORKER: usize = 16;

/// The digests of each object's blocks.
pub(super) type Digests = Vec<Vec<Digest>>;

/// Hashes all blocks; `None` when `is_stopped` says so. `progress` gets the bytes done, about ten times a second.
///
/// # Errors
/// When a file cannot be read or changes.
pub(super) fn hash(
    content: &Content,
    is_stopped: impl Fn() -> bool,
    mut progress: impl FnMut(u64),
) -> Result<Option<Digests>, SourceError> {
    let blocks: Vec<_> = content.blocks().collect();
    // Objects without blocks have their empty list too.
    let mut digests: Digests = vec![Vec::new(); content.objects()];
    for (object, _) in &blocks {
        digests[*object].push([0; 32]);
    }
    let next = AtomicUsize::new(0);
    let cancelled = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers = worker_count();
        let (results, done) = sync_channel(RESULTS_PER_WORKER * workers);
        for _ in 0..workers {
            let (blocks, next, cancelled, results) = (&blocks, &next, &cancelled, results.clone());
            scope.spawn(move || hash_blocks(content, blocks, next, cancelled, &results));
        }
        drop(results);
        let mut bytes = 0;
        let mut reported = std::time::Instant::now();
        loop {
            match done.recv_timeout(REPORT_INTERVAL) {
                Ok((index, Ok(digest))) => {
                    let (object, sbn) = blocks[index];
                    digests[object][sbn as usize] = digest;
                    bytes += content.object(object).block(sbn).bytes;
                }
                Ok((_, Err(error))) => {
                    cancelled.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if is_stopped() {
                cancelled.store(true, Ordering::Relaxed);
                return Ok(());
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = std::time::Instant::now();
                progress(bytes);
            }
        }
    })?;
    Ok((!cancelled.load(Ordering::Relaxed)).then_some(digests))
}

type Hashed = (usize, Result<Digest, SourceError>);

fn hash_blocks(
    content: &Content,
    blocks: &[(usize, u32)],
    next: &AtomicUsize,
    cancelled: &AtomicBool,
    results: &SyncSender<Hashed>,
) {
    let mut block = Vec::new();
    while !cancelled.load(Ordering::Relaxed) {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some((object, sbn)) = blocks.get(index) else { return };
        let digest = content.read_block(*object, *sbn, &mut block).map(|()| block_digest(&block));
        // Nobody listens once it was cancelled.
        if results.send((index, digest)).is_err() {
            return;
        }
    }
}
