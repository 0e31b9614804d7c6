//! The application scheduler alone (experiment M4): blocks sent before the first duplicate, and buffers until
//! a receiver is done, by the number of levels held, as lines of CSV.

use std::collections::BTreeSet;
use std::io::{self, Write};

use headwater_proto::ChannelId;
use headwater_proto::delivery::{CarouselBlock, Hierarchy, Place};

/// A carousel over `k` blocks; over `n` symbols of which any k do, where there is a code.
fn carousel(k: u32, n: u32) -> Hierarchy {
    // A block without a code is equivalent to a block of a single symbol: the ring is the same.
    let block = |symbols, encoding_symbols| CarouselBlock { symbols, encoding_symbols, rateless: false };
    Hierarchy::new(if n > k { vec![block(k, n)] } else { vec![block(1, 1); k as usize] })
}

/// Symbols of a buffer that a receiver of `levels` levels gets.
fn buffer(hierarchy: &mut Hierarchy, number: u64, levels: u64) -> Vec<u32> {
    let visits = (0..levels)
        .filter_map(|index| hierarchy.visit(Place { buffer: number, index, channel: ChannelId::BASE }));
    visits.map(|visit| visit.block + visit.esi).collect()
}

/// Number of different symbols before the first buffer that contains a duplicate.
fn before_a_duplicate(mut hierarchy: Hierarchy, levels: u64) -> usize {
    let mut seen = BTreeSet::new();
    for number in 0.. {
        let had = seen.len();
        let visits = buffer(&mut hierarchy, number, levels);
        seen.extend(visits.iter().copied());
        if seen.len() < had + visits.len() {
            return had;
        }
    }
    0
}

/// Number of buffers until `wanted` different symbols have arrived.
fn until(mut hierarchy: Hierarchy, levels: u64, wanted: usize) -> u64 {
    let mut seen = BTreeSet::new();
    let mut buffers = 0;
    while seen.len() < wanted {
        seen.extend(buffer(&mut hierarchy, buffers, levels));
        buffers += 1;
    }
    buffers
}

/// Writes the table as lines of CSV.
pub fn write(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "levels_received,before_duplicate,without_code,with_code")?;
    for levels in 1..=32 {
        writeln!(
            out,
            "{levels},{},{},{}",
            before_a_duplicate(carousel(8_000, 8_000), levels),
            until(carousel(4_000, 4_000), levels, 4_000),
            until(carousel(4_000, 8_000), levels, 4_000),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of it: blocks of 8000 sent before the first duplicate, buffers until 4000 blocks without a code,
    /// and until 4000 of 8000 symbols with one.
    #[test]
    fn blocks_and_buffers_as_derived() {
        let rows = [
            (1, 8000, 4000, 4000),
            (2, 8000, 2000, 2000),
            (3, 6000, 2000, 1334),
            (4, 8000, 1000, 1000),
            (5, 5000, 1000, 800),
            (6, 6000, 1000, 667),
            (7, 7000, 1000, 572),
            (8, 8000, 500, 500),
            (9, 4500, 500, 445),
            (10, 5000, 500, 400),
            (11, 5500, 500, 364),
            (12, 6000, 500, 334),
            (13, 6500, 500, 308),
            (14, 7000, 500, 286),
            (15, 7500, 500, 267),
            (16, 8000, 250, 250),
            (17, 4250, 250, 236),
            (18, 4500, 250, 223),
            (19, 4750, 250, 211),
            (20, 5000, 250, 200),
            (21, 5250, 250, 191),
            (22, 5500, 250, 182),
            (23, 5750, 250, 174),
            (24, 6000, 250, 167),
            (25, 6250, 250, 160),
            (26, 6500, 250, 154),
            (27, 6750, 250, 149),
            (28, 7000, 250, 143),
            (29, 7250, 250, 138),
            (30, 7500, 250, 134),
            (31, 7750, 250, 130),
            (32, 8000, 125, 125),
        ];
        for (levels, before, without_code, with_code) in rows {
            assert_eq!(
                before_a_duplicate(carousel(8_000, 8_000), levels),
                before,
                "{levels} levels: before a duplicate"
            );
            assert_eq!(
                until(carousel(4_000, 4_000), levels, 4_000),
                without_code,
                "{levels} levels, no code"
            );
            assert_eq!(until(carousel(4_000, 8_000), levels, 4_000), with_code, "{levels} levels, n = 2k");
        }
    }
}
