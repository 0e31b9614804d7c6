//! Last step of a session: names that are no files of their own, and the metadata of folders.
//!
//! Order: owners and attributes that came late, hard links, symbolic links, folders. Every name is opened
//! below the folder without following a link. A link is made in the working folder and renamed, so that a
//! watcher sees a whole link.

use std::collections::BTreeSet;
use std::io::Read;

use headwater_proto::delivery::{
    EntryKind, FileIndex, FileSpec, MetadataEntry, Owner, RelativePath, StoreError,
};
use tracing::{debug, warn};

use super::folder::{FOLDER, Folder, no_space, split, writing};
use super::metadata::{MODE_MASK, MadeName, cannot_own, timestamps, timestamps_beside};
use super::place::{Places, write_around_holes};
use crate::system::files::{
    self, AsFd, AtFlags, BorrowedFd, Errno, Gid, Mode, OwnedFd, Uid, bits_of, mode_of,
};
use crate::system::read_at;

/// Name in the working folder of a link before its final name.
const LINK: &str = "link";
/// Bits that a receiver without privileges needs to read a folder again.
const FOLDER_BITS_MIN: u32 = 0o500;
/// Bytes that are compared or copied at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Space that copies leave free, in bytes.
pub(super) const FREE_BYTES_MIN: u64 = 16 << 20;

/// Further name of a file, and the file's name.
type HardLinkName<'a> = (&'a RelativePath, &'a RelativePath);

/// Reason for which a name is not made.
type Refused = String;

fn hard_link(entry: &MetadataEntry) -> Option<HardLinkName<'_>> {
    if let EntryKind::HardLink(target) = &entry.kind { Some((&entry.path, target)) } else { None }
}

impl Places {
    /// Makes the names that the session's metadata has, and applies the metadata of folders. `placed` has the
    /// files in place. Returns names and reasons of failures.
    pub(super) fn finish_metadata(&self, placed: &BTreeSet<FileIndex>) -> Vec<(String, String)> {
        let rules = &self.folder.rules;
        let Some(session) = rules.session() else { return rules.take_faults() };
        for spec in rules.take_early() {
            let found = self.folder.find(&spec.path);
            let adopted = found.map_or(Ok(()), |(file, _)| self.folder.adopt(&file, &spec));
            adopted.unwrap_or_else(|error| rules.fail(spec.path.as_str(), &error.0));
        }
        let wanted = |entry: &&MetadataEntry| self.unpacking.selection.wants(&entry.path);
        let names: Vec<_> = session.entries.iter().filter(wanted).filter_map(hard_link).collect();
        self.make_hard_links(&names, session.travels.hardlinks, placed);
        for entry in session.entries.iter().filter(wanted).filter(|_| rules.options.links) {
            if let EntryKind::Link(target) = &entry.kind {
                let made = self.make_link(entry, target).map(Some);
                self.report(&entry.path, made);
            }
        }
        // Folders below come first: their own bits may forbid the way.
        for entry in session.entries.iter().rev().filter(wanted) {
            if entry.kind == EntryKind::Folder {
                self.folder.apply_to_folder(entry);
            }
        }
        rules.take_faults()
    }

    fn report(&self, path: &RelativePath, made: Result<Option<MadeName>, Refused>) {
        match made {
            Ok(Some(made)) => self.folder.rules.made.add(made),
            Ok(None) => {}
            Err(why) => self.folder.rules.fail(path.as_str(), &why),
        }
    }

    fn refuse_taken(&self, path: &RelativePath) -> Result<(), Refused> {
        match self.unpacking.owner_of(path) {
            Some(_) => Err("it is a link with the name of a file of the session".to_owned()),
            None => Ok(()),
        }
    }

