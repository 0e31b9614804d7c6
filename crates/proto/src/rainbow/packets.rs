//! Symbols that are numbers: any set of enough different numbers completes a transfer.

use super::fountain::{Basin, Fountain};
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
    refused: u64,
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

    /// Returns the count of bodies without a number, or with a number above the limit.
    pub const fn refused(&self) -> u64 {
        self.refused
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
        let Some(number) = number else {
            self.refused += 1;
            return;
        };
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
