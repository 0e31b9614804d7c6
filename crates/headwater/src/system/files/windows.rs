//! Files and folders on Windows, by the standard library. A folder is an open handle with a path, and names
//! below are paths: unlike on Unix, another program can replace a folder on the way by a link in between.

use std::ffi::OsString;
use std::fs::{self, File, FileTimes, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::os::windows::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

mod absent;
mod errno;

pub(crate) use absent::*;
pub(crate) use errno::Errno;

use super::Stat;

/// Opens folders, too (`FILE_FLAG_BACKUP_SEMANTICS`).
const BACKUP_SEMANTICS: u32 = 0x0200_0000;
/// Opens the link (`FILE_FLAG_OPEN_REPARSE_POINT`).
const OPEN_REPARSE_POINT: u32 = 0x0020_0000;
/// Access to the content for reading, and to the times and the write bit (`GENERIC_READ`,
/// `FILE_WRITE_ATTRIBUTES`).
const READ_AND_SET_ATTRIBUTES: u32 = 0x8000_0100;
/// Unit of the times of files in nanoseconds.
pub(crate) const TIME_UNIT_NANOS: i64 = 100;
/// Intervals of 100 ns between 1601 and 1970.
const INTERVALS_TO_1970: i64 = 116_444_736_000_000_000;
const INTERVALS_PER_SECOND: i64 = 10_000_000;

/// An open folder or file, with the path.
#[derive(Debug)]
pub(crate) struct OwnedFd {
    file: File,
    path: PathBuf,
}

impl From<OwnedFd> for File {
    fn from(opened: OwnedFd) -> Self {
        opened.file
    }
}

/// A borrowed folder or file. A file that was not opened here has no path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BorrowedFd<'a> {
    file: Option<&'a File>,
    path: Option<&'a Path>,
}

/// Types that lend a folder or file.
pub(crate) trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd { file: Some(&self.file), path: Some(&self.path) }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd { file: Some(self), path: None }
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl<T: AsFd> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T: AsFd> AsFd for std::sync::Arc<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl BorrowedFd<'_> {
    fn metadata(&self) -> io::Result<Metadata> {
        match (self.file, self.path) {
            (Some(file), _) => file.metadata(),
            (None, Some(path)) => fs::symlink_metadata(path),
            (None, None) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    fn below(&self, name: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        self.path.map_or_else(|| name.to_owned(), |path| path.join(name))
    }
}

/// The current folder.
pub(crate) const CWD: BorrowedFd<'static> = BorrowedFd { file: None, path: None };

/// Flags of a call or of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags<K> {
    bits: u32,
    kind: PhantomData<K>,
}

impl<K: Copy> Flags<K> {
    const fn new(bits: u32) -> Self {
        Self { bits, kind: PhantomData }
    }

    pub(crate) const fn empty() -> Self {
        Self::new(0)
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self::new(self.bits | other.bits)
    }

    pub(crate) const fn contains(self, other: Self) -> bool {
        self.bits & other.bits == other.bits
    }
}

