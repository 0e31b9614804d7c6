//! Room on disk for the files of a session.

use headwater_proto::delivery::{FileSpec, StoreError};

use super::DiskStore;
use super::compare::Comparison;
use super::folder::no_space;

/// Room on disk for blocks in decoding, in bytes: the longest blocks of two threads. All received symbols of
/// a block may be repair symbols, freed only after the content is written beside the repair symbols.
const DECODING_ROOM_BYTES: u64 = 64 << 20;

impl DiskStore {
    /// Returns the announced bytes with `room` bytes more for a file.
    ///
    /// # Errors
    /// If the disk lacks the space.
    pub(super) fn check_room(&mut self, spec: &FileSpec, room: u64) -> Result<u64, StoreError> {
        let announced = self.announced_bytes.saturating_add(room);
        let needed = announced.saturating_add(announced.min(DECODING_ROOM_BYTES));
        let free = self.places.folder.free_bytes()?;
        if needed > free {
            // Content already on disk needs no room. The check runs only where the result matters, as there
            // may be thousands of files.
            let taken = self.files.iter().flatten().map(|file| &file.spec);
            let held = taken.chain([spec]).map(|spec| self.places.held_bytes(spec)).sum();
            let needed = needed.saturating_sub(held);
            if needed > free {
                let error = no_space(&self.places.folder, &spec.path, needed, free);
                self.out_of_space.get_or_insert_with(|| error.clone());
                return Err(error);
            }
        }
        Ok(announced)
    }

    /// Takes the announced bytes as counted by [`DiskStore::check_room`].
    pub(super) fn take_room(&mut self, announced: u64) {
        self.announced_bytes = announced;
        self.gather.set_content(announced);
        self.writer.set_bytes_max(self.gather.queue_bytes_max());
    }

    /// Counts the room of a sparse file, whose holes show in the digests of its blocks.
    ///
    /// # Errors
    /// If the disk lacks the space.
    pub(super) fn admit_sparse(&mut self, comparison: &mut Comparison) -> Result<(), StoreError> {
        let place = std::sync::Arc::clone(&comparison.file);
        if place.spec.is_sparse && self.places.target.is_none() {
            let content = comparison.content_bytes();
            let room = content.saturating_add(content / 20);
            let announced = self.check_room(&place.spec, room)?;
            self.sparse_room.insert(place.index, room);
            self.take_room(announced);
        }
        Ok(())
    }

    /// Returns the bytes of the folder's disk that a file takes while being received: a twentieth more than
    /// its length, for the journal and the repair symbols of a loss of 3 %. At a higher loss the disk may
    /// prove full, which does no harm. The room of a sparse file is known with its holes.
    pub(super) fn room_for(&self, spec: &FileSpec, is_bundle: bool) -> u64 {
        if spec.is_sparse && self.places.target.is_none() {
            return 0;
        }
        let content = if self.places.device().is_some() { 0 } else { spec.bytes };
        // Decoded content is written beside the encoded content.
        let decoded = spec.encoding.map_or(0, |encoding| encoding.bytes);
        // The members of a bundle are written beside the bundle.
        let members = if is_bundle { spec.content_bytes() } else { 0 };
        content.saturating_add(decoded).saturating_add(members).saturating_add(spec.bytes / 20)
    }
}
