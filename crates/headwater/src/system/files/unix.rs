//! Files and folders on Unix.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

pub(crate) use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};

use rustix::event::{PollFd, PollFlags};
pub(crate) use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chownat,
    fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fsync, futimens, getxattr, linkat,
    listxattr, mkdirat, openat, readlinkat, renameat, symlinkat, unlinkat, utimensat,
};
use rustix::fs::{Dir, FlockOperation, RawMode};
pub(crate) use rustix::io::Errno;

use super::{SpecialKind, Stat};

impl Stat {
    #[expect(clippy::unnecessary_cast, reason = "the types of the fields differ between systems")]
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            st_dev: stat.st_dev as u64,
            st_ino: stat.st_ino as u64,
            st_nlink: stat.st_nlink as u64,
            st_mode: stat.st_mode as u32,
            st_uid: stat.st_uid,
            st_gid: stat.st_gid,
            st_size: stat.st_size as i64,
            st_blocks: stat.st_blocks as i64,
            st_atime: stat.st_atime as i64,
            st_atime_nsec: stat.st_atime_nsec as i64,
            st_mtime: stat.st_mtime as i64,
            st_mtime_nsec: stat.st_mtime_nsec as i64,
            st_ctime: stat.st_ctime as i64,
            st_ctime_nsec: stat.st_ctime_nsec as i64,
            kind: FileType::from_raw_mode(stat.st_mode),
        }
    }
}

/// Whether device and inode of a [`Stat`] tell files apart.
pub(crate) const IDENTIFIES_FILES: bool = true;
/// Unit of the times of files in nanoseconds.
pub(crate) const TIME_UNIT_NANOS: i64 = 1;

/// Whether two paths lead to the same existing file.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Returns the metadata of an open file or folder.
pub(crate) fn fstat(file: impl AsFd) -> Result<Stat, Errno> {
    rustix::fs::fstat(file).map(|stat| Stat::of(&stat))
}

/// Returns the metadata of an entry of a folder.
pub(crate) fn statat(folder: impl AsFd, name: impl AsRef<Path>, flags: AtFlags) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name.as_ref(), flags).map(|stat| Stat::of(&stat))
}

fn raw_mode(bits: u32) -> RawMode {
    bits as RawMode
}

/// Returns permission bits as a mode.
pub(crate) fn mode_of(bits: u32) -> Mode {
    Mode::from_raw_mode(raw_mode(bits))
}

/// Returns the permission bits of a mode.
#[cfg_attr(target_os = "linux", expect(clippy::useless_conversion, reason = "16 bits on systems by Apple"))]
pub(crate) fn bits_of(mode: Mode) -> u32 {
    u32::from(mode.as_raw_mode())
}

/// Opens a folder.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(File::open(path)?.into())
}

/// Returns the names of the entries of a folder, without `.` and `..`.
pub(crate) fn entries(folder: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    Ok(names)
}

/// Locks a file for this process; [`Errno::WOULDBLOCK`] if another process holds the lock.
pub(crate) fn try_lock(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Returns the free space of the file system of an open folder in bytes.
pub(crate) fn free_bytes(folder: impl AsFd) -> Result<u64, Errno> {
    rustix::fs::fstatvfs(folder).map(|free| free.f_bavail.saturating_mul(free.f_frsize))
}

/// Returns the free space of the file system of a path in bytes.
pub(crate) fn free_bytes_of(path: &Path) -> Result<u64, Errno> {
    rustix::fs::statvfs(path).map(|free| free.f_bavail.saturating_mul(free.f_frsize))
}

/// Syncs the content and the names of a file system to disk. Elsewhere than on Linux the call returns before:
/// [`super::sync_singly`].
pub(crate) fn sync_file_system(folder: impl AsFd) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::syncfs(folder);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = folder;
        rustix::fs::sync();
        Ok(())
    }
}

