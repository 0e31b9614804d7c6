//! Symbols on disk, read in runs: each block's next symbols are read together, whatever the order in which
//! blocks take turns.

use headwater_proto::delivery::SourceError;

/// Bytes of a run: as many as make a call to the kernel cheap beside what it copies, and few enough that
/// those of a window stay in the processor's cache until they are sent.
const RUN_BYTES: usize = 28 << 10;

/// Keeps a run of symbols of each block that takes turns.
///
/// Memory: the bytes it was given, and 32 bytes for each run.
#[derive(Debug)]
pub(super) struct ReadAhead {
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
    /// For symbols of `symbol_bytes` bytes, of `turns` blocks that take turns: they share `bytes_max`, and
    /// where they are many, runs get shorter.
    pub(super) fn new(symbol_bytes: usize, turns: usize, bytes_max: usize) -> Self {
        let run_bytes = (bytes_max / turns.max(1)).min(RUN_BYTES);
        let run_symbols = (run_bytes / symbol_bytes.max(1)).max(1);
        let runs = (bytes_max / (run_symbols * symbol_bytes).max(1)).clamp(1, turns.max(1));
        Self {
            runs: vec![Run::default(); runs],
            buffer: vec![0; runs * run_symbols * symbol_bytes],
            symbol_bytes,
            run_symbols: u32::try_from(run_symbols).expect("at most 64 Ki"),
        }
    }

    /// Copies a symbol of a block, which has an index among all. `read` fills its room with this symbol and
    /// those that follow it, of which none is asked for from `end` on.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn symbol(
        &mut self,
        block: usize,
        esi: u32,
        end: u32,
        symbol: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let slot = block % self.runs.len();
        let start = slot * self.run_symbols as usize * self.symbol_bytes;
        let run = &mut self.runs[slot];
        if !run.has(block, esi) {
            let symbols = self.run_symbols.min(end - esi);
            // Nothing is kept of a run that cannot be read.
            *run = Run::default();
            read(&mut self.buffer[start..start + symbols as usize * self.symbol_bytes])?;
            *run = Run { block: block + 1, esi, symbols };
        }
        let at = start + (esi - run.esi) as usize * self.symbol_bytes;
        symbol.copy_from_slice(&self.buffer[at..at + self.symbol_bytes]);
        Ok(())
    }
}

impl Run {
    fn has(&self, block: usize, esi: u32) -> bool {
        self.block == block + 1 && (self.esi..self.esi + self.symbols).contains(&esi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: usize = 4;

    /// Symbol `esi` of block `block`, in four bytes.
    fn expected(block: usize, esi: u32) -> [u8; T] {
        (u32::try_from(block).unwrap() * 10_000 + esi).to_be_bytes()
    }

    /// Asks for symbols in order and returns how many calls read how many of them.
    fn calls(
        ahead: &mut ReadAhead,
        end: u32,
        wanted: impl IntoIterator<Item = (usize, u32)>,
    ) -> (usize, usize) {
        let (mut calls, mut symbols) = (0, 0);
        for (block, esi) in wanted {
            let mut symbol = [7; T];
            let read = |room: &mut [u8]| {
                calls += 1;
                for (esi, symbol) in (esi..).zip(room.chunks_exact_mut(T)) {
                    assert!(esi < end);
                    symbol.copy_from_slice(&expected(block, esi));
                    symbols += 1;
                }
                Ok(())
            };
            ahead.symbol(block, esi, end, &mut symbol, read).unwrap();
            assert_eq!(symbol, expected(block, esi), "symbol {esi} of block {block}");
        }
        (calls, symbols)
    }

    #[test]
    fn blocks_that_take_turns_in_order_are_read_once_and_in_long_runs() {
        for turns in [3, 40] {
            let mut ahead = ReadAhead::new(T, turns, 40 * 64 * T);
            let run_symbols = ahead.run_symbols as usize;
            assert!(run_symbols >= 64);
            let wanted = (0..1_000).flat_map(|esi| (0..turns).map(move |block| (block, esi)));
            let (calls, symbols) = calls(&mut ahead, 1_000, wanted);
            assert_eq!(symbols, 1_000 * turns);
            assert_eq!(calls, turns * 1_000_usize.div_ceil(run_symbols));
        }
    }

    #[test]
    fn more_blocks_than_runs_push_one_another_out() {
        let mut ahead = ReadAhead::new(T, 100, 3 * T);
        assert_eq!(ahead.runs.len(), 3);
        let wanted = (0..50).flat_map(|esi| (0..7).map(move |block| (block, esi)));
        calls(&mut ahead, 50, wanted);
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_turns_and_any_symbol() {
        const BYTES_MAX: usize = 16 << 20;
        for symbol_bytes in [1, 64, 1_408, 8_880] {
            for turns in [0, 1, 32, 256, 257, 1_000, 100_000, 10_000_000] {
                let ahead = ReadAhead::new(symbol_bytes, turns, BYTES_MAX);
                assert!(ahead.buffer.len() <= BYTES_MAX && ahead.runs.len() <= turns.max(1));
            }
        }
    }

    #[test]
    fn what_could_not_be_read_is_asked_for_again() {
        let mut ahead = ReadAhead::new(T, 1, 64);
        let mut symbol = [0; T];
        assert!(ahead.symbol(0, 5, 9, &mut symbol, |_| Err(SourceError::Session("gone".into()))).is_err());
        assert_eq!(calls(&mut ahead, 9, [(0, 5), (0, 6)]), (1, 4));
    }
}
