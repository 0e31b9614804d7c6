//! Digests of content: BLAKE3 of every block, and a root over them for the whole file.

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// The part of a block's digest that the FDT carries: enough to find a corrupt block. The root digest
/// verifies the whole file.
pub type ShortDigest = [u8; 16];

/// Returns the digest of a block's bytes, without the padding of the last symbol.
pub fn block_digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}

/// Hasher for the digest of a block that arrives in parts.
#[derive(Clone, Debug, Default)]
pub struct BlockHasher(blake3::Hasher);

impl BlockHasher {
    /// Adds the next bytes of the block.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the [`block_digest`] of all bytes.
    pub fn finish(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}

/// Returns the digest of a file: BLAKE3 over the digests of all blocks in order. An empty file has no block
/// digests.
pub fn file_digest<'a>(blocks: impl IntoIterator<Item = &'a Digest>) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for block in blocks {
        hasher.update(block);
    }
    *hasher.finalize().as_bytes()
}

/// Returns the part of a digest that the FDT carries.
pub fn short(digest: &Digest) -> ShortDigest {
    *digest.first_chunk().expect("a digest has 32 bytes")
}

/// Formats a digest in lower-case hexadecimal.
pub fn hex(digest: &Digest) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}
