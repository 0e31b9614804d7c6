//! Encoded content on disk, by the identity of the content: a carousel that begins again encodes changed
//! files alone.
//!
//! A session uses hard links in a folder of its own, so that no other session removes content in use. Content
//! that no session uses stays for [`AGE_MAX`], and takes at most [`UNUSED_BYTES_MAX`] bytes. Folders of
//! sessions that were killed are removed by the next session.
//!
//! ```text
//! encoded content, "HWENC\0\0\1" encoded:u64 content:u64 digest:32 checksum:8
//! ```

use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headwater_proto::Size;
use headwater_proto::delivery::{ContentCoding, Digest, hex};
use tempfile::TempDir;
use tracing::debug;

use super::SendError;
use crate::coding::version;
use crate::system::files::{self, DirBuilderExt, FileExt, MetadataExt};

/// Maximum bytes of content that no session uses.
const UNUSED_BYTES_MAX: u64 = 16 << 30;
/// Time for which content is kept after the last use.
const AGE_MAX: Duration = Duration::from_secs(14 * 24 * 3_600);
/// Age from which the folder of a session without a lock is abandoned.
const UNLOCKED_AGE_MAX: Duration = Duration::from_secs(3_600);
const MAGIC: &[u8; 8] = b"HWENC\0\0\x01";
const TRAILER_BYTES: usize = 64;
const SESSION_PREFIX: &str = "session-";
const LOCK: &str = "lock";

/// Folder of encoded content.
#[derive(Debug)]
pub(super) struct EncodedCache {
    folder: PathBuf,
    coding: ContentCoding,
    session: Arc<SessionFolder>,
}

/// Content of an earlier session.
pub(super) enum CacheEntry {
    /// Content that does not shrink.
    Plain,
    Encoded {
        path: PathBuf,
        bytes: u64,
        digest: Digest,
    },
}

/// Folder of a session, removed on drop.
#[derive(Debug)]
pub(in crate::send) struct SessionFolder {
    folder: TempDir,
    /// Locked for the lifetime of the folder.
    _lock: File,
}

impl SessionFolder {
    fn create(cache: &Path) -> io::Result<Self> {
        let folder = TempDir::with_prefix_in(SESSION_PREFIX, cache)?;
        let lock = File::create_new(folder.path().join(LOCK))?;
        files::try_lock(&lock)?;
        Ok(Self { folder, _lock: lock })
    }

