//! Ring of all symbols of a session: maps any position to a symbol, with a few bytes a block.
//!
//! In each round, every unit has one turn. If all blocks have the same size, a unit is a block, and the nth
//! turn is the nth symbol of the block. Otherwise the blocks lie side by side on a line, with as many places
//! as source symbols, and a unit is a section of the line whose turns hop about by the golden ratio. Either
//! way, each section of the ring holds a proportional share of each block. Units of a line have 2^q places
//! and hops are odd, so points that are 2^-m of the ring apart are the same fraction apart in the order of
//! turns. Many points that pass in a short time are therefore as evenly distributed as one point that passes
//! in a long time.

use std::ops::Range;

use super::{CarouselBlock, Offsets};

/// Blocks count as equal in size if the longest exceeds the shortest by at most a hundredth.
const SAME_SIZE: u32 = 100;
/// Minimum number of units for blocks of different sizes. To fill the last unit, blocks get up to a 32nd more
/// turns.
const UNITS_MIN: u64 = 32;
/// Maximum number of places in a unit of a line: a few blocks of the usual size.
const PLACES_MAX: u64 = 1 << 13;

/// Ring of a session.
///
/// Memory: 8 bytes a block, and 4 bytes a point of a divided ring. Time per position: O(1), or O(log blocks)
/// if the block sizes differ.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    units: u64,
    /// Turns of each unit. If a unit is a block, at most the number of encoding symbols of every block.
    /// Otherwise the number of places in a unit, times the ratio of encoding symbols to source symbols of the
    /// longest block.
    rounds: u64,
    /// Turns of each unit with a source symbol of every block, if a unit is a block.
    source_rounds: u64,
    division: Option<Division>,
    /// `None` if a unit is a block.
    line: Option<Line>,
}

/// Ways from point to point of a divided ring, each with its share of the symbols of either kind.
///
/// Each turn of all ways takes the next symbols of their kind, in the order in which receivers take up the
/// points: a receiver of all points gets the symbols of each block in order, any other a part of each turn.
#[derive(Clone, Debug)]
struct Division {
    /// Place of each point among the points that receivers take up.
    ranks: Vec<u32>,
    source: Kind,
    repair: Kind,
}

/// All symbols of a kind.
#[derive(Clone, Debug)]
struct Kind {
    symbols: u64,
    /// Numbers of the symbols in each block.
    rounds: Range<u64>,
    /// Turns of every way; some ways have one more.
    turns: u64,
}

/// Line of blocks of different sizes, side by side.
#[derive(Clone, Debug)]
struct Line {
    /// Start of each block, and the end of the line.
    starts: Vec<u64>,
    /// Places in a unit: a power of 2.
    places: u64,
    /// Distance in places from turn to turn, and from lap to lap.
    hop: u64,
}

impl Ring {
    /// Creates the ring of `blocks`.
    pub(super) fn new(blocks: &[CarouselBlock]) -> Self {
        let sizes = || blocks.iter().map(|block| block.symbols);
        let (least, most) = (sizes().min().unwrap_or(1), sizes().max().unwrap_or(1));
        if most - least <= least / SAME_SIZE {
            // With one turn more than symbols, a block would repeat its first symbol, which a receiver
            // half-way round the ring has received. Points 2^-m of the ring apart are equally far apart among
            // the units only if the number of turns is even. Blocks without a code are sent whole all the
            // same.
            let turns = blocks.iter().map(turns).min().unwrap_or(1);
            let turns = (turns - turns % 2).max(most);
            let (units, rounds, source_rounds) = (blocks.len() as u64, turns.into(), least.into());
            return Self { units, rounds, source_rounds, division: None, line: None };
        }
        let line = Line::new(blocks);
        let longest = blocks.iter().max_by_key(|block| block.symbols);
        let laps = u64::from(longest.map_or(1, |block| turns(block) / block.symbols));
        let (units, rounds) = (line.units(), line.places * laps);
        Self { units, rounds, source_rounds: rounds, division: None, line: Some(line) }
    }

