//! Where symbols and blocks are on disk.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use headwater_fec::Block;
use headwater_proto::delivery::{FileIndex, FileSpec, ObjectIndex, ObjectSpec, RelativePath, StoreError};

use super::change::Key;
use super::folder::Folder;
use crate::open_files::{OPEN_FILES_MAX, OpenFiles, read_at};

/// The folder and its open files. Shared by all threads of a store.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) folder: Folder,
    open: OpenFiles<Opened>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Opened {
    Content(usize),
    /// Its repair symbols.
    Repair(usize),
}

/// A file under way.
#[derive(Debug)]
pub(super) struct FilePlace {
    pub(super) index: FileIndex,
    pub(super) spec: FileSpec,
    /// Its number in the journal, if it may be resumed.
    pub(super) number: Option<u32>,
}

/// An object under way.
#[derive(Debug)]
pub(super) struct ObjectPlace {
    pub(super) index: ObjectIndex,
    pub(super) spec: ObjectSpec,
    pub(super) file: Arc<FilePlace>,
    /// Its number in the journal, if it may be resumed.
    pub(super) number: Option<u32>,
}

/// What names a file in the working folder.
pub(super) fn key_of(path: &RelativePath) -> Key {
    *blake3::hash(path.as_str().as_bytes()).as_bytes().first_chunk().expect("a digest has 32 bytes")
}

/// The working file of a file's content.
pub(super) fn content_name(key: &Key) -> String {
    format!("{:032x}.content", u128::from_be_bytes(*key))
}

/// The working file of a file's repair symbols.
pub(super) fn repair_name(key: &Key) -> String {
    format!("{:032x}.repair", u128::from_be_bytes(*key))
}

impl FilePlace {
    /// The name of its content in the working folder.
    pub(super) fn content_name(&self) -> String {
        content_name(&key_of(&self.spec.path))
    }

    /// The name of its repair symbols in the working folder.
    pub(super) fn repair_name(&self) -> String {
        repair_name(&key_of(&self.spec.path))
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
        self.open.get(Opened::Content(place.index.0), || {
            let file = self.folder.open_work(&place.content_name(), place.spec.mode)?;
            let attempt = || format!("make room for '{}'", place.spec.path);
            file.set_len(place.spec.bytes).map_err(|error| self.folder.failed(&attempt(), error))?;
            Ok(file)
        })
    }

    /// Bytes on disk of a file that an earlier session left.
    pub(super) fn held_bytes(&self, spec: &FileSpec) -> u64 {
        let found = self.folder.find_work(&content_name(&key_of(&spec.path)));
        let blocks = found.and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.blocks());
        blocks.saturating_mul(512).min(spec.bytes)
    }

    /// Closes the working files of a file.
    pub(super) fn close(&self, place: &FilePlace) {
        self.open.forget(Opened::Content(place.index.0));
        self.open.forget(Opened::Repair(place.index.0));
    }

    /// Closes and removes the working files of a file.
    pub(super) fn discard(&self, place: &FilePlace) -> Result<(), StoreError> {
        self.close(place);
        self.folder.discard(&place.content_name())?;
        self.folder.discard(&place.repair_name())
    }

    /// Makes what was written of a file safe on disk, as far as it is still under way.
    pub(super) fn sync(&self, place: &FilePlace) -> Result<(), StoreError> {
        for name in [place.content_name(), place.repair_name()] {
            if let Some(file) = self.folder.find_work(&name) {
                let failed = |error| self.folder.failed(&format!("write '{}'", place.spec.path), error);
                file.sync_data().map_err(failed)?;
            }
        }
        Ok(())
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
    pub(super) fn write_repair(&self, place: &FilePlace, slot: u32, symbol: &[u8]) -> Result<(), StoreError> {
        let written = self.repairs(place)?.write_all_at(symbol, slot_offset(slot, symbol));
        written.map_err(|error| self.folder.failed("keep a repair symbol", error))
    }

    /// Reads a repair symbol back.
    pub(super) fn read_repair(
        &self,
        place: &FilePlace,
        slot: u32,
        symbol: &mut [u8],
    ) -> Result<(), StoreError> {
        let read = read_at(&*self.repairs(place)?, symbol, slot_offset(slot, symbol));
        read.map_err(|error| self.folder.failed("read a repair symbol back", error))
    }

    fn repairs(&self, place: &FilePlace) -> Result<Arc<File>, StoreError> {
        self.open.get(Opened::Repair(place.index.0), || self.folder.open_work(&place.repair_name(), None))
    }
}

/// All symbols of a file are as long as this one.
fn slot_offset(slot: u32, symbol: &[u8]) -> u64 {
    u64::from(slot) * symbol.len() as u64
}
