//! Symbols that are numbers: any so many different ones complete a transfer.

use super::fountain::{Basin, Fountain};
use crate::time::Instant;

/// Bytes of a number.
const NUMBER_BYTES: usize = 8;
/// A tally follows so many numbers; higher ones are held to be forged.
const NUMBERS_MAX: u64 = 1 << 24;

/// Gives numbers from 0 on, and zeros behind them.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    next: u64,
    bytes: usize,
}

impl Numbers {
    /// Symbols of so many bytes, 8 at least.
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

/// Notes which numbers came, up to 2^24: a bit each, 2 MiB at the most.
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
    /// Wants so many different numbers, or all that there are.
    pub fn new(wanted: Option<u64>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Different numbers that came.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Numbers that came again.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Bodies without a number, or with an absurd one.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// When there were enough.
    pub const fn completed_at(&self) -> Option<Instant> {
        self.completed_at
    }

    /// Which came: bit i of word w is number 64 w + i.
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
