//! Metadata of a session beyond the mode and time of files: folders, links, owners, extended attributes.
//!
//! The FDT carries an element for each entry. A receiver trusts nothing of an entry: an entry that cannot be
//! read, or that could lead out of the folder, is refused by name, and other entries are used.

mod parse;
#[cfg(test)]
mod tests;

use core::fmt;

use headwater_wire::fdt::{Entry, FileTime, Instance};

pub use self::parse::{MetadataError, MetadataFault, check_link_target};
use super::name::{RelativePath, percent_encode};

/// Most extended attributes of an entry.
pub const XATTRS_MAX: usize = 64;
/// Longest value of an extended attribute in bytes, and of all values of an entry: the limit of Linux.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Longest name of an extended attribute in bytes, the limit of Linux.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest target of a link in bytes.
pub const TARGET_BYTES_MAX: usize = 4_095;
/// Beginning of the names of extended attributes that may travel.
pub const USER_XATTRS: &str = "user.";
/// Access control lists, which travel with owners.
pub const ACL_XATTRS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Kinds of metadata: of a sender, the kinds that travel; of a receiver, the kinds that are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent kinds, each on or off")]
pub struct Preserve {
    /// Permission bits.
    pub modes: bool,
    /// Times of the last modification.
    pub times: bool,
    /// Folders without files.
    pub empty: bool,
    /// Numeric user and group, the bits set-user-ID, set-group-ID and sticky, and access control lists.
    pub owner: bool,
    /// Extended attributes of users.
    pub xattrs: bool,
    /// Several names of a file.
    pub hardlinks: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Self { modes: true, times: true, empty: true, owner: false, xattrs: false, hardlinks: false }
    }
}

impl Preserve {
    /// No kind.
    pub const NOTHING: Self =
        Self { modes: false, times: false, empty: false, owner: false, xattrs: false, hardlinks: false };
    /// Every kind.
    pub const ALL: Self =
        Self { modes: true, times: true, empty: true, owner: true, xattrs: true, hardlinks: true };

    /// Returns the kinds of both sides.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            modes: self.modes && other.modes,
            times: self.times && other.times,
            empty: self.empty && other.empty,
            owner: self.owner && other.owner,
            xattrs: self.xattrs && other.xattrs,
            hardlinks: self.hardlinks && other.hardlinks,
        }
    }

    /// Adds a kind by name. Returns false if the name is unknown.
    pub fn add(&mut self, name: &str) -> bool {
        match name {
            "modes" => self.modes = true,
            "times" => self.times = true,
            "empty" => self.empty = true,
            "owner" => self.owner = true,
            "xattrs" => self.xattrs = true,
            "hardlinks" => self.hardlinks = true,
            _ => return false,
        }
        true
    }

    /// Reads names separated by spaces; unknown names are ignored.
    fn of_names(names: &str) -> Self {
        let mut preserve = Self::NOTHING;
        for name in names.split(' ') {
            let _known = preserve.add(name);
        }
        preserve
    }
}

impl fmt::Display for Preserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            ("modes", self.modes),
            ("times", self.times),
            ("empty", self.empty),
            ("owner", self.owner),
            ("xattrs", self.xattrs),
            ("hardlinks", self.hardlinks),
        ];
        let names: Vec<_> = names.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
        f.write_str(&names.join(" "))
    }
}

/// Numeric user and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// User.
    pub user: u32,
    /// Group.
    pub group: u32,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.user, self.group)
    }
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file of the session.
    File,
    /// A folder.
    Folder,
    /// A symbolic link with this target, which [`check_link_target`] accepts.
    Link(String),
    /// Another name of this file of the session.
    HardLink(RelativePath),
}

/// Extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Name: begins with [`USER_XATTRS`], or is one of [`ACL_XATTRS`].
    pub name: String,
    /// Value.
    pub value: Vec<u8>,
}

