//! Converts paths from the command line to files of a session.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_proto::delivery::{
    FileTime, FileToSend, NameError, Preserve, RelativePath, SessionMetadata, check_link_target,
};

use super::bundle::Bundle;
use super::compress::EncodedContent;
use super::error::PrepareError;
use super::metadata::{MetadataCollector, modified};
use crate::system::files::{MetadataExt, SpecialKind, is_circle, is_same_file, special_kind};

/// Unit in which a file system reports the bytes on disk.
const DISK_BLOCK_BYTES: u64 = 512;

/// File to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedFile {
    /// Path on this machine.
    pub path: PathBuf,
    /// Name at the receivers.
    pub name: RelativePath,
    /// Length in bytes.
    pub bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// Time of the last modification, if the file system reports a time.
    pub modified: Option<FileTime>,
    pub(super) stamp: Stamp,
    /// Whether the file may have holes that are not sent.
    pub(super) is_sparse: bool,
    /// Members, if the file is a bundle.
    pub(super) bundle: Option<Arc<Bundle>>,
    /// Encoded content, if the file travels encoded; `bytes` is the length of the encoded content then.
    pub(super) encoded: Option<Arc<EncodedContent>>,
}

impl PreparedFile {
    /// Describes a file without a name that holds a part of an input.
    pub(super) fn spooled(spool: &fs::File, file: &FileToSend) -> io::Result<Self> {
        Ok(Self {
            path: "standard input".into(),
            name: file.path.clone(),
            bytes: file.bytes,
            mode: 0,
            modified: None,
            stamp: Stamp::of(&spool.metadata()?),
            is_sparse: false,
            bundle: None,
            encoded: None,
        })
    }
}

/// Identity and state of a file, compared to detect changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// Treatment of symbolic links inside the folders to send. A link among the given paths is always followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// A link to a regular file is sent as that file, under the link's own name. Links to folders, to
    /// devices and to missing targets are left out.
    #[default]
    Follow,
    /// Every link is left out.
    Skip,
    /// Links travel as links, if the target is relative and inside of the given folder.
    Keep,
}

/// Treatment of links, and metadata that travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrepareOptions {
    /// Treatment of symbolic links inside folders.
    pub links: Links,
    /// Metadata that travels.
    pub preserve: Preserve,
}

/// Path that is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Location of the file, folder or link.
    pub path: PathBuf,
    /// Reason.
    pub reason: SkipReason,
}

impl Skipped {
    /// Returns the location, with control characters and bytes that are no UTF-8 escaped.
    pub fn escaped_path(&self) -> String {
        EscapedPath(&self.path).to_string()
    }
}

impl fmt::Display for Skipped {
    /// Formats `'/dev/null' is a device`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' {}", EscapedPath(&self.path), self.reason)
    }
}

/// Reason why a path is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The path is no regular file: `a symbolic link`, `a device`.
    Kind(&'static str),
    /// Receivers would refuse the name of a file or folder.
    Name(NameError),
    /// The name is no UTF-8.
    NotUnicode,
}

impl SkipReason {
    /// Whether the path may have content, which receivers then lack.
    pub fn has_content(&self) -> bool {
        !matches!(self, Self::Kind(_))
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "is {kind}"),
            Self::Name(error) => write!(f, "has a name that receivers refuse ({error})"),
            Self::NotUnicode => f.write_str("has a name that receivers refuse (the name is not UTF-8)"),
        }
    }
}

/// Path for a message: control characters, marks that change the direction of text, and bytes that are no
/// UTF-8 are escaped.
pub(super) struct EscapedPath<'a>(pub(super) &'a Path);

impl fmt::Display for EscapedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(text) = self.0.to_str() else {
            return f.write_str(format!("{:?}", self.0).trim_matches('"'));
        };
        // Separators of Windows and quotation marks stay as they are.
        let escaped = text.escape_debug().to_string();
        f.write_str(&escaped.replace("\\\\", "\\").replace("\\'", "'").replace("\\\"", "\""))
    }
}

/// Symbolic link whose file is sent although the file lies outside of the given paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideLink {
    /// The link.
    pub path: PathBuf,
    /// Path of the file, with all links resolved.
    pub target: PathBuf,
}

/// Files of a session, by name.
#[derive(Clone, Debug, Default)]
pub struct FileSet {
    files: Vec<PreparedFile>,
    folders: Vec<RelativePath>,
    skipped: Vec<Skipped>,
    outside: Vec<OutsideLink>,
    metadata: SessionMetadata,
}

