//! The symbols of files on disk, as a sender's machine asks for them.

use std::fs::File;
use std::sync::Arc;

use headwater_fec::Order;
use headwater_proto::delivery::{SessionPlan, Source, SourceError};

use super::budget::{Budget, store_layout};
use super::content::Content;
use super::encoders::Encoders;
use super::repair_store::{ReadAhead, RepairStore};

/// Most blocks of a window where they have 1002 symbols each: the last one may reach beyond.
const WINDOW_BLOCKS: usize = 256 + 1;
/// Most memory for source symbols that are read before they are sent.
const READ_AHEAD_BYTES: usize = 16 << 20;

/// Reads source symbols from the files, and takes repair symbols from blocks encoded in the background.
#[derive(Debug)]
pub(super) struct FileSource {
    content: Arc<Content>,
    /// Index of each object's first block among all.
    first: Vec<usize>,
    /// None where a block's symbols are not sent in order: nothing of what stands behind them is sent soon.
    ahead: Option<ReadAhead>,
    repair: Repair,
}

/// Where repair symbols come from.
#[derive(Debug)]
enum Repair {
    /// None will be asked for.
    Nothing,
    Encoders(Encoders),
    Store(RepairStore),
}

impl FileSource {
    /// The symbols of `content`, which is that of the `plan`. With a `store`, an empty file, repair symbols
    /// go there; else blocks are encoded as the budget says. A `layered` session sends from several places of
    /// each block at a time.
    ///
    /// # Errors
    /// When no thread can be started.
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
                Repair::Store(RepairStore::start(
                    &content,
                    layout,
                    file,
                    turns,
                    budget.threads,
                    budget.is_lazy,
                )?)
            }
            None if budget.threads > 0 => {
                Repair::Encoders(Encoders::start(&content, plan.order(), budget.threads, budget.is_lazy)?)
            }
            None => Repair::Nothing,
        };
        let symbol_bytes = plan.objects().first().map_or(0, |object| object.partition.symbol_size().into());
        // Without repair symbols a session is sent in order, whatever its code.
        let is_random = budget.threads > 0
            && plan.objects().first().is_some_and(|object| object.codec.sending_seed().is_some());
        let ahead = (!is_random && !layered)
            .then(|| ReadAhead::new(symbol_bytes, blocks_in_turn(plan), READ_AHEAD_BYTES));
        Ok(Self { first: content.first_blocks(), content, ahead, repair })
    }

    fn is_source(&self, object: usize, sbn: u32, esi: u32) -> bool {
        esi < self.content.object(object).block(sbn).symbols
    }
}

/// Blocks of which the next symbols are wanted at a time.
fn blocks_in_turn(plan: &SessionPlan) -> usize {
    let blocks = plan.objects().iter().map(|object| object.partition.blocks() as usize).sum();
    match plan.order() {
        Order::Spread { .. } => blocks,
        // Small files make windows of more blocks, but each of those is read once or twice.
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
                return self.content.read_symbols(object, sbn, esi, symbol);
            };
            let block = self.first[object] + sbn as usize;
            let end = self.content.object(object).block(sbn).symbols;
            let read = |room: &mut [u8]| self.content.read_symbols(object, sbn, esi, room);
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

    fn is_ready(&mut self, object: usize, sbn: u32, esi: u32) -> Result<bool, SourceError> {
        let is_source = self.is_source(object, sbn, esi);
        match &mut self.repair {
            Repair::Store(store) if !is_source => store.is_ready(object, sbn, esi),
            Repair::Encoders(encoders) if !is_source => encoders.is_ready(object, sbn),
            _ => Ok(true),
        }
    }
}
