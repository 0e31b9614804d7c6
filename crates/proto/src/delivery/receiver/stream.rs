//! Parts of a stream: order, missing parts, end.

use headwater_wire::fdt::File;

use super::catalogue::{FileOutcome, Refusal};
use super::{DeliveryReceiver, ReceiverEvent};
use crate::control::ReceiverControl;
use crate::delivery::name::RelativePath;
use crate::delivery::plan::StreamPart;
use crate::delivery::store::{FileIndex, Store};

/// Stream of a session, as far as its parts were announced.
#[derive(Debug)]
pub(super) struct AnnouncedStream {
    name: RelativePath,
    /// End of the last part that was announced, in bytes.
    next: u64,
    /// The part that ends the stream.
    last: Option<FileIndex>,
    /// Bytes of missing parts.
    missed: u64,
}

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    /// Whether the session has a stream whose end is not announced.
    pub(super) fn awaits_parts(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.last.is_none())
    }

    /// Returns the part that ends the stream, once announced.
    pub(super) fn last_part(&self) -> Option<FileIndex> {
        self.stream.as_ref()?.last
    }

    /// Reports the end of a stream whose last part is in place.
    pub(super) fn report_stream(&mut self, file: FileIndex, outcome: FileOutcome) {
        if let Some(AnnouncedStream { name, next, missed, .. }) =
            self.stream.as_ref().filter(|stream| stream.last == Some(file) && outcome.is_done())
        {
            let (stream, bytes, missed) = (name.clone(), *next, *missed);
            self.front.event(ReceiverEvent::StreamCompleted { stream, bytes, missed });
        }
    }

    /// Checks that a new part continues the stream, and reports the bytes between.
    pub(super) fn continue_stream(&mut self, file: FileIndex) -> Result<(), Refusal> {
        let state = &self.catalogue.files[file.0];
        let bytes = state.spec.bytes;
        let Some(StreamPart { stream: name, offset, end }) = &state.part else { return Ok(()) };
        let stream = self.stream.get_or_insert_with(|| AnnouncedStream {
            name: name.clone(),
            next: 0,
            last: None,
            missed: 0,
        });
        let next = stream.next;
        if stream.name != *name || stream.last.is_some() || *offset < next || (end.is_some() && bytes > 0) {
            return Err(Refusal::Part);
        }
        // `FdtError` has refused parts that end beyond 2^64.
        (stream.next, stream.last) = (offset.saturating_add(bytes), end.map(|_| file));
        if *offset > next {
            let (name, missed) = (name.clone(), offset - next);
            self.report_missed(name, next, missed);
        }
        Ok(())
    }

    /// Gives up the parts that lie before the first part of an instance: the sender has released them.
    pub(super) fn drop_released_parts(&mut self, entries: &[File]) {
        let parts = entries.iter().filter_map(|entry| entry.headwater.stream.as_ref());
        let Some(first) = parts.map(|part| part.offset).min() else { return };
        let open = (self.first_open_part..self.catalogue.files.len()).map(FileIndex);
        let open: Vec<_> = open.filter(|file| self.catalogue.is_open(*file)).collect();
        self.first_open_part = open.first().map_or(self.catalogue.files.len(), |file| file.0);
        for file in open {
            let state = &self.catalogue.files[file.0];
            let (bytes, is_whole) = (state.spec.bytes, state.left == 0);
            match state.part.clone() {
                Some(StreamPart { stream, offset, .. }) if offset < first && !is_whole => {
                    self.end_file(file, FileOutcome::Refused);
                    self.report_missed(stream, offset, bytes);
                }
                _ => {}
            }
        }
    }

    fn report_missed(&mut self, stream: RelativePath, offset: u64, bytes: u64) {
        self.refused += 1;
        if let Some(state) = &mut self.stream {
            state.missed = state.missed.saturating_add(bytes);
        }
        self.front.event(ReceiverEvent::PartMissed { stream, offset, bytes });
    }
}
