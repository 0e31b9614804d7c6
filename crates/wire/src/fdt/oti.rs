//! FEC object transmission information as attributes of the FDT, `FEC-OTI-*` (RFC 6726 section 5).
use super::FdtError;
use crate::fti::{EncodingId, Fti, Ldpc};

/// The `FEC-OTI-*` attributes of an element, as they stand there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtiAttributes {
    /// `FEC-OTI-FEC-Encoding-ID`.
    pub encoding_id: Option<u8>,
    /// `FEC-OTI-FEC-Instance-ID`, for under-specified schemes.
    pub instance_id: Option<u64>,
    /// `FEC-OTI-Maximum-Source-Block-Length`, in symbols.
    pub max_block: Option<u64>,
    /// `FEC-OTI-Encoding-Symbol-Length`, in bytes.
    pub symbol_size: Option<u64>,
    /// `FEC-OTI-Max-Number-of-Encoding-Symbols`, per block.
    pub max_symbols: Option<u64>,
    /// `FEC-OTI-Scheme-Specific-Info`, decoded from base64.
    pub scheme_specific: Option<Vec<u8>>,
}

pub(super) const ENCODING_ID: &str = "FEC-OTI-FEC-Encoding-ID";
pub(super) const INSTANCE_ID: &str = "FEC-OTI-FEC-Instance-ID";
pub(super) const MAX_BLOCK: &str = "FEC-OTI-Maximum-Source-Block-Length";
pub(super) const SYMBOL_SIZE: &str = "FEC-OTI-Encoding-Symbol-Length";
pub(super) const MAX_SYMBOLS: &str = "FEC-OTI-Max-Number-of-Encoding-Symbols";
pub(super) const SCHEME_SPECIFIC: &str = "FEC-OTI-Scheme-Specific-Info";

impl OtiAttributes {
    /// These attributes, and `defaults` for those that are missing.
    pub(super) fn or(&self, defaults: &OtiAttributes) -> OtiAttributes {
        OtiAttributes {
            encoding_id: self.encoding_id.or(defaults.encoding_id),
            instance_id: self.instance_id.or(defaults.instance_id),
            max_block: self.max_block.or(defaults.max_block),
            symbol_size: self.symbol_size.or(defaults.symbol_size),
            max_symbols: self.max_symbols.or(defaults.max_symbols),
            scheme_specific: self.scheme_specific.as_ref().or(defaults.scheme_specific.as_ref()).cloned(),
        }
    }

    /// The scheme's parameters for an object of `transfer_length` bytes.
    pub(super) fn fti(&self, transfer_length: u64) -> Result<Fti, FdtError> {
        let codepoint = self.encoding_id.ok_or(FdtError::Missing(ENCODING_ID))?;
        let encoding_id = EncodingId::from_codepoint(codepoint).ok_or(FdtError::UnknownScheme(codepoint))?;
        let symbol_size = required(SYMBOL_SIZE, self.symbol_size)?;
        let fti = match encoding_id {
            EncodingId::NoCode => {
                Fti::NoCode { transfer_length, symbol_size, max_block: required(MAX_BLOCK, self.max_block)? }
            }
            EncodingId::ReedSolomonM => self.reed_solomon_m(transfer_length, symbol_size)?,
            EncodingId::LdpcStaircase => Fti::LdpcStaircase(self.ldpc(transfer_length, symbol_size)?),
            EncodingId::LdpcTriangle => Fti::LdpcTriangle(self.ldpc(transfer_length, symbol_size)?),
            EncodingId::ReedSolomon => Fti::ReedSolomon {
                transfer_length,
                symbol_size,
                max_block: required(MAX_BLOCK, self.max_block)?,
                max_symbols: required(MAX_SYMBOLS, self.max_symbols)?,
            },
            EncodingId::RaptorQ => self.raptorq(transfer_length, symbol_size)?,
        };
        fti.validate()?;
        Ok(fti)
    }

