//! One ALC packet (RFC 5775 section 2) as a value: the contents of the LCT header and the FEC Payload ID.
//!
//! ```text
//! UDP payload = LCT header | FEC Payload ID (4 bytes) | encoding symbol(s)
//! ```
//! A packet without symbols has no FEC Payload ID either. The codepoint is the FEC Encoding ID, as in FLUTE.

use crate::bytes::Writer;
use crate::cci::Cci;
use crate::extensions::{ExtensionError, Extensions};
use crate::fti::{EncodingId, PAYLOAD_ID_LEN, PayloadId, PayloadIdError};
use crate::lct::{self, Layout, TOI_MAX, TSI_MAX, VERSION};

/// Header of a packet. The symbols are not included: they follow the header in the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Transport session identifier, at most [`TSI_MAX`].
    pub tsi: u64,
    /// Transport object identifier, at most [`TOI_MAX`]; 0 is the FDT. Packets that only close a session have
    /// no TOI.
    pub toi: Option<u128>,
    /// A: the session is about to end.
    pub close_session: bool,
    /// B: the object is about to end.
    pub close_object: bool,
    /// Protocol-specific indication, 2 bits.
    pub psi: u8,
    /// FEC Encoding ID of the payload.
    pub codepoint: u8,
    /// Congestion control information.
    pub cci: Cci,
    /// Header extensions.
    pub extensions: Extensions,
    /// Which symbol follows; `None` if no payload does, or an encrypted one ([`split_payload`]).
    pub payload_id: Option<PayloadId>,
}

