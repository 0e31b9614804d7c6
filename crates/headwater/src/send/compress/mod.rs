//! Compression of a session's files before the session: the objects of a compressed file hold the encoded
//! content.
//!
//! The length of each object is part of the plan, so that all content is encoded before the first packet, by
//! as many threads as the machine has processors. Each thread writes to a file without a name, since symbols
//! of content may be needed at any time. A file that changes during the session costs nothing: the encoded
//! content stays. A later session encodes again, to the same bytes.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use headwater_proto::Size;
use headwater_proto::delivery::{ContentCoding, Digest, Encoding};

use super::bundle::{BundleReader, MemberCache};
use super::error::SendError;
use super::files::{PreparedFile, Stamp};
use crate::coding::Encoder;
use crate::system::files::{FileExt, free_bytes_of, has_holes, open_to_read};
use crate::system::read_at;
use crate::threads::worker_count;

/// Result of the compression of a session's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionSummary {
    /// Coding.
    pub coding: ContentCoding,
    /// Number of files and bundles that travel encoded.
    pub encoded: usize,
    /// Bytes of these files and bundles.
    pub bytes: u64,
    /// Bytes of the encoded content.
    pub encoded_bytes: u64,
    /// Number of files and bundles that travel as they are, because their content does not shrink.
    pub plain: usize,
}

/// Encoded content of a file or bundle.
#[derive(Clone, Debug)]
pub(super) struct EncodedContent {
    /// File without a name, which holds other encoded content, too.
    file: Arc<File>,
    /// Offset of the encoded content in the file, in bytes.
    start: u64,
    pub(super) encoding: Encoding,
}

impl EncodedContent {
    /// Fills `buffer` with the encoded content from `offset` on.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        read_at(&self.file, buffer, self.start + offset)
    }
}

impl PartialEq for EncodedContent {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && (self.start, self.encoding) == (other.start, other.encoding)
    }
}

impl Eq for EncodedContent {}

/// Share of a file by which the content must shrink: 1 in 32, 3 %.
const SAVING_SHARE: u64 = 32;
/// Length from which a sample decides first, in bytes.
const SAMPLED_BYTES_MIN: u64 = 4 << 20;
/// Number and length of the pieces of a sample.
const SAMPLES: u64 = 8;
const SAMPLE_BYTES: usize = 128 << 10;
/// Bytes that are read and encoded at once. A part of the encoding: other pieces may give other bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Encodes the items of a session whose content shrinks, into files without names in `folder`. The length of
/// an encoded item is that of its encoded content.
///
/// # Errors
/// If the folder cannot be used, or lacks space.
pub(super) fn compress(
    items: &mut [PreparedFile],
    coding: ContentCoding,
    folder: &Path,
    symbol_size: u16,
) -> Result<CompressionSummary, SendError> {
    let members = Arc::new(Mutex::new(MemberCache::for_next_reads()));
    let compressor = Compressor { coding, folder, symbol_size, members, files: Mutex::default() };
    let expected = in_parallel(items.len(), |index| compressor.expected_bytes(index, &items[index]));
    compressor.check_space(expected.iter().flatten().sum())?;
    let encoded = in_parallel(items.len(), |index| match expected[index] {
        Some(_) => compressor.encode(index, &items[index]),
        None => Ok(None),
    });
    let mut summary =
        CompressionSummary { coding, encoded: 0, bytes: 0, encoded_bytes: 0, plain: items.len() };
    for (item, content) in items.iter_mut().zip(encoded) {
        let Some((bytes, content)) = content? else { continue };
        summary.encoded += 1;
        summary.plain -= 1;
        summary.bytes += item.bytes;
        summary.encoded_bytes += bytes;
        (item.bytes, item.is_sparse, item.encoded) = (bytes, false, Some(Arc::new(content)));
    }
    Ok(summary)
}