    /// Whether the ring has blocks, all of the same size.
    pub(super) fn is_of_blocks(&self) -> bool {
        self.line.is_none() && self.units > 0
    }

    /// Length of the ring in positions; 0 without blocks.
    pub(super) fn positions(&self) -> u64 {
        self.units * self.rounds
    }

    /// Divides the ring at `points` evenly spaced points, which sends the source symbols between two points
    /// before the repair symbols between them. Receivers take up the points in the order of [`Offsets`]. Only
    /// if a unit is a block.
    pub(super) fn divide(&mut self, points: u32) {
        let points = u64::from(points).clamp(1, self.positions().max(1));
        let kind = |rounds: Range<u64>| {
            let symbols = (rounds.end - rounds.start) * self.units;
            Kind { symbols, rounds, turns: symbols / points }
        };
        let (source, repair) = (kind(0..self.source_rounds), kind(self.source_rounds..self.rounds));
        let mut offsets = Offsets::new(points);
        let mut ranks = vec![0; usize::try_from(points).expect("a u32")];
        for (rank, place) in (0..).zip(0..ranks.len()) {
            ranks[usize::try_from(offsets.get(place)).expect("a point")] = rank;
        }
        self.division = Some(Division { ranks, source, repair });
    }

    /// Whether the ring has repair symbols, of which any replaces a symbol that is left out.
    pub(super) fn has_repair(&self) -> bool {
        self.division.as_ref().is_some_and(|division| division.repair.symbols > 0)
    }

    /// Number of points, evenly spaced on the ring: all positions unless the ring is divided.
    pub(super) fn points(&self) -> u64 {
        self.division.as_ref().map_or(self.positions(), Division::points)
    }

    /// Returns the position of a point.
    pub(super) fn point(&self, point: u64) -> u64 {
        self.division.as_ref().map_or(point, |division| division.start(point))
    }

    /// Returns the block at a position, and a number among the block's symbols that counts on through the
    /// laps.
    pub(super) fn at(&self, position: u64) -> (usize, u64) {
        let (position, rounds) = match &self.division {
            None => (position, 0..self.rounds),
            Some(division) => division.symbol(position, self.positions()),
        };
        let round = position / self.units;
        // A position half a ring ahead is also half the units ahead, and likewise for any fraction: so the
        // places of a buffer, which lie such fractions apart, serve different blocks at the same time.
        let ahead = scaled(round, self.units, rounds.end - rounds.start);
        let unit = (position % self.units + ahead) % self.units;
        match &self.line {
            None => (usize::try_from(unit).expect("below the number of blocks"), rounds.start + round),
            Some(line) => line.at(unit, round),
        }
    }
}

impl Division {
    fn points(&self) -> u64 {
        self.ranks.len() as u64
    }

    /// Returns the position of a point.
    fn start(&self, point: u64) -> u64 {
        self.source.before(point, self.points()) + self.repair.before(point, self.points())
    }

    /// Returns a position's place among the symbols of its kind, and their numbers in each block.
    fn symbol(&self, position: u64, positions: u64) -> (u64, Range<u64>) {
        let points = self.points();
        // The sum of two numbers rounded down is at most the rounded sum, and at least that less 1.
        let mut way = scaled(position, points, positions);
        while self.start(way + 1) <= position {
            way += 1;
        }
        let turn = position - self.start(way);
        let source_turns = self.source.before(way + 1, points) - self.source.before(way, points);
        let (kind, turn) =
            if turn < source_turns { (&self.source, turn) } else { (&self.repair, turn - source_turns) };
        let rank = if turn < kind.turns {
            self.ranks[usize::try_from(way).expect("a point")].into()
        } else {
            kind.before(way, points) - way * kind.turns
        };
        (turn * points + rank, kind.rounds.clone())
    }
}

impl Kind {
    /// Number of symbols of the ways before a point.
    fn before(&self, point: u64, points: u64) -> u64 {
        scaled(point, self.symbols, points)
    }
}

