//! Files that a user names to take blocks from: older versions of the files of a session.

use std::fs::File;
use std::io;
use std::path::Path;

use headwater_proto::delivery::{RelativePath, StoreError};

use super::folder::find_parent;
use crate::system::files::{self, AsFd, FileType, Mode, OFlags, OwnedFd};

/// Minimum length of a file that is searched for blocks, in bytes: shorter files are received as fast.
pub(super) const BASE_BYTES_MIN: u64 = 1 << 20;

/// File to take blocks from.
#[derive(Debug)]
pub(super) struct BaseFile {
    pub(super) file: File,
    pub(super) bytes: u64,
    /// Whether blocks are also looked for at other offsets.
    pub(super) has_moved_blocks: bool,
}

/// Older versions that the user names.
#[derive(Debug)]
pub(super) enum Base {
    /// Older version of any file of the session.
    File(File),
    /// Folder with older versions under the same names.
    Folder(OwnedFd),
}

impl Base {
    /// Opens a file or a folder.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = std::fs::metadata(path).and_then(|metadata| match metadata {
            metadata if metadata.is_dir() => files::open_folder(path).map(Self::Folder),
            metadata if metadata.is_file() => File::open(path).map(Self::File),
            _ => Err(io::Error::other("no file and no folder")),
        });
        opened.map_err(|error| {
            let path = path.display();
            StoreError(format!(
                "cannot take blocks from '{path}': {error}; name a file or a folder as the base"
            ))
        })
    }

    /// Returns the older version of a file, if present.
    pub(super) fn find(&self, path: &RelativePath) -> Option<BaseFile> {
        let file = match self {
            Self::File(file) => file.try_clone().ok()?,
            Self::Folder(folder) => {
                let (parent, name) = find_parent(folder.as_fd(), path)?;
                let parent = parent.as_ref().map_or(folder.as_fd(), OwnedFd::as_fd);
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                File::from(files::openat(parent, name, flags, Mode::empty()).ok()?)
            }
        };
        let stat = files::fstat(&file).ok()?;
        let is_regular = stat.kind() == FileType::RegularFile;
        let bytes =
            u64::try_from(stat.st_size).ok().filter(|bytes| is_regular && *bytes >= BASE_BYTES_MIN)?;
        Some(BaseFile { file, bytes, has_moved_blocks: true })
    }
}
