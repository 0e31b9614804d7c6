//! Reassembly of FDT instances from the source symbols of a capture. A capture rarely has losses.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::SocketAddr;

use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use headwater_fec::Partition;
use headwater_wire::extensions::ContentEncoding;
use headwater_wire::fdt::DOCUMENT_LEN_MAX;
use headwater_wire::{Fti, alc};

/// Maximum number of instances in reassembly; further instances are ignored.
const INSTANCES_MAX: usize = 64;

/// FDT instances in reassembly.
#[derive(Default)]
pub struct FdtAssembly {
    instances: BTreeMap<(SocketAddr, u64, u32), Instance>,
}

struct Instance {
    fti: Fti,
    partition: Partition,
    body: Vec<u8>,
    held: BTreeSet<u64>,
}

impl FdtAssembly {
    /// Processes a packet. Returns the XML of the instance that the packet completes for the first time.
    pub fn take(&mut self, source: SocketAddr, packet: &alc::Repr, symbol: &[u8]) -> Option<String> {
        let (fdt, fti) = (packet.extensions.fdt?, packet.extensions.fti?);
        if packet.toi != Some(0) {
            return None;
        }
        let key = (source, packet.tsi, fdt.instance_id);
        if !self.instances.contains_key(&key) && self.instances.len() < INSTANCES_MAX {
            self.instances.insert(key, Instance::new(fti)?);
        }
        let instance = self.instances.get_mut(&key).filter(|instance| instance.fti == fti)?;
        let is_news = instance.place(packet, symbol)?;
        if !is_news || !instance.is_whole() {
            return None;
        }
        decode(packet.extensions.content_encoding, &instance.body)
    }
}

impl Instance {
    fn new(fti: Fti) -> Option<Self> {
        let length =
            usize::try_from(fti.transfer_length()).ok().filter(|length| *length <= DOCUMENT_LEN_MAX)?;
        let partition = match fti {
            Fti::RaptorQ { transfer_length, symbol_size, blocks, .. } => {
                Partition::with_blocks(transfer_length, symbol_size, blocks.into())
            }
            Fti::NoCode { transfer_length, symbol_size, max_block } => {
                Partition::new(transfer_length, symbol_size, max_block)
            }
            Fti::ReedSolomon { transfer_length, symbol_size, max_block, .. } => {
                Partition::new(transfer_length, symbol_size, max_block.into())
            }
            Fti::ReedSolomonM { transfer_length, symbol_size, max_block, .. } => {
                Partition::new(transfer_length, symbol_size, max_block.into())
            }
            Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => {
                Partition::new(ldpc.transfer_length, ldpc.symbol_size, ldpc.max_block)
            }
        };
        Some(Self { fti, partition: partition.ok()?, body: vec![0; length], held: BTreeSet::new() })
    }

    /// Stores a symbol. Returns whether the symbol was missing; `None` for repair symbols and for symbols
    /// beyond the object.
    fn place(&mut self, packet: &alc::Repr, symbol: &[u8]) -> Option<bool> {
        let id = packet.payload_id?;
        let block = self.partition.block(id.sbn).filter(|block| id.esi < block.symbols)?;
        let index = block.first_symbol + u64::from(id.esi);
        let start = usize::try_from(index * u64::from(self.partition.symbol_size())).ok()?;
        let room = self.body.get_mut(start..)?;
        let length = symbol.len().min(room.len()).min(self.partition.symbol_size().into());
        room[..length].copy_from_slice(&symbol[..length]);
        Some(self.held.insert(index))
    }

    fn is_whole(&self) -> bool {
        self.held.len() as u64 == self.partition.symbols()
    }
}

fn decode(encoding: Option<ContentEncoding>, body: &[u8]) -> Option<String> {
    let reader: Box<dyn Read> = match encoding {
        None | Some(ContentEncoding::Null) => Box::new(body),
        Some(ContentEncoding::Zlib) => Box::new(ZlibDecoder::new(body)),
        Some(ContentEncoding::Deflate) => Box::new(DeflateDecoder::new(body)),
        Some(ContentEncoding::Gzip) => Box::new(GzDecoder::new(body)),
        Some(ContentEncoding::Other(_)) => return None,
    };
    let mut text = String::new();
    reader.take(DOCUMENT_LEN_MAX as u64).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_wire::extensions::FdtExtension;
    use headwater_wire::{Cci, Extensions, PayloadId};

    fn packet(length: u64, esi: u32) -> alc::Repr {
        let fti = Fti::NoCode { transfer_length: length, symbol_size: 4, max_block: 2 };
        alc::Repr {
            tsi: 1,
            toi: Some(0),
            close_session: false,
            close_object: false,
            psi: 0,
            codepoint: 0,
            cci: Cci::ZERO,
            extensions: Extensions {
                fti: Some(fti),
                fdt: Some(FdtExtension { version: 2, instance_id: 1 }),
                ..Extensions::default()
            },
            payload_id: Some(PayloadId { sbn: esi / 2, esi: esi % 2 }),
        }
    }

    #[test]
    fn an_instance_is_told_once_when_its_last_symbol_came() {
        let source = "192.0.2.1:9".parse().unwrap();
        let mut assembly = FdtAssembly::default();
        assert_eq!(assembly.take(source, &packet(11, 2), b"ij!"), None);
        assert_eq!(assembly.take(source, &packet(11, 0), b"abcd"), None);
        assert_eq!(assembly.take(source, &packet(11, 1), b"efgh").as_deref(), Some("abcdefghij!"));
        assert_eq!(assembly.take(source, &packet(11, 1), b"efgh"), None);
    }

    #[test]
    fn absurd_packets_take_no_memory() {
        let source = "192.0.2.1:9".parse().unwrap();
        let mut assembly = FdtAssembly::default();
        assert_eq!(assembly.take(source, &packet(1 << 40, 0), b"abcd"), None);
        assert!(assembly.instances.is_empty());
        assert_eq!(assembly.take(source, &packet(8, 70_000), b"abcd"), None);
        let mut assembly = FdtAssembly::default();
        assert_eq!(assembly.take(source, &packet(4, 0), b"longer than a symbol").as_deref(), Some("long"));
    }
}
