//! The receiving side: parts into buffers.

use core::ops::Range;
use std::collections::VecDeque;

use crate::time::{Duration, Instant};

/// Most pieces that a buffer may lie in; a packet that would add another is dropped.
const PIECES_MAX: usize = 1 << 16;

/// A buffer as far as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Its number, modulo 2^16.
    pub id: u16,
    /// Its bytes up to the last one that came; zero where nothing came.
    pub bytes: Vec<u8>,
    /// What came, in ascending order, never touching.
    pub parts: Vec<Range<usize>>,
}

impl Received {
    /// The bytes from the buffer's beginning to the first hole: the part worth most.
    pub fn prefix(&self) -> &[u8] {
        match self.parts.first() {
            Some(part) if part.start == 0 => &self.bytes[part.clone()],
            _ => &[],
        }
    }

    /// Puts a part in; whether it was new at all.
    fn insert(&mut self, offset: usize, payload: &[u8]) -> bool {
        let end = offset + payload.len();
        let first = self.parts.partition_point(|part| part.end < offset);
        let last = self.parts.partition_point(|part| part.start <= end);
        let joined = &self.parts[first..last];
        if joined.iter().any(|part| part.start <= offset && end <= part.end) {
            return false;
        }
        if joined.is_empty() && self.parts.len() >= PIECES_MAX {
            return false;
        }
        let start = joined.first().map_or(offset, |part| part.start.min(offset));
        let whole = start..joined.last().map_or(end, |part| part.end.max(end));
        self.parts.splice(first..last, [whole]);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(payload);
        true
    }
}

/// What an assembler gives the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A buffer, when the next one has begun.
    Buffer(Received),
    /// A part of the buffer before, which came late.
    Late {
        /// The buffer.
        id: u16,
        /// Where in it.
        offset: usize,
        /// The part.
        bytes: Vec<u8>,
    },
}

/// What became of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblerStats {
    /// Parts that went into the current buffer, or were delivered late.
    pub parts: u64,
    /// Parts that were there already.
    pub duplicates: u64,
    /// Parts of buffers that are over.
    pub too_late: u64,
    /// Parts beyond the longest buffer.
    pub too_long: u64,
}

/// Collects parts until a packet of a new buffer comes.
///
/// Memory: one buffer of at most the stated length, another while the application has not taken it, and 1 MiB for pieces.
#[derive(Debug)]
pub struct Assembler {
    bytes_max: usize,
    /// How long late parts of the buffer before still count.
    grace: Duration,
    current: Option<Received>,
    /// The buffer before, and until when its late parts count.
    previous: Option<(u16, Instant)>,
    ready: VecDeque<Delivery>,
    stats: AssemblerStats,
}

/// Deliveries that wait for the application; then late parts are dropped first.
const READY_MAX: usize = 64;

impl Assembler {
    /// An assembler for buffers of at most `bytes_max`. Late parts count for `grace`, which sequencer.md 3 sets to twice
    /// the join-time latency.
    pub fn new(bytes_max: usize, grace: Duration) -> Self {
        Self {
            bytes_max,
            grace,
            current: None,
            previous: None,
            ready: VecDeque::new(),
            stats: AssemblerStats::default(),
        }
    }

    /// Changes how long late parts count.
    pub fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// What became of the packets so far.
    pub fn stats(&self) -> AssemblerStats {
        self.stats
    }

    /// A packet's part came.
    pub fn insert(&mut self, now: Instant, id: u16, offset: u32, payload: &[u8]) {
        let offset = offset as usize;
        if offset.saturating_add(payload.len()) > self.bytes_max {
            self.stats.too_long += 1;
            return;
        }
        match self.current.as_mut() {
            Some(current) if current.id == id => {
                if current.insert(offset, payload) {
                    self.stats.parts += 1;
                } else {
                    self.stats.duplicates += 1;
                }
            }
            Some(current) if !is_newer(id, current.id) => self.late(now, id, offset, payload),
            _ => {
                self.finish(now);
                let mut current = Received { id, ..Received::default() };
                current.insert(offset, payload);
                self.current = Some(current);
                self.stats.parts += 1;
            }
        }
    }