/// Runs `work` for each index below `count`, on as many threads as the machine has processors.
fn in_parallel<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let take = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let result = work(index);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    thread::scope(|scope| {
        (1..worker_count().min(count)).for_each(|_| drop(scope.spawn(take)));
        take();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

struct Compressor<'a> {
    coding: ContentCoding,
    folder: &'a Path,
    symbol_size: u16,
    /// Contents of members of bundles.
    members: Arc<Mutex<MemberCache>>,
    /// Files that no thread writes to at present.
    files: Mutex<Vec<EncodedFile>>,
}

/// File without a name that holds encoded content.
struct EncodedFile {
    file: Arc<File>,
    bytes: u64,
}

impl Compressor<'_> {
    /// Returns the maximum length of encoded content that is worth sending; `None` if no encoding is: the
    /// content must take fewer packets.
    fn bytes_max(&self, item: &PreparedFile) -> Option<u64> {
        let symbol = u64::from(self.symbol_size.max(1));
        let symbols = item.bytes.div_ceil(symbol);
        let by_packets = symbols.checked_sub(1)? * symbol;
        Some(by_packets.min(item.bytes - item.bytes / SAVING_SHARE)).filter(|bytes| *bytes > 0)
    }

    /// Returns the expected length of an item's encoded content; `None` if the item travels as it is: pieces
    /// of the content do not shrink, or the content cannot be read, which the session reports. Holes are not
    /// sent, and receivers need no room for holes. Short content and bundles need no sample.
    fn expected_bytes(&self, index: usize, item: &PreparedFile) -> Option<u64> {
        self.bytes_max(item)?;
        let source = ContentSource::open(index, item, &self.members).ok()?;
        match &source {
            ContentSource::Bundle(_) => Some(item.bytes),
            ContentSource::File(file) if item.is_sparse && has_holes(file, item.bytes) => None,
            ContentSource::File(_) if item.bytes < SAMPLED_BYTES_MIN => Some(item.bytes),
            ContentSource::File(_) => self.sample(item.bytes, &source).ok()?,
        }
    }

    /// Returns the expected length of encoded content by pieces of the content; `None` if the pieces do not
    /// shrink.
    fn sample(&self, bytes: u64, source: &ContentSource) -> io::Result<Option<u64>> {
        let all = SAMPLES * SAMPLE_BYTES as u64;
        let mut encoder = Encoder::new(self.coding, Count(0), all)?;
        let mut piece = vec![0; SAMPLE_BYTES];
        let step = (bytes - SAMPLE_BYTES as u64) / (SAMPLES - 1);
        for number in 0..SAMPLES {
            source.read(number * step, &mut piece)?;
            encoder.write_all(&piece)?;
        }
        let encoded = encoder.finish()?.0;
        let is_worth = encoded <= all - all / SAVING_SHARE;
        let expected = u128::from(bytes) * u128::from(encoded) / u128::from(all);
        Ok(is_worth.then(|| u64::try_from(expected).unwrap_or(bytes)))
    }

    /// Checks that the folder has room for `needed` bytes.
    ///
    /// # Errors
    /// If the folder lacks the space.
    fn check_space(&self, needed: u64) -> Result<(), SendError> {
        let free = free_bytes_of(self.folder);
        let free = free.map_err(|errno| self.failed("ask for the free space", errno.into()))?;
        if needed <= free {
            return Ok(());
        }
        let folder = self.folder.to_owned();
        Err(SendError::CompressionSpace { folder, needed: Size(needed), free: Size(free) })
    }

    /// Encodes an item. Returns the length and the encoded content; `None` if the content does not shrink, or
    /// changes meanwhile, which the session finds.
    fn encode(&self, index: usize, item: &PreparedFile) -> Result<Option<(u64, EncodedContent)>, SendError> {
        let Some(bytes_max) = self.bytes_max(item) else { return Ok(None) };
        let Ok(source) = ContentSource::open(index, item, &self.members) else { return Ok(None) };
        let mut to = self.take_file()?;
        let mut out = BoundedWriter { file: &to.file, start: to.bytes, bytes: 0, bytes_max, error: None };
        let digest = encode_all(self.coding, item.bytes, &source, &mut out);
        let BoundedWriter { start, bytes, error, .. } = out;
        if let Some(error) = error {
            return Err(self.failed("write", error));
        }
        let content = digest.ok().filter(|_| source.is_unchanged(item)).map(|digest| {
            let encoding = Encoding { coding: self.coding, bytes: item.bytes, digest: Some(digest) };
            (bytes, EncodedContent { file: Arc::clone(&to.file), start, encoding })
        });
        to.bytes += content.as_ref().map_or(0, |(bytes, _)| *bytes);
        // Content that travels as it is takes no room.
        to.file.set_len(to.bytes).map_err(|error| self.failed("write", error))?;
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(to);
        Ok(content)
    }

    /// Takes a file that no other thread writes to, made if there is none.
    fn take_file(&self) -> Result<EncodedFile, SendError> {
        if let Some(file) = self.files.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(file);
        }
        let file = tempfile::tempfile_in(self.folder).map_err(|error| self.failed("make a file", error))?;
        Ok(EncodedFile { file: Arc::new(file), bytes: 0 })
    }

    fn failed(&self, attempt: &'static str, source: io::Error) -> SendError {
        SendError::Compression { attempt, folder: self.folder.to_owned(), source }
    }
}