impl Xattr {
    /// Whether an attribute of this name may travel.
    pub fn may_travel(name: &str) -> bool {
        let is_user = name.strip_prefix(USER_XATTRS).is_some_and(|rest| !rest.is_empty());
        (is_user || Self::is_acl(name)) && name.len() <= XATTR_NAME_BYTES_MAX && !name.contains('\0')
    }

    /// Whether an attribute is an access control list.
    pub fn is_acl(name: &str) -> bool {
        ACL_XATTRS.contains(&name)
    }
}

/// Metadata of a folder, a link or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataEntry {
    /// Name below the receiver's folder.
    pub path: RelativePath,
    /// Kind.
    pub kind: EntryKind,
    /// Permission bits, at most `0o7777`.
    pub mode: Option<u32>,
    /// Time of the last modification, in the years 1 to 9999.
    pub modified: Option<FileTime>,
    /// Owner, if other than [`SessionMetadata::owner`].
    pub owner: Option<Owner>,
    /// Extended attributes, at most [`XATTRS_MAX`], by name.
    pub xattrs: Vec<Xattr>,
}

impl MetadataEntry {
    /// Creates an entry without metadata.
    pub fn new(path: RelativePath, kind: EntryKind) -> Self {
        Self { path, kind, mode: None, modified: None, owner: None, xattrs: Vec::new() }
    }

    /// Whether the entry says more than its name.
    pub fn is_of_use(&self) -> bool {
        let has_more = self.mode.is_some() || self.modified.is_some() || self.owner.is_some();
        has_more
            || !self.xattrs.is_empty()
            || matches!(self.kind, EntryKind::Link(_) | EntryKind::HardLink(_))
    }

    fn to_fdt(&self) -> Entry {
        let (kind, target) = match &self.kind {
            EntryKind::File => ("file", None),
            EntryKind::Folder => ("folder", None),
            EntryKind::Link(target) => ("link", Some(percent_encode(target))),
            EntryKind::HardLink(target) => ("hardlink", Some(target.to_content_location())),
        };
        let xattr = |xattr: &Xattr| format!("{}={}", percent_encode(&xattr.name), hex(&xattr.value));
        let xattrs: Vec<_> = self.xattrs.iter().map(xattr).collect();
        Entry {
            content_location: self.path.to_content_location(),
            kind: kind.to_owned(),
            target,
            mode: self.mode.map(|mode| format!("{mode:04o}")),
            modified: self.modified.map(|time| time.to_string()),
            owner: self.owner.map(|owner| owner.to_string()),
            xattrs: (!xattrs.is_empty()).then(|| xattrs.join(" ")),
        }
    }
}

/// Metadata of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMetadata {
    /// Kinds that travel.
    pub travels: Preserve,
    /// Owner of all files, folders and links without an owner of their own.
    pub owner: Option<Owner>,
    /// Entries, by name.
    pub entries: Vec<MetadataEntry>,
}

impl SessionMetadata {
    /// Reads the metadata of an instance. Returns the refused entries beside.
    pub fn of(instance: &Instance) -> (Self, Vec<MetadataFault>) {
        parse::metadata(instance)
    }

    /// Whether an instance has metadata beside the attributes of files.
    pub fn is_in(instance: &Instance) -> bool {
        instance.preserve.is_some() || instance.owner.is_some() || !instance.entries.is_empty()
    }

    /// Returns an instance that has nothing but the metadata.
    pub fn to_instance(&self) -> Instance {
        let mut instance = Instance::default();
        self.describe(&mut instance);
        instance
    }

    /// Writes the metadata into an instance.
    pub(super) fn describe(&self, instance: &mut Instance) {
        instance.preserve = (self.travels != Preserve::default()).then(|| self.travels.to_string());
        instance.owner = self.owner.map(|owner| owner.to_string());
        instance.entries = self.entries.iter().map(MetadataEntry::to_fdt).collect();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
