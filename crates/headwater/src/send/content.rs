//! The files of a session as blocks and symbols, read from disk.

use std::fs::File;
use std::io;
use std::sync::Arc;

use headwater_fec::{Block, BlockCodec, Partition};
use headwater_proto::delivery::{SessionPlan, SourceError};

use super::files::{PreparedFile, Stamp};
use crate::open_files::{OPEN_FILES_MAX, OpenFiles, read_at};

/// Where the bytes of a session's objects are. Shared by all threads of the session.
#[derive(Debug)]
pub(super) struct Content {
    files: Vec<PreparedFile>,
    objects: Vec<Object>,
    open: OpenFiles<usize>,
}

/// An object of the plan.
#[derive(Debug)]
pub(super) struct Object {
    file: usize,
    /// Where it begins in the file, in bytes.
    offset: u64,
    pub(super) partition: Partition,
    pub(super) codec: Arc<dyn BlockCodec>,
}

impl Content {
    /// The planned objects of these files, which are those that were planned.
    pub(super) fn new(files: &[PreparedFile], plan: &SessionPlan) -> Self {
        let objects = plan.objects().iter().map(|object| Object {
            file: object.file,
            offset: object.offset,
            partition: object.partition,
            codec: Arc::clone(&object.codec),
        });
        Self { files: files.to_vec(), objects: objects.collect(), open: OpenFiles::new(OPEN_FILES_MAX) }
    }

    pub(super) fn object(&self, object: usize) -> &Object {
        &self.objects[object]
    }

    /// Number of objects.
    pub(super) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// All blocks of the session in order: object and block number.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, u32)> {
        let blocks = |(index, object): (usize, &Object)| {
            let count = object.partition.blocks();
            (0..count).map(move |sbn| (index, sbn))
        };
        self.objects.iter().enumerate().flat_map(blocks)
    }

    /// How many blocks of [`Self::blocks`] come before those of each object.
    pub(super) fn first_blocks(&self) -> Vec<usize> {
        let count = |before: &mut usize, object: &Object| {
            let first = *before;
            *before += object.partition.blocks() as usize;
            Some(first)
        };
        self.objects.iter().scan(0, count).collect()
    }

    /// Reads a block's own bytes, without padding, and makes sure that the file is still what was prepared.
    pub(super) fn read_block(&self, object: usize, sbn: u32, block: &mut Vec<u8>) -> Result<(), SourceError> {
        let place = &self.objects[object];
        let Block { offset, bytes, .. } = place.block(sbn);
        let file = self.file(place.file)?;
        block.clear();
        let length = usize::try_from(bytes).map_err(|_| too_long(bytes))?;
        block.resize(length, 0);
        self.read(place.file, &file, block, place.offset + offset)?;
        self.check(place.file, &file)
    }

    /// Reads source symbols of a block from `esi` on, as many as `room` holds, and makes sure that the file is still what
    /// was prepared. Past the end of the object they are zeros.
    pub(super) fn read_symbols(
        &self,
        object: usize,
        sbn: u32,
        esi: u32,
        room: &mut [u8],
    ) -> Result<(), SourceError> {
        let place = &self.objects[object];
        let block = place.block(sbn);
        let start = u64::from(esi) * u64::from(place.partition.symbol_size());
        let length = usize::try_from(block.bytes - start).map_or(room.len(), |rest| rest.min(room.len()));
        let (content, padding) = room.split_at_mut(length);
        let file = self.file(place.file)?;
        self.read(place.file, &file, content, place.offset + block.offset + start)?;
        padding.fill(0);
        self.check(place.file, &file)
    }

    /// What to say of a file whose bytes are not those that were announced.
    pub(super) fn changed(&self, object: usize) -> SourceError {
        changed(&self.files[self.objects[object].file])
    }

    fn file(&self, index: usize) -> Result<Arc<File>, SourceError> {
        let prepared = &self.files[index];
        self.open.get(index, || {
            let file = File::open(&prepared.path).map_err(|error| cannot_read(prepared, &error))?;
            check(prepared, &file)?;
            Ok(file)
        })
    }

    fn read(&self, index: usize, file: &File, buffer: &mut [u8], offset: u64) -> Result<(), SourceError> {
        read_at(file, buffer, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => changed(&self.files[index]),
            _ => cannot_read(&self.files[index], &error),
        })
    }

    fn check(&self, index: usize, file: &File) -> Result<(), SourceError> {
        check(&self.files[index], file)
    }
}

impl Object {
    pub(super) fn block(&self, sbn: u32) -> Block {
        self.partition.block(sbn).expect("a block of the plan")
    }
}

fn check(prepared: &PreparedFile, file: &File) -> Result<(), SourceError> {
    let metadata = file.metadata().map_err(|error| cannot_read(prepared, &error))?;
    if Stamp::of(&metadata) == prepared.stamp { Ok(()) } else { Err(changed(prepared)) }
}

fn changed(prepared: &PreparedFile) -> SourceError {
    SourceError(format!(
        "'{}' changed while it was being sent, so receivers could not verify it; send it again, or a copy that stays \
         as it is",
        prepared.path.display()
    ))
}

fn cannot_read(prepared: &PreparedFile, error: &io::Error) -> SourceError {
    SourceError(format!("cannot read '{}': {error}; is it still there?", prepared.path.display()))
}

fn too_long(bytes: u64) -> SourceError {
    SourceError(format!("a block of {bytes} bytes does not fit in memory; use smaller blocks or symbols"))
}
