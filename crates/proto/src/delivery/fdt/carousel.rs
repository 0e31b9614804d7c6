use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use headwater_fec::{Block, Partition};
use headwater_wire::extensions::{ContentEncoding, FdtExtension};
use headwater_wire::fdt::Instance;
use headwater_wire::{Fti, PayloadId};

use super::FDT_BYTES_MAX;

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

/// Checks that an instance has room for `digests` more block digests and for later attributes of the entries.
///
/// # Errors
/// When the instance would be longer than any receiver accepts.
pub fn check_room(instance: &Instance, digests: u64) -> Result<(), FdtTooLarge> {
    let bytes = digests.saturating_mul(16).div_ceil(3).saturating_mul(4);
    let entries = instance.files.len() * ENTRY_GROWTH_BYTES;
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
