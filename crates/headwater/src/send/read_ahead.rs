//! Symbols on disk, read in runs by a thread before they are wanted: each block's next symbols are read together, whatever the
//! order in which blocks take turns.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use headwater_proto::delivery::SourceError;

/// Bytes of a run: as many as make a call to the kernel cheap beside what it copies, and few enough that those of a window stay
/// in the processor's cache until they are sent.
const RUN_BYTES: usize = 28 << 10;
/// Fewest bytes for each block that takes turns: where there is less for each, they push one another out.
const TURN_BYTES_MIN: usize = 1 << 10;
/// Most runs that the thread is asked for at a time: to wake it costs as much as to read a few.
const BATCH_MAX: usize = 32;

/// Fills a room with the symbols of a block, which has an index among all, from one of them on.
pub(super) type Read = dyn Fn(usize, u32, &mut [u8]) -> Result<(), SourceError> + Send + Sync;

/// Keeps a run of symbols of each block that takes turns; while they are sent, a thread reads those that follow.
///
/// Memory: the bytes it was given, and some 250 for each block that takes turns.
pub(super) struct ReadAhead {
    turns: Vec<Turn>,
    symbol_bytes: usize,
    run_symbols: u32,
    read: Arc<Read>,
    /// Turns whose next run is asked for when there are so many.
    wanted: Vec<usize>,
    batch: usize,
    reader: Reader,
}

/// One of the blocks that take turns.
#[derive(Debug, Default)]
struct Turn {
    run: Run,
    behind: Behind,
}

/// The run behind.
#[derive(Debug)]
enum Behind {
    /// Read, or merely room for it.
    Here(Run),
    /// Not asked for yet.
    Wanted(Run),
    /// The thread has it.
    Asked,
}

/// Symbols of a block, and the room that they are in.
#[derive(Debug, Default)]
struct Run {
    turn: usize,
    block: usize,
    esi: u32,
    /// How many; 0 while nothing was read.
    symbols: u32,
    bytes: Vec<u8>,
    error: Option<SourceError>,
}

/// The thread, and the lists of runs on their way to it and back.
struct Reader {
    /// None once it is to end.
    asked: Option<SyncSender<Vec<Run>>>,
    answers: Receiver<Vec<Run>>,
    /// Lists to use again.
    lists: Vec<Vec<Run>>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// For symbols of `symbol_bytes` bytes, of `turns` blocks that take turns: they share `bytes_max`, and where they are many,
    /// runs get shorter.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn start(
        symbol_bytes: usize,
        turns: usize,
        bytes_max: usize,
        read: Arc<Read>,
    ) -> Result<Self, SourceError> {
        // One run is sent while the other is read.
        let rooms_max = bytes_max / 2;
        let run_bytes = (rooms_max / turns.max(1)).min(RUN_BYTES);
        let run_symbols = (run_bytes / symbol_bytes.max(1)).max(1);
        let room_bytes = (run_symbols * symbol_bytes).max(TURN_BYTES_MIN);
        let turns = turns.min(rooms_max / room_bytes).max(1);
        let reader = Reader::start(turns, symbol_bytes, &read)?;
        Ok(Self {
            turns: (0..turns).map(|_| Turn::default()).collect(),
            symbol_bytes,
            run_symbols: u32::try_from(run_symbols).expect("at most 28 Ki"),
            read,
            wanted: Vec::new(),
            batch: (turns / 4).clamp(1, BATCH_MAX),
            reader,
        })
    }

    /// Copies a symbol of a block. Of those that follow it none is read from `end` on.
    ///
    /// # Errors
    /// When it cannot be read. It is read anew when it is asked for again.
    pub(super) fn symbol(
        &mut self,
        block: usize,
        esi: u32,
        end: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let turn = block % self.turns.len();
        if !self.turns[turn].run.has(block, esi) {
            self.turn_over(turn, block, esi, end)?;
        }
        let run = &self.turns[turn].run;
        let at = (esi - run.esi) as usize * self.symbol_bytes;
        symbol.copy_from_slice(&run.bytes[at..at + self.symbol_bytes]);
        Ok(())
    }

    /// Goes on to the run that begins with a symbol, and wants the one behind it.
    fn turn_over(&mut self, turn: usize, block: usize, esi: u32, end: u32) -> Result<(), SourceError> {
        let mut next = self.take_behind(turn);
        let run = &mut self.turns[turn].run;
        if next.has(block, esi) {
            mem::swap(run, &mut next);
        } else {
            run.place(turn, block, esi, self.run_symbols.min(end - esi));
            run.fill(self.symbol_bytes, &*self.read);
        }
        if let Some(error) = run.error.take() {
            run.symbols = 0;
            self.turns[turn].behind = Behind::Here(next);
            return Err(error);
        }
        let after = run.esi + run.symbols;
        next.place(turn, block, after, self.run_symbols.min(end - after));
        if after == end {
            self.turns[turn].behind = Behind::Here(next);
            return Ok(());
        }
        self.turns[turn].behind = Behind::Wanted(next);
        self.wanted.push(turn);
        if self.wanted.len() >= self.batch {
            self.ask();
        }
        Ok(())
    }

    /// Takes the run behind, once the thread is done with it if it has it.
    fn take_behind(&mut self, turn: usize) -> Run {
        while matches!(self.turns[turn].behind, Behind::Asked) {
            let Ok(mut list) = self.reader.answers.recv() else {
                // The thread has ended: whoever wants something reads it.
                self.turns[turn].behind = Behind::default();
                break;
            };
            for run in list.drain(..) {
                let turn = run.turn;
                self.turns[turn].behind = Behind::Here(run);
            }
            self.reader.lists.push(list);
        }
        match mem::take(&mut self.turns[turn].behind) {
            Behind::Here(run) => run,
            Behind::Wanted(run) => {
                self.wanted.retain(|wanted| *wanted != turn);
                Run { symbols: 0, ..run }
            }
            Behind::Asked => Run::default(),
        }
    }

    /// Asks the thread for all that is wanted.
    fn ask(&mut self) {
        let mut list = self.reader.lists.pop().unwrap_or_default();
        for turn in self.wanted.drain(..) {
            match mem::replace(&mut self.turns[turn].behind, Behind::Asked) {
                Behind::Wanted(run) => list.push(run),
                other => self.turns[turn].behind = other,
            }
        }
        // Where the thread has ended, the next one who waits for it finds out.
        let _ended = self.reader.asked.as_ref().map(|asked| asked.send(list));
    }
}

