//! The destination folder of received files, and its working folder.
//!
//! All names are opened one component at a time below the folder's descriptor, and no symbolic link is
//! followed: no existing or new entry of the folder can lead a file out of the folder.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use headwater_proto::Size;
use headwater_proto::delivery::{FileSpec, FileTime, RESERVED_PREFIX, RelativePath, StoreError};
use tracing::warn;

use super::journal::Stamp;
use super::metadata::{ApplyOptions, MODE_MASK, MetadataRules, is_of, timestamps, timestamps_beside};
use super::names::{FREE_BYTES_MIN, copy_file};
use super::place::{content_name, key_of};
use crate::system::files::{
    self, AsFd, AtFlags, BorrowedFd, CWD, Errno, FileType, Mode, OFlags, OwnedFd, Stat, TIME_UNIT_NANOS,
    bits_of, mode_of,
};

/// Flags to open folders: never through a link.
pub(super) const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Bits of a folder in which its user makes names.
const FOLDER_WRITING: u32 = 0o300;
/// All bits of a mode.
const MODE_ALL: u32 = 0o7777;
/// Permission bits of files without a mode from the sender, before the umask.
const MODE_DEFAULT: u32 = 0o666;
/// Permission bits that the receiver needs for writing.
const MODE_WORKING: u32 = 0o600;
/// Maximum number of receivers at work in one folder, each with a separate working folder.
const RECEIVERS_MAX: usize = 16;
/// Name of the lock file in a working folder.
const LOCK: &str = "lock";
/// Lifetime of an earlier session's content after the last write.
const KEPT: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Whether content with this time of the last write is kept. A time in the future, by a clock that was set
/// back, counts as recent.
pub(super) fn is_recent(written: SystemTime) -> bool {
    SystemTime::now().duration_since(written).is_ok_and(|age| age < KEPT) || written > SystemTime::now()
}

/// Parent folders of files, of which the last one stays open: files of a folder mostly follow each other.
#[derive(Debug)]
pub(super) struct Parents<'f> {
    folder: &'f Folder,
    /// Path of the last parent, and the parent; `None` if the parent is missing.
    last: Option<(String, Option<OwnedFd>)>,
}

impl<'f> Parents<'f> {
    pub(super) fn of(folder: &'f Folder) -> Self {
        Self { folder, last: None }
    }

    /// As [`Folder::check_place`]. Returns whether an older file is in the place.
    pub(super) fn check_place(&mut self, path: &RelativePath) -> Result<bool, StoreError> {
        let above = path.as_str().rsplit_once('/').map(|(above, _)| above);
        let Some(above) = above else {
            return self.folder.check_name(self.folder.out.as_fd(), path, path.as_str());
        };
        if self.last.as_ref().is_none_or(|(last, _)| last != above) {
            self.last = Some((above.to_owned(), self.open(path)?));
        }
        match &self.last {
            Some((_, Some(parent))) => self.folder.check_name(parent.as_fd(), path, split(path).1),
            _ => Ok(false),
        }
    }

    /// Opens the parent of a file; `None` if a folder is missing.
    fn open(&self, path: &RelativePath) -> Result<Option<OwnedFd>, StoreError> {
        let mut folder = None::<OwnedFd>;
        for component in split(path).0 {
            let parent = folder.as_ref().map_or(self.folder.out.as_fd(), OwnedFd::as_fd);
            match files::openat(parent, component, FOLDER, Mode::empty()) {
                Ok(found) => folder = Some(found),
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(self.folder.no_folder(path, component, errno)),
            }
        }
        Ok(folder)
    }
}

/// Member of a bundle in a working file, and its final name, permission bits and time.
#[derive(Debug)]
pub(super) struct MemberFile {
    pub(super) work_name: String,
    pub(super) spec: FileSpec,
}

/// A folder to receive into, and a working folder inside that no other receiver uses meanwhile.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    pub(super) out: OwnedFd,
    pub(super) work: OwnedFd,
    work_name: String,
    pub(super) rules: MetadataRules,
    /// Locked for the lifetime of the `Folder`.
    _lock: OwnedFd,
}

