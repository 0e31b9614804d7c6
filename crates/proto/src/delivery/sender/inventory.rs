//! Progress of hashing the content: digests of blocks, and withdrawn files.

use core::ops::Range;

use crate::delivery::digest::{Digest, file_digest};
use crate::delivery::plan::SessionPlan;

/// Known digests, in the order of each object's blocks, and withdrawn files.
///
/// Memory: 32 bytes for each block of the files with missing digests, some 80 for each object and file.
#[derive(Debug)]
pub(super) struct Inventory {
    objects: Vec<ObjectDigests>,
    files: Vec<FileDigests>,
    /// Number of files that are not withdrawn.
    live: usize,
}

#[derive(Debug)]
struct ObjectDigests {
    file: usize,
    blocks: usize,
    known: Vec<Digest>,
}

#[derive(Debug)]
struct FileDigests {
    objects: Range<usize>,
    is_withdrawn: bool,
    /// Number of blocks without a known digest.
    missing: usize,
}

impl Inventory {
    /// Creates the inventory. `digests` holds, for each object, the digests of the first blocks.
    pub(super) fn new(plan: &SessionPlan, digests: &[Vec<Digest>]) -> Self {
        let object = |(object, known): (&crate::delivery::PlannedObject, &Vec<Digest>)| ObjectDigests {
            file: object.file,
            blocks: object.partition.blocks() as usize,
            known: known.clone(),
        };
        let objects: Vec<_> = plan.objects().iter().zip(digests).map(object).collect();
        let file = |range: Range<usize>| FileDigests {
            missing: objects[range.clone()].iter().map(|object| object.blocks - object.known.len()).sum(),
            objects: range,
            is_withdrawn: false,
        };
        let files: Vec<_> = plan.file_objects().into_iter().map(file).collect();
        let mut inventory = Self { live: files.len(), objects, files };
        for file in 0..inventory.files.len() {
            inventory.forget_if_whole(file);
        }
        inventory
    }

    /// Returns the objects of a file.
    pub(super) fn objects(&self, file: usize) -> Range<usize> {
        self.files[file].objects.clone()
    }

    /// Returns the objects of the file to which an object belongs.
    pub(super) fn objects_beside(&self, object: usize) -> Range<usize> {
        self.objects(self.objects[object].file)
    }

    /// Whether the file of an object is withdrawn.
    pub(super) fn is_withdrawn(&self, object: usize) -> bool {
        self.files[self.objects[object].file].is_withdrawn
    }

    /// Adds the digests of an object's next blocks. Returns the digest of the file once all digests are
    /// known.
    ///
    /// # Panics
    /// When the object has fewer blocks.
    pub(super) fn add(&mut self, object: usize, digests: &[Digest]) -> Option<Digest> {
        let ObjectDigests { file, blocks, known } = &mut self.objects[object];
        known.extend_from_slice(digests);
        assert!(known.len() <= *blocks, "no more digests than blocks");
        let file = *file;
        self.files[file].missing -= digests.len();
        let range = self.objects(file);
        let is_whole = self.files[file].missing == 0;
        let digest =
            is_whole.then(|| file_digest(self.objects[range].iter().flat_map(|object| &object.known)));
        self.forget_if_whole(file);
        digest
    }

    /// Withdraws a file. Returns false if the file was withdrawn before.
    pub(super) fn withdraw(&mut self, file: usize) -> bool {
        let state = &mut self.files[file];
        let is_news = !core::mem::replace(&mut state.is_withdrawn, true);
        self.live -= usize::from(is_news);
        is_news
    }

    /// Whether no file is left.
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Whether the description of every file is final.
    pub(super) fn is_complete(&self) -> bool {
        self.files.iter().all(|file| file.is_withdrawn || file.missing == 0)
    }

    /// Releases the digests of a file once all are known: the FDT holds the digests then.
    fn forget_if_whole(&mut self, file: usize) {
        if self.files[file].missing == 0 {
            let range = self.objects(file);
            self.objects[range].iter_mut().for_each(|object| object.known = Vec::new());
        }
    }
}
