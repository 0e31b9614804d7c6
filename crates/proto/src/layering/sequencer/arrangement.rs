//! Tiles: one level in one interval, sorted by the least rate of a receiver that gets the tile.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::super::Layering;
use crate::time::{Duration, Instant};

/// Maximum tiles of a buffer: 256 levels over 4096 intervals, 24 MiB.
const TILES_MAX: usize = 1 << 20;
/// Maximum packets of a buffer: packet numbers are 32 bits wide, like the offset in EXT_SEQ.
const PACKETS_MAX: u64 = u32::MAX as u64;

/// Order in which packets take parts of the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The paper's order: tile by tile, by the least cumulative rate of each tile; inside a tile the least
    /// important part first.
    #[default]
    Tiles,
    /// Packet by packet, by the cumulative rate of the packet's level at departure; at equal rates the later
    /// packet is more important. Avoids the holes of the tile order at rates inside a tile, for 20 bytes per
    /// packet and a merge of all tiles.
    Exact,
}

/// Base packets that carry other content than parts of a buffer, such as a session description: every n-th
/// packet, counted over all buffers.
///
/// Reserved packets are excluded before a buffer is arranged. Taking packets from an arranged buffer would
/// leave a hole in the prefix of every receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    every: u64,
}

impl Reserve {
    /// Reserves each `every`th packet of the base, including the first packet; values below 2 reserve every
    /// second packet.
    pub fn each(every: u64) -> Self {
        Self { every: every.max(2) }
    }

    /// Returns whether the base packet of this number is reserved.
    fn takes(self, number: u64) -> bool {
        number.is_multiple_of(self.every)
    }

    /// Returns the number of reserved packets among the base's first `packets` packets.
    fn among(self, packets: u64) -> u64 {
        packets.div_ceil(self.every)
    }
}

/// Purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A part of the buffer.
    Part(Pdu),
    /// Other content: [`Reserve`].
    Reserved,
}

/// A part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// Position of the part: 0 is the most important.
    pub number: u64,
    /// Whether all parts were sent before, and this part is repeated.
    pub is_repeat: bool,
}

/// Assignment of a buffer's parts to the packets of layers, from `start` for `time`.
///
/// Memory: 40 bytes per tile, i.e. per level in an interval between two boundaries, and as much for sorting;
/// in exact order 20 bytes per packet. The memory is reused for the next buffer.
#[derive(Clone, Debug, Default)]
pub struct Arrangement {
    /// Ends of the intervals.
    ends: Vec<Instant>,
    levels: usize,
    /// By interval, then by level.
    tiles: Vec<Tile>,
    /// Position of each packet in the buffer's order, by tile and by time; in exact order only.
    places: Vec<u32>,
    start: Instant,
    parts: u64,
    packets: u64,
    reserve: Option<Reserve>,
    /// Packets of the base before the buffer, and during the buffer.
    base: (u64, u64),
    /// Memory for sorting.
    coarse: Vec<(u64, u32, u32)>,
    exact: Vec<Key>,
    runs: BinaryHeap<Reverse<(Key, usize)>>,
    cursors: Vec<Cursor>,
}

/// Sort key of a packet: cumulative rate, then the later time first.
type Key = (u64, Reverse<Instant>);

/// State of a tile during the merge: the tile's remaining keys, and the start of the tile's places.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    begin: usize,
    end: usize,
    first: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Start of the tile's parts in the order of tiles.
    first: u64,
    /// Packets that carry parts.
    parts: u64,
    /// All packets.
    packets: u64,
    /// Packets that have left.
    left: u64,
    /// At level 0: packets of the base before the tile.
    before: u64,
}

impl Tile {
    /// Returns the number of packets with parts among the tile's first `packets` packets.
    fn parts_among(&self, packets: u64, reserve: Option<Reserve>) -> u64 {
        packets - reserve.map_or(0, |some| some.among(self.before + packets) - some.among(self.before))
    }
}

