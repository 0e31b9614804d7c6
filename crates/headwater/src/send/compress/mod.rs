//! Compression of a session's files before the session: the objects of a compressed file hold the encoded
//! content.
//!
//! The length of each object is part of the plan, so that all content is encoded before the first packet, by
//! as many threads as the machine has processors. Encoded content is kept in a folder ([`EncodedCache`]),
//! since symbols of content may be needed at any time. A file that changes during the session costs nothing:
//! the encoded content stays.

mod cache;
#[cfg(test)]
mod tests;

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use headwater_proto::delivery::{ContentCoding, Digest, Encoding};

use self::cache::{CacheEntry, EncodedCache, SessionFolder};
use super::bundle::{BundleReader, MemberCache};
use super::error::SendError;
use super::files::{PreparedFile, Stamp};
use crate::coding::Encoder;
use crate::system::files::{MetadataExt, OpenOptionsExt, open_to_read, own_user};
use crate::system::read_at;
use crate::threads::worker_count;

/// Compression of a session's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// Coding of the content. Receivers of other programs know gzip.
    pub coding: ContentCoding,
    /// Folder for encoded content, which belongs to this user and which sessions share; made if missing.
    /// Default: a folder of this user in the folder for temporary files.
    pub folder: Option<PathBuf>,
}

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
    /// File that begins with the encoded content.
    pub(super) path: PathBuf,
    pub(super) encoding: Encoding,
    /// Folder of the file, removed after the last use.
    _folder: Arc<SessionFolder>,
}

impl PartialEq for EncodedContent {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, self.encoding) == (&other.path, other.encoding)
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
/// Time since the last change for which another change may leave a file's time as it is.
const RECENT: Duration = Duration::from_secs(2);

