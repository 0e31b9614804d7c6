//! Files of a receiver for a server of repair: whole, verified files, for receivers that miss something.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::delivery::{Digest, RelativePath, SourceError};

use crate::send::{Bundle, BundleReader, MemberCache, MemberFault, Stamp};
use crate::store::BundleDirectory;
use crate::system::files::open_to_read;
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
/// Memory: name, path and digest of each file of the session, the directories of bundles, and 8 MiB of
/// members that are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedFiles(Arc<Mutex<BTreeMap<String, Arc<ReceivedFile>>>>);

/// Whole file of a receiving session.
#[derive(Debug)]
pub(crate) struct ReceivedFile {
    place: ReceivedPlace,
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
}

/// Place of a file's bytes.
#[derive(Debug)]
enum ReceivedPlace {
    File {
        path: PathBuf,
        stamp: Stamp,
    },
    /// The bundle's bytes are made from the members.
    Bundle(Box<BundleReader>),
}

impl ReceivedFiles {
    /// Adds a file that has just been verified, in place of an earlier file of the same name.
    fn add(&self, folder: &Path, name: &RelativePath, bytes: u64, digest: Digest) {
        let path = folder.join(name.as_str());
        // A file that is gone already is not served.
        let Ok(metadata) = fs::symlink_metadata(&path) else { return };
        if metadata.is_file() && metadata.len() == bytes {
            let place = ReceivedPlace::File { path, stamp: Stamp::of(&metadata) };
            self.insert(name, ReceivedFile { place, bytes, digest });
        }
    }

    fn insert(&self, name: &RelativePath, file: ReceivedFile) {
        self.files().insert(name.as_str().to_owned(), Arc::new(file));
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
    /// Fails unless the path still leads to the verified file. Members of a bundle are checked as they are
    /// read.
    pub(crate) fn check(&self) -> Result<(), SourceError> {
        match &self.place {
            ReceivedPlace::File { path, stamp } => {
                judge(path, *stamp, fs::symlink_metadata(path).as_ref().ok())
            }
            ReceivedPlace::Bundle(_) => Ok(()),
        }
    }

    /// Fills `buffer` from `offset` on. Fails unless the file is still the verified file.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        match &self.place {
            ReceivedPlace::File { path, stamp } => read_file(path, *stamp, offset, buffer),
            ReceivedPlace::Bundle(reader) if offset + buffer.len() as u64 <= self.bytes => {
                reader.read(offset, buffer).map_err(|fault| {
                    let (MemberFault::Changed(member) | MemberFault::Unreadable(member, _)) = fault;
                    SourceError::Session(changed(Path::new(&reader.path(member))))
                })
            }
            ReceivedPlace::Bundle(_) => Err(SourceError::Session("read behind the end".to_owned())),
        }
    }
}

fn read_file(path: &Path, stamp: Stamp, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
    let failed = |error: io::Error| SourceError::Session(error.to_string());
    let file = open_to_read(path, false).map_err(failed)?;
    judge(path, stamp, file.metadata().as_ref().ok())?;
    read_at(&file, buffer, offset).map_err(failed)?;
    judge(path, stamp, file.metadata().as_ref().ok())
}

fn judge(path: &Path, stamp: Stamp, metadata: Option<&fs::Metadata>) -> Result<(), SourceError> {
    let is_same = metadata.is_some_and(|metadata| Stamp::of(metadata) == stamp);
    is_same.then_some(()).ok_or_else(|| SourceError::Session(changed(path)))
}

fn changed(path: &Path) -> String {
    format!("'{}' is not the received file any more", path.display())
}

/// Serving of the files of a session.
#[derive(Debug)]
pub(super) struct Serving {
    options: ServingOptions,
    folder: PathBuf,
    files: ReceivedFiles,
    /// Contents of members of bundles, for the next reads.
    members: Arc<Mutex<MemberCache>>,
    /// Number of bundles so far.
    bundles: usize,
    /// End of serving, once every file is whole.
    until: Option<Instant>,
    /// Time at which every file was whole.
    whole_at: Option<Instant>,
}

