//! Files of a session as blocks and symbols, read from disk.
//!
//! `FileWatcher` detects files that change while a session sends from memory, where no read detects the
//! change.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_fec::{Block, BlockCodec, Partition};
use headwater_proto::delivery::{BlockHasher, Digest, SessionPlan, SourceError, Withdrawal};

use super::bundle::{BundleReader, MemberCache, MemberFault};
use super::compress::EncodedContent;
use super::files::{PreparedFile, Stamp};
use crate::system::files::is_hole;
use crate::system::{OPEN_FILES_MAX, OpenFiles, read_at, zero_digest};
use crate::threads::yield_to_session;

/// Bytes of a file that are read and hashed at once, which fit in a processor's cache.
const CHUNK_BYTES: usize = 256 << 10;

/// Time between two checks of a file whose symbols are read one by one: the check costs as much as the read.
/// Receivers refuse the symbols of a changed file by the digests of its blocks.
const CHECK_TIME: Duration = Duration::from_millis(5);

/// Files of a reader of symbols: the time of the last check of each file, and the file read last, open.
///
/// Memory: 16 bytes for each file.
#[derive(Debug)]
pub(super) struct FileChecks {
    checked: Vec<Option<Instant>>,
    last: Option<(usize, OpenContent)>,
}

/// Locations and state of the bytes of a session's objects. Shared by all threads of the session.
///
/// A file that changed or could not be read stays lost: each later use fails with the same error.
#[derive(Debug)]
pub(super) struct Content {
    files: Vec<PreparedFile>,
    objects: Vec<Object>,
    open: OpenFiles<usize>,
    /// By file: reader of a bundle.
    bundles: Vec<Option<Arc<BundleReader>>>,
    /// Content of the single file, if the file has no name.
    spool: Option<Arc<File>>,
    /// By file: reason why the file cannot be sent.
    faults: Vec<OnceLock<SourceError>>,
    /// By block: digest of the first read.
    digests: Vec<OnceLock<Digest>>,
    /// Digests of holes, by length.
    zeros: Mutex<BTreeMap<u64, Digest>>,
}

/// Object of the plan.
#[derive(Debug)]
pub(super) struct Object {
    file: usize,
    /// Start of the object in the file, in bytes.
    offset: u64,
    /// Number of the session's blocks before the object's first block.
    first_block: usize,
    pub(super) partition: Partition,
    pub(super) codec: Arc<dyn BlockCodec>,
}

impl Content {
    /// Maps the objects of `plan` to `files`, which must be the planned files.
    pub(super) fn new(files: &[PreparedFile], plan: &SessionPlan) -> Self {
        let mut blocks = 0;
        let objects = plan.objects().iter().map(|object| {
            let first_block = blocks;
            blocks += object.partition.blocks() as usize;
            Object {
                file: object.file,
                offset: object.offset,
                first_block,
                partition: object.partition,
                codec: Arc::clone(&object.codec),
            }
        });
        let cache: Arc<Mutex<MemberCache>> = Arc::default();
        let bundles = files.iter().enumerate().map(|(index, file)| {
            let bundle = file.bundle.as_ref().filter(|_| file.encoded.is_none())?;
            Some(Arc::new(BundleReader::new(Arc::clone(bundle), index, &cache)))
        });
        Self {
            objects: objects.collect(),
            bundles: bundles.collect(),
            open: OpenFiles::new(OPEN_FILES_MAX),
            spool: None,
            faults: vec![OnceLock::new(); files.len()],
            digests: vec![OnceLock::new(); blocks],
            zeros: Mutex::default(),
            files: files.to_vec(),
        }
    }

    /// Maps the objects of `plan` to a file without a name.
    pub(super) fn spooled(spool: File, file: PreparedFile, plan: &SessionPlan) -> Self {
        Self { spool: Some(Arc::new(spool)), ..Self::new(&[file], plan) }
    }

