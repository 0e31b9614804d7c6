//! Encodes blocks in the background, in the order of the carousel, and no sooner than needed by the
//! carousel.

use std::sync::Arc;
use std::time::Duration;

use headwater_fec::{BlockEncoder, Order};
use headwater_proto::delivery::{SourceError, block_digest};

use super::background::Background;
use super::content::Content;

impl Content {
    /// Creates the encoder of a block. `bytes` is a buffer for the block, and finally holds the block with
    /// padding.
    pub(super) fn encoder(
        &self,
        object: usize,
        sbn: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<Box<dyn BlockEncoder>, SourceError> {
        let place = self.object(object);
        // The file's stamp confirms the announced content, as for source symbols.
        let symbols = place.block(sbn).symbols;
        let whole = symbols as usize * usize::from(place.partition.symbol_size());
        bytes.reserve_exact(whole.saturating_sub(bytes.len()));
        self.read_block(object, sbn, bytes)?;
        self.check_digest(object, sbn, block_digest(bytes))?;
        bytes.resize(whole, 0);
        let encoder = place.codec.encoder(symbols, bytes);
        encoder.map_err(|error| SourceError::Session(error.to_string()))
    }
}

/// Repair symbols of every block of a session, made by threads and kept in memory: an unlimited number if
/// the code is rateless.
#[derive(Debug)]
pub(super) struct Encoders {
    order: Order,
    /// Encoder of each block.
    encoders: Background<Arc<dyn BlockEncoder>>,
    /// Index of each object's first block among all blocks.
    first: Vec<usize>,
}

impl Encoders {
    /// Starts to encode.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(content: &Arc<Content>, order: Order, threads: usize) -> Result<Self, SourceError> {
        let blocks: Arc<[(usize, u32)]> = content.blocks().collect();
        let worker = || {
            let (content, blocks) = (Arc::clone(content), Arc::clone(&blocks));
            move |job: usize| {
                let (object, sbn) = blocks[job];
                // Not kept between blocks: each thread would otherwise hold a buffer for a block for the
                // whole session.
                content.encoder(object, sbn, &mut Vec::new()).map(Arc::from)
            }
        };
        let encoders = Background::start(blocks.len(), threads, Duration::ZERO, worker)?;
        Ok(Self { order, encoders, first: content.first_blocks() })
    }

    /// Whether a block's repair symbols are available at once. In window order always true, and the caller
    /// waits in [`Self::symbol`]: passes are short, and a source symbol instead of a repair symbol is
    /// useless.
    ///
    /// # Errors
    /// If a block could not be encoded: the session ends.
    pub(super) fn is_ready(&self, object: usize, sbn: u32) -> Result<bool, SourceError> {
        match self.order {
            Order::Window => Ok(true),
            Order::Spread { .. } => {
                Ok(self.encoders.result_within(self.block(object, sbn), Duration::ZERO)?.is_some())
            }
        }
    }

    /// Writes a repair symbol. Waits for the block's encoding if necessary.
    pub(super) fn symbol(
        &self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let encoder = self.encoders.result(self.block(object, sbn))?;
        encoder.symbol(esi, symbol).map_err(|error| SourceError::Session(error.to_string()))
    }

    fn block(&self, object: usize, sbn: u32) -> usize {
        self.first[object] + sbn as usize
    }
}
