//! Content on disk, as a receiver's machine sees it: symbols straight to their places, blocks finished on worker
//! threads, whole files under their final names.
//!
//! While a file is under way its content is in a working folder inside the folder that it will end in: one file for
//! its content, at full length but sparse, and one for the repair symbols of each symbol size. Disk space: the content,
//! and the repair symbols of the blocks under way, at most as much again.

mod finish;
mod folder;
mod place;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use headwater_proto::delivery::{
    BlockJob, FileIndex, FileSpec, ObjectIndex, ObjectSpec, RelativePath, Store, StoreError, StoreReport,
};

use self::finish::Job;
use self::folder::{Folder, no_space};
use self::place::{FilePlace, ObjectPlace, Places};
use self::work::Workers;
use crate::net::Waker;

/// Receives into a folder. What is not finished when it is dropped is removed.
#[derive(Debug)]
pub(crate) struct DiskStore {
    // Dropped first: the threads must be gone before the working folder is.
    workers: Workers,
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
        Ok(Self {
            workers: Workers::start(Arc::clone(&places), waker)?,
            places,
            files: Vec::new(),
            objects: Vec::new(),
            names: Names::default(),
            spare: BTreeMap::new(),
            announced_bytes: 0,
            written_bytes: 0,
            out_of_space: None,
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
        self.places.write(&object.file, object.offset(&block) + start, &symbol[..length])
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
    fn create_file(&mut self, file: FileIndex, spec: &FileSpec) -> Result<(), StoreError> {
        let admitted = self.admit(spec);
        self.files.resize_with(file.0 + 1, || None);
        admitted?;
        self.files[file.0] = Some(Arc::new(FilePlace { index: file, spec: spec.clone() }));
        Ok(())
    }

    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) {
        let file = self.files.get(spec.file.0).and_then(Option::as_ref);
        let file = Arc::clone(file.expect("the receiver announces objects of files that were taken"));
        // Objects of refused files are never announced.
        self.objects.resize_with(object.0 + 1, || None);
        self.objects[object.0] = Some(Arc::new(ObjectPlace { index: object, spec: spec.clone(), file }));
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

    fn write_repair(&mut self, object: ObjectIndex, slot: u32, symbol: &[u8]) -> Result<(), StoreError> {
        let size = self.object(object).spec.partition.symbol_size();
        self.places.write_repair(slot, symbol, size)
    }

    fn finish_block(&mut self, job: BlockJob) {
        let place = self.object(job.object);
        self.written_bytes += (job.missing.len() * place.symbol_bytes()) as u64;
        self.spare.insert((place.index.0, job.sbn), Vec::new());
        self.workers.push(Job::Block(place, job));
    }

    fn finish_file(&mut self, file: FileIndex) {
        let known = self.files.get(file.0).and_then(Option::as_ref);
        self.workers.push(Job::File(Arc::clone(known.expect("the receiver finishes files that were taken"))));
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        let report = self.workers.poll()?;
        Some(self.settle_spare(report))
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