impl Folder {
    /// Opens the folder, created if need be, and the first unused working folder inside, which may hold
    /// content of an earlier session.
    pub(super) fn open(path: &Path, options: ApplyOptions) -> Result<Self, StoreError> {
        let failed = |error: io::Error| {
            StoreError(format!(
                "cannot receive into '{}': {error}; choose a folder that can be written to",
                path.display()
            ))
        };
        std::fs::create_dir_all(path).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let out = files::openat(CWD, path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        for number in 1..=RECEIVERS_MAX {
            let work_name = work_name(number);
            let opened = open_work(out.as_fd(), &work_name).map_err(|errno| failed(errno.into()))?;
            if let Some((work, lock)) = opened {
                remove_forgotten(out.as_fd(), number);
                let rules = MetadataRules::new(options);
                return Ok(Self { path: path.to_owned(), out, work, work_name, rules, _lock: lock });
            }
        }
        Err(StoreError(format!(
            "cannot receive into '{}': {RECEIVERS_MAX} receivers use it; choose another folder",
            path.display()
        )))
    }

    /// Returns the folder's path, as given.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the free space in bytes.
    pub(super) fn free_bytes(&self) -> Result<u64, StoreError> {
        files::free_bytes(&self.out).map_err(|errno| self.failed("ask for the free space", errno))
    }

    /// Opens a working file, created if need be with its final permission bits and the bits that the receiver
    /// needs meanwhile.
    pub(super) fn open_work(&self, name: &str, mode: Option<u32>) -> Result<File, StoreError> {
        let bits = mode.unwrap_or(MODE_DEFAULT) & MODE_MASK | MODE_WORKING;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = files::openat(&self.work, name, flags, mode_of(bits));
        file.map(File::from).map_err(|errno| self.failed("open a working file", errno))
    }

    /// Makes a working file, empty, with its final permission bits.
    pub(super) fn make_work(&self, name: &str, mode: Option<u32>) -> Result<File, StoreError> {
        let bits = mode.unwrap_or(MODE_DEFAULT) & MODE_MASK | MODE_WORKING;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = files::openat(&self.work, name, flags, mode_of(bits));
        file.map(File::from).map_err(|errno| self.failed("make a working file", errno))
    }

    /// Removes a working file, if present.
    pub(super) fn discard(&self, name: &str) -> Result<(), StoreError> {
        match files::unlinkat(&self.work, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("discard a working file", errno)),
        }
    }

