//! Repair symbols on disk, for content whose encoders do not fit in memory.
//!
//! Symbols are read in runs: the next symbols of a block are read together, in any order of blocks.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_proto::Size;
use headwater_proto::delivery::SourceError;

use super::background::Background;
use super::content::Content;
use super::error::SendError;
use super::layout::Layout;
use crate::system::files::{self, Errno, FileExt};
use crate::system::read_at;

/// Maximum wait for the blocks of a job. Sending waits once, and afterwards sends symbols that are ready.
const PATIENCE: Duration = Duration::from_millis(5);
/// Maximum memory for repair symbols that are read before their turn.
const READ_AHEAD_BYTES: usize = 4 << 20;

/// Checks the free space of a folder for a store.
///
/// # Errors
/// [`SendError::Space`] if the space is too small, [`SendError::Store`] if the folder does not exist.
pub(super) fn check_space(folder: &Path, bytes: u64) -> Result<(), SendError> {
    let free = free_bytes(folder)?;
    if bytes > free {
        return Err(no_space(folder, bytes, free));
    }
    Ok(())
}

/// Returns the free space of a folder in bytes.
///
/// # Errors
/// [`SendError::Store`] if the folder does not exist.
pub(super) fn free_bytes(folder: &Path) -> Result<u64, SendError> {
    files::free_bytes_of(folder).map_err(|errno| failed(folder, "ask for the free space", errno.into()))
}

/// Creates a file without a name and allocates all bytes of a store. The file is removed when closed, even
/// after a crash.
///
/// # Errors
/// [`SendError::Space`] and [`SendError::Store`].
pub(super) fn store_file(folder: &Path, bytes: u64) -> Result<File, SendError> {
    check_space(folder, bytes)?;
    let file = tempfile::tempfile_in(folder).map_err(|error| failed(folder, "make a file", error))?;
    match files::allocate(&file, bytes) {
        Ok(()) => Ok(file),
        Err(Errno::NOSPC | Errno::DQUOT) => {
            // Closing the file first returns the allocated space.
            drop(file);
            check_space(folder, bytes)?;
            Err(no_space(folder, bytes, 0))
        }
        // Some file systems cannot allocate space ahead.
        Err(_) => {
            file.set_len(bytes).map_err(|error| failed(folder, "make room", error))?;
            Ok(file)
        }
    }
}

fn no_space(folder: &Path, needed: u64, free: u64) -> SendError {
    SendError::Space { folder: folder.to_owned(), needed: Size(needed), free: Size(free) }
}

fn failed(folder: &Path, attempt: &'static str, source: io::Error) -> SendError {
    SendError::Store { attempt, folder: folder.to_owned(), source }
}

/// Repair symbols of a session, written by threads while the source symbols are being sent.
#[derive(Debug)]
pub(super) struct RepairStore {
    file: Arc<File>,
    layout: Arc<Layout>,
    content: Arc<Content>,
    /// Index of each object's first block among all blocks.
    first: Vec<usize>,
    writing: Background<()>,
    /// By job.
    known: Vec<JobState>,
    /// Number of late jobs.
    late: usize,
    ahead: ReadAhead,
}

/// State of a job as known without a query of the job's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobState {
    Nothing,
    /// A wait for the job has timed out.
    Late,
    Written,
}

impl RepairStore {
    /// Starts to write `layout`, which must be the layout of the content, to `file`, after `pause` or once a
    /// symbol is wanted. On reading, `turns` blocks take turns.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        content: &Arc<Content>,
        layout: Layout,
        file: File,
        turns: usize,
        threads: usize,
        pause: Duration,
    ) -> Result<Self, SourceError> {
        let (file, layout) = (Arc::new(file), Arc::new(layout));
        let blocks: Arc<[(usize, u32)]> = content.blocks().collect();
        let worker = || {
            let mut writer = Writer {
                content: Arc::clone(content),
                blocks: Arc::clone(&blocks),
                layout: Arc::clone(&layout),
                file: Arc::clone(&file),
                rooms: Vec::new(),
                run: Vec::new(),
            };
            move |job| writer.write(job)
        };
        let jobs = layout.jobs();
        let writing = Background::start(jobs, threads, pause, worker)?;
        let known = vec![JobState::Nothing; jobs];
        let ahead = ReadAhead::new(layout.symbol_bytes(), turns, READ_AHEAD_BYTES);
        let (content, first) = (Arc::clone(content), content.first_blocks());
        Ok(Self { file, layout, content, first, writing, known, late: 0, ahead })
    }

    /// Returns n of a block.
    pub(super) fn encoding_symbols(&self, object: usize, sbn: u32) -> u32 {
        self.layout.esis(self.block(object, sbn)).end
    }

    /// Whether a repair symbol of a block is ready. Waits briefly for the first query of a job.
    pub(super) fn is_ready(&mut self, object: usize, sbn: u32) -> Result<bool, SourceError> {
        self.content.check_object(object)?;
        let job = self.layout.job_of(self.block(object, sbn));
        let was_late = match self.known[job] {
            JobState::Written => return Ok(true),
            JobState::Late => true,
            JobState::Nothing => false,
        };
        // While a job is late, a wait for the next one would only delay the packets of all blocks.
        let patience = if self.late > 0 { Duration::ZERO } else { PATIENCE };
        let is_written = self.writing.result_within(job, patience)?.is_some();
        self.known[job] = if is_written { JobState::Written } else { JobState::Late };
        self.late = self.late + usize::from(!is_written) - usize::from(was_late);
        // The job may have detected that the file is lost.
        self.content.check_object(object)?;
        Ok(is_written)
    }

    /// Reads a repair symbol that is ready.
    pub(super) fn symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let block = self.block(object, sbn);
        // A run is written at once: if a symbol of a run is ready, all symbols of the run are ready.
        self.ahead.symbol(block, esi, self.layout.run_end(block, esi), symbol, |room| {
            read_at(&self.file, room, self.layout.offset(block, esi))
                .map_err(|error| SourceError::Session(format!("cannot read repair symbols back: {error}")))
        })
    }

    fn block(&self, object: usize, sbn: u32) -> usize {
        self.first[object] + sbn as usize
    }
}

