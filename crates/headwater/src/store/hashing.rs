//! Digests of blocks, made of the bytes that are about to be written while these are in the processor's
//! cache.
//!
//! Where nothing is lost, a block's source symbols are written in order, and its digest is there with its
//! last symbol: no thread has to be woken to read the block back. A block that comes otherwise is read back
//! by one.

use std::collections::BTreeMap;

use headwater_proto::delivery::{BlockHasher, Digest, FileIndex};

use super::gather::Key;

/// Blocks whose digest is under way, at most: those of a window of 256 and of the one before. Each takes 2
/// KiB.
const BLOCKS_MAX: usize = 512;

/// Digests under way.
#[derive(Debug, Default)]
pub(super) struct Hashing(BTreeMap<Key, Partial>);

#[derive(Debug)]
struct Partial {
    file: FileIndex,
    /// Source symbols hashed: those below this one.
    symbols: u32,
    hasher: BlockHasher,
}

impl Hashing {
    /// Source symbols of a file's block from `esi` on are written: `bytes`, without padding.
    pub(super) fn write(&mut self, file: FileIndex, key: Key, esi: u32, count: u32, bytes: &[u8]) {
        if esi == 0 && (self.0.len() < BLOCKS_MAX || self.0.contains_key(&key)) {
            self.0.insert(key, Partial { file, symbols: 0, hasher: BlockHasher::default() });
        }
        let Some(partial) = self.0.get_mut(&key) else { return };
        if partial.symbols == esi {
            partial.hasher.update(bytes);
            partial.symbols += count;
        } else {
            self.0.remove(&key);
        }
    }

    /// Takes the digest of a block of so many source symbols, if all of them were written in order.
    pub(super) fn take(&mut self, key: Key, symbols: u32) -> Option<Digest> {
        let partial = self.0.remove(&key)?;
        (partial.symbols == symbols).then(|| partial.hasher.finish())
    }

    /// Forgets what was hashed of a file.
    pub(super) fn forget(&mut self, file: FileIndex) {
        self.0.retain(|_, partial| partial.file != file);
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::delivery::block_digest;

    use super::*;

    const FILE: FileIndex = FileIndex(3);
    const KEY: Key = (0, 7);

    #[test]
    fn what_is_written_in_order_has_its_digest() {
        let mut hashing = Hashing::default();
        hashing.write(FILE, KEY, 0, 2, b"ab");
        hashing.write(FILE, (0, 8), 0, 1, b"x");
        hashing.write(FILE, KEY, 2, 1, b"c");
        assert_eq!(hashing.take(KEY, 3), Some(block_digest(b"abc")));
        assert_eq!(hashing.take(KEY, 3), None);
        assert_eq!(hashing.take((0, 8), 2), None, "a symbol is missing");
    }

    #[test]
    fn what_has_a_hole_or_begins_in_the_middle_has_none() {
        let mut hashing = Hashing::default();
        hashing.write(FILE, KEY, 0, 1, b"a");
        hashing.write(FILE, KEY, 2, 1, b"c");
        hashing.write(FILE, KEY, 1, 1, b"b");
        assert_eq!(hashing.take(KEY, 3), None);
        hashing.write(FILE, KEY, 1, 2, b"bc");
        assert_eq!(hashing.take(KEY, 3), None);
    }

    #[test]
    fn a_block_that_comes_anew_is_hashed_anew() {
        let mut hashing = Hashing::default();
        hashing.write(FILE, KEY, 0, 1, b"?");
        hashing.write(FILE, KEY, 0, 3, b"abc");
        assert_eq!(hashing.take(KEY, 3), Some(block_digest(b"abc")));
    }

    #[test]
    fn blocks_under_way_have_a_bound() {
        let mut hashing = Hashing::default();
        (0..1_000).for_each(|sbn| hashing.write(FILE, (0, sbn), 0, 1, b"a"));
        assert_eq!(hashing.0.len(), BLOCKS_MAX);
        hashing.forget(FileIndex(2));
        assert_eq!(hashing.0.len(), BLOCKS_MAX, "those of another file stay");
        hashing.forget(FILE);
        assert!(hashing.0.is_empty());
    }
}
