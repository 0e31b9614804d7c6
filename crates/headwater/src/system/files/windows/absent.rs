//! Calls without a counterpart on Windows: owners, extended attributes, holes, shared blocks, special files.

use std::fs::{File, Metadata};
use std::path::Path;
use std::time::Duration;

use super::super::SpecialKind;
use super::{AsFd, AtFlags, Errno, Gid, Uid, XattrFlags};

/// Sets the owner of an entry: not on this system.
pub(crate) fn chownat(
    _folder: impl AsFd,
    _name: impl AsRef<Path>,
    _user: Option<Uid>,
    _group: Option<Gid>,
    _flags: AtFlags,
) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Sets the owner of a file: not on this system.
pub(crate) fn fchown(_file: impl AsFd, _user: Option<Uid>, _group: Option<Gid>) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Reads an extended attribute: not on this system.
pub(crate) fn fgetxattr(_file: impl AsFd, _name: &str, _value: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Sets an extended attribute: not on this system.
pub(crate) fn fsetxattr(
    _file: impl AsFd,
    _name: &str,
    _value: &[u8],
    _flags: XattrFlags,
) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Removes an extended attribute: not on this system.
pub(crate) fn fremovexattr(_file: impl AsFd, _name: &str) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Returns the number of extended attributes' bytes, which is 0 on this system.
pub(crate) fn flistxattr(_file: impl AsFd, _names: &mut [u8]) -> Result<usize, Errno> {
    Ok(0)
}

/// As [`flistxattr`].
pub(crate) fn listxattr(_path: &Path, _names: &mut [u8]) -> Result<usize, Errno> {
    Ok(0)
}

/// As [`fgetxattr`].
pub(crate) fn getxattr(_path: &Path, _name: &str, _value: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Syncs a file system: not on this system.
pub(crate) fn sync_file_system(_folder: impl AsFd) -> Result<(), Errno> {
    Ok(())
}

/// Syncs the names of a folder: the file system's journal does so.
pub(crate) fn fsync(_folder: impl AsFd) -> Result<(), Errno> {
    Ok(())
}

/// Makes a hole: not on this system.
pub(crate) fn punch_hole(_file: impl AsFd, _offset: u64, _bytes: u64) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Allocates space: not on this system.
pub(crate) fn allocate(_file: impl AsFd, _bytes: u64) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Shares blocks: not on this system.
pub(crate) fn share_blocks(_to: impl AsFd, _from: impl AsFd) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Whether this process may do everything: unknown on this system.
pub(crate) fn is_superuser() -> bool {
    false
}

/// Whether a part of a file is a hole: unknown on this system.
pub(crate) fn is_hole(_file: &File, _offset: u64, _bytes: u64) -> bool {
    false
}

/// Whether a file has holes: unknown on this system.
pub(crate) fn has_holes(_file: &File, _bytes: u64) -> bool {
    false
}

/// Returns the kind of an entry that is neither a file nor a folder: unknown on this system.
pub(crate) fn special_kind(_metadata: &Metadata) -> Option<SpecialKind> {
    None
}

/// Waits until a pipe takes bytes: the write waits on this system.
pub(crate) fn wait_to_write(_to: &File, _patience: Duration) -> bool {
    true
}

/// Waits until a pipe has bytes: the read waits on this system.
pub(crate) fn wait_to_read(_from: &File, _patience: Duration) -> bool {
    true
}
