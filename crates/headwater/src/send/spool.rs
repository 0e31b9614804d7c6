//! Input of unknown length, spooled on disk in parts until the parts are sent.
//!
//! A thread reads the input into files without a name, hashes each part, and hands the part over once it is
//! full, old, or the last. One part waits for the session; the thread then stops reading, and so does the
//! program that writes the input.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_proto::Size;
use headwater_proto::delivery::{
    Digest, FileToSend, PlanConfig, RelativePath, SessionPlan, Source, SourceError, StreamPart, file_digest,
};

use super::budget::{Budget, MEMORY_LIMIT_DEFAULT, PartCoding, RepairPlace};
use super::content::Content;
use super::error::SendError;
use super::files::PreparedFile;
use super::options::SendOptions;
use super::repair_store::{free_bytes, store_file};
use super::source::FileSource;
use crate::system::files::wait_to_read;
use crate::threads::{StopHandle, worker_count, yield_to_session};

/// Default bytes that are kept for late receivers: a compressed image of a small system.
const KEEP_DEFAULT: u64 = 4 << 30;
/// Least bytes that are kept.
const KEEP_MIN: u64 = 1_000_000;
/// Parts in `keep`: the beginning goes in steps of an eighth, or of [`PART_BYTES`].
const PARTS_OF_KEEP: u64 = 8;
/// Length of the first parts in bytes: 1.3 s at 100 Mbit/s.
const PART_BYTES: u64 = 16 << 20;
/// Number of parts after which their length doubles, so that a session of at most 16 384 parts has room for
/// terabytes.
const PARTS_OF_A_LENGTH: u64 = 2_048;
/// Maximum age of the first byte of a part that is not full; or this share of the input's time, so that hours
/// of a slow input make some thousand parts.
const AGE_MAX: Duration = Duration::from_secs(1);
const AGE_SHARE: u32 = 128;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Longest wait for the input between looks at the end of the session.
const LOOK: Duration = Duration::from_millis(100);

/// Input of a sending session: a pipe, or any other file that is read to its end.
#[derive(Debug)]
pub struct SendInput {
    /// The input.
    pub input: File,
    /// Name of the content at the receivers.
    pub name: RelativePath,
    /// Bytes that are kept in [`SendOptions::temporary_folder`] for late receivers, at least 1 MB; repair
    /// symbols that do not fit in memory take as much again. `None`: 4 GiB, at most a quarter of the
    /// folder's free space.
    pub keep: Option<u64>,
}

/// Part of the input, ready to be sent.
#[derive(Debug)]
pub(super) struct SpooledPart {
    pub(super) file: FileToSend,
    pub(super) part: StreamPart,
    pub(super) digests: Vec<Vec<Digest>>,
    source: FileSource,
    memory: MemoryLease,
}

/// Rules for parts.
#[derive(Clone, Debug)]
pub(super) struct SpoolConfig {
    pub(super) plan: PlanConfig,
    pub(super) memory_limit: u64,
    pub(super) keep: u64,
    folder: PathBuf,
    name: RelativePath,
    is_layered: bool,
    coding: PartCoding,
}

impl SpoolConfig {
    /// Checks the room for the input.
    ///
    /// # Errors
    /// If the bytes to keep are out of range, or the folder has no room for them.
    pub(super) fn new(input: &SendInput, plan: PlanConfig, options: &SendOptions) -> Result<Self, SendError> {
        let folder = options.temporary_folder.clone().unwrap_or_else(std::env::temp_dir);
        let free = free_bytes(&folder)?;
        let keep = input.keep.unwrap_or_else(|| KEEP_DEFAULT.min(free / 4).max(KEEP_MIN));
        if keep < KEEP_MIN {
            let range = "at least 1 MB";
            return Err(SendError::Option { option: "the number of bytes to keep", value: keep, range });
        }
        if keep > free {
            return Err(SendError::SpoolSpace { folder, needed: Size(keep), free: Size(free) });
        }
        let control = options.congestion_control;
        Ok(Self {
            plan,
            memory_limit: options.memory_limit.unwrap_or(MEMORY_LIMIT_DEFAULT),
            keep,
            name: input.name.clone(),
            is_layered: control.is_multi_rate() && !control.is_on_request(),
            coding: PartCoding::of(options, folder.clone()),
            folder,
        })
    }

    fn part_bytes(&self, number: u64) -> u64 {
        let doublings = u32::try_from(number / PARTS_OF_A_LENGTH).unwrap_or(u32::MAX).min(16);
        (PART_BYTES << doublings).min(self.keep / PARTS_OF_KEEP)
    }
}

