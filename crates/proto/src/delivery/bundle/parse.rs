//! Reading of a bundle at a receiver, which trusts nothing of the bundle.

use std::collections::BTreeMap;

use headwater_wire::fdt::FileTime;

use super::format::{
    END_BYTES, END_SIGNATURE, ENTRY_BYTES, ENTRY_SIGNATURE, OWN_EXTRA_BYTES, REGULAR, TIME_EXTRA_BYTES,
};
use super::{
    BUNDLE_BYTES_MAX, BUNDLE_MEMBERS_MAX, BundleLayout, BundleMember, DIRECTORY_BYTES_MAX, MemberCheck,
};
use crate::delivery::name::{NameError, RelativePath};

/// Reason for which a bundle is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The bundle does not end with the end record of a zip of a single part without a comment.
    #[error("the bundle does not end as a zip")]
    NoEnd,
    /// No member, or more members than [`BUNDLE_MEMBERS_MAX`].
    #[error("the bundle has {0} members; 1 to {BUNDLE_MEMBERS_MAX} are allowed")]
    Members(usize),
    /// The bundle is longer than [`BUNDLE_BYTES_MAX`].
    #[error("the bundle has {0} bytes; {BUNDLE_BYTES_MAX} are allowed")]
    TooLong(u64),
    /// The directory is not between the members and the end record, or longer than [`DIRECTORY_BYTES_MAX`].
    #[error("the directory of the bundle has {bytes} bytes at byte {start}, where it cannot be")]
    Directory {
        /// Start in bytes.
        start: u32,
        /// Length in bytes.
        bytes: u32,
    },
    /// An entry of the directory is cut off, or no entry.
    #[error("entry {0} of the bundle's directory cannot be read")]
    Entry(usize),
    /// A name is not safe below the receiver's folder.
    #[error("the bundle has a member {name:?}: {error}")]
    Name {
        /// Name from the sender.
        name: String,
        /// Reason.
        error: NameError,
    },
    /// A member is no regular file: a link, a device, a folder.
    #[error("the member '{0}' of the bundle is a link, or no regular file")]
    Kind(RelativePath),
    /// Two members have equal names, also if case is ignored.
    #[error(
        "the members '{0}' and '{1}' of the bundle have the same name, at least where case does not count"
    )]
    SameName(RelativePath, RelativePath),
    /// A member has the name of another member's folder.
    #[error("the member '{0}' of the bundle stands in the way of '{1}'")]
    FileAbove(RelativePath, RelativePath),
    /// A member begins within another member.
    #[error("the member '{0}' of the bundle overlaps with another one")]
    Overlap(RelativePath),
    /// A member begins behind a gap.
    #[error("there is a gap before the member '{0}' of the bundle")]
    Gap(RelativePath),
    /// A member ends beyond the members' part of the bundle.
    #[error("the member '{path}' of the bundle claims {bytes} bytes, more than there are")]
    Claim {
        /// Name.
        path: RelativePath,
        /// Claimed length.
        bytes: u32,
    },
    /// A local header differs from the directory, or an entry has other fields than a sender writes.
    #[error("the headers of the member '{0}' of the bundle contradict each other, or are not supported")]
    Header(RelativePath),
    /// The content of a member has another digest.
    #[error("the content of the member '{0}' of the bundle has another digest than announced")]
    Content(RelativePath),
}

/// End record of a bundle: the place of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleEnd {
    /// Number of members.
    pub members: usize,
    /// Start of the directory in bytes.
    pub start: u32,
    /// Length of the directory in bytes, at most [`DIRECTORY_BYTES_MAX`].
    pub bytes: u32,
}

impl BundleEnd {
    /// Reads the end record, the last bytes of a bundle of `length` bytes.
    ///
    /// # Errors
    /// [`BundleError`] if a limit is exceeded, or the directory does not end at the end record.
    pub fn parse(length: u64, record: &[u8; END_BYTES]) -> Result<Self, BundleError> {
        if length > BUNDLE_BYTES_MAX.into() {
            return Err(BundleError::TooLong(length));
        }
        let number = |at| u32::from(u16::from_le_bytes([record[at], record[at + 1]]));
        let long =
            |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let is_single = record[4..8] == [0; 4] && number(8) == number(10) && number(20) == 0;
        if record[..4] != END_SIGNATURE || !is_single {
            return Err(BundleError::NoEnd);
        }
        let (members, bytes, start) = (number(8) as usize, long(12), long(16));
        if members == 0 || members > BUNDLE_MEMBERS_MAX {
            return Err(BundleError::Members(members));
        }
        let end = u64::from(start) + u64::from(bytes) + END_BYTES as u64;
        if end != length || bytes > DIRECTORY_BYTES_MAX {
            return Err(BundleError::Directory { start, bytes });
        }
        Ok(Self { members, start, bytes })
    }

