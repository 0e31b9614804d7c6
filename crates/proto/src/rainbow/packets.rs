//! Symbols that are numbers: any set of enough different numbers completes a transfer.

use crate::time::Instant;

/// Length of a number, in bytes.
const NUMBER_BYTES: usize = 8;
/// Limit of the numbers that a tally counts; higher numbers are treated as forged.
const NUMBERS_MAX: u64 = 1 << 24;

/// Fountain of numbers from 0 on, each followed by zeros.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    next: u64,
    bytes: usize,
}

impl Numbers {
    /// Creates a fountain of symbols of `bytes` bytes, at least 8.
    pub fn new(bytes: usize) -> Self {
        Self { next: 0, bytes: bytes.max(NUMBER_BYTES) }
    }
}

impl Fountain for Numbers {
    fn next(&mut self, _now: Instant, room: &mut [u8]) -> Option<usize> {
        let symbol = room.get_mut(..self.bytes)?;
        let (number, zeros) = symbol.split_at_mut(NUMBER_BYTES);
        number.copy_from_slice(&self.next.to_be_bytes());
        zeros.fill(0);
        self.next += 1;
        Some(self.bytes)
    }
}

/// Set of received numbers, up to 2^24: one bit each, at most 2 MiB.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    words: Vec<u64>,
    wanted: Option<u64>,
    count: u64,
    duplicates: u64,
    completed_at: Option<Instant>,
}

impl Tally {
    /// Creates a tally that is full after `wanted` different numbers, or never with `None`.
    pub fn new(wanted: Option<u64>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Returns the count of different numbers received.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the count of duplicate numbers.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the time at which the tally became full.
    pub const fn completed_at(&self) -> Option<Instant> {
        self.completed_at
    }

    /// Returns the received numbers: bit i of word w is number 64 w + i.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

impl Basin for Tally {
    fn take(&mut self, now: Instant, body: &[u8]) {
        let number = body.first_chunk().map(|bytes: &[u8; NUMBER_BYTES]| u64::from_be_bytes(*bytes));
        let number =
            number.filter(|number| *number < NUMBERS_MAX).and_then(|number| usize::try_from(number).ok());
        let Some(number) = number else { return };
        let (word, bit) = (number / 64, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        if self.words[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.words[word] |= bit;
        self.count += 1;
        if self.wanted == Some(self.count) {
            self.completed_at = Some(now);
        }
    }

    fn is_full(&self) -> bool {
        self.wanted.is_some_and(|wanted| self.count >= wanted)
    }
}

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

/// Endless supply of symbols.
pub trait Fountain {
    /// Writes the next symbol, with its identification, at the start of `room` and returns the length.
    /// Returns `None` if no symbol is available; the request then stays unanswered.
    fn next(&mut self, now: Instant, room: &mut [u8]) -> Option<usize>;
}

/// Consumer of symbols, until complete.
pub trait Basin {
    /// Processes a received symbol, possibly forged.
    fn take(&mut self, now: Instant, body: &[u8]);

    /// Whether the content is complete; the receiver then stops its requests.
    fn is_full(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
