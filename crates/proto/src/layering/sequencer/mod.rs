//! The sequencer (Lucas et al. 2010): maps a buffer, most important bytes first, onto layers, so that a
//! receiver with x % of the rate gets the first x % of the buffer.
//!
//! An application passes in a buffer and the time to send the buffer in, without knowledge of channels.
//! [`Arrangement`] assigns a part of the buffer to each packet of each level. [`Sequencer`] does this for a
//! sequence of buffers, and [`Assembler`] reassembles buffers. [`crate::stream`] has both ends of a session
//! of buffers.

mod arrangement;
mod assembler;
mod sender;

use core::ops::Range;
use std::collections::BTreeMap;

pub use arrangement::{Arrangement, Order, Pdu, Reserve, Turn};
pub use assembler::{Assembler, AssemblerStats, Delivery, Part, Piece, Received};
pub use sender::{BUFFER_TIME_MAX, Buffer, Load, Sequencer, Submission, SubmitError};

/// Bytes of a page.
const PAGE: usize = 1 << 16;
/// Maximum pieces of a buffer; a packet that would add a further piece is dropped.
const PIECES_MAX: usize = 1 << 16;

/// A partially received buffer.
///
/// Memory: a page of 64 KiB for each page with received bytes, 8 bytes for each page before the last page,
/// and at most 2 MiB for pieces. Pages are kept for the next buffer.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Box<[u8]>>>,
    spare: Vec<Box<[u8]>>,
    /// Received ranges: starts and ends, never adjacent.
    held: BTreeMap<usize, usize>,
}

impl Pages {
    /// Inserts bytes and returns whether any byte was new. Bytes received before stay unchanged.
    pub(super) fn insert(&mut self, offset: usize, payload: &[u8]) -> bool {
        let end = offset + payload.len();
        if payload.is_empty() || self.held_from(offset).is_some_and(|held| held.end >= end) {
            return false;
        }
        let mut whole = self.held_from(offset).unwrap_or(offset..end);
        whole.end = whole.end.max(end);
        let is_joined = whole.start < offset || self.held.range(offset..=end).next().is_some();
        if !is_joined && self.held.len() >= PIECES_MAX {
            return false;
        }
        // Writes the gaps between the ranges that the new bytes touch.
        let mut from = self.held_from(offset).map_or(offset, |held| held.end);
        while let Some((start, stop)) = self.held.range(offset..=end).next().map(|(a, b)| (*a, *b)) {
            if from < start {
                self.write(from, &payload[from - offset..start - offset]);
            }
            from = from.max(stop);
            whole.end = whole.end.max(stop);
            self.held.remove(&start);
        }
        if from < end {
            self.write(from, &payload[from - offset..]);
        }
        self.held.insert(whole.start, whole.end);
        true
    }

    /// Returns the received range that begins at or before an offset and reaches the offset.
    fn held_from(&self, offset: usize) -> Option<Range<usize>> {
        let (start, end) = self.held.range(..=offset).next_back()?;
        (*end >= offset).then_some(*start..*end)
    }

    fn write(&mut self, mut offset: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (number, at) = (offset / PAGE, offset % PAGE);
            let (now, later) = bytes.split_at(bytes.len().min(PAGE - at));
            if self.pages.len() <= number {
                self.pages.resize_with(number + 1, || None);
            }
            let spare = &mut self.spare;
            let page = self.pages[number]
                .get_or_insert_with(|| spare.pop().unwrap_or_else(|| vec![0; PAGE].into_boxed_slice()));
            page[at..at + now.len()].copy_from_slice(now);
            offset += now.len();
            bytes = later;
        }
    }

    /// Length of the contiguous prefix in bytes.
    pub(super) fn prefix(&self) -> usize {
        self.held.get(&0).copied().unwrap_or(0)
    }

    /// Returns the received ranges, in ascending order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Range<usize>> {
        self.held.iter().map(|(start, end)| *start..*end)
    }

    /// Returns a copy of received bytes.
    pub(super) fn read(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len());
        let mut from = range.start;
        while from < range.end
            && let Some(Some(page)) = self.pages.get(from / PAGE)
        {
            let to = range.end.min((from / PAGE + 1) * PAGE);
            bytes.extend_from_slice(&page[from % PAGE..][..to - from]);
            from = to;
        }
        bytes
    }

    /// Clears the buffer; keeps up to `pages_max` pages for the next buffer.
    pub(super) fn clear(&mut self, pages_max: usize) {
        self.spare.extend(self.pages.drain(..).flatten());
        self.spare.truncate(pages_max);
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_far_offset_costs_a_page() {
        let mut pages = Pages::default();
        assert!(pages.insert((64 << 20) - 4, b"abcd"));
        assert_eq!(pages.pages.iter().flatten().count(), 1);
        assert_eq!(pages.read((64 << 20) - 4..64 << 20), b"abcd");
        pages.clear(0);
        assert!(pages.spare.is_empty());
    }

    #[test]
    fn pieces_are_bounded() {
        let mut pages = Pages::default();
        for piece in 0..PIECES_MAX {
            assert!(pages.insert(2 * piece, b"x"));
        }
        assert!(!pages.insert(2 * PIECES_MAX, b"x"), "one piece too many");
        assert!(pages.insert(1, b"x"), "joins two");
        assert!(pages.insert(2 * PIECES_MAX, b"x"), "then there is room");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a plain array; some parts lie across the bounds of pages. What came first stays.
        #[test]
        fn pieces_are_what_was_put_in(
            inserts in prop::collection::vec((0_usize..60, 1_usize..12, any::<u8>()), 0..60),
            shift in prop_oneof![Just(0), Just(PAGE - 30), Just(3 * PAGE - 7)],
        ) {
            let mut pages = Pages::default();
            let mut content: [Option<u8>; 80] = [None; 80];
            for (offset, length, byte) in inserts {
                let range = offset..offset + length;
                let is_new = content[range.clone()].iter().any(Option::is_none);
                prop_assert_eq!(pages.insert(shift + offset, &vec![byte; length]), is_new);
                content[range].iter_mut().for_each(|held| { held.get_or_insert(byte); });
            }
            let mut found: [Option<u8>; 80] = [None; 80];
            for piece in pages.pieces() {
                let bytes = pages.read(piece.clone());
                prop_assert_eq!(bytes.len(), piece.len());
                for (at, byte) in piece.zip(bytes) {
                    found[at - shift] = Some(byte);
                }
            }
            prop_assert_eq!(found, content);
            let pieces: Vec<_> = pages.pieces().collect();
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