impl Arrangement {
    /// Assigns `parts` parts to the packets that `layering` sends in `start..start + time`, without reserved
    /// packets. The first arranged buffer starts the count of reserved packets; each later buffer continues
    /// the count. Reuses the memory of `self`.
    ///
    /// O(tiles log tiles), in exact order O(packets log tiles).
    ///
    /// # Panics
    /// Panics if there are no parts, or if levels and boundaries in `time` need more than 2^20 tiles or 2^32
    /// packets: a buffer is seconds long, not days.
    pub fn lay(
        &mut self,
        layering: &(impl Layering + ?Sized),
        start: Instant,
        time: Duration,
        parts: u64,
        order: Order,
        reserve: Option<Reserve>,
    ) {
        assert!(parts > 0, "a buffer has at least one part");
        self.start = start;
        self.parts = parts;
        self.reserve = reserve;
        self.base = (self.base.0 + self.base.1, 0);
        self.levels = layering.levels().into();
        self.cut(layering, start + time);
        self.count(layering);
        self.rank(layering);
        self.places.clear();
        if order == Order::Exact {
            self.place(layering);
        }
    }

    /// Splits the time at each boundary.
    fn cut(&mut self, layering: &(impl Layering + ?Sized), end: Instant) {
        self.ends.clear();
        let mut from = self.start;
        while from < end {
            let to = layering.next_boundary(from).map_or(end, |next| next.min(end));
            self.ends.push(to);
            assert!(self.ends.len() * self.levels <= TILES_MAX, "a buffer of more than {TILES_MAX} tiles");
            from = to;
        }
    }

    fn count(&mut self, layering: &(impl Layering + ?Sized)) {
        self.tiles.clear();
        self.packets = 0;
        for (from, to) in intervals(self.start, &self.ends) {
            for level in 0..layering.levels() {
                let packets = layering.packets(level, from, to);
                let mut tile = Tile { first: 0, parts: packets, packets, left: 0, before: 0 };
                if level == 0 {
                    tile.before = self.base.0 + self.base.1;
                    tile.parts = tile.parts_among(packets, self.reserve);
                    self.base.1 += packets;
                }
                self.packets += tile.parts;
                self.tiles.push(tile);
            }
        }
        assert!(self.packets <= PACKETS_MAX, "a buffer of more than {PACKETS_MAX} packets");
    }

    /// Sorts tiles in coarse order: by least cumulative rate, then level, then interval.
    fn rank(&mut self, layering: &(impl Layering + ?Sized)) {
        let order = &mut self.coarse;
        order.clear();
        for (interval, end) in (0..).zip(&self.ends) {
            for level in 0..layering.levels() {
                let least = layering.cumulative_rate_before(level, *end);
                order.push((bits(least), level.into(), interval));
            }
        }
        order.sort_unstable();
        let mut first = 0;
        for &(_, level, interval) in &*order {
            let tile = &mut self.tiles[interval as usize * self.levels + level as usize];
            tile.first = first;
            first += tile.parts;
        }
    }

    /// Computes the exact order: a place for each packet by the packet's cumulative rate. In a tile the rate
    /// falls with time, so tiles are merged from their ends.
    fn place(&mut self, layering: &(impl Layering + ?Sized)) {
        let Self { exact, runs, cursors, places, tiles, reserve, .. } = self;
        exact.clear();
        runs.clear();
        cursors.clear();
        for (interval, (from, to)) in intervals(self.start, &self.ends).enumerate() {
            for level in 0..layering.levels() {
                let tile = tiles[interval * self.levels + usize::from(level)];
                let begin = exact.len();
                let mut number = tile.before;
                layering.visit(level, from, to, &mut |at, rate| {
                    let is_reserved = level == 0 && reserve.is_some_and(|some| some.takes(number));
                    number += 1;
                    if !is_reserved {
                        exact.push((bits(rate), Reverse(at)));
                    }
                });
                debug_assert_eq!((exact.len() - begin) as u64, tile.parts, "what was counted");
                cursors.push(Cursor { begin, end: exact.len(), first: narrow(tile.first) as usize });
            }
        }
        for (run, cursor) in cursors.iter().enumerate().filter(|(_, cursor)| cursor.begin < cursor.end) {
            runs.push(Reverse((exact[cursor.end - 1], run)));
        }
        places.clear();
        places.resize(exact.len(), 0);
        for place in 0.. {
            let Some(mut least) = runs.peek_mut() else { break };
            let Reverse((_, run)) = *least;
            let cursor = &mut cursors[run];
            cursor.end -= 1;
            places[cursor.first + cursor.end - cursor.begin] = place;
            if cursor.begin < cursor.end {
                *least = Reverse((exact[cursor.end - 1], run));
            } else {
                PeekMut::pop(least);
            }
        }
    }

