//! Content on disk, as a receiver's machine sees it: symbols straight to their places, blocks finished on worker
//! threads, whole files under their final names.
//!
//! While a file is under way it is in a working folder inside the folder that it will end in: one file for its content,
//! at full length but sparse, and one for its repair symbols. A journal tells what has come, so that a session that was
//! cut short goes on: whatever ends it, its working folder stays until all files are in place. Disk space: the content,
//! the repair symbols of the blocks under way, at most as much again, and 13 bytes of journal for each source symbol, 17
//! for each repair symbol received since it began.

mod change;
mod finish;
mod folder;
mod journal;
mod kept;
mod ledger;
mod place;
#[cfg(test)]
mod resume_tests;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_proto::delivery::{
    BlockJob, BlockVerdict, FileIndex, FileSpec, HeldBlock, HeldFile, ObjectIndex, ObjectSpec, RelativePath,
    Store, StoreError, StoreReport, StoredRepair,
};

use self::change::{Change, Stamp};
use self::finish::{Job, Outcome};
use self::folder::{Folder, no_space};
use self::ledger::Ledger;
use self::place::{FilePlace, ObjectPlace, Places};
use self::work::Workers;
use crate::net::Waker;

/// Receives into a folder. What is not finished when it is dropped is kept, if it can be resumed.
#[derive(Debug)]
pub(crate) struct DiskStore {
    workers: Workers,
    ledger: Ledger,
    places: Arc<Places>,
    /// By index; `None` for those refused.
    files: Vec<Option<Arc<FilePlace>>>,
    objects: Vec<Option<Arc<ObjectPlace>>>,
    names: Names,
    /// Symbols that came while their block was being finished, by object and block: at most 2 each.
    spare: BTreeMap<(usize, u32), Vec<Spare>>,
    /// Bytes of the files taken, and bytes written of them.
    announced_bytes: u64,
    written_bytes: u64,
    /// The first file refused for want of space.
    out_of_space: Option<StoreError>,
    /// Files taken that are not in place, nor given up.
    open_files: usize,
}

#[derive(Debug)]
struct Spare {
    esi: u32,
    symbol: Vec<u8>,
}

impl DiskStore {
    /// Opens the folder, made if need be. `waker` is used whenever a report is there.
    pub(crate) fn open(folder: &Path, waker: Waker) -> Result<Self, StoreError> {
        let places = Arc::new(Places::new(Folder::open(folder)?));
        let ledger = Ledger::open(Arc::clone(&places))?;
        Ok(Self {
            ledger,
            workers: Workers::start(Arc::clone(&places), waker)?,
            places,
            files: Vec::new(),
            objects: Vec::new(),
            names: Names::default(),
            spare: BTreeMap::new(),
            announced_bytes: 0,
            written_bytes: 0,
            out_of_space: None,
            open_files: 0,
        })
    }

    /// Whether work is under way or waits to be done.
    pub(crate) fn is_busy(&self) -> bool {
        self.workers.pending() > 0
    }

    /// Why the first file was refused for which there was no space.
    pub(crate) fn out_of_space(&self) -> Option<&StoreError> {
        self.out_of_space.as_ref()
    }

    /// Where what came is kept, if a receiver that starts now would go on with it.
    pub(crate) fn resumable(&self) -> Option<PathBuf> {
        self.ledger.is_resumable(self.open_files > 0).then(|| self.places.folder.work_path())
    }

    fn admit(&mut self, spec: &FileSpec) -> Result<(), StoreError> {
        self.names.check(&spec.path)?;
        self.places.folder.check_place(&spec.path)?;
        let announced = self.announced_bytes.saturating_add(spec.bytes);
        let needed = announced.saturating_sub(self.written_bytes);
        let free = self.places.folder.free_bytes()?;
        if needed > free {
            let error = no_space(&self.places.folder, &spec.path, needed, free);
            self.out_of_space.get_or_insert_with(|| error.clone());
            return Err(error);
        }
        self.announced_bytes = announced;
        self.names.take(&spec.path);
        self.open_files += 1;
        Ok(())
    }

    fn object(&self, object: ObjectIndex) -> Arc<ObjectPlace> {
        let known = self.objects.get(object.0).and_then(Option::as_ref);
        Arc::clone(known.expect("the receiver announces objects before it uses them"))
    }

    fn put_source(
        &mut self,
        object: &ObjectPlace,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        let block = object.block(sbn);
        let start = u64::from(esi) * object.symbol_bytes() as u64;
        let rest = block.bytes.saturating_sub(start);
        let length = usize::try_from(rest).map_or(symbol.len(), |rest| rest.min(symbol.len()));
        self.written_bytes += length as u64;
        self.places.write(&object.file, object.offset(&block) + start, &symbol[..length])?;
        self.note(object, symbol.len(), |object| Change::Source { object, sbn, esi })
    }

    /// Notes a symbol that was written.
    fn note(
        &mut self,
        object: &ObjectPlace,
        bytes: usize,
        change: impl FnOnce(u32) -> Change,
    ) -> Result<(), StoreError> {
        if let Some(sync) = self.ledger.wrote(object, bytes, change)? {
            self.workers.push(sync);
        }
        Ok(())
    }