    pub(super) fn object(&self, object: usize) -> &Object {
        &self.objects[object]
    }

    /// Returns object and block number of all blocks of the session, in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, u32)> {
        let blocks = |(index, object): (usize, &Object)| {
            let count = object.partition.blocks();
            (0..count).map(move |sbn| (index, sbn))
        };
        self.objects.iter().enumerate().flat_map(blocks)
    }

    /// Returns the index of each object's first block in [`Self::blocks`].
    pub(super) fn first_blocks(&self) -> Vec<usize> {
        self.objects.iter().map(|object| object.first_block).collect()
    }

    /// Fails if a file is lost.
    fn check_fault(&self, file: usize) -> Result<(), SourceError> {
        self.faults[file].get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Fails if the file of an object is lost.
    pub(super) fn check_object(&self, object: usize) -> Result<(), SourceError> {
        self.check_fault(self.objects[object].file)
    }

    /// Fails unless `digest` equals the digest of the first read of the block.
    pub(super) fn check_digest(&self, object: usize, sbn: u32, digest: Digest) -> Result<(), SourceError> {
        let place = &self.objects[object];
        let first = self.digests[place.first_block + sbn as usize].get_or_init(|| digest);
        if *first == digest { Ok(()) } else { Err(self.changed(place.file)) }
    }

    /// Returns the digests of all blocks of a file in order; `None` while a block is not hashed.
    pub(super) fn block_digests(&self, file: usize) -> Option<Vec<Digest>> {
        let first = self.objects.partition_point(|object| object.file < file);
        let objects = self.objects[first..].iter().take_while(|object| object.file == file);
        let blocks = objects.flat_map(|object| {
            self.digests[object.first_block..].iter().take(object.partition.blocks() as usize)
        });
        blocks.map(|digest| digest.get().copied()).collect()
    }

    /// Reads bytes of a file. Fails unless the file is still the prepared file.
    pub(super) fn read_file(&self, index: usize, offset: u64, room: &mut [u8]) -> Result<(), SourceError> {
        self.check_fault(index)?;
        let file = self.file(index)?;
        self.read(index, &file, room, offset)?;
        self.check(index, &file)
    }

    /// Returns all paths of the content: the index of the file, and the index of the member in a bundle.
    fn paths(&self) -> Vec<(usize, usize)> {
        let members =
            |bundle: &Option<Arc<BundleReader>>| bundle.as_ref().map_or(1, |bundle| bundle.members());
        let of_file = |(index, bundle)| (0..members(bundle)).map(move |member| (index, member));
        self.bundles.iter().enumerate().flat_map(of_file).collect()
    }

    /// Fails unless a file's path still leads to the prepared file; for a bundle, unless the bundle is lost.
    pub(super) fn check_file(&self, index: usize) -> Result<(), SourceError> {
        match self.bundles[index] {
            // Each read checks the members that it reads, and a thread all of them.
            Some(_) => self.check_fault(index),
            None => self.check_path(index, 0),
        }
    }

    /// Fails unless a file's path, or the path of its member with this index, still leads to what was
    /// prepared. Encoded content stays, whatever becomes of the file.
    fn check_path(&self, index: usize, member: usize) -> Result<(), SourceError> {
        self.check_fault(index)?;
        if let Some(bundle) = &self.bundles[index] {
            return bundle.check_member(member).map_err(|fault| self.member_lost(index, bundle, fault));
        }
        if self.files[index].encoded.is_some() {
            return Ok(());
        }
        let metadata = fs::metadata(&self.files[index].path);
        let metadata = metadata.map_err(|error| self.unreadable(index, &error))?;
        if Stamp::of(&metadata) == self.files[index].stamp { Ok(()) } else { Err(self.changed(index)) }
    }

    /// Whether a block is a hole of a sparse file.
    pub(super) fn is_hole(&self, object: usize, sbn: u32) -> bool {
        let place = &self.objects[object];
        let Block { offset, bytes, .. } = place.block(sbn);
        match self.file(place.file) {
            Ok(OpenContent::File(file)) if self.files[place.file].is_sparse => {
                is_hole(&file, place.offset + offset, bytes)
            }
            _ => false,
        }
    }

    /// Returns the digest of a hole, which is computed once for each length of a block.
    fn hole_digest(&self, bytes: u64) -> Digest {
        let mut zeros = self.zeros.lock().unwrap_or_else(PoisonError::into_inner);
        *zeros.entry(bytes).or_insert_with(|| zero_digest(bytes))
    }

    /// Hashes a block piece by piece in the buffer `room`. Returns `None` once `is_cancelled` returns true.
    pub(super) fn hash_block(
        &self,
        object: usize,
        sbn: u32,
        room: &mut Vec<u8>,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Option<Digest>, SourceError> {
        self.check_object(object)?;
        let place = &self.objects[object];
        let Block { offset, bytes, .. } = place.block(sbn);
        let file = self.file(place.file)?;
        let mut hasher = BlockHasher::default();
        if self.is_hole(object, sbn) {
            self.check(place.file, &file)?;
            let digest = self.hole_digest(bytes);
            self.check_digest(object, sbn, digest)?;
            return Ok(Some(digest));
        }
        let (mut at, end) = (place.offset + offset, place.offset + offset + bytes);
        while at < end {
            if is_cancelled() {
                return Ok(None);
            }
            let length = usize::try_from(end - at).map_or(CHUNK_BYTES, |rest| rest.min(CHUNK_BYTES));
            room.resize(length, 0);
            self.read(place.file, &file, room, at)?;
            hasher.update(room);
            at += length as u64;
        }
        self.check(place.file, &file)?;
        let digest = hasher.finish();
        self.check_digest(object, sbn, digest)?;
        Ok(Some(digest))
    }

    /// Reads a block without padding. Fails unless the file is still the prepared file.
    pub(super) fn read_block(&self, object: usize, sbn: u32, block: &mut Vec<u8>) -> Result<(), SourceError> {
        self.check_object(object)?;
        let place = &self.objects[object];
        let Block { offset, bytes, .. } = place.block(sbn);
        let file = self.file(place.file)?;
        block.clear();
        let length = usize::try_from(bytes).map_err(|_| too_long(bytes))?;
        block.resize(length, 0);
        self.read(place.file, &file, block, place.offset + offset)?;
        self.check(place.file, &file)
    }

    /// Reads source symbols of a block from `esi` on, as many as `room` holds. Bytes past the end of the
    /// block are zeros. Fails unless the file is still the prepared file as of the last [`CHECK_TIME`].
    pub(super) fn read_symbols(
        &self,
        object: usize,
        sbn: u32,
        esi: u32,
        room: &mut [u8],
        checks: &mut FileChecks,
    ) -> Result<(), SourceError> {
        self.check_object(object)?;
        let place = &self.objects[object];
        let block = place.block(sbn);
        let start = u64::from(esi) * u64::from(place.partition.symbol_size());
        let length = usize::try_from(block.bytes - start).map_or(room.len(), |rest| rest.min(room.len()));
        let (content, padding) = room.split_at_mut(length);
        let file = match checks.last.take() {
            Some((index, file)) if index == place.file => file,
            _ => self.file(place.file)?,
        };
        self.read(place.file, &file, content, place.offset + block.offset + start)?;
        padding.fill(0);
        let (checked, now) = (&mut checks.checked[place.file], Instant::now());
        if checked.is_none_or(|at| now >= at + CHECK_TIME) {
            *checked = Some(now);
            self.check(place.file, &file)?;
        }
        checks.last = Some((place.file, file));
        Ok(())
    }

    /// Returns the state of a reader of symbols.
    pub(super) fn checks(&self) -> FileChecks {
        FileChecks { checked: vec![None; self.files.len()], last: None }
    }

    fn file(&self, index: usize) -> Result<OpenContent, SourceError> {
        if let Some(bundle) = &self.bundles[index] {
            return Ok(OpenContent::Bundle(Arc::clone(bundle)));
        }
        if let Some(spool) = &self.spool {
            return Ok(OpenContent::File(Arc::clone(spool)));
        }
        if let Some(encoded) = &self.files[index].encoded {
            return Ok(OpenContent::Encoded(Arc::clone(encoded)));
        }
        let opened = self.open.get(index, || {
            let opened = File::open(&self.files[index].path);
            let file = opened.map_err(|error| self.unreadable(index, &error))?;
            self.check_stamp(index, &file)?;
            Ok(file)
        });
        opened.map(OpenContent::File)
    }

    fn read(
        &self,
        index: usize,
        content: &OpenContent,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), SourceError> {
        let read = match content {
            OpenContent::File(file) => read_at(file, buffer, offset),
            OpenContent::Encoded(encoded) => encoded.read(buffer, offset),
            OpenContent::Bundle(bundle) => {
                let read = bundle.read(offset, buffer);
                return read.map_err(|fault| self.member_lost(index, bundle, fault));
            }
        };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(index),
            _ => self.unreadable(index, &error),
        })
    }

    /// Fails unless the open file is still the prepared file. Members of a bundle are checked as they are
    /// read.
    fn check(&self, index: usize, content: &OpenContent) -> Result<(), SourceError> {
        match content {
            OpenContent::File(file) => self.check_stamp(index, file),
            OpenContent::Encoded(_) | OpenContent::Bundle(_) => Ok(()),
        }
    }

    fn check_stamp(&self, index: usize, file: &File) -> Result<(), SourceError> {
        let metadata = file.metadata().map_err(|error| self.unreadable(index, &error))?;
        if Stamp::of(&metadata) == self.files[index].stamp { Ok(()) } else { Err(self.changed(index)) }
    }

    fn changed(&self, index: usize) -> SourceError {
        let path = self.files[index].path.display();
        let message = format!(
            "'{path}' changed while it was being sent and is left out, as receivers could not verify it; send it again, or a copy \
             that stays as it is"
        );
        self.lost_file(index, Withdrawal::Changed, message)
    }

    fn unreadable(&self, index: usize, error: &io::Error) -> SourceError {
        let path = self.files[index].path.display();
        let message = format!("cannot read '{path}': {error}; it is left out; is it still there?");
        self.lost_file(index, Withdrawal::Unreadable, message)
    }

    fn member_lost(&self, index: usize, bundle: &BundleReader, fault: MemberFault) -> SourceError {
        let beside = |member| {
            let others = bundle.members() - 1;
            format!(
                "'{}', and with the file {others} others of its bundle ({})",
                bundle.path(member),
                self.files[index].name
            )
        };
        let (why, message) = match fault {
            MemberFault::Changed(member) => (
                Withdrawal::Changed,
                format!(
                    "{} are left out: the file changed while it was being sent; send them again",
                    beside(member)
                ),
            ),
            MemberFault::Unreadable(member, error) => (
                Withdrawal::Unreadable,
                format!("{} are left out: the file cannot be read: {error}", beside(member)),
            ),
        };
        self.lost_file(index, why, message)
    }

    fn lost_file(&self, file: usize, why: Withdrawal, message: String) -> SourceError {
        self.faults[file].get_or_init(|| SourceError::File { file, why, message }).clone()
    }
}

