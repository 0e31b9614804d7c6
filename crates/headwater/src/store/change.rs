//! What a journal tells: changes, and their bytes (integers little-endian, behind one byte for the kind).

use std::time::{Duration, SystemTime};

use headwater_proto::delivery::{Digest, FileTime, FileVersion};

/// What names a file in the working folder: the digest of its path, shortened.
pub(super) type Key = [u8; 16];

/// One change. Files and objects are numbered by the journal, across sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A file is received; or more is known of its content's name than before.
    File { file: u32, key: Key, bytes: u64, version: FileVersion },
    /// An object of it is.
    Object { object: u32, file: u32, identity: Digest },
    /// Source symbols from this one on are in place.
    Source { object: u32, sbn: u32, esi: u32, count: u32 },
    /// Repair symbols are in the slots below this one.
    Repairs { object: u32, sbn: u32, slots: u32 },
    /// A block is whole, and was verified.
    Whole { object: u32, sbn: u32 },
    /// The repair symbols of a block were given up.
    RepairsDropped { object: u32, sbn: u32 },
    /// Nothing of a block is kept.
    AllDropped { object: u32, sbn: u32 },
    /// A file was given up.
    Dropped { file: u32 },
    /// A file has its final name.
    Placed { file: u32, stamp: Stamp },
    /// Of the 64 source symbols from 64 * `index` on those are in place whose bits are set, the lowest bit
    /// for the first.
    Word { object: u32, sbn: u32, index: u32, bits: u64 },
}

/// What tells that a file in place has not been touched since: device, inode, bytes, and the time of its last
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    /// Nanoseconds since 1970.
    pub(super) changed: i128,
}

impl Stamp {
    /// When the file changed last.
    pub(super) fn time(&self) -> SystemTime {
        let since = u64::try_from(self.changed).map_or(Duration::ZERO, Duration::from_nanos);
        SystemTime::UNIX_EPOCH + since
    }
}

impl Change {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, fields: &[&[u8]]| {
            out.push(kind);
            fields.iter().for_each(|field| out.extend_from_slice(field));
        };
        let le = u32::to_le_bytes;
        match *self {
            Self::File { file, key, bytes, version } => {
                put(1, &[&le(file), &key, &bytes.to_le_bytes(), &version_bytes(version)]);
            }
            Self::Object { object, file, identity } => put(2, &[&le(object), &le(file), &identity]),
            Self::Source { object, sbn, esi, count } => {
                put(3, &[&le(object), &le(sbn), &le(esi), &le(count)]);
            }
            Self::Repairs { object, sbn, slots } => put(4, &[&le(object), &le(sbn), &le(slots)]),
            Self::Whole { object, sbn } => put(5, &[&le(object), &le(sbn)]),
            Self::RepairsDropped { object, sbn } => put(6, &[&le(object), &le(sbn)]),
            Self::AllDropped { object, sbn } => put(7, &[&le(object), &le(sbn)]),
            Self::Dropped { file } => put(8, &[&le(file)]),
            Self::Placed { file, stamp } => {
                let Stamp { device, inode, bytes, changed } = stamp;
                let words = [device, inode, bytes].map(u64::to_le_bytes);
                put(9, &[&le(file), words.as_flattened(), &changed.to_le_bytes()]);
            }
            Self::Word { object, sbn, index, bits } => {
                put(10, &[&le(object), &le(sbn), &le(index), &bits.to_le_bytes()]);
            }
        }
    }

    /// Takes the first change off `bytes`; `None` if there is none that makes sense.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let [kind] = take(bytes)?;
        Some(match kind {
            1 => Self::File {
                file: word(bytes)?,
                key: take(bytes)?,
                bytes: take(bytes).map(u64::from_le_bytes)?,
                version: version(bytes)?,
            },
            2 => Self::Object { object: word(bytes)?, file: word(bytes)?, identity: take(bytes)? },
            3 => Self::Source {
                object: word(bytes)?,
                sbn: word(bytes)?,
                esi: word(bytes)?,
                count: word(bytes)?,
            },
            4 => Self::Repairs { object: word(bytes)?, sbn: word(bytes)?, slots: word(bytes)? },
            5 => Self::Whole { object: word(bytes)?, sbn: word(bytes)? },
            6 => Self::RepairsDropped { object: word(bytes)?, sbn: word(bytes)? },
            7 => Self::AllDropped { object: word(bytes)?, sbn: word(bytes)? },
            8 => Self::Dropped { file: word(bytes)? },
            9 => Self::Placed {
                file: word(bytes)?,
                stamp: Stamp {
                    device: take(bytes).map(u64::from_le_bytes)?,
                    inode: take(bytes).map(u64::from_le_bytes)?,
                    bytes: take(bytes).map(u64::from_le_bytes)?,
                    changed: take(bytes).map(i128::from_le_bytes)?,
                },
            },
            10 => Self::Word {
                object: word(bytes)?,
                sbn: word(bytes)?,
                index: word(bytes)?,
                bits: take(bytes).map(u64::from_le_bytes)?,
            },
            _ => return None,
        })
    }
}

/// A version's bytes: whether there is a digest (1) and a time (2), then both, zeros where there is none.
fn version_bytes(version: FileVersion) -> Vec<u8> {
    let FileVersion { digest, modified } = version;
    let (seconds, nanoseconds) = modified.map_or((0, 0), |time| (time.seconds(), time.nanoseconds()));
    let known = u8::from(digest.is_some()) | u8::from(modified.is_some()) << 1;
    [&[known][..], &digest.unwrap_or_default(), &seconds.to_le_bytes(), &nanoseconds.to_le_bytes()].concat()
}

fn version(bytes: &mut &[u8]) -> Option<FileVersion> {
    let [known] = take(bytes)?;
    let digest = take(bytes)?;
    let time = FileTime::new(take(bytes).map(i64::from_le_bytes)?, word(bytes)?)?;
    Some(FileVersion {
        digest: (known & 1 != 0).then_some(digest),
        modified: (known & 2 != 0).then_some(time),
    })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*field)
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_le_bytes)
}
