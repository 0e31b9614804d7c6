//! Decoding in strips: blocks of codes whose symbols are sums of one another may be longer than there is
//! memory for. They stay on disk, and some bytes of each of their symbols are decoded at a time.

use headwater_fec::{Block, BlockCodec, DecodeError};
use headwater_proto::delivery::{BlockJob, DECODING_BYTES, STRIP_WIDTH_MIN, StoreError};

use super::place::{ObjectPlace, Places};

/// Bytes read at once, of which a strip is taken.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes of each symbol of a block of `k` that are decoded at a time: as many as memory allows, and all if it
/// does.
pub(super) fn strip_width(codec: &dyn BlockCodec, k: u32) -> usize {
    let whole = codec.symbol_size();
    if !codec.decodes_in_strips() || codec.strip_bytes(k, whole) <= DECODING_BYTES {
        return whole;
    }
    let least = usize::from(STRIP_WIDTH_MIN);
    let fixed = codec.strip_bytes(k, 0);
    let per_byte = codec.strip_bytes(k, 1).saturating_sub(fixed).max(1);
    let width = usize::try_from(DECODING_BYTES.saturating_sub(fixed) / per_byte).unwrap_or(whole);
    (width / least * least).clamp(least.min(whole), whole)
}

/// Writes the symbols of a block that are missing, or says how many more symbols that takes.
pub(super) fn decode(
    places: &Places,
    object: &ObjectPlace,
    job: &BlockJob,
    block: &Block,
) -> Result<Result<(), u32>, StoreError> {
    let (k, codec) = (block.symbols, &*object.spec.codec);
    let slots = usable_slots(places, object, job, block)?;
    let esis: Vec<u32> = slots.iter().map(|(_, esi)| *esi).collect();
    let recipe = match codec.recipe(k, &job.missing, &esis) {
        Ok(recipe) => recipe,
        Err(DecodeError::NeedMore { more }) => return Ok(Err(more)),
        Err(DecodeError::Invalid(error)) => return Err(object.cannot_decode(job.sbn, error)),
    };
    let (size, width) = (object.symbol_bytes(), strip_width(codec, k));
    for from in (0..size).step_by(width) {
        let strip = Strip { places, object, block, from, width: width.min(size - from) };
        let mut content = strip.read_content()?;
        let symbols = strip.read_repairs(job.repairs)?;
        let width = strip.width;
        let symbols: Vec<&[u8]> =
            slots.iter().map(|(slot, _)| &symbols[*slot * width..(*slot + 1) * width]).collect();
        recipe.fill(width, &mut content, &symbols).map_err(|error| object.cannot_decode(job.sbn, error))?;
        strip.write(&job.missing, &content)?;
    }
    Ok(Ok(()))
}

/// The slots whose symbols exist, each symbol once, with their ESIs: what came from an earlier session is not
/// trusted.
fn usable_slots(
    places: &Places,
    object: &ObjectPlace,
    job: &BlockJob,
    block: &Block,
) -> Result<Vec<(usize, u32)>, StoreError> {
    let numbers = places.read_repair_numbers(object, block, job.repairs)?;
    let end = object.spec.codec.esi_end(block.symbols);
    let mut seen = vec![false; end.saturating_sub(block.symbols) as usize];
    let mut slots: Vec<(usize, u32)> = numbers.into_iter().enumerate().collect();
    slots.retain(|(_, esi)| {
        let place = esi.checked_sub(block.symbols).and_then(|place| seen.get_mut(place as usize));
        place.is_some_and(|seen| !std::mem::replace(seen, true))
    });
    Ok(slots)
}

/// The bytes from `from` on, `width` of them, of each symbol of a block.
struct Strip<'a> {
    places: &'a Places,
    object: &'a ObjectPlace,
    block: &'a Block,
    from: usize,
    width: usize,
}

impl Strip<'_> {
    /// Of the source symbols; zeros past the end of the object, anything where they are missing.
    fn read_content(&self) -> Result<Vec<u8>, StoreError> {
        let start = self.object.offset(self.block);
        let bytes = usize::try_from(self.block.bytes).unwrap_or(usize::MAX);
        self.read(self.block.symbols, |at, buffer| {
            let length = bytes.saturating_sub(at).min(buffer.len());
            let (content, padding) = buffer.split_at_mut(length);
            padding.fill(0);
            self.places.read(&self.object.file, start + at as u64, content)
        })
    }

    /// Of the repair symbols in the slots below `slots`.
    fn read_repairs(&self, slots: u32) -> Result<Vec<u8>, StoreError> {
        let size = self.object.symbol_bytes();
        self.read(slots, |at, buffer| {
            let slot = u32::try_from(at / size).expect("below the number of slots");
            self.places.read_repair_symbols(self.object, self.block, slot, buffer)
        })
    }

    /// Of so many symbols that `read` reads whole, from a byte on.
    fn read(
        &self,
        symbols: u32,
        read: impl Fn(usize, &mut [u8]) -> Result<(), StoreError>,
    ) -> Result<Vec<u8>, StoreError> {
        let (size, symbols) = (self.object.symbol_bytes(), symbols as usize);
        let at_once = (CHUNK_BYTES / size).max(1);
        let mut chunk = vec![0; at_once.min(symbols) * size];
        let mut strip = Vec::with_capacity(symbols * self.width);
        for first in (0..symbols).step_by(at_once) {
            let chunk = &mut chunk[..at_once.min(symbols - first) * size];
            read(first * size, chunk)?;
            let parts = chunk.chunks_exact(size).map(|symbol| &symbol[self.from..self.from + self.width]);
            parts.for_each(|part| strip.extend_from_slice(part));
        }
        Ok(strip)
    }

    /// Writes what was missing of the source symbols; adjacent whole ones together.
    fn write(&self, missing: &[u32], content: &[u8]) -> Result<(), StoreError> {
        let size = self.object.symbol_bytes();
        let is_whole = self.width == size;
        for run in missing.chunk_by(|one, next| is_whole && one + 1 == *next) {
            let first = run[0] as usize;
            let from = first * size + self.from;
            // The last symbol of the object may end inside the strip, or before it.
            let rest = self.block.bytes.saturating_sub(from as u64);
            let length =
                usize::try_from(rest).map_or(run.len() * self.width, |rest| rest.min(run.len() * self.width));
            let bytes = &content[first * self.width..][..length];
            self.places.write(&self.object.file, self.object.offset(self.block) + from as u64, bytes)?;
        }
        Ok(())
    }
}