impl Object {
    pub(super) fn block(&self, sbn: u32) -> Block {
        self.partition.block(sbn).expect("a block of the plan")
    }
}

/// Open place of a file's bytes.
#[derive(Debug)]
enum OpenContent {
    File(Arc<File>),
    Encoded(Arc<EncodedContent>),
    Bundle(Arc<BundleReader>),
}

fn too_long(bytes: u64) -> SourceError {
    SourceError::Session(format!(
        "a block of {bytes} bytes does not fit in memory; use smaller blocks or symbols"
    ))
}

/// Minimum time between two checks of a file.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of files checked in a row.
const BATCH: usize = 32;
/// Minimum time between two batches. For thousands of files, a check of all files therefore takes longer
/// than [`INTERVAL`].
const PAUSE: Duration = Duration::from_millis(20);

/// Thread that checks each file about once a second.
///
/// Memory: one error for each lost file.
#[derive(Debug)]
pub(super) struct FileWatcher {
    lost: Receiver<SourceError>,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FileWatcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(content: &Arc<Content>) -> Result<Self, SourceError> {
        let (told, lost) = channel();
        let (stop, stopped) = channel();
        let content = Arc::clone(content);
        let thread = thread::Builder::new().name("headwater-watch".into());
        let thread = thread.spawn(move || watch(&content, &told, &stopped));
        let cannot = |error| SourceError::Session(format!("cannot start a thread to watch files: {error}"));
        Ok(Self { lost, stop: Some(stop), thread: Some(thread.map_err(cannot)?) })
    }

