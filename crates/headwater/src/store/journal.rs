//! The journal of a working folder: what has come, so that another receiver goes on where this one stopped.
//!
//! A header, then batches of changes, each under a checksum. A batch is written after the content that it
//! tells of, so a process that is killed leaves nothing claimed that was not written. What the machine itself
//! loses when its power fails is another matter: the header names the boot that the journal belongs to, and
//! how much of the journal was safe on disk with its content; after another boot no more than that counts.
//! Whatever is damaged ends the journal there. Nothing of it is trusted beyond that: blocks are verified as
//! if they had just come.
//!
//! A journal that has grown long is made anew beside, while the old one goes on; what came meanwhile is
//! copied, and then the new one takes the name of the old one. Whoever is killed on the way leaves the old
//! one, whole.
//!
//! ```text
//! "HWJRNL" version:u16 boot:16 checksum:8 | synced:u64 checksum:8 | (length:u32 checksum:8 changes)*
//! ```

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::change::Change;
use super::kept::{Id, Kept};

const MAGIC: &[u8; 6] = b"HWJRNL";
/// Counts up with every change of the format; journals of other versions are discarded.
const VERSION: u16 = 4;
const CHECKSUM_BYTES: usize = 8;
/// Magic, version, boot.
const OPENING_BYTES: usize = 24;
/// Where the synced length stands.
const SYNCED_AT: usize = OPENING_BYTES + CHECKSUM_BYTES;
/// Where the batches begin.
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

    /// Adds a change, and writes the batch when it is long enough.
    pub(super) fn note(&mut self, change: &Change) -> io::Result<()> {
        change.encode(&mut self.batch);
        if self.batch.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes all changes noted. The content that they tell of must have been written.
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

    /// Goes on in a journal made anew of what this one told up to `from`: copies what came since. Nothing may
    /// be noted that is not written.
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

    /// The file, and how much of it is written.
    pub(super) fn written(&self) -> (Arc<File>, u64) {
        (Arc::clone(&self.file), self.end)
    }
}

/// Makes a journal safe on disk up to `end`, once the content that it tells of is.
pub(super) fn sync(file: &File, end: u64) -> io::Result<()> {
    file.sync_data()?;
    write_synced(file, end)?;
    file.sync_data()
}

/// Reads a journal up to `end` as far as it is undamaged: its files and objects, and blocks from `from` on
/// that take `bytes_max`.
pub(super) fn read(file: &File, end: u64, from: Id, bytes_max: usize) -> Kept {
    let mut kept = Kept::new(from, bytes_max);
    let mut position = HEADER_BYTES as u64;
    let mut reader = BufReader::with_capacity(1 << 18, At { file, position });
    let mut batch = Vec::new();
    while read_batch(&mut reader, &mut batch).is_some() {
        position += (4 + CHECKSUM_BYTES + batch.len()) as u64;
        if position > end || kept.apply_all(&batch).is_none() {
            break;
        }
    }
    kept
}

/// Reads a file from a position of its own: another thread may do the same.
struct At<'a> {
    file: &'a File,
    position: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// Makes a journal anew in an empty file, which tells what the old one does up to `end`, and no more than is
/// needed for that; `forgets` says which files are left out. Reads the old one once for each 8 MiB of what
/// blocks take.
pub(super) fn compact(
    old: &File,
    end: u64,
    new: File,
    bytes_max: usize,
    forgets: impl Fn(u32) -> bool,
) -> io::Result<(Journal, Kept)> {
    let mut journal = Journal::create(new)?;
    let mut kept = read(old, end, (0, 0), bytes_max);
    let forget = |kept: &mut Kept| {
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

/// How far a journal counts; `None` if it is none of ours.
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

/// What the kernel calls this boot; zeros if it does not say.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
}