impl Run {
    fn has(&self, block: usize, esi: u32) -> bool {
        self.block == block && esi.checked_sub(self.esi).is_some_and(|place| place < self.symbols)
    }

    /// Makes it one of symbols that are to be read.
    fn place(&mut self, turn: usize, block: usize, esi: u32, symbols: u32) {
        (self.turn, self.block, self.esi, self.symbols) = (turn, block, esi, symbols);
    }

    fn fill(&mut self, symbol_bytes: usize, read: &Read) {
        self.bytes.resize(self.symbols as usize * symbol_bytes, 0);
        self.error = read(self.block, self.esi, &mut self.bytes).err();
    }
}

impl Default for Behind {
    fn default() -> Self {
        Self::Here(Run::default())
    }
}

impl Reader {
    /// A thread that reads for so many turns.
    fn start(turns: usize, symbol_bytes: usize, read: &Arc<Read>) -> Result<Self, SourceError> {
        // No turn is in more than one list: neither end ever waits for room.
        let (asked, lists) = sync_channel::<Vec<Run>>(turns);
        let (done, answers) = sync_channel(turns);
        let read = Arc::clone(read);
        let work = move || {
            for mut list in lists {
                list.iter_mut().for_each(|run| run.fill(symbol_bytes, &*read));
                if done.send(list).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("headwater-read".into()).spawn(work);
        let thread =
            thread.map_err(|error| SourceError(format!("cannot start a thread to read files: {error}")))?;
        Ok(Self { asked: Some(asked), answers, lists: Vec::new(), thread: Some(thread) })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so already.
            let _panicked = thread.join();
        }
    }
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turns, symbol_bytes, run_symbols, .. } = self;
        f.debug_struct("ReadAhead")
            .field("turns", &turns.len())
            .field("symbol_bytes", symbol_bytes)
            .field("run_symbols", run_symbols)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const T: usize = 4;

    /// Symbol `esi` of block `block`, in four bytes.
    fn expected(block: usize, esi: u32) -> [u8; T] {
        (u32::try_from(block).unwrap() * 10_000 + esi).to_be_bytes()
    }

    /// Reads that succeeded: the block, the first symbol and how many.
    type Calls = Arc<Mutex<Vec<(usize, u32, usize)>>>;

