//! Transport of the FDT: cut into symbols at the sender, reassembled at the receiver.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;
use headwater_fec::{Block, BlockCodec, Partition, Repair};
use headwater_wire::extensions::{ContentEncoding, FdtExtension};
use headwater_wire::fdt::{Instance, PEERS_MAX};
use headwater_wire::{Fti, PayloadId, alc};

use super::object::{Codecs, partition_of};

/// Maximum length of an FDT instance in bytes, compressed or not, at both ends.
pub const FDT_BYTES_MAX: usize = headwater_wire::fdt::DOCUMENT_LEN_MAX;

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
    blocks: BTreeMap<u32, FdtBlock>,
    blocks_done: u32,
}

#[derive(Debug)]
enum FdtBlock {
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
        let block = self.blocks.entry(id.sbn).or_insert_with(|| FdtBlock::Receiving(BTreeMap::new()));
        let FdtBlock::Receiving(symbols) = block else { return Progress::Useless };
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
        *block = FdtBlock::Done(bytes);
        self.blocks_done += 1;
        if self.blocks_done < self.partition.blocks() { Progress::Needed } else { self.unpack() }
    }

    /// Returns the bytes of all blocks, without padding.
    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (sbn, block) in &self.blocks {
            if let (Some(spec), FdtBlock::Done(bytes)) = (self.partition.block(*sbn), block) {
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

/// Maximum number of FDT instances reassembled at the same time.
const ASSEMBLIES_MAX: usize = 2;
/// Accepted versions of FLUTE: RFC 3926 and RFC 6726.
const VERSIONS: core::ops::RangeInclusive<u8> = 1..=2;
/// Maximum number of recent FDT instances remembered.
const INSTANCES_MAX: usize = 16;

/// Reassembly of the FDT at a receiver. Memory: two instances in progress.
#[derive(Debug, Default)]
pub(crate) struct FdtReceiver {
    assemblies: VecDeque<Assembly>,
    known: VecDeque<u32>,
    last: Option<u32>,
}

/// Result of a packet of the FDT.
pub(crate) enum FdtOutcome {
    /// The packet brought nothing new.
    Nothing,
    /// The packet brought a new part of an instance.
    Part,
    /// The packet completed an instance.
    Whole { instance_id: u32, instance: Box<Instance>, xml: Vec<u8> },
    /// The packet or the instance cannot be read.
    Bad,
}

impl FdtReceiver {
    /// Returns the instance of the last packet.
    pub(crate) fn last(&self) -> Option<u32> {
        self.last
    }

    /// Takes a packet of TOI 0.
    pub(crate) fn hear(&mut self, header: &alc::Repr, id: PayloadId, payload: &[u8]) -> FdtOutcome {
        let known = header.extensions.fdt.filter(|fdt| VERSIONS.contains(&fdt.version));
        let (Some(extension), Some(_)) = (known, header.extensions.fti) else { return FdtOutcome::Bad };
        let instance_id = extension.instance_id;
        self.last = Some(instance_id);
        if self.known.contains(&instance_id) {
            return FdtOutcome::Nothing;
        }
        let Some(index) = self.assembly(instance_id, header) else { return FdtOutcome::Bad };
        match self.assemblies[index].put(id, payload) {
            Progress::Useless => FdtOutcome::Nothing,
            Progress::Needed => FdtOutcome::Part,
            Progress::Whole(xml) => {
                self.assemblies.remove(index);
                // An unreadable instance is not remembered: a corrupt symbol may have spoiled the instance,
                // which will be sent again.
                let Ok(instance) = Instance::parse(&xml) else { return FdtOutcome::Bad };
                self.remember(instance_id);
                FdtOutcome::Whole { instance_id, instance: Box::new(instance), xml }
            }
            Progress::Broken => {
                self.assemblies.remove(index);
                FdtOutcome::Bad
            }
        }
    }

    /// Returns the index of an instance's assembly. A new assembly replaces the oldest if there are too many.
    fn assembly(&mut self, instance_id: u32, header: &alc::Repr) -> Option<usize> {
        let fti = header.extensions.fti?;
        if let Some(index) = self.assemblies.iter().position(|one| one.is_of(instance_id, &fti)) {
            return Some(index);
        }
        let assembly = Assembly::new(instance_id, fti, header.extensions.content_encoding)?;
        if self.assemblies.len() == ASSEMBLIES_MAX {
            self.assemblies.pop_front();
        }
        self.assemblies.push_back(assembly);
        Some(self.assemblies.len() - 1)
    }

    fn remember(&mut self, instance_id: u32) {
        if self.known.len() == INSTANCES_MAX {
            self.known.pop_front();
        }
        self.known.push_back(instance_id);
    }
}

/// Source symbols of a block of the FDT (Compact No-Code, so the number only has to fit its 16 bits).
const BLOCK_SYMBOLS: u32 = 4_096;
/// Number of symbols above which the FDT is compressed: a receiver needs all symbols.
const PLAIN_SYMBOLS_MAX: usize = 4;
/// FLUTE version 2 (RFC 6726).
const VERSION: u8 = 2;

/// The FDT instance of a session would be longer than any receiver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the description of the session has {bytes} bytes, more than {FDT_BYTES_MAX}; send fewer files or an archive"
)]
pub struct FdtTooLarge {
    /// Length of the instance.
    pub bytes: usize,
}

