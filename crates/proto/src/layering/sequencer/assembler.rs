//! The receiving side: parts into buffers.

use std::collections::VecDeque;

use super::pages::Pages;
use crate::time::{Duration, Instant};

/// Deliveries that wait for the application; then late parts are dropped first.
const READY_MAX: usize = 64;
/// Packets in a row of a buffer that should be over, after which it is taken for the current one: a number
/// that was forged, or corrupt, does not shut out the next 32 768 buffers.
const STRAYS_MAX: u32 = 16;

/// A buffer as far as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Its number, modulo 2^16.
    pub id: u16,
    /// Bytes of the whole buffer, as its first part says: known whenever the prefix has bytes.
    pub length: Option<usize>,
    /// The bytes from its beginning to the first hole: the part worth most.
    pub prefix: Vec<u8>,
    /// What came beyond, in ascending order, if that is wanted.
    pub pieces: Vec<Piece>,
}

impl Received {
    /// Whether all of it came.
    pub fn is_whole(&self) -> bool {
        self.length == Some(self.prefix.len())
    }
}

/// A piece of a buffer, neither touching another nor the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it stands in the buffer.
    pub offset: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A part as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its buffer's number.
    pub id: u16,
    /// Where it stands there.
    pub offset: u32,
    /// Bytes of the buffer, if the packet says so: a word of its sender's that takes no memory.
    pub length: Option<u64>,
    /// Whether the buffer's time is over.
    pub is_over: bool,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// What an assembler gives the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A buffer: when it is whole, or the next one has begun, or its time is over.
    Buffer(Received),
    /// A piece of the buffer given last, which came late.
    Late {
        /// The buffer.
        id: u16,
        /// The piece.
        piece: Piece,
    },
}

/// What became of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblerStats {
    /// Parts that went into the current buffer, or were delivered late.
    pub parts: u64,
    /// Parts that were there already, or had no bytes.
    pub duplicates: u64,
    /// Parts of buffers that are over.
    pub too_late: u64,
    /// Parts beyond the longest buffer.
    pub too_long: u64,
    /// Buffers given to the application.
    pub buffers: u64,
    /// Those of them that were whole.
    pub whole: u64,
    /// Deliveries that the application did not come for.
    pub lost: u64,
}

/// Collects parts until the buffer is whole, or a packet of a new one comes, or one that says that its time
/// is over.
///
/// Memory: what came of one buffer of at most the stated length, in pages of 64 KiB; as much for each that
/// the application has not taken, at most 64; and 2 MiB for pieces.
#[derive(Debug)]
pub struct Assembler {
    bytes_max: usize,
    /// Whether the application wants what is beyond the first hole.
    wants_pieces: bool,
    /// How long late parts of the buffer before still count.
    grace: Duration,
    newest: Option<Newest>,
    pages: Pages,
    /// The buffer given last, and until when its late parts count.
    /// A whole one has none.
    previous: Option<(u16, Option<Instant>)>,
    strays: (u16, u32),
    ready: VecDeque<Delivery>,
    stats: AssemblerStats,
}

/// The buffer with the newest number.
#[derive(Clone, Copy, Debug)]
struct Newest {
    id: u16,
    length: Option<usize>,
    /// Whether the application has it.
    is_given: bool,
    /// Whether all of it came.
    is_whole: bool,
    /// Whether a part of it came in its time.
    is_timely: bool,
}

impl Assembler {
    /// An assembler for buffers of at most `bytes_max`. Late parts count for `grace`, twice
    /// the join-time latency.
    pub fn new(bytes_max: usize, grace: Duration) -> Self {
        Self {
            bytes_max,
            wants_pieces: true,
            grace,
            newest: None,
            pages: Pages::default(),
            previous: None,
            strays: (0, 0),
            ready: VecDeque::new(),
            stats: AssemblerStats::default(),
        }
    }