impl<K: Copy> std::ops::BitOr for Flags<K> {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl<K: Copy> std::ops::BitOrAssign for Flags<K> {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

/// Kinds of flags: of an open, of a name, of an extended attribute, of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfOpen {}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfName {}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfAttribute {}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfPermissions {}

pub(crate) type OFlags = Flags<OfOpen>;
pub(crate) type AtFlags = Flags<OfName>;
pub(crate) type XattrFlags = Flags<OfAttribute>;
pub(crate) type Mode = Flags<OfPermissions>;

impl OFlags {
    pub(crate) const RDONLY: Self = Self::new(0);
    pub(crate) const RDWR: Self = Self::new(1);
    pub(crate) const CREATE: Self = Self::new(2);
    pub(crate) const TRUNC: Self = Self::new(4);
    pub(crate) const NOFOLLOW: Self = Self::new(8);
    pub(crate) const DIRECTORY: Self = Self::new(16);
    pub(crate) const NONBLOCK: Self = Self::new(0);
    pub(crate) const CLOEXEC: Self = Self::new(0);
}

impl AtFlags {
    pub(crate) const SYMLINK_NOFOLLOW: Self = Self::new(1);
    pub(crate) const REMOVEDIR: Self = Self::new(2);
}

impl Mode {
    pub(crate) const RWXU: Self = Self::new(0o700);
    pub(crate) const RUSR: Self = Self::new(0o400);
    pub(crate) const WUSR: Self = Self::new(0o200);
}

/// Returns permission bits as a mode.
pub(crate) fn mode_of(bits: u32) -> Mode {
    Mode::new(bits)
}

/// Returns the permission bits of a mode.
pub(crate) fn bits_of(mode: Mode) -> u32 {
    mode.bits
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileType {
    RegularFile,
    Directory,
    Symlink,
    Unknown,
}

/// A user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uid(u32);
/// A group of users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gid(u32);

impl Uid {
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    pub(crate) fn as_raw(self) -> u32 {
        self.0
    }
}

impl Gid {
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    pub(crate) fn as_raw(self) -> u32 {
        self.0
    }
}

/// A time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timespec {
    pub(crate) tv_sec: i64,
    pub(crate) tv_nsec: i64,
}

/// Marks a time that stays.
pub(crate) const UTIME_OMIT: i64 = -1;

/// Times of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    pub(crate) last_access: Timespec,
    pub(crate) last_modification: Timespec,
}

impl Stat {
    fn of(metadata: &Metadata) -> Self {
        let kind = if metadata.is_symlink() {
            FileType::Symlink
        } else if metadata.is_dir() {
            FileType::Directory
        } else if metadata.is_file() {
            FileType::RegularFile
        } else {
            FileType::Unknown
        };
        let (st_atime, st_atime_nsec) = since_1970(metadata.last_access_time());
        Self {
            st_dev: metadata.dev(),
            st_ino: metadata.ino(),
            st_nlink: metadata.nlink(),
            st_mode: metadata.mode(),
            st_uid: metadata.uid(),
            st_gid: metadata.gid(),
            st_size: i64::try_from(metadata.len()).unwrap_or(i64::MAX),
            st_blocks: i64::try_from(metadata.blocks()).unwrap_or(i64::MAX),
            st_atime,
            st_atime_nsec,
            st_mtime: metadata.mtime(),
            st_mtime_nsec: metadata.mtime_nsec(),
            st_ctime: metadata.ctime(),
            st_ctime_nsec: metadata.ctime_nsec(),
            kind,
        }
    }
}

/// Returns seconds and nanoseconds since 1970.
fn since_1970(intervals: u64) -> (i64, i64) {
    let intervals = i64::try_from(intervals).unwrap_or(i64::MAX) - INTERVALS_TO_1970;
    let nanos = intervals.rem_euclid(INTERVALS_PER_SECOND) * 100;
    (intervals.div_euclid(INTERVALS_PER_SECOND), nanos)
}

/// Metadata by the names of Unix.
pub(crate) trait MetadataExt {
    fn dev(&self) -> u64;
    fn ino(&self) -> u64;
    fn nlink(&self) -> u64;
    fn mode(&self) -> u32;
    fn uid(&self) -> u32;
    fn gid(&self) -> u32;
    fn blocks(&self) -> u64;
    fn mtime(&self) -> i64;
    fn mtime_nsec(&self) -> i64;
    fn ctime(&self) -> i64;
    fn ctime_nsec(&self) -> i64;
}

impl MetadataExt for Metadata {
    fn dev(&self) -> u64 {
        0
    }

    fn ino(&self) -> u64 {
        self.creation_time()
    }

    fn nlink(&self) -> u64 {
        1
    }

    fn mode(&self) -> u32 {
        match (self.is_dir(), self.permissions().readonly()) {
            (true, _) => 0o700,
            (false, true) => 0o400,
            (false, false) => 0o600,
        }
    }

    fn uid(&self) -> u32 {
        0
    }

    fn gid(&self) -> u32 {
        0
    }

    fn blocks(&self) -> u64 {
        self.len().div_ceil(512)
    }

    fn mtime(&self) -> i64 {
        since_1970(self.last_write_time()).0
    }

    fn mtime_nsec(&self) -> i64 {
        since_1970(self.last_write_time()).1
    }

    fn ctime(&self) -> i64 {
        self.mtime()
    }