impl FileSet {
    /// Returns the files, sorted by name.
    pub fn files(&self) -> &[PreparedFile] {
        &self.files
    }

    /// Returns the sorted names of the folders without files. A folder with subfolders is not included.
    pub fn folders(&self) -> &[RelativePath] {
        &self.folders
    }

    /// Returns the metadata beyond the modes and times of files.
    pub fn metadata(&self) -> &SessionMetadata {
        &self.metadata
    }

    /// Returns the skipped paths: devices, sockets, pipes, symbolic links that are not followed, and files
    /// and folders whose names receivers refuse.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Returns the skipped files and folders whose names receivers refuse.
    pub fn refused(&self) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().filter(|skipped| skipped.reason.has_content())
    }

    /// Returns the followed symbolic links that lead outside of the given paths.
    pub fn outside(&self) -> &[OutsideLink] {
        &self.outside
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Returns the files as a plan takes them.
pub(super) fn to_send(files: &[PreparedFile]) -> Vec<FileToSend> {
    let file = |file: &PreparedFile| FileToSend {
        path: file.name.clone(),
        bytes: file.bytes,
        mode: Some(file.mode),
        modified: file.modified,
    };
    files.iter().map(file).collect()
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Finds the regular files at `paths`, with the default treatment of symbolic links: [`prepare_with`].
///
/// # Errors
/// As [`prepare_with`].
pub fn prepare<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<FileSet, PrepareError> {
    prepare_with(paths, Links::default())
}

/// Finds the regular files at `paths`. A file is sent under its own name (`a/b.txt` as `b.txt`). A folder is
/// sent with its whole content under the folder's name (`a/d` as `d/..`). The content of `.`, `..` and `/`
/// is sent without a folder name. Folders without a file are kept, too.
///
/// A given path that is a symbolic link is followed; `links` decides about links inside folders.
///
/// # Errors
/// [`PrepareError`] if a path cannot be read, two files would have the same name, or there is no file at all.
/// The same file under the same name is sent once, however the path is spelled.
pub fn prepare_with<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    links: Links,
) -> Result<FileSet, PrepareError> {
    prepare_tree(paths, PrepareOptions { links, ..PrepareOptions::default() })
}

/// Finds files and metadata, as [`prepare_with`] finds files. Of a file with several names, the first name
/// is a file of the session if hard links are preserved; other names are metadata.
///
/// # Errors
/// As [`prepare_with`].
pub fn prepare_tree<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    options: PrepareOptions,
) -> Result<FileSet, PrepareError> {
    let PrepareOptions { links, preserve } = options;
    let metadata = MetadataCollector::new(preserve);
    let mut walk = Walk { links, preserve, metadata, ..Walk::default() };
    for path in paths {
        walk.start(path.as_ref())?;
    }
    walk.finish()
}

#[derive(Debug, Default)]
struct Walk {
    links: Links,
    preserve: Preserve,
    metadata: MetadataCollector,
    files: BTreeMap<RelativePath, PreparedFile>,
    /// Paths of the folders without any content to send.
    folders: BTreeMap<RelativePath, PathBuf>,
    skipped: Vec<Skipped>,
    /// Given paths, with all links resolved.
    roots: Vec<PathBuf>,
    /// Followed links and their target files.
    followed: BTreeMap<PathBuf, PathBuf>,
}

impl Walk {
    fn start(&mut self, path: &Path) -> Result<(), PrepareError> {
        let metadata = reading(path, fs::metadata(path))?;
        self.roots.push(reading(path, fs::canonicalize(path))?);
        // `.`, `..` and `/` have no name: their content is sent without a folder name.
        let name = match path.file_name() {
            Some(name) => match name.to_str() {
                Some(name) => name,
                None => {
                    self.skip(path, SkipReason::NotUnicode);
                    return Ok(());
                }
            },
            None => "",
        };
        self.visit(path, name, &metadata).map(|_is_kept| ())
    }

