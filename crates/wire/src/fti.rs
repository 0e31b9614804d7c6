//! FEC Object Transmission Information: the parameters that a receiver needs to decode an object. One variant
//! per scheme.
//!
//! EXT_FTI ([`Fti::parse`], [`Fti::emit`]) and the FDT ([`crate::fdt`]) carry the parameters. Both parsers
//! check them, so a parsed [`Fti`] is consistent: the scheme's FEC Payload ID can number all blocks and
//! symbols.
//!
//! Also the fields of each scheme's EXT_FTI, behind the type and length bytes.
//!
//! FEC Payload ID: source block and symbol number of a packet's payload. Four bytes in every known scheme.

use crate::bytes::{Writer, be, be16, be32};

/// A FEC scheme that Headwater knows, by its FEC Encoding ID; in FLUTE also the LCT codepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EncodingId {
    /// Compact No-Code (RFC 5445).
    NoCode = 0,
    /// Reed-Solomon over GF(2^m) (RFC 5510), with m = 8.
    ReedSolomonM = 2,
    /// LDPC-Staircase (RFC 5170).
    LdpcStaircase = 3,
    /// LDPC-Triangle (RFC 5170).
    LdpcTriangle = 4,
    /// Reed-Solomon over GF(2^8) (RFC 5510).
    ReedSolomon = 5,
    /// RaptorQ (RFC 6330).
    RaptorQ = 6,
}

impl EncodingId {
    /// The scheme of an LCT codepoint; `None` for schemes that Headwater does not know.
    pub fn from_codepoint(codepoint: u8) -> Option<EncodingId> {
        Some(match codepoint {
            0 => EncodingId::NoCode,
            2 => EncodingId::ReedSolomonM,
            3 => EncodingId::LdpcStaircase,
            4 => EncodingId::LdpcTriangle,
            5 => EncodingId::ReedSolomon,
            6 => EncodingId::RaptorQ,
            _ => return None,
        })
    }

    /// The FEC Encoding ID as a number.
    pub fn codepoint(self) -> u8 {
        self as u8
    }

    /// Width of the source block number in the FEC Payload ID.
    pub fn sbn_bits(self) -> u32 {
        32 - self.esi_bits()
    }

    /// Width of the encoding symbol ID in the FEC Payload ID.
    pub fn esi_bits(self) -> u32 {
        match self {
            EncodingId::NoCode => 16,
            EncodingId::ReedSolomonM | EncodingId::ReedSolomon => 8,
            EncodingId::LdpcStaircase | EncodingId::LdpcTriangle => 20,
            EncodingId::RaptorQ => 24,
        }
    }
}

/// FEC object transmission information. Lengths are in bytes, `max_block` and `max_symbols` in symbols per
/// block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fti {
    /// FEC Encoding ID 0 (RFC 5445 section 3).
    NoCode {
        /// L, 48 bits.
        transfer_length: u64,
        /// E.
        symbol_size: u16,
        /// B.
        max_block: u32,
    },
    /// FEC Encoding ID 2 (RFC 5510 section 4.2).
    ReedSolomonM {
        /// L, 48 bits.
        transfer_length: u64,
        /// E.
        symbol_size: u16,
        /// Bits per field element; always 8 here, because m sets how a FEC Payload ID is split.
        m: u8,
        /// G, symbols per packet.
        g: u8,
        /// B.
        max_block: u16,
        /// max_n.
        max_symbols: u16,
    },
    /// FEC Encoding ID 3.
    LdpcStaircase(Ldpc),
    /// FEC Encoding ID 4.
    LdpcTriangle(Ldpc),
    /// FEC Encoding ID 5 (RFC 5510 section 5.2).
    ReedSolomon {
        /// L, 48 bits.
        transfer_length: u64,
        /// E.
        symbol_size: u16,
        /// B.
        max_block: u8,
        /// max_n.
        max_symbols: u8,
    },
    /// FEC Encoding ID 6 (RFC 6330 section 3.3).
    RaptorQ {
        /// F, 40 bits, at most [`RAPTORQ_LENGTH_MAX`].
        transfer_length: u64,
        /// T, a multiple of `alignment`.
        symbol_size: u16,
        /// Z, source blocks of the object: 0 or 1 if the object is empty.
        blocks: u8,
        /// N, sub-blocks per source block.
        sub_blocks: u16,
        /// Al.
        alignment: u8,
    },
}

