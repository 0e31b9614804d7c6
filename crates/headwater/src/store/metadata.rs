//! Metadata of files, folders and links at a receiver.
//!
//! The sender's options say what travels, and the receiver's options say what is applied: owners, extended
//! attributes and the bits set-user-ID, set-group-ID and sticky never without a request of the receiver's
//! user. Files get their metadata before their names. Links and the metadata of folders follow once all files
//! are in place, since each new name changes the time of a folder, and nothing is written below a link.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use headwater_proto::delivery::{
    EntryKind, FileIndex, FileSpec, FileTime, MetadataEntry, MetadataError, MetadataFault, Owner, Preserve,
    RelativePath, SessionMetadata, Xattr,
};
use tracing::{debug, warn};

use crate::system::files::{
    self, BorrowedFd, Errno, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, mode_of,
};

/// Bits that need the receiver's request: set-user-ID, set-group-ID, sticky.
const SPECIAL_BITS: u32 = 0o7000;
/// Permission bits that a sender may set.
pub(super) const MODE_MASK: u32 = 0o777;
/// Bits of a folder that the receiver needs during a session.
const FOLDER_WORKING: u32 = 0o700;
/// Most failures that are reported by name.
const FAULTS_MAX: usize = 64;
/// Longest list of names of extended attributes, in bytes.
const NAMES_BYTES_MAX: usize = 64 << 10;
/// Longest value of an extended attribute, in bytes.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Metadata that a receiver applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApplyOptions {
    pub(crate) preserve: Preserve,
    /// Whether symbolic links are made.
    pub(crate) links: bool,
}

/// Name that was made at the end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MadeName {
    pub(crate) path: RelativePath,
    /// File with the name and its length; `None` for a symbolic link.
    pub(crate) file: Option<(FileIndex, u64)>,
    /// Whether the name was there before.
    pub(crate) is_present: bool,
}

/// Names made at the end of a session, for the session's user.
#[derive(Clone, Debug, Default)]
pub(crate) struct MadeNames(Arc<Mutex<Vec<MadeName>>>);

impl MadeNames {
    /// Removes and returns the names.
    pub(crate) fn take(&self) -> Vec<MadeName> {
        std::mem::take(&mut *lock(&self.0))
    }

    pub(super) fn add(&self, name: MadeName) {
        lock(&self.0).push(name);
    }
}

/// Metadata of a session, and the receiver's choice. Memory: the entries of one FDT, and the names of files
/// that were in place before the FDT was whole.
#[derive(Debug, Default)]
pub(super) struct MetadataRules {
    pub(super) options: ApplyOptions,
    session: OnceLock<SessionMetadata>,
    /// Files in place whose owner and attributes were not known.
    early: Mutex<Vec<FileSpec>>,
    faults: Mutex<Vec<(String, String)>>,
    /// Number of failures beyond those in `faults`.
    further_faults: AtomicUsize,
    /// First mode or time that the file system did not take, and number of files and folders of this kind.
    refused: Mutex<Option<(String, usize)>>,
    pub(super) made: MadeNames,
}

