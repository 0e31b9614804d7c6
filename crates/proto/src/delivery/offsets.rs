//! Offsets of the application scheduler (Birk and Crupnicoff, INFOCOM 2003, as used by Lucas et al. 2010).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Offsets on a ring of `blocks` blocks: the first offset is 0, and each next offset is the middle of the
/// longest interval between earlier offsets, `start + floor(length / 2)`; ties take the smallest start. After
/// all places of the ring the offsets repeat in the same order.
///
/// A receiver of the first L offsets gets as many different blocks as possible before the first duplicate.
///
/// Offsets are computed on demand, O(log n) for the nth. Memory: 32 bytes for each offset computed.
#[derive(Clone, Debug)]
pub struct Offsets {
    ring: u64,
    known: Vec<u64>,
    intervals: BinaryHeap<(u64, Reverse<u64>)>,
}

impl Offsets {
    /// Creates the offsets on a ring of `blocks` blocks.
    ///
    /// # Panics
    /// When `blocks` is 0.
    pub fn new(blocks: u64) -> Self {
        assert!(blocks > 0, "a ring has at least one block");
        Self { ring: blocks, known: vec![0], intervals: BinaryHeap::from([(blocks, Reverse(0))]) }
    }

    /// Returns the offset of a place, counted from 0.
    pub fn get(&mut self, place: usize) -> u64 {
        let place = match usize::try_from(self.ring) {
            Ok(ring) => place % ring,
            Err(_) => place,
        };
        while self.known.len() <= place {
            let (length, Reverse(start)) =
                self.intervals.pop().expect("below a ring's length an interval is left");
            let half = length / 2;
            self.known.push(start + half);
            self.intervals.push((half, Reverse(start)));
            self.intervals.push((length - half, Reverse(start + half)));
        }
        self.known[place]
    }
}

/// Returns the offsets of the first `places` places; see [`Offsets`].
///
/// # Panics
/// When `blocks` is 0.
pub fn bisecting_offsets(blocks: u64, places: usize) -> Vec<u64> {
    let mut offsets = Offsets::new(blocks);
    (0..places).map(|place| offsets.get(place)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_papers_tables() {
        assert_eq!(bisecting_offsets(8, 4), [0, 4, 2, 6]);
        assert_eq!(bisecting_offsets(8, 8), [0, 4, 2, 6, 1, 3, 5, 7]);
        assert_eq!(bisecting_offsets(10, 10), [0, 5, 2, 7, 3, 8, 1, 4, 6, 9]);
    }

    #[test]
    fn more_places_than_blocks_repeat() {
        assert_eq!(bisecting_offsets(1, 3), [0, 0, 0]);
        assert_eq!(bisecting_offsets(2, 5), [0, 1, 0, 1, 0]);
    }

    /// "Blocks sent before the first duplicate, with L levels received": sequencer table, as sixteenths of B.
    #[test]
    fn blocks_before_the_first_duplicate() {
        let blocks = 1_600;
        for (levels, sixteenths) in [
            (1, 16),
            (2, 16),
            (3, 12),
            (4, 16),
            (5, 10),
            (6, 12),
            (7, 14),
            (8, 16),
            (9, 9),
            (10, 10),
            (12, 12),
            (16, 16),
        ] {
            let offsets = bisecting_offsets(blocks, levels);
            let mut seen = BTreeSet::new();
            let first_duplicate =
                (0..blocks).find(|b| offsets.iter().any(|offset| !seen.insert((b + offset) % blocks)));
            // A duplicate ends the count within the buffer that has it.
            let sent = first_duplicate.map_or(blocks, |b| b * levels as u64);
            assert_eq!(sent, blocks * sixteenths / 16, "{levels} levels");
        }
    }
}