    /// Whether pieces beyond the first hole, and late ones, are given. Default: yes.
    #[must_use]
    pub fn with_pieces(mut self, wanted: bool) -> Self {
        self.wants_pieces = wanted;
        self
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
    pub fn insert(&mut self, now: Instant, part: &Part<'_>) {
        if (part.offset as usize).saturating_add(part.payload.len()) > self.bytes_max {
            self.stats.too_long += 1;
            return;
        }
        match self.newest.map(|newest| newest.id) {
            Some(newest) if newest == part.id => self.strays.1 = 0,
            Some(newest) if !is_newer(part.id, newest) && !self.is_astray(part.id) => {
                self.late(now, part);
                return;
            }
            _ => {
                self.finish(now);
                self.strays.1 = 0;
                self.newest = Some(Newest {
                    id: part.id,
                    length: None,
                    is_given: false,
                    is_whole: false,
                    is_timely: false,
                });
            }
        }
        self.put(now, part);
    }

    /// A part of the newest buffer.
    fn put(&mut self, now: Instant, part: &Part<'_>) {
        let Some(newest) = self.newest.as_mut() else { return };
        if newest.is_whole {
            self.stats.duplicates += 1;
            return;
        }
        if newest.is_given {
            self.late(now, part);
            return;
        }
        newest.length = newest.length.or(part.length.and_then(|length| usize::try_from(length).ok()));
        newest.is_timely |= !part.is_over;
        if self.pages.insert(part.offset as usize, part.payload) {
            self.stats.parts += 1;
        } else {
            self.stats.duplicates += 1;
        }
        newest.is_whole = newest.length.is_some_and(|length| length > 0 && length == self.pages.prefix());
        // Whoever came after its time collects what is sent again.
        if newest.is_whole || (part.is_over && newest.is_timely) {
            self.finish(now);
        }
    }

    /// Whether so many packets of a buffer that should be over have come that its number must be right.
    fn is_astray(&mut self, id: u16) -> bool {
        let is_late = self.previous.is_some_and(|(previous, _)| previous == id);
        let (stray, count) = self.strays;
        // Over all buffers that go on: a slow receiver has few packets of each.
        let goes_on = stray == id || is_newer(id, stray);
        self.strays = if is_late { (id, 0) } else { (id, if goes_on { count + 1 } else { 1 }) };
        self.strays.1 >= STRAYS_MAX
    }

    fn late(&mut self, now: Instant, part: &Part<'_>) {
        let Part { id, offset, payload, .. } = *part;
        let counts = self
            .previous
            .is_some_and(|(previous, until)| previous == id && until.is_some_and(|until| now <= until));
        if counts && self.wants_pieces && !payload.is_empty() && self.ready.len() < READY_MAX {
            self.stats.parts += 1;
            let piece = Piece { offset: offset as usize, bytes: payload.to_vec() };
            self.ready.push_back(Delivery::Late { id, piece });
        } else {
            self.stats.too_late += 1;
        }
    }

    /// Gives up the current buffer to the application: also at the end of a session.
    pub fn finish(&mut self, now: Instant) {
        let Some(newest) = self.newest.as_mut().filter(|newest| !newest.is_given) else { return };
        newest.is_given = true;
        let Newest { id, length, is_whole, .. } = *newest;
        // What is whole has no late parts, but those that come again are no strays.
        self.previous = Some((id, (!is_whole).then(|| now + self.grace)));
        let prefix = self.pages.prefix();
        let beyond = self.pages.pieces().filter(|piece| self.wants_pieces && piece.start >= prefix.max(1));
        let pieces = beyond.map(|piece| Piece { offset: piece.start, bytes: self.pages.read(piece) });
        let received = Received { id, length, pieces: pieces.collect(), prefix: self.pages.read(0..prefix) };
        self.pages.clear(self.bytes_max.div_ceil(1 << 16));
        self.stats.buffers += 1;
        self.stats.whole += u64::from(is_whole);
        // An application that does not come loses the oldest: what is current is worth more.
        if self.ready.len() >= READY_MAX {
            self.ready.pop_front();
            self.stats.lost += 1;
        }
        self.ready.push_back(Delivery::Buffer(received));
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
mod tests;