/// Thread that reads the input. Disk: the part that is being filled, and one that waits.
#[derive(Debug)]
pub(super) struct Spool {
    parts: Receiver<Result<SpooledPart, SourceError>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Spool {
    /// Starts to read.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(input: File, config: SpoolConfig, stop: StopHandle) -> Result<Self, SourceError> {
        let (told, parts) = sync_channel(0);
        let ended = Arc::new(AtomicBool::new(false));
        let reader = PartReader {
            input,
            config,
            ended: Arc::clone(&ended),
            stop,
            began: Instant::now(),
            number: 0,
            offset: 0,
            digests: Vec::new(),
            memory: Arc::default(),
        };
        let thread = thread::Builder::new().name("headwater-input".into());
        let thread = thread.spawn(move || reader.run(&told)).map_err(|error| {
            SourceError::Session(format!("cannot start a thread to read the input: {error}"))
        })?;
        Ok(Self { parts, ended, thread: Some(thread) })
    }

    /// Returns the next part, if one waits.
    pub(super) fn poll(&self) -> Option<Result<SpooledPart, SourceError>> {
        match self.parts.try_recv() {
            Ok(part) => Some(part),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(panicked())),
        }
    }

    /// Waits for the next part; `None` if `is_stopped` returns true first.
    pub(super) fn wait(&self, is_stopped: impl Fn() -> bool) -> Option<Result<SpooledPart, SourceError>> {
        while !is_stopped() {
            match self.parts.recv_timeout(LOOK) {
                Ok(part) => return Some(part),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Some(Err(panicked())),
            }
        }
        None
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Ends the thread's wait for the session.
        drop(core::mem::replace(&mut self.parts, sync_channel(0).1));
        if let Some(thread) = self.thread.take() {
            // A panicking thread has already printed a message.
            let _panicked = thread.join();
        }
    }
}

struct PartReader {
    input: File,
    config: SpoolConfig,
    ended: Arc<AtomicBool>,
    stop: StopHandle,
    began: Instant,
    number: u64,
    offset: u64,
    /// Digests of the parts read.
    digests: Vec<Digest>,
    /// Memory of the encoders of all parts.
    memory: Arc<AtomicU64>,
}