    /// Number of packets that carry parts in the buffer's time. Exceeds the number of parts if the buffer is
    /// short.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// End of the buffer's time.
    pub fn end(&self) -> Instant {
        self.ends.last().copied().unwrap_or(self.start)
    }

    /// Returns the part for a level's next packet, which leaves at `at`. `None` outside the buffer's time, or
    /// when the level has sent all announced packets, or if the packet is reserved.
    pub fn next(&mut self, level: u16, at: Instant) -> Option<Pdu> {
        match self.turn(level, at) {
            Some(Turn::Part(pdu)) => Some(pdu),
            Some(Turn::Reserved) | None => None,
        }
    }

    /// Returns the purpose of a level's next packet, which leaves at `at`. `None` outside the buffer's time,
    /// or when the level has sent all announced packets.
    pub fn turn(&mut self, level: u16, at: Instant) -> Option<Turn> {
        if at < self.start || usize::from(level) >= self.levels {
            return None;
        }
        let interval = self.ends.partition_point(|end| *end <= at);
        let tile = self.tiles.get_mut(interval * self.levels + usize::from(level))?;
        if tile.left >= tile.packets {
            return None;
        }
        let number = tile.before + tile.left;
        tile.left += 1;
        let reserve = self.reserve.filter(|_| level == 0);
        if reserve.is_some_and(|some| some.takes(number)) {
            return Some(Turn::Reserved);
        }
        let index = tile.parts_among(tile.left, reserve) - 1;
        let place = self.places.get(usize::try_from(tile.first + index).ok()?);
        let number = match place {
            Some(place) => u64::from(*place),
            // Fine order: a receiver that joins late gets the most important part of the tile.
            None => tile.first + tile.parts - 1 - index,
        };
        Some(Turn::Part(Pdu { number: number % self.parts, is_repeat: number >= self.parts }))
    }

    /// Marks packets due before `at` as gone, because the sender gave them up. The most important parts of a
    /// tile come last and therefore remain. Rests of tiles whose interval is over are dropped.
    pub fn skip_to(&mut self, layering: &(impl Layering + ?Sized), at: Instant) {
        let interval = self.ends.partition_point(|end| *end <= at);
        let from = interval.checked_sub(1).map_or(self.start, |before| self.ends[before]);
        if interval >= self.ends.len() || at <= from {
            return;
        }
        // Levels added after the buffer was arranged carry no part of the buffer.
        for level in (0..layering.levels()).take(self.levels) {
            let tile = &mut self.tiles[interval * self.levels + usize::from(level)];
            tile.left = tile.left.max(layering.packets(level, from, at)).min(tile.packets);
        }
    }
}

/// Returns the intervals between `start` and each end.
fn intervals(start: Instant, ends: &[Instant]) -> impl Iterator<Item = (Instant, Instant)> {
    core::iter::once(start).chain(ends.iter().copied()).zip(ends.iter().copied())
}

/// Returns the bits of a rate as a sort key: positive floats have the same order as their bits.
fn bits(rate: f64) -> u64 {
    rate.max(0.0).to_bits()
}

fn narrow(packet: u64) -> u32 {
    u32::try_from(packet).expect("checked to be below 2^32 packets")
}

#[cfg(test)]
mod tests;