    fn late(&mut self, now: Instant, id: u16, offset: usize, payload: &[u8]) {
        let counts = self.previous.is_some_and(|(previous, until)| previous == id && now <= until);
        if counts && self.ready.len() < READY_MAX {
            self.stats.parts += 1;
            self.ready.push_back(Delivery::Late { id, offset, bytes: payload.to_vec() });
        } else {
            self.stats.too_late += 1;
        }
    }

    /// Gives up the current buffer to the application: also at the end of a session.
    pub fn finish(&mut self, now: Instant) {
        let Some(current) = self.current.take() else { return };
        self.previous = Some((current.id, now + self.grace));
        // An application that does not come loses the oldest: what is current is worth more.
        if self.ready.len() >= READY_MAX {
            self.ready.pop_front();
        }
        self.ready.push_back(Delivery::Buffer(current));
    }

    /// The next thing for the application.
    pub fn poll(&mut self) -> Option<Delivery> {
        self.ready.pop_front()
    }
}

/// Serial number arithmetic (RFC 1982).
fn is_newer(id: u16, than: u16) -> bool {
    (1..0x8000).contains(&id.wrapping_sub(than))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_new_identifier_delivers_the_buffer_before() {
        let mut assembler = Assembler::new(1_000, GRACE);
        assembler.insert(at(0), 65_535, 4, b"efgh");
        assembler.insert(at(0), 65_535, 0, b"abcd");
        assembler.insert(at(0), 65_535, 12, b"mnop");
        assert_eq!(assembler.poll(), None);
        assembler.insert(at(1), 0, 0, b"ABCD");
        let Some(Delivery::Buffer(received)) = assembler.poll() else { panic!("no buffer") };
        assert_eq!((received.id, received.prefix()), (65_535, &b"abcdefgh"[..]));
        assert_eq!(received.parts, [0..8, 12..16]);
        assert_eq!(assembler.poll(), None);
    }

    #[test]
    fn late_parts_count_for_a_while() {
        let mut assembler = Assembler::new(1_000, GRACE);
        assembler.insert(at(0), 7, 4, b"efgh");
        assembler.insert(at(10), 8, 0, b"ABCD");
        assert!(matches!(assembler.poll(), Some(Delivery::Buffer(buffer)) if buffer.prefix().is_empty()));
        assembler.insert(at(100), 7, 0, b"abcd");
        let late = Delivery::Late { id: 7, offset: 0, bytes: b"abcd".to_vec() };
        assert_eq!(assembler.poll(), Some(late));
        assembler.insert(at(200), 7, 8, b"ijkl");
        assembler.insert(at(200), 6, 0, b"xxxx");
        assert_eq!(assembler.poll(), None);
        assert_eq!(assembler.stats().too_late, 2);
    }

    #[test]
    fn nothing_grows_without_bound() {
        let mut assembler = Assembler::new(1_000, GRACE);
        assembler.insert(at(0), 1, u32::MAX, b"abcd");
        assembler.insert(at(0), 1, 998, b"abcd");
        assert_eq!(assembler.stats().too_long, 2);
        for id in 0..10_000_u16 {
            assembler.insert(at(0), id, 0, b"abcd");
        }
        assert!(assembler.ready.len() <= READY_MAX);
    }

    proptest! {
        #[test]
        fn pieces_are_what_was_put_in(inserts in prop::collection::vec((0_usize..60, 1_usize..12), 0..60)) {
            let content: Vec<u8> = (0..80).collect();
            let mut received = Received::default();
            let mut held = [false; 80];
            for (offset, length) in inserts {
                let new = (offset..offset + length).any(|byte| !held[byte]);
                prop_assert_eq!(received.insert(offset, &content[offset..offset + length]), new);
                held[offset..offset + length].fill(true);
            }
            for (byte, held) in held.iter().enumerate() {
                let found = received.parts.iter().any(|part| part.contains(&byte));
                prop_assert_eq!(found, *held);
                prop_assert!(!held || received.bytes[byte] == content[byte]);
            }
            prop_assert!(received.parts.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
