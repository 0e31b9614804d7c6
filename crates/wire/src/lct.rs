//! The LCT header (RFC 5651 section 5.1) as a checked view over the bytes of a datagram.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  V=1  | C |PSI|S| O |H|Res|A|B|   HDR_LEN     |   Codepoint   |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | CCI: 32*(C+1) bits | TSI: 32*S+16*H bits | TOI: 32*O+16*H bits |
//! | header extensions up to HDR_LEN 32-bit words                  |
//! ```
use crate::bytes::be;

/// The version that RFC 5651 defines.
pub const VERSION: u8 = 1;
/// Longest possible LCT header: HDR_LEN counts 32-bit words in 8 bits.
pub const HEADER_LEN_MAX: usize = 255 * 4;
/// Largest transport session identifier, 48 bits.
pub const TSI_MAX: u64 = (1 << 48) - 1;
/// Largest transport object identifier, 112 bits.
pub const TOI_MAX: u128 = (1 << 112) - 1;

/// First header extension type of one 32-bit word; types below have a length byte (RFC 5651 section 5.2).
pub(crate) const HET_FIXED: u8 = 128;
/// Bytes before the CCI.
const FIXED_LEN: usize = 4;

/// Why a datagram holds no LCT packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LctError {
    /// Fewer bytes than a field needs.
    #[error("datagram of {have} bytes is cut short: the LCT header needs {need}")]
    Truncated {
        /// Bytes that the header needs.
        need: usize,
        /// Bytes in the datagram.
        have: usize,
    },
    /// A version other than [`VERSION`].
    #[error("LCT version {0}, expected 1")]
    Version(u8),
    /// HDR_LEN ends before the fields that the flags announce.
    #[error("LCT header length {header_len} ends before its fields, which take {fields_len} bytes")]
    HeaderLength {
        /// HDR_LEN in bytes.
        header_len: usize,
        /// Bytes up to the end of the TOI.
        fields_len: usize,
    },
    /// A header extension with length 0, or that crosses the end of the header.
    #[error("LCT header extension {het} does not fit in the header")]
    Extension {
        /// The type.
        het: u8,
    },
}

/// Sizes of the variable fields in bytes, from the flags of the first two header bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) cci_len: usize,
    pub(crate) tsi_len: usize,
    pub(crate) toi_len: usize,
}

impl Layout {
    fn from_flags(byte0: u8, byte1: u8) -> Layout {
        let half_len = usize::from(byte1 >> 4 & 1) * 2;
        Layout {
            cci_len: (usize::from(byte0 >> 2 & 3) + 1) * 4,
            tsi_len: usize::from(byte1 >> 7) * 4 + half_len,
            toi_len: usize::from(byte1 >> 5 & 3) * 4 + half_len,
        }
    }

    /// Offset of the header extensions.
    pub(crate) fn fields_len(self) -> usize {
        FIXED_LEN + self.cci_len + self.tsi_len + self.toi_len
    }
}