    /// Opens an existing working file.
    pub(super) fn find_work(&self, name: &str) -> Option<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        files::openat(&self.work, name, flags, Mode::empty()).ok().map(File::from)
    }

    /// Returns the time of the last write to a working file, if present.
    pub(super) fn changed(&self, name: &str) -> Option<SystemTime> {
        self.find_work(name)?.metadata().ok()?.modified().ok()
    }

    /// Renames a working file, replacing any file of the new name, and syncs the names to disk.
    pub(super) fn rename_work(&self, name: &str, new: &str) -> Result<(), StoreError> {
        files::renameat(&self.work, name, &self.work, new)
            .and_then(|()| sync_folder(self.work.as_fd()))
            .map_err(|errno| self.failed("name a working file", errno))
    }

    /// Syncs the names of working files to disk.
    pub(super) fn sync_work(&self) -> io::Result<()> {
        Ok(sync_folder(self.work.as_fd())?)
    }

    /// Renames a working file, replacing any file of the new name, without a sync: the old file may be there
    /// again after a loss of power.
    pub(super) fn rename_unsafe(&self, name: &str, new: &str) -> Result<(), StoreError> {
        files::renameat(&self.work, name, &self.work, new)
            .map_err(|errno| self.failed("name a working file", errno))
    }

    /// Returns the stamp of the file in this place, to tell whether the file was changed or replaced.
    pub(super) fn stamp(&self, path: &RelativePath) -> Option<Stamp> {
        let (folder, name) = self.find_parent(path)?;
        let folder = folder.as_ref().map_or(self.out.as_fd(), OwnedFd::as_fd);
        let stat = files::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (stat.kind() == FileType::RegularFile).then(|| stamp_of(&stat))
    }

    /// Opens the regular file in this place for reading, if present and readable.
    pub(super) fn find(&self, path: &RelativePath) -> Option<(File, Stamp)> {
        let (folder, name) = self.find_parent(path)?;
        let folder = folder.as_ref().map_or(self.out.as_fd(), OwnedFd::as_fd);
        // Does not wait for the other end of a pipe of this name.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = files::openat(folder, name, flags, Mode::empty()).ok()?;
        let stat = files::fstat(&file).ok()?;
        let is_regular = stat.kind() == FileType::RegularFile;
        is_regular.then(|| (File::from(file), stamp_of(&stat)))
    }

    /// Opens the parent folder of a file, `None` for the destination folder itself. Returns the folder and
    /// the file name.
    pub(super) fn find_parent<'p>(&self, path: &'p RelativePath) -> Option<(Option<OwnedFd>, &'p str)> {
        find_parent(self.out.as_fd(), path)
    }

    /// Gives a file already in place the metadata that publishing would have set. A file with further names,
    /// which may be a snapshot of the user, is not changed: a copy takes this name.
    pub(super) fn adopt(&self, file: &File, spec: &FileSpec) -> Result<(), StoreError> {
        let failed = |errno| self.failed(&format!("inspect '{}'", spec.path), errno);
        let inspect = || files::fstat(file).map_err(failed);
        self.rules.note_early(spec);
        let stat = inspect()?;
        if stat.st_nlink > 1 && self.would_change(file, &stat, spec)? {
            return self.adopt_copy(file, &stat, spec);
        }
        let is_owned = self.rules.apply_owner_and_xattrs(file.as_fd(), &spec.path);
        let stat = inspect()?;
        let bits = self.new_bits(&stat, spec, is_owned)?;
        let mode = bits.map_or(Ok(()), |bits| files::fchmod(file, bits));
        self.rules.apply_acls(file.as_fd(), &spec.path);
        let set_time = |time| files::futimens(file, &timestamps_beside(&stat, time));
        let time = self.new_time(&stat, spec).map_or(Ok(()), set_time);
        self.note_refusal(&spec.path, mode.and(time));
        Ok(())
    }

    /// Notes a mode or a time that the file system did not take.
    pub(super) fn note_refusal(&self, path: &RelativePath, set: Result<(), Errno>) {
        if let Err(errno) = set {
            self.rules.refuse(path, &format!("its mode or time cannot be set: {errno}"));
        }
    }

    /// Whether [`Folder::adopt`] would change a file.
    fn would_change(&self, file: &File, stat: &Stat, spec: &FileSpec) -> Result<bool, StoreError> {
        let owner = self.rules.owner(&spec.path);
        let is_owned = owner.is_some_and(|owner| is_of(stat, owner));
        Ok(is_owned != owner.is_some()
            || self.new_bits(stat, spec, is_owned)?.is_some()
            || self.new_time(stat, spec).is_some()
            || self.rules.has_other_xattrs(file.as_fd(), &spec.path))
    }

    /// Returns the permission bits of a file in place if they differ from the present bits.
    fn new_bits(&self, stat: &Stat, spec: &FileSpec, is_owned: bool) -> Result<Option<Mode>, StoreError> {
        let Some(mode) = self.rules.mode(spec) else { return Ok(None) };
        let mask = if is_owned { MODE_ALL } else { MODE_MASK };
        let differs = |bits: &Mode| stat.st_mode & mask != bits_of(*bits);
        let bits = self.rules.bits(&spec.path, mode, MODE_MASK, is_owned);
        if !differs(&bits) {
            return Ok(None);
        }
        let allowed = self.allowed_bits(&spec.path, mode)?;
        Ok(Some(self.rules.bits(&spec.path, mode, allowed, is_owned)).filter(differs))
    }

    /// Returns the time of a file in place if the time differs from the present time.
    fn new_time(&self, stat: &Stat, spec: &FileSpec) -> Option<FileTime> {
        self.rules
            .modified(spec)
            .filter(|time| !is_time((stat.st_mtime, stat.st_mtime_nsec), *time, TIME_UNIT_NANOS))
    }

    /// Puts a copy with the metadata of the sender in the place of a file.
    fn adopt_copy(&self, file: &File, stat: &Stat, spec: &FileSpec) -> Result<(), StoreError> {
        let bytes = u64::try_from(stat.st_size).unwrap_or_default();
        let free = self.free_bytes()?;
        if free.saturating_sub(FREE_BYTES_MIN) < bytes {
            return Err(no_space(self, &spec.path, bytes, free));
        }
        let name = format!("{}.copy", content_name(&key_of(&spec.path)));
        let copy = self.make_work(&name, self.rules.mode(spec))?;
        let copied = copy_file(file, &copy, bytes).map_err(|error| self.failed("copy a file", error));
        let published = copied.and_then(|()| self.publish(&name, &copy, spec));
        if published.is_err() {
            self.discard(&name)?;
        }
        published.map(|_stamp| ())
    }

    /// Returns the bits of a mode that the umask allows, which shows in a newly made file.
    pub(super) fn allowed_bits(&self, path: &RelativePath, mode: u32) -> Result<u32, StoreError> {
        let probe = format!("{}.mode", content_name(&key_of(path)));
        let made = self.open_work(&probe, Some(mode))?;
        let stat = files::fstat(&made).map_err(|errno| self.failed("inspect a working file", errno));
        self.discard(&probe)?;
        Ok(stat?.st_mode & MODE_MASK)
    }

    /// Removes all entries of the working folder except the names accepted by `keeps`.
    pub(super) fn clean(&self, keeps: impl Fn(&str) -> bool) -> Result<(), Errno> {
        clean(self.work.as_fd(), keeps)
    }

    /// Removes the working folder.
    pub(super) fn remove_work(&self) {
        let removed = remove(self.out.as_fd(), &self.work_name, self.work.as_fd());
        if let Err(error) = removed {
            warn!(folder = %self.work_path().display(), %error, "the working folder could not be removed");
        }
    }

    /// Returns the working folder's path.
    pub(super) fn work_path(&self) -> PathBuf {
        self.path.join(&self.work_name)
    }

    /// Checks that a file may get this name: only folders on the path, and only an older file in its place.
    pub(super) fn check_place(&self, path: &RelativePath) -> Result<(), StoreError> {
        Parents::of(self).check_place(path).map(|_is_there| ())
    }

    /// Gives a working file the permission bits and the time of the final file.
    pub(super) fn set_metadata(&self, file: &File, spec: &FileSpec) -> Result<(), StoreError> {
        let path = &spec.path;
        self.rules.note_early(spec);
        let is_owned = self.rules.apply_owner_and_xattrs(file.as_fd(), path);
        // Bits allowed by both the sender and the umask, which took effect when the file was made.
        let allowed = files::fstat(file).map_err(|errno| self.failed(&format!("inspect '{path}'"), errno))?;
        let bits = self.rules.mode(spec).map(|mode| self.rules.bits(path, mode, allowed.st_mode, is_owned));
        let bits = bits.filter(|bits| allowed.st_mode & MODE_ALL != bits_of(*bits));
        let mode = bits.map_or(Ok(()), |bits| files::fchmod(file, bits));
        self.rules.apply_acls(file.as_fd(), path);
        let time = self.rules.modified(spec);
        let time = time.map_or(Ok(()), |time| files::futimens(file, &timestamps(time)));
        self.note_refusal(path, mode.and(time));
        Ok(())
    }

    /// Gives verified working files their final names. On Linux, one call syncs the content of all to disk
    /// before, and one the names after: with calls for each file or folder, 10 000 files would take minutes.
    pub(super) fn publish_members(&self, members: &[MemberFile]) -> Result<(), StoreError> {
        let failed = |errno: Errno| self.failed("write the members of a bundle", errno);
        if members.is_empty() {
            return Ok(());
        }
        let sync = || files::sync_file_system(&self.work).map_err(failed);
        sync()?;
        // Members of a folder follow each other.
        let mut open: Option<(&str, Option<OwnedFd>)> = None;
        for MemberFile { work_name, spec } in members {
            let path = &spec.path;
            let above = path.as_str().rsplit_once('/').map_or("", |(above, _)| above);
            if open.as_ref().is_none_or(|(opened, _)| *opened != above) {
                open = Some((above, self.make_parents(path, split(path).0, false)?));
            }
            let folder = open.as_ref().and_then(|(_, folder)| folder.as_ref());
            let folder = folder.map_or(self.out.as_fd(), OwnedFd::as_fd);
            let name = split(path).1;
            self.check_name(folder, path, name)?;
            writing(folder, || files::renameat(&self.work, work_name, folder, name))
                .map_err(|errno| self.failed(&format!("name '{path}'"), errno))?;
        }
        sync()
    }

    /// Syncs the content of a working file to disk, then gives the file its final name.
    pub(super) fn publish(&self, work_name: &str, file: &File, spec: &FileSpec) -> Result<Stamp, StoreError> {
        let path = &spec.path;
        let failed = |attempt: &str, error: io::Error| self.failed(&format!("{attempt} '{path}'"), error);
        self.set_metadata(file, spec)?;
        file.sync_all().map_err(|error| failed("write", error))?;
        let (parents, name) = split(path);
        let folder = self.make_parents(path, parents, true)?;
        let folder = folder.as_ref().map_or(self.out.as_fd(), OwnedFd::as_fd);
        self.check_name(folder, path, name)?;
        writing(folder, || files::renameat(&self.work, work_name, folder, name))
            .map_err(|errno| failed("name", errno.into()))?;
        sync_folder(folder).map_err(|errno| failed("write the folder of", errno.into()))?;
        let stat = files::fstat(file).map_err(|errno| failed("inspect", errno.into()))?;
        Ok(stamp_of(&stat))
    }

    /// Makes a folder and its parents as far as need be. Links are not followed.
    pub(super) fn make_folder(&self, path: &RelativePath) -> Result<(), StoreError> {
        self.make_parents(path, path.as_str().split('/'), true).map(|_folder| ())
    }

    /// Returns the error for a refusal by the kernel.
    pub(super) fn failed(&self, attempt: &str, error: impl Into<io::Error>) -> StoreError {
        let error = error.into();
        let folder = self.path.display();
        let advice = match Errno::from_io_error(&error) {
            Some(Errno::NOSPC | Errno::DQUOT) => "free some space, or choose another folder",
            Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files (`ulimit -n`)",
            Some(Errno::FBIG) => "choose a file system that takes files of this size",
            _ => "check the folder and its file system",
        };
        StoreError(format!("cannot {attempt} in '{folder}': {error}; {advice}"))
    }

    /// Opens the parent folder of a file, created as far as need be; `None` for the destination folder
    /// itself. With `syncs`, new names are synced to disk.
    pub(super) fn make_parents<'p>(
        &self,
        path: &RelativePath,
        parents: impl Iterator<Item = &'p str>,
        syncs: bool,
    ) -> Result<Option<OwnedFd>, StoreError> {
        let mut folder = None::<OwnedFd>;
        let mut made = String::new();
        for component in parents {
            let parent = folder.as_ref().map_or(self.out.as_fd(), OwnedFd::as_fd);
            made = if made.is_empty() { component.to_owned() } else { format!("{made}/{component}") };
            let bits = mode_of(self.rules.new_folder_bits(&made));
            match writing(parent, || files::mkdirat(parent, component, bits)) {
                Ok(()) if !syncs => {}
                Ok(()) => sync_folder(parent)
                    .map_err(|errno| self.failed(&format!("write the folder of '{path}'"), errno))?,
                Err(Errno::EXIST) => {}
                Err(errno) => {
                    return Err(self.failed(&format!("make the folder of '{path}'"), errno));
                }
            }
            let found = files::openat(parent, component, FOLDER, Mode::empty());
            folder = Some(found.map_err(|errno| self.no_folder(path, component, errno))?);
        }
        Ok(folder)
    }

    /// Checks that no entry but a regular file would be replaced. Returns whether such a file is there.
    pub(super) fn check_name(
        &self,
        folder: BorrowedFd<'_>,
        path: &RelativePath,
        name: &str,
    ) -> Result<bool, StoreError> {
        match files::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.kind() == FileType::RegularFile => Ok(true),
            // A rename replaces the link itself.
            Ok(stat) if self.rules.options.links && stat.kind() == FileType::Symlink => Ok(false),
            Ok(_) => Err(StoreError(format!(
                "cannot receive '{path}' into '{}': something that is no regular file has this name; move it away",
                self.path.display()
            ))),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed(&format!("look for '{path}'"), errno)),
        }
    }

    fn no_folder(&self, path: &RelativePath, component: &str, errno: Errno) -> StoreError {
        if matches!(errno, Errno::NOTDIR | Errno::LOOP) {
            StoreError(format!(
                "cannot receive '{path}' into '{}': '{component}' is there and is no folder (links are not followed); \
                 move it away",
                self.path.display()
            ))
        } else {
            self.failed(&format!("open the folder of '{path}'"), errno)
        }
    }
}

