//! Set of labels.

/// Set of labels from 1 to a maximum, one bit each.
#[derive(Clone, Debug)]
pub(super) struct Labels {
    words: Box<[u64]>,
    count: u16,
}

impl Labels {
    /// Creates an empty set for the labels 1 to `most`.
    pub fn new(most: u16) -> Self {
        Self { words: vec![0; usize::from(most) / 64 + 1].into(), count: 0 }
    }

    /// Returns the number of labels in the set.
    pub const fn len(&self) -> u16 {
        self.count
    }

    /// Whether the set is empty.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Inserts a label; no effect if present.
    pub fn insert(&mut self, label: u16) {
        let (word, bit) = place(label);
        self.count += u16::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    /// Removes and returns the lowest label.
    pub fn pop_lowest(&mut self) -> Option<u16> {
        let (index, word) = (0_u16..).zip(&mut self.words).find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        self.count -= 1;
        u16::try_from(bit).ok().map(|bit| index * 64 + bit)
    }

    /// Removes all labels above `highest`.
    pub fn truncate(&mut self, highest: u16) {
        let (word, bit) = place(highest);
        self.words[word] &= bit | (bit - 1);
        self.words[word + 1..].fill(0);
        let count: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        self.count = u16::try_from(count).unwrap_or(u16::MAX);
    }

    /// Removes all labels.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }
}

fn place(label: u16) -> (usize, u64) {
    (usize::from(label) / 64, 1 << (label % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_set(steps in prop::collection::vec((0_u8..4, 1_u16..=256), 1..200)) {
            let (mut labels, mut reference) = (Labels::new(256), BTreeSet::new());
            for (step, label) in steps {
                match step {
                    0 | 1 => { labels.insert(label); reference.insert(label); }
                    2 => prop_assert_eq!(labels.pop_lowest(), reference.pop_first()),
                    _ => { labels.truncate(label); reference.retain(|one| *one <= label); }
                }
                prop_assert_eq!(usize::from(labels.len()), reference.len());
                prop_assert_eq!(labels.is_empty(), reference.is_empty());
            }
        }
    }
}