/// Buffers of a thread that writes a store.
///
/// Memory: a buffer for each block of a job, one encoder, and a run (a symbol of each block; in window order
/// up to 4 % of each block).
struct Writer {
    content: Arc<Content>,
    blocks: Arc<[(usize, u32)]>,
    layout: Arc<Layout>,
    file: Arc<File>,
    /// Buffer of each block: first the source symbols, then in the same place the repair symbols.
    rooms: Vec<Vec<u8>>,
    run: Vec<u8>,
}

impl Writer {
    fn write(&mut self, job: usize) -> Result<(), SourceError> {
        let layout = Arc::clone(&self.layout);
        let blocks = layout.blocks_of(job);
        self.rooms.resize_with(blocks.len().max(self.rooms.len()), Vec::new);
        for (room, block) in blocks.iter().enumerate() {
            match self.encode(*block, room) {
                // Symbols of a lost file are no longer requested; symbols of the job's other blocks are.
                Err(SourceError::File { .. }) => self.clear(*block, room),
                coded => coded?,
            }
        }
        for (run, offset) in layout.runs_of(job).into_iter().enumerate() {
            self.run.clear();
            for (room, block) in self.rooms.iter().zip(&blocks) {
                let first = layout.esis(*block).start;
                let esis = layout.esis_of_run(*block, run);
                let at = |esi: u32| (esi - first) as usize * layout.symbol_bytes();
                self.run.extend_from_slice(&room[at(esis.start)..at(esis.end)]);
            }
            self.file.write_all_at(&self.run, offset).map_err(|error| {
                SourceError::Session(format!("cannot write repair symbols to their store: {error}"))
            })?;
        }
        Ok(())
    }

    /// Fills the buffer of a block with zeros.
    fn clear(&mut self, block: usize, room: usize) {
        let room = &mut self.rooms[room];
        room.clear();
        room.resize(self.layout.esis(block).len() * self.layout.symbol_bytes(), 0);
    }

    /// Makes the repair symbols of a block.
    fn encode(&mut self, block: usize, room: usize) -> Result<(), SourceError> {
        let (object, sbn) = self.blocks[block];
        let room = &mut self.rooms[room];
        let encoder = self.content.encoder(object, sbn, room)?;
        let esis = self.layout.esis(block);
        // The number of repair symbols is at most the number of source symbols.
        room.truncate(esis.len() * self.layout.symbol_bytes());
        for (esi, symbol) in esis.zip(room.chunks_exact_mut(self.layout.symbol_bytes())) {
            encoder.symbol(esi, symbol).map_err(|error| SourceError::Session(error.to_string()))?;
        }
        Ok(())
    }
}

/// Bytes of a run: enough to make a system call cheap compared with the copied bytes, and few enough that
/// the runs of a window stay in the processor's cache until they are sent.
const RUN_BYTES: usize = 28 << 10;

/// Cache of one run of symbols for each block that takes turns.
///
/// Memory: the bytes given to [`new`](Self::new), and 32 bytes for each run.
#[derive(Debug)]
pub(super) struct ReadAhead {
    runs: Vec<Run>,
    /// All runs, in sequence.
    buffer: Vec<u8>,
    symbol_bytes: usize,
    run_symbols: u32,
}

/// Range of a block's symbols in the buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Index of the block among all blocks, counted from 1; 0 for an empty run.
    block: usize,
    esi: u32,
    symbols: u32,
}

