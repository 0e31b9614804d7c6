//! Joins the parts of a stream, which have their places in one working file.

use std::sync::Arc;

use headwater_proto::delivery::{Digest, FileIndex, FileSpec, StreamPart, file_digest};

use super::DiskStore;
use super::finish::Job;
use super::place::FilePlace;
use super::writer::Write;

/// Stream of a session. Memory: 40 bytes a part.
#[derive(Debug, Default)]
pub(super) struct JoinedStream {
    /// End of the last part, in bytes.
    next: u64,
    has_holes: bool,
    parts: Vec<FileIndex>,
    digests: Vec<Digest>,
    /// Number of parts in progress, without the last.
    open: usize,
    /// The part that ends the stream, once the receiver has finished it.
    last: Option<Arc<FilePlace>>,
}

impl JoinedStream {
    /// Returns the last part if nothing else is in progress, and whether the stream is whole.
    fn take_ended(&mut self) -> Option<(Arc<FilePlace>, bool)> {
        let last = self.last.take_if(|_| self.open == 0)?;
        let end = last.part.as_ref().and_then(|part| part.end);
        let is_whole = !self.has_holes && end == Some(file_digest(&self.digests));
        Some((last, is_whole))
    }
}

impl DiskStore {
    /// Adds a part, which the receiver announces in order.
    pub(super) fn join_part(&mut self, file: FileIndex, spec: &FileSpec, part: &StreamPart) {
        let stream = self.stream.get_or_insert_default();
        stream.has_holes |= part.offset != stream.next;
        stream.next = part.offset.saturating_add(spec.bytes);
        stream.parts.push(file);
        if part.end.is_none() {
            stream.digests.push(spec.digest.unwrap_or_default());
            stream.open += 1;
        }
    }

    /// Finishes the last part once all others have ended.
    pub(super) fn finish_last_part(&mut self, last: Arc<FilePlace>) {
        if let Some(stream) = &mut self.stream {
            stream.last = Some(last);
        }
        self.finish_stream();
    }

    /// Notes that a part ended: in place, or given up.
    pub(super) fn part_ended(&mut self, part: &StreamPart, is_placed: bool) {
        let Some(stream) = &mut self.stream else { return };
        if part.end.is_none() {
            stream.open = stream.open.saturating_sub(1);
            stream.has_holes |= !is_placed;
        } else if is_placed {
            // The stream has its name: nothing of the parts can be resumed, or needs to be.
            let files = stream.parts.iter().filter_map(|file| self.files[file.0].as_ref());
            files.for_each(|place| self.ledger.dropped(place));
        }
        self.finish_stream();
    }

    fn finish_stream(&mut self) {
        if let Some((last, is_whole)) = self.stream.as_mut().and_then(JoinedStream::take_ended) {
            self.writer.push(Write::Job(Job::Stream(last, is_whole)));
        }
    }
}