/// Parameters of both LDPC schemes (RFC 5170 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ldpc {
    /// L in bytes, 48 bits.
    pub transfer_length: u64,
    /// E in bytes.
    pub symbol_size: u16,
    /// N1 - 3, 3 bits: N1 is the number of entries per source column of the matrix.
    pub n1_minus3: u8,
    /// G, symbols per packet, 1 to 31.
    pub g: u8,
    /// B, source symbols per block, 20 bits.
    pub max_block: u32,
    /// max_n, encoding symbols per block, 20 bits.
    pub max_symbols: u32,
    /// Seed of the generator, 1 to [`LDPC_SEED_MAX`].
    pub seed: u32,
}

/// Largest transfer length that 48 bits hold.
pub const TRANSFER_LENGTH_MAX: u64 = (1 << 48) - 1;
/// Largest object of RaptorQ in bytes (RFC 6330 section 3.3.2).
pub const RAPTORQ_LENGTH_MAX: u64 = 946_270_874_880;
/// Largest source block of RaptorQ in symbols, K'_max (RFC 6330 section 5.1.2).
pub const RAPTORQ_BLOCK_MAX: u64 = 56_403;
/// Largest seed of RFC 5170's generator, 2^31 - 2.
pub const LDPC_SEED_MAX: u32 = 0x7FFF_FFFE;

/// Why FEC object transmission information is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FtiError {
    /// An EXT_FTI whose length is wrong for its scheme.
    #[error("EXT_FTI of {have} bytes, {encoding_id:?} has {need}")]
    Length {
        /// The scheme.
        encoding_id: EncodingId,
        /// Content length that the scheme has.
        need: usize,
        /// Content length found.
        have: usize,
    },
    /// A field outside the range that the scheme allows.
    #[error("{field} {value} is not within {min} to {max}")]
    Range {
        /// The field.
        field: &'static str,
        /// The value.
        value: u64,
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
    },
    /// RaptorQ symbols are not made of aligned units.
    #[error("symbol size {symbol_size} is not a multiple of alignment {alignment}")]
    Alignment {
        /// T.
        symbol_size: u16,
        /// Al.
        alignment: u8,
    },
    /// The object falls into more blocks than a FEC Payload ID can number.
    #[error("{blocks} source blocks, but {encoding_id:?} can number {max}")]
    Blocks {
        /// The scheme.
        encoding_id: EncodingId,
        /// Blocks of the object.
        blocks: u64,
        /// Blocks that can be numbered.
        max: u64,
    },
}

impl Fti {
    /// The scheme.
    pub fn encoding_id(&self) -> EncodingId {
        match self {
            Fti::NoCode { .. } => EncodingId::NoCode,
            Fti::ReedSolomonM { .. } => EncodingId::ReedSolomonM,
            Fti::LdpcStaircase(_) => EncodingId::LdpcStaircase,
            Fti::LdpcTriangle(_) => EncodingId::LdpcTriangle,
            Fti::ReedSolomon { .. } => EncodingId::ReedSolomon,
            Fti::RaptorQ { .. } => EncodingId::RaptorQ,
        }
    }

    /// Length in bytes of the object as sent, after content encoding.
    pub fn transfer_length(&self) -> u64 {
        match *self {
            Fti::NoCode { transfer_length, .. }
            | Fti::ReedSolomonM { transfer_length, .. }
            | Fti::LdpcStaircase(Ldpc { transfer_length, .. })
            | Fti::LdpcTriangle(Ldpc { transfer_length, .. })
            | Fti::ReedSolomon { transfer_length, .. }
            | Fti::RaptorQ { transfer_length, .. } => transfer_length,
        }
    }

    /// Length of an encoding symbol in bytes.
    pub fn symbol_size(&self) -> u16 {
        match *self {
            Fti::NoCode { symbol_size, .. }
            | Fti::ReedSolomonM { symbol_size, .. }
            | Fti::LdpcStaircase(Ldpc { symbol_size, .. })
            | Fti::LdpcTriangle(Ldpc { symbol_size, .. })
            | Fti::ReedSolomon { symbol_size, .. }
            | Fti::RaptorQ { symbol_size, .. } => symbol_size,
        }
    }

