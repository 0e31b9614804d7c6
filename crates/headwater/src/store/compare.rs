//! Comparison of an existing file with an announced file of the same name.
//!
//! The file is read block by block, a part at a time, so that blocks of other files are finished in between.
//! The first block that differs from the announced digest ends the comparison.

use std::fs::File;
use std::io;
use std::sync::Arc;

use headwater_fec::Block;
use headwater_proto::delivery::{BlockHasher, Digest, ShortDigest, StoreError, file_digest};
use tracing::warn;

use super::finish::CHUNK_BYTES;
use super::journal::Stamp;
use super::place::{FilePlace, ObjectPlace, Places};
use crate::system::read_at;

/// Bytes to read before other jobs continue, rounded up to a block.
const PART_BYTES: u64 = 64 << 20;

/// Comparison in progress. Memory: 48 bytes for each block of the file.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) file: Arc<FilePlace>,
    /// Objects of the file, in order.
    objects: Vec<Arc<ObjectPlace>>,
    digest: Digest,
    /// Known digests of blocks.
    promised: Vec<ShortDigest>,
    /// Existing file after opening, with the stamp at the time of opening.
    found: Option<(File, Stamp)>,
    /// Digests of the blocks that were read.
    read: Vec<Digest>,
    /// Next block: index of the object in the file, and number of the block.
    next: (usize, u32),
}

/// Result of comparing one part.
#[derive(Debug)]
pub(super) enum ComparisonStep {
    /// Further parts remain.
    Same,
    /// The whole file is identical; stamp of the file.
    Whole(Stamp),
    /// The file differs or cannot be read.
    Differs,
}

impl Comparison {
    pub(super) fn new(
        file: Arc<FilePlace>,
        mut objects: Vec<Arc<ObjectPlace>>,
        digest: Digest,
        promised: Vec<ShortDigest>,
    ) -> Self {
        objects.sort_by_key(|object| object.spec.offset);
        Self { file, objects, digest, promised, found: None, read: Vec::new(), next: (0, 0) }
    }

    /// Compares the next part.
    ///
    /// # Errors
    /// If the working folder cannot be used. An unreadable file counts as different, not as an error.
    pub(super) fn go_on(&mut self, places: &Places) -> Result<ComparisonStep, StoreError> {
        if self.found.is_none() {
            self.found = places.folder.find(&self.file.spec.path);
        }
        let Some((file, stamp)) = &self.found else { return Ok(ComparisonStep::Differs) };
        if stamp.bytes != self.file.spec.bytes {
            return Ok(ComparisonStep::Differs);
        }
        let mut bytes = 0;
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Some((object, block)) = self.objects.get(self.next.0).and_then(|object| {
            let block = object.spec.partition.block(self.next.1)?;
            Some((object, block))
        }) {
            let Ok(digest) = digest_of(file, object.offset(&block), &block, &mut chunk) else {
                return Ok(ComparisonStep::Differs);
            };
            let promised = self.promised.get(self.read.len());
            if promised.is_some_and(|promised| !digest.starts_with(promised)) {
                return Ok(ComparisonStep::Differs);
            }
            self.read.push(digest);
            self.next = match self.next.1 + 1 == object.spec.partition.blocks() {
                true => (self.next.0 + 1, 0),
                false => (self.next.0, self.next.1 + 1),
            };
            bytes += block.bytes;
            if bytes >= PART_BYTES {
                return Ok(ComparisonStep::Same);
            }
        }
        // A file that changes during the comparison is another file.
        let is_unchanged = places.folder.find(&self.file.spec.path).is_some_and(|(_, now)| now == *stamp);
        if !is_unchanged || file_digest(&self.read) != self.digest {
            return Ok(ComparisonStep::Differs);
        }
        if let Err(error) = places.folder.adopt(file, &self.file.spec) {
            warn!("{error}; its content is as announced");
        }
        places.give_up(&self.file);
        places.discard(&self.file.key())?;
        Ok(places.folder.stamp(&self.file.spec.path).map_or(ComparisonStep::Differs, ComparisonStep::Whole))
    }
}

fn digest_of(file: &File, offset: u64, block: &Block, chunk: &mut [u8]) -> io::Result<Digest> {
    let mut hasher = BlockHasher::default();
    let mut at = 0;
    while at < block.bytes {
        let length = usize::try_from(block.bytes - at).map_or(chunk.len(), |rest| rest.min(chunk.len()));
        read_at(file, &mut chunk[..length], offset + at)?;
        hasher.update(&chunk[..length]);
        at += length as u64;
    }
    Ok(hasher.finish())
}
