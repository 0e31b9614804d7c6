//! Files and folders beyond the standard library: names below an open folder, metadata, holes, space.
//!
//! Names and signatures follow `rustix::fs`. Unix: `rustix`. Windows: the standard library, with a folder
//! as an open handle and a path. Windows has no owners and extended attributes.

use std::fs::File;
use std::io;

use headwater_proto::delivery::RelativePath;

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

/// Syncs a file to disk where [`sync_file_system`] does not sync many at once: elsewhere than on Linux.
pub(crate) fn sync_singly(file: &File) -> io::Result<()> {
    if cfg!(target_os = "linux") { Ok(()) } else { file.sync_all() }
}

/// Returns the target of a link as this system writes paths; `None` for a target that this system reads
/// otherwise than the sender's.
pub(crate) fn native_target(target: &str) -> Option<String> {
    if cfg!(windows) { windows_target(target) } else { Some(target.to_owned()) }
}

/// Windows: each component is a name on Windows, where other characters than `/` lead to other folders, too.
fn windows_target(target: &str) -> Option<String> {
    let is_step = |component: &str| matches!(component, "." | "..") || RelativePath::new(component).is_ok();
    target.split('/').all(is_step).then(|| target.replace('/', "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_links_have_names_of_windows_alone() {
        assert_eq!(windows_target("../a b/./c.txt").as_deref(), Some("..\\a b\\.\\c.txt"));
        for target in [
            "..\\..\\x",
            "a/..\\x",
            "\\\\host\\x",
            "c:x",
            "C:/x",
            "/x",
            "a//x",
            "a/",
            "x:y",
            "nul",
            ".. /x",
            "a/...",
            "",
        ] {
            assert_eq!(windows_target(target), None, "{target}");
        }
    }
}
