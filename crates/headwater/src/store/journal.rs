//! The journal of a working folder: records the received content, so that another receiver can resume the
//! session.
//!
//! A header, then batches of changes, each under a checksum. A batch is written after its content, so a
//! killed process leaves no claim for unwritten content. For a power failure, the header names the boot of
//! the journal, and the length of the journal that was synced to disk with its content; after another boot
//! only that length counts. Damage ends the journal at that point. The recorded content is not trusted
//! further: blocks are verified as if just received.
//!
//! A long journal is compacted into a new file, while the old journal continues. Changes made meanwhile are
//! copied, and then the new journal takes the name of the old journal. A process killed on the way leaves the
//! old journal whole.
//!
//! ```text
//! "HWJRNL" version:u16 boot:16 checksum:8 | synced:u64 checksum:8 | (length:u32 checksum:8 changes)*
//! ```
//!
//! Contents of a journal: changes, and their bytes (integers little-endian, behind one byte for the kind).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headwater_proto::delivery::{Digest, FileTime, FileVersion};

use super::kept::{Id, ResumeState};
use crate::system::files::{FileExt, IDENTIFIES_FILES, MetadataExt};

const MAGIC: &[u8; 6] = b"HWJRNL";
/// Counts up with every change of the format; journals of other versions are discarded.
const VERSION: u16 = 5;
const CHECKSUM_BYTES: usize = 8;
/// Magic, version, boot.
const OPENING_BYTES: usize = 24;
/// Offset of the synced length.
const SYNCED_AT: usize = OPENING_BYTES + CHECKSUM_BYTES;
/// Offset of the batches.
const HEADER_BYTES: usize = SYNCED_AT + 8 + CHECKSUM_BYTES;
/// Longest batch read, in bytes; batches are flushed well below.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Changes gathered before a batch is written, in bytes.
const BATCH_BYTES: usize = 1 << 16;

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    file: Arc<File>,
    batch: Vec<u8>,
    end: u64,
}

impl Journal {
    /// Begins a journal in an empty file.
    pub(super) fn create(file: File) -> io::Result<Self> {
        let mut opening = [MAGIC.as_slice(), &VERSION.to_le_bytes(), &boot_id()].concat();
        opening.extend(checksum(&opening));
        file.write_all_at(&opening, 0)?;
        let journal = Self { file: Arc::new(file), batch: Vec::new(), end: HEADER_BYTES as u64 };
        write_synced(&journal.file, journal.end)?;
        Ok(journal)
    }

    /// Adds a change, and writes the batch when long enough.
    pub(super) fn note(&mut self, change: &Change) -> io::Result<()> {
        change.encode(&mut self.batch);
        if self.batch.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes all noted changes. Their content must have been written before.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let length = u32::try_from(self.batch.len()).expect("a batch is flushed long before");
        let record = [&length.to_le_bytes(), checksum(&self.batch).as_slice(), &self.batch].concat();
        self.file.write_all_at(&record, self.end)?;
        self.end += record.len() as u64;
        self.batch.clear();
        Ok(())
    }

    /// Continues in `new`, compacted from this journal up to `from`: copies the later batches. All noted
    /// changes must have been written.
    pub(super) fn go_on_in(&mut self, new: Journal, from: u64) -> io::Result<()> {
        let mut at = from;
        let mut end = new.end;
        let mut buffer = vec![0; BATCH_BYTES];
        while at < self.end {
            let count = usize::try_from(self.end - at).map_or(buffer.len(), |rest| rest.min(buffer.len()));
            self.file.read_exact_at(&mut buffer[..count], at)?;
            new.file.write_all_at(&buffer[..count], end)?;
            (at, end) = (at + count as u64, end + count as u64);
        }
        (self.file, self.end) = (new.file, end);
        Ok(())
    }

    /// Returns the file and its written length.
    pub(super) fn written(&self) -> (Arc<File>, u64) {
        (Arc::clone(&self.file), self.end)
    }
}

/// Syncs a journal to disk up to `end`. Its content must have been synced before.
pub(super) fn sync(file: &File, end: u64) -> io::Result<()> {
    file.sync_data()?;
    write_synced(file, end)?;
    file.sync_data()
}

/// Reads a journal up to `end` as far as undamaged: its files and objects, and blocks from `from` on that
/// take `bytes_max`.
pub(super) fn read(file: &File, end: u64, from: Id, bytes_max: usize) -> ResumeState {
    let mut kept = ResumeState::new(from, bytes_max);
    let mut position = HEADER_BYTES as u64;
    let mut reader = BufReader::with_capacity(1 << 18, PositionedReader { file, position });
    let mut batch = Vec::new();
    while read_batch(&mut reader, &mut batch).is_some() {
        position += (4 + CHECKSUM_BYTES + batch.len()) as u64;
        if position > end || kept.apply_all(&batch).is_none() {
            break;
        }
    }
    kept
}

