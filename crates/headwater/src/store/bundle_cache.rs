//! Directories of bundles that were unpacked, by the digest of the bundle: a receiver that runs again
//! compares the members in place, and receives nothing twice.
//!
//! The cache is outside of the destination folder, which holds the sender's files alone. A lost cache costs
//! the reception of the bundle.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use headwater_proto::delivery::{Digest, hex};
use tracing::debug;

use super::journal::Stamp;

/// Maximum number of directories kept.
const ENTRIES_MAX: usize = 4_096;
/// Maximum bytes of all directories kept.
const BYTES_MAX: u64 = 64 << 20;

/// Folder of directories.
#[derive(Clone, Debug)]
pub(super) struct BundleCache {
    folder: PathBuf,
}

impl BundleCache {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(hex(digest))
    }

    /// Whether the directory of a bundle is kept.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    /// Returns a directory of at most `bytes_max` bytes, and marks the directory as used.
    pub(super) fn get(&self, digest: &Digest, bytes_max: usize) -> Option<(Vec<u8>, Stamp)> {
        let file = File::open(self.path(digest)).ok()?;
        let mut bytes = Vec::new();
        (&file).take(bytes_max as u64 + 1).read_to_end(&mut bytes).ok()?;
        let _kept_as_old = file.set_modified(SystemTime::now());
        Some((bytes, Stamp::of(&file).ok()?))
    }

    /// Keeps a directory. Failures cost time later, and nothing else.
    pub(super) fn put(&self, digest: &Digest, bytes: &[u8]) {
        if let Err(error) = self.try_put(digest, bytes) {
            debug!(folder = %self.folder.display(), %error, "the directory of a bundle was not kept");
        }
    }

    fn try_put(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let file = tempfile::NamedTempFile::new_in(&self.folder)?;
        fs::write(file.path(), bytes)?;
        file.persist(self.path(digest)).map_err(|error| error.error)?;
        trim(&self.folder)
    }
}

/// Removes the directories used least recently beyond the limits.
fn trim(folder: &Path) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        entries.push((metadata.modified()?, metadata.len(), entry.path()));
    }
    entries.sort_unstable_by(|one, other| other.cmp(one));
    let mut bytes = 0;
    for (index, (_, length, path)) in entries.into_iter().enumerate() {
        bytes += length;
        if index >= ENTRIES_MAX || bytes > BYTES_MAX {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
