//! Receiving side: reassembles parts into buffers.

use std::collections::VecDeque;

use super::Pages;
use crate::time::{Duration, Instant};

/// Maximum deliveries that wait for the application. At the limit, late parts are dropped first.
const READY_MAX: usize = 64;
/// Consecutive packets of a buffer considered past, after which that buffer becomes the current buffer: a
/// forged or corrupt number does not block the next 32 768 buffers.
const STRAYS_MAX: u32 = 16;

/// A buffer as received, complete or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Number of the buffer, modulo 2^16.
    pub id: u16,
    /// Length of the whole buffer in bytes, from the buffer's first part: known whenever the prefix is not
    /// empty.
    pub length: Option<usize>,
    /// Bytes from the beginning to the first hole: the part worth most.
    pub prefix: Vec<u8>,
    /// Ranges beyond the prefix, in ascending order, if requested.
    pub pieces: Vec<Piece>,
}

impl Received {
    /// Whether the buffer is complete.
    pub fn is_whole(&self) -> bool {
        self.length == Some(self.prefix.len())
    }
}

/// A piece of a buffer, adjacent neither to another piece nor to the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of the piece in the buffer.
    pub offset: usize,
    /// Bytes of the piece.
    pub bytes: Vec<u8>,
}

/// A part on arrival.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Number of the part's buffer.
    pub id: u16,
    /// Offset of the part in the buffer.
    pub offset: u32,
    /// Length of the buffer, if the packet carries the length. The sender's claim allocates no memory.
    pub length: Option<u64>,
    /// Whether the buffer's time is over.
    pub is_over: bool,
    /// Bytes of the part.
    pub payload: &'a [u8],
}

/// Output of an assembler for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A buffer: delivered when complete, or when the next buffer begins, or when the buffer's time is over.
    Buffer(Received),
    /// A late piece of the buffer delivered last.
    Late {
        /// The buffer.
        id: u16,
        /// The piece.
        piece: Piece,
    },
}

/// Packet and buffer counters of an assembler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblerStats {
    /// Parts stored in the current buffer, or delivered late.
    pub parts: u64,
    /// Parts received before, or without bytes.
    pub duplicates: u64,
    /// Parts of past buffers.
    pub too_late: u64,
    /// Parts beyond the maximum buffer length.
    pub too_long: u64,
    /// Buffers delivered to the application.
    pub buffers: u64,
    /// Complete buffers among the delivered buffers.
    pub whole: u64,
    /// Deliveries dropped because the application did not poll.
    pub lost: u64,
}

/// Collects parts until the buffer is complete, or a packet of a newer buffer arrives, or a packet signals
/// that the buffer's time is over.
///
/// Memory: the received bytes of one buffer up to the maximum length, in pages of 64 KiB; as much for each of
/// at most 64 deliveries that the application has not polled; and 2 MiB for pieces.
#[derive(Debug)]
pub struct Assembler {
    bytes_max: usize,
    /// Whether the application wants pieces beyond the first hole.
    wants_pieces: bool,
    /// Time during which late parts of the previous buffer still count.
    grace: Duration,
    newest: Option<Newest>,
    pages: Pages,
    /// The buffer delivered last, and the time until which late parts count (`None` if the buffer was
    /// complete).
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
    /// Whether the buffer was delivered to the application.
    is_given: bool,
    /// Whether the buffer is complete.
    is_whole: bool,
    /// Whether a part arrived within the buffer's time.
    is_timely: bool,
}

impl Assembler {
    /// Returns an assembler for buffers of at most `bytes_max`. Late parts count for `grace`, twice the
    /// join-time latency.
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

    /// Sets whether pieces beyond the first hole, and late pieces, are delivered. Default: yes.
    #[must_use]
    pub fn with_pieces(mut self, wanted: bool) -> Self {
        self.wants_pieces = wanted;
        self
    }

    /// Changes the time during which late parts count.
    pub fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Returns the counters.
    pub fn stats(&self) -> AssemblerStats {
        self.stats
    }

    /// Handles a packet's part.
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

    /// Stores a part of the newest buffer.
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
        // A receiver that joined after the buffer's time collects the repetition.
        if newest.is_whole || (part.is_over && newest.is_timely) {
            self.finish(now);
        }
    }

    /// Returns whether enough packets of a buffer considered past have arrived to trust the number.
    fn is_astray(&mut self, id: u16) -> bool {
        let is_late = self.previous.is_some_and(|(previous, _)| previous == id);
        let (stray, count) = self.strays;
        // Counts over all successive buffers: a slow receiver has few packets of each.
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

    /// Delivers the current buffer to the application, complete or not; also at the end of a session.
    pub fn finish(&mut self, now: Instant) {
        let Some(newest) = self.newest.as_mut().filter(|newest| !newest.is_given) else { return };
        newest.is_given = true;
        let Newest { id, length, is_whole, .. } = *newest;
        // A complete buffer has no late parts, but repeated parts are not strays.
        self.previous = Some((id, (!is_whole).then(|| now + self.grace)));
        let prefix = self.pages.prefix();
        let beyond = self.pages.pieces().filter(|piece| self.wants_pieces && piece.start >= prefix.max(1));
        let pieces = beyond.map(|piece| Piece { offset: piece.start, bytes: self.pages.read(piece) });
        let received = Received { id, length, pieces: pieces.collect(), prefix: self.pages.read(0..prefix) };
        self.pages.clear(self.bytes_max.div_ceil(1 << 16));
        self.stats.buffers += 1;
        self.stats.whole += u64::from(is_whole);
        // If the application does not poll, the oldest delivery is dropped: newer deliveries are worth more.
        if self.ready.len() >= READY_MAX {
            self.ready.pop_front();
            self.stats.lost += 1;
        }
        self.ready.push_back(Delivery::Buffer(received));
    }

    /// Returns the next delivery for the application.
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
