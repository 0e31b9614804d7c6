//! Blocks and codec of an object, derived from the FEC object transmission information.

use std::sync::Arc;

use headwater_fec::{
    BlockCodec, FecError, LdpcParameters, Parameters, Partition, PartitionError, Scheme, codec,
};
use headwater_wire::Fti;
use headwater_wire::fti::Ldpc;

/// Returns the partition of an object into blocks (RFC 5052, section 9.1; RFC 6330, section 4.4.1.2).
pub fn partition_of(fti: &Fti) -> Result<Partition, PartitionError> {
    let (length, size) = (fti.transfer_length(), fti.symbol_size());
    match *fti {
        Fti::RaptorQ { blocks, .. } => Partition::with_blocks(length, size, u32::from(blocks)),
        Fti::NoCode { max_block, .. } => Partition::new(length, size, max_block),
        Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => Partition::new(length, size, ldpc.max_block),
        Fti::ReedSolomon { max_block, .. } => Partition::new(length, size, u32::from(max_block)),
        Fti::ReedSolomonM { max_block, .. } => Partition::new(length, size, u32::from(max_block)),
    }
}

/// Codecs of a session. Objects of the same code and symbol size share a codec and thereby RaptorQ's plans.
#[derive(Clone, Debug, Default)]
pub struct Codecs {
    known: Vec<(Parameters, Arc<dyn BlockCodec>)>,
}

/// Maximum number of codecs kept. A Headwater session has one codec; a hostile session could name thousands.
const CODECS_MAX: usize = 128;

impl Codecs {
    /// Returns the codec of an object.
    pub fn of(&mut self, fti: &Fti) -> Result<Arc<dyn BlockCodec>, FecError> {
        let parameters = parameters(fti);
        if let Some((_, codec)) = self.known.iter().find(|(known, _)| *known == parameters) {
            return Ok(Arc::clone(codec));
        }
        let codec = codec(parameters)?;
        if self.known.len() < CODECS_MAX {
            self.known.push((parameters, Arc::clone(&codec)));
        }
        Ok(codec)
    }
}

fn parameters(fti: &Fti) -> Parameters {
    let symbol_size = fti.symbol_size();
    match *fti {
        Fti::NoCode { .. } => Parameters::no_code(symbol_size),
        Fti::ReedSolomon { max_block, max_symbols, .. } => {
            Parameters::reed_solomon(symbol_size, max_block.into(), max_symbols.into())
        }
        // The same code as id 5 as long as m is 8, the only m that `Fti` admits.
        Fti::ReedSolomonM { max_block, max_symbols, .. } => {
            Parameters::reed_solomon(symbol_size, max_block.into(), max_symbols.into())
        }
        // Al has no effect while N is 1, and N is 1 in every FTI with a valid codec: one codec serves all
        // values of Al.
        Fti::RaptorQ { sub_blocks, .. } => {
            let mut parameters = Parameters::raptorq(symbol_size);
            parameters.sub_blocks = sub_blocks;
            parameters
        }
        Fti::LdpcStaircase(fti) => ldpc(Scheme::LdpcStaircase, symbol_size, fti),
        Fti::LdpcTriangle(fti) => ldpc(Scheme::LdpcTriangle, symbol_size, fti),
    }
}

fn ldpc(scheme: Scheme, symbol_size: u16, fti: Ldpc) -> Parameters {
    let ldpc = LdpcParameters { n1: fti.n1_minus3 + 3, group_size: fti.g, ..LdpcParameters::new(fti.seed) };
    Parameters::ldpc(scheme, symbol_size, fti.max_block, fti.max_symbols, ldpc)
}

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// The part of a block's digest that the FDT carries: enough to find a corrupt block. The root digest
/// verifies the whole file.
pub type ShortDigest = [u8; 16];

/// Returns the digest of a block's bytes, without the padding of the last symbol.
pub fn block_digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}

/// Hasher for the digest of a block that arrives in parts.
#[derive(Clone, Debug, Default)]
pub struct BlockHasher(blake3::Hasher);

impl BlockHasher {
    /// Adds the next bytes of the block.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the [`block_digest`] of all bytes.
    pub fn finish(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}

/// Returns the digest of a file: BLAKE3 over the digests of all blocks in order. An empty file has no block
/// digests.
pub fn file_digest<'a>(blocks: impl IntoIterator<Item = &'a Digest>) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for block in blocks {
        hasher.update(block);
    }
    *hasher.finalize().as_bytes()
}

/// Returns the digest of a session's content: BLAKE3 over names, lengths and digests, sorted. A file without
/// a digest counts with zeros.
pub fn content_digest<'a>(files: impl Iterator<Item = (&'a str, u64, Option<Digest>)>) -> Digest {
    let mut files: Vec<_> = files.collect();
    files.sort_unstable();
    let mut hasher = blake3::Hasher::new_derive_key("headwater 2026 session content");
    for (name, bytes, digest) in files {
        hasher.update(&(name.len() as u64).to_be_bytes()).update(name.as_bytes());
        hasher.update(&bytes.to_be_bytes()).update(&digest.unwrap_or_default());
    }
    *hasher.finalize().as_bytes()
}

/// Returns the part of a digest that the FDT carries.
pub fn short(digest: &Digest) -> ShortDigest {
    *digest.first_chunk().expect("a digest has 32 bytes")
}

/// Formats a digest in lower-case hexadecimal.
pub fn hex(digest: &Digest) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}