/// A datagram whose LCT header has been checked: no getter panics.
#[derive(Debug, Clone, Copy)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
    layout: Layout,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks the version and every length of the header, header extensions included.
    ///
    /// # Errors
    /// The first thing found wrong. Unknown extension types and reserved bits are fine.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Packet<T>, LctError> {
        let bytes = buffer.as_ref();
        let have = bytes.len();
        let &[byte0, byte1, hdr_len, _, ..] = bytes else {
            return Err(LctError::Truncated { need: FIXED_LEN, have });
        };
        if byte0 >> 4 != VERSION {
            return Err(LctError::Version(byte0 >> 4));
        }
        let layout = Layout::from_flags(byte0, byte1);
        let (header_len, fields_len) = (usize::from(hdr_len) * 4, layout.fields_len());
        if header_len < fields_len {
            return Err(LctError::HeaderLength { header_len, fields_len });
        }
        if header_len > have {
            return Err(LctError::Truncated { need: header_len, have });
        }
        check_extensions(&bytes[fields_len..header_len])?;
        Ok(Packet { buffer, layout })
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// Protocol-Specific Indication, 2 bits. In ALC the high bit is the source packet indicator (RFC 5775
    /// section 2.1).
    pub fn psi(&self) -> u8 {
        self.bytes()[0] & 3
    }

    /// A: the session is about to end.
    #[inline]
    pub fn close_session(&self) -> bool {
        self.bytes()[1] & 2 != 0
    }

    /// B: the object is about to end.
    pub fn close_object(&self) -> bool {
        self.bytes()[1] & 1 != 0
    }

    /// The codepoint; in FLUTE, the FEC Encoding ID.
    pub fn codepoint(&self) -> u8 {
        self.bytes()[3]
    }

    /// The congestion control information: 4, 8, 12 or 16 bytes.
    #[inline]
    pub fn cci(&self) -> &[u8] {
        &self.bytes()[self.cci_range()]
    }

    /// The transport session identifier, of 16, 32 or 48 bits.
    #[inline]
    pub fn tsi(&self) -> Option<u64> {
        let start = FIXED_LEN + self.layout.cci_len;
        let field = &self.bytes()[start..start + self.layout.tsi_len];
        (!field.is_empty()).then(|| be(field))
    }

    /// The transport object identifier, of 16 to 112 bits.
    #[inline]
    pub fn toi(&self) -> Option<u128> {
        let end = self.layout.fields_len();
        let field = &self.bytes()[end - self.layout.toi_len..end];
        (!field.is_empty()).then(|| field.iter().fold(0, |toi, &byte| toi << 8 | u128::from(byte)))
    }

    /// Returns the header extensions in order, also unknown types, as (type, content after type and length).
    #[inline]
    pub fn extensions(&self) -> ExtensionIter<'_> {
        ExtensionIter { rest: &self.bytes()[self.layout.fields_len()..self.header_len()] }
    }

    /// Offset of the first header extension in the datagram.
    #[inline]
    pub(crate) fn extensions_start(&self) -> usize {
        self.layout.fields_len()
    }

    /// Range of the congestion control information in the datagram.
    #[inline]
    pub fn cci_range(&self) -> core::ops::Range<usize> {
        FIXED_LEN..FIXED_LEN + self.layout.cci_len
    }

    /// Length of the whole LCT header in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes()[2]) * 4
    }

    /// Bytes behind the LCT header: in ALC, FEC Payload ID and symbols, or nothing.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes()[self.header_len()..]
    }
}

impl<'a> Packet<&'a [u8]> {
    /// The whole datagram.
    pub(crate) fn datagram(&self) -> &'a [u8] {
        self.buffer
    }

    /// Like [`Packet::payload`], but borrows from the datagram and not from the view.
    pub fn into_payload(self) -> &'a [u8] {
        &self.buffer[self.header_len()..]
    }
}

/// Walks header extensions that [`Packet::new_checked`] has checked.
#[derive(Debug, Clone)]
pub struct ExtensionIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for ExtensionIter<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (extension, rest) = split_extension(self.rest)?;
        self.rest = rest;
        Some(extension)
    }
}

fn check_extensions(mut rest: &[u8]) -> Result<(), LctError> {
    while let Some(&het) = rest.first() {
        rest = split_extension(rest).ok_or(LctError::Extension { het })?.1;
    }
    Ok(())
}

/// Splits the first extension (type, content) from the bytes behind. `None` at the end, or if the length is
/// wrong.
#[expect(clippy::type_complexity, reason = "a split pair, used only here")]
fn split_extension(rest: &[u8]) -> Option<((u8, &[u8]), &[u8])> {
    let &[het, hel, ..] = rest else { return None };
    let (len, content_start) = if het < HET_FIXED { (usize::from(hel) * 4, 2) } else { (4, 1) };
    let (extension, rest) = rest.split_at_checked(len)?;
    Some(((het, extension.get(content_start..)?), rest))
}