    /// Returns the next lost file.
    pub(super) fn poll(&self) -> Option<SourceError> {
        self.lost.try_recv().ok()
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panicking thread has already printed a message.
            let _panicked = thread.join();
        }
    }
}

/// Checks all files repeatedly until the sender of `stopped` is dropped. Each lost file is reported once.
fn watch(content: &Content, told: &Sender<SourceError>, stopped: &Receiver<()>) {
    yield_to_session();
    let mut files = content.paths();
    while !files.is_empty() {
        let batches = u32::try_from(files.len().div_ceil(BATCH)).unwrap_or(u32::MAX);
        let pause = (INTERVAL / batches).max(PAUSE);
        let mut lost = Vec::new();
        for batch in files.chunks(BATCH) {
            if !matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                return;
            }
            for (file, member) in batch {
                if lost.contains(file) {
                    continue;
                }
                if let Err(error) = content.check_path(*file, *member) {
                    lost.push(*file);
                    if told.send(error).is_err() {
                        return;
                    }
                }
            }
        }
        files.retain(|(file, _)| !lost.contains(file));
    }
}

#[cfg(test)]
mod tests {
    use headwater_fec::{Order, Scheme};
    use headwater_proto::delivery::{PlanConfig, SessionPlan, Withdrawal};

    use super::*;
    use crate::send::files::to_send;
    use crate::send::prepare;

