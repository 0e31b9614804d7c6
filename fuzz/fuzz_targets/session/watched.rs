//! A store that holds a receiver to the contract of `Store`, and reports when it is told to.

use std::collections::{BTreeMap, BTreeSet};

use headwater_proto::delivery::{
    BlockJob, BlockVerdict, FileIndex, FileSpec, HeldBlock, HeldFile, MemoryStore, ObjectIndex, ObjectSpec,
    Store, StoreError, StoreReport, StoredRepair, repair_slots,
};

/// Most bytes of files taken.
const BYTES_MAX: u64 = 64 << 10;

/// A bounded store in memory behind assertions.
#[derive(Debug)]
pub struct Watched {
    store: MemoryStore,
    /// Length of the files taken.
    files: BTreeMap<usize, u64>,
    objects: BTreeMap<usize, ObjectSpec>,
    /// Blocks being finished, with the number of slots in use.
    finishing: BTreeMap<(usize, u32), u32>,
    /// Blocks done since they were last written.
    done: BTreeSet<(usize, u32)>,
    finished: BTreeSet<usize>,
    /// Whether reports are held back.
    pub is_slow: bool,
}

impl Watched {
    pub fn new() -> Self {
        Self {
            store: MemoryStore::new(BYTES_MAX),
            files: BTreeMap::new(),
            objects: BTreeMap::new(),
            finishing: BTreeMap::new(),
            done: BTreeSet::new(),
            finished: BTreeSet::new(),
            is_slow: false,
        }
    }

    /// Name and bytes of the files that were finished.
    pub fn finished(&self) -> impl Iterator<Item = (&FileSpec, &[u8])> {
        self.store.finished()
    }

    fn check_open(&self, object: ObjectIndex) -> &ObjectSpec {
        let spec = self.objects.get(&object.0).expect("an object that was created");
        assert!(!self.finished.contains(&spec.file.0), "nothing is written to a file that was finished");
        spec
    }
}

impl Store for Watched {
    fn create_file(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError> {
        let held = self.store.create_file(file, spec)?;
        assert_eq!(self.files.insert(file.0, spec.bytes), None);
        Ok(held)
    }

    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) -> Vec<HeldBlock> {
        let bytes = self.files[&spec.file.0];
        assert!(spec.offset.checked_add(spec.partition.transfer_length()).is_some_and(|end| end <= bytes));
        assert!(self.objects.insert(object.0, spec.clone()).is_none());
        self.store.create_object(object, spec)
    }

    fn write_source(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        let spec = self.check_open(object);
        let block = spec.partition.block(sbn).expect("a block of the object");
        assert!(esi < block.symbols, "a source symbol of the block");
        assert!(symbol.len() <= usize::from(spec.partition.symbol_size()));
        assert!(!self.finishing.contains_key(&(object.0, sbn)), "a block at work is the store's own");
        self.done.remove(&(object.0, sbn));
        self.store.write_source(object, sbn, esi, symbol)
    }

    fn write_repair(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        repair: StoredRepair,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        let spec = self.check_open(object);
        assert_eq!(symbol.len(), usize::from(spec.partition.symbol_size()), "repair symbols are whole");
        let block = spec.partition.block(sbn).expect("a block of the object");
        assert!(repair.slot < repair_slots(block.symbols) && repair.esi >= block.symbols);
        let taken = self.finishing.get(&(object.0, sbn)).is_some_and(|slots| repair.slot < *slots);
        assert!(!taken, "the slots of a block at work are not written");
        self.store.write_repair(object, sbn, repair, symbol)
    }

    fn finish_block(&mut self, job: BlockJob) {
        let spec = self.check_open(job.object);
        let block = spec.partition.block(job.sbn).expect("a block of the object");
        assert!(job.missing.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(job.missing.iter().all(|esi| *esi < block.symbols));
        assert!(job.repairs as usize >= job.missing.len());
        let running = self.finishing.insert((job.object.0, job.sbn), job.repairs);
        assert_eq!(running, None, "one job for each block");
        self.store.finish_block(job);
    }

    fn judge_block(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        verdict: BlockVerdict,
    ) -> Result<(), StoreError> {
        assert!(self.done.contains(&(object.0, sbn)), "only what was done is judged");
        self.store.judge_block(object, sbn, verdict)
    }

    fn discard_file(&mut self, file: FileIndex) -> Result<(), StoreError> {
        assert!(self.files.contains_key(&file.0), "only what was taken is given up");
        self.store.discard_file(file)
    }

    fn finish_file(&mut self, file: FileIndex) {
        assert!(self.finished.insert(file.0), "a file is finished once");
        for (object, spec) in self.objects.iter().filter(|(_, spec)| spec.file == file) {
            assert!((0..spec.partition.blocks()).all(|sbn| self.done.contains(&(*object, sbn))));
        }
        self.store.finish_file(file);
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        if self.is_slow {
            return None;
        }
        let report = self.store.poll_report()?;
        match &report {
            StoreReport::BlockDone { object, sbn, .. } => {
                assert!(self.finishing.remove(&(object.0, *sbn)).is_some());
                self.done.insert((object.0, *sbn));
            }
            StoreReport::BlockNeedsMore { object, sbn, .. } => {
                assert!(self.finishing.remove(&(object.0, *sbn)).is_some());
            }
            _ => {}
        }
        Some(report)
    }
}