/// Makes a hole, which reads as zeros.
///
/// # Errors
/// If the file system or the system cannot.
pub(crate) fn punch_hole(file: impl AsFd, offset: u64, bytes: u64) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::FallocateFlags;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, flags, offset, bytes)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, offset, bytes);
        Err(Errno::OPNOTSUPP)
    }
}

/// Allocates the space of a file's first bytes, which become the length.
///
/// # Errors
/// If the space is too small, or the file system or the system cannot allocate.
pub(crate) fn allocate(file: impl AsFd, bytes: u64) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, bytes);
        Err(Errno::OPNOTSUPP)
    }
}

/// Makes an empty file share the blocks of another file.
///
/// # Errors
/// If the file system or the system cannot.
pub(crate) fn share_blocks(to: impl AsFd, from: impl AsFd) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::ioctl_ficlone(to, from);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (to, from);
        Err(Errno::OPNOTSUPP)
    }
}

/// Whether this process may do everything.
pub(crate) fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether `bytes` of a file from `offset` on are a hole. Unknown elsewhere than on Linux: APFS also reports
/// holes in place of content that is not on disk yet.
pub(crate) fn is_hole(file: &File, offset: u64, bytes: u64) -> bool {
    #[cfg(target_os = "linux")]
    return match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(data) => data >= offset.saturating_add(bytes),
        // No data up to the end of the file.
        Err(errno) => errno == Errno::NXIO,
    };
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, offset, bytes);
        false
    }
}

/// Whether a file of `bytes` bytes has holes. Fewer bytes on disk are no sign: the file system may compress.
pub(crate) fn has_holes(file: &File, bytes: u64) -> bool {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)).is_ok_and(|hole| hole < bytes)
}

/// Opens a file for reading, without waiting for the other end of a pipe of this name. `follows`: through a
/// link.
pub(crate) fn open_to_read(path: &Path, follows: bool) -> io::Result<File> {
    let link = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = i32::try_from((OFlags::NONBLOCK | link).bits()).unwrap_or(0);
    File::options().read(true).custom_flags(flags).open(path)
}

/// Opens a block device for this process alone, as far as the system can.
pub(crate) fn open_device(path: &Path) -> io::Result<File> {
    let exclusive = if cfg!(target_os = "linux") { OFlags::EXCL } else { OFlags::empty() };
    let exclusive = i32::try_from(exclusive.bits()).unwrap_or(0);
    File::options().read(true).write(true).custom_flags(exclusive).open(path)
}

/// Returns the kind of an entry that is neither a file nor a folder nor a link.
pub(crate) fn special_kind(metadata: &std::fs::Metadata) -> Option<SpecialKind> {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_block_device() {
        Some(SpecialKind::BlockDevice)
    } else if kind.is_char_device() {
        Some(SpecialKind::CharacterDevice)
    } else if kind.is_socket() {
        Some(SpecialKind::Socket)
    } else {
        kind.is_fifo().then_some(SpecialKind::Pipe)
    }
}

/// Whether an error says that links lead in a circle.
pub(crate) fn is_circle(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Returns the host's name.
pub(crate) fn host_name() -> Option<String> {
    let name = rustix::system::uname();
    name.nodename().to_str().ok().map(str::to_owned).filter(|name| !name.is_empty())
}

/// Returns standard output, which stays open when the copy is closed.
pub(crate) fn standard_output() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Waits until a pipe or device takes bytes; false after `patience` without.
pub(crate) fn wait_to_write(to: &File, patience: Duration) -> bool {
    is_ready(to, PollFlags::OUT, patience)
}

/// Waits until a pipe has bytes or has ended; false after `patience` without. The read reports errors.
pub(crate) fn wait_to_read(from: &File, patience: Duration) -> bool {
    is_ready(from, PollFlags::IN, patience)
}

fn is_ready(file: &File, flags: PollFlags, patience: Duration) -> bool {
    let mut ready = [PollFd::new(file, flags)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
    !matches!(rustix::event::poll(&mut ready, Some(&timeout)), Ok(0) | Err(Errno::INTR))
}
