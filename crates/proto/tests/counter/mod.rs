//! A store that keeps nothing, whatever the length of the content.

use headwater_proto::delivery::{
    BlockJob, BlockVerdict, FileIndex, FileSpec, HeldBlock, HeldFile, ObjectIndex, ObjectSpec, Store,
    StoreError, StoreReport, StoredRepair,
};

/// Counts symbols and forgets them; no block is ever finished.
#[derive(Debug, Default)]
pub struct Counter {
    pub symbols: u64,
}

impl Store for Counter {
    fn create_file(&mut self, _: FileIndex, _: &FileSpec) -> Result<HeldFile, StoreError> {
        Ok(HeldFile::default())
    }

    fn create_object(&mut self, _: ObjectIndex, _: &ObjectSpec) -> Vec<HeldBlock> {
        Vec::new()
    }

    fn write_source(&mut self, _: ObjectIndex, _: u32, _: u32, _: &[u8]) -> Result<(), StoreError> {
        self.symbols += 1;
        Ok(())
    }

    fn write_repair(&mut self, _: ObjectIndex, _: u32, _: StoredRepair, _: &[u8]) -> Result<(), StoreError> {
        self.symbols += 1;
        Ok(())
    }

    fn finish_block(&mut self, _: BlockJob) {}

    fn judge_block(&mut self, _: ObjectIndex, _: u32, _: BlockVerdict) -> Result<(), StoreError> {
        Ok(())
    }

    fn finish_file(&mut self, _: FileIndex) {}

    fn discard_file(&mut self, _: FileIndex) -> Result<(), StoreError> {
        Ok(())
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        None
    }
}