/// Nothing under these locks can panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MetadataRules {
    pub(super) fn new(options: ApplyOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Takes the metadata of the session. Refused entries count if the receiver applies metadata of the kind;
    /// a later version may have other kinds.
    pub(super) fn describe(&self, metadata: SessionMetadata, faults: Vec<MetadataFault>) {
        let Preserve { modes, times, owner, xattrs, .. } = self.options.preserve;
        for MetadataFault { name, reason } in faults {
            let counts = match reason {
                MetadataError::Kind => false,
                MetadataError::LinkOut(_) | MetadataError::Target => self.options.links,
                MetadataError::Mode => modes,
                MetadataError::Time => times,
                MetadataError::Owner => owner,
                MetadataError::Xattrs | MetadataError::XattrName(_) => xattrs,
                MetadataError::Name(_) | MetadataError::Twice | MetadataError::HardLinkTarget => true,
            };
            if counts {
                self.fail(&name, &reason.to_string());
            } else {
                debug!("metadata of {name:?} is ignored: {reason}");
            }
        }
        self.session.get_or_init(|| metadata);
    }

    /// Returns the kinds that are applied.
    pub(super) fn kinds(&self) -> Preserve {
        let travels = self.session.get().map_or_else(Preserve::default, |session| session.travels);
        self.options.preserve.and(travels)
    }

    pub(super) fn session(&self) -> Option<&SessionMetadata> {
        self.session.get()
    }

    /// Notes metadata that could not be applied.
    pub(super) fn fail(&self, name: &str, reason: &str) {
        let mut faults = lock(&self.faults);
        if faults.len() < FAULTS_MAX {
            faults.push((name.to_owned(), reason.to_owned()));
        } else {
            self.further_faults.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes a mode or a time that could not be set: a failure if the user has asked for the sender's owners
    /// and special bits, else a warning at the end. File systems of other systems (CIFS, vfat) keep neither.
    pub(super) fn refuse(&self, path: &RelativePath, reason: &str) {
        if self.kinds().owner {
            return self.fail(path.as_str(), reason);
        }
        let first = || (format!("'{path}': {reason}"), 0);
        lock(&self.refused).get_or_insert_with(first).1 += 1;
    }

    /// Warns of modes and times that could not be set. Removes and returns the failures, with one entry for
    /// those beyond [`FAULTS_MAX`].
    pub(super) fn take_faults(&self) -> Vec<(String, String)> {
        if let Some((first, count)) = lock(&self.refused).take() {
            warn!(
                "modes or times of {count} files and folders could not be set, such as {first}; their content is \
                 whole; --preserve none leaves both to the file system"
            );
        }
        let mut faults = std::mem::take(&mut *lock(&self.faults));
        let further = self.further_faults.swap(0, Ordering::Relaxed);
        if further > 0 {
            faults.push(("further names".to_owned(), format!("{further} more failures are not named")));
        }
        faults
    }

    pub(super) fn take_early(&self) -> Vec<FileSpec> {
        std::mem::take(&mut *lock(&self.early))
    }

    /// Notes a file in place that gets owner and attributes once the metadata of the session is known.
    pub(super) fn note_early(&self, spec: &FileSpec) {
        if self.session.get().is_none() {
            self.note_resumed(spec);
        }
    }

    /// Notes a file in place that gets owner and attributes at the end: an earlier receiver may have stopped
    /// before.
    pub(super) fn note_resumed(&self, spec: &FileSpec) {
        let Preserve { owner, xattrs, .. } = self.options.preserve;
        if owner || xattrs {
            lock(&self.early).push(spec.clone());
        }
    }

    /// Returns the mode that a file gets, as far as the sender's mode is applied.
    pub(super) fn mode(&self, spec: &FileSpec) -> Option<u32> {
        spec.mode.filter(|_| self.kinds().modes)
    }

    /// Returns the time that a file gets.
    pub(super) fn modified(&self, spec: &FileSpec) -> Option<FileTime> {
        spec.modified.filter(|time| self.kinds().times && time.is_within_calendar())
    }

    /// Returns the permission bits of a new folder: until the end of the session nobody gets more rights than
    /// at the end, and the receiver can write.
    pub(super) fn new_folder_bits(&self, name: &str) -> u32 {
        let path = RelativePath::new(name).ok().filter(|_| self.kinds().modes);
        let entry = path.and_then(|path| self.entry(&path)).filter(|entry| entry.kind == EntryKind::Folder);
        entry.and_then(|entry| entry.mode).map_or(MODE_MASK, |mode| mode & MODE_MASK | FOLDER_WORKING)
    }

    fn entry(&self, path: &RelativePath) -> Option<&MetadataEntry> {
        let entries = &self.session.get()?.entries;
        entries.binary_search_by(|entry| entry.path.cmp(path)).ok().map(|found| &entries[found])
    }

    /// Returns the permission bits of a file or folder: those of the sender if the file is of the sender's
    /// owner (`is_owned`), else the `allowed` bits among those of the sender.
    pub(super) fn bits(&self, path: &RelativePath, mode: u32, allowed: u32, is_owned: bool) -> Mode {
        let special = self.entry(path).and_then(|entry| entry.mode).unwrap_or(0) & SPECIAL_BITS;
        mode_of(if is_owned { mode & MODE_MASK | special } else { allowed & mode & MODE_MASK })
    }

    pub(super) fn owner(&self, path: &RelativePath) -> Option<Owner> {
        let own = self.entry(path).and_then(|entry| entry.owner);
        own.or(self.session.get()?.owner).filter(|_| self.kinds().owner)
    }

    /// Gives a file or folder owner and attributes, before the mode: a change of the owner clears bits of the
    /// mode, and a mode may forbid attributes. A failure is noted by name. Returns whether the owner is the
    /// sender's.
    pub(super) fn apply_owner_and_xattrs(&self, file: BorrowedFd<'_>, path: &RelativePath) -> bool {
        if self.kinds().xattrs {
            let wanted = self.entry(path).map_or(&[][..], |entry| &entry.xattrs);
            self.apply_xattrs(file, path, wanted);
        }
        let Some(owner) = self.owner(path) else { return false };
        let is_owned = || files::fstat(file).is_ok_and(|stat| is_of(&stat, owner));
        if is_owned() {
            return true;
        }
        let Owner { user, group } = owner;
        match files::fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group))) {
            Ok(()) => is_owned(),
            Err(errno) => {
                self.fail(path.as_str(), &cannot_own(user, group, errno));
                false
            }
        }
    }

    /// Whether a file lacks attributes that the sender's file has, or has further attributes.
    pub(super) fn has_other_xattrs(&self, file: BorrowedFd<'_>, path: &RelativePath) -> bool {
        let Preserve { owner, xattrs, .. } = self.kinds();
        if !xattrs {
            return false;
        }
        let wanted = self.entry(path).map_or(&[][..], |entry| &entry.xattrs);
        let mut room = vec![0; VALUE_BYTES_MAX];
        let mut is_set = |xattr: &Xattr| {
            let read = files::fgetxattr(file, &*xattr.name, &mut room[..]);
            read.is_ok_and(|length| room[..length] == xattr.value)
        };
        let mut applied = wanted.iter().filter(|xattr| owner || !Xattr::is_acl(&xattr.name));
        let is_wanted = |name: &String| wanted.iter().any(|xattr| xattr.name == *name);
        !applied.all(&mut is_set) || !user_xattrs(file).iter().all(is_wanted)
    }

    fn apply_xattrs(&self, file: BorrowedFd<'_>, path: &RelativePath, wanted: &[Xattr]) {
        let is_user = |xattr: &&Xattr| !Xattr::is_acl(&xattr.name);
        for name in user_xattrs(file) {
            if !wanted.iter().any(|xattr| xattr.name == name) {
                let _gone_or_refused = files::fremovexattr(file, &*name);
            }
        }
        for Xattr { name, value } in wanted.iter().filter(is_user) {
            self.set_xattr(file, path, name, value);
        }
    }

    /// Sets access control lists, after the mode, which is a part of the list.
    pub(super) fn apply_acls(&self, file: BorrowedFd<'_>, path: &RelativePath) {
        let Preserve { owner, xattrs, .. } = self.kinds();
        let entry = self.entry(path).filter(|_| owner && xattrs);
        for Xattr { name, value } in entry.iter().flat_map(|entry| &entry.xattrs) {
            if Xattr::is_acl(name) {
                self.set_xattr(file, path, name, value);
            }
        }
    }

    fn set_xattr(&self, file: BorrowedFd<'_>, path: &RelativePath, name: &str, value: &[u8]) {
        if let Err(errno) = files::fsetxattr(file, name, value, XattrFlags::empty()) {
            let why = format!("its extended attribute '{name}' cannot be set: {errno}");
            self.fail(path.as_str(), &why);
        }
    }
}

