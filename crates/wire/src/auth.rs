//! EXT_AUTH (our own authentication scheme in the frame of RFC 5651 section 5.2.1), EXT_MANIFEST and EXT_KEY
//! (our own). Meaning and reasons of each field: `docs/reference/wire/auth.md`.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |     HET=1     |HEL=23+4*Depth |ASID=1 |  0  |1| Depth | Leaf  |
//! |                            Started                            |
//! |                            Number                             |
//! |                              Key                              |
//! |                  Pass (48)  |  Next pass (48)                 |
//! |                        Signature (512)                        |
//! |                      Path (Depth * 128)                       |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |    HET=97     |   HEL=1+3*n   |       n       |       0       |
//! |                        Tags (n * 96)                          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |    HET=99     |     HEL=9     |      0      |E|       0       |
//! |                       Public key (256)                        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
use core::ops::Range;

use crate::bytes::{Writer, be32};
use crate::extensions::{HET_AUTH, HET_KEY, HET_MANIFEST};
use crate::lct;

/// Bytes of an EXT_AUTH without a path.
pub const AUTH_BYTES: usize = 92;
/// Bytes of a node in the path of an EXT_AUTH.
pub const NODE_BYTES: usize = 16;
/// Largest depth of a tree: one signature for at most 16 packets.
pub const DEPTH_MAX: usize = 4;
/// Bytes of an EXT_KEY.
pub const KEY_BYTES: usize = 36;
/// Bytes of a tag.
pub const TAG_BYTES: usize = 12;
/// Most tags in an EXT_MANIFEST: with EXT_AUTH, and without TOI and payload, the LCT header stays within 255
/// words.
pub const MANIFEST_TAGS_MAX: usize = 75;
/// Bytes of a pass.
pub const PASS_BYTES: usize = 6;

/// ASID 1 (Ed25519) in the high four bits, AR (protection against replays) in the lowest bit.
const SCHEME: u8 = 0x11;
const WORDS: u8 = 23;
const NODE_WORDS: u8 = 4;
const SIGNATURE_START: usize = 28;
const KEY_WORDS: u8 = 9;
/// Flag of a key that is made for one session.
const EPHEMERAL: u8 = 1;
const MANIFEST_HEADER_BYTES: usize = 4;

/// Tag of a packet: a truncated keyed hash.
pub type Tag = [u8; TAG_BYTES];
/// Node of a tree: a truncated hash.
pub type Node = [u8; NODE_BYTES];
/// Value of a hash chain.
pub type Pass = [u8; PASS_BYTES];

/// Content of an EXT_AUTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authentication {
    /// Nodes in the path, at most [`DEPTH_MAX`]; 0 if the signature is for this packet alone.
    pub depth: u8,
    /// Number of the packet among the leaves of the tree, below 2^depth.
    pub leaf: u8,
    /// Start of the session, in seconds of the NTP era.
    pub started: u32,
    /// Number of the signature on its channel, from 1.
    pub number: u32,
    /// First four bytes of the hash of the public key.
    pub key: [u8; 4],
    /// Pass of this number.
    pub pass: Pass,
    /// Anchor of the next chain of passes.
    pub next_pass: Pass,
    /// Ed25519 signature of the root.
    pub signature: [u8; 64],
    /// Siblings on the way from the leaf to the root; the first `depth` nodes count, the others are zero.
    pub path: [Node; DEPTH_MAX],
}

/// Content of an EXT_KEY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderKey {
    /// Public key of the sender (Ed25519).
    pub public: [u8; 32],
    /// Whether the key is made for this session alone: receivers must not remember the key.
    pub is_ephemeral: bool,
}

impl SenderKey {
    /// Finds the EXT_KEY of a packet.
    ///
    /// # Errors
    /// A malformed extension, or two extensions of the type.
    pub fn find(packet: &lct::Packet<&[u8]>) -> Result<Option<Self>, Error> {
        let Some((content, _)) = find(packet, HET_KEY)? else { return Ok(None) };
        let &[flags, _, ref key @ ..] = content else {
            return Err(Error::Length { het: HET_KEY, have: content.len() });
        };
        let public = key.try_into().map_err(|_| Error::Length { het: HET_KEY, have: content.len() })?;
        Ok(Some(Self { public, is_ephemeral: flags & EPHEMERAL != 0 }))
    }