    fn ctime_nsec(&self) -> i64 {
        self.mtime_nsec()
    }
}

/// Reading and writing at an offset. The position of the file moves.
pub(crate) trait FileExt {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.seek_read(buffer, offset)
    }

    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.seek_read(buffer, offset) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.seek_write(bytes, offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Permission bits of new files and folders, which Windows has not: a profile's folder belongs to a single
/// user.
pub(crate) trait DirBuilderExt {
    fn mode(&mut self, bits: u32) -> &mut Self;
}

impl DirBuilderExt for fs::DirBuilder {
    fn mode(&mut self, _bits: u32) -> &mut Self {
        self
    }
}

/// As [`DirBuilderExt`].
pub(crate) trait OpenOptionsExt {
    fn mode(&mut self, bits: u32) -> &mut Self;
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, _bits: u32) -> &mut Self {
        self
    }
}

/// Opens an entry of a folder. Times and the write bit of a file that is open for reading can be set, too, if
/// this user may.
pub(crate) fn openat(
    folder: impl AsFd,
    name: impl AsRef<Path>,
    flags: OFlags,
    _mode: Mode,
) -> Result<OwnedFd, Errno> {
    let path = folder.as_fd().below(name);
    let is_folder = flags.contains(OFlags::DIRECTORY);
    let writes = flags.contains(OFlags::RDWR);
    let link = if flags.contains(OFlags::NOFOLLOW) { OPEN_REPARSE_POINT } else { 0 };
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(writes)
        .create(flags.contains(OFlags::CREATE))
        .truncate(flags.contains(OFlags::TRUNC))
        .custom_flags(BACKUP_SEMANTICS | link);
    let file = if writes || is_folder {
        options.open(&path)?
    } else {
        options.clone().access_mode(READ_AND_SET_ATTRIBUTES).open(&path).or_else(|_| options.open(&path))?
    };
    let metadata = file.metadata()?;
    if metadata.is_symlink() {
        return Err(Errno::LOOP);
    }
    if is_folder != metadata.is_dir() {
        return Err(if is_folder { Errno::NOTDIR } else { Errno::ACCESS });
    }
    Ok(OwnedFd { file, path })
}

/// Opens a folder.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    openat(CWD, path, flags, Mode::empty()).map_err(io::Error::from)
}

/// Whether device and inode of a [`Stat`] tell files apart: files that were made together have one time of
/// creation.
pub(crate) const IDENTIFIES_FILES: bool = false;

/// Whether two paths lead to the same existing file, as far as the paths say.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.canonicalize().ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Returns the metadata of an open file or folder.
pub(crate) fn fstat(file: impl AsFd) -> Result<Stat, Errno> {
    Ok(Stat::of(&file.as_fd().metadata()?))
}

/// Returns the metadata of an entry of a folder, or of a link.
pub(crate) fn statat(folder: impl AsFd, name: impl AsRef<Path>, _flags: AtFlags) -> Result<Stat, Errno> {
    Ok(Stat::of(&fs::symlink_metadata(folder.as_fd().below(name))?))
}

/// Makes a folder.
pub(crate) fn mkdirat(folder: impl AsFd, name: impl AsRef<Path>, _mode: Mode) -> Result<(), Errno> {
    Ok(fs::create_dir(folder.as_fd().below(name))?)
}

/// Removes an entry of a folder.
pub(crate) fn unlinkat(folder: impl AsFd, name: impl AsRef<Path>, flags: AtFlags) -> Result<(), Errno> {
    let path = folder.as_fd().below(name);
    if flags.contains(AtFlags::REMOVEDIR) { Ok(fs::remove_dir(path)?) } else { Ok(fs::remove_file(path)?) }
}

/// Renames an entry, and replaces a file of the new name.
pub(crate) fn renameat(
    folder: impl AsFd,
    name: impl AsRef<Path>,
    new_folder: impl AsFd,
    new: impl AsRef<Path>,
) -> Result<(), Errno> {
    Ok(fs::rename(folder.as_fd().below(name), new_folder.as_fd().below(new))?)
}

/// Gives a file another name.
pub(crate) fn linkat(
    folder: impl AsFd,
    name: impl AsRef<Path>,
    new_folder: impl AsFd,
    new: impl AsRef<Path>,
    _flags: AtFlags,
) -> Result<(), Errno> {
    Ok(fs::hard_link(folder.as_fd().below(name), new_folder.as_fd().below(new))?)
}

