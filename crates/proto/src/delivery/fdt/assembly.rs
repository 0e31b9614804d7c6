use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use headwater_fec::{BlockCodec, Partition, Repair};
use headwater_wire::extensions::ContentEncoding;
use headwater_wire::{Fti, PayloadId};

use super::FDT_BYTES_MAX;
use crate::delivery::object::{Codecs, partition_of};

/// Maximum number of symbols in an FDT instance: their bookkeeping takes less memory than the payload.
const SYMBOLS_MAX: u64 = 1 << 16;

/// Reassembly of an FDT instance in memory, with any supported code. Holds at most [`FDT_BYTES_MAX`] of
/// source symbols and as much of repair symbols, [`SYMBOLS_MAX`] of either. Memory grows with the symbols
/// received, not with the announced length: the first packet of an instance costs no more than the packet
/// itself.
#[derive(Debug)]
pub struct Assembly {
    instance_id: u32,
    fti: Fti,
    encoding: Option<ContentEncoding>,
    partition: Partition,
    codec: Arc<dyn BlockCodec>,
    /// Blocks with a received symbol.
    blocks: BTreeMap<u32, Block>,
    blocks_done: u32,
}

#[derive(Debug)]
enum Block {
    Receiving(BTreeMap<u32, Vec<u8>>),
    /// Bytes of the block, with padding.
    Done(Vec<u8>),
}

/// Result of a symbol.
pub enum Progress {
    /// The symbol was already present, or is useless.
    Useless,
    /// The symbol was needed, and more symbols are needed.
    Needed,
    /// The instance is whole; holds the XML.
    Whole(Vec<u8>),
    /// The instance cannot be read.
    Broken,
}

impl Assembly {
    /// Creates an assembly; `None` if the parameters are unusable or exceed the bounds.
    pub fn new(instance_id: u32, fti: Fti, encoding: Option<ContentEncoding>) -> Option<Self> {
        if fti.transfer_length() == 0 || fti.transfer_length() > FDT_BYTES_MAX as u64 {
            return None;
        }
        let partition = partition_of(&fti).ok().filter(|partition| partition.symbols() <= SYMBOLS_MAX)?;
        // If the symbol size were far above the length, most of the memory would hold padding.
        let padded = partition.symbols().checked_mul(u64::from(partition.symbol_size()))?;
        if padded > FDT_BYTES_MAX as u64 + (1 << 16) {
            return None;
        }
        let codec = Codecs::default().of(&fti).ok()?;
        Some(Self { instance_id, fti, encoding, partition, codec, blocks: BTreeMap::new(), blocks_done: 0 })
    }

    /// Whether a packet with these parameters belongs to this instance.
    pub fn is_of(&self, instance_id: u32, fti: &Fti) -> bool {
        self.instance_id == instance_id && self.fti == *fti
    }

    /// Takes a symbol.
    pub fn put(&mut self, id: PayloadId, payload: &[u8]) -> Progress {
        let Some(spec) = self.partition.block(id.sbn) else { return Progress::Useless };
        let size = usize::from(self.partition.symbol_size());
        let k = spec.symbols;
        // Only the last symbol may travel without padding; some senders without a code omit the padding.
        let bytes = usize::from(spec.symbol_bytes(id.esi, self.partition.symbol_size()));
        let length_fits = payload.len() == size || (bytes > 0 && payload.len() == bytes);
        if id.esi >= self.codec.esi_end(k) || !length_fits {
            return Progress::Useless;
        }
        let block = self.blocks.entry(id.sbn).or_insert_with(|| Block::Receiving(BTreeMap::new()));
        let Block::Receiving(symbols) = block else { return Progress::Useless };
        // With K + 8 symbols present, another repair symbol is useless.
        let is_full = id.esi >= k && symbols.len() >= k as usize + 8;
        if is_full || symbols.contains_key(&id.esi) {
            return Progress::Useless;
        }
        symbols.insert(id.esi, payload.to_vec());
        let enough = symbols.len() >= k as usize;
        let Some(bytes) = enough.then(|| solve(&*self.codec, k, size, symbols)).flatten() else {
            return Progress::Needed;
        };
        *block = Block::Done(bytes);
        self.blocks_done += 1;
        if self.blocks_done < self.partition.blocks() { Progress::Needed } else { self.unpack() }
    }

