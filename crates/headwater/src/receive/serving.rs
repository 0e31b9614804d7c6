//! Files of a receiver for a server of repair: whole, verified files, for receivers that miss something.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::delivery::{Digest, RelativePath, SourceError};

use crate::send::Stamp;
use crate::system::read_at;

/// Repair of other receivers by a receiver that has everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingOptions {
    /// Port of the server, for reports to the sender. The server is the caller's
    /// ([`ReceiveSession::published`](crate::ReceiveSession::published)).
    pub port: u16,
    /// Time for which the session goes on once every file is whole, for the server.
    pub time: Duration,
}

/// Whole files of a receiving session. Each file is verified against the digest that the sender announced; a
/// file that has changed since is served no more.
///
/// Memory: name, path and digest of each file of the session.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedFiles(Arc<Mutex<BTreeMap<String, Arc<ReceivedFile>>>>);

/// Whole file of a receiving session.
#[derive(Debug)]
pub(crate) struct ReceivedFile {
    path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
    stamp: Stamp,
}

impl ReceivedFiles {
    /// Adds a file that has just been verified, in place of an earlier file of the same name.
    fn add(&self, folder: &Path, name: &RelativePath, bytes: u64, digest: Digest) {
        let path = folder.join(name.as_str());
        // A file that is gone already is not served.
        let Ok(metadata) = fs::symlink_metadata(&path) else { return };
        if metadata.is_file() && metadata.len() == bytes {
            let file = ReceivedFile { path, bytes, digest, stamp: Stamp::of(&metadata) };
            self.files().insert(name.as_str().to_owned(), Arc::new(file));
        }
    }

    /// Finds the file with exactly this name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<ReceivedFile>> {
        self.files().get(name).cloned()
    }

    fn files(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<ReceivedFile>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReceivedFile {
    /// Fails unless the path still leads to the verified file.
    pub(crate) fn check(&self) -> Result<(), SourceError> {
        self.judge(fs::symlink_metadata(&self.path).as_ref().ok())
    }

    /// Fills `buffer` from `offset` on. Fails unless the file is still the verified file.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let failed = |error: io::Error| SourceError::Session(error.to_string());
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&self.path).map_err(failed)?;
        self.judge(file.metadata().as_ref().ok())?;
        read_at(&file, buffer, offset).map_err(failed)?;
        self.judge(file.metadata().as_ref().ok())
    }

    fn judge(&self, metadata: Option<&fs::Metadata>) -> Result<(), SourceError> {
        let is_same = metadata.is_some_and(|metadata| Stamp::of(metadata) == self.stamp);
        is_same.then_some(()).ok_or_else(|| {
            SourceError::Session(format!("'{}' is not the received file any more", self.path.display()))
        })
    }
}

/// Serving of the files of a session.
#[derive(Debug)]
pub(super) struct Serving {
    options: ServingOptions,
    folder: PathBuf,
    files: ReceivedFiles,
    /// End of serving, once every file is whole.
    until: Option<Instant>,
    /// Time at which every file was whole.
    whole_at: Option<Instant>,
}

impl Serving {
    pub(super) fn new(options: ServingOptions, folder: PathBuf, files: ReceivedFiles) -> Self {
        Self { options, folder, files, until: None, whole_at: None }
    }

    /// Returns the options.
    pub(super) const fn options(&self) -> ServingOptions {
        self.options
    }

    /// Serves a verified file from now on. Files without an announced digest cannot be verified by other
    /// receivers.
    pub(super) fn add(&self, name: &RelativePath, bytes: u64, digest: Option<Digest>) {
        if let Some(digest) = digest {
            self.files.add(&self.folder, name, bytes, digest);
        }
    }

    /// Forgets the files of a session that another session replaces.
    pub(super) fn clear(&self) {
        self.files.files().clear();
    }

    /// Begins to serve a session of which every file is whole.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.until, self.whole_at) = (Some(now + self.options.time.into()), Some(now));
    }

    /// Returns the end of serving, while other receivers are served.
    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends serving.
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// Returns the time at which every file was whole.
    pub(super) const fn whole_at(&self) -> Option<Instant> {
        self.whole_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_received_file_is_served_by_its_exact_name_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "some content").unwrap();
        let files = ReceivedFiles::default();
        let options = ServingOptions { port: 1, time: Duration::ZERO };
        let serving = Serving::new(options, folder.path().to_owned(), files.clone());
        let name = RelativePath::new("d/file").unwrap();
        serving.add(&name, 12, None);
        assert!(files.find("d/file").is_none(), "without a digest");
        serving.add(&name, 12, Some([7; 32]));
        for name in ["", "file", "/d/file", "d//file", "./d/file", "d/../d/file", "d"] {
            assert!(files.find(name).is_none(), "{name:?}");
        }
        let file = files.find("d/file").unwrap();
        let mut bytes = [0; 7];
        file.read(5, &mut bytes).unwrap();
        assert_eq!(&bytes, b"content");
        assert!(file.read(6, &mut bytes).is_err(), "behind the end");
        fs::write(folder.path().join("secret"), "same content").unwrap();
        fs::remove_file(path.join("file")).unwrap();
        std::os::unix::fs::symlink("../secret", path.join("file")).unwrap();
        assert!(file.check().is_err() && file.read(0, &mut bytes).is_err());
        fs::remove_file(path.join("file")).unwrap();
        fs::write(path.join("file"), "same content").unwrap();
        assert!(file.check().is_err() && file.read(0, &mut bytes).is_err());
    }
}