    fn reed_solomon_m(&self, transfer_length: u64, symbol_size: u16) -> Result<Fti, FdtError> {
        // RFC 5510 section 4.2.4.2: without scheme-specific information, and for zeros in it, the defaults
        // hold.
        let [m, g] = self.scheme_specific.as_ref().map_or(Ok([0, 0]), |_| self.specific())?;
        Ok(Fti::ReedSolomonM {
            transfer_length,
            symbol_size,
            m: if m == 0 { 8 } else { m },
            g: g.max(1),
            max_block: required(MAX_BLOCK, self.max_block)?,
            max_symbols: required(MAX_SYMBOLS, self.max_symbols)?,
        })
    }

    fn ldpc(&self, transfer_length: u64, symbol_size: u16) -> Result<Ldpc, FdtError> {
        let [s0, s1, s2, s3, n1_g] = self.specific()?;
        Ok(Ldpc {
            transfer_length,
            symbol_size,
            n1_minus3: n1_g >> 5,
            g: n1_g & 0x1F,
            max_block: required(MAX_BLOCK, self.max_block)?,
            max_symbols: required(MAX_SYMBOLS, self.max_symbols)?,
            seed: u32::from_be_bytes([s0, s1, s2, s3]),
        })
    }

    fn raptorq(&self, transfer_length: u64, symbol_size: u16) -> Result<Fti, FdtError> {
        let [blocks, n0, n1, alignment] = self.specific()?;
        let sub_blocks = u16::from_be_bytes([n0, n1]);
        Ok(Fti::RaptorQ { transfer_length, symbol_size, blocks, sub_blocks, alignment })
    }

    /// The scheme-specific information, of the length that the scheme defines.
    fn specific<const N: usize>(&self) -> Result<[u8; N], FdtError> {
        let info = self.scheme_specific.as_ref().ok_or(FdtError::Missing(SCHEME_SPECIFIC))?;
        info.as_slice().try_into().map_err(|_| FdtError::Attribute {
            attribute: SCHEME_SPECIFIC.into(),
            value: format!("{} bytes", info.len()),
            reason: "wrong length for the FEC scheme",
        })
    }
}

fn required<T: TryFrom<u64>>(attribute: &'static str, value: Option<u64>) -> Result<T, FdtError> {
    let value = value.ok_or(FdtError::Missing(attribute))?;
    T::try_from(value).map_err(|_| FdtError::Attribute {
        attribute: attribute.into(),
        value: value.to_string(),
        reason: "too large for the FEC scheme",
    })
}

impl From<&Fti> for OtiAttributes {
    /// What a sender writes for an object; the transfer length goes in an attribute of its own.
    fn from(fti: &Fti) -> OtiAttributes {
        let common = OtiAttributes {
            encoding_id: Some(fti.encoding_id().codepoint()),
            symbol_size: Some(fti.symbol_size().into()),
            ..OtiAttributes::default()
        };
        match *fti {
            Fti::NoCode { max_block, .. } => OtiAttributes { max_block: Some(max_block.into()), ..common },
            Fti::ReedSolomonM { m, g, max_block, max_symbols, .. } => OtiAttributes {
                max_block: Some(max_block.into()),
                max_symbols: Some(max_symbols.into()),
                scheme_specific: Some(vec![m, g]),
                ..common
            },
            Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => OtiAttributes {
                max_block: Some(ldpc.max_block.into()),
                max_symbols: Some(ldpc.max_symbols.into()),
                scheme_specific: Some(ldpc_specific(&ldpc)),
                ..common
            },
            Fti::ReedSolomon { max_block, max_symbols, .. } => OtiAttributes {
                max_block: Some(max_block.into()),
                max_symbols: Some(max_symbols.into()),
                ..common
            },
            Fti::RaptorQ { blocks, sub_blocks, alignment, .. } => {
                let [n0, n1] = sub_blocks.to_be_bytes();
                OtiAttributes { scheme_specific: Some(vec![blocks, n0, n1, alignment]), ..common }
            }
        }
    }
}

/// Seed (32), N1m3 (3), G (5).
fn ldpc_specific(ldpc: &Ldpc) -> Vec<u8> {
    let mut info = ldpc.seed.to_be_bytes().to_vec();
    info.push(ldpc.n1_minus3 << 5 | ldpc.g & 0x1F);
    info
}