    /// Returns the bytes of all blocks, without padding.
    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (sbn, block) in &self.blocks {
            if let (Some(spec), Block::Done(bytes)) = (self.partition.block(*sbn), block) {
                let length = usize::try_from(spec.bytes).expect("within FDT_BYTES_MAX");
                body.extend_from_slice(&bytes[..length]);
            }
        }
        body
    }

    fn unpack(&self) -> Progress {
        let body = self.body();
        let body = body.as_slice();
        let limit = FDT_BYTES_MAX as u64 + 1;
        let mut xml = Vec::new();
        let read = match self.encoding {
            None | Some(ContentEncoding::Null) => {
                xml = body.to_vec();
                Ok(0)
            }
            Some(ContentEncoding::Zlib) => ZlibDecoder::new(body).take(limit).read_to_end(&mut xml),
            Some(ContentEncoding::Deflate) => DeflateDecoder::new(body).take(limit).read_to_end(&mut xml),
            Some(ContentEncoding::Gzip) => GzDecoder::new(body).take(limit).read_to_end(&mut xml),
            Some(ContentEncoding::Other(_)) => return Progress::Broken,
        };
        if read.is_err() || xml.len() > FDT_BYTES_MAX { Progress::Broken } else { Progress::Whole(xml) }
    }
}

/// Returns the bytes of a block with padding, if the symbols determine the block.
fn solve(codec: &dyn BlockCodec, k: u32, size: usize, symbols: &BTreeMap<u32, Vec<u8>>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; k as usize * size];
    for (esi, symbol) in symbols.range(..k) {
        let at = *esi as usize * size;
        bytes[at..at + symbol.len()].copy_from_slice(symbol);
    }
    let missing: Vec<u32> = (0..k).filter(|esi| !symbols.contains_key(esi)).collect();
    let repairs: Vec<Repair<'_>> = symbols.range(k..).map(|(esi, data)| Repair { esi: *esi, data }).collect();
    let is_whole = missing.is_empty() || codec.decode(k, &mut bytes, &missing, &repairs).is_ok();
    is_whole.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use headwater_wire::fdt::{File, Instance};

    use super::super::FdtCarousel;
    use super::*;

    fn instance(files: u32) -> Instance {
        let file =
            |toi: u32| File { toi: toi.into(), content_location: format!("f/{toi}"), ..File::default() };
        Instance { files: (1..=files).map(file).collect(), ..Instance::default() }
    }

    fn carry(files: u32, keep: impl Fn(usize) -> bool) -> (usize, Vec<u8>) {
        let instance = instance(files);
        let carousel = FdtCarousel::new(&instance, 7, 256).unwrap();
        let first = carousel.symbol(0);
        let mut assembly = Assembly::new(7, first.fti, first.encoding).unwrap();
        for count in 0.. {
            let symbol = carousel.symbol(1 + count as u64);
            if keep(count)
                && let Progress::Whole(xml) = assembly.put(symbol.payload_id, symbol.payload)
            {
                assert_eq!(xml, instance.to_xml().into_bytes());
                return (count, xml);
            }
        }
        unreachable!()
    }

    #[test]
    fn an_instance_arrives_plain_or_compressed_from_any_start_with_loss() {
        for files in [1, 3, 500] {
            carry(files, |_| true);
            carry(files, |count| count % 3 != 1);
        }
    }

    #[test]
    fn hostile_parameters_are_refused() {
        let fti = |transfer_length, symbol_size| Fti::NoCode { transfer_length, symbol_size, max_block: 1 };
        assert!(Assembly::new(0, fti(0, 100), None).is_none());
        assert!(Assembly::new(0, fti(1 << 40, 100), None).is_none());
        assert!(Assembly::new(0, fti(u64::MAX, 1), None).is_none());
        // Millions of one-byte blocks: small on the wire, half a gigabyte of bookkeeping.
        let tiny =
            Fti::ReedSolomon { transfer_length: 8 << 20, symbol_size: 1, max_block: 1, max_symbols: 255 };
        assert!(Assembly::new(0, tiny, None).is_none());
    }

    #[test]
    fn a_compressed_bomb_is_broken_not_unpacked() {
        let bomb = {
            use std::io::Write;
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(&vec![b' '; FDT_BYTES_MAX + 10]).unwrap();
            encoder.finish().unwrap()
        };
        let fti = Fti::NoCode { transfer_length: bomb.len() as u64, symbol_size: 60_000, max_block: 1 };
        let mut assembly = Assembly::new(0, fti, Some(ContentEncoding::Gzip)).unwrap();
        let mut last = Progress::Useless;
        for (sbn, chunk) in bomb.chunks(60_000).enumerate() {
            last = assembly.put(PayloadId { sbn: u32::try_from(sbn).unwrap(), esi: 0 }, chunk);
        }
        assert!(matches!(last, Progress::Broken));
    }
}
