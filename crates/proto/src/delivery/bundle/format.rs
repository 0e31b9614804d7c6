//! Bytes of a bundle: local header, entry of the directory, end record. All numbers are little-endian.

use super::{BundleMember, MemberCheck};

pub(super) const LOCAL_SIGNATURE: [u8; 4] = *b"PK\x03\x04";
pub(super) const ENTRY_SIGNATURE: [u8; 4] = *b"PK\x01\x02";
pub(super) const END_SIGNATURE: [u8; 4] = *b"PK\x05\x06";

/// Fixed part of a local header, in bytes.
const LOCAL_BYTES: u32 = 30;
/// Fixed part of an entry of the directory, in bytes.
pub(super) const ENTRY_BYTES: u32 = 46;
/// Length of the end record in bytes, without a comment.
pub const END_BYTES: usize = 22;
pub(super) const END_BYTES_U32: u32 = 22;
/// Length of the extra field for the time: identifier, length, flags, 32-bit seconds.
pub(super) const TIME_EXTRA_BYTES: u32 = 9;
/// Length of the extra field of our own: identifier, length, seconds (8), nanoseconds (4), digest (16).
pub(super) const OWN_EXTRA_BYTES: u32 = 32;
/// Maximum length of a local header in bytes.
pub const LOCAL_HEADER_BYTES_MAX: usize = 30 + super::super::name::PATH_BYTES_MAX + 9;

/// `version made by`: Unix, version 2.0.
pub(super) const MADE_BY: u16 = 3 << 8 | 20;
/// `version needed to extract`: 1.0.
pub(super) const NEEDED: u16 = 10;
/// General purpose flag: the name is UTF-8.
pub(super) const FLAGS: u16 = 1 << 11;
/// 1980-01-01, the earliest date of a zip; the extra fields have the time.
pub(super) const DOS_DATE: u16 = 1 << 5 | 1;
/// Type of a regular file in the upper half of the external attributes.
pub(super) const REGULAR: u32 = 0o100_000;
/// Identifier of the extra field for the time of Info-ZIP.
const TIME_EXTRA: u16 = 0x5455;
/// Identifier of our own extra field.
const OWN_EXTRA: u16 = 0x4857;

pub(super) fn local_header_bytes(member: &BundleMember) -> u32 {
    LOCAL_BYTES + name_bytes(member) + TIME_EXTRA_BYTES
}

pub(super) fn entry_bytes(member: &BundleMember) -> u32 {
    ENTRY_BYTES + name_bytes(member) + TIME_EXTRA_BYTES + OWN_EXTRA_BYTES
}

fn name_bytes(member: &BundleMember) -> u32 {
    u32::from(name_length(member))
}

fn name_length(member: &BundleMember) -> u16 {
    u16::try_from(member.path.as_str().len()).expect("a path has at most 2048 bytes")
}

/// Fields common to both headers: version, flags, method 0, time, date, CRC, lengths, length of the name.
fn common(out: &mut Vec<u8>, member: &BundleMember, check: MemberCheck) {
    for field in [NEEDED, FLAGS, 0, 0, DOS_DATE] {
        out.extend(field.to_le_bytes());
    }
    for field in [check.crc32, member.bytes, member.bytes] {
        out.extend(field.to_le_bytes());
    }
    out.extend(name_length(member).to_le_bytes());
}

/// Writes the extra field for the time. Times outside of 32 bits are cut to the nearest.
fn time_extra(out: &mut Vec<u8>, member: &BundleMember) {
    let seconds = member.modified.seconds().clamp(i32::MIN.into(), i32::MAX.into());
    let seconds = i32::try_from(seconds).expect("within 32 bits");
    out.extend(TIME_EXTRA.to_le_bytes());
    out.extend(5_u16.to_le_bytes());
    out.push(1);
    out.extend(seconds.to_le_bytes());
}

pub(super) fn local_header(member: &BundleMember, check: MemberCheck) -> Vec<u8> {
    let mut out = Vec::with_capacity(local_header_bytes(member) as usize);
    out.extend(LOCAL_SIGNATURE);
    common(&mut out, member, check);
    out.extend(9_u16.to_le_bytes());
    out.extend(member.path.as_str().as_bytes());
    time_extra(&mut out, member);
    out
}

pub(super) fn entry(member: &BundleMember, check: MemberCheck, start: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(entry_bytes(member) as usize);
    out.extend(ENTRY_SIGNATURE);
    out.extend(MADE_BY.to_le_bytes());
    common(&mut out, member, check);
    out.extend(41_u16.to_le_bytes());
    // No comment, first disk, binary content.
    out.extend([0; 6]);
    out.extend(((REGULAR | member.mode & 0o777) << 16).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend(member.path.as_str().as_bytes());
    time_extra(&mut out, member);
    out.extend(OWN_EXTRA.to_le_bytes());
    out.extend(28_u16.to_le_bytes());
    out.extend(member.modified.seconds().to_le_bytes());
    out.extend(member.modified.nanoseconds().to_le_bytes());
    out.extend(check.digest);
    out
}

pub(super) fn end_record(members: usize, start: u32, bytes: u32) -> [u8; END_BYTES] {
    let members = u16::try_from(members).expect("at most 16384 members");
    let mut out = [0; END_BYTES];
    out[..4].copy_from_slice(&END_SIGNATURE);
    out[8..10].copy_from_slice(&members.to_le_bytes());
    out[10..12].copy_from_slice(&members.to_le_bytes());
    out[12..16].copy_from_slice(&bytes.to_le_bytes());
    out[16..20].copy_from_slice(&start.to_le_bytes());
    out
}