/// Returns `number * to / from`, rounded down.
fn scaled(number: u64, to: u64, from: u64) -> u64 {
    match number.checked_mul(to) {
        Some(product) => product / from,
        None => scaled_beyond(number, to, from),
    }
}

/// As [`scaled`]: rings of terabytes have more than 2^32 positions.
#[cold]
fn scaled_beyond(number: u64, to: u64, from: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(to) / u128::from(from);
    u64::try_from(scaled).expect("at most the ring's length")
}

impl Line {
    /// Each block gets its weight and a small excess, so that the units fill the line.
    fn new(blocks: &[CarouselBlock]) -> Self {
        let line: u64 = blocks.iter().map(weight).sum();
        let places = (line / UNITS_MIN).clamp(1, PLACES_MAX);
        let places = 1 << places.ilog2();
        let end = line.next_multiple_of(places);
        let mut weights = 0;
        let starts = core::iter::once(0).chain(blocks.iter().map(|block| {
            weights += weight(block);
            scaled(weights, end, line)
        }));
        /// 2^64 divided by the golden ratio.
        const GOLDEN: u128 = 0x9E37_79B9_7F4A_7C15;
        let section = u64::try_from((u128::from(places) * GOLDEN) >> 64).expect("below the places");
        Self { starts: starts.collect(), places, hop: section | 1 }
    }

    fn units(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0) / self.places
    }

    fn at(&self, unit: u64, round: u64) -> (usize, u64) {
        let (lap, turn) = (round / self.places, round % self.places);
        let place = unit * self.places + (turn + lap).wrapping_mul(self.hop) % self.places;
        let block = self.starts.partition_point(|start| *start <= place) - 1;
        let turns = self.starts[block + 1] - self.starts[block];
        (block, lap * turns + place - self.starts[block])
    }
}

/// Turns of a block in a pass. Small rateless blocks get a few extra turns: a receiver that misses a symbol
/// of a small block waits long for the next.
fn weight(block: &CarouselBlock) -> u64 {
    let symbols = u64::from(block.symbols);
    if block.rateless { symbols + 2 * symbols.isqrt() + 1 } else { symbols }
}

