//! From paths on the command line to files of a session.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headwater_proto::delivery::{FileTime, FileToSend, RelativePath};

use super::error::PrepareError;

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its name at the receivers.
    pub name: RelativePath,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// When it was modified last, if its file system tells a time.
    pub modified: Option<FileTime>,
    pub(super) stamp: Stamp,
}

/// What tells whether a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// Something among the paths that is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// What it is: `a symbolic link`, `a device`.
    pub kind: &'static str,
}

/// The files of a session, by name.
#[derive(Clone, Debug, Default)]
pub struct FileSet {
    files: Vec<PreparedFile>,
    skipped: Vec<Skipped>,
}

impl FileSet {
    /// The files, sorted by name.
    pub fn files(&self) -> &[PreparedFile] {
        &self.files
    }

    /// What was found and is not sent: symbolic links, devices, sockets and pipes.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(super) fn to_send(&self) -> Vec<FileToSend> {
        let file = |file: &PreparedFile| FileToSend {
            path: file.name.clone(),
            bytes: file.bytes,
            mode: Some(file.mode),
            modified: file.modified,
        };
        self.files.iter().map(file).collect()
    }
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Finds the regular files that paths name. A file is sent under its own name (`a/b.txt` as `b.txt`), a folder with all
/// that is in it under the folder's name (`a/d` as `d/..`); the content of `.`, `..` and `/` without one.
///
/// A path given that is a symbolic link is followed, one inside a folder is skipped.
///
/// # Errors
/// [`PrepareError`] when something cannot be read, receivers would refuse a name, two files would have the same one, or
/// there is no file at all. The same file under the same name is sent once, however its path is spelled.
pub fn prepare<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<FileSet, PrepareError> {
    let mut walk = Walk::default();
    for path in paths {
        walk.start(path.as_ref())?;
    }
    let set = FileSet { files: walk.files.into_values().collect(), skipped: walk.skipped };
    if set.files.is_empty() {
        return Err(PrepareError::Empty { skipped: set.skipped });
    }
    refuse_files_as_folders(&set.files)?;
    Ok(set)
}

#[derive(Debug, Default)]
struct Walk {
    files: BTreeMap<RelativePath, PreparedFile>,
    skipped: Vec<Skipped>,
}

impl Walk {
    fn start(&mut self, path: &Path) -> Result<(), PrepareError> {
        let metadata = reading(path, fs::metadata(path))?;
        // `.`, `..` and `/` have no name: what is in them goes without one.
        let name = match path.file_name() {
            Some(name) => unicode(path, name)?,
            None => String::new(),
        };
        self.visit(path, &name, &metadata)
    }

    fn visit(&mut self, path: &Path, name: &str, metadata: &Metadata) -> Result<(), PrepareError> {
        if metadata.is_dir() {
            self.folder(path, name)
        } else if metadata.is_file() {
            self.file(path, name, metadata)
        } else {
            self.skipped.push(Skipped { path: path.to_owned(), kind: kind(metadata) });
            Ok(())
        }
    }

