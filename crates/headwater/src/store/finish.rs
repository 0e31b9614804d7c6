//! Finishing blocks and files: decode, verify, name.

use std::fs::File;
use std::sync::Arc;

use headwater_fec::{DecodeError, Repair};
use headwater_proto::delivery::{BlockJob, FileIndex, StoreError, StoreReport, block_digest};
use md5::{Digest as _, Md5};

use super::change::Stamp;
use super::journal;
use super::place::{FilePlace, ObjectPlace, Places};

/// Longest block taken, in bytes: RaptorQ's longest (56 403 symbols) of 9000 bytes. Only a session that is not ours
/// has longer ones.
const BLOCK_BYTES_MAX: u64 = 512 << 20;
/// Bytes of a file hashed at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Work that takes time.
#[derive(Debug)]
pub(super) enum Job {
    /// Decode and hash a block.
    Block(Arc<ObjectPlace>, BlockJob),
    /// Give a file its name.
    File(Arc<FilePlace>),
    /// Make files safe on disk, and then the journal up to this length.
    Sync(Vec<Arc<FilePlace>>, Arc<File>, u64),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// What the receiver is told.
    Report(StoreReport),
    /// A file has its name.
    Placed(FileIndex, Stamp),
    /// All is safe on disk that was to be.
    Synced,
}

impl Job {
    /// Does it. An error fails the store.
    pub(super) fn run(&self, places: &Places) -> Result<Outcome, StoreError> {
        match self {
            Self::Block(object, job) => finish_block(places, object, job).map(Outcome::Report),
            Self::File(file) => finish_file(places, file),
            Self::Sync(files, journal, end) => {
                files.iter().try_for_each(|file| places.sync(file))?;
                let synced = journal::sync(journal, *end);
                synced.map_err(|error| places.folder.failed("write the journal", error))?;
                Ok(Outcome::Synced)
            }
        }
    }
}

/// Memory: the block, its repair symbols, and what the code takes to decode: RaptorQ 3 blocks in all at small loss, up to 6.3.
fn finish_block(places: &Places, object: &ObjectPlace, job: &BlockJob) -> Result<StoreReport, StoreError> {
    let block = object.block(job.sbn);
    let length = u64::from(block.symbols).saturating_mul(object.symbol_bytes() as u64);
    if length > BLOCK_BYTES_MAX {
        return Err(too_long(object, length));
    }
    let bytes = usize::try_from(block.bytes).map_err(|_| too_long(object, length))?;
    let mut content = vec![0; usize::try_from(length).map_err(|_| too_long(object, length))?];
    places.read(&object.file, object.offset(&block), &mut content[..bytes])?;
    if !job.missing.is_empty() {
        if !decode(places, object, job, block.symbols, &mut content)? {
            return Ok(StoreReport::BlockNeedsMore { object: job.object, sbn: job.sbn });
        }
        write_missing(places, object, job, &content[..bytes])?;
    }
    let digest = block_digest(&content[..bytes]);
    Ok(StoreReport::BlockDone { object: job.object, sbn: job.sbn, digest })
}

/// False when the symbols do not determine the block.
fn decode(
    places: &Places,
    object: &ObjectPlace,
    job: &BlockJob,
    k: u32,
    content: &mut [u8],
) -> Result<bool, StoreError> {
    let size = object.symbol_bytes();
    let mut symbols = vec![0; job.repairs.len() * size];
    for (repair, symbol) in job.repairs.iter().zip(symbols.chunks_exact_mut(size)) {
        places.read_repair(&object.file, repair.slot, symbol)?;
    }
    let repairs = job.repairs.iter().zip(symbols.chunks_exact(size));
    let repairs: Vec<_> = repairs.map(|(repair, data)| Repair { esi: repair.esi, data }).collect();
    match object.spec.codec.decode(k, content, &job.missing, &repairs) {
        Ok(()) => Ok(true),
        Err(DecodeError::NeedMore { .. }) => Ok(false),
        Err(DecodeError::Invalid(error)) => Err(StoreError(format!(
            "block {} of '{}' cannot be decoded: {error}; the sender uses the code in a way that is not supported",
            job.sbn, object.file.spec.path
        ))),
    }
}

/// Writes what was decoded, adjacent symbols together. `content` is the block without padding.
fn write_missing(
    places: &Places,
    object: &ObjectPlace,
    job: &BlockJob,
    content: &[u8],
) -> Result<(), StoreError> {
    let size = object.symbol_bytes();
    let start = object.offset(&object.block(job.sbn));
    for run in job.missing.chunk_by(|one, next| one + 1 == *next) {
        let from = run[0] as usize * size;
        let to = (from + run.len() * size).min(content.len());
        places.write(&object.file, start + from as u64, &content[from..to])?;
    }
    Ok(())
}

fn finish_file(places: &Places, file: &FilePlace) -> Result<Outcome, StoreError> {
    if let Some(expected) = file.spec.md5
        && md5_of(places, file)? != expected
    {
        places.discard(file)?;
        return Ok(Outcome::Report(StoreReport::FileMismatch(file.index)));
    }
    let content = places.content(file)?;
    places.close(file);
    let stamp = places.folder.publish(&file.content_name(), &content, file.spec.mode, &file.spec.path)?;
    places.folder.discard(&file.repair_name())?;
    Ok(Outcome::Placed(file.index, stamp))
}

fn md5_of(places: &Places, file: &FilePlace) -> Result<[u8; 16], StoreError> {
    let mut hasher = Md5::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < file.spec.bytes {
        let rest = file.spec.bytes - offset;
        let length = usize::try_from(rest).map_or(CHUNK_BYTES, |rest| rest.min(CHUNK_BYTES));
        places.read(file, offset, &mut chunk[..length])?;
        hasher.update(&chunk[..length]);
        offset += length as u64;
    }
    Ok(hasher.finalize().into())
}

fn too_long(object: &ObjectPlace, bytes: u64) -> StoreError {
    StoreError(format!(
        "a block of '{}' has {bytes} bytes, more than can be decoded in memory; ask the sender for smaller blocks",
        object.file.spec.path
    ))
}