/// Opens the parent folder of an entry of a folder, without a link on the way; `None` for the folder itself.
/// Returns the parent and the name of the entry.
pub(super) fn find_parent<'p>(
    out: BorrowedFd<'_>,
    path: &'p RelativePath,
) -> Option<(Option<OwnedFd>, &'p str)> {
    let (parents, name) = split(path);
    let mut folder = None::<OwnedFd>;
    for component in parents {
        let parent = folder.as_ref().map_or(out, OwnedFd::as_fd);
        folder = Some(files::openat(parent, component, FOLDER, Mode::empty()).ok()?);
    }
    Some((folder, name))
}

/// Runs an operation that changes the names of a folder. A folder of this user may forbid the user's writes,
/// since the sender's folder does: then the folder permits writes during the operation.
pub(super) fn writing(
    folder: BorrowedFd<'_>,
    operation: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let refused = match operation() {
        Err(Errno::ACCESS) => Err(Errno::ACCESS),
        result => return result,
    };
    let mode = files::fstat(folder)?.st_mode & MODE_ALL;
    let is_open = mode & FOLDER_WRITING == FOLDER_WRITING;
    if is_open || files::fchmod(folder, mode_of(mode | FOLDER_WRITING)).is_err() {
        return refused;
    }
    let result = operation();
    files::fchmod(folder, mode_of(mode))?;
    result
}