    /// Reads the content of an EXT_FTI, without the type and length bytes.
    ///
    /// # Errors
    /// A wrong length, or an error of [`Fti::validate`].
    pub fn parse(encoding_id: EncodingId, content: &[u8]) -> Result<Fti, FtiError> {
        let (need, have) = (content_len(encoding_id), content.len());
        if have != need {
            return Err(FtiError::Length { encoding_id, need, have });
        }
        let fti = parse_content(encoding_id, content);
        fti.validate()?;
        Ok(fti)
    }

    /// Length of the EXT_FTI content in bytes; two less than a whole number of words.
    pub fn content_len(&self) -> usize {
        content_len(self.encoding_id())
    }

    /// Writes the content of an EXT_FTI and returns [`Fti::content_len`].
    ///
    /// # Errors
    /// As [`Fti::validate`].
    ///
    /// # Panics
    /// If `buffer` is shorter than [`Fti::content_len`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, FtiError> {
        let mut out = Writer::new(buffer);
        self.emit_to(&mut out)?;
        Ok(out.written())
    }

    pub(crate) fn emit_to(&self, out: &mut Writer<'_>) -> Result<(), FtiError> {
        self.validate()?;
        emit_content(self, out);
        Ok(())
    }

    /// Checks every field against its width and the scheme's rules, and that the blocks can be numbered.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn validate(&self) -> Result<(), FtiError> {
        within("transfer length", self.transfer_length(), 0, TRANSFER_LENGTH_MAX)?;
        within("symbol size", self.symbol_size().into(), 1, u16::MAX.into())?;
        match *self {
            Fti::NoCode { max_block, .. } => self.validate_blocks(max_block.into(), None),
            Fti::ReedSolomonM { m, g, max_block, max_symbols, .. } => {
                within("field element size m", m.into(), 8, 8)?;
                within("group size G", g.into(), 1, u8::MAX.into())?;
                within("maximum number of encoding symbols", max_symbols.into(), 1, 255)?;
                self.validate_blocks(max_block.into(), Some(max_symbols.into()))
            }
            Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => {
                within("N1m3", ldpc.n1_minus3.into(), 0, 7)?;
                within("group size G", ldpc.g.into(), 1, 31)?;
                within("maximum number of encoding symbols", ldpc.max_symbols.into(), 1, (1 << 20) - 1)?;
                within("seed", ldpc.seed.into(), 1, LDPC_SEED_MAX.into())?;
                self.validate_blocks(ldpc.max_block.into(), Some(ldpc.max_symbols.into()))
            }
            Fti::ReedSolomon { max_block, max_symbols, .. } => {
                self.validate_blocks(max_block.into(), Some(max_symbols.into()))
            }
            Fti::RaptorQ { symbol_size, blocks, sub_blocks, alignment, .. } => {
                self.validate_raptorq(symbol_size, blocks.into(), sub_blocks.into(), alignment)
            }
        }
    }

    /// Source symbols of the object, T of RFC 5052. The symbol size is known not to be 0.
    fn symbols(&self) -> u64 {
        self.transfer_length().div_ceil(self.symbol_size().into())
    }

    /// The rules that all schemes with a maximum block length share.
    fn validate_blocks(&self, max_block: u64, max_symbols: Option<u64>) -> Result<(), FtiError> {
        let encoding_id = self.encoding_id();
        within("maximum source block length", max_block, 1, max_symbols.unwrap_or(u32::MAX.into()))?;
        // A sender may state a maximum far above the object's need: only real blocks must be numberable.
        let symbols = self.symbols();
        within("source block length", max_block.min(symbols), 0, 1 << encoding_id.esi_bits())?;
        let (blocks, max) = (symbols.div_ceil(max_block), 1 << encoding_id.sbn_bits());
        if blocks > max { Err(FtiError::Blocks { encoding_id, blocks, max }) } else { Ok(()) }
    }

    fn validate_raptorq(
        &self,
        size: u16,
        blocks: u64,
        sub_blocks: u64,
        alignment: u8,
    ) -> Result<(), FtiError> {
        within("transfer length", self.transfer_length(), 0, RAPTORQ_LENGTH_MAX)?;
        within("alignment", alignment.into(), 1, size.into())?;
        if !size.is_multiple_of(alignment.into()) {
            return Err(FtiError::Alignment { symbol_size: size, alignment });
        }
        // Each sub-symbol is at least an aligned unit long.
        within("number of sub-blocks", sub_blocks, 1, u64::from(size) / u64::from(alignment))?;
        // An empty object has no blocks, and senders say 0 or 1.
        let symbols = self.symbols();
        within("number of source blocks", blocks, symbols.min(1), symbols.max(1))?;
        within("source block length", symbols.div_ceil(blocks.max(1)), 0, RAPTORQ_BLOCK_MAX)
    }
}

