//! The application scheduler alone (experiment M4): blocks sent before the first duplicate, and buffers until a receiver is done,
//! by the levels that it holds, as lines of CSV.
//!
//! ```text
//! cargo run --release -p headwater-proto --example scheduler > scheduler.csv
//! ```

use std::collections::BTreeSet;

use headwater_proto::ChannelId;
use headwater_proto::delivery::{CarouselBlock, Hierarchy, Place};

/// A carousel over `k` blocks; over `n` symbols of which any k do, where there is a code.
pub(crate) fn carousel(k: u32, n: u32) -> Hierarchy {
    // A block without a code is a block of one symbol: the ring is the same.
    let block = |symbols, encoding_symbols| CarouselBlock { symbols, encoding_symbols, rateless: false };
    Hierarchy::new(if n > k { vec![block(k, n)] } else { vec![block(1, 1); k as usize] })
}

/// What a receiver of so many levels has of a buffer.
fn buffer(hierarchy: &mut Hierarchy, number: u64, levels: u64) -> Vec<u32> {
    let visits = (0..levels)
        .filter_map(|index| hierarchy.visit(Place { buffer: number, index, channel: ChannelId::BASE }));
    visits.map(|visit| visit.block + visit.esi).collect()
}

/// Blocks until a buffer has one twice.
pub(crate) fn before_a_duplicate(mut hierarchy: Hierarchy, levels: u64) -> usize {
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

/// Buffers until so many different ones have come.
pub(crate) fn until(mut hierarchy: Hierarchy, levels: u64, wanted: usize) -> u64 {
    let mut seen = BTreeSet::new();
    let mut buffers = 0;
    while seen.len() < wanted {
        seen.extend(buffer(&mut hierarchy, buffers, levels));
        buffers += 1;
    }
    buffers
}

fn main() {
    println!("levels_received,before_duplicate,without_code,with_code");
    for levels in 1..=32 {
        println!(
            "{levels},{},{},{}",
            before_a_duplicate(carousel(8_000, 8_000), levels),
            until(carousel(4_000, 4_000), levels, 4_000),
            until(carousel(4_000, 8_000), levels, 4_000),
        );
    }
}
