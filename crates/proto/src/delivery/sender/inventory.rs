//! Progress of hashing the content: digests of blocks, and withdrawn files.

use core::ops::Range;

use headwater_fec::Order;

use crate::control::Departure;
use crate::delivery::carousel::{Carousel, CarouselBlock, Hierarchy, Place, Start, Visit};
use crate::delivery::object::{Digest, file_digest};
use crate::delivery::plan::SessionPlan;
use crate::layering::Layering;
use crate::rng::Stream;

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

/// Order of sending.
#[derive(Debug)]
pub(super) enum Content {
    /// For receivers that receive every packet.
    Flat(Carousel),
    /// For receivers of any rate.
    Layered(Box<Hierarchy>),
}

impl Content {
    /// Creates a random order for content sent on request, of which each receiver gets a part.
    pub(super) fn mixed(blocks: Vec<CarouselBlock>, draw: Stream, start: Start) -> Self {
        Self::Flat(Carousel::mixed(blocks, draw, start))
    }

    pub(super) fn new(blocks: Vec<CarouselBlock>, is_layered: bool, order: Order, start: Start) -> Self {
        if is_layered {
            Self::Layered(Box::new(Hierarchy::starting(blocks, start)))
        } else {
            Self::Flat(Carousel::starting(blocks, order, start))
        }
    }

    /// Continues at a place that an earlier session of the same content is unlikely to have sent:
    /// [`Carousel::skip`].
    pub(super) fn skip(&mut self) {
        if let Self::Flat(carousel) = self {
            carousel.skip();
        }
    }

    /// Stops sending the blocks that `keeps` rejects. Returns the number of symbols of rejected blocks that
    /// counted towards passes.
    pub(super) fn retain(&mut self, keeps: impl Fn(u32) -> bool) -> u64 {
        match self {
            Self::Flat(carousel) => carousel.retain(keeps),
            Self::Layered(hierarchy) => {
                hierarchy.retain(keeps);
                // Passes are counted only if receivers receive every packet.
                0
            }
        }
    }

    /// Number of visits in a pass.
    pub(super) fn pass_symbols(&self) -> u64 {
        match self {
            Self::Flat(carousel) => carousel.pass_symbols(),
            Self::Layered(hierarchy) => hierarchy.pass_symbols(),
        }
    }

    pub(super) fn block(&self, block: u32) -> CarouselBlock {
        match self {
            Self::Flat(carousel) => carousel.block(block),
            Self::Layered(hierarchy) => hierarchy.block(block),
        }
    }

    /// Returns the place of a departure in the buffer, also for a departure without content: the schedule
    /// counts every packet.
    pub(super) fn turn(&mut self, layering: Option<&dyn Layering>, departure: &Departure) -> Option<Place> {
        match (self, layering) {
            (Self::Layered(hierarchy), Some(layering)) => {
                Some(hierarchy.place(layering, departure.level, departure.at))
            }
            _ => None,
        }
    }

    /// Whether the content of a departure may be omitted: its block has received more than its share.
    pub(super) fn can_spare(&mut self, turn: Option<Place>) -> bool {
        match (self, turn) {
            (Self::Layered(hierarchy), Some(place)) => hierarchy.can_spare(place),
            _ => true,
        }
    }

    /// Returns the content of a departure; `None` if there is no content.
    pub(super) fn next(&mut self, turn: Option<Place>) -> Option<Visit> {
        match (self, turn) {
            (Self::Flat(carousel), _) => carousel.next_visit(),
            (Self::Layered(hierarchy), Some(place)) => hierarchy.visit(place),
            (Self::Layered(_), None) => None,
        }
    }
}
