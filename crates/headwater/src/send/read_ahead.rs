//! Source symbols, read from the files in runs: each block's next symbols are read together, whatever the order in which
//! blocks take turns.

use std::sync::Arc;

use headwater_proto::delivery::SourceError;

use super::content::Content;

/// Most memory for runs, in bytes. Blocks share it: beyond 256 of them that take turns, runs get shorter.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of a run: as many as make a call to the kernel cheap beside what it copies.
const RUN_BYTES: usize = 64 << 10;

/// Reads source symbols, a run at a time.
///
/// Memory: at most 16 MiB and 32 bytes for each run.
#[derive(Debug)]
pub(super) struct ReadAhead {
    content: Arc<Content>,
    /// Index of each object's first block among all.
    first: Vec<usize>,
    runs: Vec<Run>,
    /// All runs, one after the other.
    buffer: Vec<u8>,
    symbol_bytes: usize,
    run_symbols: u32,
}

/// Symbols of a block that were read.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Index of the block among all, counted from 1; 0 while nothing was read.
    block: usize,
    esi: u32,
    symbols: u32,
}

impl ReadAhead {
    /// Reads `content`, all of whose symbols have `symbol_bytes` bytes, of which `turns` blocks take turns.
    pub(super) fn new(content: Arc<Content>, symbol_bytes: usize, turns: usize) -> Self {
        let run_bytes = (BYTES_MAX / turns.max(1)).min(RUN_BYTES);
        let run_symbols = (run_bytes / symbol_bytes.max(1)).max(1);
        let runs = (BYTES_MAX / (run_symbols * symbol_bytes).max(1)).clamp(1, turns.max(1));
        Self {
            first: content.first_blocks(),
            content,
            runs: vec![Run::default(); runs],
            buffer: vec![0; runs * run_symbols * symbol_bytes],
            symbol_bytes,
            run_symbols: u32::try_from(run_symbols).expect("at most 64 Ki"),
        }
    }

    /// Copies a source symbol; past the end of the object it is zeros.
    ///
    /// # Errors
    /// When the file cannot be read, or is not what was prepared any more.
    pub(super) fn symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let block = self.first[object] + sbn as usize;
        let slot = block % self.runs.len();
        if !self.runs[slot].has(block, esi) {
            self.fill(slot, object, sbn, esi)?;
            self.runs[slot].block = block + 1;
        }
        let within = (esi - self.runs[slot].esi) as usize;
        let at = (slot * self.run_symbols as usize + within) * self.symbol_bytes;
        symbol.copy_from_slice(&self.buffer[at..at + self.symbol_bytes]);
        Ok(())
    }

    fn fill(&mut self, slot: usize, object: usize, sbn: u32, esi: u32) -> Result<(), SourceError> {
        let k = self.content.object(object).block(sbn).symbols;
        let symbols = self.run_symbols.min(k - esi);
        self.runs[slot] = Run { block: 0, esi, symbols };
        let start = slot * self.run_symbols as usize * self.symbol_bytes;
        let room = &mut self.buffer[start..start + symbols as usize * self.symbol_bytes];
        self.content.read_symbols(object, sbn, esi, room)
    }
}

impl Run {
    fn has(&self, block: usize, esi: u32) -> bool {
        self.block == block + 1 && (self.esi..self.esi + self.symbols).contains(&esi)
    }
}

#[cfg(test)]
mod tests {
    use headwater_fec::{Order, Scheme};
    use headwater_proto::delivery::{Carousel, CarouselBlock, PlanConfig, SessionPlan};

    use super::*;
    use crate::send::prepare;

    const T: usize = 64;

    fn contents() -> Vec<Vec<u8>> {
        let bytes =
            |bytes: &u32| (0..*bytes).map(|at| at.wrapping_mul(0x9E37_79B9).to_be_bytes()[0]).collect();
        [150_000, 1, 0, 64, 70_001].iter().map(bytes).collect()
    }

    /// Every source symbol in the order of sending, whether all turns have a run of their own or few have.
    #[test]
    fn every_symbol_is_read_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let contents = contents();
        let names: Vec<_> =
            (0..contents.len()).map(|index| folder.path().join(format!("file{index}"))).collect();
        names.iter().zip(&contents).for_each(|(name, bytes)| std::fs::write(name, bytes).unwrap());
        let files = prepare(&names).unwrap();
        for (order, turns) in [(Order::Window, 40), (Order::Spread { rate: 1 }, 40), (Order::Window, 3)] {
            let config = PlanConfig { scheme: Scheme::ReedSolomon, symbol_size: 64, order };
            let plan = SessionPlan::new(files.to_send(), config).unwrap();
            let content = Arc::new(Content::new(files.files(), &plan));
            let blocks: Vec<_> = content.blocks().collect();
            let carousel_block = |(object, sbn): &(usize, u32)| {
                let symbols = content.object(*object).block(*sbn).symbols;
                CarouselBlock { symbols, encoding_symbols: symbols, rateless: false }
            };
            let mut carousel = Carousel::new(blocks.iter().map(carousel_block).collect(), order);
            let mut ahead = ReadAhead::new(Arc::clone(&content), T, turns);
            for _ in 0..2 * plan.symbols() {
                let visit = carousel.next_visit().unwrap();
                let (object, sbn) = blocks[visit.block as usize];
                let mut symbol = [7; T];
                ahead.symbol(object, sbn, visit.esi, &mut symbol).unwrap();
                let planned = &plan.objects()[object];
                let offset = usize::try_from(planned.partition.block(sbn).unwrap().offset).unwrap();
                let start = offset + visit.esi as usize * T;
                let mut expected = contents[planned.file][start..].to_vec();
                expected.resize(T.max(expected.len()), 0);
                assert_eq!(symbol, expected[..T], "{order:?}, {visit:?}");
            }
        }
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_turns_and_any_symbol() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("file");
        std::fs::write(&name, [1]).unwrap();
        let files = prepare([&name]).unwrap();
        let order = Order::Window;
        let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: 64, order };
        let plan = SessionPlan::new(files.to_send(), config).unwrap();
        let content = Arc::new(Content::new(files.files(), &plan));
        for symbol_bytes in [1, 64, 1_408, 8_880] {
            for turns in [0, 1, 32, 256, 257, 1_000, 100_000, 10_000_000] {
                let ahead = ReadAhead::new(Arc::clone(&content), symbol_bytes, turns);
                assert!(ahead.buffer.len() <= BYTES_MAX && ahead.runs.len() <= turns.max(1));
            }
        }
    }

    #[test]
    fn a_file_that_changed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("file");
        std::fs::write(&name, [1; 200_000]).unwrap();
        let files = prepare([&name]).unwrap();
        let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: 64, order: Order::Window };
        let plan = SessionPlan::new(files.to_send(), config).unwrap();
        let content = Arc::new(Content::new(files.files(), &plan));
        let mut ahead = ReadAhead::new(content, T, 1);
        let mut symbol = [0; T];
        ahead.symbol(0, 0, 0, &mut symbol).unwrap();
        std::fs::write(&name, [1; 100]).unwrap();
        let failed = (0..1_002).any(|esi| ahead.symbol(0, 0, esi, &mut symbol).is_err());
        assert!(failed, "within a run or two");
    }
}