    fn file(&self, file: FileIndex) -> Arc<FilePlace> {
        let known = self.files.get(file.0).and_then(Option::as_ref);
        Arc::clone(known.expect("the receiver names files that were taken only"))
    }

    fn placed(&mut self, file: FileIndex, stamp: Stamp) -> StoreReport {
        self.open_files = self.open_files.saturating_sub(1);
        match self.ledger.placed(&self.file(file), stamp) {
            Ok(()) => StoreReport::FileDone(file),
            Err(error) => StoreReport::Failed(error),
        }
    }

    /// What came for a block while it was being finished: needed if it was in vain, too late if not.
    fn settle_spare(&mut self, report: StoreReport) -> StoreReport {
        match report {
            StoreReport::BlockNeedsMore { object, sbn } => {
                let spare = self.spare.remove(&(object.0, sbn)).unwrap_or_default();
                let place = self.object(object);
                for Spare { esi, symbol } in spare {
                    if let Err(error) = self.put_source(&place, sbn, esi, &symbol) {
                        return StoreReport::Failed(error);
                    }
                }
            }
            StoreReport::BlockDone { object, sbn, .. } => {
                self.spare.remove(&(object.0, sbn));
            }
            _ => {}
        }
        report
    }
}

impl Store for DiskStore {
    fn create_file(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError> {
        self.files.resize_with(file.0 + 1, || None);
        // What is there of it already needs no space.
        let held_bytes = self.places.held_bytes(spec);
        self.written_bytes += held_bytes;
        if let Err(error) = self.admit(spec) {
            self.written_bytes -= held_bytes;
            return Err(error);
        }
        let (number, held) = self.ledger.take_file(spec)?;
        if held.is_whole {
            self.open_files -= 1;
        }
        self.files[file.0] = Some(Arc::new(FilePlace { index: file, spec: spec.clone(), number }));
        Ok(held)
    }

    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) -> Vec<HeldBlock> {
        let file = self.file(spec.file);
        let taken =
            file.number.zip(spec.identity).map(|(file, identity)| self.ledger.take_object(file, identity));
        let (number, held) = taken.map_or((None, Vec::new()), |(number, held)| (Some(number), held));
        // Objects of refused files are never announced.
        self.objects.resize_with(object.0 + 1, || None);
        self.objects[object.0] =
            Some(Arc::new(ObjectPlace { index: object, spec: spec.clone(), file, number }));
        held
    }

    fn write_source(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        // The block's thread may have written this place and hashed what it wrote: keep its hands off.
        if let Some(spare) = self.spare.get_mut(&(object.0, sbn)) {
            spare.push(Spare { esi, symbol: symbol.to_vec() });
            return Ok(());
        }
        let place = self.object(object);
        self.put_source(&place, sbn, esi, symbol)
    }

    fn write_repair(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        repair: StoredRepair,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        let place = self.object(object);
        self.places.write_repair(&place.file, repair.slot, symbol)?;
        self.note(&place, symbol.len(), |object| Change::Repair { object, sbn, repair })
    }

    fn finish_block(&mut self, job: BlockJob) {
        let place = self.object(job.object);
        self.written_bytes += (job.missing.len() * place.symbol_bytes()) as u64;
        self.spare.insert((place.index.0, job.sbn), Vec::new());
        self.workers.push(Job::Block(place, job));
    }

    fn judge_block(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        verdict: BlockVerdict,
    ) -> Result<(), StoreError> {
        self.ledger.judged(&self.object(object), sbn, verdict)
    }

    fn finish_file(&mut self, file: FileIndex) {
        self.workers.push(Job::File(self.file(file)));
    }

    fn discard_file(&mut self, file: FileIndex) -> Result<(), StoreError> {
        self.open_files = self.open_files.saturating_sub(1);
        let place = self.file(file);
        self.ledger.dropped(&place)?;
        self.places.discard(&place)
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        loop {
            match self.workers.poll()? {
                Outcome::Report(report) => return Some(self.settle_spare(report)),
                Outcome::Placed(file, stamp) => return Some(self.placed(file, stamp)),
                Outcome::Synced => self.ledger.synced(),
            }
        }
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        // Nothing may write to the working folder when it is left.
        self.workers.stop();
        self.ledger.close(self.open_files > 0);
    }
}

/// Names that the files of a session have taken.
#[derive(Debug, Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// No name twice, and none that is a file here and a folder there: one would be in the way of the other.
    fn check(&self, path: &RelativePath) -> Result<(), StoreError> {
        let path = path.as_str();
        let folders = || path.match_indices('/').map(|(slash, _)| &path[..slash]);
        let below = format!("{path}/");
        let is_folder = self.0.range(below.clone()..).next().is_some_and(|next| next.starts_with(&below));
        if is_folder || self.0.contains(path) || folders().any(|folder| self.0.contains(folder)) {
            return Err(StoreError(format!("another file of the session stands in the way of '{path}'")));
        }
        Ok(())
    }

    fn take(&mut self, path: &RelativePath) {
        self.0.insert(path.as_str().to_owned());
    }
}