    /// What reads `expected`, never from `end` on, and fails the first time for each of some places.
    fn reading(turns: usize, bytes_max: usize, end: u32, fails: &[(usize, u32)]) -> (ReadAhead, Calls) {
        let calls = Calls::default();
        let (told, fails) = (Arc::clone(&calls), Mutex::new(fails.to_vec()));
        let read = move |block, esi, room: &mut [u8]| {
            let mut fails = fails.lock().unwrap();
            if let Some(at) = fails.iter().position(|place| *place == (block, esi)) {
                fails.remove(at);
                return Err(SourceError("gone".into()));
            }
            for (esi, symbol) in (esi..).zip(room.chunks_exact_mut(T)) {
                assert!(esi < end);
                symbol.copy_from_slice(&expected(block, esi));
            }
            told.lock().unwrap().push((block, esi, room.len() / T));
            Ok(())
        };
        (ReadAhead::start(T, turns, bytes_max, Arc::new(read)).unwrap(), calls)
    }

    fn ask(ahead: &mut ReadAhead, end: u32, wanted: impl IntoIterator<Item = (usize, u32)>) {
        for (block, esi) in wanted {
            let mut symbol = [7; T];
            ahead.symbol(block, esi, end, &mut symbol).unwrap();
            assert_eq!(symbol, expected(block, esi), "symbol {esi} of block {block}");
        }
    }

    #[test]
    fn blocks_that_take_turns_in_order_are_read_once_and_in_long_runs() {
        for turns in [1, 3, 40] {
            let (mut ahead, calls) = reading(turns, 80 << 10, 10_000, &[]);
            let run_symbols = ahead.run_symbols as usize;
            assert!(run_symbols >= 256);
            let wanted = (0..10_000).flat_map(|esi| (0..turns).map(move |block| (block, esi)));
            ask(&mut ahead, 10_000, wanted);
            let calls = calls.lock().unwrap();
            assert_eq!(calls.iter().map(|(.., symbols)| symbols).sum::<usize>(), 10_000 * turns);
            assert_eq!(calls.len(), turns * 10_000_usize.div_ceil(run_symbols));
        }
    }

    #[test]
    fn all_but_the_first_run_is_read_by_the_thread() {
        let mine = thread::current().id();
        let others = Arc::new(Mutex::new((0, 0)));
        let told = Arc::clone(&others);
        let read = move |_, _, _: &mut [u8]| {
            let mut told = told.lock().unwrap();
            if thread::current().id() == mine {
                told.0 += 1;
            } else {
                told.1 += 1;
            }
            Ok(())
        };
        let mut ahead = ReadAhead::start(T, 8, 16 << 10, Arc::new(read)).unwrap();
        for esi in 0..ahead.run_symbols * 10 {
            for block in 0..8 {
                ahead.symbol(block, esi, u32::MAX, &mut [0; T]).unwrap();
            }
        }
        drop(ahead);
        assert_eq!(*others.lock().unwrap(), (8, 8 * 10));
    }

    #[test]
    fn more_blocks_than_turns_push_one_another_out() {
        let (mut ahead, _) = reading(100, 3 * 2 * TURN_BYTES_MIN, 50, &[]);
        assert_eq!(ahead.turns.len(), 3);
        ask(&mut ahead, 50, (0..50).flat_map(|esi| (0..7).map(move |block| (block, esi))));
    }

    #[test]
    fn symbols_in_any_order_are_the_right_ones() {
        let (mut ahead, _) = reading(4, 4 * 2 * TURN_BYTES_MIN, 5_000, &[]);
        let mut place = 1_u32;
        ask(
            &mut ahead,
            5_000,
            (0..20_000).map(|_| {
                place = place.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((place >> 8) as usize % 6, (place >> 16) % 5_000)
            }),
        );
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_turns_and_any_symbol() {
        const BYTES_MAX: usize = 16 << 20;
        for symbol_bytes in [1, 64, 1_408, 8_880] {
            for turns in [0, 1, 32, 256, 257, 1_000, 100_000, 10_000_000] {
                let ahead =
                    ReadAhead::start(symbol_bytes, turns, BYTES_MAX, Arc::new(|_, _, _| Ok(()))).unwrap();
                let (count, run) = (ahead.turns.len(), ahead.run_symbols as usize * symbol_bytes);
                assert!(2 * count * run <= BYTES_MAX && count <= turns.max(1));
                assert!(count * TURN_BYTES_MIN <= BYTES_MAX);
            }
        }
    }

    #[test]
    fn what_could_not_be_read_is_said_where_it_is_wanted_and_read_again() {
        let (mut ahead, _) = reading(1, 2 * TURN_BYTES_MIN, 900, &[(0, 0), (0, 256), (0, 512)]);
        assert_eq!(ahead.run_symbols, 256);
        for start in [0, 256, 512] {
            assert!(ahead.symbol(0, start, 900, &mut [0; T]).is_err(), "{start}");
            ask(&mut ahead, 900, (start..(start + 256).min(900)).map(|esi| (0, esi)));
        }
    }
}