/// Reads a file from a separate position: another thread may do the same.
struct PositionedReader<'a> {
    file: &'a File,
    position: u64,
}

impl Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// Compacts a journal into an empty file: the new journal records the state of the old journal at `end`, and
/// no more than needed. `forgets` selects files to leave out. Reads the old journal once for each 8 MiB of
/// block state.
pub(super) fn compact(
    old: &File,
    end: u64,
    new: File,
    bytes_max: usize,
    forgets: impl Fn(u32) -> bool,
) -> io::Result<(Journal, ResumeState)> {
    let mut journal = Journal::create(new)?;
    let mut kept = read(old, end, (0, 0), bytes_max);
    let forget = |kept: &mut ResumeState| {
        let files: Vec<u32> = kept.files.keys().copied().filter(|file| forgets(*file)).collect();
        files.into_iter().for_each(|file| kept.forget(file));
    };
    forget(&mut kept);
    kept.changes().try_for_each(|change| journal.note(&change))?;
    kept.block_changes().try_for_each(|change| journal.note(&change))?;
    let mut next = kept.until;
    while let Some(from) = next {
        let mut more = read(old, end, from, bytes_max);
        forget(&mut more);
        more.block_changes().try_for_each(|change| journal.note(&change))?;
        next = more.until;
    }
    journal.flush()?;
    Ok((journal, kept))
}

/// Returns the valid length of a journal; `None` if the file is no journal of this version.
pub(super) fn trusted_end(file: &File) -> Option<u64> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).ok()?;
    let (opening, rest) = header.split_at(OPENING_BYTES);
    let (sum, synced) = rest.split_at(CHECKSUM_BYTES);
    if !opening.starts_with(MAGIC) || opening[6..8] != VERSION.to_le_bytes() || sum != checksum(opening) {
        return None;
    }
    let boot = boot_id();
    if opening[8..] == boot && boot != [0; 16] {
        return Some(u64::MAX);
    }
    let (end, sum) = synced.split_first_chunk::<8>()?;
    (sum == checksum(end)).then_some(u64::from_le_bytes(*end))
}

fn read_batch(reader: &mut impl Read, batch: &mut Vec<u8>) -> Option<()> {
    let mut head = [0; 4 + CHECKSUM_BYTES];
    reader.read_exact(&mut head).ok()?;
    let (length, sum) = head.split_first_chunk::<4>()?;
    let length =
        usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= BATCH_BYTES_MAX)?;
    batch.resize(length, 0);
    reader.read_exact(batch).ok()?;
    (sum == checksum(batch)).then_some(())
}

fn write_synced(file: &File, end: u64) -> io::Result<()> {
    let end = end.to_le_bytes();
    file.write_all_at(&[end, checksum(&end)].concat(), SYNCED_AT as u64)
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    *blake3::hash(bytes).as_bytes().first_chunk().expect("a digest has 32 bytes")
}

/// Returns the kernel's boot ID; zeros if the ID is unavailable.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
}

/// Name of a file in the working folder: the digest of its path, shortened.
pub(super) type Key = [u8; 16];

/// A change. The journal numbers files and objects across sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A file is received, or more of its version is known than before.
    File { file: u32, key: Key, bytes: u64, version: FileVersion },
    /// An object of a file is received.
    Object { object: u32, file: u32, identity: Digest },
    /// `count` source symbols from `esi` on are in place.
    Source { object: u32, sbn: u32, esi: u32, count: u32 },
    /// Repair symbols, and source symbols beside those in place, are in the slots below `slots`.
    Repairs { object: u32, sbn: u32, slots: u32 },
    /// A block is whole, and was verified.
    Whole { object: u32, sbn: u32 },
    /// The repair symbols of a block were given up.
    RepairsDropped { object: u32, sbn: u32 },
    /// Nothing of a block is kept.
    AllDropped { object: u32, sbn: u32 },
    /// A file was given up.
    Dropped { file: u32 },
    /// A file has its final name.
    Placed { file: u32, stamp: Stamp },
    /// Source symbols in place among the 64 from 64 * `index` on, a bit for each, the lowest bit for the
    /// first.
    Word { object: u32, sbn: u32, index: u32, bits: u64 },
}

/// Identity of a file in place, to detect changes: device, inode, bytes, and the time of the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    /// Nanoseconds since 1970.
    pub(super) changed: i128,
}