/// Makes a link to a file. Windows permits links to administrators and in the mode for developers.
pub(crate) fn symlinkat(
    target: impl AsRef<Path>,
    folder: impl AsFd,
    name: impl AsRef<Path>,
) -> Result<(), Errno> {
    Ok(std::os::windows::fs::symlink_file(target, folder.as_fd().below(name))?)
}

/// Target of a link.
pub(crate) struct LinkTarget(String);

impl LinkTarget {
    pub(crate) fn to_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Returns the target of a link.
pub(crate) fn readlinkat(
    folder: impl AsFd,
    name: impl AsRef<Path>,
    _room: Vec<u8>,
) -> Result<LinkTarget, Errno> {
    let target = fs::read_link(folder.as_fd().below(name))?;
    Ok(LinkTarget(target.to_string_lossy().replace('\\', "/")))
}

/// Sets the permission bits: Windows has the write bit alone, and only of files.
pub(crate) fn fchmod(file: impl AsFd, mode: Mode) -> Result<(), Errno> {
    let file = file.as_fd();
    let metadata = file.metadata()?;
    let mut permissions = metadata.permissions();
    let is_readonly = mode.bits & 0o222 == 0;
    if metadata.is_dir() || permissions.readonly() == is_readonly {
        return Ok(());
    }
    permissions.set_readonly(is_readonly);
    match (file.file, file.path) {
        (Some(file), _) => Ok(file.set_permissions(permissions)?),
        (None, Some(path)) => Ok(fs::set_permissions(path, permissions)?),
        (None, None) => Err(Errno::INVAL),
    }
}

/// Sets the times of a file, not of a folder.
pub(crate) fn futimens(file: impl AsFd, times: &Timestamps) -> Result<(), Errno> {
    let file = file.as_fd();
    if file.metadata()?.is_dir() {
        return Ok(());
    }
    let mut set = FileTimes::new();
    if let Some(time) = system_time(times.last_modification) {
        set = set.set_modified(time);
    }
    if let Some(time) = system_time(times.last_access) {
        set = set.set_accessed(time);
    }
    file.file.map_or(Ok(()), |file| Ok(file.set_times(set)?))
}

fn system_time(time: Timespec) -> Option<SystemTime> {
    let nanos = u64::try_from(time.tv_nsec).ok()?;
    let seconds = u64::try_from(time.tv_sec).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds) + Duration::from_nanos(nanos))
}

/// Sets the times of a link: not on this system.
pub(crate) fn utimensat(
    _folder: impl AsFd,
    _name: impl AsRef<Path>,
    _times: &Timestamps,
    _flags: AtFlags,
) -> Result<(), Errno> {
    Ok(())
}

/// Returns the names of the entries of a folder.
pub(crate) fn entries(folder: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let names = fs::read_dir(folder.below(""))?.map(|entry| entry.map(|entry| entry.file_name()));
    Ok(names.collect::<io::Result<_>>()?)
}

/// Locks a file for this process; [`Errno::WOULDBLOCK`] if another process holds the lock.
pub(crate) fn try_lock(file: impl AsFd) -> Result<(), Errno> {
    let Some(file) = file.as_fd().file else { return Err(Errno::OPNOTSUPP) };
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(Errno::WOULDBLOCK),
        Err(fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Returns the free space of a file system. The standard library has no call for this: every space counts as
/// enough, and a full disk shows when written.
pub(crate) fn free_bytes(_folder: impl AsFd) -> Result<u64, Errno> {
    Ok(u64::MAX)
}

/// As [`free_bytes`].
pub(crate) fn free_bytes_of(path: &Path) -> Result<u64, Errno> {
    fs::metadata(path)?;
    Ok(u64::MAX)
}

/// Opens a file for reading.
pub(crate) fn open_to_read(path: &Path, follows: bool) -> io::Result<File> {
    let link = if follows { 0 } else { OPEN_REPARSE_POINT };
    OpenOptions::new().read(true).custom_flags(link).open(path)
}

/// Opens a device: not on this system.
pub(crate) fn open_device(_path: &Path) -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

/// Whether an error says that links lead in a circle.
pub(crate) fn is_circle(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Returns the host's name.
pub(crate) fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok().filter(|name| !name.is_empty())
}

/// Returns standard output, which stays open when the copy is closed.
pub(crate) fn standard_output() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(io::stdout().as_handle().try_clone_to_owned()?.into())
}
