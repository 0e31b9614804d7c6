//! Reading of metadata at a receiver, which trusts nothing.

use std::collections::BTreeSet;

use headwater_wire::fdt::{Entry, FileTime, Instance, MODE_MAX};

use super::super::name::{NameError, RelativePath, percent_decode};
use super::{
    EntryKind, MetadataEntry, Owner, Preserve, SessionMetadata, TARGET_BYTES_MAX, XATTR_BYTES_MAX,
    XATTR_NAME_BYTES_MAX, XATTRS_MAX, Xattr,
};

/// Most refused entries that are reported by name.
const FAULTS_MAX: usize = 64;
/// Longest part of a foreign name in a report, in characters.
const EXCERPT_CHARS: usize = 120;

/// Entry that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataFault {
    /// Name from the sender, cut short.
    pub name: String,
    /// Reason.
    pub reason: MetadataError,
}

/// Reason for which metadata is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The name is not safe below the receiver's folder.
    #[error("its metadata has no safe name: {0}")]
    Name(#[from] NameError),
    /// The kind is unknown.
    #[error("its metadata is of an unknown kind")]
    Kind,
    /// Two entries have the name.
    #[error("its metadata comes twice")]
    Twice,
    /// A link whose target is absolute or leads out of the folder.
    #[error("it is a link to '{0}', which may lead out of the folder")]
    LinkOut(String),
    /// A link without a target, or with a target that is too long or no text.
    #[error("it is a link without a target that can be read")]
    Target,
    /// A hard link to a name that is not safe, or to the entry's own name.
    #[error("it is a hard link to a name that is not safe")]
    HardLinkTarget,
    /// The mode is no permission bits.
    #[error("its mode is no permission bits")]
    Mode,
    /// The time is outside of the years 1 to 9999.
    #[error("its time is not within the years 1 to 9999")]
    Time,
    /// The owner is no pair of numbers.
    #[error("its owner is no pair of numbers")]
    Owner,
    /// Extended attributes that cannot be read, are too long or too many.
    #[error(
        "its extended attributes are too long, too many or no list ({XATTRS_MAX} of {XATTR_BYTES_MAX} bytes in all are allowed)"
    )]
    Xattrs,
    /// An extended attribute that a sender may not set.
    #[error("the extended attribute '{0}' is none that a sender may set")]
    XattrName(String),
}

/// Checks the target of a symbolic link: relative, and inside of the folder whatever other links of the same
/// rule are on the way. `..` may stand at the beginning alone: after the name of a link, `..` leads elsewhere
/// than the text says.
///
/// # Errors
/// [`MetadataError::LinkOut`] or [`MetadataError::Target`].
pub fn check_link_target(path: &RelativePath, target: &str) -> Result<(), MetadataError> {
    if target.is_empty() || target.len() > TARGET_BYTES_MAX || target.contains('\0') {
        return Err(MetadataError::Target);
    }
    let out = || Err(MetadataError::LinkOut(excerpt(target)));
    if target.starts_with('/') {
        return out();
    }
    let mut depth = path.as_str().matches('/').count();
    let mut is_down = false;
    for component in target.split('/') {
        match component {
            "" | "." => {}
            ".." if is_down || depth == 0 => return out(),
            ".." => depth -= 1,
            _ => is_down = true,
        }
    }
    Ok(())
}

/// Reads the metadata of an instance. An attribute that is refused costs this attribute alone; a link or a
/// name that is refused costs the entry.
pub(super) fn metadata(instance: &Instance) -> (SessionMetadata, Vec<MetadataFault>) {
    let mut faults = Faults::default();
    let travels = instance.preserve.as_deref().map_or_else(Preserve::default, Preserve::of_names);
    let owner = instance.owner.as_deref().and_then(|text| {
        let owner = owner(text);
        if owner.is_none() {
            faults.add(&Entry::default(), MetadataError::Owner);
        }
        owner
    });
    let mut names = BTreeSet::new();
    let mut entries = Vec::new();
    for entry in &instance.entries {
        match read(entry, &mut faults) {
            Ok(read) if !names.insert(read.path.clone()) => faults.add(entry, MetadataError::Twice),
            Ok(read) => entries.push(read),
            Err(reason) => faults.add(entry, reason),
        }
    }
    entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    (SessionMetadata { travels, owner, entries }, faults.0)
}