impl Stamp {
    /// Returns the stamp of an open file.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Self { device, inode, bytes: metadata.len(), changed })
    }

    /// Whether both stamps are known to be of one file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        IDENTIFIES_FILES && (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns the time of the file's last change.
    pub(super) fn time(&self) -> SystemTime {
        let since = u64::try_from(self.changed).map_or(Duration::ZERO, Duration::from_nanos);
        SystemTime::UNIX_EPOCH + since
    }
}

impl Change {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, fields: &[&[u8]]| {
            out.push(kind);
            fields.iter().for_each(|field| out.extend_from_slice(field));
        };
        let le = u32::to_le_bytes;
        match *self {
            Self::File { file, key, bytes, version } => {
                put(1, &[&le(file), &key, &bytes.to_le_bytes(), &version_bytes(version)]);
            }
            Self::Object { object, file, identity } => put(2, &[&le(object), &le(file), &identity]),
            Self::Source { object, sbn, esi, count } => {
                put(3, &[&le(object), &le(sbn), &le(esi), &le(count)]);
            }
            Self::Repairs { object, sbn, slots } => put(4, &[&le(object), &le(sbn), &le(slots)]),
            Self::Whole { object, sbn } => put(5, &[&le(object), &le(sbn)]),
            Self::RepairsDropped { object, sbn } => put(6, &[&le(object), &le(sbn)]),
            Self::AllDropped { object, sbn } => put(7, &[&le(object), &le(sbn)]),
            Self::Dropped { file } => put(8, &[&le(file)]),
            Self::Placed { file, stamp } => {
                let Stamp { device, inode, bytes, changed } = stamp;
                let words = [device, inode, bytes].map(u64::to_le_bytes);
                put(9, &[&le(file), words.as_flattened(), &changed.to_le_bytes()]);
            }
            Self::Word { object, sbn, index, bits } => {
                put(10, &[&le(object), &le(sbn), &le(index), &bits.to_le_bytes()]);
            }
        }
    }

    /// Takes the first change off `bytes`; `None` if the bytes are no valid change.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let [kind] = take(bytes)?;
        Some(match kind {
            1 => Self::File {
                file: word(bytes)?,
                key: take(bytes)?,
                bytes: take(bytes).map(u64::from_le_bytes)?,
                version: version(bytes)?,
            },
            2 => Self::Object { object: word(bytes)?, file: word(bytes)?, identity: take(bytes)? },
            3 => Self::Source {
                object: word(bytes)?,
                sbn: word(bytes)?,
                esi: word(bytes)?,
                count: word(bytes)?,
            },
            4 => Self::Repairs { object: word(bytes)?, sbn: word(bytes)?, slots: word(bytes)? },
            5 => Self::Whole { object: word(bytes)?, sbn: word(bytes)? },
            6 => Self::RepairsDropped { object: word(bytes)?, sbn: word(bytes)? },
            7 => Self::AllDropped { object: word(bytes)?, sbn: word(bytes)? },
            8 => Self::Dropped { file: word(bytes)? },
            9 => Self::Placed {
                file: word(bytes)?,
                stamp: Stamp {
                    device: take(bytes).map(u64::from_le_bytes)?,
                    inode: take(bytes).map(u64::from_le_bytes)?,
                    bytes: take(bytes).map(u64::from_le_bytes)?,
                    changed: take(bytes).map(i128::from_le_bytes)?,
                },
            },
            10 => Self::Word {
                object: word(bytes)?,
                sbn: word(bytes)?,
                index: word(bytes)?,
                bits: take(bytes).map(u64::from_le_bytes)?,
            },
            _ => return None,
        })
    }
}

/// Returns the bytes of a version: flags for a digest (1) and a time (2), then both, zeros where absent.
fn version_bytes(version: FileVersion) -> Vec<u8> {
    let FileVersion { digest, modified } = version;
    let (seconds, nanoseconds) = modified.map_or((0, 0), |time| (time.seconds(), time.nanoseconds()));
    let known = u8::from(digest.is_some()) | u8::from(modified.is_some()) << 1;
    [&[known][..], &digest.unwrap_or_default(), &seconds.to_le_bytes(), &nanoseconds.to_le_bytes()].concat()
}

fn version(bytes: &mut &[u8]) -> Option<FileVersion> {
    let [known] = take(bytes)?;
    let digest = take(bytes)?;
    let time = FileTime::new(take(bytes).map(i64::from_le_bytes)?, word(bytes)?)?;
    Some(FileVersion {
        digest: (known & 1 != 0).then_some(digest),
        modified: (known & 2 != 0).then_some(time),
    })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*field)
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_le_bytes)
}