/// Symbols of an FDT instance, sent cyclically.
#[derive(Clone, Debug)]
pub struct FdtCarousel {
    instance_id: u32,
    body: Vec<u8>,
    encoding: Option<ContentEncoding>,
    partition: Partition,
}

/// Symbol of the FDT with all header fields of the packet.
#[derive(Clone, Copy, Debug)]
pub struct FdtSymbol<'a> {
    pub extension: FdtExtension,
    pub fti: Fti,
    pub encoding: Option<ContentEncoding>,
    pub payload_id: PayloadId,
    pub payload: &'a [u8],
}

impl FdtCarousel {
    /// Cuts an instance into symbols of `symbol_size` bytes.
    ///
    /// # Errors
    /// When the instance is longer than any receiver takes.
    pub fn new(instance: &Instance, instance_id: u32, symbol_size: u16) -> Result<Self, FdtTooLarge> {
        let xml = instance.to_xml().into_bytes();
        check_length(xml.len())?;
        Ok(Self::plain_up_to(PLAIN_SYMBOLS_MAX, xml, instance_id, symbol_size))
    }

    /// Cuts an instance into a single symbol, compressed if necessary; `None` if the instance does not fit.
    pub fn of_one_symbol(instance: &Instance, instance_id: u32, symbol_size: u16) -> Option<Self> {
        let xml = instance.to_xml().into_bytes();
        check_length(xml.len()).ok()?;
        Some(Self::plain_up_to(1, xml, instance_id, symbol_size)).filter(|carousel| carousel.symbols() == 1)
    }

    fn plain_up_to(symbols: usize, xml: Vec<u8>, instance_id: u32, symbol_size: u16) -> Self {
        let (body, encoding) = if xml.len() > symbols * usize::from(symbol_size) {
            (gzip(&xml), Some(ContentEncoding::Gzip))
        } else {
            (xml, None)
        };
        let partition = Partition::new(body.len() as u64, symbol_size, BLOCK_SYMBOLS)
            .expect("an instance within FDT_BYTES_MAX has below 2^16 blocks of 4096 symbols");
        Self { instance_id, body, encoding, partition }
    }

    /// Number of symbols in the instance.
    pub fn symbols(&self) -> u64 {
        self.partition.symbols()
    }

    /// Returns the symbol with a number, counted cyclically.
    pub fn symbol(&self, number: u64) -> FdtSymbol<'_> {
        let (block, esi) = self.place(number % self.symbols());
        let size = u64::from(self.partition.symbol_size());
        let start = usize::try_from(block.offset + u64::from(esi) * size).expect("below FDT_BYTES_MAX");
        let end = self.body.len().min(start + usize::from(self.partition.symbol_size()));
        FdtSymbol {
            extension: FdtExtension { version: VERSION, instance_id: self.instance_id },
            fti: Fti::NoCode {
                transfer_length: self.body.len() as u64,
                symbol_size: self.partition.symbol_size(),
                max_block: BLOCK_SYMBOLS,
            },
            encoding: self.encoding,
            payload_id: PayloadId { sbn: block.sbn, esi },
            payload: &self.body[start..end],
        }
    }

    /// Returns the block of a symbol and the symbol's ESI. An instance has at most 32 blocks.
    fn place(&self, mut number: u64) -> (Block, u32) {
        let mut sbn = 0;
        loop {
            let block = self.partition.block(sbn).expect("the number is below that of symbols");
            match u32::try_from(number).ok().filter(|esi| *esi < block.symbols) {
                Some(esi) => return (block, esi),
                None => number -= u64::from(block.symbols),
            }
            sbn += 1;
        }
    }
}

/// Maximum growth of an entry in bytes, besides the digests of blocks: `hw:Digest`, `hw:Withdrawn`.
const ENTRY_GROWTH_BYTES: usize = 120;

/// Bytes of the entity tag that an entry gets later, in a session with repair servers.
const ETAG_GROWTH_BYTES: usize = 110;

/// Bytes of the peers that an instance names later: elements with addresses of IPv6, and times.
const PEERS_GROWTH_BYTES: usize = 110 * PEERS_MAX + 200;

/// Checks that an instance has room for `digests` more block digests and for later attributes of the entries.
///
/// # Errors
/// When the instance would be longer than any receiver accepts.
pub fn check_room(instance: &Instance, digests: u64) -> Result<(), FdtTooLarge> {
    let bytes = digests.saturating_mul(16).div_ceil(3).saturating_mul(4);
    let growth = ENTRY_GROWTH_BYTES + if instance.base_urls.is_empty() { 0 } else { ETAG_GROWTH_BYTES };
    let entries = PEERS_GROWTH_BYTES + instance.files.len() * growth;
    let more = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(entries);
    check_length(instance.to_xml().len().saturating_add(more))
}

fn check_length(bytes: usize) -> Result<(), FdtTooLarge> {
    if bytes > FDT_BYTES_MAX { Err(FdtTooLarge { bytes }) } else { Ok(()) }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory does not fail")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_wire::fdt::{File, Instance};

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
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
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
