//! The symbols of files on disk, as a sender's machine asks for them.

use std::fs::File;
use std::sync::Arc;

use headwater_proto::delivery::{PlannedObject, Source, SourceError};

use super::budget::{Budget, store_layout};
use super::content::Content;
use super::encoders::{Announced, Encoders};
use super::hashing::Digests;
use super::repair_store::RepairStore;

/// Source symbols read between two looks at whether the file they come from has changed. Blocks are checked whole when
/// they are encoded, and receivers check everything: this only finds out sooner.
const READS_PER_CHECK: u32 = 256;

/// Reads source symbols straight from the files, and takes repair symbols from blocks encoded in the background.
#[derive(Debug)]
pub(super) struct FileSource {
    content: Arc<Content>,
    repair: Repair,
    reads: u32,
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
    /// The symbols of `content`, which is that of the planned `objects` and had these digests when it was announced.
    /// With a `store`, an empty file, repair symbols go there; else blocks are encoded as the budget says.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn new(
        content: Arc<Content>,
        objects: &[PlannedObject],
        digests: &Arc<Digests>,
        budget: &Budget,
        store: Option<File>,
    ) -> Result<Self, SourceError> {
        let announced = Announced { content: Arc::clone(&content), digests: Arc::clone(digests) };
        let repair = match store {
            Some(file) => {
                let layout = store_layout(objects, budget.gather);
                Repair::Store(RepairStore::start(&announced, layout, file, budget.threads)?)
            }
            None if budget.threads > 0 => Repair::Encoders(Encoders::start(&announced, budget.threads)?),
            None => Repair::Nothing,
        };
        Ok(Self { content, repair, reads: 0 })
    }

    fn is_source(&self, object: usize, sbn: u32, esi: u32) -> bool {
        esi < self.content.object(object).block(sbn).symbols
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
            self.reads = (self.reads + 1) % READS_PER_CHECK;
            return self.content.read_symbol(object, sbn, esi, symbol, self.reads == 0);
        }
        match &self.repair {
            Repair::Encoders(encoders) => encoders.symbol(object, sbn, esi, symbol),
            Repair::Store(store) => store.symbol(object, sbn, esi, symbol),
            Repair::Nothing => {
                Err(SourceError(format!("repair symbol {esi} was asked for, but nothing was encoded")))
            }
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
            Repair::Store(store) if !is_source => store.is_ready(object, sbn),
            _ => Ok(true),
        }
    }
}