impl Serving {
    pub(super) fn new(options: ServingOptions, folder: PathBuf, files: ReceivedFiles) -> Self {
        let members = Arc::new(Mutex::new(MemberCache::for_next_reads()));
        Self { options, folder, files, members, bundles: 0, until: None, whole_at: None }
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

    /// Serves a bundle from now on, of which every member is in place and verified. A receiver keeps the
    /// members alone; the directory tells all other bytes.
    pub(super) fn add_bundle(
        &mut self,
        name: &RelativePath,
        directory: BundleDirectory,
        digest: Option<Digest>,
    ) {
        let BundleDirectory { layout, checks } = directory;
        let bytes = u64::from(layout.bytes());
        let (Some(digest), Ok(bundle)) = (digest, Bundle::in_place(layout, &self.folder)) else { return };
        let reader = BundleReader::new(Arc::new(bundle), self.bundles, &self.members).with_checks(checks);
        self.bundles += 1;
        let place = ReceivedPlace::Bundle(Box::new(reader));
        self.files.insert(name, ReceivedFile { place, bytes, digest });
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
    use headwater_proto::delivery::{BundleEnd, BundleLayout, BundleMember, FileTime, MemberCheck};

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

    #[test]
    fn a_bundle_is_served_from_the_members_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let contents = ["first", "", "third and last"];
        let modified = FileTime::new(1_700_000_000, 5).unwrap();
        let member = |(index, content): (usize, &&str)| {
            fs::write(folder.path().join(index.to_string()), content).unwrap();
            let path = RelativePath::new(&index.to_string()).unwrap();
            BundleMember { path, bytes: u32::try_from(content.len()).unwrap(), mode: 0o644, modified }
        };
        let members: Vec<_> = contents.iter().enumerate().map(member).collect();
        let layout = BundleLayout::new(members).unwrap();
        let check = |content: &&str| MemberCheck {
            crc32: crc32fast::hash(content.as_bytes()),
            digest: *blake3::hash(content.as_bytes()).as_bytes().first_chunk().unwrap(),
        };
        let checks: Vec<_> = contents.iter().map(check).collect();
        let options = ServingOptions { port: 1, time: Duration::ZERO };
        let files = ReceivedFiles::default();
        let mut serving = Serving::new(options, folder.path().to_owned(), files.clone());
        let name = RelativePath::new("bundle-1.zip").unwrap();
        let directory = BundleDirectory { layout: layout.clone(), checks: checks.clone() };
        serving.add_bundle(&name, directory, Some([7; 32]));
        let file = files.find("bundle-1.zip").unwrap();
        let mut bytes = vec![0; usize::try_from(file.bytes).unwrap()];
        file.read(0, &mut bytes).unwrap();
        let (rest, record) = bytes.split_last_chunk().unwrap();
        let end = BundleEnd::parse(file.bytes, record).unwrap();
        let directory = end.parse_directory(&rest[end.start as usize..]).unwrap();
        assert_eq!(directory, (layout.clone(), checks.clone()));
        for (index, content) in contents.iter().enumerate() {
            assert!(bytes[layout.content_start(index) as usize..].starts_with(content.as_bytes()));
        }
        assert!(file.read(file.bytes, &mut [0]).is_err(), "behind the end");

        // A member that changes before the first read.
        let directory = BundleDirectory { layout: layout.clone(), checks };
        serving.add_bundle(&name, directory, Some([7; 32]));
        let file = files.find("bundle-1.zip").unwrap();
        fs::write(folder.path().join("2"), "forged content").unwrap();
        let last = u64::from(layout.content_start(2));
        assert!(file.read(last, &mut [0; 4]).is_err());
        file.read(last - 1, &mut [0]).unwrap();
        fs::remove_file(folder.path().join("0")).unwrap();
        let directory = BundleDirectory { layout, checks: vec![] };
        files.files().clear();
        serving.add_bundle(&name, directory, Some([7; 32]));
        assert!(files.find("bundle-1.zip").is_none(), "a member is missing");
    }
}
