//! Blocks encoded in the background, in the order in which the carousel needs them.

use std::sync::Arc;

use headwater_fec::BlockEncoder;
use headwater_proto::delivery::{SourceError, block_digest};

use super::background::Background;
use super::content::Content;
use super::hashing::Digests;

/// What blocks are encoded from: content that must be as it was announced.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    pub(super) content: Arc<Content>,
    pub(super) digests: Arc<Digests>,
}

impl Announced {
    /// The encoder of a block. `bytes` is room for the block, which it holds with its padding in the end.
    pub(super) fn encoder(
        &self,
        object: usize,
        sbn: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<Box<dyn BlockEncoder>, SourceError> {
        let place = self.content.object(object);
        let k = place.block(sbn).symbols;
        let padded = k as usize * usize::from(place.partition.symbol_size());
        bytes.reserve_exact(padded.saturating_sub(bytes.len()));
        self.content.read_block(object, sbn, bytes)?;
        if block_digest(bytes) != self.digests[object][sbn as usize] {
            return Err(self.content.changed(object));
        }
        bytes.resize(padded, 0);
        place.codec.encoder(k, bytes).map_err(|error| SourceError(error.to_string()))
    }
}

/// An encoder of every block of a session, made by threads from the start on and kept in memory: symbols without end
/// where the code has them.
#[derive(Debug)]
pub(super) struct Encoders {
    encoders: Background<Arc<dyn BlockEncoder>>,
    /// Index of each object's first block among all.
    first: Vec<usize>,
}

impl Encoders {
    /// Begins to encode.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(announced: &Announced, threads: usize) -> Result<Self, SourceError> {
        let blocks: Arc<[(usize, u32)]> = announced.content.blocks().collect();
        let worker = || {
            let (announced, blocks) = (announced.clone(), Arc::clone(&blocks));
            move |job: usize| {
                let (object, sbn) = blocks[job];
                // Not kept between blocks: room for a block would stay with each thread for the whole session.
                announced.encoder(object, sbn, &mut Vec::new()).map(Arc::from)
            }
        };
        let encoders = Background::start(blocks.len(), threads, worker)?;
        Ok(Self { encoders, first: announced.content.first_blocks() })
    }

    /// Writes a repair symbol; waits for its block when that is not encoded yet.
    pub(super) fn symbol(
        &self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let encoder = self.encoders.result(self.first[object] + sbn as usize)?;
        encoder.symbol(esi, symbol).map_err(|error| SourceError(error.to_string()))
    }
}
