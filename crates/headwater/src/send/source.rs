//! The symbols of files on disk, as a sender's machine asks for them.

use std::sync::Arc;

use headwater_proto::delivery::{Source, SourceError};

use super::content::Content;
use super::encoders::Encoders;
use super::hashing::Digests;

/// Source symbols read between two looks at whether the file they come from has changed. Blocks are checked whole when
/// they are encoded, and receivers check everything: this only finds out sooner.
const READS_PER_CHECK: u32 = 256;

/// Reads source symbols straight from the files, and takes repair symbols from blocks encoded in the background.
#[derive(Debug)]
pub(super) struct FileSource {
    content: Arc<Content>,
    /// `None` when no repair symbol will be asked for.
    encoders: Option<Encoders>,
    reads: u32,
}

impl FileSource {
    /// The symbols of `content`, which had these digests when it was announced. Without `repair` no block is encoded.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn new(
        content: Arc<Content>,
        digests: &Arc<Digests>,
        repair: bool,
    ) -> Result<Self, SourceError> {
        let encoders =
            if repair { Some(Encoders::start(Arc::clone(&content), Arc::clone(digests))?) } else { None };
        Ok(Self { content, encoders, reads: 0 })
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
        if esi < self.content.object(object).block(sbn).symbols {
            self.reads = (self.reads + 1) % READS_PER_CHECK;
            return self.content.read_symbol(object, sbn, esi, symbol, self.reads == 0);
        }
        match &self.encoders {
            Some(encoders) => encoders.symbol(object, sbn, esi, symbol),
            None => Err(SourceError(format!("repair symbol {esi} was asked for, but nothing was encoded"))),
        }
    }
}
