//! The store of window order: the repair symbols of the first pass, block after block, then those of the
//! second pass, and so on, as many passes as are stored (47 % of the content).

use std::collections::BTreeMap;
use std::ops::Range;

use headwater_proto::delivery::passes_end;

use super::StoredBlock;

/// Passes kept: the first one and those after it.
const PASSES: usize = 21;
/// Of these, passes whose symbols are needed soon: those of a loss of up to 1 %.
const EARLY_PASSES: usize = 3;
/// Blocks between two of which the sums are kept: they bound what finding a symbol adds up.
const CHUNK: usize = 32;

/// Memory: 9.25 bytes a block, 88 bytes for each length of blocks.
#[derive(Debug)]
pub(in crate::send) struct WindowLayout {
    symbol_bytes: usize,
    gather: usize,
    early: usize,
    lengths: Vec<Length>,
    /// By block: its length.
    blocks: Vec<u32>,
    /// By pass and chunk: where the symbols of its first block begin, in symbols.
    starts: Vec<Vec<u64>>,
    symbols: u64,
}

/// Blocks of one length.
#[derive(Clone, Copy, Debug)]
struct Length {
    /// k.
    symbols: u32,
    /// The ESI with which each pass ends.
    ends: [u32; PASSES],
}

impl WindowLayout {
    pub(super) fn new(blocks: &[StoredBlock], symbol_size: u16, gather: usize) -> Self {
        let mut known = BTreeMap::new();
        let mut lengths = Vec::new();
        let mut length_of = |block: &StoredBlock| {
            *known.entry((block.symbols, block.repairs_max)).or_insert_with(|| {
                lengths.push(Length::new(block));
                u32::try_from(lengths.len() - 1).expect("a session has below 2^32 blocks")
            })
        };
        let early = |block: &StoredBlock| early_passes(block.symbols, block.few);
        let early = blocks.iter().map(early).min().unwrap_or(0);
        let blocks: Vec<u32> = blocks.iter().map(&mut length_of).collect();
        let (starts, symbols) = starts(&blocks, &lengths);
        Self { symbol_bytes: symbol_size.into(), gather, early, lengths, blocks, starts, symbols }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.symbols * self.symbol_bytes as u64
    }

    pub(super) fn jobs(&self) -> usize {
        self.blocks.len().div_ceil(self.gather)
    }

    pub(super) fn job_of(&self, block: usize) -> usize {
        block / self.gather
    }

    pub(super) fn blocks_of(&self, job: usize) -> Range<usize> {
        job * self.gather..self.blocks.len().min((job + 1) * self.gather)
    }

    pub(super) fn esis(&self, block: usize) -> Range<u32> {
        let Length { symbols, ends } = *self.length(block);
        symbols..ends[PASSES - 1]
    }

    pub(super) fn runs_of(&self, job: usize) -> Vec<u64> {
        let first = self.blocks_of(job).start;
        (0..PASSES).map(|pass| self.start(first, pass) * self.symbol_bytes as u64).collect()
    }

    pub(super) fn early_runs(&self) -> usize {
        self.early
    }

    pub(super) fn early_end(&self, block: usize) -> u32 {
        let length = self.length(block);
        self.early.checked_sub(1).map_or(length.symbols, |last| length.ends[last])
    }

    pub(super) fn esis_of_run(&self, block: usize, pass: usize) -> Range<u32> {
        self.length(block).pass(pass)
    }

    pub(super) fn run_end(&self, block: usize, esi: u32) -> u32 {
        let length = self.length(block);
        length.pass(length.pass_of(esi)).end
    }

    pub(super) fn offset(&self, block: usize, esi: u32) -> u64 {
        let length = self.length(block);
        let pass = length.pass_of(esi);
        let within = esi - length.pass(pass).start;
        (self.start(block, pass) + u64::from(within)) * self.symbol_bytes as u64
    }

    pub(super) fn symbol_bytes(&self) -> usize {
        self.symbol_bytes
    }

    fn length(&self, block: usize) -> &Length {
        &self.lengths[self.blocks[block] as usize]
    }

    /// Where the symbols of a block and pass begin, in symbols.
    fn start(&self, block: usize, pass: usize) -> u64 {
        let chunk = block / CHUNK;
        let before = (chunk * CHUNK..block).map(|block| self.length(block).pass(pass).len() as u64);
        self.starts[pass][chunk] + before.sum::<u64>()
    }
}

/// Repair symbols of a block of k source symbols that are made before all others, where a code makes `few`
/// fast.
pub(in crate::send) fn early_symbols(symbols: u32, few: u32) -> u32 {
    let early = early_passes(symbols, few).checked_sub(1);
    early.and_then(|last| passes_end(symbols).nth(last)).map_or(0, |end| end - symbols)
}

/// The passes that these are for.
fn early_passes(symbols: u32, few: u32) -> usize {
    passes_end(symbols).take(EARLY_PASSES).take_while(|end| end - symbols <= few).count()
}

impl Length {
    fn new(block: &StoredBlock) -> Self {
        let mut ends = [0; PASSES];
        for (end, of_pass) in ends.iter_mut().zip(passes_end(block.symbols)) {
            *end = of_pass.min(block.symbols.saturating_add(block.repairs_max));
        }
        Self { symbols: block.symbols, ends }
    }

    /// The pass that sends repair symbol `esi` first.
    fn pass_of(&self, esi: u32) -> usize {
        self.ends.partition_point(|end| *end <= esi)
    }

    /// The repair symbols of a pass.
    fn pass(&self, pass: usize) -> Range<u32> {
        let start = pass.checked_sub(1).map_or(self.symbols, |before| self.ends[before]);
        start..self.ends[pass]
    }
}

fn starts(blocks: &[u32], lengths: &[Length]) -> (Vec<Vec<u64>>, u64) {
    let mut symbols = 0;
    let mut of_chunk = |pass: usize, chunk: &[u32]| {
        let start = symbols;
        let count = |block: &u32| lengths[*block as usize].pass(pass).len() as u64;
        symbols += chunk.iter().map(count).sum::<u64>();
        start
    };
    let of_pass = |pass| blocks.chunks(CHUNK).map(|chunk| of_chunk(pass, chunk)).collect();
    let starts = (0..PASSES).map(of_pass).collect();
    (starts, symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passes_that_are_stored_are_kept() {
        assert_eq!(passes_end(1_002).count(), PASSES);
        let layout =
            WindowLayout::new(&[StoredBlock { symbols: 1_000, repairs_max: 1 << 20, few: 15 }; 3], 10, 2);
        assert_eq!((layout.esis(2), layout.bytes()), (1_000..1_470, 3 * 470 * 10));
        assert_eq!((layout.esis_of_run(2, 0), layout.esis_of_run(2, 16)), (1_000..1_010, 1_270..1_310));
        assert_eq!((layout.early_runs(), layout.early_end(2)), (2, 1_015));
    }

    #[test]
    fn as_many_passes_are_early_as_the_code_makes_fast() {
        let early = [0, 10, 11, 15, 16, 20, 21, 1_000].map(|few| early_symbols(1_002, few));
        assert_eq!(early, [0, 0, 11, 11, 16, 16, 21, 21]);
        assert_eq!(early_symbols(1, 60), 1, "any block has one from the start");
    }
}
