//! A datagram taken apart as an LCT packet, and as an ALC packet where it is one.

use headwater_wire::alc;
use headwater_wire::cci::{CciError, FlidSlCci, WebrcCci};
use headwater_wire::extensions::{
    HET_AUTH, HET_CENC, HET_FDT, HET_FTI, HET_KEY, HET_LEVELS, HET_MANIFEST, HET_SEQ, HET_TIME,
};
use headwater_wire::{EncodingId, bcfs, lct};

use super::pgm;

/// EXT_NOP, which says nothing (RFC 5651 section 5.2.1).
const HET_NOP: u8 = 0;
/// Extensions from this type on are one word long and have no length byte.
const HET_ONE_WORD: u8 = 128;

/// What a datagram is: at least one of both.
pub struct Content<'a> {
    /// PGM around it.
    pub envelope: Option<pgm::Fields>,
    /// An LCT packet.
    pub packet: Option<Packet<'a>>,
}

impl<'a> Content<'a> {
    /// Looks at a datagram between two ports. What is `is_expected` to be one of both is taken at less than
    /// what tells it from anything else.
    ///
    /// # Errors
    /// Why it is neither.
    pub fn new(datagram: &'a [u8], ports: [u16; 2], is_expected: bool) -> Result<Self, String> {
        // A reply to a request for a packet of files carries that packet.
        let datagram = match bcfs::Header::parse(datagram) {
            Ok((header, body)) if header.kind == bcfs::Kind::Reply => body,
            _ => datagram,
        };
        // By its checksum: the first bits of other makes' PGM may be LCT's version.
        let not_pgm = match pgm::Envelope::new(datagram, ports, is_expected) {
            Ok(envelope) => {
                return Ok(Self { envelope: Some(envelope.fields()), packet: envelope.carried });
            }
            Err(error) => error,
        };
        match Packet::new(datagram) {
            Ok(packet) => Ok(Self { envelope: None, packet: Some(packet) }),
            Err(error) => Err(format!("{error}; {not_pgm}")),
        }
    }
}

/// A datagram whose LCT header is sound.
pub struct Packet<'a> {
    datagram: &'a [u8],
    /// The LCT header.
    pub lct: lct::Packet<&'a [u8]>,
    /// What Headwater understands of it; an error where the rest is no ALC packet of a known FEC scheme.
    pub alc: Result<alc::Repr, alc::AlcError>,
    /// The symbols behind the FEC payload ID; all behind the LCT header where that cannot be read.
    pub symbols: &'a [u8],
}

/// What the congestion control information says.
pub enum CciFields {
    /// In the shape of WEBRC and M2C.
    Webrc(WebrcCci),
    /// In that of FLID-DL.
    Flid(FlidSlCci),
}

/// Lengths of the header's fields in bytes.
pub struct FieldSizes {
    /// Congestion control information.
    pub cci: usize,
    /// Transport session identifier.
    pub tsi: usize,
    /// Transport object identifier.
    pub toi: usize,
}

/// A header extension.
pub struct Extension<'a> {
    /// Its type.
    pub het: u8,
    /// Its length in words, where it has a length byte.
    pub words: Option<usize>,
    /// What follows type and length.
    pub content: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Looks at a datagram.
    ///
    /// # Errors
    /// When the LCT header is malformed.
    pub fn new(datagram: &'a [u8]) -> Result<Self, lct::LctError> {
        let lct = lct::Packet::new_checked(datagram)?;
        let (alc, symbols) = match alc::parse(datagram) {
            Ok((repr, symbols)) => (Ok(repr), symbols),
            Err(error) => (Err(error), lct.into_payload()),
        };
        Ok(Self { datagram, lct, alc, symbols })
    }

    /// The flags of the header's second byte without the field sizes: H (0x10), two reserved bits, A (2), B
    /// (1).
    pub fn flags(&self) -> u8 {
        self.datagram[1] & 0x1F
    }

    /// What the CCI says, in a session that is known to run FLID-DL or not.
    ///
    /// # Errors
    /// When it has another length.
    pub fn cci(&self, is_flid: bool) -> Result<CciFields, CciError> {
        let cci = headwater_wire::Cci::new(self.lct.cci())?;
        if is_flid { cci.flid_sl().map(CciFields::Flid) } else { cci.webrc().map(CciFields::Webrc) }
    }

    /// Lengths of the header's fields.
    pub fn field_sizes(&self) -> FieldSizes {
        let half = usize::from(self.datagram[1] >> 4 & 1) * 2;
        FieldSizes {
            cci: self.lct.cci().len(),
            tsi: usize::from(self.datagram[1] >> 7) * 4 + half,
            toi: usize::from(self.datagram[1] >> 5 & 3) * 4 + half,
        }
    }

    /// The extensions in order.
    pub fn extensions(&self) -> impl Iterator<Item = Extension<'_>> {
        self.lct.extensions().map(|(het, content)| Extension {
            het,
            words: (het < HET_ONE_WORD).then_some((content.len() + 2) / 4),
            content,
        })
    }

    /// The FEC scheme, if there is a payload and its codepoint is known.
    pub fn scheme(&self) -> Option<EncodingId> {
        EncodingId::from_codepoint(self.lct.codepoint())
    }
}

impl Extension<'_> {
    /// Its name in the RFCs, or ours.
    pub fn name(&self) -> &'static str {
        match self.het {
            HET_NOP => "EXT_NOP",
            HET_AUTH => "EXT_AUTH",
            HET_TIME => "EXT_TIME",
            HET_FTI => "EXT_FTI",
            HET_SEQ => "EXT_SEQ",
            HET_MANIFEST => "EXT_MANIFEST",
            HET_KEY => "EXT_KEY",
            HET_LEVELS => "EXT_LEVELS",
            HET_FDT => "EXT_FDT",
            HET_CENC => "EXT_CENC",
            _ => "unknown",
        }
    }
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("strings take everything");
        hex
    })
}