fn within(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), FtiError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(FtiError::Range { field, value, min, max }) }
}

/// Length of an EXT_FTI less the type and length bytes.
fn content_len(encoding_id: EncodingId) -> usize {
    match encoding_id {
        EncodingId::NoCode | EncodingId::ReedSolomonM | EncodingId::RaptorQ => 14,
        EncodingId::LdpcStaircase | EncodingId::LdpcTriangle => 18,
        EncodingId::ReedSolomon => 10,
    }
}

/// Parses `content`, whose length fits the scheme.
fn parse_content(encoding_id: EncodingId, content: &[u8]) -> Fti {
    let transfer_length = be(&content[..6]);
    match encoding_id {
        EncodingId::NoCode => {
            Fti::NoCode { transfer_length, symbol_size: be16(content, 8), max_block: be32(content, 10) }
        }
        EncodingId::ReedSolomonM => Fti::ReedSolomonM {
            transfer_length,
            // RFC 5510 section 4.2.4: 0 stands for the default.
            m: if content[6] == 0 { 8 } else { content[6] },
            g: content[7].max(1),
            symbol_size: be16(content, 8),
            max_block: be16(content, 10),
            max_symbols: be16(content, 12),
        },
        EncodingId::LdpcStaircase => Fti::LdpcStaircase(parse_ldpc(transfer_length, content)),
        EncodingId::LdpcTriangle => Fti::LdpcTriangle(parse_ldpc(transfer_length, content)),
        EncodingId::ReedSolomon => Fti::ReedSolomon {
            transfer_length,
            symbol_size: be16(content, 6),
            max_block: content[8],
            max_symbols: content[9],
        },
        EncodingId::RaptorQ => Fti::RaptorQ {
            transfer_length: be(&content[..5]),
            symbol_size: be16(content, 6),
            blocks: content[8],
            sub_blocks: be16(content, 9),
            alignment: content[11],
        },
    }
}

fn parse_ldpc(transfer_length: u64, content: &[u8]) -> Ldpc {
    Ldpc {
        transfer_length,
        symbol_size: be16(content, 6),
        n1_minus3: content[8] >> 5,
        g: content[8] & 0x1F,
        // B and max_n share five bytes, 20 bits each.
        max_block: be32(content, 8) >> 4 & 0xF_FFFF,
        max_symbols: be32(content, 10) & 0xF_FFFF,
        seed: be32(content, 14),
    }
}

/// Writes fields that have been validated.
fn emit_content(fti: &Fti, out: &mut Writer<'_>) {
    let length_len = if fti.encoding_id() == EncodingId::RaptorQ { 5 } else { 6 };
    out.put_uint(fti.transfer_length().into(), length_len);
    let symbol_size = fti.symbol_size().to_be_bytes();
    match *fti {
        Fti::NoCode { max_block, .. } => {
            out.put(&[0, 0]);
            out.put(&symbol_size);
            out.put(&max_block.to_be_bytes());
        }
        Fti::ReedSolomonM { m, g, max_block, max_symbols, .. } => {
            out.put(&[m, g]);
            out.put(&symbol_size);
            out.put(&max_block.to_be_bytes());
            out.put(&max_symbols.to_be_bytes());
        }
        Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => {
            out.put(&symbol_size);
            out.put(&[ldpc.n1_minus3 << 5 | ldpc.g]);
            out.put_uint(u128::from(ldpc.max_block) << 20 | u128::from(ldpc.max_symbols), 5);
            out.put(&ldpc.seed.to_be_bytes());
        }
        Fti::ReedSolomon { max_block, max_symbols, .. } => {
            out.put(&symbol_size);
            out.put(&[max_block, max_symbols]);
        }
        Fti::RaptorQ { blocks, sub_blocks, alignment, .. } => {
            out.put(&[0]);
            out.put(&symbol_size);
            out.put(&[blocks]);
            out.put(&sub_blocks.to_be_bytes());
            out.put(&[alignment, 0, 0]);
        }
    }
}

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

    /// Returns the four bytes for `encoding_id`.
    ///
    /// # Errors
    /// A number too wide for its field.
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
