//! Metadata of folders, links and files, as a sender finds the metadata on disk.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::Path;

use headwater_proto::delivery::{
    EntryKind, FileTime, MetadataEntry, Owner, Preserve, RelativePath, SessionMetadata, XATTR_BYTES_MAX,
    XATTRS_MAX, Xattr,
};
use tracing::warn;

use crate::system::files::{self, MetadataExt};

/// Most folders whose modes and times travel by default: some 60 bytes of the compressed FDT for each ten.
const FOLDERS_MAX: usize = 8_192;
/// Longest list of names of attributes, in bytes.
const NAMES_BYTES_MAX: usize = 64 << 10;
/// Bits beside the permission bits: set-user-ID, set-group-ID, sticky.
const SPECIAL_BITS: u32 = 0o7000;

/// Metadata of the paths of a walk.
#[derive(Debug, Default)]
pub(super) struct MetadataCollector {
    preserve: Preserve,
    entries: BTreeMap<RelativePath, MetadataEntry>,
    owners: BTreeMap<RelativePath, Owner>,
    /// Device and inode of files with several names.
    linked: BTreeMap<RelativePath, (u64, u64)>,
}

impl MetadataCollector {
    pub(super) fn new(preserve: Preserve) -> Self {
        Self { preserve, ..Self::default() }
    }

    /// Adds a folder, or a file. The file behind a followed link is no other name of a file.
    pub(super) fn add(&mut self, path: &Path, name: &RelativePath, metadata: &Metadata, is_followed: bool) {
        let is_folder = metadata.is_dir();
        let kind = if is_folder { EntryKind::Folder } else { EntryKind::File };
        let mut entry = self.entry(path, name, metadata, kind);
        let mode = metadata.mode() & 0o7777;
        let has_special_bits = self.preserve.owner && mode & SPECIAL_BITS != 0;
        let mask = if self.preserve.owner { 0o7777 } else { 0o777 };
        entry.mode = Some(mode & mask).filter(|_| has_special_bits || (is_folder && self.preserve.modes));
        entry.modified = modified(metadata).filter(|_| is_folder && self.preserve.times);
        if self.preserve.hardlinks && !is_folder && !is_followed && metadata.nlink() > 1 {
            self.linked.insert(name.clone(), (metadata.dev(), metadata.ino()));
        }
        if entry.is_of_use() {
            self.entries.insert(name.clone(), entry);
        }
    }

    /// Adds a symbolic link with this target.
    pub(super) fn add_link(&mut self, path: &Path, name: &RelativePath, metadata: &Metadata, target: String) {
        let mut entry = self.entry(path, name, metadata, EntryKind::Link(target));
        entry.modified = modified(metadata).filter(|_| self.preserve.times);
        self.entries.insert(name.clone(), entry);
    }

    fn entry(
        &mut self,
        path: &Path,
        name: &RelativePath,
        metadata: &Metadata,
        kind: EntryKind,
    ) -> MetadataEntry {
        if self.preserve.owner {
            self.owners.insert(name.clone(), Owner { user: metadata.uid(), group: metadata.gid() });
        }
        let has_xattrs = self.preserve.xattrs && !matches!(kind, EntryKind::Link(_));
        let xattrs = if has_xattrs { xattrs(path, self.preserve.owner) } else { Vec::new() };
        MetadataEntry { xattrs, ..MetadataEntry::new(name.clone(), kind) }
    }

    /// Returns the other names of files that are in the session by a first name, which `is_file` tells.
    pub(super) fn hard_links(&mut self, is_file: impl Fn(&RelativePath) -> bool) -> Vec<RelativePath> {
        let mut first = BTreeMap::new();
        let mut others = Vec::new();
        for (name, identity) in std::mem::take(&mut self.linked) {
            if !is_file(&name) {
                continue;
            }
            match first.get(&identity) {
                None => drop(first.insert(identity, name)),
                Some(first) => {
                    self.owners.remove(&name);
                    let kind = EntryKind::HardLink(RelativePath::clone(first));
                    self.entries.insert(name.clone(), MetadataEntry::new(name.clone(), kind));
                    others.push(name);
                }
            }
        }
        others
    }

    /// Returns the metadata of the session. The owner of most paths is the owner of the session.
    pub(super) fn finish(mut self) -> SessionMetadata {
        let mut counts = BTreeMap::new();
        self.owners.values().for_each(|owner| *counts.entry(*owner).or_insert(0) += 1);
        let owner = counts.into_iter().max_by_key(|(_, count)| *count).map(|(owner, _)| owner);
        for (name, own) in self.owners.into_iter().filter(|(_, own)| Some(*own) != owner) {
            let new = || MetadataEntry::new(name.clone(), EntryKind::File);
            self.entries.entry(name.clone()).or_insert_with(new).owner = Some(own);
        }
        let folders = self.entries.values().filter(|entry| entry.kind == EntryKind::Folder).count();
        if folders > FOLDERS_MAX && !self.preserve.owner && !self.preserve.xattrs {
            warn!("modes and times of {folders} folders do not travel: {FOLDERS_MAX} are possible");
            self.entries.retain(|_, entry| entry.kind != EntryKind::Folder);
        }
        SessionMetadata { travels: self.preserve, owner, entries: self.entries.into_values().collect() }
    }
}

/// Returns the time of the last modification, if the file system reports a time.
pub(super) fn modified(metadata: &Metadata) -> Option<FileTime> {
    FileTime::new(metadata.mtime(), u32::try_from(metadata.mtime_nsec()).ok()?)
}

/// Returns the extended attributes that may travel. Attributes beyond the limits are left out with a warning.
fn xattrs(path: &Path, has_acls: bool) -> Vec<Xattr> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let Ok(length) = files::listxattr(path, &mut names[..]) else { return Vec::new() };
    let mut xattrs: Vec<Xattr> = Vec::new();
    let mut bytes = 0;
    for name in names[..length].split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok()) {
        if !Xattr::may_travel(name) || (Xattr::is_acl(name) && !has_acls) {
            continue;
        }
        let mut value = vec![0; XATTR_BYTES_MAX];
        let Ok(length) = files::getxattr(path, name, &mut value[..]) else { continue };
        if xattrs.len() == XATTRS_MAX || bytes + length > XATTR_BYTES_MAX {
            warn!(
                "the attribute '{name}' of '{}' does not travel: {XATTRS_MAX} attributes of {XATTR_BYTES_MAX} bytes in all do",
                path.display()
            );
            continue;
        }
        value.truncate(length);
        bytes += length;
        xattrs.push(Xattr { name: name.to_owned(), value });
    }
    xattrs.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    xattrs
}
