//! Bounded vector of nodes with a hash index beside it; no allocation after construction.

/// Marker for an absent node.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Slab<T> {
    nodes: Vec<T>,
    /// Free nodes, used from the end.
    free: Vec<u32>,
    index: Index,
    bound: usize,
}

impl<T> Slab<T> {
    /// Creates an empty slab of at most `bound` nodes, less than 2^30. The capacity is reserved at once; the
    /// system provides the memory on first use.
    pub(super) fn new(bound: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(bound),
            free: Vec::with_capacity(bound),
            index: Index::new(bound),
            bound,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len() == self.bound
    }

    pub(super) fn at(&self, number: u32) -> &T {
        &self.nodes[number as usize]
    }

    pub(super) fn at_mut(&mut self, number: u32) -> &mut T {
        &mut self.nodes[number as usize]
    }

    pub(super) fn find(&self, hash: u32, is_it: impl Fn(&T) -> bool) -> Option<u32> {
        self.index.find(hash, |number| is_it(&self.nodes[number as usize]))
    }

    /// Returns the first node that may have this hash, without reading a node.
    pub(super) fn guess(&self, hash: u32) -> Option<u32> {
        self.index.find(hash, |_| true)
    }

    /// Reads the index words of a hash: the home word, and a word in the next cache line, because a search or
    /// the shift after a removal often continues there.
    pub(super) fn glance(&self, hash: u32) -> u64 {
        let Index { words } = &self.index;
        let home = self.index.home(hash);
        words[home] ^ words[(home + 3) & (words.len() - 1)]
    }

    /// Inserts a node that is not yet present. The caller has made room: see [`Slab::is_full`].
    pub(super) fn insert(&mut self, hash: u32, node: T) -> u32 {
        debug_assert!(!self.is_full(), "the caller made room");
        let number = if let Some(number) = self.free.pop() {
            self.nodes[number as usize] = node;
            number
        } else {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
        };
        self.index.insert(hash, number);
        number
    }

    /// Removes a node that [`Slab::insert`] added with the same hash.
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        self.index.remove(hash, number);
        self.free.push(number);
    }
}

/// Node numbers by hash: open addressing with linear probing, so that a lookup mostly reads one cache line.
/// No slot is ever marked as deleted.
#[derive(Debug)]
struct Index {
    /// Hash and number plus one; 0 in a free slot. The length is a power of two, at least a third above the
    /// number of nodes.
    words: Box<[u64]>,
}

impl Index {
    fn new(bound: usize) -> Self {
        // All zero: pages never written cost no memory.
        Self { words: vec![0; (bound + bound / 3 + 1).next_power_of_two()].into() }
    }

    fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut slot = self.home(hash);
        loop {
            let word = self.words[slot];
            if word == 0 {
                return None;
            }
            if hash_of(word) == hash && is_it(number(word)) {
                return Some(number(word));
            }
            slot = self.after(slot);
        }
    }

    fn insert(&mut self, hash: u32, number: u32) {
        let mut slot = self.home(hash);
        while self.words[slot] != 0 {
            slot = self.after(slot);
        }
        self.words[slot] = word(hash, number);
    }

    /// Removes an entry and shifts later entries of the run up, as far as their home slots permit.
    fn remove(&mut self, hash: u32, number: u32) {
        let wanted = word(hash, number);
        let mut hole = self.home(hash);
        while self.words[hole] != wanted {
            if self.words[hole] == 0 {
                debug_assert!(false, "it was put in with this hash");
                return;
            }
            hole = self.after(hole);
        }
        let mut slot = self.after(hole);
        while self.words[slot] != 0 {
            let from_home = self.distance(self.home(hash_of(self.words[slot])), slot);
            if from_home >= self.distance(hole, slot) {
                self.words[hole] = self.words[slot];
                hole = slot;
            }
            slot = self.after(slot);
        }
        self.words[hole] = 0;
    }

    /// Returns the first slot of a hash.
    const fn home(&self, hash: u32) -> usize {
        hash as usize & (self.words.len() - 1)
    }

    const fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.words.len() - 1)
    }

    const fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.words.len() - 1)
    }
}

const fn word(hash: u32, number: u32) -> u64 {
    (hash as u64) << 32 | (number as u64 + 1)
}

const fn hash_of(word: u64) -> u32 {
    (word >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
const fn number(word: u64) -> u32 {
    word as u32 - 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few hashes, near the end and the beginning, so that runs are long and go round.
        #[test]
        fn is_a_map(steps in prop::collection::vec((any::<bool>(), 0_u32..12, 0_u32..3), 1..200)) {
            let (mut slab, mut reference) = (Slab::new(16), BTreeMap::new());
            let bucket = |low: u32| low + 26;
            for (puts_in, low, more) in steps {
                let key = (low, more);
                let found = slab.find(bucket(low), |node| *node == key);
                prop_assert_eq!(found, reference.get(&key).copied());
                match found {
                    None if puts_in && !slab.is_full() => {
                        let number = slab.insert(bucket(low), key);
                        prop_assert!(reference.values().all(|other| *other != number));
                        reference.insert(key, number);
                    }
                    Some(number) if !puts_in => {
                        slab.remove(bucket(low), number);
                        reference.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(slab.len(), reference.len());
                for (key, number) in &reference {
                    prop_assert_eq!(slab.find(bucket(key.0), |node| node == key), Some(*number));
                }
            }
        }
    }
}