#[derive(Default)]
struct Faults(Vec<MetadataFault>);

impl Faults {
    fn add(&mut self, entry: &Entry, reason: MetadataError) {
        if self.0.len() < FAULTS_MAX {
            self.0.push(MetadataFault { name: excerpt(&entry.content_location), reason });
        }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS).map(|char| if char.is_control() { '?' } else { char }).collect()
}

fn read(entry: &Entry, faults: &mut Faults) -> Result<MetadataEntry, MetadataError> {
    let path = RelativePath::from_content_location(&entry.content_location)?;
    let kind = kind(entry, &path)?;
    let mut read = MetadataEntry::new(path, kind);
    let mut refuse = |reason| faults.add(entry, reason);
    if let Some(text) = &entry.mode {
        read.mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= MODE_MAX);
        read.mode.is_none().then(|| refuse(MetadataError::Mode));
    }
    if let Some(text) = &entry.modified {
        read.modified = text.parse().ok().filter(|time: &FileTime| time.is_within_calendar());
        read.modified.is_none().then(|| refuse(MetadataError::Time));
    }
    if let Some(text) = &entry.owner {
        read.owner = owner(text);
        read.owner.is_none().then(|| refuse(MetadataError::Owner));
    }
    if let Some(text) = &entry.xattrs {
        match xattrs(text, &mut refuse) {
            Some(xattrs) => read.xattrs = xattrs,
            None => refuse(MetadataError::Xattrs),
        }
    }
    Ok(read)
}

fn kind(entry: &Entry, path: &RelativePath) -> Result<EntryKind, MetadataError> {
    let target = entry.target.as_deref().unwrap_or_default();
    match &*entry.kind {
        "file" => Ok(EntryKind::File),
        "folder" => Ok(EntryKind::Folder),
        "link" => {
            let target = percent_decode(target).map_err(|_| MetadataError::Target)?;
            check_link_target(path, &target)?;
            Ok(EntryKind::Link(target))
        }
        "hardlink" => {
            let target = RelativePath::from_content_location(target).ok().filter(|target| target != path);
            target.map(EntryKind::HardLink).ok_or(MetadataError::HardLinkTarget)
        }
        _ => Err(MetadataError::Kind),
    }
}

fn owner(text: &str) -> Option<Owner> {
    // The last number is no user, but means "unchanged".
    let number = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| is_plain && *number != u32::MAX)
    };
    let (user, group) = text.split_once(':')?;
    Some(Owner { user: number(user)?, group: number(group)? })
}

/// Reads a list of attributes, sorted by name; `None` if the list cannot be read. An attribute that may not
/// travel is left out.
fn xattrs(text: &str, refuse: &mut impl FnMut(MetadataError)) -> Option<Vec<Xattr>> {
    let mut xattrs: Vec<Xattr> = Vec::new();
    let mut bytes = 0;
    for (number, word) in text.split(' ').enumerate() {
        let (name, value) = word.split_once('=')?;
        let name = percent_decode(name).ok().filter(|name| name.len() <= XATTR_NAME_BYTES_MAX)?;
        let value = unhex(value)?;
        bytes += value.len();
        if number >= XATTRS_MAX || bytes > XATTR_BYTES_MAX {
            return None;
        }
        if Xattr::may_travel(&name) {
            xattrs.push(Xattr { name, value });
        } else {
            refuse(MetadataError::XattrName(excerpt(&name)));
        }
    }
    xattrs.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    xattrs.dedup_by(|one, other| one.name == other.name);
    Some(xattrs)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |ascii: u8| char::from(ascii).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}