    fn finish(mut self) -> Result<FileSet, PrepareError> {
        // Messages name the first few: content that receivers lack stands first.
        self.skipped.sort_by_key(|skipped| !skipped.reason.has_content());
        if self.files.is_empty() {
            let reason = SkipReason::Kind("an empty folder, which is sent beside files only");
            let skipped = |path| Skipped { path, reason: reason.clone() };
            self.skipped.extend(self.folders.into_values().map(skipped));
            return Err(PrepareError::Empty { skipped: self.skipped });
        }
        for name in self.metadata.hard_links(|name| self.files.contains_key(name)) {
            self.files.remove(&name);
        }
        if !self.preserve.empty {
            self.folders.clear();
        }
        let roots = &self.roots;
        self.followed.retain(|_, target| !roots.iter().any(|root| target.starts_with(root)));
        let set = FileSet {
            files: self.files.into_values().collect(),
            folders: self.folders.into_keys().collect(),
            skipped: self.skipped,
            outside: self.followed.into_iter().map(|(path, target)| OutsideLink { path, target }).collect(),
            metadata: self.metadata.finish(),
        };
        let names = set.files.iter().map(|file| &file.name);
        names.chain(&set.folders).try_for_each(|name| refuse_file_above(&set.files, name))?;
        set.folders.iter().try_for_each(|name| refuse_file_at(&set.files, name.as_str(), name))?;
        Ok(set)
    }

    /// Returns whether any part of `path` is kept.
    fn visit(&mut self, path: &Path, name: &str, metadata: &Metadata) -> Result<bool, PrepareError> {
        if metadata.is_dir() && name.is_empty() {
            self.folder(path, None)
        } else if metadata.is_dir() {
            let Some(name) = self.sendable(path, name) else { return Ok(false) };
            self.metadata.add(path, &name, metadata, false);
            self.folder(path, Some(name))
        } else if metadata.is_file() {
            let Some(name) = self.sendable(path, name) else { return Ok(false) };
            self.metadata.add(path, &name, metadata, false);
            self.file(path, name, metadata).map(|()| true)
        } else if metadata.is_symlink() && self.links == Links::Keep {
            self.keep_link(path, name, metadata)
        } else if metadata.is_symlink() {
            self.link(path, name)
        } else {
            Ok(self.skip(path, SkipReason::Kind(kind(metadata))))
        }
    }

    fn skip(&mut self, path: &Path, reason: SkipReason) -> bool {
        self.skipped.push(Skipped { path: path.to_owned(), reason });
        false
    }

    /// Checks a name. A path whose name receivers would refuse is skipped.
    fn sendable(&mut self, path: &Path, name: &str) -> Option<RelativePath> {
        let checked = RelativePath::new(name);
        checked.map_err(|error| self.skip(path, SkipReason::Name(error))).ok()
    }

    /// Visits the content of a folder, which may have no name.
    fn folder(&mut self, path: &Path, name: Option<RelativePath>) -> Result<bool, PrepareError> {
        let mut is_kept = false;
        for entry in reading(path, fs::read_dir(path))? {
            let entry = reading(path, entry)?;
            let path = entry.path();
            let Ok(own) = entry.file_name().into_string() else {
                self.skip(&path, SkipReason::NotUnicode);
                continue;
            };
            let name = name.as_ref().map_or_else(|| own.clone(), |name| format!("{name}/{own}"));
            // Metadata of the entry itself, not of a link's target.
            let metadata = match entry.metadata() {
                // The entry has just been removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => reading(&path, metadata)?,
            };
            is_kept |= self.visit(&path, &name, &metadata)?;
        }
        if let Some(name) = name.filter(|_| !is_kept) {
            self.folders.insert(name, path.to_owned());
            is_kept = true;
        }
        Ok(is_kept)
    }

    /// Follows a link to a regular file only: a link to a folder may lead in a circle, or to the whole file
    /// system.
    fn link(&mut self, path: &Path, name: &str) -> Result<bool, PrepareError> {
        if self.links == Links::Skip {
            return Ok(self.skip(path, SkipReason::Kind("a symbolic link")));
        }
        match fs::metadata(path).and_then(|metadata| Ok((metadata, fs::canonicalize(path)?))) {
            Ok((metadata, target)) if metadata.is_file() => {
                let Some(name) = self.sendable(path, name) else { return Ok(false) };
                self.followed.insert(path.to_owned(), target);
                self.metadata.add(path, &name, &metadata, true);
                self.file(path, name, &metadata).map(|()| true)
            }
            Ok((metadata, _)) => Ok(self.skip(path, SkipReason::Kind(kind_of_target(&metadata)))),
            Err(error) => Ok(self.skip(path, SkipReason::Kind(kind_of_failure(&error)))),
        }
    }

    /// Keeps a link as metadata. A folder of links alone counts as a folder without files.
    fn keep_link(&mut self, path: &Path, name: &str, metadata: &Metadata) -> Result<bool, PrepareError> {
        let Some(name) = self.sendable(path, name) else { return Ok(false) };
        let target = reading(path, fs::read_link(path))?;
        let Some(target) = target.to_str() else {
            return Ok(self.skip(path, SkipReason::Kind("a symbolic link whose target is no UTF-8")));
        };
        if check_link_target(&name, target).is_err() {
            let kind = "a symbolic link that may lead out of the folder: only relative targets with `..` at the \
                        beginning alone are kept";
            return Ok(self.skip(path, SkipReason::Kind(kind)));
        }
        self.metadata.add_link(path, &name, metadata, target.to_owned());
        Ok(false)
    }