    /// Returns the path of content that is being encoded.
    pub(super) fn part(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("{index}.part"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl EncodedCache {
    /// Opens the folder, and removes what is old or abandoned.
    ///
    /// # Errors
    /// If the folder cannot be made, or may be written to by other users.
    pub(super) fn open(folder: &Path, coding: ContentCoding) -> Result<Self, SendError> {
        let failed = |attempt, source| failed(folder, attempt, source);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| failed("make the folder", error))?;
        let metadata = fs::symlink_metadata(folder).map_err(|error| failed("inspect the folder", error))?;
        if !metadata.is_dir() || metadata.uid() != files::own_user() || metadata.mode() & 0o022 != 0 {
            let reason = "it is no folder that this user alone can write to";
            return Err(failed("use the folder", io::Error::other(reason)));
        }
        remove_abandoned(folder);
        let session = SessionFolder::create(folder).map_err(|error| failed("make a folder", error))?;
        let cache = Self { folder: folder.to_owned(), coding, session: Arc::new(session) };
        cache.trim(UNUSED_BYTES_MAX);
        Ok(cache)
    }

    pub(super) fn session(&self) -> &Arc<SessionFolder> {
        &self.session
    }

    /// Returns the key of content with this identity.
    pub(super) fn key(&self, identity: &[u8]) -> Digest {
        let mut hasher = blake3::Hasher::new_derive_key("headwater 2026 encoded content");
        let version = version(self.coding);
        hasher.update(&(version.len() as u64).to_le_bytes()).update(version.as_bytes()).update(identity);
        *hasher.finalize().as_bytes()
    }

    fn path(&self, key: &Digest) -> PathBuf {
        self.folder.join(hex(key))
    }

    /// Finds content of `bytes` bytes, and marks the content as used. Content that cannot be used is removed.
    pub(super) fn find(&self, key: &Digest, bytes: u64) -> Option<CacheEntry> {
        let (kept, own) = (self.path(key), self.session.path(&hex(key)));
        match fs::hard_link(&kept, &own) {
            // Two names of a file have one content.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => linked.ok()?,
        }
        let found = File::open(&own).ok().and_then(|file| {
            let (encoded, content, digest) = read_trailer(&file)?;
            let _kept_as_old = file.set_modified(SystemTime::now());
            (content == bytes).then_some((encoded, digest))
        });
        match found {
            Some((0, _)) => Some(CacheEntry::Plain),
            Some((encoded, digest)) => Some(CacheEntry::Encoded { path: own, bytes: encoded, digest }),
            None => {
                debug!(path = %kept.display(), "encoded content is damaged, and is encoded again");
                let _gone = (fs::remove_file(&kept), fs::remove_file(&own));
                None
            }
        }
    }

    /// Keeps encoded content for this session and, with a key, for later sessions. Returns the path.
    ///
    /// # Errors
    /// If the content cannot be written.
    pub(super) fn keep(
        &self,
        file: &File,
        part: &Path,
        key: Option<&Digest>,
        (encoded, bytes, digest): (u64, u64, Digest),
    ) -> Result<PathBuf, SendError> {
        let failed = |error| self.failed("write", error);
        file.write_all_at(&trailer(encoded, bytes, &digest), encoded).map_err(failed)?;
        let Some(key) = key else { return Ok(part.to_owned()) };
        file.sync_data().map_err(failed)?;
        let own = self.session.path(&hex(key));
        fs::rename(part, &own).map_err(failed)?;
        if let Err(error) = fs::hard_link(&own, self.path(key)) {
            debug!(folder = %self.folder.display(), %error, "encoded content is kept for this session alone");
        }
        Ok(own)
    }

    /// Notes that content does not shrink. A failure costs time later, and nothing else.
    pub(super) fn keep_plain(&self, key: &Digest, bytes: u64) {
        let part = self.session.path(&format!("{}.plain", hex(key)));
        let noted =
            fs::write(&part, trailer(0, bytes, &[0; 32])).and_then(|()| fs::rename(&part, self.path(key)));
        if let Err(error) = noted {
            debug!(folder = %self.folder.display(), %error, "content that does not shrink was not noted");
        }
    }

    /// Makes room for so many bytes.
    ///
    /// # Errors
    /// If the disk lacks space without the content that no session uses.
    pub(super) fn make_room(&self, needed: u64) -> Result<(), SendError> {
        if needed <= self.free()? {
            return Ok(());
        }
        self.trim(0);
        let free = self.free()?;
        if needed <= free {
            return Ok(());
        }
        let folder = self.folder.clone();
        Err(SendError::CompressionSpace { folder, needed: Size(needed), free: Size(free) })
    }

    fn free(&self) -> Result<u64, SendError> {
        files::free_bytes_of(&self.folder)
            .map_err(|errno| self.failed("ask for the free space", errno.into()))
    }

    /// Returns the error of an attempt.
    pub(super) fn failed(&self, attempt: &'static str, source: io::Error) -> SendError {
        failed(&self.folder, attempt, source)
    }

    /// Removes content that no session uses: old content, and the content used least recently beyond
    /// `bytes_max`.
    fn trim(&self, bytes_max: u64) {
        let mut unused = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() && metadata.nlink() == 1 {
                unused.push((metadata.modified().ok(), metadata.len(), entry.path()));
            }
        }
        unused.sort_unstable_by(|one, other| other.cmp(one));
        let oldest = SystemTime::now().checked_sub(AGE_MAX);
        let mut bytes = 0;
        for (used, length, path) in unused {
            bytes += length;
            if used < oldest || bytes > bytes_max {
                debug!(path = %path.display(), "encoded content is removed");
                let _gone = fs::remove_file(path);
            }
        }
    }
}

/// Removes the folders of sessions that have ended without a clean-up.
fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let is_session = entry.file_name().to_string_lossy().starts_with(SESSION_PREFIX);
        let Some(metadata) = entry.metadata().ok().filter(|metadata| is_session && metadata.is_dir()) else {
            continue;
        };
        let is_abandoned = match File::open(entry.path().join(LOCK)) {
            Ok(lock) => files::try_lock(&lock).is_ok(),
            // The session may be about to make the lock.
            Err(_) => metadata.modified().ok().and_then(|time| time.elapsed().ok()) > Some(UNLOCKED_AGE_MAX),
        };
        if is_abandoned && let Err(error) = fs::remove_dir_all(entry.path()) {
            debug!(path = %entry.path().display(), %error, "an abandoned folder could not be removed");
        }
    }
}

fn failed(folder: &Path, attempt: &'static str, source: io::Error) -> SendError {
    SendError::Compression { attempt, folder: folder.to_owned(), source }
}

fn trailer(encoded: u64, content: u64, digest: &Digest) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&encoded.to_le_bytes());
    bytes[16..24].copy_from_slice(&content.to_le_bytes());
    bytes[24..56].copy_from_slice(digest);
    let checksum = blake3::hash(&bytes[..56]);
    bytes[56..].copy_from_slice(&checksum.as_bytes()[..8]);
    bytes
}

/// Reads the lengths of encoded content and content, and the digest of the content.
fn read_trailer(file: &File) -> Option<(u64, u64, Digest)> {
    let at = file.metadata().ok()?.len().checked_sub(TRAILER_BYTES as u64)?;
    let mut bytes = [0; TRAILER_BYTES];
    file.read_exact_at(&mut bytes, at).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
    let (encoded, content) = (number(8)?, number(16)?);
    let digest = *bytes[24..].first_chunk()?;
    (encoded == at && bytes == trailer(encoded, content, &digest)).then_some((encoded, content, digest))
}