impl ReadAhead {
    /// Creates a cache for symbols of `symbol_bytes` bytes and `turns` blocks that take turns. All runs
    /// share `bytes_max`: with many blocks, runs are shorter.
    pub(super) fn new(symbol_bytes: usize, turns: usize, bytes_max: usize) -> Self {
        let run_bytes = (bytes_max / turns.max(1)).min(RUN_BYTES);
        let run_symbols = (run_bytes / symbol_bytes.max(1)).max(1);
        let runs = (bytes_max / (run_symbols * symbol_bytes).max(1)).clamp(1, turns.max(1));
        Self {
            runs: vec![Run::default(); runs],
            buffer: vec![0; runs * run_symbols * symbol_bytes],
            symbol_bytes,
            run_symbols: u32::try_from(run_symbols).expect("at most 64 Ki"),
        }
    }

    /// Copies a symbol of the block with index `block`. On a miss, `read` fills a buffer with this symbol
    /// and the following symbols, up to `end`.
    ///
    /// # Errors
    /// Errors of `read`.
    pub(super) fn symbol(
        &mut self,
        block: usize,
        esi: u32,
        end: u32,
        symbol: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let slot = block % self.runs.len();
        let start = slot * self.run_symbols as usize * self.symbol_bytes;
        let run = &mut self.runs[slot];
        if !run.has(block, esi) {
            let symbols = self.run_symbols.min(end - esi);
            // A run that cannot be read is discarded.
            *run = Run::default();
            read(&mut self.buffer[start..start + symbols as usize * self.symbol_bytes])?;
            *run = Run { block: block + 1, esi, symbols };
        }
        let at = start + (esi - run.esi) as usize * self.symbol_bytes;
        symbol.copy_from_slice(&self.buffer[at..at + self.symbol_bytes]);
        Ok(())
    }
}

impl Run {
    fn has(&self, block: usize, esi: u32) -> bool {
        self.block == block + 1 && (self.esi..self.esi + self.symbols).contains(&esi)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use headwater_fec::{Order, Repair, Scheme};
    use headwater_proto::delivery::{PlanConfig, SessionPlan, Withdrawal};

    use super::*;
    use crate::send::budget::store_layout;
    use crate::send::files::to_send;
    use crate::send::prepare;

    const SYMBOL: u16 = 64;

    #[test]
    fn a_store_takes_its_room_at_once_and_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = store_file(folder.path(), 1 << 20).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.nlink()), (1 << 20, 0));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_room_and_no_folder_are_told_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let error = store_file(folder.path(), u64::MAX).unwrap_err();
        let SendError::Space { needed, free, .. } = &error else { panic!("{error:?}") };
        assert!(needed.0 == u64::MAX && free.0 < u64::MAX);
        assert!(error.to_string().contains("make room, choose another folder"), "{error}");
        let error = store_file(&folder.path().join("none"), 1).unwrap_err();
        assert!(matches!(error, SendError::Store { .. }), "{error:?}");
    }

    /// Three files of blocks of several sizes, in jobs of 3.
    fn session(folder: &Path) -> (SessionPlan, Arc<Content>, Vec<Vec<u8>>) {
        let contents: Vec<Vec<u8>> = [100_000, 6_400, 99_000]
            .iter()
            .map(|bytes| (0..*bytes).map(|at: u32| at.wrapping_mul(0x9E37_79B9).to_be_bytes()[0]).collect())
            .collect();
        let names: Vec<_> = (0..contents.len()).map(|index| folder.join(format!("file{index}"))).collect();
        names.iter().zip(&contents).for_each(|(name, bytes)| std::fs::write(name, bytes).unwrap());
        let files = prepare(&names).unwrap();
        let order = Order::Spread { rate: 1 };
        let config = PlanConfig { scheme: Scheme::ReedSolomon, symbol_size: SYMBOL, order };
        let plan = SessionPlan::new(to_send(files.files()), config).unwrap();
        let content = Arc::new(Content::new(files.files(), &plan));
        (plan, content, contents)
    }

    #[test]
    fn every_block_decodes_from_the_store_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (plan, content, contents) = session(folder.path());
        let layout = store_layout(&plan, 3);
        let file = store_file(folder.path(), layout.bytes()).unwrap();
        let mut store = RepairStore::start(&content, layout, file, 3, 2, Duration::ZERO).unwrap();
        for (index, object) in plan.objects().iter().enumerate() {
            for sbn in 0..object.partition.blocks() {
                while !store.is_ready(index, sbn).unwrap() {}
                let block = object.partition.block(sbn).unwrap();
                let esis = block.symbols..store.encoding_symbols(index, sbn);
                let read = |esi| {
                    let mut symbol = vec![0; SYMBOL.into()];
                    store.symbol(index, sbn, esi, &mut symbol).unwrap();
                    symbol
                };
                let symbols: Vec<_> = esis.clone().map(read).collect();
                let repairs: Vec<_> = esis.zip(&symbols).map(|(esi, data)| Repair { esi, data }).collect();
                let missing: Vec<u32> = (0..block.symbols).collect();
                let mut decoded = vec![0; block.symbols as usize * usize::from(SYMBOL)];
                object.codec.decode(block.symbols, &mut decoded, &missing, &repairs).unwrap();
                let start = usize::try_from(object.offset + block.offset).unwrap();
                let bytes = usize::try_from(block.bytes).unwrap();
                assert!(decoded[..bytes] == contents[object.file][start..start + bytes], "{index}, {sbn}");
            }
        }
    }

    #[test]
    fn a_file_that_changed_is_lost_and_the_others_are_stored() {
        let folder = tempfile::tempdir().unwrap();
        let (plan, content, _) = session(folder.path());
        std::fs::write(folder.path().join("file1"), [7; 6_400]).unwrap();
        let layout = store_layout(&plan, 3);
        let file = store_file(folder.path(), layout.bytes()).unwrap();
        let mut store = RepairStore::start(&content, layout, file, 3, 2, Duration::ZERO).unwrap();
        let error = loop {
            match store.is_ready(1, 0) {
                Ok(is_ready) => assert!(!is_ready),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, SourceError::File { file: 1, why: Withdrawal::Changed, .. }), "{error:?}");
        for file in [0, 2] {
            while !store.is_ready(file, 0).unwrap() {}
        }
    }
}