/// Why a datagram is no ALC packet, or a [`Repr`] cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AlcError {
    /// The LCT header is malformed.
    #[error(transparent)]
    Lct(#[from] lct::LctError),
    /// A header extension is malformed or cannot be written.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// The FEC Payload ID cannot be written.
    #[error(transparent)]
    PayloadId(#[from] PayloadIdError),
    /// No transport session identifier, which ALC requires.
    #[error("no transport session identifier")]
    NoTsi,
    /// A payload under a codepoint whose FEC Payload ID has an unknown format.
    #[error("payload of unknown FEC scheme, codepoint {0}")]
    UnknownScheme(u8),
    /// Fewer bytes behind the header than a FEC Payload ID.
    #[error("payload of {0} bytes is shorter than its FEC Payload ID")]
    PayloadTruncated(usize),
    /// A session or object identifier, or a PSI, that no LCT header can hold.
    #[error("{field} {value:#x} does not fit in an LCT header")]
    Unrepresentable {
        /// The field.
        field: &'static str,
        /// The value.
        value: u128,
    },
    /// The buffer is shorter than [`Repr::buffer_len`].
    #[error("buffer of {have} bytes, the header needs {need}")]
    Buffer {
        /// Bytes that the header needs.
        need: usize,
        /// Bytes in the buffer.
        have: usize,
    },
}

/// Returns the header and the symbols of one datagram, or its encrypted payload. Allocates nothing.
///
/// # Errors
/// [`AlcError`], if the datagram is no ALC packet of a known FEC scheme.
pub fn parse(datagram: &[u8]) -> Result<(Repr, &[u8]), AlcError> {
    let packet = lct::Packet::new_checked(datagram)?;
    let repr = Repr::parse(&packet)?;
    let payload = packet.into_payload();
    Ok((repr, &payload[payload_id_len(repr.payload_id)..]))
}

/// Splits a payload into FEC Payload ID and symbols.
///
/// # Errors
/// A payload whose FEC Payload ID cannot be read.
pub fn split_payload(codepoint: u8, payload: &[u8]) -> Result<(Option<PayloadId>, &[u8]), AlcError> {
    let payload_id = parse_payload_id(codepoint, payload)?;
    Ok((payload_id, &payload[payload_id_len(payload_id)..]))
}

impl Repr {
    /// Reads the header of a checked packet. Reserved bits and unknown extensions are skipped.
    ///
    /// # Errors
    /// A missing TSI, a malformed extension, or a payload whose FEC Payload ID cannot be read.
    pub fn parse<T: AsRef<[u8]>>(packet: &lct::Packet<T>) -> Result<Repr, AlcError> {
        let codepoint = packet.codepoint();
        let extensions = Extensions::parse(packet.extensions(), codepoint)?;
        let payload_id = match extensions.crypt {
            Some(_) => None,
            None => parse_payload_id(codepoint, packet.payload())?,
        };
        Ok(Repr {
            tsi: packet.tsi().ok_or(AlcError::NoTsi)?,
            toi: packet.toi(),
            close_session: packet.close_session(),
            close_object: packet.close_object(),
            psi: packet.psi(),
            codepoint,
            cci: Cci::padded(packet.cci()),
            extensions,
            payload_id,
        })
    }

    /// Bytes that [`Repr::emit`] writes: LCT header and FEC Payload ID.
    pub fn buffer_len(&self) -> usize {
        self.layout().fields_len() + self.extensions.buffer_len() + payload_id_len(self.payload_id)
    }

    /// Writes the header to the front of `buffer` and returns the header's length; the caller writes the
    /// symbols right behind. Session and object identifiers take the smallest form that holds both.
    ///
    /// # Errors
    /// A value too wide for its field, or a short buffer, whose content is then unspecified.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, AlcError> {
        self.check_ranges()?;
        let layout = self.layout();
        let lct_len = layout.fields_len() + self.extensions.buffer_len();
        let (need, have) = (lct_len + payload_id_len(self.payload_id), buffer.len());
        if have < need {
            return Err(AlcError::Buffer { need, have });
        }
        let mut out = Writer::new(buffer);
        self.emit_fields(layout, lct_len, &mut out);
        self.extensions.emit(self.codepoint, &mut out)?;
        if let Some(payload_id) = self.payload_id {
            let scheme =
                EncodingId::from_codepoint(self.codepoint).ok_or(AlcError::UnknownScheme(self.codepoint))?;
            out.put(&payload_id.emit(scheme)?);
        }
        debug_assert_eq!(out.written(), need, "buffer_len and emit agree");
        Ok(out.written())
    }

    fn check_ranges(&self) -> Result<(), AlcError> {
        // Without a TOI only the 32-bit form of the TSI is left: 16 and 48 bits bring half a word of TOI
        // along.
        let tsi_max = if self.toi.is_none() { u32::MAX.into() } else { TSI_MAX };
        if self.tsi > tsi_max {
            return Err(AlcError::Unrepresentable { field: "session identifier", value: self.tsi.into() });
        }
        if let Some(value) = self.toi.filter(|&toi| toi > TOI_MAX) {
            return Err(AlcError::Unrepresentable { field: "object identifier", value });
        }
        if self.psi > 3 {
            return Err(AlcError::Unrepresentable { field: "PSI", value: self.psi.into() });
        }
        Ok(())
    }

    /// Returns the smallest fields that hold both identifiers, or the largest fields if an identifier fits no
    /// field.
    fn layout(&self) -> Layout {
        let cci_len = self.cci.as_bytes().len();
        let Some(toi) = self.toi else { return Layout { cci_len, tsi_len: 4, toi_len: 0 } };
        let whole = Layout::holding(cci_len, self.tsi, toi, 0);
        let half = Layout::holding(cci_len, self.tsi, toi, 2);
        match (whole, half) {
            // On a tie whole words win: their fields stay aligned.
            (Some(whole), Some(half)) if whole.fields_len() <= half.fields_len() => whole,
            (_, Some(half)) => half,
            (Some(whole), None) => whole,
            (None, None) => Layout { cci_len, tsi_len: 6, toi_len: 14 },
        }
    }

    fn emit_fields(&self, layout: Layout, lct_len: usize, out: &mut Writer<'_>) {
        let words =
            |bytes: usize| u8::try_from(bytes / 4).expect("an LCT header of ours is at most 96 bytes long");
        let half = u8::from(!layout.tsi_len.is_multiple_of(4));
        let byte1 = words(layout.tsi_len) << 7
            | words(layout.toi_len) << 5
            | half << 4
            | u8::from(self.close_session) << 1
            | u8::from(self.close_object);
        out.put(&[VERSION << 4 | (words(layout.cci_len) - 1) << 2 | self.psi, byte1]);
        out.put(&[words(lct_len), self.codepoint]);
        out.put(self.cci.as_bytes());
        out.put_uint(self.tsi.into(), layout.tsi_len);
        out.put_uint(self.toi.unwrap_or(0), layout.toi_len);
    }
}

impl Layout {
    /// Smallest fields whose lengths are whole words plus `half_len` bytes (0 or 2); `None` if no field is
    /// wide enough.
    fn holding(cci_len: usize, tsi: u64, toi: u128, half_len: usize) -> Option<Layout> {
        let field_len = |bits: u32| {
            // At least one byte: a field of zero bytes would be absent.
            let len = (bits as usize).div_ceil(8).max(1);
            len.saturating_sub(half_len).next_multiple_of(4) + half_len
        };
        let tsi_len = field_len(64 - tsi.leading_zeros());
        let toi_len = field_len(128 - toi.leading_zeros());
        (tsi_len <= 4 + half_len && toi_len <= 12 + half_len).then_some(Layout { cci_len, tsi_len, toi_len })
    }
}

fn parse_payload_id(codepoint: u8, payload: &[u8]) -> Result<Option<PayloadId>, AlcError> {
    if payload.is_empty() {
        return Ok(None);
    }
    let scheme = EncodingId::from_codepoint(codepoint).ok_or(AlcError::UnknownScheme(codepoint))?;
    let bytes = payload.first_chunk().ok_or(AlcError::PayloadTruncated(payload.len()))?;
    Ok(Some(PayloadId::parse(scheme, *bytes)))
}

fn payload_id_len(payload_id: Option<PayloadId>) -> usize {
    payload_id.map_or(0, |_| PAYLOAD_ID_LEN)
}
