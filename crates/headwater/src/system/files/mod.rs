//! Files and folders beyond the standard library: names below an open folder, metadata, holes, space.
//!
//! Names and signatures follow `rustix::fs`. Unix: `rustix`. Windows: the standard library, with a folder
//! as an open handle and a path. Windows has no owners and extended attributes.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

/// Metadata of an entry, in the types of Linux. Windows: a file is known by the time of creation; owner and
/// number of names are not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) st_dev: u64,
    pub(crate) st_ino: u64,
    pub(crate) st_nlink: u64,
    pub(crate) st_mode: u32,
    pub(crate) st_uid: u32,
    pub(crate) st_gid: u32,
    pub(crate) st_size: i64,
    pub(crate) st_blocks: i64,
    pub(crate) st_atime: i64,
    pub(crate) st_atime_nsec: i64,
    pub(crate) st_mtime: i64,
    pub(crate) st_mtime_nsec: i64,
    pub(crate) st_ctime: i64,
    pub(crate) st_ctime_nsec: i64,
    kind: FileType,
}

impl Stat {
    /// Returns the kind of the entry.
    pub(crate) fn kind(&self) -> FileType {
        self.kind
    }
}

/// Kind of an entry that is neither a file nor a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(windows, expect(dead_code, reason = "the standard library does not tell such entries there"))]
pub(crate) enum SpecialKind {
    BlockDevice,
    CharacterDevice,
    Socket,
    Pipe,
}