#[cfg(test)]
mod read_ahead_tests {
    use super::*;

    const T: usize = 4;

    /// Symbol `esi` of block `block`, in four bytes.
    fn expected(block: usize, esi: u32) -> [u8; T] {
        (u32::try_from(block).unwrap() * 10_000 + esi).to_be_bytes()
    }

    /// Asks for symbols in order and returns how many calls read how many of them.
    fn calls(
        ahead: &mut ReadAhead,
        end: u32,
        wanted: impl IntoIterator<Item = (usize, u32)>,
    ) -> (usize, usize) {
        let (mut calls, mut symbols) = (0, 0);
        for (block, esi) in wanted {
            let mut symbol = [7; T];
            let read = |room: &mut [u8]| {
                calls += 1;
                for (esi, symbol) in (esi..).zip(room.chunks_exact_mut(T)) {
                    assert!(esi < end);
                    symbol.copy_from_slice(&expected(block, esi));
                    symbols += 1;
                }
                Ok(())
            };
            ahead.symbol(block, esi, end, &mut symbol, read).unwrap();
            assert_eq!(symbol, expected(block, esi), "symbol {esi} of block {block}");
        }
        (calls, symbols)
    }

    #[test]
    fn blocks_that_take_turns_in_order_are_read_once_and_in_long_runs() {
        for turns in [3, 40] {
            let mut ahead = ReadAhead::new(T, turns, 40 * 64 * T);
            let run_symbols = ahead.run_symbols as usize;
            assert!(run_symbols >= 64);
            let wanted = (0..1_000).flat_map(|esi| (0..turns).map(move |block| (block, esi)));
            let (calls, symbols) = calls(&mut ahead, 1_000, wanted);
            assert_eq!(symbols, 1_000 * turns);
            assert_eq!(calls, turns * 1_000_usize.div_ceil(run_symbols));
        }
    }

    #[test]
    fn more_blocks_than_runs_push_one_another_out() {
        let mut ahead = ReadAhead::new(T, 100, 3 * T);
        assert_eq!(ahead.runs.len(), 3);
        let wanted = (0..50).flat_map(|esi| (0..7).map(move |block| (block, esi)));
        calls(&mut ahead, 50, wanted);
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_turns_and_any_symbol() {
        const BYTES_MAX: usize = 16 << 20;
        for symbol_bytes in [1, 64, 1_408, 8_880] {
            for turns in [0, 1, 32, 256, 257, 1_000, 100_000, 10_000_000] {
                let ahead = ReadAhead::new(symbol_bytes, turns, BYTES_MAX);
                assert!(ahead.buffer.len() <= BYTES_MAX && ahead.runs.len() <= turns.max(1));
            }
        }
    }

    #[test]
    fn what_could_not_be_read_is_asked_for_again() {
        let mut ahead = ReadAhead::new(T, 1, 64);
        let mut symbol = [0; T];
        assert!(ahead.symbol(0, 5, 9, &mut symbol, |_| Err(SourceError::Session("gone".into()))).is_err());
        assert_eq!(calls(&mut ahead, 9, [(0, 5), (0, 6)]), (1, 4));
    }
}