/// Number of turns of a block in which no symbol repeats. For a rateless block the turns only determine the
/// order of the blocks.
fn turns(block: &CarouselBlock) -> u32 {
    match block.rateless {
        true if block.symbols > 1 => block.symbols.next_multiple_of(2),
        true => block.symbols,
        false => block.encoding_symbols,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn stored(symbols: u32, encoding_symbols: u32) -> CarouselBlock {
        CarouselBlock { symbols, encoding_symbols, rateless: false }
    }

    #[test]
    fn blocks_of_one_size_take_turns() {
        let ring = Ring::new(&[stored(3, 6); 4]);
        assert_eq!(ring.positions(), 24);
        let first: Vec<_> = (0..8).map(|position| ring.at(position)).collect();
        // After a sixth of the ring all are a sixth of four blocks ahead, rounded down.
        assert_eq!(first, [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(ring.at(12), (2, 3), "half a ring ahead");
        assert_eq!(Ring::new(&[]).positions(), 0);
    }

    #[test]
    fn symbols_alone_and_blocks_alone_are_the_papers_ring() {
        let symbols = Ring::new(&[stored(1, 1); 10]);
        assert!((0..10).all(|position| symbols.at(position) == (usize::try_from(position).unwrap(), 0)));
        let block = Ring::new(&[stored(4_000, 8_000)]);
        assert_eq!(block.positions(), 8_000);
        assert!((0..8_000).all(|position| block.at(position) == (0, position)));
    }

    #[test]
    fn between_points_source_symbols_come_first() {
        let mut ring = Ring::new(&[stored(20, 40); 3]);
        ring.divide(5);
        let number = |position| ring.at(position).1;
        for start in [0, 24, 48, 72, 96] {
            assert!((start..start + 12).all(|position| number(position) < 20), "from {start}");
            assert!((start + 12..start + 24).all(|position| number(position) >= 20), "from {start}");
        }
    }

    #[test]
    fn terabytes_have_a_ring() {
        let (blocks, n) = (400_000, 20_000);
        let mut ring = Ring::new(&vec![stored(n / 2, n); blocks]);
        let last = ring.positions() - 1;
        assert!(last > 1 << 32 && ring.point(last) == last);
        ring.divide(9_000);
        let [start, end] = [0, 1].map(|way| ring.point(8_999 + way));
        assert_eq!(end, ring.positions());
        let numbers = [start, start + (end - start) / 2 - 1, end - 1].map(|position| ring.at(position).1);
        assert!(numbers[1] < 10_000 && numbers[1] > numbers[0] && numbers[2] == 19_999, "{numbers:?}");
    }

    proptest! {
        #[test]
        fn a_divided_ring_has_every_symbol(
            (k, blocks, points) in (1_u32..120, 1_usize..5, 1_u32..30),
            (repair, longer) in (0_u32..120, 0_u32..2),
        ) {
            let mut blocks = vec![stored(k, k + repair); blocks];
            blocks.push(stored(k + longer, k + longer + repair));
            let mut ring = Ring::new(&blocks);
            prop_assume!(ring.is_of_blocks());
            let all = |ring: &Ring| (0..ring.positions()).map(|position| ring.at(position)).collect::<BTreeSet<_>>();
            let undivided = all(&ring);
            ring.divide(points);
            prop_assert_eq!(all(&ring), undivided);
        }

        #[test]
        fn every_symbol_has_one_position(sizes in prop::collection::vec(1_u32..40, 1..12), twice in any::<bool>()) {
            let blocks: Vec<_> = sizes.iter().map(|k| stored(*k, k * (1 + u32::from(twice)))).collect();
            let ring = Ring::new(&blocks);
            let fits = ring.line.as_ref().map_or(1.0, |_| 1.0 + 1.0 / UNITS_MIN as f64);
            let mut seen: Vec<Vec<u32>> = blocks.iter().map(|block| vec![0; block.encoding_symbols as usize]).collect();
            for position in 0..ring.positions() {
                let (block, number) = ring.at(position);
                let n = seen[block].len() as u64;
                seen[block][usize::try_from(number % n).unwrap()] += 1;
            }
            for block in &seen {
                prop_assert!(block.iter().all(|times| (1..=2).contains(times)), "{seen:?}");
            }
            let symbols: u32 = blocks.iter().map(|block| block.encoding_symbols).sum();
            let most = f64::from(symbols) * fits + blocks.len() as f64;
            prop_assert!(ring.positions() as f64 <= most, "{} positions, {most}", ring.positions());
        }

        #[test]
        fn any_stretch_has_of_each_block_its_share(
            sizes in prop::collection::vec(prop_oneof![1_u32..20, 100_u32..300], 2..40),
            start in any::<u32>(),
            part in 5_u64..100,
        ) {
            let blocks: Vec<_> = sizes.iter().map(|k| stored(*k, *k)).collect();
            let ring = Ring::new(&blocks);
            let turns = ring.positions() * part / 100;
            let start = u64::from(start) % ring.positions();
            let mut sent = vec![0_u32; sizes.len()];
            for position in start..start + turns {
                sent[ring.at(position % ring.positions()).0] += 1;
            }
            // Past the ring's end turns begin anew: it is even on either side.
            let pieces = if start + turns > ring.positions() { 2.0 } else { 1.0 };
            for (block, size) in sizes.iter().enumerate() {
                let share = f64::from(*size) * turns as f64 / sizes.iter().sum::<u32>() as f64;
                // A block may lie across several of the 32 to 64 units, each of which is even to within a
                // turn or two.
                let slack = pieces * (6.0 + 64.0 * f64::from(*size) / sizes.iter().sum::<u32>() as f64);
                prop_assert!((f64::from(sent[block]) - share).abs() <= slack, "{block}: {} of {share}", sent[block]);
            }
        }
    }
}