    fn folder(&mut self, path: &Path, name: &str) -> Result<(), PrepareError> {
        for entry in reading(path, fs::read_dir(path))? {
            let entry = reading(path, entry)?;
            let path = entry.path();
            let own = unicode(&path, &entry.file_name())?;
            let name = if name.is_empty() { own } else { format!("{name}/{own}") };
            // Of the entry itself: links are not followed.
            let metadata = reading(&path, entry.metadata())?;
            self.visit(&path, &name, &metadata)?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: &str, metadata: &Metadata) -> Result<(), PrepareError> {
        let name =
            RelativePath::new(name).map_err(|source| PrepareError::Name { path: path.to_owned(), source })?;
        let file = PreparedFile {
            path: path.to_owned(),
            name: name.clone(),
            bytes: metadata.len(),
            mode: metadata.mode() & 0o777,
            modified: modified(metadata),
            stamp: Stamp::of(metadata),
        };
        let identity = |stamp: Stamp| (stamp.device, stamp.inode);
        let own = identity(file.stamp);
        match self.files.insert(name.clone(), file) {
            Some(other) if identity(other.stamp) != own => {
                Err(PrepareError::SameName { name, first: other.path, second: path.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Two paths may make one name a file and, with more after it, a folder.
fn refuse_files_as_folders(files: &[PreparedFile]) -> Result<(), PrepareError> {
    for file in files {
        for (slash, _) in file.name.as_str().match_indices('/') {
            let folder = &file.name.as_str()[..slash];
            let found = files.binary_search_by(|other| other.name.as_str().cmp(folder));
            if let Ok(found) = found {
                return Err(PrepareError::FileAndFolder {
                    file: files[found].name.clone(),
                    below: file.name.clone(),
                });
            }
        }
    }
    Ok(())
}

fn modified(metadata: &Metadata) -> Option<FileTime> {
    FileTime::new(metadata.mtime(), u32::try_from(metadata.mtime_nsec()).ok()?)
}

fn reading<T>(path: &Path, result: std::io::Result<T>) -> Result<T, PrepareError> {
    result.map_err(|source| PrepareError::Read { path: path.to_owned(), source })
}

fn unicode(path: &Path, name: &std::ffi::OsStr) -> Result<String, PrepareError> {
    name.to_str().map(str::to_owned).ok_or_else(|| PrepareError::NotUnicode { path: path.to_owned() })
}

fn kind(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a pipe"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    fn names(set: &FileSet) -> Vec<&str> {
        set.files().iter().map(|file| file.name.as_str()).collect()
    }

    #[test]
    fn files_keep_their_own_name_and_folders_what_is_below_them() {
        let folder = folder(&["a/b.txt", "d/z", "d/e/f", "d/e/a"]);
        let set = prepare([folder.path().join("d"), folder.path().join("a/b.txt")]).unwrap();
        assert_eq!(names(&set), ["b.txt", "d/e/a", "d/e/f", "d/z"]);
        assert_eq!(set.bytes(), 7 + 5 + 5 + 3);
        let parts = prepare([folder.path().join("d/e/..")]).unwrap();
        assert_eq!(names(&parts), ["e/a", "e/f", "z"], "a path without a name adds none");
    }

    #[test]
    fn permission_bits_are_noted_and_no_others() {
        let folder = folder(&["x"]);
        let path = folder.path().join("x");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
        assert_eq!(prepare([&path]).unwrap().files()[0].mode, 0o751);
    }

    #[test]
    fn what_is_no_regular_file_is_skipped_and_named() {
        let folder = folder(&["d/file"]);
        let at = |name: &str| folder.path().join(name);
        symlink(at("d/file"), at("d/link")).unwrap();
        let _socket = UnixListener::bind(at("d/socket")).unwrap();
        let set = prepare([at("d"), PathBuf::from("/dev/null")]).unwrap();
        assert_eq!(names(&set), ["d/file"]);
        let mut skipped: Vec<_> = set.skipped().iter().map(|skipped| skipped.kind).collect();
        skipped.sort_unstable();
        assert_eq!(skipped, ["a device", "a socket", "a symbolic link"]);
        // A link that is named is meant.
        assert_eq!(names(&prepare([at("d/link")]).unwrap()), ["link"]);
    }

    #[test]
    fn what_receivers_would_refuse_is_refused() {
        let bad = folder(&["d/a:b"]);
        assert!(matches!(prepare([bad.path().join("d")]), Err(PrepareError::Name { .. })));
        let reserved = folder(&["d/.headwater-x"]);
        assert!(matches!(prepare([reserved.path().join("d")]), Err(PrepareError::Name { .. })));
        let latin = folder(&[]);
        fs::write(latin.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "").unwrap();
        assert!(matches!(prepare([latin.path()]), Err(PrepareError::NotUnicode { .. })));
    }

    #[test]
    fn selections_that_cannot_be_sent_are_refused() {
        let folder = folder(&["one/x", "two/x", "three/x/y", "empty/d/x"]);
        let at = |name: &str| folder.path().join(name);
        fs::remove_file(at("empty/d/x")).unwrap();
        assert!(matches!(prepare([at("empty")]), Err(PrepareError::Empty { .. })));
        let nothing = prepare([Path::new("/dev/null")]).unwrap_err().to_string();
        assert!(nothing.contains("'/dev/null' is a device"), "{nothing}");
        assert!(matches!(prepare([at("nothing")]), Err(PrepareError::Read { .. })));
        assert!(matches!(prepare([at("one/x"), at("two/x")]), Err(PrepareError::SameName { .. })));
        assert!(matches!(prepare([at("one/x"), at("three/x")]), Err(PrepareError::FileAndFolder { .. })));
        for spelling in ["one/x", "two/../one/x", "one/./x"] {
            let set = prepare([at("one/x"), at(spelling)]).unwrap();
            assert_eq!(names(&set), ["x"], "the same file is no conflict");
        }
    }
}