/// Whether seconds and nanoseconds are those of a time, on a file system that counts in units.
fn is_time((seconds, nanos): (i64, i64), time: FileTime, unit_nanos: i64) -> bool {
    let units = |nanos: i64| nanos / unit_nanos;
    (seconds, units(nanos)) == (time.seconds(), units(time.nanoseconds().into()))
}

/// Opens a working folder, created if need be; `None` if another receiver uses the folder.
fn open_work(out: BorrowedFd<'_>, name: &str) -> Result<Option<(OwnedFd, OwnedFd)>, Errno> {
    loop {
        match files::mkdirat(out, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let work = match files::openat(out, name, FOLDER, Mode::empty()) {
            // The previous receiver has just removed the folder.
            Err(Errno::NOENT) => continue,
            work => work?,
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = match files::openat(&work, LOCK, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT) => continue,
            lock => lock?,
        };
        match files::try_lock(&lock) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        // The previous holder of the lock may have removed the folder since the open.
        if files::fstat(&lock)?.st_nlink > 0 {
            return Ok(Some((work, lock)));
        }
    }
}

/// Returns the name of a working folder, counted from 1.
fn work_name(number: usize) -> String {
    let suffix = if number == 1 { String::new() } else { format!("-{number}") };
    format!("{RESERVED_PREFIX}work{suffix}")
}

/// Removes the working folders other than `own` that no receiver uses and that are not recent.
fn remove_forgotten(out: BorrowedFd<'_>, own: usize) {
    for name in (1..=RECEIVERS_MAX).filter(|number| *number != own).map(work_name) {
        // While the lock is held, no receiver can begin to use the folder.
        let opened = match files::statat(out, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => open_work(out, &name),
            Err(_) => continue,
        };
        let Ok(Some((work, _lock))) = opened else { continue };
        let removed = match newest(work.as_fd()) {
            Ok(Some(written)) if is_recent(written) => continue,
            Ok(_) => remove(out, &name, work.as_fd()),
            Err(errno) => Err(errno),
        };
        if let Err(error) = removed {
            warn!(folder = name, %error, "an old working folder could not be removed");
        }
    }
}

/// Returns the time of the last write to any entry of a working folder.
fn newest(work: BorrowedFd<'_>) -> Result<Option<SystemTime>, Errno> {
    let mut newest = None;
    for name in files::entries(work)? {
        let stat = files::statat(work, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        let since = u64::try_from(stat.st_mtime).map_or(Duration::ZERO, Duration::from_secs);
        newest = newest.max(Some(SystemTime::UNIX_EPOCH + since));
    }
    Ok(newest)
}

/// Removes a working folder, whose lock is held.
fn remove(out: BorrowedFd<'_>, name: &str, work: BorrowedFd<'_>) -> Result<(), Errno> {
    clean(work, |_| false)?;
    files::unlinkat(work, LOCK, AtFlags::empty())?;
    files::unlinkat(out, name, AtFlags::REMOVEDIR)
}

/// Removes all entries of a working folder except its lock and the names accepted by `keeps`.
fn clean(work: BorrowedFd<'_>, keeps: impl Fn(&str) -> bool) -> Result<(), Errno> {
    for name in files::entries(work)? {
        if !name.to_str().is_some_and(|name| name == LOCK || keeps(name)) {
            files::unlinkat(work, name.as_os_str(), AtFlags::empty())?;
        }
    }
    Ok(())
}

fn stamp_of(stat: &Stat) -> Stamp {
    Stamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        bytes: u64::try_from(stat.st_size).unwrap_or_default(),
        changed: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
    }
}

/// Syncs the names in a folder to disk. Some file systems cannot, and need not.
fn sync_folder(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    match files::fsync(folder) {
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::BADF) => Ok(()),
        result => result,
    }
}

pub(super) fn split(path: &RelativePath) -> (impl Iterator<Item = &str>, &str) {
    let (parents, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
    (parents.split('/').filter(|component| !component.is_empty()), name)
}

/// Returns the error for missing space: the bytes needed and the bytes free.
pub(super) fn no_space(folder: &Folder, path: &RelativePath, needed: u64, free: u64) -> StoreError {
    StoreError(format!(
        "cannot receive '{path}': the files announced need {} more in '{}', where {} are free; free some space, or \
         choose another folder",
        Size(needed),
        folder.path().display(),
        Size(free)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_in_units_of_the_file_system() {
        let time = FileTime::new(7, 123_456_789).unwrap();
        assert!(is_time((7, 123_456_789), time, 1) && !is_time((7, 123_456_700), time, 1));
        assert!(is_time((7, 123_456_700), time, 100));
        assert!(!is_time((7, 123_456_800), time, 100) && !is_time((8, 123_456_700), time, 100));
    }
}