/// Whether a file is of this owner.
pub(super) fn is_of(stat: &Stat, owner: Owner) -> bool {
    (stat.st_uid, stat.st_gid) == (owner.user, owner.group)
}

/// Returns the reason for which an owner was not set.
pub(super) fn cannot_own(user: u32, group: u32, errno: Errno) -> String {
    let advice = if errno == Errno::PERM { "; only root may give files to other users" } else { "" };
    format!("its owner cannot be {user}:{group}: {errno}{advice}")
}

/// Returns the names of the attributes of users.
fn user_xattrs(file: BorrowedFd<'_>) -> Vec<String> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let length = files::flistxattr(file, &mut names[..]).unwrap_or(0);
    let names = names[..length].split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    names.filter(|name| Xattr::may_travel(name) && !Xattr::is_acl(name)).map(str::to_owned).collect()
}

/// Returns times that set the last modification, and set the last access to what it is: a change of one time
/// alone shows to watchers as a change of content.
pub(super) fn timestamps_beside(stat: &Stat, time: FileTime) -> Timestamps {
    let accessed = Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec };
    Timestamps { last_access: accessed, ..timestamps(time) }
}

/// Returns times that set the last modification, and leave the last access.
pub(super) fn timestamps(time: FileTime) -> Timestamps {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let modified = Timespec { tv_sec: time.seconds(), tv_nsec: time.nanoseconds().into() };
    Timestamps { last_access: omitted, last_modification: modified }
}