/// Encodes the items of a session whose content shrinks. The length of an encoded item is that of its encoded
/// content.
///
/// # Errors
/// If the folder of encoded content cannot be used, or lacks space.
pub(super) fn compress(
    items: &mut [PreparedFile],
    options: &CompressionOptions,
    temporary: &Path,
    symbol_size: u16,
) -> Result<CompressionSummary, SendError> {
    let folder = options.folder.clone();
    let folder = folder.unwrap_or_else(|| temporary.join(format!("headwater-encoded-{}", own_user())));
    let cache = EncodedCache::open(&folder, options.coding)?;
    let members = Arc::new(Mutex::new(MemberCache::for_next_reads()));
    let compressor = Compressor { cache, coding: options.coding, symbol_size, members };
    let candidates: Vec<usize> =
        (0..items.len()).filter(|index| compressor.bytes_max(&items[*index]).is_some()).collect();
    let found =
        in_parallel(candidates.len(), |at| compressor.look_up(candidates[at], &items[candidates[at]]));
    let needed = found.iter().map(|found| if let Found::Wanted { bytes } = found { *bytes } else { 0 }).sum();
    compressor.cache.make_room(needed)?;
    let encoded = in_parallel(candidates.len(), |at| match &found[at] {
        Found::Wanted { .. } => compressor.encode(candidates[at], &items[candidates[at]]),
        Found::Known(content) => Ok(content.clone()),
        Found::Unreadable => Ok(None),
    });
    let mut summary = CompressionSummary {
        coding: options.coding,
        encoded: 0,
        bytes: 0,
        encoded_bytes: 0,
        plain: items.len(),
    };
    for (index, content) in candidates.into_iter().zip(encoded) {
        let Some((bytes, content)) = content? else { continue };
        let item = &mut items[index];
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
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, result));
        }
    };
    thread::scope(|scope| {
        (1..worker_count().min(count)).for_each(|_| drop(scope.spawn(take)));
        take();
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Encoded content and its length, or `None` for content that does not shrink.
type Compressed = Option<(u64, EncodedContent)>;

/// Result of the search for encoded content.
enum Found {
    /// Encoded before.
    Known(Compressed),
    /// Content to encode, which takes about so many bytes.
    Wanted { bytes: u64 },
    /// The session reports the reason.
    Unreadable,
}

struct Compressor {
    cache: EncodedCache,
    coding: ContentCoding,
    symbol_size: u16,
    /// Contents of members of bundles.
    members: Arc<Mutex<MemberCache>>,
}

impl Compressor {
    /// Returns the maximum length of encoded content that is worth sending; `None` if no encoding is: the
    /// content must take fewer packets.
    fn bytes_max(&self, item: &PreparedFile) -> Option<u64> {
        let symbol = u64::from(self.symbol_size.max(1));
        let symbols = item.bytes.div_ceil(symbol);
        let by_packets = symbols.checked_sub(1)? * symbol;
        Some(by_packets.min(item.bytes - item.bytes / SAVING_SHARE)).filter(|bytes| *bytes > 0)
    }

    fn look_up(&self, index: usize, item: &PreparedFile) -> Found {
        let Ok((source, key)) = ContentSource::open(index, item, &self.members) else {
            return Found::Unreadable;
        };
        let key = key.map(|key| self.cache.key(&key));
        match key.and_then(|key| self.cache.find(&key, item.bytes)) {
            Some(CacheEntry::Plain) => return Found::Known(None),
            Some(CacheEntry::Encoded { path, bytes, digest }) => {
                return Found::Known(Some((bytes, self.content(path, item, digest))));
            }
            None => {}
        }
        match self.sample(item, &source) {
            Ok(Some(bytes)) => Found::Wanted { bytes },
            Ok(None) => {
                key.iter().for_each(|key| self.cache.keep_plain(key, item.bytes));
                Found::Known(None)
            }
            Err(_) => Found::Unreadable,
        }
    }

    fn content(&self, path: PathBuf, item: &PreparedFile, digest: Digest) -> EncodedContent {
        let encoding = Encoding { coding: self.coding, bytes: item.bytes, digest: Some(digest) };
        EncodedContent { path, encoding, _folder: Arc::clone(self.cache.session()) }
    }

    /// Returns the expected length of the encoded content; `None` if pieces of the content do not shrink.
    /// Short content and bundles need no sample.
    fn sample(&self, item: &PreparedFile, source: &ContentSource) -> io::Result<Option<u64>> {
        if item.bytes < SAMPLED_BYTES_MIN || item.bundle.is_some() {
            return Ok(Some(item.bytes));
        }
        let all = SAMPLES * SAMPLE_BYTES as u64;
        let mut encoder = Encoder::new(self.coding, Count(0), all)?;
        let mut piece = vec![0; SAMPLE_BYTES];
        let step = (item.bytes - SAMPLE_BYTES as u64) / (SAMPLES - 1);
        for number in 0..SAMPLES {
            source.read(number * step, &mut piece)?;
            encoder.write_all(&piece)?;
        }
        let encoded = encoder.finish()?.0;
        let is_worth = encoded <= all - all / SAVING_SHARE;
        let expected = u128::from(item.bytes) * u128::from(encoded) / u128::from(all);
        Ok(is_worth.then(|| u64::try_from(expected).unwrap_or(item.bytes)))
    }

    /// Encodes an item. Content that changes meanwhile is not encoded: the session finds the change.
    fn encode(&self, index: usize, item: &PreparedFile) -> Result<Compressed, SendError> {
        let Some(bytes_max) = self.bytes_max(item) else { return Ok(None) };
        let Ok((source, key)) = ContentSource::open(index, item, &self.members) else { return Ok(None) };
        let key = key.map(|key| self.cache.key(&key));
        let path = self.cache.session().part(index);
        let to = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let to = to.map_err(|error| self.cache.failed("make a file", error))?;
        let mut out = BoundedFile { file: to, bytes: 0, bytes_max, error: None };
        let digest = match encode_all(self.coding, item.bytes, &source, &mut out) {
            Ok(digest) => digest,
            Err(error) => {
                // The file is in the folder of this session alone.
                let _removed_with_the_folder = std::fs::remove_file(&path);
                return match (out.error, error) {
                    (Some(error), _) => Err(self.cache.failed("write", error)),
                    (None, EncodeError::TooLong) => {
                        key.iter().for_each(|key| self.cache.keep_plain(key, item.bytes));
                        Ok(None)
                    }
                    (None, EncodeError::Unreadable) => Ok(None),
                };
            }
        };
        if !source.is_unchanged(item) {
            let _removed_with_the_folder = std::fs::remove_file(&path);
            return Ok(None);
        }
        let kept = self.cache.keep(&out.file, &path, key.as_ref(), (out.bytes, item.bytes, digest))?;
        Ok(Some((out.bytes, self.content(kept, item, digest))))
    }
}

/// Reason why content is not encoded.
enum EncodeError {
    /// The encoded content is too long to be worth sending, or could not be written.
    TooLong,
    /// The content could not be read.
    Unreadable,
}

fn encode_all(
    coding: ContentCoding,
    bytes: u64,
    source: &ContentSource,
    out: &mut BoundedFile,
) -> Result<Digest, EncodeError> {
    let too_long = |_: io::Error| EncodeError::TooLong;
    let mut encoder = Encoder::new(coding, out, bytes).map_err(too_long)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).map_or(chunk.len(), |left| left.min(chunk.len()));
        source.read(at, &mut chunk[..length]).map_err(|_| EncodeError::Unreadable)?;
        hasher.update(&chunk[..length]);
        encoder.write_all(&chunk[..length]).map_err(too_long)?;
        at += length as u64;
    }
    encoder.finish().map_err(too_long)?;
    Ok(*hasher.finalize().as_bytes())
}