impl PartReader {
    fn run(mut self, told: &SyncSender<Result<SpooledPart, SourceError>>) {
        yield_to_session();
        loop {
            let (part, is_last) = match self.next() {
                Ok(Some((part, is_last))) => (Ok(part), is_last),
                Ok(None) => return,
                Err(error) => (Err(error), true),
            };
            self.stop.wake();
            if told.send(part).is_err() || is_last {
                return;
            }
        }
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Reads the next part. Returns the part and whether the stream ends there; `None` at the end of the
    /// session.
    fn next(&mut self) -> Result<Option<(SpooledPart, bool)>, SourceError> {
        let Some((spool, bytes)) = self.fill()? else { return Ok(None) };
        let end = (bytes == 0).then(|| file_digest(&self.digests));
        let name = match end {
            Some(_) => format!("{}.end", self.config.name),
            None => format!("{}.part-{:05}", self.config.name, self.number),
        };
        let path = RelativePath::new(&name).map_err(|error| SourceError::Session(error.to_string()))?;
        let part = StreamPart { stream: self.config.name.clone(), offset: self.offset, end };
        let prepared = self.prepare(spool, FileToSend { path, bytes, mode: None, modified: None }, part)?;
        (self.number, self.offset) = (self.number + 1, self.offset + bytes);
        Ok(prepared.map(|part| (part, end.is_some())))
    }

    /// Reads into a new file until the part is full or old, or the input ends. Returns the file and its
    /// length, 0 at the end of the input.
    fn fill(&self) -> Result<Option<(File, u64)>, SourceError> {
        let full = self.config.part_bytes(self.number);
        let spool = tempfile::tempfile_in(&self.config.folder)
            .map_err(|error| cannot_spool(&self.config.folder, &error))?;
        let (mut input, mut bytes, mut old_at) = (&self.input, 0, None::<Instant>);
        let mut room = vec![0; READ_BYTES];
        while bytes < full {
            if self.is_ended() {
                return Ok(None);
            }
            let now = Instant::now();
            if old_at.is_some_and(|at| at <= now) {
                break;
            }
            let patience = old_at.map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
            if !wait_to_read(&self.input, patience) {
                continue;
            }
            let length = usize::try_from(full - bytes).map_or(READ_BYTES, |rest| rest.min(READ_BYTES));
            match input.read(&mut room[..length]) {
                Ok(0) => break,
                Ok(read) => {
                    use std::io::Write;
                    (&spool)
                        .write_all(&room[..read])
                        .map_err(|error| cannot_spool(&self.config.folder, &error))?;
                    bytes += read as u64;
                    let age = AGE_MAX.max(self.began.elapsed() / AGE_SHARE);
                    old_at.get_or_insert_with(|| now + age);
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => {
                    return Err(SourceError::Session(format!(
                        "cannot read standard input after {} bytes: {error}; receivers have an incomplete stream",
                        self.offset + bytes
                    )));
                }
            }
        }
        Ok(Some((spool, bytes)))
    }

    /// Hashes a part and starts to encode the part. `None` at the end of the session.
    fn prepare(
        &mut self,
        spool: File,
        file: FileToSend,
        part: StreamPart,
    ) -> Result<Option<SpooledPart>, SourceError> {
        let failed = |error: SendError| SourceError::Session(error.to_string());
        let SpoolConfig { plan: config, memory_limit, .. } = self.config;
        let mut plan = SessionPlan::new(Vec::new(), config).map_err(|error| failed(error.into()))?;
        plan.push_part(file.clone(), part.clone(), config, memory_limit)
            .map_err(|error| failed(error.into()))?;
        let prepared = PreparedFile::spooled(&spool, &file)
            .map_err(|error| cannot_spool(&self.config.folder, &error))?;
        let content = Arc::new(Content::spooled(spool, prepared, &plan));
        let (mut digests, mut room) = (vec![Vec::new(); plan.objects().len()], Vec::new());
        for (object, sbn) in content.blocks() {
            match content.hash_block(object, sbn, &mut room, || self.is_ended())? {
                Some(digest) => digests[object].push(digest),
                None => return Ok(None),
            }
        }
        self.digests.push(file_digest(digests.iter().flatten()));
        let used = self.memory.load(Ordering::Relaxed);
        let budget = Budget::of_part(&plan, &self.config.coding, worker_count(), used).map_err(failed)?;
        let (store, in_memory) = match &budget.place {
            RepairPlace::Disk { bytes, folder } => (Some(store_file(folder, *bytes).map_err(failed)?), 0),
            RepairPlace::Memory { bytes } => (None, *bytes),
            RepairPlace::Nowhere => (None, 0),
        };
        let source = FileSource::new(content, &plan, &budget, store, self.config.is_layered)?;
        let memory = MemoryLease::new(&self.memory, in_memory);
        Ok(Some(SpooledPart { file, part, digests, source, memory }))
    }
}

fn panicked() -> SourceError {
    SourceError::Session("reading standard input failed unexpectedly".into())
}

fn cannot_spool(folder: &Path, error: &io::Error) -> SourceError {
    SourceError::Session(format!(
        "cannot write standard input to '{}': {error}; make room, name another folder with --temp-dir, or keep less with --keep",
        folder.display()
    ))
}

/// Memory of a part's encoders, returned on drop.
#[derive(Debug)]
struct MemoryLease(Arc<AtomicU64>, u64);

impl MemoryLease {
    fn new(used: &Arc<AtomicU64>, bytes: u64) -> Self {
        used.fetch_add(bytes, Ordering::Relaxed);
        Self(Arc::clone(used), bytes)
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// Source of the parts that are sent.
#[derive(Debug, Default)]
pub(super) struct PartsSource {
    /// Each part with the number of its first object.
    parts: VecDeque<(usize, FileSource, MemoryLease)>,
    /// Number of objects.
    objects: usize,
}

impl PartsSource {
    /// Adds a part, whose objects follow all others. Returns its file and digests for the plan.
    pub(super) fn push(&mut self, part: SpooledPart) -> (FileToSend, StreamPart, Vec<Vec<Digest>>) {
        let SpooledPart { file, part, digests, source, memory } = part;
        self.parts.push_back((self.objects, source, memory));
        self.objects += digests.len();
        (file, part, digests)
    }

    /// Removes the oldest part and its content.
    pub(super) fn release(&mut self) {
        self.parts.pop_front();
    }

    fn part(&mut self, object: usize) -> Result<(usize, &mut FileSource), SourceError> {
        let after = self.parts.partition_point(|(first, ..)| *first <= object);
        let part = after.checked_sub(1).and_then(|part| self.parts.get_mut(part));
        let gone = || SourceError::Session("a part of the input is needed after its release".into());
        part.map(|(first, source, _)| (object - *first, source)).ok_or_else(gone)
    }
}

/// A part that cannot be read back ends the session.
fn of_session(error: SourceError) -> SourceError {
    match error {
        SourceError::File { message, .. } | SourceError::Session(message) => SourceError::Session(message),
    }
}

impl Source for PartsSource {
    fn read_symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let (object, source) = self.part(object)?;
        source.read_symbol(object, sbn, esi, symbol).map_err(of_session)
    }

    fn encoding_symbols(&self, object: usize, sbn: u32) -> Option<u32> {
        let after = self.parts.partition_point(|(first, ..)| *first <= object);
        let (first, source, _) = self.parts.get(after.checked_sub(1)?)?;
        source.encoding_symbols(object - first, sbn)
    }

    fn is_ready(&mut self, object: usize, sbn: u32, esi: u32) -> Result<bool, SourceError> {
        let (object, source) = self.part(object)?;
        source.is_ready(object, sbn, esi).map_err(of_session)
    }
}
