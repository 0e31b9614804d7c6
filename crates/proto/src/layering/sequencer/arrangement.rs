//! Tiles: one level in one interval, in the order of what a receiver of least rate holds first.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::super::Layering;
use crate::time::{Duration, Instant};

/// Most tiles of a buffer: 256 levels over 4096 intervals, 24 MiB.
const TILES_MAX: usize = 1 << 20;
/// Most packets of a buffer: their numbers are 32 bits wide, as the offset in EXT_SEQ is.
const PACKETS_MAX: u64 = u32::MAX as u64;

/// In which order packets take parts of the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The paper's: tile by tile, by the least cumulative rate of each; inside a tile the least important
    /// part first.
    #[default]
    Tiles,
    /// Packet by packet, by the cumulative rate of its level when it leaves; among equals the later one is
    /// more important. Closes what the order of tiles leaves open at rates inside a tile, for 20 bytes a
    /// packet and a merge of all tiles.
    Exact,
}

/// Packets of the base that carry no part of a buffer but something else, as a session's description: each so
/// many, counted over all buffers.
///
/// They are kept out of the count before a buffer is laid. To take them from a buffer that is laid already
/// would tear a hole in what every receiver holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    every: u64,
}

impl Reserve {
    /// Each `every`th packet of the base, the first one among them; below 2 it is each second one.
    pub fn each(every: u64) -> Self {
        Self { every: every.max(2) }
    }

    /// Whether it takes the base's packet of this number.
    fn takes(self, number: u64) -> bool {
        number.is_multiple_of(self.every)
    }

    /// Of the base's first so many packets.
    fn among(self, packets: u64) -> u64 {
        packets.div_ceil(self.every)
    }
}

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A part of the buffer.
    Part(Pdu),
    /// Something else: [`Reserve`].
    Reserved,
}

/// A part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// Its place: 0 is the most important.
    pub number: u64,
    /// Whether the buffer was at its end, and this is one of its parts again.
    pub is_repeat: bool,
}

/// How a buffer of so many parts goes out over layers, from `start` for `time`.
///
/// Memory: 40 bytes a tile, that is a level in an interval between two boundaries, and as much to sort them;
/// in exact order 20 bytes a packet. It is kept for the next buffer.
#[derive(Clone, Debug, Default)]
pub struct Arrangement {
    /// Ends of the intervals.
    ends: Vec<Instant>,
    levels: usize,
    /// By interval, then by level.
    tiles: Vec<Tile>,
    /// In exact order: the place of each packet, by tile and by time.
    places: Vec<u32>,
    start: Instant,
    parts: u64,
    packets: u64,
    reserve: Option<Reserve>,
    /// Packets of the base before the buffer, and in it.
    base: (u64, u64),
    /// Room to sort in.
    coarse: Vec<(u64, u32, u32)>,
    exact: Vec<Key>,
    runs: BinaryHeap<Reverse<(Key, usize)>>,
    cursors: Vec<Cursor>,
}

/// The order of a packet: its cumulative rate, then the later one.
type Key = (u64, Reverse<Instant>);

/// A tile as it is merged: its packets' keys that are left, and where its places begin.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    begin: usize,
    end: usize,
    first: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Where its parts begin in the order of tiles.
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
    /// Packets among its first so many that carry parts.
    fn parts_among(&self, packets: u64, reserve: Option<Reserve>) -> u64 {
        packets - reserve.map_or(0, |some| some.among(self.before + packets) - some.among(self.before))
    }
}

impl Arrangement {
    /// Lays `parts` parts onto the packets that `layering` sends in `start..start + time`. Uses the room of
    /// `self` again.
    ///
    /// O(tiles log tiles), in exact order O(packets log tiles).
    ///
    /// # Panics
    /// When there are no parts, or so many levels and boundaries in `time` that there would be more than 2^20
    /// tiles or 2^32 packets: a buffer is seconds long, not days.
    pub fn lay(
        &mut self,
        layering: &(impl Layering + ?Sized),
        start: Instant,
        time: Duration,
        parts: u64,
        order: Order,
    ) {
        self.lay_around(layering, start, time, parts, order, None);
    }

    /// The same around packets that are reserved. The first buffer laid begins their count; one that is laid
    /// after another goes on with it.
    ///
    /// # Panics
    /// As [`Arrangement::lay`].
    pub fn lay_around(
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

    /// Cuts the time at each boundary.
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

    /// Coarse order: by least cumulative rate, then level, then interval.
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

    /// Exact order: a place for each packet by its own cumulative rate. Those of a tile fall in rate as time
    /// goes on, so tiles are merged from their ends.
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

    /// Packets that carry parts in the buffer's time; more than the buffer has parts when it is short.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// When the buffer's time is over.
    pub fn end(&self) -> Instant {
        self.ends.last().copied().unwrap_or(self.start)
    }

    /// The part for the next packet of a level, which leaves at `at`; `None` outside the buffer's time, or
    /// when the level has sent all it was counted for, or the packet is reserved.
    pub fn next(&mut self, level: u16, at: Instant) -> Option<Pdu> {
        match self.turn(level, at) {
            Some(Turn::Part(pdu)) => Some(pdu),
            Some(Turn::Reserved) | None => None,
        }
    }

    /// What the next packet of a level is for, which leaves at `at`; `None` outside the buffer's time, or
    /// when the level has sent all it was counted for.
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
            // Fine order: whoever joins late holds the most important part of the tile.
            None => tile.first + tile.parts - 1 - index,
        };
        Some(Turn::Part(Pdu { number: number % self.parts, is_repeat: number >= self.parts }))
    }

    /// Takes what would have left before `at` as gone: a sender gave it up. What is left of a tile is then
    /// what is worth most; what was left of tiles whose interval is over does not leave any more.
    pub fn skip_to(&mut self, layering: &(impl Layering + ?Sized), at: Instant) {
        let interval = self.ends.partition_point(|end| *end <= at);
        let from = interval.checked_sub(1).map_or(self.start, |before| self.ends[before]);
        if interval >= self.ends.len() || at <= from {
            return;
        }
        // Levels that are sent since the buffer was laid have no part of it.
        for level in (0..layering.levels()).take(self.levels) {
            let tile = &mut self.tiles[interval * self.levels + usize::from(level)];
            tile.left = tile.left.max(layering.packets(level, from, at)).min(tile.packets);
        }
    }
}

/// The intervals between `start` and each end.
fn intervals(start: Instant, ends: &[Instant]) -> impl Iterator<Item = (Instant, Instant)> {
    core::iter::once(start).chain(ends.iter().copied()).zip(ends.iter().copied())
}

/// Rates are positive, and positive floats order as their bits do.
fn bits(rate: f64) -> u64 {
    rate.max(0.0).to_bits()
}

fn narrow(packet: u64) -> u32 {
    u32::try_from(packet).expect("checked to be below 2^32 packets")
}

#[cfg(test)]
mod tests;