/// File of at most some bytes.
struct BoundedFile {
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// Error of the disk.
    error: Option<io::Error>,
}

impl Write for BoundedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes + bytes.len() as u64 > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if let Err(error) = self.file.write_all(bytes) {
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
    /// Opens the content. Returns the identity of the content, too, unless a change may have left all times
    /// as they were.
    ///
    /// # Errors
    /// If the content cannot be read, or is no longer the prepared content.
    fn open(
        index: usize,
        item: &PreparedFile,
        members: &Arc<Mutex<MemberCache>>,
    ) -> io::Result<(Self, Option<Vec<u8>>)> {
        let changed = || io::Error::other("the content has changed");
        let Some(bundle) = &item.bundle else {
            let file = open_to_read(&item.path, true)?;
            let metadata = file.metadata()?;
            if Stamp::of(&metadata) != item.stamp {
                return Err(changed());
            }
            let key = is_settled(&metadata).then(|| identity(&metadata));
            return Ok((Self::File(file), key));
        };
        let source = Self::Bundle(BundleReader::new(Arc::clone(bundle), index, members));
        let mut key = Vec::new();
        for file in &bundle.files {
            let Ok(metadata) = std::fs::metadata(&file.path) else { return Ok((source, None)) };
            if Stamp::of(&metadata) != file.stamp || !is_settled(&metadata) {
                return Ok((source, None));
            }
            let name = file.name.as_str().as_bytes();
            key.extend((name.len() as u64).to_le_bytes());
            key.extend(name);
            key.extend(file.mode.to_le_bytes());
            key.extend(identity(&metadata));
        }
        Ok((source, Some(key)))
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

/// Whether the last change is so old that another change would show in the time.
fn is_settled(metadata: &Metadata) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = u64::try_from(metadata.ctime()).unwrap_or_default();
    Duration::from_secs(changed) + RECENT < now
}

/// Returns the identity and the state of a file. The time of the last change of the inode cannot be set,
/// unlike the time of the last modification.
fn identity(metadata: &Metadata) -> Vec<u8> {
    let numbers = [metadata.dev(), metadata.ino(), metadata.len()];
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    let bytes = numbers.iter().map(|number| number.to_le_bytes());
    bytes.chain(times.iter().map(|time| time.to_le_bytes())).flatten().collect()
}
