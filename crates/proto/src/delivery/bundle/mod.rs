//! Bundles: many small files in an object, laid out as a stored zip (APPNOTE 6.3.10).
//!
//! ```text
//! member 0: local header, content    member 1: ...    directory: an entry for each member    end record
//! ```
//!
//! The layout is a pure function of names, lengths, modes and times. A sender knows the length of a bundle,
//! and the place of each byte, before any content is read; CRC-32 and digest of a member fill in values of
//! fixed width. A receiver accepts this layout alone: members without gaps, in the order of the directory,
//! and local headers that repeat the directory. Therefore ranges cannot overlap, and other programs find the
//! same members.
//!
//! An entry of the directory has an extra field 0x4857 for values that a zip lacks: 64-bit seconds and
//! nanoseconds of the modification time, and the first 16 bytes of BLAKE3 of the content.

mod format;
mod parse;
#[cfg(test)]
mod tests;

use headwater_wire::fdt::FileTime;

pub use self::format::{END_BYTES, LOCAL_HEADER_BYTES_MAX};
pub use self::parse::{BundleEnd, BundleError};
use super::name::RelativePath;

/// Maximum number of members of a bundle, far below the 65 535 of a zip without 64-bit fields.
pub const BUNDLE_MEMBERS_MAX: usize = 16_384;
/// Maximum length of a bundle in bytes.
pub const BUNDLE_BYTES_MAX: u32 = 64 << 20;
/// Maximum length of a directory in bytes, which bounds the memory of a receiver for a bundle.
pub const DIRECTORY_BYTES_MAX: u32 = 4 << 20;

/// File in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleMember {
    /// Name below the receiver's folder.
    pub path: RelativePath,
    /// Length in bytes.
    pub bytes: u32,
    /// Permission bits, at most `0o777`.
    pub mode: u32,
    /// Time of the last modification.
    pub modified: FileTime,
}

/// Values by which the content of a member is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberCheck {
    /// CRC-32 of the content, which other programs verify.
    pub crc32: u32,
    /// First 16 bytes of BLAKE3 of the content.
    pub digest: [u8; 16],
}

/// Members of a bundle, and the places of all bytes.
///
/// Memory: the members, and 8 bytes for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleLayout {
    members: Vec<BundleMember>,
    /// By member: start of the local header.
    starts: Vec<u32>,
    /// By member: start of the entry in the directory.
    entries: Vec<u32>,
    /// Start of the directory.
    directory: u32,
    bytes: u32,
}

/// Part of a bundle at an offset. `from` is the number of bytes of the part before the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundlePart {
    /// Local header of a member.
    Header {
        /// Index of the member.
        member: usize,
        /// Bytes before the offset.
        from: usize,
    },
    /// Content of a member.
    Content {
        /// Index of the member.
        member: usize,
        /// Bytes before the offset.
        from: usize,
    },
    /// Entry of a member in the directory.
    Entry {
        /// Index of the member.
        member: usize,
        /// Bytes before the offset.
        from: usize,
    },
    /// End record.
    End {
        /// Bytes before the offset.
        from: usize,
    },
}

impl BundleMember {
    /// Returns the bytes of the member in a bundle: headers and content.
    pub fn bundled_bytes(&self) -> u64 {
        let headers = format::local_header_bytes(self) + format::entry_bytes(self);
        u64::from(headers) + u64::from(self.bytes)
    }

    /// Returns the bytes of the member's entry in the directory.
    pub fn entry_bytes(&self) -> u32 {
        format::entry_bytes(self)
    }
}

impl BundleLayout {
    /// Lays members out in this order; `None` if there is no member or a limit of this module is exceeded.
    pub fn new(members: Vec<BundleMember>) -> Option<Self> {
        if members.is_empty() || members.len() > BUNDLE_MEMBERS_MAX {
            return None;
        }
        let (mut starts, mut entries) =
            (Vec::with_capacity(members.len()), Vec::with_capacity(members.len()));
        let mut at = 0_u32;
        for member in &members {
            starts.push(at);
            at = at.checked_add(format::local_header_bytes(member))?.checked_add(member.bytes)?;
        }
        let directory = at;
        for member in &members {
            entries.push(at);
            at = at.checked_add(format::entry_bytes(member))?;
        }
        let is_short = at - directory <= DIRECTORY_BYTES_MAX;
        let bytes =
            at.checked_add(format::END_BYTES_U32).filter(|all| *all <= BUNDLE_BYTES_MAX && is_short)?;
        Some(Self { members, starts, entries, directory, bytes })
    }

    /// Returns the members, in the order of the layout.
    pub fn members(&self) -> &[BundleMember] {
        &self.members
    }

    /// Returns the length of the bundle in bytes.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the start of the directory in bytes.
    pub fn directory_start(&self) -> u32 {
        self.directory
    }

    /// Returns the start of a member's local header in bytes.
    pub fn header_start(&self, member: usize) -> u32 {
        self.starts[member]
    }

    /// Returns the start of a member's content in bytes.
    pub fn content_start(&self, member: usize) -> u32 {
        self.starts[member] + format::local_header_bytes(&self.members[member])
    }

    /// Returns the part at an offset; `None` past the end.
    pub fn part(&self, offset: u32) -> Option<BundlePart> {
        let before = |starts: &[u32]| starts.partition_point(|start| *start <= offset) - 1;
        if offset < self.directory {
            let member = before(&self.starts);
            let from = (offset - self.starts[member]) as usize;
            let header = format::local_header_bytes(&self.members[member]) as usize;
            return Some(match from.checked_sub(header) {
                None => BundlePart::Header { member, from },
                Some(from) => BundlePart::Content { member, from },
            });
        }
        let end = self.bytes - format::END_BYTES_U32;
        if offset < end {
            let member = before(&self.entries);
            return Some(BundlePart::Entry { member, from: (offset - self.entries[member]) as usize });
        }
        (offset < self.bytes).then(|| BundlePart::End { from: (offset - end) as usize })
    }

    /// Writes a member's local header.
    pub fn local_header(&self, member: usize, check: MemberCheck) -> Vec<u8> {
        format::local_header(&self.members[member], check)
    }

    /// Writes a member's entry in the directory.
    pub fn entry(&self, member: usize, check: MemberCheck) -> Vec<u8> {
        format::entry(&self.members[member], check, self.starts[member])
    }

    /// Writes the end record.
    pub fn end_record(&self) -> [u8; END_BYTES] {
        let directory = self.bytes - format::END_BYTES_U32 - self.directory;
        format::end_record(self.members.len(), self.directory, directory)
    }
}
