//! Tiles: one level in one interval, in the order of what a receiver of least rate holds first.

use core::cmp::Reverse;

use super::super::Layering;
use crate::time::{Duration, Instant};

/// Most tiles of a buffer: 256 levels over 4096 intervals, 24 MiB.
const TILES_MAX: usize = 1 << 20;
/// Most packets of a buffer: their numbers are 32 bits wide, as the offset in EXT_SEQ is.
const PACKETS_MAX: u64 = u32::MAX as u64;

/// In which order packets take parts of the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The paper's: tile by tile, by the least cumulative rate of each; inside a tile the least important part first.
    #[default]
    Tiles,
    /// Packet by packet, by the cumulative rate of its level when it leaves; among equals the later one is more
    /// important. Closes what the order of tiles leaves open at rates inside a tile, for 4 bytes a packet and a sort.
    Exact,
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
/// Memory: 24 bytes a tile, that is a level in an interval between two boundaries, and 4 bytes a packet in exact order.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Where its packets begin in the order of tiles.
    first: u64,
    packets: u64,
    /// Packets that have left.
    left: u64,
}

impl Arrangement {
    /// Lays `parts` parts onto the packets that `layering` sends in `start..start + time`. Uses the room of `self` again.
    ///
    /// O(tiles log tiles), in exact order O(packets log packets).
    ///
    /// # Panics
    /// When there are no parts, or so many levels and boundaries in `time` that there would be more than 2^20 tiles or 2^32
    /// packets: a buffer is seconds long, not days.
    pub fn lay(
        &mut self,
        layering: &(impl Layering + ?Sized),
        start: Instant,
        time: Duration,
        parts: u64,
        order: Order,
    ) {
        assert!(parts > 0, "a buffer has at least one part");
        self.start = start;
        self.parts = parts;
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
                self.packets += packets;
                self.tiles.push(Tile { first: 0, packets, left: 0 });
            }
        }
        assert!(self.packets <= PACKETS_MAX, "a buffer of more than {PACKETS_MAX} packets");
    }

    /// Coarse order: by least cumulative rate, then level, then interval.
    fn rank(&mut self, layering: &(impl Layering + ?Sized)) {
        let mut order: Vec<(u64, u32, u32)> = Vec::with_capacity(self.tiles.len());
        for (interval, end) in (0..).zip(&self.ends) {
            for level in 0..layering.levels() {
                let least = layering.cumulative_rate_before(level, *end);
                order.push((bits(least), level.into(), interval));
            }
        }
        order.sort_unstable();
        let mut first = 0;
        for (_, level, interval) in order {
            let tile = &mut self.tiles[interval as usize * self.levels + level as usize];
            tile.first = first;
            first += tile.packets;
        }
    }

    /// Exact order: a place for each packet by its own cumulative rate.
    fn place(&mut self, layering: &(impl Layering + ?Sized)) {
        let mut order: Vec<(u64, Reverse<Instant>, u32)> = Vec::new();
        for (interval, (from, _)) in intervals(self.start, &self.ends).enumerate() {
            for level in 0..layering.levels() {
                let tile = self.tiles[interval * self.levels + usize::from(level)];
                for n in 0..tile.packets {
                    let at = layering.departure(level, from, n);
                    let rate = layering.cumulative_rate(level, at);
                    order.push((bits(rate), Reverse(at), narrow(tile.first + n)));
                }
            }
        }
        order.sort_unstable();
        self.places.resize(order.len(), 0);
        for (place, (_, _, packet)) in (0..).zip(order) {
            self.places[packet as usize] = place;
        }
    }

    /// Packets that go out in the buffer's time; more than the buffer has parts when it is short.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// When the buffer's time is over.
    pub fn end(&self) -> Instant {
        self.ends.last().copied().unwrap_or(self.start)
    }

    /// The part for the next packet of a level, which leaves at `at`; `None` outside the buffer's time, or when the level has
    /// sent all it was counted for.
    pub fn next(&mut self, level: u16, at: Instant) -> Option<Pdu> {
        if at < self.start || usize::from(level) >= self.levels {
            return None;
        }
        let interval = self.ends.partition_point(|end| *end <= at);
        let tile = self.tiles.get_mut(interval * self.levels + usize::from(level))?;
        if tile.left >= tile.packets {
            return None;
        }
        let by_time = tile.first + tile.left;
        // Fine order: whoever joins late holds the most important part of the tile.
        let by_importance = tile.first + tile.packets - 1 - tile.left;
        tile.left += 1;
        let number = match self.places.get(usize::try_from(by_time).ok()?) {
            Some(place) => u64::from(*place),
            None => by_importance,
        };
        Some(Pdu { number: number % self.parts, is_repeat: number >= self.parts })
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
