//! Encodes blocks in the background, in the order of the carousel, and no sooner than needed by the
//! carousel.

use std::sync::Arc;
use std::time::Duration;

use headwater_fec::{BlockEncoder, Order};
use headwater_proto::delivery::{SourceError, block_digest};

use super::background::Background;
use super::content::Content;
use super::layout;

impl Content {
    /// Reads a block with padding to whole symbols into `bytes`. The file's stamp confirms the announced
    /// content, as for source symbols.
    pub(super) fn padded_block(
        &self,
        object: usize,
        sbn: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        let [whole, _] = self.reserve(object, sbn, bytes);
        self.read_block(object, sbn, bytes)?;
        bytes.resize(whole, 0);
        Ok(())
    }

    /// Creates the encoder of a block. `bytes` is a buffer for the block, and finally holds the block with
    /// padding.
    pub(super) fn encoder(
        &self,
        object: usize,
        sbn: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<Box<dyn BlockEncoder>, SourceError> {
        let place = self.object(object);
        let [_, coded] = self.reserve(object, sbn, bytes);
        self.read_block(object, sbn, bytes)?;
        self.check_digest(object, sbn, block_digest(bytes))?;
        bytes.resize(coded, 0);
        let encoder = place.codec.encoder(place.block(sbn).symbols, bytes);
        encoder.map_err(|error| SourceError::Session(error.to_string()))
    }

    /// Reserves a buffer for a block. Returns the length in whole symbols, and the length with the code's
    /// padding.
    fn reserve(&self, object: usize, sbn: u32, bytes: &mut Vec<u8>) -> [usize; 2] {
        let place = self.object(object);
        let symbols = place.block(sbn).symbols;
        let [whole, coded] = [symbols, place.codec.padded_symbols(symbols)]
            .map(|symbols| symbols as usize * usize::from(place.partition.symbol_size()));
        bytes.reserve_exact(coded.saturating_sub(bytes.len()));
        [whole, coded]
    }
}

/// Repair symbols of every block of a session, made by threads and kept in memory: an unlimited number if
/// the code is rateless.
///
/// If a code makes a few repair symbols fast, the symbols of the first passes are made for all blocks before
/// any encoder.
#[derive(Debug)]
pub(super) struct Encoders {
    content: Arc<Content>,
    order: Order,
    /// First the early symbols of each block, then the encoders.
    coded: Background<BlockCode>,
    blocks: usize,
    /// Index of each object's first block among all blocks.
    first: Vec<usize>,
}

/// Stored coding result of a block.
#[derive(Clone)]
enum BlockCode {
    /// First repair symbols of the block.
    Early(Arc<[u8]>),
    Encoder(Arc<dyn BlockEncoder>),
}

impl Encoders {
    /// Starts to encode. If `is_lazy`, encoders wait until an encoder is requested.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        content: &Arc<Content>,
        order: Order,
        threads: usize,
        is_lazy: bool,
    ) -> Result<Self, SourceError> {
        let blocks: Arc<[(usize, u32)]> = content.blocks().collect();
        let count = blocks.len();
        let worker = || {
            let (content, blocks) = (Arc::clone(content), Arc::clone(&blocks));
            move |job: usize| {
                let (object, sbn) = blocks[job % count];
                // Not kept between blocks: each thread would otherwise hold a buffer for a block for the
                // whole session.
                let room = &mut Vec::new();
                if job < count {
                    early(&content, order, object, sbn, room).map(BlockCode::Early)
                } else {
                    content.encoder(object, sbn, room).map(|encoder| BlockCode::Encoder(encoder.into()))
                }
            }
        };
        let prompt = if is_lazy { count } else { 2 * count };
        let coded = Background::start(2 * count, prompt, threads, worker)?;
        let (content, first) = (Arc::clone(content), content.first_blocks());
        Ok(Self { content, order, coded, blocks: count, first })
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
                let job = self.blocks + self.first[object] + sbn as usize;
                Ok(self.coded.result_within(job, Duration::ZERO)?.is_some())
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
        let k = self.content.object(object).block(sbn).symbols;
        let is_early = esi < k + early_symbols(&self.content, self.order, object, sbn);
        let block = self.first[object] + sbn as usize;
        match self.coded.result(if is_early { block } else { self.blocks + block })? {
            BlockCode::Early(symbols) => {
                let start = (esi - k) as usize * symbol.len();
                symbol.copy_from_slice(&symbols[start..start + symbol.len()]);
                Ok(())
            }
            BlockCode::Encoder(encoder) => {
                encoder.symbol(esi, symbol).map_err(|error| SourceError::Session(error.to_string()))
            }
        }
    }
}

/// Returns the early symbols of a block in sequence.
fn early(
    content: &Content,
    order: Order,
    object: usize,
    sbn: u32,
    room: &mut Vec<u8>,
) -> Result<Arc<[u8]>, SourceError> {
    let place = content.object(object);
    let count = early_symbols(content, order, object, sbn) as usize;
    let mut symbols = vec![0; count * usize::from(place.partition.symbol_size())];
    if count > 0 {
        content.padded_block(object, sbn, room)?;
        let k = place.block(sbn).symbols;
        let made = place.codec.repair_symbols(k, room, k, &mut symbols);
        made.map_err(|error| SourceError::Session(error.to_string()))?;
    }
    Ok(symbols.into())
}

fn early_symbols(content: &Content, order: Order, object: usize, sbn: u32) -> u32 {
    let place = content.object(object);
    let symbols = place.block(sbn).symbols;
    match order {
        Order::Window => layout::early_symbols(symbols, place.codec.few_symbols(symbols)),
        Order::Spread { .. } => 0,
    }
}
