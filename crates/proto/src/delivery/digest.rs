//! Digests of content: BLAKE3 of every block, and a root over them for the whole file.

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// What the FDT carries of a block's digest: enough to find the block that is wrong. The root vouches for the
/// whole.
pub type ShortDigest = [u8; 16];

/// The digest of a block's bytes, without the padding of its last symbol.
pub fn block_digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}

/// The digest of a block that comes in parts.
#[derive(Clone, Debug, Default)]
pub struct BlockHasher(blake3::Hasher);

impl BlockHasher {
    /// Takes the next bytes of the block.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// [`block_digest`] of all bytes.
    pub fn finish(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}

/// The digest of a file: BLAKE3 over the digests of all its blocks in order. An empty file has none.
pub fn file_digest<'a>(blocks: impl IntoIterator<Item = &'a Digest>) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for block in blocks {
        hasher.update(block);
    }
    *hasher.finalize().as_bytes()
}

/// The part of a digest that travels in the FDT.
pub fn short(digest: &Digest) -> ShortDigest {
    *digest.first_chunk().expect("a digest has 32 bytes")
}

/// A digest in lower-case hexadecimal.
pub fn hex(digest: &Digest) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}
