//! Hashes of packets: tags, digests, trees, passes.

use core::ops::Range;

use headwater_wire::auth::{Authentication, DEPTH_MAX, Node, PASS_BYTES, Pass, Tag};
use headwater_wire::extensions::Lateness;
use headwater_wire::lct;

use super::SIGNATURE_BYTES;
use crate::machine::ChannelId;

/// Public key of a sender (Ed25519).
pub type PublicKey = [u8; 32];

const SIGNED_PREFIX: &[u8] = b"headwater packet 1\0";
const MESSAGE_BYTES_MAX: usize = SIGNED_PREFIX.len() + 2 + 32;

/// Digest of one packet.
type Digest = [u8; 32];

/// Returns the short name of a key in EXT_AUTH.
pub(crate) fn key_name(key: &PublicKey) -> [u8; 4] {
    *blake3::hash(key).as_bytes().first_chunk().expect("32 bytes")
}

/// Keys of one session, derived from public values: a tag needs a second preimage all the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionKeys {
    tag: Digest,
    pass: Digest,
    /// Whether tags and digests count the CCI as zero: BCFS writes a word for each address into the CCI.
    ignores_cci: bool,
}

impl SessionKeys {
    pub(crate) fn new(key: &PublicKey, tsi: u64, started: u32, ignores_cci: bool) -> Self {
        let derive = |context| {
            let mut hasher = blake3::Hasher::new_derive_key(context);
            hasher.update(key);
            hasher.update(&tsi.to_be_bytes());
            hasher.update(&started.to_be_bytes());
            *hasher.finalize().as_bytes()
        };
        Self { tag: derive("headwater tag 1"), pass: derive("headwater pass 1"), ignores_cci }
    }

    /// Returns the tag of a packet.
    pub(crate) fn tag(&self, packet: &lct::Packet<&[u8]>, bytes: &[u8]) -> Tag {
        let changing = self.changing(packet);
        let hash = if changing.iter().all(Range::is_empty) {
            blake3::keyed_hash(&self.tag, bytes)
        } else {
            let mut hasher = blake3::Hasher::new_keyed(&self.tag);
            update_without(&mut hasher, bytes, changing);
            hasher.finalize()
        };
        *hash.as_bytes().first_chunk().expect("32 bytes")
    }

    /// Returns the pass before the pass of `number`: one step down the chain. Channel and number are hashed,
    /// too, so that no table of inverses serves two steps.
    pub(crate) fn previous_pass(&self, channel: ChannelId, number: u32, pass: Pass) -> Pass {
        let mut input = [0; 6 + PASS_BYTES];
        input[..2].copy_from_slice(&channel.0.to_be_bytes());
        input[2..6].copy_from_slice(&number.to_be_bytes());
        input[6..].copy_from_slice(&pass);
        *blake3::keyed_hash(&self.pass, &input).as_bytes().first_chunk().expect("32 bytes")
    }

    /// Returns the last pass of a chain: `secret` is the sender's alone.
    pub(crate) fn last_pass(secret: &[u8; 32], channel: ChannelId, number: u32) -> Pass {
        let mut input = [0; 6];
        input[..2].copy_from_slice(&channel.0.to_be_bytes());
        input[2..].copy_from_slice(&number.to_be_bytes());
        *blake3::keyed_hash(secret, &input).as_bytes().first_chunk().expect("32 bytes")
    }

    /// Returns the digest of a packet whose EXT_AUTH is at `extension`. Signature and path count as zeros.
    pub(crate) fn digest(
        &self,
        packet: &lct::Packet<&[u8]>,
        bytes: &[u8],
        extension: Range<usize>,
    ) -> Digest {
        let [cci, lateness] = self.changing(packet);
        let mut hasher = blake3::Hasher::new();
        update_without(&mut hasher, bytes, [cci, lateness, Authentication::unsigned_part(extension)]);
        *hasher.finalize().as_bytes()
    }

    /// Returns the parts of a packet that change after the packet was listed, in order: CCI and lateness.
    fn changing(&self, packet: &lct::Packet<&[u8]>) -> [Range<usize>; 2] {
        let cci = packet.cci_range();
        let end = cci.end;
        [if self.ignores_cci { cci } else { end..end }, Lateness::place(packet).unwrap_or(end..end)]
    }
}

/// Longest part of a packet that counts as zeros.
const UNHASHED_MAX: usize = SIGNATURE_BYTES + DEPTH_MAX * size_of::<Node>();

/// Hashes bytes with zeros in place of the ranges, which are in order.
fn update_without(hasher: &mut blake3::Hasher, bytes: &[u8], ranges: impl IntoIterator<Item = Range<usize>>) {
    let mut start = 0;
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        // An extension behind EXT_AUTH, which no sender writes, is hashed as it stands.
        let Some(before) = bytes.get(start..range.start) else { continue };
        hasher.update(before);
        hasher.update(&[0; UNHASHED_MAX][..range.len()]);
        start = range.end;
    }
    hasher.update(&bytes[start..]);
}

/// Returns the leaf of a packet in a tree.
pub(crate) fn leaf(digest: &Digest) -> Node {
    *digest.first_chunk().expect("32 bytes")
}

/// Returns the parent of two nodes.
pub(crate) fn parent(left: Node, right: Node) -> Node {
    let mut both = [0; 2 * size_of::<Node>()];
    both[..16].copy_from_slice(&left);
    both[16..].copy_from_slice(&right);
    leaf(blake3::hash(&both).as_bytes())
}

/// Signed message: prefix, channel, and root of the tree. The channel keeps a packet from being replayed on
/// another channel, where the packet's number would be new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    bytes: [u8; MESSAGE_BYTES_MAX],
    len: usize,
}

impl Message {
    pub(crate) fn new(channel: ChannelId, root: &[u8]) -> Self {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let (prefix, rest) = bytes.split_at_mut(SIGNED_PREFIX.len());
        prefix.copy_from_slice(SIGNED_PREFIX);
        rest[..2].copy_from_slice(&channel.0.to_be_bytes());
        rest[2..2 + root.len()].copy_from_slice(root);
        Self { bytes, len: SIGNED_PREFIX.len() + 2 + root.len() }
    }

    /// Returns the message of a received packet with this digest.
    pub(crate) fn of(channel: ChannelId, auth: &Authentication, digest: &Digest) -> Self {
        if auth.depth == 0 {
            return Self::new(channel, digest);
        }
        let (mut node, mut place) = (leaf(digest), auth.leaf);
        for &sibling in &auth.path[..auth.depth.into()] {
            node = if place & 1 == 0 { parent(node, sibling) } else { parent(sibling, node) };
            place >>= 1;
        }
        Self::new(channel, &node)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the signature of [`StandIn`](super::StandIn).
pub(crate) fn stand_in(key: &PublicKey, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut signature = [0; SIGNATURE_BYTES];
    let hash = blake3::keyed_hash(key, message);
    signature[..32].copy_from_slice(hash.as_bytes());
    signature[32..].copy_from_slice(hash.as_bytes());
    signature
}