    /// Gives files of the session further names. Where the sum of all copies lacks space, all are refused.
    fn make_hard_links(&self, names: &[HardLinkName<'_>], travels: bool, placed: &BTreeSet<FileIndex>) {
        let rules = &self.folder.rules;
        let (mut copied, mut room) = (0, Ok(()));
        if !rules.kinds().hardlinks {
            copied = names.iter().map(|name| self.copied_bytes(*name)).fold(0, u64::saturating_add);
            room = self.check_copies(names, copied);
        }
        for (path, target) in names {
            if !self.unpacking.selection.wants(target) {
                warn!("'{path}' is a hard link to '{target}', which is not selected; select both");
                continue;
            }
            let made = if !travels {
                Err("it is a hard link in a session without hard links".to_owned())
            } else if self.is_stopped() {
                Err("it is a hard link, and the receiver was stopped before; start the receiver again".into())
            } else {
                room.clone().and_then(|()| self.make_hard_link(path, target, placed)).map(Some)
            };
            self.report(path, made);
        }
        debug!("further names of files took copies of at most {copied} bytes");
    }

    /// Returns the room on disk that a copy of a file takes; 0 if a file of the same length has the name.
    fn copied_bytes(&self, (path, target): HardLinkName<'_>) -> u64 {
        let bytes = |path| self.folder.stamp(path).map(|stamp| stamp.bytes);
        let length = bytes(target);
        let is_there = length.is_some() && bytes(path) == length;
        let content = self.folder.find(target).filter(|_| !is_there);
        let room = content.and_then(|(content, _)| files::fstat(&content).ok());
        room.map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512))
    }

    fn check_copies(&self, names: &[HardLinkName<'_>], bytes: u64) -> Result<(), Refused> {
        let free = self.folder.free_bytes().map_err(|error| error.0)?;
        match names.first() {
            Some((path, _)) if free.saturating_sub(FREE_BYTES_MIN) < bytes => {
                Err(no_space(&self.folder, path, bytes, free).0)
            }
            _ => Ok(()),
        }
    }

    /// Gives a file of the session another name: a hard link if wanted, else a copy.
    fn make_hard_link(
        &self,
        path: &RelativePath,
        target: &RelativePath,
        placed: &BTreeSet<FileIndex>,
    ) -> Result<MadeName, Refused> {
        self.refuse_taken(path)?;
        let file = self.unpacking.owner_of(target).filter(|file| placed.contains(file));
        let found = file.and_then(|file| Some((file, self.folder.find(target)?)));
        let Some((file, (content, stamp))) = found else {
            return Err(format!("it is a hard link to '{target}', which was not received"));
        };
        let folder = &self.folder;
        let made =
            |is_present| Ok(MadeName { path: path.clone(), file: Some((file, stamp.bytes)), is_present });
        let old = folder.find(path);
        if folder.rules.kinds().hardlinks {
            if old.is_some_and(|(_, old)| old.is_same_file(&stamp)) {
                return made(true);
            }
            folder.replace(path, |work| {
                let (parent, name) = folder.find_parent(target).ok_or(Errno::NOENT)?;
                let parent = parent.as_ref().map_or(folder.out.as_fd(), OwnedFd::as_fd);
                files::linkat(parent, name, work, LINK, AtFlags::empty())?;
                let linked = files::statat(work, LINK, AtFlags::SYMLINK_NOFOLLOW)?;
                if (linked.st_dev, linked.st_ino) == (stamp.device, stamp.inode) {
                    Ok(())
                } else {
                    Err(Errno::AGAIN)
                }
            })?;
            return made(false);
        }
        let stat = files::fstat(&content).map_err(|errno| errno.to_string())?;
        let modified = headwater_proto::delivery::FileTime::new(
            stat.st_mtime,
            u32::try_from(stat.st_mtime_nsec).unwrap_or_default(),
        );
        let mode = Some(stat.st_mode & MODE_MASK);
        let spec = FileSpec { mode, modified, ..FileSpec::new(path.clone(), stamp.bytes) };
        let failed = |error: StoreError| error.0;
        if let Some((old, old_stamp)) = old
            && old_stamp.bytes == stamp.bytes
            && !old_stamp.is_same_file(&stamp)
            && is_same(&content, &old)
        {
            folder.adopt(&old, &spec).map_err(failed)?;
            return made(true);
        }
        let free = folder.free_bytes().map_err(failed)?;
        if free.saturating_sub(FREE_BYTES_MIN) < stamp.bytes {
            return Err(no_space(folder, path, stamp.bytes, free).0);
        }
        let copy = folder.make_work(LINK, mode).map_err(failed)?;
        copy_file(&content, &copy, stamp.bytes).map_err(|error| folder.failed("copy a file", error).0)?;
        folder.publish(LINK, &copy, &spec).map_err(failed)?;
        made(false)
    }

    fn make_link(&self, entry: &MetadataEntry, target: &str) -> Result<MadeName, Refused> {
        let (folder, path) = (&self.folder, &entry.path);
        self.refuse_taken(path)?;
        let old = folder.find_parent(path).and_then(|(parent, name)| {
            let parent = parent.as_ref().map_or(folder.out.as_fd(), OwnedFd::as_fd);
            files::readlinkat(parent, name, Vec::new()).ok()
        });
        let is_present = old.is_some_and(|old| old.to_bytes() == target.as_bytes());
        let owner = folder.rules.owner(path);
        let finish = |parent: BorrowedFd<'_>, name: &str| {
            if let Some(Owner { user, group }) = owner {
                let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                if let Err(errno) = files::chownat(parent, name, Some(user), Some(group), flags) {
                    folder.rules.fail(path.as_str(), &cannot_own(user.as_raw(), group.as_raw(), errno));
                }
            }
            if let Some(time) = entry.modified.filter(|_| folder.rules.kinds().times) {
                let times = timestamps(time);
                folder.note_refusal(path, files::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW));
            }
        };
        if is_present {
            let (parent, name) = folder.find_parent(path).ok_or("its folder is gone")?;
            let parent = parent.as_ref().map_or(folder.out.as_fd(), OwnedFd::as_fd);
            finish(parent, name);
        } else {
            let native = files::native_target(target)
                .ok_or_else(|| format!("it is a link to '{target}', which is no path on this system"))?;
            folder.replace(path, |work| {
                files::symlinkat(&*native, work, LINK)?;
                finish(work, LINK);
                Ok(())
            })?;
        }
        Ok(MadeName { path: path.clone(), file: None, is_present })
    }
}

