//! How many threads do work beside a session's own.

use std::thread::available_parallelism;

/// Most worker threads of a session: each decoding one takes 3 to 6.3 blocks of memory.
const WORKERS_MAX: usize = 4;

/// Worker threads of a session: one per processor, at least 1 and at most 4.
pub(crate) fn worker_count() -> usize {
    available_parallelism().map_or(1, std::num::NonZero::get).min(WORKERS_MAX)
}
