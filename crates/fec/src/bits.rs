//! Rows of bits, in words of 64.

/// A matrix over GF(2).
#[derive(Debug)]
pub(crate) struct Bits {
    words: usize,
    bits: Vec<u64>,
}

impl Bits {
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        let words = columns.div_ceil(64);
        Self { words, bits: vec![0; rows * words] }
    }

    /// Words of a row.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    pub(crate) fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..(row + 1) * self.words]
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [u64] {
        &mut self.bits[row * self.words..(row + 1) * self.words]
    }

    pub(crate) fn get(&self, row: usize, column: usize) -> bool {
        self.row(row)[column / 64] >> (column % 64) & 1 != 0
    }

    /// Adds 1 to an entry.
    pub(crate) fn flip(&mut self, row: usize, column: usize) {
        self.row_mut(row)[column / 64] ^= 1 << (column % 64);
    }

    /// Eight bits of a row from column 8 * `byte` on.
    pub(crate) fn byte(&self, row: usize, byte: usize) -> u8 {
        self.row(row)[byte / 8].to_le_bytes()[byte % 8]
    }

    /// Adds a row to another.
    pub(crate) fn add(&mut self, from: usize, to: usize) {
        let (low, high) = (from.min(to), from.max(to));
        let (before, after) = self.bits.split_at_mut(high * self.words);
        let (low, high) = (&mut before[low * self.words..][..self.words], &mut after[..self.words]);
        if from < to { xor(high, low) } else { xor(low, high) }
    }
}

/// Returns the first bit set from `word` on, and moves `word` to that bit's word.
pub(crate) fn first(bits: &[u64], word: &mut usize) -> Option<usize> {
    while *bits.get(*word)? == 0 {
        *word += 1;
    }
    Some(*word * 64 + bits[*word].trailing_zeros() as usize)
}

pub(crate) fn xor(target: &mut [u64], source: &[u64]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= source;
    }
}
