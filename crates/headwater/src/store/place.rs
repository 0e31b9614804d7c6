//! Where symbols and blocks are on disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use headwater_fec::Block;
use headwater_proto::delivery::{FileIndex, FileSpec, ObjectIndex, ObjectSpec, StoreError};

use super::folder::Folder;
use crate::open_files::{OPEN_FILES_MAX, OpenFiles, read_at};

/// The folder and its open files. Shared by all threads of a store.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) folder: Folder,
    open: OpenFiles<Key>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Content(usize),
    /// Repair symbols of one size.
    Repair(u16),
}

/// A file under way.
#[derive(Debug)]
pub(super) struct FilePlace {
    pub(super) index: FileIndex,
    pub(super) spec: FileSpec,
}

/// An object under way.
#[derive(Debug)]
pub(super) struct ObjectPlace {
    pub(super) index: ObjectIndex,
    pub(super) spec: ObjectSpec,
    pub(super) file: Arc<FilePlace>,
}

impl FilePlace {
    /// Its name in the working folder.
    pub(super) fn work_name(&self) -> String {
        format!("file-{}", self.index.0)
    }
}

impl ObjectPlace {
    pub(super) fn block(&self, sbn: u32) -> Block {
        self.spec.partition.block(sbn).expect("the receiver names blocks of the object only")
    }

    pub(super) fn symbol_bytes(&self) -> usize {
        self.spec.partition.symbol_size().into()
    }

    /// Where a block begins in its file.
    pub(super) fn offset(&self, block: &Block) -> u64 {
        self.spec.offset + block.offset
    }
}

impl Places {
    pub(super) fn new(folder: Folder) -> Self {
        Self { folder, open: OpenFiles::new(OPEN_FILES_MAX) }
    }

    /// The working file of a file's content: made when first asked for, at its full length but sparse.
    pub(super) fn content(&self, place: &FilePlace) -> Result<Arc<File>, StoreError> {
        self.open.get(Key::Content(place.index.0), || {
            let file = self.folder.open_work(&place.work_name(), place.spec.mode)?;
            let attempt = || format!("make room for '{}'", place.spec.path);
            file.set_len(place.spec.bytes).map_err(|error| self.folder.failed(&attempt(), error))?;
            Ok(file)
        })
    }

    /// Closes the working file of a file's content.
    pub(super) fn close(&self, place: &FilePlace) {
        self.open.forget(Key::Content(place.index.0));
    }

    /// Writes the content of a file at an offset.
    pub(super) fn write(&self, place: &FilePlace, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.content(place)?.write_all_at(bytes, offset);
        written.map_err(|error| self.folder.failed(&format!("write '{}'", place.spec.path), error))
    }

    /// Reads the content of a file at an offset.
    pub(super) fn read(&self, place: &FilePlace, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let read = read_at(&*self.content(place)?, bytes, offset);
        read.map_err(|error| self.folder.failed(&format!("read '{}' back", place.spec.path), error))
    }

    /// Keeps a repair symbol.
    pub(super) fn write_repair(&self, slot: u32, symbol: &[u8], size: u16) -> Result<(), StoreError> {
        let written = self.repairs(size)?.write_all_at(symbol, slot_offset(slot, size));
        written.map_err(|error| self.folder.failed("keep a repair symbol", error))
    }

    /// Reads a repair symbol back.
    pub(super) fn read_repair(&self, slot: u32, symbol: &mut [u8], size: u16) -> Result<(), StoreError> {
        let read = read_at(&*self.repairs(size)?, symbol, slot_offset(slot, size));
        read.map_err(|error| self.folder.failed("read a repair symbol back", error))
    }

    fn repairs(&self, size: u16) -> Result<Arc<File>, StoreError> {
        self.open.get(Key::Repair(size), || self.folder.open_work(&format!("repair-{size}"), None))
    }
}

fn slot_offset(slot: u32, size: u16) -> u64 {
    u64::from(slot) * u64::from(size)
}
