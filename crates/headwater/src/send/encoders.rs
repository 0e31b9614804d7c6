//! Blocks encoded in the background, in the order in which the carousel needs them.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use headwater_fec::{BlockEncoder, Scheme};
use headwater_proto::delivery::{SessionPlan, SourceError, block_digest};

use super::content::Content;
use super::hashing::Digests;
use crate::workers::worker_count;

/// An encoder of every block of a session, made by worker threads from the start on.
///
/// Memory: see [`encoders_bytes`], and two blocks per thread while they work.
pub(super) struct Encoders {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    content: Arc<Content>,
    digests: Arc<Digests>,
    blocks: Vec<(usize, u32)>,
    /// Index in `blocks` of each object's first one.
    first: Vec<usize>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    encoders: Vec<Slot>,
    /// All blocks before it are begun.
    next: usize,
    /// The block that the carousel waits for.
    wanted: Option<usize>,
    failed: Option<SourceError>,
    ended: bool,
}

#[derive(Clone)]
enum Slot {
    Waiting,
    Working,
    Ready(Arc<dyn BlockEncoder>),
}

/// Bytes that the encoders of a whole session will hold; 0 where there is nothing to encode.
///
/// RaptorQ keeps the intermediate symbols (1.02 blocks) and a copy of the source symbols with some overhead each.
pub(super) fn encoders_bytes(plan: &SessionPlan, scheme: Scheme) -> u64 {
    let per_symbol = |size: u64| match scheme {
        Scheme::NoCode => 0,
        Scheme::RaptorQ => 2 * size + size / 20 + 64,
        Scheme::ReedSolomon | Scheme::LdpcStaircase | Scheme::LdpcTriangle => size,
    };
    let object = |partition: headwater_fec::Partition| {
        partition.symbols().saturating_mul(per_symbol(u64::from(partition.symbol_size())))
    };
    plan.objects().iter().fold(0, |sum, planned| object(planned.partition).saturating_add(sum))
}

impl Encoders {
    /// Begins to encode. `digests` are those of the content when it was announced.
    pub(super) fn start(content: Arc<Content>, digests: Arc<Digests>) -> Result<Self, SourceError> {
        let blocks: Vec<_> = content.blocks().collect();
        let mut first = Vec::new();
        for (index, (object, _)) in blocks.iter().enumerate() {
            // Objects without a block are never asked for.
            first.resize((object + 1).max(first.len()), index);
        }
        let state = State {
            encoders: vec![Slot::Waiting; blocks.len()],
            next: 0,
            wanted: None,
            failed: None,
            ended: false,
        };
        let shared =
            Shared { content, digests, blocks, first, state: Mutex::new(state), changed: Condvar::new() };
        let mut encoders = Self { shared: Arc::new(shared), workers: Vec::new() };
        for _ in 0..worker_count() {
            let shared = Arc::clone(&encoders.shared);
            let worker = thread::Builder::new().name("headwater-encode".into()).spawn(move || shared.work());
            let cannot = |error| SourceError(format!("cannot start a thread to encode blocks: {error}"));
            encoders.workers.push(worker.map_err(cannot)?);
        }
        Ok(encoders)
    }

    /// Writes a repair symbol; waits for its block when that is not encoded yet.
    pub(super) fn symbol(
        &self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let encoder = self.shared.encoder(self.shared.first[object] + sbn as usize)?;
        encoder.symbol(esi, symbol).map_err(|error| SourceError(error.to_string()))
    }
}

impl Drop for Encoders {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so already.
            let _panicked = worker.join();
        }
    }
}

impl Shared {
    /// A panic of a worker leaves the state as it was before its block.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn encoder(&self, block: usize) -> Result<Arc<dyn BlockEncoder>, SourceError> {
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            match &state.encoders[block] {
                Slot::Ready(encoder) => return Ok(Arc::clone(encoder)),
                Slot::Waiting => state.wanted = Some(block),
                Slot::Working => {}
            }
            state = self.wait(state);
        }
    }

    fn work(&self) {
        let guard = FailOnPanic(self);
        while let Some(block) = self.begin() {
            match self.encode(block) {
                Ok(encoder) => self.lock().encoders[block] = Slot::Ready(encoder),
                Err(error) => {
                    self.lock().failed.get_or_insert(error);
                }
            }
            self.changed.notify_all();
        }
        drop(guard);
    }

    /// The next block to encode, the one that is waited for first; `None` at the end.
    fn begin(&self) -> Option<usize> {
        let mut state = self.lock();
        if state.ended || state.failed.is_some() {
            return None;
        }
        let is_waiting = |state: &State, block: usize| matches!(state.encoders[block], Slot::Waiting);
        let wanted = state.wanted.take().filter(|wanted| is_waiting(&state, *wanted));
        let block = match wanted {
            Some(wanted) => wanted,
            None => (state.next..state.encoders.len()).find(|block| is_waiting(&state, *block))?,
        };
        if wanted.is_none() {
            state.next = block + 1;
        }
        state.encoders[block] = Slot::Working;
        Some(block)
    }

    fn encode(&self, block: usize) -> Result<Arc<dyn BlockEncoder>, SourceError> {
        let (object, sbn) = self.blocks[block];
        let mut bytes = Vec::new();
        self.content.read_block(object, sbn, &mut bytes)?;
        if block_digest(&bytes) != self.digests[object][sbn as usize] {
            return Err(self.content.changed(object));
        }
        let place = self.content.object(object);
        let k = place.block(sbn).symbols;
        bytes.resize(k as usize * usize::from(place.partition.symbol_size()), 0);
        let encoder = place.codec.encoder(k, &bytes).map_err(|error| SourceError(error.to_string()))?;
        Ok(encoder.into())
    }
}

/// Nobody may wait for ever for a block whose worker is gone.
struct FailOnPanic<'a>(&'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().failed.get_or_insert(SourceError("encoding a block failed unexpectedly".into()));
            self.0.changed.notify_all();
        }
    }
}

impl fmt::Debug for Encoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoders").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}