    fn file(&mut self, path: &Path, name: RelativePath, metadata: &Metadata) -> Result<(), PrepareError> {
        let file = PreparedFile {
            path: path.to_owned(),
            name: name.clone(),
            bytes: metadata.len(),
            mode: metadata.mode() & 0o777,
            modified: modified(metadata),
            stamp: Stamp::of(metadata),
            is_sparse: metadata.blocks().saturating_mul(DISK_BLOCK_BYTES) < metadata.len(),
            bundle: None,
            encoded: None,
        };
        match self.files.insert(name.clone(), file) {
            Some(other) if !is_same_file(&other.path, path) => {
                Err(PrepareError::SameName { name, first: other.path, second: path.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a file whose name is also a parent folder of `name`.
fn refuse_file_above(files: &[PreparedFile], name: &RelativePath) -> Result<(), PrepareError> {
    let slashes = name.as_str().match_indices('/');
    slashes.map(|(slash, _)| &name.as_str()[..slash]).try_for_each(|above| refuse_file_at(files, above, name))
}

/// Refuses a file with the name `folder`, which is, or holds, `below`. The files must be sorted.
fn refuse_file_at(files: &[PreparedFile], folder: &str, below: &RelativePath) -> Result<(), PrepareError> {
    match files.binary_search_by(|file| file.name.as_str().cmp(folder)) {
        Ok(found) => {
            Err(PrepareError::FileAndFolder { file: files[found].name.clone(), below: below.clone() })
        }
        Err(_) => Ok(()),
    }
}

fn reading<T>(path: &Path, result: io::Result<T>) -> Result<T, PrepareError> {
    result.map_err(|source| PrepareError::Read { path: path.to_owned(), source })
}

fn kind(metadata: &Metadata) -> &'static str {
    match special_kind(metadata) {
        Some(SpecialKind::BlockDevice | SpecialKind::CharacterDevice) => "a device",
        Some(SpecialKind::Socket) => "a socket",
        Some(SpecialKind::Pipe) | None => "a pipe",
    }
}

/// Describes a link to a target that is no regular file.
fn kind_of_target(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() {
        return "a symbolic link to a folder";
    }
    match kind(metadata) {
        "a device" => "a symbolic link to a device",
        "a socket" => "a symbolic link to a socket",
        _ => "a symbolic link to a pipe",
    }
}

/// Describes a link that cannot be followed.
fn kind_of_failure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "a symbolic link to nothing",
        _ if is_circle(error) => "a symbolic link that leads in a circle",
        io::ErrorKind::PermissionDenied => "a symbolic link to what may not be read",
        _ => "a symbolic link that cannot be followed",
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
        let _socket = UnixListener::bind(at("d/socket")).unwrap();
        let set = prepare([at("d"), PathBuf::from("/dev/null")]).unwrap();
        assert_eq!(names(&set), ["d/file"]);
        assert_eq!(kinds(&set), ["a device", "a socket"]);
    }

    fn kinds(set: &FileSet) -> Vec<&'static str> {
        let kind = |skipped: &Skipped| match skipped.reason {
            SkipReason::Kind(kind) => kind,
            _ => "a refused name",
        };
        let mut kinds: Vec<_> = set.skipped().iter().map(kind).collect();
        kinds.sort_unstable();
        kinds
    }

    #[test]
    fn links_to_files_are_sent_as_these_under_their_own_names() {
        let folder = folder(&["blobs/long-name", "snapshots/rev/file"]);
        let at = |name: &str| folder.path().join(name);
        let rev = at("snapshots/rev");
        symlink("../../blobs/long-name", rev.join("model.bin")).unwrap();
        symlink("file", rev.join("inside")).unwrap();
        let set = prepare([&rev]).unwrap();
        assert_eq!(names(&set), ["rev/file", "rev/inside", "rev/model.bin"]);
        assert_eq!(set.bytes(), 15 + 18 + 18);
        let target = fs::canonicalize(at("blobs/long-name")).unwrap();
        assert_eq!(set.outside(), [OutsideLink { path: rev.join("model.bin"), target }]);
        let stamp = set.files()[2].stamp;
        assert_eq!(stamp, Stamp::of(&fs::metadata(at("blobs/long-name")).unwrap()));
        // A folder that is named is no outside.
        assert_eq!(prepare([rev.clone(), at("blobs")]).unwrap().outside(), []);
        let skipping = prepare_with([&rev], Links::Skip).unwrap();
        assert_eq!(names(&skipping), ["rev/file"]);
        assert_eq!(kinds(&skipping), ["a symbolic link"; 2]);
        // A link that is named is meant.
        assert_eq!(names(&prepare_with([rev.join("inside")], Links::Skip).unwrap()), ["inside"]);
    }

    #[test]
    fn links_to_anything_but_files_are_left_out_and_named() {
        let folder = folder(&["d/file", "other/secret"]);
        let at = |name: &str| folder.path().join(name);
        for (target, link) in [
            ("nothing", "d/dangling"),
            ("file/below", "d/through-a-file"),
            ("circle", "d/circle"),
            ("..", "d/up"),
            ("../other", "d/folder"),
            ("/dev/null", "d/device"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let set = prepare([at("d")]).unwrap();
        assert_eq!(names(&set), ["d/file"]);
        let (nothing, folder) = ("a symbolic link to nothing", "a symbolic link to a folder");
        let (circle, device) = ("a symbolic link that leads in a circle", "a symbolic link to a device");
        assert_eq!(kinds(&set), [circle, device, folder, folder, nothing, nothing]);
        fs::remove_file(at("d/file")).unwrap();
        let none = prepare([at("d")]).unwrap_err().to_string();
        assert!(none.contains("is a symbolic link") && none.contains("and 4 more"), "{none}");
    }

    #[test]
    fn folders_without_a_file_are_kept() {
        let folder = folder(&["d/file", "d/full/file"]);
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("d/empty/deep/deeper")).unwrap();
        fs::create_dir(at("d/full/empty")).unwrap();
        let set = prepare([at("d"), at("d"), at("d/empty")]).unwrap();
        let folders: Vec<_> = set.folders().iter().map(RelativePath::as_str).collect();
        assert_eq!(folders, ["d/empty/deep/deeper", "d/full/empty", "empty/deep/deeper"]);
        let alone = prepare([at("d/empty")]).unwrap_err().to_string();
        assert!(alone.contains("deeper' is an empty folder, which is sent beside files only"), "{alone}");
        fs::create_dir_all(at("x/file")).unwrap();
        let both = prepare([at("d/file"), at("x/file")]);
        assert!(matches!(both, Err(PrepareError::FileAndFolder { .. })), "{both:?}");
    }

    /// Names of each rule, in folders, of folders and behind links: the rest is sent.
    #[test]
    fn names_that_receivers_refuse_are_left_out_and_named() {
        let bad = [
            "a:b",
            "tab\there",
            "line\nbreak",
            "\u{1b}[31mred",
            "\u{202e}gpj",
            "CON",
            "nul.txt",
            "dot.",
            "space ",
        ];
        let folder = folder(&["d/good", "d/.headwater-x", "d/e:f/below"]);
        let at = |name: &str| folder.path().join(name);
        bad.iter().for_each(|name| fs::write(at("d").join(name), "content").unwrap());
        fs::write(at("d").join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "").unwrap();
        symlink("good", at("d/to:good")).unwrap();
        symlink("nothing", at("d/to:nothing")).unwrap();
        let set = prepare([at("d")]).unwrap();
        assert_eq!(names(&set), ["d/good"]);
        assert_eq!(set.refused().count(), bad.len() + 4, "{:?}", set.skipped());
        assert_eq!(set.skipped().len(), bad.len() + 5, "a link to nothing has no content");
        let said: Vec<_> = set.skipped().iter().map(Skipped::to_string).collect();
        let said = said.join("|");
        assert!(!said.contains(|sign: char| sign.is_control() || sign == '\u{202e}'), "{said:?}");
        for shown in ["a:b", "line\\nbreak", "\\u{1b}[31mred", "\\u{202e}gpj", "caf\\xE9"] {
            assert!(
                said.contains(&format!("d/{shown}' has a name that receivers refuse (")),
                "{shown}: {said}"
            );
        }
        let mixed = prepare([at("d/a:b"), at("d/good")]).unwrap();
        assert_eq!((names(&mixed), mixed.refused().count()), (vec!["good"], 1));
        let alone = prepare([at("d/\u{1b}[31mred")]).unwrap_err();
        assert!(matches!(&alone, PrepareError::Empty { skipped } if skipped.len() == 1), "{alone:?}");
        assert!(alone.to_string().contains("\\u{1b}[31mred' has a name that receivers refuse"), "{alone}");
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
