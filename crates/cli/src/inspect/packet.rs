//! Parsing of a datagram as an LCT packet and, if possible, as an ALC packet.

use headwater_wire::alc;
use headwater_wire::cci::{CciError, FlidSlCci, WebrcCci};
use headwater_wire::extensions::{
    HET_AUTH, HET_CENC, HET_CRYPT, HET_FDT, HET_FTI, HET_KEY, HET_LATENESS, HET_LEVELS, HET_MANIFEST,
    HET_MEMBERS, HET_SEQ, HET_TIME,
};
use headwater_wire::{EncodingId, bcfs, lct};

use super::pgm;

/// EXT_NOP, which has no meaning (RFC 5651 section 5.2.1).
const HET_NOP: u8 = 0;
/// First type of extensions that are a single word long and have no length byte.
const HET_ONE_WORD: u8 = 128;

/// Parsed datagram: PGM, LCT, or LCT in PGM.
pub struct Content<'a> {
    /// PGM packet.
    pub envelope: Option<pgm::Fields>,
    /// LCT packet.
    pub packet: Option<AlcPacket<'a>>,
}

impl<'a> Content<'a> {
    /// Parses a datagram between two ports. With `is_expected`, packets that could belong to another protocol
    /// are accepted, too.
    ///
    /// # Errors
    /// The reason why the datagram is neither PGM nor LCT.
    pub fn new(datagram: &'a [u8], ports: [u16; 2], is_expected: bool) -> Result<Self, String> {
        // A reply to a request for a packet of files contains the packet.
        let datagram = match bcfs::Header::parse(datagram) {
            Ok((header, body)) if header.kind == bcfs::Kind::Reply => body,
            _ => datagram,
        };
        // PGM is recognized by the checksum, because the first bits of PGM packets may equal LCT's version.
        let not_pgm = match pgm::Envelope::new(datagram, ports, is_expected) {
            Ok(envelope) => {
                return Ok(Self { envelope: Some(envelope.fields()), packet: envelope.carried });
            }
            Err(error) => error,
        };
        match AlcPacket::new(datagram) {
            Ok(packet) => Ok(Self { envelope: None, packet: Some(packet) }),
            Err(error) => Err(format!("{error}; {not_pgm}")),
        }
    }
}

/// Datagram with a valid LCT header.
pub struct AlcPacket<'a> {
    datagram: &'a [u8],
    /// LCT header.
    pub lct: lct::Packet<&'a [u8]>,
    /// ALC packet; an error if the payload is no ALC packet of a known FEC scheme.
    pub alc: Result<alc::Repr, alc::AlcError>,
    /// Symbols after the FEC payload ID; all bytes after the LCT header if the payload ID is unreadable.
    pub symbols: &'a [u8],
}

/// Parsed congestion control information.
pub enum CciFields {
    /// Format of WEBRC and M2C.
    Webrc(WebrcCci),
    /// Format of FLID-DL.
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

/// Header extension.
pub struct Extension<'a> {
    /// Type.
    pub het: u8,
    /// Length in words, if the extension has a length byte.
    pub words: Option<usize>,
    /// Bytes after type and length.
    pub content: &'a [u8],
}

impl<'a> AlcPacket<'a> {
    /// Parses a datagram.
    ///
    /// # Errors
    /// If the LCT header is malformed.
    pub fn new(datagram: &'a [u8]) -> Result<Self, lct::LctError> {
        let lct = lct::Packet::new_checked(datagram)?;
        let (alc, symbols) = match alc::parse(datagram) {
            Ok((repr, symbols)) => (Ok(repr), symbols),
            Err(error) => (Err(error), lct.into_payload()),
        };
        Ok(Self { datagram, lct, alc, symbols })
    }

    /// Returns the flags of the header's second byte without the field sizes: H (0x10), two reserved bits, A
    /// (2), B (1).
    pub fn flags(&self) -> u8 {
        self.datagram[1] & 0x1F
    }

    /// Parses the CCI of a session that runs FLID-DL or another control.
    ///
    /// # Errors
    /// If the CCI has another length.
    pub fn cci(&self, is_flid: bool) -> Result<CciFields, CciError> {
        let cci = headwater_wire::Cci::new(self.lct.cci())?;
        if is_flid { cci.flid_sl().map(CciFields::Flid) } else { cci.webrc().map(CciFields::Webrc) }
    }

    /// Returns the lengths of the header's fields.
    pub fn field_sizes(&self) -> FieldSizes {
        let half = usize::from(self.datagram[1] >> 4 & 1) * 2;
        FieldSizes {
            cci: self.lct.cci().len(),
            tsi: usize::from(self.datagram[1] >> 7) * 4 + half,
            toi: usize::from(self.datagram[1] >> 5 & 3) * 4 + half,
        }
    }

    /// Returns the extensions in order.
    pub fn extensions(&self) -> impl Iterator<Item = Extension<'_>> {
        self.lct.extensions().map(|(het, content)| Extension {
            het,
            words: (het < HET_ONE_WORD).then_some((content.len() + 2) / 4),
            content,
        })
    }

    /// Returns the FEC scheme, if the packet has a payload and a known codepoint.
    pub fn scheme(&self) -> Option<EncodingId> {
        EncodingId::from_codepoint(self.lct.codepoint())
    }
}

impl Extension<'_> {
    /// Returns the name of the extension in the RFCs, or in Headwater.
    pub fn name(&self) -> &'static str {
        match self.het {
            HET_NOP => "EXT_NOP",
            HET_AUTH => "EXT_AUTH",
            HET_TIME => "EXT_TIME",
            HET_FTI => "EXT_FTI",
            HET_SEQ => "EXT_SEQ",
            HET_MANIFEST => "EXT_MANIFEST",
            HET_CRYPT => "EXT_CRYPT",
            HET_KEY => "EXT_KEY",
            HET_LEVELS => "EXT_LEVELS",
            HET_MEMBERS => "EXT_MEMBERS",
            HET_LATENESS => "EXT_LATENESS",
            HET_FDT => "EXT_FDT",
            HET_CENC => "EXT_CENC",
            _ => "unknown",
        }
    }
}

/// Formats bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("strings take everything");
        hex
    })
}
