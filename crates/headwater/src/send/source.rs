//! Source of a sender's machine that reads symbols of files on disk.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use headwater_fec::Order;
use headwater_proto::delivery::{SessionPlan, Source, SourceError};

use super::budget::{Budget, store_layout};
use super::content::{Content, FileChecks};
use super::encoders::Encoders;
use super::repair_store::{ReadAhead, RepairStore};

/// Maximum number of blocks of a window with 1002 symbols per block: the last block may extend beyond the
/// window.
const WINDOW_BLOCKS: usize = 256 + 1;
/// Maximum memory for source symbols that are read before their turn.
const READ_AHEAD_BYTES: usize = 16 << 20;
/// Maximum pause before a layered session encodes.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Reads source symbols from the files, and takes repair symbols from blocks encoded in the background.
#[derive(Debug)]
pub(super) struct FileSource {
    content: Arc<Content>,
    /// Index of each object's first block among all blocks.
    first: Vec<usize>,
    /// `None` if a block's symbols are not sent in order: the following symbols are not sent soon.
    ahead: Option<ReadAhead>,
    checks: FileChecks,
    repair: Repair,
}

/// Origin of repair symbols.
#[derive(Debug)]
enum Repair {
    /// The session sends no repair symbols.
    Nothing,
    Encoders(Encoders),
    Store(RepairStore),
}

impl FileSource {
    /// Creates the source of `content`, which must be the content of `plan`. If `store` (an empty file) is
    /// given, repair symbols are written to the store; otherwise blocks are encoded within the budget. A
    /// `layered` session sends from several positions of each block at a time.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn new(
        content: Arc<Content>,
        plan: &SessionPlan,
        budget: &Budget,
        store: Option<File>,
        layered: bool,
    ) -> Result<Self, SourceError> {
        let repair = match store {
            Some(file) => {
                let layout = store_layout(plan, budget.gather);
                let turns = blocks_in_turn(plan);
                let pause = if layered { pause(plan) } else { Duration::ZERO };
                Repair::Store(RepairStore::start(&content, layout, file, turns, budget.threads, pause)?)
            }
            None if budget.threads > 0 => {
                Repair::Encoders(Encoders::start(&content, plan.order(), budget.threads)?)
            }
            None => Repair::Nothing,
        };
        let symbol_bytes = plan.objects().first().map_or(0, |object| object.partition.symbol_size().into());
        // Without repair symbols a session is sent in order, with any code.
        let is_random = budget.threads > 0
            && plan.objects().first().is_some_and(|object| object.codec.sending_seed().is_some());
        let ahead = (!is_random && !layered)
            .then(|| ReadAhead::new(symbol_bytes, blocks_in_turn(plan), READ_AHEAD_BYTES));
        let (first, checks) = (content.first_blocks(), content.checks());
        Ok(Self { first, content, ahead, checks, repair })
    }

    fn is_source(&self, object: usize, sbn: u32, esi: u32) -> bool {
        esi < self.content.object(object).block(sbn).symbols
    }
}

/// Returns the number of blocks whose next symbols are needed at a time.
fn blocks_in_turn(plan: &SessionPlan) -> usize {
    let blocks = plan.objects().iter().map(|object| object.partition.blocks() as usize).sum();
    match plan.order() {
        Order::Spread { .. } => blocks,
        // Small files make windows of more blocks, but each of these blocks is read once or twice.
        Order::Window => blocks.min(WINDOW_BLOCKS),
    }
}

impl Source for FileSource {
    fn read_symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        if self.is_source(object, sbn, esi) {
            let Some(ahead) = &mut self.ahead else {
                return self.content.read_symbols(object, sbn, esi, symbol, &mut self.checks);
            };
            let block = self.first[object] + sbn as usize;
            let end = self.content.object(object).block(sbn).symbols;
            let checks = &mut self.checks;
            let read = |room: &mut [u8]| self.content.read_symbols(object, sbn, esi, room, checks);
            return ahead.symbol(block, esi, end, symbol, read);
        }
        match &mut self.repair {
            Repair::Encoders(encoders) => encoders.symbol(object, sbn, esi, symbol),
            Repair::Store(store) => store.symbol(object, sbn, esi, symbol),
            Repair::Nothing => Err(SourceError::Session(format!(
                "repair symbol {esi} was asked for, but nothing was encoded"
            ))),
        }
    }

    fn encoding_symbols(&self, object: usize, sbn: u32) -> Option<u32> {
        match &self.repair {
            Repair::Store(store) => Some(store.encoding_symbols(object, sbn)),
            Repair::Nothing | Repair::Encoders(_) => None,
        }
    }

    fn is_hole(&self, object: usize, sbn: u32) -> bool {
        self.content.is_hole(object, sbn)
    }

    fn is_ready(&mut self, object: usize, sbn: u32, esi: u32) -> Result<bool, SourceError> {
        let is_source = self.is_source(object, sbn, esi);
        match &mut self.repair {
            Repair::Store(store) if !is_source => store.is_ready(object, sbn),
            Repair::Encoders(encoders) if !is_source => encoders.is_ready(object, sbn),
            _ => Ok(true),
        }
    }
}

/// Returns the pause in which the levels of a new session may rise before encoders take the processors: a
/// quarter of the content's time at 1 Gbit/s. The source symbols are sent first.
fn pause(plan: &SessionPlan) -> Duration {
    let symbol_bytes = plan.objects().first().map_or(0, |object| object.partition.symbol_size());
    Duration::from_nanos(2 * plan.symbols() * u64::from(symbol_bytes)).min(PAUSE_MAX)
}