    #[test]
    fn a_file_that_grows_and_one_that_goes_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["grows", "goes", "stays"].map(|name| folder.path().join(name));
        names.iter().for_each(|name| fs::write(name, "content").unwrap());
        let files = prepare(&names).unwrap();
        let order = Order::Spread { rate: 1 };
        let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: 64, order };
        let plan = SessionPlan::new(to_send(files.files()), config).unwrap();
        let content = Arc::new(Content::new(files.files(), &plan));
        let watching = FileWatcher::start(&content).unwrap();
        fs::write(&names[0], "more content").unwrap();
        fs::remove_file(&names[1]).unwrap();
        let patience = Duration::from_secs(30);
        let mut lost: Vec<_> = (0..2).map(|_| watching.lost.recv_timeout(patience).unwrap()).collect();
        lost.sort_by_key(|error| match error {
            SourceError::File { file, .. } => *file,
            SourceError::Session(_) => usize::MAX,
        });
        // By name: "goes" comes first.
        assert!(
            matches!(lost[0], SourceError::File { file: 0, why: Withdrawal::Unreadable, .. }),
            "{lost:?}"
        );
        assert!(matches!(lost[1], SourceError::File { file: 1, why: Withdrawal::Changed, .. }), "{lost:?}");
        thread::sleep(2 * INTERVAL);
        assert_eq!(watching.poll(), None);
    }
}