    /// Reads the directory: the members, and the values to verify the content.
    ///
    /// # Errors
    /// [`BundleError`] if the directory is not that of a bundle whose members can be placed in a folder.
    pub fn parse_directory(self, directory: &[u8]) -> Result<(BundleLayout, Vec<MemberCheck>), BundleError> {
        let mut rest = directory;
        let (mut members, mut checks) = (Vec::new(), Vec::new());
        let mut names = Names::default();
        let mut at = 0_u64;
        for index in 0..self.members {
            let entry = entry(&mut rest, index)?;
            let Entry { member, check, start } = entry;
            names.take(&member.path)?;
            match u64::from(start).cmp(&at) {
                core::cmp::Ordering::Less => return Err(BundleError::Overlap(member.path)),
                core::cmp::Ordering::Greater => return Err(BundleError::Gap(member.path)),
                core::cmp::Ordering::Equal => {}
            }
            at += u64::from(super::format::local_header_bytes(&member)) + u64::from(member.bytes);
            if at > self.start.into() {
                return Err(BundleError::Claim { path: member.path, bytes: member.bytes });
            }
            members.push(member);
            checks.push(check);
        }
        let layout = BundleLayout::new(members).ok_or(BundleError::Members(self.members))?;
        if layout.directory_start() != self.start || !rest.is_empty() {
            return Err(BundleError::Directory { start: self.start, bytes: self.bytes });
        }
        // Each entry is that of the layout, byte by byte: no field is left to another interpretation.
        let mut bytes = directory;
        for (index, check) in checks.iter().enumerate() {
            let expected = layout.entry(index, *check);
            match bytes.split_at_checked(expected.len()) {
                Some((found, behind)) if found == expected => bytes = behind,
                _ => return Err(BundleError::Header(layout.members()[index].path.clone())),
            }
        }
        Ok((layout, checks))
    }
}

struct Entry {
    member: BundleMember,
    check: MemberCheck,
    start: u32,
}

/// Reads the next entry. Only fields with a meaning for the receiver are read.
fn entry(rest: &mut &[u8], index: usize) -> Result<Entry, BundleError> {
    let broken = || BundleError::Entry(index);
    let (fixed, behind) = rest.split_at_checked(ENTRY_BYTES as usize).ok_or_else(broken)?;
    let short = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let long = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    if fixed[..4] != ENTRY_SIGNATURE {
        return Err(broken());
    }
    let (name, behind) = behind.split_at_checked(short(28).into()).ok_or_else(broken)?;
    let path = path(name)?;
    let length = TIME_EXTRA_BYTES as usize + OWN_EXTRA_BYTES as usize;
    let mode = long(38) >> 16;
    if mode & !0o777 != REGULAR {
        return Err(BundleError::Kind(path));
    }
    let extra = behind.split_at_checked(length).filter(|_| usize::from(short(30)) == length);
    let Some((extra, behind)) = extra else { return Err(BundleError::Header(path)) };
    let own = &extra[TIME_EXTRA_BYTES as usize + 4..];
    let seconds = own.first_chunk().map(|seconds| i64::from_le_bytes(*seconds));
    let nanoseconds = own[8..].first_chunk().map(|nanoseconds| u32::from_le_bytes(*nanoseconds));
    let modified =
        seconds.zip(nanoseconds).and_then(|(seconds, nanoseconds)| FileTime::new(seconds, nanoseconds));
    let (Some(modified), Some(digest)) = (modified, own[12..].first_chunk()) else {
        return Err(BundleError::Header(path));
    };
    *rest = behind;
    Ok(Entry {
        member: BundleMember { path, bytes: long(24), mode: mode & 0o777, modified },
        check: MemberCheck { crc32: long(16), digest: *digest },
        start: long(42),
    })
}

fn path(name: &[u8]) -> Result<RelativePath, BundleError> {
    let refused =
        |error| BundleError::Name { name: String::from_utf8_lossy(name).chars().take(80).collect(), error };
    let text = core::str::from_utf8(name).map_err(|_| refused(NameError::Malformed))?;
    RelativePath::new(text).map_err(refused)
}

/// Names of a bundle's members, without regard to case.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, RelativePath>);

impl Names {
    /// Adds a name, unless another name is equal, a folder of the name, or below the name.
    fn take(&mut self, path: &RelativePath) -> Result<(), BundleError> {
        let name = path.as_str().to_lowercase();
        for (slash, _) in name.match_indices('/') {
            if let Some(above) = self.0.get(&name[..slash]) {
                return Err(BundleError::FileAbove(above.clone(), path.clone()));
            }
        }
        let below = format!("{name}/");
        if let Some((found, other)) = self.0.range(below.clone()..).next()
            && found.starts_with(&below)
        {
            return Err(BundleError::FileAbove(path.clone(), other.clone()));
        }
        match self.0.insert(name, path.clone()) {
            Some(other) => Err(BundleError::SameName(other, path.clone())),
            None => Ok(()),
        }
    }
}