    /// Inserts the extension as the last one into a packet, the first `bytes` bytes of `buffer`. Returns the
    /// new length of the packet.
    ///
    /// # Errors
    /// No LCT header, or no room.
    pub fn insert(&self, buffer: &mut [u8], bytes: usize) -> Result<usize, Error> {
        let range = make_room(buffer, bytes, KEY_BYTES)?;
        let mut out = Writer::new(&mut buffer[range.clone()]);
        out.put(&[HET_KEY, KEY_WORDS, if self.is_ephemeral { EPHEMERAL } else { 0 }, 0]);
        out.put(&self.public);
        Ok(bytes + range.len())
    }
}

/// Reason why an extension of this module cannot be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The datagram has no LCT header.
    #[error(transparent)]
    Lct(#[from] lct::LctError),
    /// The extension's length contradicts its content.
    #[error("header extension {het} has {have} bytes of content, which its fields contradict")]
    Length {
        /// The type.
        het: u8,
        /// Content bytes present.
        have: usize,
    },
    /// Another authentication scheme.
    #[error("EXT_AUTH of scheme {0:#04x}, expected 0x11")]
    Scheme(u8),
    /// Depth or leaf out of range.
    #[error("EXT_AUTH has leaf {leaf} of a tree of depth {depth}")]
    Leaf {
        /// Depth of the tree.
        depth: u8,
        /// Number of the leaf.
        leaf: u8,
    },
    /// The extension occurs twice.
    #[error("header extension {0} occurs twice")]
    Duplicate(u8),
    /// No tags, or more than [`MANIFEST_TAGS_MAX`].
    #[error("EXT_MANIFEST of {0} tags, expected 1 to 75")]
    Tags(usize),
    /// The LCT header would be longer than [`lct::HEADER_LEN_MAX`], or the buffer is too short.
    #[error("no room for {0} bytes of header extension")]
    Room(usize),
}

impl Authentication {
    /// Bytes of the extension.
    pub fn buffer_len(&self) -> usize {
        auth_bytes(self.depth)
    }

    /// Finds the EXT_AUTH of a packet, and its place in the datagram.
    ///
    /// # Errors
    /// A malformed extension, another scheme, or two extensions of the type.
    pub fn find(packet: &lct::Packet<&[u8]>) -> Result<Option<(Self, Range<usize>)>, Error> {
        let Some((content, range)) = find(packet, HET_AUTH)? else { return Ok(None) };
        Ok(Some((Self::parse(content)?, range)))
    }

    fn parse(content: &[u8]) -> Result<Self, Error> {
        let length = Error::Length { het: HET_AUTH, have: content.len() };
        let &[scheme, tree, ref rest @ ..] = content else { return Err(length) };
        if scheme != SCHEME {
            return Err(Error::Scheme(scheme));
        }
        let (depth, leaf) = (tree >> 4, tree & 0xF);
        check_leaf(depth, leaf)?;
        if content.len() + 2 != auth_bytes(depth) {
            return Err(length);
        }
        let (started, number, mut at) = (be32(rest, 0), be32(rest, 4), 8);
        let key = take(rest, &mut at);
        let pass = take(rest, &mut at);
        let next_pass = take(rest, &mut at);
        let signature = take(rest, &mut at);
        let mut path = [[0; NODE_BYTES]; DEPTH_MAX];
        path[..depth.into()].fill_with(|| take(rest, &mut at));
        Ok(Self { depth, leaf, started, number, key, pass, next_pass, signature, path })
    }

    /// Inserts the extension as the last one into a packet, the first `bytes` bytes of `buffer`. Returns the
    /// extension's place.
    ///
    /// # Errors
    /// Depth or leaf out of range, no LCT header, or no room.
    pub fn insert(&self, buffer: &mut [u8], bytes: usize) -> Result<Range<usize>, Error> {
        check_leaf(self.depth, self.leaf)?;
        let range = make_room(buffer, bytes, self.buffer_len())?;
        self.emit(&mut buffer[range.clone()]);
        Ok(range)
    }

    /// Writes [`Authentication::buffer_len`] bytes. The caller keeps depth and leaf in range.
    fn emit(&self, buffer: &mut [u8]) {
        let mut out = Writer::new(buffer);
        out.put(&[HET_AUTH, WORDS + NODE_WORDS * self.depth, SCHEME, self.depth << 4 | self.leaf]);
        out.put(&self.started.to_be_bytes());
        out.put(&self.number.to_be_bytes());
        out.put(&self.key);
        out.put(&self.pass);
        out.put(&self.next_pass);
        out.put(&self.signature);
        out.put(self.path[..self.depth.into()].as_flattened());
    }