impl Folder {
    /// Makes an entry in the working folder, and moves the entry to its final name. A file or a link of that
    /// name is replaced; a folder is not.
    fn replace(
        &self,
        path: &RelativePath,
        make: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Refused> {
        let (parents, name) = split(path);
        let parent = self.make_parents(path, parents, true).map_err(|error| error.0)?;
        let parent = parent.as_ref().map_or(self.out.as_fd(), OwnedFd::as_fd);
        self.check_name(parent, path, name).map_err(|error| error.0)?;
        self.discard(LINK).map_err(|error| error.0)?;
        let made = make(self.work.as_fd())
            .and_then(|()| writing(parent, || files::renameat(&self.work, LINK, parent, name)));
        // A rename between two names of a file does nothing.
        self.discard(LINK).map_err(|error| error.0)?;
        made.map_err(|errno| self.failed(&format!("make the link '{path}'"), errno).0)
    }

    /// Gives a folder owner, attributes, mode and time, in this order; a folder that is not there stays so.
    /// The folder may be of another user, who lets this user write.
    fn apply_to_folder(&self, entry: &MetadataEntry) {
        let path = &entry.path;
        let Some((parent, name)) = self.find_parent(path) else { return };
        let parent = parent.as_ref().map_or(self.out.as_fd(), OwnedFd::as_fd);
        let Ok(folder) = files::openat(parent, name, FOLDER, Mode::empty()) else { return };
        let (rules, kinds) = (&self.rules, self.rules.kinds());
        let is_owned = rules.apply_owner_and_xattrs(folder.as_fd(), path);
        let stat = match files::fstat(&folder) {
            Ok(stat) => stat,
            Err(errno) => return self.note_refusal(path, Err(errno)),
        };
        let mut set = Ok(());
        if let Some(mode) = entry.mode.filter(|_| kinds.modes) {
            let mut bits = rules.bits(path, mode, self.umask_allows(), is_owned);
            if !files::is_superuser() {
                bits |= mode_of(FOLDER_BITS_MIN);
            }
            let mask = if is_owned { 0o7777 } else { MODE_MASK };
            if stat.st_mode & mask != bits_of(bits) & mask {
                // Inherited bits of the group stay.
                let kept = stat.st_mode & 0o7777 & !mask;
                set = files::fchmod(&folder, bits | mode_of(kept));
            }
        }
        rules.apply_acls(folder.as_fd(), path);
        if let Some(time) = entry.modified.filter(|_| kinds.times) {
            set = set.and(files::futimens(&folder, &timestamps_beside(&stat, time)));
        }
        self.note_refusal(path, set);
    }

    /// Returns the permission bits that the umask allows.
    fn umask_allows(&self) -> u32 {
        let made = self.make_work(LINK, Some(MODE_MASK));
        let allowed = made.ok().and_then(|made| files::fstat(&made).ok());
        let _kept = self.discard(LINK);
        allowed.map_or(0o755, |stat| stat.st_mode & MODE_MASK)
    }
}

/// Copies a file, which shares its blocks where the file system can, and keeps holes otherwise.
pub(super) fn copy_file(from: &std::fs::File, to: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    if files::share_blocks(to, from).is_ok() {
        return Ok(());
    }
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).map_or(chunk.len(), |rest| rest.min(chunk.len()));
        read_at(from, &mut chunk[..length], at)?;
        write_around_holes(to, &chunk[..length], at)?;
        at += length as u64;
    }
    to.set_len(bytes)
}

/// Whether two newly opened files have the same bytes.
fn is_same(one: &std::fs::File, other: &std::fs::File) -> bool {
    let (mut one, mut other) = (one, other);
    let (mut first, mut second) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut compare = || -> std::io::Result<bool> {
        loop {
            let count = one.read(&mut first)?;
            if count == 0 {
                return Ok(other.read(&mut second)? == 0);
            }
            if other.read_exact(&mut second[..count]).is_err() || first[..count] != second[..count] {
                return Ok(false);
            }
        }
    };
    compare().unwrap_or(false)
}
