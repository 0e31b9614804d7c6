//! Nodes in one vector with a bound, found by hash: chains through the nodes themselves, so that nothing is allocated once it has grown.

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// What a slab holds.
pub(super) trait Node {
    /// The next node of the same bucket, or of those that are free.
    fn chain(&mut self) -> &mut u32;
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    nodes: Vec<T>,
    /// First of each bucket's chain; a power of two of them, and at least as many as nodes, so that chains are short.
    heads: Vec<u32>,
    /// First of those that are free.
    free: u32,
    bound: usize,
    len: usize,
}

impl<T: Node> Slab<T> {
    /// An empty one of at most `bound` nodes; their room is set aside at once, and taken from the system as it is first used.
    pub(super) fn new(bound: usize) -> Self {
        let nodes = Vec::with_capacity(bound);
        Self { nodes, heads: vec![NONE; bound.next_power_of_two()], free: NONE, bound, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len == self.bound
    }

    pub(super) fn at(&self, index: u32) -> &T {
        &self.nodes[index as usize]
    }

    pub(super) fn at_mut(&mut self, index: u32) -> &mut T {
        &mut self.nodes[index as usize]
    }

    pub(super) fn find(&mut self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<u32> {
        let mut index = self.heads[self.bucket(hash)];
        while index != NONE {
            let node = &mut self.nodes[index as usize];
            if is_it(node) {
                return Some(index);
            }
            index = *node.chain();
        }
        None
    }

    /// Puts in a node that is not there yet. The caller has made room: see [`Slab::is_full`].
    pub(super) fn insert(&mut self, hash: u64, mut node: T) -> u32 {
        debug_assert!(!self.is_full(), "the caller made room");
        let bucket = self.bucket(hash);
        *node.chain() = self.heads[bucket];
        let index = if self.free == NONE {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
        } else {
            let index = self.free;
            self.free = *self.nodes[index as usize].chain();
            self.nodes[index as usize] = node;
            index
        };
        self.heads[bucket] = index;
        self.len += 1;
        index
    }

    /// Frees a node that [`Slab::insert`] put in with the same hash.
    pub(super) fn remove(&mut self, hash: u64, index: u32) {
        let next = *self.nodes[index as usize].chain();
        let bucket = self.bucket(hash);
        let mut before = self.heads[bucket];
        if before == index {
            self.heads[bucket] = next;
        } else {
            while *self.nodes[before as usize].chain() != index {
                before = *self.nodes[before as usize].chain();
            }
            *self.nodes[before as usize].chain() = next;
        }
        *self.nodes[index as usize].chain() = self.free;
        self.free = index;
        self.len -= 1;
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    const fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }
}