    /// Writes another signature and path into an extension that [`Authentication::insert`] has written with
    /// the same depth.
    pub fn complete(extension: &mut [u8], signature: &[u8; 64], path: &[Node]) {
        let mut out = Writer::new(&mut extension[SIGNATURE_START..]);
        out.put(signature);
        out.put(path.as_flattened());
    }

    /// Part of an extension that its signature does not cover: signature and path. The signature covers
    /// zeros in their place.
    pub fn unsigned_part(extension: Range<usize>) -> Range<usize> {
        extension.start + SIGNATURE_START..extension.end
    }
}

/// Returns the tags of a packet's EXT_MANIFEST; `None` without the extension.
///
/// # Errors
/// A malformed extension, or two extensions of the type.
pub fn manifest<'a>(packet: &lct::Packet<&'a [u8]>) -> Result<Option<&'a [Tag]>, Error> {
    let Some((content, _)) = find(packet, HET_MANIFEST)? else { return Ok(None) };
    let length = Error::Length { het: HET_MANIFEST, have: content.len() };
    let &[count, _, ref rest @ ..] = content else { return Err(length) };
    let (tags, []) = rest.as_chunks::<TAG_BYTES>() else { return Err(length) };
    if tags.len() != usize::from(count) {
        return Err(length);
    }
    check_tags(tags.len())?;
    Ok(Some(tags))
}

/// Inserts an EXT_MANIFEST as the last extension into a packet, the first `bytes` bytes of `buffer`. Returns
/// the new length of the packet.
///
/// # Errors
/// Too few or too many tags, no LCT header, or no room.
pub fn insert_manifest(
    buffer: &mut [u8],
    bytes: usize,
    tags: impl ExactSizeIterator<Item = Tag>,
) -> Result<usize, Error> {
    let count = tags.len();
    check_tags(count)?;
    let range = make_room(buffer, bytes, MANIFEST_HEADER_BYTES + count * TAG_BYTES)?;
    let count = u8::try_from(count).expect("at most 75");
    let mut out = Writer::new(&mut buffer[range.clone()]);
    out.put(&[HET_MANIFEST, 1 + 3 * count, count, 0]);
    for tag in tags {
        out.put(&tag);
    }
    Ok(bytes + range.len())
}

fn auth_bytes(depth: u8) -> usize {
    AUTH_BYTES + usize::from(depth) * NODE_BYTES
}

fn check_leaf(depth: u8, leaf: u8) -> Result<(), Error> {
    let is_valid = usize::from(depth) <= DEPTH_MAX && u32::from(leaf) < 1 << depth;
    if is_valid { Ok(()) } else { Err(Error::Leaf { depth, leaf }) }
}

fn check_tags(count: usize) -> Result<(), Error> {
    if (1..=MANIFEST_TAGS_MAX).contains(&count) { Ok(()) } else { Err(Error::Tags(count)) }
}

fn take<const N: usize>(bytes: &[u8], at: &mut usize) -> [u8; N] {
    let taken = bytes[*at..*at + N].try_into().expect("N bytes");
    *at += N;
    taken
}

/// Finds the content and the place of the only extension of a type.
#[expect(clippy::type_complexity, reason = "a value and its place")]
pub(crate) fn find<'a>(
    packet: &lct::Packet<&'a [u8]>,
    het: u8,
) -> Result<Option<(&'a [u8], Range<usize>)>, Error> {
    let datagram = packet.datagram();
    let (mut at, mut found) = (packet.extensions_start(), None);
    for (other, content) in packet.extensions() {
        let end = at + content.len() + if other < 128 { 2 } else { 1 };
        if other == het && found.replace((&datagram[end - content.len()..end], at..end)).is_some() {
            return Err(Error::Duplicate(het));
        }
        at = end;
    }
    Ok(found)
}

/// Moves the payload back so that `added` bytes of extension fit behind the header. Returns the room.
pub(crate) fn make_room(buffer: &mut [u8], bytes: usize, added: usize) -> Result<Range<usize>, Error> {
    let packet = buffer.get(..bytes).ok_or(Error::Room(added))?;
    let start = lct::Packet::new_checked(packet)?.header_len();
    let words = u8::try_from((start + added) / 4).map_err(|_| Error::Room(added))?;
    if bytes + added > buffer.len() {
        return Err(Error::Room(added));
    }
    buffer.copy_within(start..bytes, start + added);
    buffer[2] = words;
    Ok(start..start + added)
}
