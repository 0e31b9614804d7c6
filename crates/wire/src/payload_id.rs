//! FEC Payload ID: which symbol of which source block a packet carries. Four bytes in every scheme we know.
use crate::fti::EncodingId;

/// Length of a FEC Payload ID in bytes.
pub const PAYLOAD_ID_LEN: usize = 4;

/// A source block number and an encoding symbol ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadId {
    /// Source block number, from 0.
    pub sbn: u32,
    /// Encoding symbol ID within the block: source symbols first, then repair symbols.
    pub esi: u32,
}

/// Why a [`PayloadId`] cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PayloadIdError {
    /// The block number is wider than the scheme's field.
    #[error("source block number {sbn} does not fit in the {bits} bits of {encoding_id:?}")]
    Sbn {
        /// The number.
        sbn: u32,
        /// Width of the field.
        bits: u32,
        /// The scheme.
        encoding_id: EncodingId,
    },
    /// The symbol ID is wider than the scheme's field.
    #[error("encoding symbol ID {esi} does not fit in the {bits} bits of {encoding_id:?}")]
    Esi {
        /// The symbol ID.
        esi: u32,
        /// Width of the field.
        bits: u32,
        /// The scheme.
        encoding_id: EncodingId,
    },
}

impl PayloadId {
    /// Reads the four bytes behind the LCT header. Every value is valid.
    pub fn parse(encoding_id: EncodingId, bytes: [u8; PAYLOAD_ID_LEN]) -> PayloadId {
        let word = u32::from_be_bytes(bytes);
        let esi_bits = encoding_id.esi_bits();
        PayloadId { sbn: word >> esi_bits, esi: word & ((1 << esi_bits) - 1) }
    }

    /// The four bytes for `encoding_id`.
    ///
    /// # Errors
    /// A number that is too wide for its field.
    pub fn emit(self, encoding_id: EncodingId) -> Result<[u8; PAYLOAD_ID_LEN], PayloadIdError> {
        let PayloadId { sbn, esi } = self;
        let (sbn_bits, esi_bits) = (encoding_id.sbn_bits(), encoding_id.esi_bits());
        if sbn >> sbn_bits != 0 {
            return Err(PayloadIdError::Sbn { sbn, bits: sbn_bits, encoding_id });
        }
        if esi >> esi_bits != 0 {
            return Err(PayloadIdError::Esi { esi, bits: esi_bits, encoding_id });
        }
        Ok((sbn << esi_bits | esi).to_be_bytes())
    }
}