/// Encodes content of `bytes` bytes. Returns the digest of the content.
///
/// # Errors
/// If the content cannot be read, or the encoded content cannot be written or is too long.
fn encode_all(
    coding: ContentCoding,
    bytes: u64,
    source: &ContentSource,
    out: &mut BoundedWriter<'_>,
) -> io::Result<Digest> {
    let mut encoder = Encoder::new(coding, out, bytes)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).map_or(chunk.len(), |left| left.min(chunk.len()));
        source.read(at, &mut chunk[..length])?;
        hasher.update(&chunk[..length]);
        encoder.write_all(&chunk[..length])?;
        at += length as u64;
    }
    encoder.finish()?;
    Ok(*hasher.finalize().as_bytes())
}

/// Writer of at most some bytes to a part of a file.
struct BoundedWriter<'a> {
    file: &'a File,
    /// Offset of the first byte in the file.
    start: u64,
    bytes: u64,
    bytes_max: u64,
    /// Error of the disk.
    error: Option<io::Error>,
}

impl Write for BoundedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes + bytes.len() as u64 > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if let Err(error) = self.file.write_all_at(bytes, self.start + self.bytes) {
            let kind = error.kind();
            self.error = Some(error);
            return Err(kind.into());
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Number of written bytes.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Content of an item.
enum ContentSource {
    File(File),
    Bundle(BundleReader),
}

impl ContentSource {
    /// Opens the content.
    ///
    /// # Errors
    /// If the content cannot be read, or is no longer the prepared content.
    fn open(index: usize, item: &PreparedFile, members: &Arc<Mutex<MemberCache>>) -> io::Result<Self> {
        if let Some(bundle) = &item.bundle {
            return Ok(Self::Bundle(BundleReader::new(Arc::clone(bundle), index, members)));
        }
        let source = Self::File(open_to_read(&item.path, true)?);
        let changed = || io::Error::other("the content has changed");
        source.is_unchanged(item).then_some(source).ok_or_else(changed)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => read_at(file, bytes, offset),
            Self::Bundle(reader) => {
                reader.read(offset, bytes).map_err(|_| io::Error::other("a member has changed"))
            }
        }
    }

    /// Whether the content that was read is the prepared content. Reads of members check each member.
    fn is_unchanged(&self, item: &PreparedFile) -> bool {
        match self {
            Self::File(file) => file.metadata().is_ok_and(|metadata| Stamp::of(&metadata) == item.stamp),
            Self::Bundle(_) => true,
        }
    }
}
