//! What the benches share: blocks with losses, and the decoder of the crate `raptorq` to compare with.

#[expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]
#[path = "../../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{Random, source, symbols, with_losses};
use headwater_fec::{
    BlockCodec, DecodeError, LdpcParameters, Parameters, Repair, SYMBOL_SIZE_DEFAULT, Scheme, codec,
};
use raptorq::{EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder};

/// The lengths of blocks that are measured: a small file, window order, spread order.
pub const LENGTHS: [u32; 3] = [64, 1002, 5008];

/// Losses in thousandths.
pub const LOSSES: [u32; 4] = [5, 10, 20, 100];

/// A block of RaptorQ with losses, and the repair symbols that came for it. T = 1408.
pub struct Received {
    pub codec: Arc<dyn BlockCodec>,
    pub k: u32,
    pub source: Vec<u8>,
    /// With garbage in the missing places.
    pub block: Vec<u8>,
    pub missing: Vec<u32>,
    sent: Vec<(u32, Vec<u8>)>,
}

impl Received {
    /// A block of `k` symbols that lost `thousandths` of them, at least one, and has one repair symbol more
    /// than that.
    pub fn new(k: u32, thousandths: u32) -> Self {
        let codec = codec(Parameters::raptorq(SYMBOL_SIZE_DEFAULT)).expect("T is not 0");
        let lost = (k * thousandths / 1000).max(1);
        let source = source(&*codec, k, k.into());
        let missing = Random(thousandths.into()).sample(0, k, lost as usize);
        let esis: Vec<u32> = (k..=k + lost).collect();
        let sent = symbols(&*codec, k, &source, &esis);
        let block = with_losses(&source, codec.symbol_size(), &missing);
        Self { codec, k, source, block, missing, sent }
    }

    /// The same of LDPC-Triangle, n = 2k, which takes as many repair symbols as it asks for.
    pub fn of_ldpc(k: u32, thousandths: u32) -> Self {
        let parameters =
            Parameters::ldpc(Scheme::LdpcTriangle, SYMBOL_SIZE_DEFAULT, k, 2 * k, LdpcParameters::new(1));
        let codec = codec(parameters).expect("k < 2^19");
        let source = source(&*codec, k, k.into());
        let lost = (k * thousandths / 1000).max(1);
        let missing = Random(thousandths.into()).sample(0, k, lost as usize);
        let block = with_losses(&source, codec.symbol_size(), &missing);
        let mut received = Self { codec, k, source, block, missing, sent: Vec::new() };
        let mut have = lost + received.codec.symbols_to_try(k) - k;
        loop {
            let esis = Random(7).sample(k, 2 * k, have as usize);
            received.sent = symbols(&*received.codec, k, &received.source, &esis);
            let mut block = received.block.clone();
            match received.codec.decode(k, &mut block, &received.missing, &received.repairs()) {
                Err(DecodeError::NeedMore { more }) => have += more,
                outcome => {
                    outcome.expect("sound arguments");
                    return received;
                }
            }
        }
    }

    /// Symbols received beyond k.
    pub fn beyond(&self) -> usize {
        self.sent.len() - self.missing.len()
    }

    pub fn repairs(&self) -> Vec<Repair<'_>> {
        common::repairs(&self.sent)
    }

    /// Decodes `block`, a copy of the one received.
    pub fn decode(&self, block: &mut [u8]) {
        self.codec
            .decode(self.k, block, &self.missing, &self.repairs())
            .expect("as many symbols as it takes");
    }

    /// The same by the crate's decoder, from packets to the whole block.
    pub fn decode_by_crate(&self) -> Vec<u8> {
        let size = self.codec.symbol_size();
        let information = ObjectTransmissionInformation::new(0, SYMBOL_SIZE_DEFAULT, 0, 1, 1);
        let mut decoder = SourceBlockDecoder::new(0, &information, self.block.len() as u64);
        let packet = |esi, data: &[u8]| EncodingPacket::new(PayloadId::new(0, esi), data.to_vec());
        let received = (0..self.k).zip(self.block.chunks_exact(size));
        let received = received.filter(|(esi, _)| self.missing.binary_search(esi).is_err());
        let repairs = self.sent.iter().map(|(esi, data)| packet(*esi, data));
        let packets = received.map(|(esi, data)| packet(esi, data)).chain(repairs);
        decoder.decode(packets).expect("K + 1 symbols are enough")
    }
}
